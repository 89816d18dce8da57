//! Receiving, with the moment at which the kernel had got what is received.
//!
//! The moment at which a thread looks is later: it had to wake up, and something else may have been
//! running. A client cannot know that, and is not to be blamed for it.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use rustix::time::ClockId;

use crate::clock::{now_ns, read_ns};

/// What is received at once.
const RECEIVE_BYTES: usize = 64 << 10;
/// How often the distance of the two clocks is taken: the one that the kernel stamps by
/// may be set.
const DISTANCE_EVERY_NS: u64 = 100_000_000;
/// Both clocks are read within this, or the distance is taken again.
const DISTANCE_NS_MAX: u64 = 1_000;
/// How often it is taken again.
const DISTANCE_TRIES: u32 = 20;
/// A stamp that is older than this is of another time: the clock was set.
const AGE_NS_MAX: u64 = 10_000_000_000;

/// Asks the kernel to stamp what arrives at a socket, and at those accepted by it.
pub(crate) fn stamp_arrivals(socket: &OwnedFd) -> std::io::Result<()> {
    Ok(setsockopt(socket, sockopt::ReceiveTimestampns, &true)?)
}

/// Where input is received.
#[derive(Debug)]
pub(crate) struct Inbox {
    buffer: Vec<u8>,
    control: Vec<u8>,
    /// What to add to the stamps' clock to get the monotonic one, and when that was found.
    distance_ns: i128,
    found_ns: u64,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        let mut inbox = Self {
            buffer: vec![0; RECEIVE_BYTES],
            control: cmsg_space!(TimeSpec),
            distance_ns: 0,
            found_ns: 0,
        };
        inbox.compare_clocks(now_ns());
        inbox
    }

    /// Receives once: the bytes, none at the end of input; and when the last of them arrived, which
    /// is `at_ns` (when it was seen) if the kernel does not say.
    pub(crate) fn receive(&mut self, socket: &OwnedFd, at_ns: u64) -> Result<(&[u8], u64), Errno> {
        if at_ns.saturating_sub(self.found_ns) > DISTANCE_EVERY_NS {
            self.compare_clocks(at_ns);
        }
        let (count, stamp_ns) = {
            let mut pieces = [IoSliceMut::new(&mut self.buffer)];
            let control = Some(&mut self.control[..]);
            let received =
                recvmsg::<()>(socket.as_raw_fd(), &mut pieces, control, MsgFlags::empty())?;
            let stamp_ns = received.cmsgs().ok().and_then(|mut messages| {
                messages.find_map(|message| match message {
                    ControlMessageOwned::ScmTimestampns(time) => {
                        Some(i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec()))
                    }
                    _ => None,
                })
            });
            (received.bytes, stamp_ns)
        };
        let arrived_ns = stamp_ns
            .and_then(|ns| u64::try_from(ns + self.distance_ns).ok())
            .filter(|ns| *ns <= now_ns() && at_ns.saturating_sub(*ns) < AGE_NS_MAX);
        Ok((&self.buffer[..count], arrived_ns.unwrap_or(at_ns)))
    }

    /// Room for what is thrown away.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Whether a receive of `count` bytes filled the buffer.
    pub(crate) fn is_filled_by(&self, count: usize) -> bool {
        count == self.buffer.len()
    }

    fn compare_clocks(&mut self, at_ns: u64) {
        for _ in 0..DISTANCE_TRIES {
            let (before_ns, stamped_ns) = (now_ns(), read_ns(ClockId::Realtime));
            let took_ns = now_ns() - before_ns;
            self.distance_ns = i128::from(before_ns + took_ns / 2) - i128::from(stamped_ns);
            if took_ns <= DISTANCE_NS_MAX {
                break;
            }
        }
        self.found_ns = at_ns;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_seen_late_had_arrived_before() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener_socket: OwnedFd = listener.try_clone().unwrap().into();
        stamp_arrivals(&listener_socket).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket: OwnedFd = listener.accept().unwrap().0.into();
        let mut inbox = Inbox::new();
        // The kernel begins to stamp some time after the first socket asked for it.
        for _ in 0..200 {
            let before_ns = now_ns();
            client.write_all(b"late").unwrap();
            let after_ns = now_ns();
            std::thread::sleep(Duration::from_millis(5));
            let seen_ns = now_ns();
            let (bytes, arrived_ns) = inbox.receive(&socket, seen_ns).unwrap();
            assert_eq!(bytes, b"late");
            assert!(arrived_ns + DISTANCE_NS_MAX >= before_ns);
            if arrived_ns <= after_ns + DISTANCE_NS_MAX {
                return;
            }
            assert_eq!(arrived_ns, seen_ns);
        }
        panic!("the kernel stamps nothing");
    }
}
