//! Processes that must not outlive the one that started them, and those that they leave behind.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, wait, waitid,
};

/// Has the kernel kill the process when the thread that starts it ends, for whatever reason. What the
/// process itself starts is not touched: see [`adopt_orphans`].
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = getpid();
    let before_exec = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before the line above: then no signal would come.
        match rustix::process::getppid() {
            Some(now) if now == parent => Ok(()),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: between fork and exec only system calls are made (prctl and getppid, by wrappers that
    // neither allocate nor lock), and errors of two words are built.
    unsafe { command.pre_exec(before_exec) }
}

/// Has the process put itself into a control group before its program begins, so that whatever it
/// starts is in it too. `members` is the group's `cgroup.procs`, open for writing.
pub fn join_control_group(command: &mut Command, members: File) -> &mut Command {
    let before_exec = move || {
        // 0 is whoever writes it.
        match rustix::io::write(&members, b"0")? {
            1 => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    };
    // SAFETY: between fork and exec only a system call is made (write, by a wrapper that neither
    // allocates nor locks), to a descriptor that the closure owns, and errors of a word are built.
    unsafe { command.pre_exec(before_exec) }
}

/// Makes processes whose parent has ended children of this one, if they descend from it.
///
/// # Errors
/// The kernel is too old for that (Linux 3.4).
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// The children of this process, those that have ended and were not waited for included. The kernel
/// may leave out one that is being born or has just been adopted: ask again.
#[must_use]
pub fn children() -> Vec<u32> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let texts =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let mut pids = Vec::new();
    for text in texts {
        pids.extend(
            text.split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    pids
}

/// A signal that ends a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// It is asked to end (SIGTERM).
    Terminate,
    /// It is killed (SIGKILL).
    Kill,
}

/// Sends a child a signal. It must not have been waited for, since its number may be another's then.
///
/// # Errors
/// There is no such process, or it is another user's.
pub fn signal(child: u32, stop: StopSignal) -> io::Result<()> {
    let signal = match stop {
        StopSignal::Terminate => Signal::TERM,
        StopSignal::Kill => Signal::KILL,
    };
    Ok(kill_process(pid(child)?, signal)?)
}

/// Waits until a child has ended, and says how: "exit status 1", "signal 9". It can be signalled
/// until [`reap`] has taken it.
///
/// # Errors
/// It is no child of this process.
pub fn wait_for_end(child: u32) -> io::Result<String> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let status = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid(child)?), options))?;
    let by_exit = || {
        status?
            .exit_status()
            .map(|code| format!("exit status {code}"))
    };
    let by_signal = || {
        status?
            .terminating_signal()
            .map(|it| format!("signal {it}"))
    };
    Ok(by_exit()
        .or_else(by_signal)
        .unwrap_or_else(|| "unknown".to_owned()))
}

/// What is left of the children of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// There are some, and none has ended.
    Running,
    /// There are none.
    None,
}

/// Takes all children that have ended, so that nothing remains of them.
#[must_use]
pub fn reap() -> Left {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return Left::Running,
            Err(_) => return Left::None,
        }
    }
}

fn pid(number: u32) -> Result<Pid, rustix::io::Errno> {
    let number = i32::try_from(number).ok();
    number
        .and_then(Pid::from_raw)
        .ok_or(rustix::io::Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use std::process::Child;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// Ends by itself long after any test.
    fn sleeper() -> Command {
        let mut command = Command::new("sleep");
        command.arg("600");
        command
    }

    /// A file in the place of a group's shows what a process writes before it begins, and that it
    /// does not begin where that fails.
    #[test]
    fn a_process_joins_a_group_or_does_not_begin() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cgroup.procs");
        let mut command = Command::new("cp");
        command
            .arg(&path)
            .arg(folder.path().join("seen"))
            .stdin(std::process::Stdio::null());
        join_control_group(&mut command, File::create(&path).unwrap());
        assert!(command.status().unwrap().success());
        let seen = fs::read_to_string(folder.path().join("seen")).unwrap();
        assert_eq!(seen, "0");
        let mut command = sleeper();
        join_control_group(&mut command, File::open(&path).unwrap()); // not for writing
        assert!(command.spawn().is_err());
    }

    fn end(child: &mut Child) -> String {
        let how = wait_for_end(child.id()).unwrap();
        child.wait().unwrap();
        how
    }

    #[test]
    fn how_a_child_ended_is_known_before_it_is_taken() {
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        assert_eq!(wait_for_end(child.id()).unwrap(), "exit status 7");
        assert!(children().contains(&child.id()));
        assert_eq!(child.wait().unwrap().code(), Some(7));
        assert!(!children().contains(&child.id()));
    }

    #[test]
    fn children_end_by_the_signal_they_get() {
        for (stop, how) in [
            (StopSignal::Terminate, "signal 15"),
            (StopSignal::Kill, "signal 9"),
        ] {
            let mut child = sleeper().spawn().unwrap();
            signal(child.id(), stop).unwrap();
            assert_eq!(end(&mut child), how);
        }
    }

    #[test]
    fn what_is_no_process_or_no_child_is_refused() {
        for no_process in [0, u32::MAX] {
            assert!(signal(no_process, StopSignal::Terminate).is_err());
        }
        assert!(wait_for_end(std::process::id()).is_err());
    }

    #[test]
    fn a_process_ends_with_the_thread_that_started_it() {
        let (sender, started) = channel();
        let thread = thread::spawn(move || {
            sender
                .send(die_with_parent(&mut sleeper()).spawn().unwrap())
                .unwrap();
        });
        let mut child = started.recv().unwrap();
        thread.join().unwrap();
        assert_eq!(end(&mut child), "signal 9");
    }
}
