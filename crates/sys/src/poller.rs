//! Waiting for many descriptors: epoll.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// Events taken from the kernel at once: 512 of 12 bytes, so 6 KiB that stay in the cache. What
/// does not fit comes with the next wait, in the order in which it became ready.
const EVENTS_MAX: usize = 512;

/// What a descriptor is watched for. All but `Listener` edge-triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// A connection: reading, writing, half-close. Registered once, never changed.
    Connection,
    /// A listener of this poller alone: level-triggered, so that a bounded batch of accepts loses
    /// nothing.
    Listener,
    /// A listener that several pollers watch: level-triggered, one of them is woken.
    SharedListener,
    /// An eventfd that is written to wake the poller and never read.
    Waker,
    /// Something that is read in bounded batches, a TUN device or a pipe: level-triggered, so that what
    /// is left is not lost.
    Batches,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Connection => {
                EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
            }
            Self::Listener | Self::Batches => EventFlags::IN,
            Self::SharedListener => EventFlags::IN | EventFlags::EXCLUSIVE,
            Self::Waker => EventFlags::IN | EventFlags::ET,
        }
    }
}

/// An epoll instance.
#[derive(Debug)]
pub struct Poller(OwnedFd);

impl Poller {
    /// A poller that watches nothing yet.
    ///
    /// # Errors
    /// At the descriptor limit, or the user's limit of epoll instances.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Watches `fd`; its events carry `bits`. What is ready at this moment is an event too.
    ///
    /// # Errors
    /// At the user's limit of watches, or without memory.
    pub fn add(&self, fd: impl AsFd, bits: u64, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(bits);
        Ok(epoll::add(&self.0, fd, data, interest.flags())?)
    }

    /// Stops watching `fd`. Closing a descriptor that has no duplicate does it too.
    ///
    /// # Errors
    /// If it was not watched.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }

    /// Waits until something is ready, or `timeout_ms` has passed (`None`: for ever); returns how
    /// many events there are, and puts them into `events`. An interruption counts as none.
    ///
    /// # Errors
    /// Only for a mistake of ours.
    pub fn wait(&self, events: &mut Events, timeout_ms: Option<u64>) -> io::Result<usize> {
        self.wait_timespec(events, timeout_ms.map(timespec))
    }

    /// As `wait`, with a timeout in nanoseconds. How late the kernel is beyond it: see
    /// [`crate::usage::sleep_precisely`].
    ///
    /// # Errors
    /// Only for a mistake of ours.
    pub fn wait_ns(&self, events: &mut Events, timeout_ns: Option<u64>) -> io::Result<usize> {
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        self.wait_timespec(events, timeout)
    }

    fn wait_timespec(&self, events: &mut Events, timeout: Option<Timespec>) -> io::Result<usize> {
        events.0.clear();
        let spare = rustix::buffer::spare_capacity(&mut events.0);
        match epoll::wait(&self.0, spare, timeout.as_ref()) {
            Ok(count) => Ok(count),
            Err(Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Room for the events of one wait.
pub struct Events(Vec<epoll::Event>);

// SAFETY: what an event carries is a number; that the wrapper's union could hold a pointer too is
// what the compiler sees. None is ever stored.
unsafe impl Send for Events {}

impl Events {
    /// Room for as many as are taken at once; the only allocation.
    #[must_use]
    pub fn new() -> Self {
        Self(Vec::with_capacity(EVENTS_MAX))
    }

    /// How many there are from the last wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the last wait brought none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the last wait may have left some for the next one.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.len() >= EVENTS_MAX
    }

    /// One of the last wait's events.
    ///
    /// # Panics
    /// If there are not that many.
    #[must_use]
    pub fn get(&self, index: usize) -> Event {
        let event = self.0[index];
        let data = event.data;
        Event {
            bits: data.u64(),
            flags: event.flags,
        }
    }

    /// The last wait's events, in order.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

/// Something became ready.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// What the descriptor was registered with.
    pub bits: u64,
    flags: EventFlags,
}

impl Event {
    /// There is something to read, even if only the end.
    #[must_use]
    pub fn is_readable(self) -> bool {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        self.flags.intersects(flags)
    }

    /// There is room to write.
    #[must_use]
    pub fn is_writable(self) -> bool {
        self.flags
            .intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR)
    }

    /// The peer will send no more: after what is there, reading yields the end. A short read does
    /// not mean "nothing left" then.
    #[must_use]
    pub fn is_half_closed(self) -> bool {
        self.flags
            .intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
    }

    /// The connection is gone in both directions.
    #[must_use]
    pub fn is_gone(self) -> bool {
        self.flags.intersects(EventFlags::HUP | EventFlags::ERR)
    }
}

/// At most a day, which the kernel's millisecond counts hold: longer waits are waited again.
pub(crate) const TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1000;

fn timespec(ms: u64) -> Timespec {
    let ms = ms.min(TIMEOUT_MS_MAX);
    Timespec {
        tv_sec: (ms / 1000) as i64,
        tv_nsec: (ms % 1000 * 1_000_000) as i64,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;
    use crate::Waker;

    /// Both ends of a connection.
    pub(crate) fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    fn wait(poller: &Poller, events: &mut Events) -> Vec<Event> {
        poller.wait(events, Some(5_000)).unwrap();
        events.iter().collect()
    }

    #[test]
    fn what_is_ready_at_registration_is_an_event_and_then_only_edges_are() {
        let (mut ours, mut theirs) = connected();
        ours.write_all(b"a").unwrap();
        theirs.peek(&mut [0]).unwrap();
        let (poller, mut events) = (Poller::new().unwrap(), Events::new());
        poller.add(&theirs, 7, Interest::Connection).unwrap();
        let seen = wait(&poller, &mut events);
        assert!(seen.len() == 1 && seen[0].bits == 7);
        assert!(seen[0].is_readable() && seen[0].is_writable() && !seen[0].is_half_closed());
        assert_eq!(poller.wait(&mut events, Some(0)).unwrap(), 0);
        ours.write_all(b"b").unwrap();
        assert!(wait(&poller, &mut events)[0].is_readable());
        theirs.read_exact(&mut [0; 2]).unwrap();
        ours.shutdown(Shutdown::Write).unwrap();
        let seen = wait(&poller, &mut events)[0];
        assert!(seen.is_half_closed() && seen.is_readable() && !seen.is_gone());
        theirs.shutdown(Shutdown::Write).unwrap();
        assert!(wait(&poller, &mut events)[0].is_gone());
        poller.remove(&theirs).unwrap();
        assert!(poller.remove(&theirs).is_err());
    }

    #[test]
    fn each_wake_is_an_edge() {
        let (poller, mut events) = (Poller::new().unwrap(), Events::new());
        let waker = Waker::new().unwrap();
        poller.add(&waker, 1, Interest::Waker).unwrap();
        for _ in 0..3 {
            assert_eq!(poller.wait(&mut events, Some(0)).unwrap(), 0);
            waker.wake();
            assert_eq!(wait(&poller, &mut events)[0].bits, 1);
        }
    }

    #[test]
    fn a_timeout_is_never_early() {
        let (poller, mut events) = (Poller::new().unwrap(), Events::new());
        for ms in [1, 3, 10] {
            let before = std::time::Instant::now();
            poller.wait(&mut events, Some(ms)).unwrap();
            assert!(before.elapsed().as_millis() >= u128::from(ms));
        }
    }
}
