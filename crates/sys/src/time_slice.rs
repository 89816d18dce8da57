//! How long a thread may run before the scheduler looks at others.

use std::io;
use std::mem::MaybeUninit;

/// The shortest that Linux grants (`sched(7)`; `kernel/sched/syscalls.c`).
const SHORTEST_NS: u64 = 100_000;

/// Asks for the shortest time slices, 0.1 ms, for the calling thread and for those that it starts from now on.
///
/// With many threads that are ready it is decided more often which is next, so that none waits long behind
/// others. Before Linux 6.12 nothing changes, nor for a thread of a real-time policy.
///
/// # Errors
/// The kernel or a filter of system calls does not allow it.
pub fn ask_for_shortest() -> io::Result<()> {
    let mut attributes = of_this_thread()?;
    let is_fair = [libc::SCHED_OTHER, libc::SCHED_BATCH]
        .iter()
        .any(|policy| u32::try_from(*policy) == Ok(attributes.sched_policy));
    if !is_fair {
        return Ok(());
    }
    attributes.sched_runtime = SHORTEST_NS;
    // SAFETY: the kernel reads `size` bytes of a structure that lives through the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn of_this_thread() -> io::Result<libc::sched_attr> {
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes at the address of a structure of that size.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), size, 0) };
    match result {
        // SAFETY: all fields are integers, for which zero is a value; the kernel has written the others.
        0 => Ok(unsafe { attributes.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn threads_inherit_the_slice_and_keep_their_niceness() {
        let ours = of_this_thread().unwrap();
        let (asking, started) = thread::spawn(|| {
            ask_for_shortest().unwrap();
            let started = thread::spawn(|| of_this_thread().unwrap());
            (of_this_thread().unwrap(), started.join().unwrap())
        })
        .join()
        .unwrap();
        for one in [&asking, &started] {
            assert_eq!(one.sched_nice, ours.sched_nice);
            assert_eq!(one.sched_policy, ours.sched_policy);
            // Kernels that know no slices say 0.
            assert!([0, SHORTEST_NS].contains(&one.sched_runtime), "{one:?}");
        }
        assert_eq!(started.sched_runtime, asking.sched_runtime);
        assert_eq!(ours.sched_runtime, of_this_thread().unwrap().sched_runtime);
    }
}
