//! How long a thread may run before the scheduler looks at others.

use std::io;
use std::mem::MaybeUninit;

/// The shortest that Linux grants (`sched(7)`; `kernel/sched/syscalls.c`).
const SHORTEST_NS: u64 = 100_000;

/// A thread of this process, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadNumber(libc::pid_t);

impl ThreadNumber {
    /// Of the calling thread.
    #[must_use]
    pub fn own() -> Self {
        Self(rustix::thread::gettid().as_raw_pid())
    }

    /// Asks for the shortest time slices, 0.1 ms, for this thread and for those that it starts from now on.
    ///
    /// With many threads that are ready it is decided more often which is next, so that none waits long behind
    /// others. Before Linux 6.12 nothing changes, nor for a thread of a real-time policy.
    ///
    /// # Errors
    /// The thread has ended, or the kernel or a filter of system calls does not allow it.
    pub fn ask_for_shortest_slices(self) -> io::Result<()> {
        let mut attributes = self.attributes()?;
        let is_fair = [libc::SCHED_OTHER, libc::SCHED_BATCH]
            .iter()
            .any(|policy| u32::try_from(*policy) == Ok(attributes.sched_policy));
        if !is_fair {
            return Ok(());
        }
        attributes.sched_runtime = SHORTEST_NS;
        // SAFETY: the kernel reads `size` bytes of a structure that lives through the call.
        let result =
            unsafe { libc::syscall(libc::SYS_sched_setattr, self.0, &raw const attributes, 0) };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn attributes(self) -> io::Result<libc::sched_attr> {
        let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
        let (place, size) = (attributes.as_mut_ptr(), size_of::<libc::sched_attr>());
        // SAFETY: the kernel writes at most `size` bytes at the address of a structure of that size.
        let result = unsafe { libc::syscall(libc::SYS_sched_getattr, self.0, place, size, 0) };
        match result {
            // SAFETY: all fields are integers, for which zero is a value; the kernel has written the others.
            0 => Ok(unsafe { attributes.assume_init() }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    fn own() -> libc::sched_attr {
        ThreadNumber::own().attributes().unwrap()
    }

    /// Kernels that know no slices say 0.
    fn assert_short(one: &libc::sched_attr) {
        assert!([0, SHORTEST_NS].contains(&one.sched_runtime), "{one:?}");
    }

    #[test]
    fn threads_inherit_the_slice_and_keep_their_niceness() {
        let ours = own();
        let (asking, started) = thread::spawn(|| {
            ThreadNumber::own().ask_for_shortest_slices().unwrap();
            let started = thread::spawn(own);
            (own(), started.join().unwrap())
        })
        .join()
        .unwrap();
        for one in [&asking, &started] {
            assert_eq!(one.sched_nice, ours.sched_nice);
            assert_eq!(one.sched_policy, ours.sched_policy);
            assert_short(one);
        }
        assert_eq!(started.sched_runtime, asking.sched_runtime);
        assert_eq!(ours.sched_runtime, own().sched_runtime);
    }

    #[test]
    fn a_thread_is_asked_for_by_another() {
        let (numbers, number) = mpsc::channel();
        let (done, wait) = mpsc::channel::<()>();
        let other = thread::spawn(move || {
            numbers.send(ThreadNumber::own()).unwrap();
            let _ = wait.recv();
            own()
        });
        let number = number.recv().unwrap();
        number.ask_for_shortest_slices().unwrap();
        drop(done);
        assert_short(&other.join().unwrap());
        assert!(number.ask_for_shortest_slices().is_err(), "it has ended");
    }
}
