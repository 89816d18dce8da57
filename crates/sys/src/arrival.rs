//! When what is read had come: the kernel's stamps of packets (`SO_TIMESTAMPNS` of socket(7)).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::socket::set_option;

/// What was received of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// Bytes; 0: the end.
    pub count: usize,
    /// How long the last of them had been there; `None`: the kernel did not stamp it.
    pub age_ns: Option<u64>,
}

/// Room for the control message of one stamp, and some more; aligned as its header has to be.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Has the kernel stamp what comes over this socket from now on.
///
/// # Errors
/// The kernel does not know how.
pub fn stamp(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Receives what is there over a socket that is stamped, without waiting; `discards`: throws it away
/// unseen, as `socket::discard` does. `Ok(None)`: nothing is there.
///
/// # Errors
/// The connection failed.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    discards: bool,
) -> io::Result<Option<Stamped>> {
    let mut control = Control([0; 64]);
    let mut piece = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all zeroes is a message header without an address, a buffer or a control message.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control.0).cast();
    message.msg_controllen = size_of_val(&control.0) as _;
    let discarding = if discards { libc::MSG_TRUNC } else { 0 };
    let flags = libc::MSG_DONTWAIT | discarding;
    let count = loop {
        // SAFETY: the descriptor is open as long as `socket` is borrowed. The header points to one
        // piece, which is `buffer`, and to `control`, with their lengths: both are borrowed here alone
        // and live through the call.
        let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        if let Ok(count) = usize::try_from(count) {
            break count;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock => return Ok(None),
            io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
    };
    let now = clock_gettime(ClockId::Realtime);
    let age_ns = stamp_of(&message).and_then(|came| age_ns(now, came));
    Ok(Some(Stamped { count, age_ns }))
}

/// The stamp in a message's control part, if the first of its messages is one.
fn stamp_of(message: &libc::msghdr) -> Option<libc::timespec> {
    // SAFETY: the kernel has filled the control part, of `msg_controllen` bytes by now, and `receive`
    // keeps it alive; the header that is returned lies in it wholly, or is null.
    let header = unsafe { libc::CMSG_FIRSTHDR(ptr::from_ref(message)) };
    if header.is_null() {
        return None;
    }
    // SAFETY: not null, so in the control part, and aligned as that is.
    let found = unsafe { *header };
    // SAFETY: no memory is looked at.
    let needed = unsafe { libc::CMSG_LEN(size_of::<libc::timespec>() as libc::c_uint) };
    let is_stamp = found.cmsg_level == libc::SOL_SOCKET
        && found.cmsg_type == libc::SCM_TIMESTAMPNS
        && found.cmsg_len as usize >= needed as usize;
    if !is_stamp {
        return None;
    }
    // SAFETY: the header is in the control part, and so is its content, as long as it says.
    let content = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: the content has the bytes of a time, as its length said; it may stand anywhere.
    Some(unsafe { ptr::read_unaligned(content.cast()) })
}

/// `None`: the clock was set back meanwhile.
fn age_ns(now: Timespec, came: libc::timespec) -> Option<u64> {
    let seconds = now.tv_sec.checked_sub(came.tv_sec)?;
    let age_ns = seconds.checked_mul(1_000_000_000)? + now.tv_nsec - came.tv_nsec;
    u64::try_from(age_ns).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::poller::tests::connected;

    /// Waits until something is there, without reading it.
    fn await_input(socket: &TcpStream) {
        assert_eq!(socket.peek(&mut [0]).unwrap(), 1);
    }

    #[test]
    fn what_waited_has_an_age() {
        let (reader, mut writer) = connected();
        stamp(reader.as_fd()).unwrap();
        assert_eq!(receive(reader.as_fd(), &mut [0; 8], false).unwrap(), None);
        // The kernel begins to stamp a moment after it is first asked to.
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let begun = Instant::now();
            writer.write_all(b"abc").unwrap();
            await_input(&reader);
            let seen = Instant::now();
            let mut bytes = [0; 8];
            while seen.elapsed() < Duration::from_millis(20) {
                std::thread::yield_now();
            }
            let stamped = receive(reader.as_fd(), &mut bytes, false).unwrap().unwrap();
            assert_eq!((stamped.count, &bytes[..3]), (3, &b"abc"[..]));
            if let Some(age_ns) = stamped.age_ns {
                let age = Duration::from_nanos(age_ns);
                assert!(age >= Duration::from_millis(20), "{age:?}");
                assert!(age <= begun.elapsed(), "{age:?}");
                break;
            }
            assert!(Instant::now() < until, "nothing is stamped");
        }
        writer.write_all(b"abcd").unwrap();
        await_input(&reader);
        let mut untouched = [7; 8];
        let thrown = receive(reader.as_fd(), &mut untouched, true)
            .unwrap()
            .unwrap();
        assert_eq!((thrown.count, untouched), (4, [7; 8]));
        drop(writer);
        let end = loop {
            if let Some(end) = receive(reader.as_fd(), &mut [0; 8], false).unwrap() {
                break end;
            }
        };
        assert_eq!((end.count, end.age_ns), (0, None));
    }

    #[test]
    fn a_clock_that_was_set_back_says_nothing() {
        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let came = libc::timespec {
            tv_sec: 5,
            tv_nsec: 999_999_999,
        };
        assert_eq!(age_ns(time(6, 1), came), Some(2));
        assert_eq!(age_ns(time(5, 999_999_998), came), None);
    }
}
