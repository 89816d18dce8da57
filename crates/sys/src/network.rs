//! The ports of outgoing connections, and network namespaces: interfaces, addresses, ports and counters
//! of their own, which live as long as they are held open.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::thread;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::{getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// First and last of the ports that the kernel takes for outgoing connections. `root` is where the
/// file system begins: "/" but in tests.
#[must_use]
pub fn port_range(root: &Path) -> Option<(u16, u16)> {
    let text = fs::read_to_string(root.join("proc/sys/net/ipv4/ip_local_port_range")).ok()?;
    let mut ports = text.split_ascii_whitespace().map(str::parse);
    Some((ports.next()?.ok()?, ports.next()?.ok()?))
}

/// A new namespace, in which nothing is up.
///
/// # Errors
/// The process may not make one (`CAP_SYS_ADMIN`), or no thread can be started for it.
pub fn new_namespace() -> io::Result<File> {
    on_own_thread(enter_new)
}

/// Moves the calling thread into a new namespace, in which nothing is up. For a process of one thread,
/// which cannot start another before [`enter_new_user`].
///
/// # Errors
/// As [`new_namespace`].
pub fn enter_new() -> io::Result<File> {
    // SAFETY: the thread gets a network of its own, and shares memory and descriptors as before.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    File::open("/proc/thread-self/ns/net")
}

/// Moves this process, which has to have a single thread, into a user namespace of its own, in which it
/// may make networks as root may elsewhere. Its user and group keep their numbers.
///
/// # Errors
/// The kernel or the machine's administrator allows none, or the process has several threads.
pub fn enter_new_user() -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: the process gets other rights and a copy of its mounts, and shares memory and descriptors
    // as before.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
    fs::write("/proc/self/setgroups", "deny")?; // the kernel wants that before it takes the map
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Moves this process, which has to have a single thread, into a user namespace that the same user has
/// made.
///
/// # Errors
/// It is another user's or no user namespace, or the process has several threads.
pub fn enter_user(namespace: &File) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::User);
    Ok(move_into_link_name_space(namespace.as_fd(), kind)?)
}

/// Moves the calling thread into a namespace: its sockets, and those of processes and threads that it
/// starts, are of that one from then on.
///
/// # Errors
/// The process may not (`CAP_SYS_ADMIN`), or the file is no network namespace.
pub fn enter(namespace: &File) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(namespace.as_fd(), kind)?)
}

/// Does something as if in a namespace, on a thread of its own; waits for it.
///
/// # Errors
/// Of [`enter`], or of what is done.
pub fn inside<T: Send>(
    namespace: &File,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    on_own_thread(|| {
        enter(namespace)?;
        work()
    })
}

/// Opens a file of `/sys` as the calling thread's namespace has it (`class/net/NAME/...`), for
/// writing. What is mounted at `/sys` shows the interfaces of whoever mounted it.
///
/// # Errors
/// There is none, the process may not, or the kernel is older than Linux 5.2.
pub fn open_sysfs(path: &str) -> io::Result<File> {
    let opened = open_mount(fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?)?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(openat(&opened, path, flags, Mode::empty())?.into())
}

fn open_mount(filesystem: OwnedFd) -> io::Result<OwnedFd> {
    fsconfig_create(&filesystem)?;
    let mount = fsmount(
        &filesystem,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    );
    Ok(mount?)
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("namespace".into());
        let done = thread.spawn_scoped(scope, work)?.join();
        done.unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use std::net::{TcpListener, UdpSocket};

    use super::*;

    /// `None`: this process may not, and says so.
    fn namespace() -> Option<File> {
        match new_namespace() {
            Ok(namespace) => Some(namespace),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                let _ = writeln!(
                    io::stderr(),
                    "\nskipped: no network namespace can be made: {error}"
                );
                None
            }
        }
    }

    #[test]
    fn a_namespace_has_ports_of_its_own_and_the_caller_keeps_its_own() {
        let Some(namespace) = namespace() else { return };
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = here.local_addr().unwrap();
        // Nothing is up in there, so binding works where sending would not.
        let there = inside(&namespace, || {
            TcpListener::bind(("0.0.0.0", address.port()))
        })
        .unwrap();
        assert_eq!(there.local_addr().unwrap().port(), address.port());
        let unreachable = inside(&namespace, || {
            UdpSocket::bind("0.0.0.0:0")?.connect("192.0.2.1:9")
        });
        assert_eq!(
            unreachable.unwrap_err().kind(),
            io::ErrorKind::NetworkUnreachable
        );
        assert!(std::net::TcpStream::connect(address).is_ok());
    }

    #[test]
    fn sysfs_is_that_of_the_namespace() {
        let Some(namespace) = namespace() else { return };
        let path = "class/net/lo/queues/rx-0/rps_cpus";
        inside(&namespace, || open_sysfs(path).map(drop)).unwrap();
        let none = inside(&namespace, || open_sysfs("class/net/no-such/mtu"));
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_process_of_several_threads_gets_no_user_namespace() {
        assert!(thread::spawn(enter_new_user).join().unwrap().is_err());
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        let file = File::open("/dev/null").unwrap();
        assert!(inside(&file, || Ok(())).is_err());
    }
}
