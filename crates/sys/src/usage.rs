//! What this process or thread may use, and has used.

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// CPU time that the calling thread has used.
#[must_use]
pub fn thread_cpu() -> Duration {
    cpu_time(ClockId::ThreadCPUTime)
}

/// CPU time that all threads of this process have used.
#[must_use]
pub fn process_cpu() -> Duration {
    cpu_time(ClockId::ProcessCPUTime)
}

/// A thread of this process whose use of CPUs others may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadUsage {
    id: i32,
}

impl ThreadUsage {
    /// Of the calling thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        Self { id }
    }

    /// CPU time that the thread has used; `None` once it has ended. A later thread may have its number.
    #[must_use]
    pub fn cpu(self) -> Option<Duration> {
        // As the kernel names the CPU clocks of threads (`CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`).
        let clock: libc::clockid_t = (!self.id << 3) | 4 | 2;
        let mut time = MaybeUninit::<libc::timespec>::uninit();
        // SAFETY: the kernel writes a `timespec` to a place for one that lives through the call.
        if unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: the call has succeeded, so the kernel has written all of it.
        let time = unsafe { time.assume_init() };
        let seconds = u64::try_from(time.tv_sec).ok()?;
        Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
    }

    /// Time in which the thread could have run, and no CPU was free for it, in nanoseconds; `None` if
    /// the kernel does not count it, or once the thread has ended.
    #[must_use]
    pub fn run_delay_ns(self) -> Option<u64> {
        Some(self.run_delay()?.ns)
    }

    /// The same, and how many waits there were.
    #[must_use]
    pub fn run_delay(self) -> Option<RunDelay> {
        run_delay(&format!("/proc/self/task/{}/schedstat", self.id))
    }
}

/// Waits of a thread for a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunDelay {
    /// All of them together, in nanoseconds.
    pub ns: u64,
    /// How often the thread was given a CPU: each time after a wait, which may have been very short.
    pub count: u64,
}

fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Time in which the calling thread could have run, and no CPU was free for it, in nanoseconds (the
/// second number of `/proc/thread-self/schedstat`); `None` if the kernel does not count it.
#[must_use]
pub fn thread_run_delay_ns() -> Option<u64> {
    Some(run_delay("/proc/thread-self/schedstat")?.ns)
}

fn run_delay(path: &str) -> Option<RunDelay> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut numbers = text.split_ascii_whitespace().skip(1);
    Some(RunDelay {
        ns: numbers.next()?.parse().ok()?,
        count: numbers.next()?.parse().ok()?,
    })
}

/// Lets sleeps of the calling thread end on time: the kernel otherwise adds up to 50 us to gather
/// wake-ups.
///
/// # Errors
/// The kernel was built without high-resolution timers.
pub fn sleep_precisely() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}

/// The time slice of [`wake_promptly`], in nanoseconds: the shortest that Linux grants.
const SLICE_NS: u64 = 100_000;

/// Lets the calling thread, and threads that it starts from then on, run soon after they wake: they
/// ask for short slices of CPU time, and Linux (from 6.12 on) lets such a thread interrupt one that
/// asked for longer. Otherwise whatever else runs on that CPU may keep it for 3 ms. It gets no more
/// CPU time for that. Older kernels take no notice.
///
/// # Errors
/// The kernel refuses, by a seccomp filter for example.
pub fn wake_promptly() -> io::Result<()> {
    // SAFETY: all of its fields are numbers, for which zeros are valid.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of_val(&attributes) as libc::c_uint;
    // SAFETY: 0 is the calling thread; the kernel writes at most `size` bytes to `attributes`, which
    // is as large and lives through the call.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    let policy = libc::c_int::try_from(attributes.sched_policy).unwrap_or(-1);
    if !matches!(policy, libc::SCHED_OTHER | libc::SCHED_BATCH) {
        return Ok(()); // chosen otherwise: a real-time priority, say
    }
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: 0 is the calling thread; the kernel reads the `size` bytes that `attributes` says it
    // has, as filled in by the call before.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the calling thread run as soon as it has something to do, before all others of ordinary priority
/// (`SCHED_FIFO`). For threads that sleep most of the time. Those that it starts do not inherit it.
///
/// # Errors
/// The process may not (`CAP_SYS_NICE`, or a limit of real-time priority above 0).
pub fn run_before_others() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: 0 is the calling thread; the kernel reads the parameters, which live through the call.
    let set = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How many descriptors the process may have open, and up to what it may raise that. `u64::MAX`:
/// without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// What holds now.
    pub soft: u64,
    /// Up to where it may be raised.
    pub hard: u64,
}

/// The descriptor limit of the process.
#[must_use]
pub fn descriptor_limit() -> DescriptorLimit {
    let limit = getrlimit(Resource::Nofile);
    DescriptorLimit {
        soft: limit.current.unwrap_or(u64::MAX),
        hard: limit.maximum.unwrap_or(u64::MAX),
    }
}

/// Raises the soft limit to the hard one; returns what holds then. The soft one is low for the sake
/// of programs that use `select`; this one does not.
pub fn raise_descriptor_limit() -> DescriptorLimit {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised); // a refusal shows in what is returned
    descriptor_limit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_uses_cpu_time() {
        let before = thread_cpu();
        let mut sum = 0_u64;
        while thread_cpu() - before < Duration::from_millis(2) {
            sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
        }
        assert!(thread_cpu() > before);
    }

    #[test]
    fn others_read_what_a_thread_uses_until_it_ends() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let before = thread_cpu();
            let mut sum = 0_u64;
            while thread_cpu() - before < Duration::from_millis(2) {
                sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
            }
            sender
                .send((ThreadUsage::of_this_thread(), thread_cpu()))
                .unwrap();
            ended.recv().unwrap_err();
        });
        let (usage, cpu) = receiver.recv().unwrap();
        assert!(usage.cpu() >= Some(cpu));
        assert_eq!(
            usage.run_delay_ns().is_some(),
            thread_run_delay_ns().is_some()
        );
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn the_delay_of_a_thread_never_shrinks() {
        let before = thread_run_delay_ns();
        assert!(before.is_none() || thread_run_delay_ns() >= before);
    }

    #[test]
    fn each_sleep_ends_with_a_wait_for_a_cpu() {
        let waits = || ThreadUsage::of_this_thread().run_delay().map(|it| it.count);
        let before = waits();
        if before.is_some_and(|count| count > 0) {
            std::thread::sleep(Duration::from_millis(1));
            assert!(waits() > before);
        }
    }

    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let raised = raise_descriptor_limit();
        assert_eq!(raised.soft, raised.hard);
        assert_eq!(descriptor_limit(), raised);
    }

    #[test]
    fn a_slice_is_asked_for_and_nothing_else_changed() {
        let nice = || rustix::process::nice(0).unwrap();
        let before = nice();
        wake_promptly().unwrap();
        wake_promptly().unwrap();
        assert_eq!(nice(), before);
    }

    #[test]
    fn slack_can_be_set() {
        sleep_precisely().unwrap();
        assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1);
    }
}
