//! A driver and a transport over the simulated network, by readiness or by completion.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loadline_base::{Token, Transmit};
use loadline_proto::{Context, ServerSession, Then};
use loadline_sys::{Events, Interest, Poller};

use super::network::{Event, Network, Owner, Pending};
use crate::transport::local_address::{Arrived, LocalAddresses};
use crate::transport::socket::{Readiness, Socket};
use crate::transport::{Detached, Driver, DriverEvent, LoopTransport, Reported, Watch};
use crate::transport::{Io, Pause, Transport};

thread_local! {
    /// The network of the simulation that runs on this thread.
    static NETWORK: RefCell<Option<Arc<Mutex<Network>>>> = const { RefCell::new(None) };
}

/// Drivers that are made on this thread from now on are of this network.
pub(super) fn enter(network: &Arc<Mutex<Network>>) {
    NETWORK.with(|current| *current.borrow_mut() = Some(Arc::clone(network)));
}

pub(super) fn lock(network: &Mutex<Network>) -> MutexGuard<'_, Network> {
    network.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for nothing: the simulation calls the loop when it has something to do.
pub(super) struct SimDriver {
    network: Arc<Mutex<Network>>,
    index: usize,
    wakers: Poller,
    /// A waker was written since the last wait. Kept, since the poller says so once.
    is_written: Cell<bool>,
    /// What the last wait brought.
    batch: Vec<Pending>,
}

impl SimDriver {
    /// The loop with this number.
    pub(super) fn set_index(&mut self, index: usize) {
        self.index = index;
    }

    /// Whether a waker was written since the last wait, or an event waits.
    pub(super) fn is_woken(&self) -> bool {
        let written = self.wakers.wait(&mut Events::new(), Some(0));
        let is_written = self.is_written.get() || written.is_ok_and(|count| count > 0);
        self.is_written.set(is_written);
        is_written || !lock(&self.network).queues[self.index].is_empty()
    }
}

impl Watch for SimDriver {
    fn watch(&mut self, _: u32, _: BorrowedFd<'_>, _: Interest) -> io::Result<()> {
        Ok(())
    }

    fn watch_on(&mut self, _: u32, _: BorrowedFd<'_>) {}

    fn unwatch(&mut self, _: u32, _: BorrowedFd<'_>) {}
}

impl Driver for SimDriver {
    type Transport = SimSocket;
    type Event<'d> = Event;

    fn new() -> io::Result<Self> {
        let network = NETWORK.with(|current| current.borrow().clone());
        Ok(Self {
            network: network.expect("a simulation on this thread"),
            index: 0,
            wakers: Poller::new()?,
            is_written: Cell::new(false),
            batch: Vec::new(),
        })
    }

    fn watch_waker(&mut self, waker: BorrowedFd<'_>) -> io::Result<()> {
        self.wakers.add(waker, 0, Interest::Waker)
    }

    fn wait(&mut self, _timeout_ms: Option<u64>) -> io::Result<()> {
        self.is_written.set(false);
        let mut network = lock(&self.network);
        self.batch.extend(network.queues[self.index].drain(..));
        self.batch.reverse();
        Ok(())
    }

    fn next(&mut self) -> Option<DriverEvent<Event>> {
        Some(match self.batch.pop()? {
            Pending::Arrived(accepted) => DriverEvent::Arrived(accepted),
            Pending::Event(token, event) => DriverEvent::To(token, event),
        })
    }

    fn left(&self) -> usize {
        self.batch.len()
    }

    const KEEPS_EVENTS: bool = false;
    const REPORTS_BEFORE_DRAIN: bool = true;

    fn miss(_missed: &mut Readiness, _event: Event) {}
}

/// A simulated socket.
#[derive(Debug)]
pub(super) struct SimSocket {
    network: Arc<Mutex<Network>>,
    pipe: usize,
    /// Stands for the socket; closed last.
    descriptor: OwnedFd,
    is_completion: bool,
    ready: Readiness,
    ended: bool,
    finished: bool,
    has_received: bool,
    resting: bool,
    rests_on: bool,
    wanted: bool,
    leaving: bool,
    sending: Option<Transmit>,
}

impl SimSocket {
    fn receive(&mut self, io: &mut Io<'_, '_, SimDriver>) -> bool {
        let mut network = lock(&self.network);
        let pipe = &mut network.pipes[self.pipe];
        if pipe.is_reset {
            self.ready.readable = false;
            drop(network);
            io.session.peer_gone(io.cx);
            return true;
        }
        let count = pipe.inbox.len().min(io.read_buffer.len());
        if count == 0 {
            self.ready.readable = false;
            self.ended = pipe.inbox_ended;
            drop(network);
            if self.ended {
                io.session.received_eof(io.cx);
            }
            return self.ended;
        }
        for (to, from) in io.read_buffer.iter_mut().zip(pipe.inbox.drain(..count)) {
            *to = from;
        }
        pipe.has_received = true;
        drop(network);
        if count < io.read_buffer.len() && !self.ready.hung_up {
            self.ready.readable = false;
        }
        self.has_received = true;
        io.session.received(&mut io.read_buffer[..count], io.cx);
        true
    }

    /// By readiness.
    fn write(
        &mut self,
        mut transmit: Transmit,
        io: &mut Io<'_, '_, SimDriver>,
    ) -> ControlFlow<Pause> {
        let taken = lock(&self.network).take(self.pipe, &mut transmit, *io.bytes_left);
        *io.bytes_left -= taken;
        if transmit.is_done() {
            io.session.sent(transmit, io.cx);
            return ControlFlow::Continue(());
        }
        if taken > 0 {
            io.session.progressed(taken, io.cx);
        }
        self.sending = Some(transmit);
        if *io.bytes_left == 0 {
            return ControlFlow::Break(Pause::Again);
        }
        self.ready.writable = false;
        ControlFlow::Continue(())
    }
}

impl Transport<SimDriver> for SimSocket {
    fn write_bytes_max(&self) -> u64 {
        6 << 10
    }

    fn resume(&mut self, io: &mut Io<'_, '_, SimDriver>) -> ControlFlow<Pause> {
        if self.ready.gone && !self.finished {
            io.session.peer_gone(io.cx);
        } else if self.ready.writable
            && let Some(transmit) = self.sending.take()
        {
            return self.write(transmit, io);
        }
        ControlFlow::Continue(())
    }

    fn wait(&mut self, read: bool, _hang_up: bool, io: &mut Io<'_, '_, SimDriver>) -> bool {
        if self.is_completion {
            self.wanted = read;
            let is_armed = read && !self.ended && !self.leaving;
            lock(&self.network).arm(self.pipe, is_armed);
            return false;
        }
        let may_read = read && self.ready.readable && !self.ended;
        if may_read {
            self.receive(io);
        }
        may_read
    }

    fn receive_pending(
        &mut self,
        certain: bool,
        io: &mut Io<'_, '_, SimDriver>,
    ) -> ControlFlow<Pause> {
        if self.is_completion {
            let mut network = lock(&self.network);
            if certain && !self.ended && network.has_input(self.pipe) {
                network.arm(self.pipe, true);
                return ControlFlow::Break(Pause::Again);
            }
            drop(network);
            io.session.nothing_pending(io.cx);
        } else {
            let may_have = (certain || self.ready.readable) && !self.ended;
            if !may_have || !self.receive(io) {
                io.session.nothing_pending(io.cx);
            }
        }
        ControlFlow::Continue(())
    }

    fn send(
        &mut self,
        mut transmit: Transmit,
        then: Then,
        io: &mut Io<'_, '_, SimDriver>,
    ) -> ControlFlow<Pause> {
        if !self.is_completion {
            return self.write(transmit, io);
        }
        // The last batch does not leave by the ring, unless there is no room for it.
        if then == Then::Close && !lock(&self.network).pipes[self.pipe].is_reset {
            let taken = lock(&self.network).take(self.pipe, &mut transmit, u64::MAX);
            if taken > 0 {
                io.session.progressed(taken, io.cx);
            }
            if transmit.is_done() {
                io.session.sent(transmit, io.cx);
                return ControlFlow::Continue(());
            }
        }
        let is_lazy = then == Then::Rest;
        self.resting = is_lazy;
        lock(&self.network).submit(self.pipe, transmit, is_lazy);
        ControlFlow::Continue(())
    }

    fn finish(&mut self, io: &mut Io<'_, '_, SimDriver>) {
        self.finished = true;
        let mut network = lock(&self.network);
        network.finish(self.pipe);
        if network.pipes[self.pipe].is_reset {
            drop(network);
            io.session.peer_gone(io.cx);
        }
    }

    fn local_address(&mut self, _: &LocalAddresses, _: &SimDriver) -> Option<SocketAddr> {
        None
    }

    fn prefetched(&mut self) {}

    fn is_prefetching(&self) -> bool {
        false
    }

    fn has_begun(&self, _driver: &mut SimDriver) -> bool {
        let known = self.has_received || self.ended || self.ready.gone;
        known || (!self.is_completion && lock(&self.network).has_input(self.pipe))
    }

    fn has_input(&self, _driver: &mut SimDriver) -> bool {
        lock(&self.network).has_input(self.pipe)
    }

    fn is_resting(&self) -> bool {
        self.resting
    }

    fn close(self, _driver: &mut SimDriver, cx: &mut Context<'_>) {
        if let Some(transmit) = self.sending {
            cx.pool.give_segments(transmit.into_segments());
        }
        lock(&self.network).close(self.pipe);
    }
}

impl LoopTransport<SimDriver> for SimSocket {
    fn new(fd: OwnedFd, _copies_files: bool) -> Self {
        let network = NETWORK.with(|current| current.borrow().clone());
        let network = network.expect("a simulation on this thread");
        let (pipe, is_completion) = {
            let network = lock(&network);
            (network.pipe_of(fd.as_raw_fd()), network.is_completion)
        };
        Self {
            network,
            pipe,
            descriptor: fd,
            is_completion,
            ready: Readiness {
                readable: !is_completion,
                writable: !is_completion,
                ..Readiness::default()
            },
            ended: false,
            finished: false,
            has_received: false,
            resting: false,
            rests_on: false,
            wanted: false,
            leaving: false,
            sending: None,
        }
    }

    fn adopt(&mut self, token: Token, driver: &mut SimDriver) {
        let owner = Owner {
            loop_index: driver.index,
            token,
        };
        lock(&self.network).adopt(self.pipe, owner);
    }

    fn on_event(
        &mut self,
        event: Event,
        session: &mut ServerSession,
        cx: &mut Context<'_>,
    ) -> Reported {
        let mut is_input = false;
        match event {
            Event::Ready(ready) => {
                is_input = ready.readable;
                self.ready.add(ready);
            }
            Event::Received(mut bytes) => {
                is_input = true;
                self.has_received = true;
                self.rests_on = false;
                if !self.wanted {
                    lock(&self.network).pipes[self.pipe].is_armed = false;
                }
                session.received(&mut bytes, cx);
            }
            Event::Ended => {
                is_input = true;
                self.ended = true;
                session.received_eof(cx);
            }
            Event::Progress(bytes) => {
                self.resting = false;
                session.progressed(bytes, cx);
            }
            Event::Sent(transmit) => {
                self.rests_on = std::mem::take(&mut self.resting);
                session.sent(transmit, cx);
            }
            Event::SendFailed(transmit) => {
                self.resting = false;
                cx.pool.give_segments(transmit.into_segments());
                session.peer_gone(cx);
            }
            Event::HungUp if self.finished => {}
            Event::HungUp => session.peer_gone(cx),
        }
        Reported {
            is_input,
            is_ready: true,
        }
    }

    fn settle(&mut self, _token: Token, _driver: &mut SimDriver) -> io::Result<()> {
        if self.is_completion && !self.has_received && !self.ended && !self.leaving {
            lock(&self.network).arm(self.pipe, true);
            self.wanted = true;
        }
        Ok(())
    }

    fn detach(mut self, _driver: &mut SimDriver) -> Result<Detached, Self> {
        if self.sending.is_some() || self.ended || self.finished {
            return Err(self);
        }
        self.leaving = true;
        let is_free = lock(&self.network).let_go(self.pipe);
        if !is_free {
            return Err(self);
        }
        Ok(Detached {
            fd: self.descriptor,
            copies_files: false,
            has_received: self.has_received,
            arrived: Arrived::default(),
        })
    }

    fn stay(&mut self, _driver: &mut SimDriver) {
        if std::mem::take(&mut self.leaving) && self.is_completion && self.wanted {
            lock(&self.network).arm(self.pipe, true);
        }
    }

    fn attach(detached: Detached) -> Self {
        let mut socket = Self::new(detached.fd, detached.copies_files);
        socket.has_received = detached.has_received;
        socket
    }

    fn discard_input(&self, _read_buffer: &mut [u8]) {
        lock(&self.network).pipes[self.pipe].inbox.clear();
    }

    fn rests_on(&mut self) -> bool {
        std::mem::take(&mut self.rests_on)
    }

    fn into_socket(self) -> Result<Socket, Self> {
        Err(self)
    }

    fn from_socket(socket: Socket, _missed: Readiness) -> Result<Self, Socket> {
        Err(socket)
    }

    fn read_by_event(&mut self) {
        self.ready.readable = false;
    }
}
