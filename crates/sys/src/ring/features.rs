//! What the kernel's io_uring can do, what was forced off, and why there is none.

use std::fs;
use std::io;

use io_uring::{IoUring, Probe, opcode};
use rustix::io::Errno;

/// Names of features to leave unused, separated by commas: for tests of the ways around them.
/// `io-uring` stands for all of it: as if the machine refused it.
pub const WITHOUT: &str = "LOADLINE_RING_WITHOUT";

/// What a ring uses and could do without. Each can be forced off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// One accept operation for many connections (5.19; before 6.8 it could report a descriptor that
    /// is none when completions overflowed, so it is used from then on).
    pub multishot_accept: bool,
    /// One receive operation for many receives (6.0).
    pub multishot_receive: bool,
    /// Sends that went out whole post no completion (5.17).
    pub quiet_sends: bool,
    /// Completions are worked out when the loop asks for them (6.1).
    pub defer_taskrun: bool,
    /// Submissions are taken in the order of the ring, without an index array (6.6).
    pub no_sqarray: bool,
    /// Files that are not in memory are read by the ring, not by workers or the loop.
    pub read_ahead: bool,
    /// An idle ring does not count as waiting for a disk (6.15).
    pub no_iowait: bool,
}

impl Features {
    /// The names, as they are forced off.
    pub const NAMES: [&str; 7] = [
        "multishot-accept",
        "multishot-receive",
        "quiet-sends",
        "defer-taskrun",
        "no-sqarray",
        "read-ahead",
        "no-iowait",
    ];

    /// All of them, as far as the environment does not force them off.
    ///
    /// # Errors
    /// The environment names a feature that does not exist, or forbids all.
    pub fn wanted() -> io::Result<Self> {
        let without = std::env::var(WITHOUT).unwrap_or_default();
        let mut features = Self {
            multishot_accept: true,
            multishot_receive: true,
            quiet_sends: true,
            defer_taskrun: true,
            no_sqarray: true,
            read_ahead: true,
            no_iowait: true,
        };
        for name in without.split(',').filter(|name| !name.is_empty()) {
            if name == "io-uring" {
                let why = format!("io_uring is off: {WITHOUT} says so");
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
            let Some(feature) = features.by_name(name) else {
                let known = Self::NAMES.join(", ");
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{WITHOUT}: {name}: no such feature; right would be some of {known}"),
                ));
            };
            *feature = false;
        }
        Ok(features)
    }

    fn by_name(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "multishot-accept" => &mut self.multishot_accept,
            "multishot-receive" => &mut self.multishot_receive,
            "quiet-sends" => &mut self.quiet_sends,
            "defer-taskrun" => &mut self.defer_taskrun,
            "no-sqarray" => &mut self.no_sqarray,
            "read-ahead" => &mut self.read_ahead,
            "no-iowait" => &mut self.no_iowait,
            _ => return None,
        })
    }
}

/// Whether a ring can be had here. Tried on a thread of its own: the end of a ring interrupts what the
/// thread waits for that made it.
///
/// # Errors
/// Why not, and what would help, in one line.
pub fn available() -> io::Result<()> {
    let small = super::RingOptions {
        submissions: 8,
        completions: 16,
        buffers: 8,
        buffer_bytes: 1024,
    };
    let trial = std::thread::Builder::new().name("trial of io_uring".into());
    let tried = trial.spawn(move || super::Ring::new(&small).map(drop))?;
    tried
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("io_uring: the trial panicked")))
}

/// The operations that a ring cannot do without; all are older than Linux 6.1.
pub(super) fn check_operations(uring: &IoUring) -> io::Result<()> {
    let mut probe = Probe::new();
    uring
        .submitter()
        .register_probe(&mut probe)
        .map_err(|error| refused(&error))?;
    let needed = [
        (opcode::Accept::CODE, "accept"),
        (opcode::Recv::CODE, "recv"),
        (opcode::Send::CODE, "send"),
        (opcode::PollAdd::CODE, "poll"),
        (opcode::AsyncCancel::CODE, "cancel"),
        (opcode::Close::CODE, "close"),
        (opcode::Read::CODE, "read"),
    ];
    match needed.iter().find(|(code, _)| !probe.is_supported(*code)) {
        None => Ok(()),
        Some((_, name)) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("io_uring cannot {name} here; it takes Linux 6.1 or later"),
        )),
    }
}

/// Whether the kernel is of this release or a later one. One that does not say so is not.
pub(super) fn kernel_is_from(major: u32, minor: u32) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    is_from(&release, (major, minor))
}

fn is_from(release: &str, least: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= least,
        _ => false,
    }
}

/// The likely cause of a refusal, instead of a bare number.
pub(super) fn refused(error: &io::Error) -> io::Error {
    let sysctl = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let why = match (errno, sysctl.trim()) {
        (_, "2") => "io_uring is off: the sysctl kernel.io_uring_disabled is 2".to_owned(),
        (Some(Errno::PERM), "1") => {
            "io_uring is for privileged processes only: the sysctl kernel.io_uring_disabled is 1"
                .to_owned()
        }
        (Some(Errno::PERM), _) => {
            "io_uring is forbidden to this process, probably by the seccomp profile of its \
             container"
                .to_owned()
        }
        (Some(Errno::NOSYS), _) => {
            "io_uring is not there: the kernel is older than 5.1 or built without it, or a seccomp \
             profile hides it"
                .to_owned()
        }
        (Some(Errno::NOMEM), _) => {
            "io_uring has no memory: the limit of locked memory (ulimit -l) is too low".to_owned()
        }
        (Some(Errno::INVAL), _) => {
            "io_uring here is too old; it takes Linux 6.1 or later".to_owned()
        }
        _ => format!("io_uring: {error}"),
    };
    io::Error::new(error.kind(), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_feature() {
        let mut features = Features::wanted().unwrap();
        for name in Features::NAMES {
            *features.by_name(name).unwrap() = false;
        }
        assert!(features.by_name("multishot").is_none());
        assert!(!features.multishot_accept && !features.no_iowait);
    }

    #[test]
    fn releases_are_compared_by_their_numbers() {
        for release in ["6.8.0-rc5", "6.18.44-x", "7.0"] {
            assert!(is_from(release, (6, 8)), "{release}");
        }
        for release in ["6.1.0-13-amd64", "5.19", "", "x.y"] {
            assert!(!is_from(release, (6, 8)), "{release}");
        }
    }

    #[test]
    fn a_refusal_says_why() {
        let text = |errno: Errno| refused(&io::Error::from(errno)).to_string();
        assert!(text(Errno::NOSYS).contains("kernel"));
        assert!(text(Errno::INVAL).contains("6.1"));
        assert!(text(Errno::PERM).contains("io_uring"));
    }
}
