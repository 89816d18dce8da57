//! A driver of completions: a ring that owns the sockets of its loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use loadline_base::{Token, Transmit};
use loadline_proto::RECEIVE_BYTES;
use loadline_sys::ring::{Completion, Ring, RingOptions};
use loadline_sys::{Accepted, Interest, socket};

use crate::transport::ring::RingSocket;
use crate::transport::socket::Readiness;
use crate::transport::{Driver, DriverEvent, Watch};

/// Waits for what was done.
pub(crate) struct RingDriver {
    pub(crate) ring: Ring,
    wakers: u32,
    /// Other loops have the same listeners.
    shares: bool,
}

/// What is reported to a connection.
pub(crate) enum RingEvent<'d> {
    /// Bytes came.
    Received(&'d mut [u8]),
    /// No more will: the peer's regular end, or not.
    Ended { regular: bool },
    /// So many bytes of the batch have left.
    Progress(u64),
    /// All of it has.
    Sent(Transmit),
    /// It cannot be sent.
    SendFailed(Transmit),
    /// There is room to write.
    Writable,
    /// So much of the range that was to be read ahead is in memory.
    ReadAhead(u64),
    /// The peer has gone.
    HungUp,
}

impl Watch for RingDriver {
    fn watch(
        &mut self,
        number: u32,
        listener: BorrowedFd<'_>,
        interest: Interest,
    ) -> io::Result<()> {
        self.shares = interest == Interest::SharedListener;
        self.watch_on(number, listener);
        Ok(())
    }

    /// The operation that watched it is over, or an accept that failed has ended it.
    fn watch_on(&mut self, number: u32, listener: BorrowedFd<'_>) {
        match self.shares {
            true => self.ring.await_acceptable(number, listener),
            false => self.ring.accept(number, listener),
        }
    }

    fn unwatch(&mut self, number: u32, _listener: BorrowedFd<'_>) {
        self.ring.stop_accepting(number);
    }
}

impl Driver for RingDriver {
    type Transport = RingSocket;
    type Event<'d> = RingEvent<'d>;

    fn new() -> io::Result<Self> {
        Ok(Self {
            ring: Ring::new(&RingOptions {
                buffer_bytes: RECEIVE_BYTES as u32,
                ..RingOptions::default()
            })?,
            wakers: 0,
            shares: false,
        })
    }

    fn watch_waker(&mut self, waker: BorrowedFd<'_>) -> io::Result<()> {
        self.ring.watch(self.wakers, waker);
        self.wakers += 1;
        Ok(())
    }

    fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<()> {
        let timeout_ns = timeout_ms.map(|ms| ms.saturating_mul(1_000_000));
        self.ring.wait(timeout_ns)
    }

    #[inline]
    fn next(&mut self) -> Option<DriverEvent<RingEvent<'_>>> {
        let to = |token: Token, event| DriverEvent::To(token, event);
        Some(match self.ring.next_completion()? {
            Completion::Received { token, bytes } => to(token, RingEvent::Received(bytes)),
            Completion::Sent { token, transmit } => to(token, RingEvent::Sent(transmit)),
            Completion::Progress { token, bytes } => to(token, RingEvent::Progress(bytes)),
            Completion::Ended { token, error } => {
                let regular = error.is_none();
                to(token, RingEvent::Ended { regular })
            }
            Completion::SendFailed {
                token, transmit, ..
            } => to(token, RingEvent::SendFailed(transmit)),
            Completion::Writable { token } => to(token, RingEvent::Writable),
            Completion::ReadAhead { token, bytes } => to(token, RingEvent::ReadAhead(bytes)),
            Completion::HungUp { token } => to(token, RingEvent::HungUp),
            Completion::Accepted { socket, listener } => match socket::peer(socket.as_fd()) {
                Ok(peer) => DriverEvent::Arrived(Accepted {
                    socket,
                    peer,
                    listener,
                }),
                // Gone: without its address it would pass for a client of a Unix socket.
                Err(_) => DriverEvent::Woken,
            },
            // If it failed, by a descriptor limit, the loop's own accepting knows what to do about it.
            Completion::AcceptReady { .. } | Completion::AcceptFailed { .. } => {
                DriverEvent::AcceptReady
            }
            Completion::AcceptStopped { .. } | Completion::Signal { .. } => DriverEvent::Woken,
        })
    }

    #[inline]
    fn left(&self) -> usize {
        self.ring.left()
    }

    fn is_full(&self) -> bool {
        self.ring.is_full()
    }

    fn inputs(&self) -> usize {
        self.ring.inputs()
    }

    fn mark(&mut self) {
        self.ring.mark();
    }

    fn take_mark(&mut self) -> bool {
        self.ring.take_mark()
    }

    const KEEPS_EVENTS: bool = true;
    const REPORTS_BEFORE_DRAIN: bool = true;

    fn miss(_missed: &mut Readiness, _event: RingEvent<'_>) {}
}
