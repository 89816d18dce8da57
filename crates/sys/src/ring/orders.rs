//! What a ring is asked for: receiving, sending, accepting, watching, closing.
//!
//! An order is queued, and nothing happens before the next `wait`. Orders of one socket are carried
//! out in the order in which they were given: so a cancellation never meets the operation of a slot's
//! next owner.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};
use loadline_base::{Token, Transmit};

use super::buffers;
use super::sockets::{Operation, Sending};
use super::{OperationKind, Ring, SEND_BYTES_MAX, SentReport, SocketId, Watched, user_data};

/// When a mark goes into the queue: a timer that has run out does so like a socket that has become ready.
static SOON: types::Timespec = types::Timespec::new().nsec(1);

/// Orders: queued, and submitted by the next `wait`.
impl Ring {
    /// Takes a socket over; completions name it `owner`. Nothing is received before `receive`.
    pub fn adopt(&mut self, socket: OwnedFd, owner: Token) -> SocketId {
        self.sockets.insert(socket, owner)
    }

    /// The descriptor, for socket options and calls of the loop's own; `None` once let go of.
    #[must_use]
    pub fn socket(&self, id: SocketId) -> Option<BorrowedFd<'_>> {
        let socket = self.sockets.get(id)?;
        (!socket.closing)
            .then_some(socket.fd.as_ref())
            .flatten()
            .map(AsFd::as_fd)
    }

    /// Whether bytes or the end have come to it that were not reported yet; `true` also where that is not
    /// certain.
    #[must_use]
    pub fn has_input(&mut self, id: SocketId) -> bool {
        let receive = user_data(OperationKind::Receive, id.0.index);
        let unreported = &self.taken[self.reported..];
        unreported.iter().any(|taken| taken.user_data == receive)
            || self.has_unread(receive)
            || self.socket(id).is_some_and(crate::socket::has_input)
    }

    /// Whether a completion of this operation lies in the queue, which stays as it is; `true` if the kernel
    /// keeps some back.
    fn has_unread(&mut self, user_data: u64) -> bool {
        if self.uring.submission().cq_overflow() {
            return true;
        }
        let mut queue = self.uring.completion();
        let has = queue.any(|entry| entry.user_data() == user_data);
        std::mem::forget(queue); // dropped, it would tell the kernel that its entries were taken
        has
    }

    /// Sockets that are adopted, those included whose last completions have not come.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Things that the last `wait` brought and that were not reported yet, at most.
    #[must_use]
    pub fn left(&self) -> usize {
        self.taken.len() - self.reported + self.quiet_submitted
    }

    /// Whether the last `wait` may have left input for the next one: buffers had run out, or there was more than
    /// the kernel completes in one (some twenty receives since Linux 6.14).
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Of how many sockets the last `wait` brought bytes.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Puts a mark behind what waits in the kernel's queue at the next `wait`, which is first in, first out: once
    /// it has come back, all that was before it has been brought.
    pub fn mark(&mut self) {
        let timeout = opcode::Timeout::new(&SOON).build();
        self.push(timeout.user_data(user_data(OperationKind::Mark, 0)));
    }

    /// Whether the mark has come back since this was asked.
    pub fn take_mark(&mut self) -> bool {
        std::mem::take(&mut self.has_mark)
    }

    /// Whether there are no sockets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes are welcome from now on. Costs nothing while a receive is armed.
    #[inline]
    pub fn receive(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.open(id) else {
            return;
        };
        socket.wanted = true;
        if socket.receiving == Operation::Idle && !socket.ended {
            self.arm_receive(id);
        }
    }

    /// What comes first is received once, and the kernel asked to go on when there is more to come:
    /// many a connection has a single request, and ends with nothing to be cancelled.
    fn arm_receive(&mut self, id: SocketId) {
        let can_go_on = self.features.multishot_receive;
        let Some(socket) = self.sockets.open(id) else {
            return;
        };
        let multishot = can_go_on && socket.has_spoken;
        let Some(fd) = socket.raw() else { return };
        socket.receiving = Operation::Armed;
        socket.in_flight += 1;
        let entry = if multishot {
            opcode::RecvMulti::new(types::Fd(fd), buffers::GROUP).build()
        } else {
            opcode::Recv::new(types::Fd(fd), std::ptr::null_mut(), 0)
                .buf_group(buffers::GROUP)
                .build()
                .flags(Flags::BUFFER_SELECT)
        };
        self.push(entry.user_data(user_data(OperationKind::Receive, id.0.index)));
    }

    /// No bytes are welcome until `receive`; those that the kernel has taken already come still.
    /// That the connection broke is reported all the same.
    pub fn pause(&mut self, id: SocketId) {
        self.stop_receiving(id);
        if self.sockets.open(id).is_some_and(|socket| !socket.ended) {
            self.watch_hang_up(id);
        }
    }

    /// Receives nothing more, and watches for nothing: for `give_up`, once the last completions were
    /// reported.
    pub fn stop(&mut self, id: SocketId) {
        self.stop_receiving(id);
        let Some(socket) = self.sockets.open(id) else {
            return;
        };
        socket.wants_hang_up = false;
        if socket.watching_hang_up {
            self.cancel(user_data(OperationKind::HangUp, id.0.index));
        }
    }

    fn stop_receiving(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.open(id) else {
            return;
        };
        socket.wanted = false;
        if socket.receiving == Operation::Armed {
            socket.receiving = Operation::Stopping;
            self.cancel(user_data(OperationKind::Receive, id.0.index));
        }
    }

    /// Gives a socket back, if nothing of it is in flight and everything was reported.
    pub fn give_up(&mut self, id: SocketId) -> Option<OwnedFd> {
        let socket = self.sockets.open(id)?;
        if socket.in_flight > 0 {
            return None;
        }
        let fd = socket.fd.take();
        self.sockets.forget(id);
        fd
    }

    /// That the connection breaks, or ends in both directions, is reported by `HungUp`, though nothing is
    /// received from it or sent to it: behind the peer's regular end, too, of which a reset may come.
    pub fn watch_hang_up(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.open(id) else {
            return;
        };
        socket.wants_hang_up = true;
        if socket.watching_hang_up {
            return; // if it is being cancelled, it is armed again after its last completion
        }
        let Some(fd) = socket.raw() else { return };
        socket.watching_hang_up = true;
        socket.in_flight += 1;
        let flags = (libc::POLLHUP | libc::POLLERR) as u32;
        let poll = opcode::PollAdd::new(types::Fd(fd), flags).multi(true);
        self.push(
            poll.build()
                .user_data(user_data(OperationKind::HangUp, id.0.index)),
        );
    }

    /// Sends a batch that is all in memory; answered by `Sent` or `SendFailed`, with `Progress`
    /// before where it takes long. One at a time.
    ///
    /// With `SentReport::WithTheNext`, `Sent` comes with the next event, at most some 50 ms later, and costs
    /// no completion. With `SentReport::AtOnce` it ends a wait. Returns whether it is late: then the batch
    /// has left unless `Progress` or `SendFailed` comes before anything else.
    ///
    /// # Panics
    /// If one is out already.
    #[inline]
    pub fn send(&mut self, id: SocketId, transmit: Transmit, report: SentReport) -> bool {
        // What takes more than one operation goes on when the first one is reported.
        let quiet = self.features.quiet_sends
            && report == SentReport::WithTheNext
            && transmit.is_last_piece()
            && transmit.remaining() <= SEND_BYTES_MAX as u64;
        let Some(socket) = self.sockets.open(id) else {
            return false;
        };
        assert!(
            matches!(socket.sending, Sending::Idle),
            "one batch at a time"
        );
        if quiet {
            // What `push_send` is about to order: nothing comes between.
            let number = self.ordered;
            socket.sending = Sending::Quiet(transmit, number);
            self.push_send(id, OperationKind::QuietSend);
            self.quiet.push_back((id, number));
        } else {
            socket.sending = Sending::Waiting(transmit);
            self.push_send(id, OperationKind::Send);
        }
        quiet
    }

    pub(super) fn push_send(&mut self, id: SocketId, kind: OperationKind) {
        let Some((_, socket)) = self.sockets.at(id.0.index) else {
            return;
        };
        let Some(fd) = socket.raw() else { return };
        let (Sending::Quiet(transmit, _) | Sending::Waiting(transmit)) = &socket.sending else {
            return;
        };
        let Some(loadline_base::Chunk::Memory(memory)) = transmit.front() else {
            unreachable!("files are sent by `write`");
        };
        let len = memory.len().min(SEND_BYTES_MAX) as u32;
        let address = memory.as_ptr();
        // More is sent as soon as this has gone: no short packet between.
        let more = match transmit.is_last_piece() && len as usize == memory.len() {
            true => 0,
            false => libc::MSG_MORE,
        };
        socket.in_flight += 1;
        let (flags, squeue_flags) = match kind {
            OperationKind::QuietSend => (
                libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_DONTWAIT,
                Flags::SKIP_SUCCESS,
            ),
            _ => (libc::MSG_NOSIGNAL | more, Flags::empty()),
        };
        let entry = opcode::Send::new(types::Fd(fd), address, len)
            .flags(flags)
            .build()
            .flags(squeue_flags)
            .user_data(user_data(kind, id.0.index));
        self.push(entry);
    }

    /// Reports when there is room to write, once: for what the loop writes by itself. Costs nothing
    /// while that is awaited already.
    pub fn await_room(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.open(id) else {
            return;
        };
        let Some(fd) = socket.raw() else { return };
        if std::mem::replace(&mut socket.awaiting_room, true) {
            return;
        }
        socket.in_flight += 1;
        let poll = opcode::PollAdd::new(types::Fd(fd), libc::POLLOUT as u32).build();
        self.push(poll.user_data(user_data(OperationKind::Room, id.0.index)));
    }

    /// Lets go of a socket: nothing is reported of it any more. What is in flight is cancelled, the
    /// descriptor is closed, and the slot is used again after the last completion.
    pub fn close(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.open(id) else {
            return;
        };
        socket.closing = true;
        // Each by its name: to find those of a descriptor the kernel looks through all that are armed
        // in the ring (0.35 ms of 10,000).
        let armed = [
            (OperationKind::Receive, socket.receiving != Operation::Idle),
            (
                OperationKind::Send,
                matches!(socket.sending, Sending::Waiting(_)),
            ),
            (OperationKind::Room, socket.awaiting_room),
            (OperationKind::HangUp, socket.watching_hang_up),
        ];
        for (kind, _) in armed.into_iter().filter(|(_, is_armed)| *is_armed) {
            self.cancel(user_data(kind, id.0.index));
        }
        // The operations hold the file until they end; its number may go to another at once.
        if let Some((_, socket)) = self.sockets.at(id.0.index)
            && let Some(fd) = socket.fd.take()
        {
            let fd = fd.into_raw_fd();
            self.push_chore(opcode::Close::new(types::Fd(fd)).build());
        }
        self.sockets.release(id.0.index);
    }

    /// Accepts connections at `listener` from now on, reported under its number. Costs nothing while that
    /// is so already.
    pub fn accept(&mut self, listener: u32, fd: BorrowedFd<'_>) {
        self.listen(listener, fd, false);
    }

    /// Reports `AcceptReady`, once, when a connection can be accepted at a listener that several rings
    /// listen at. Each connection is reported to one of them, and one that does not wait gets no second
    /// report: to accept for it goes on taking them (a multishot accept is first in the kernel's queue
    /// for ever), whether or not its thread has time for them.
    pub fn await_acceptable(&mut self, listener: u32, fd: BorrowedFd<'_>) {
        self.listen(listener, fd, true);
    }

    fn listen(&mut self, listener: u32, fd: BorrowedFd<'_>, polls: bool) {
        if want(&mut self.listeners, listener, fd, polls) {
            self.arm_accept(listener);
        }
    }

    pub(super) fn arm_accept(&mut self, listener: u32) {
        let watched = &mut self.listeners[listener as usize];
        watched.operation = Operation::Armed;
        let fd = types::Fd(watched.fd);
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let entry = if watched.polls {
            let events = libc::POLLIN as u32 | libc::EPOLLEXCLUSIVE as u32;
            opcode::PollAdd::new(fd, events).build()
        } else if self.features.multishot_accept {
            opcode::AcceptMulti::new(fd).flags(flags).build()
        } else {
            let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
            let accept = opcode::Accept::new(fd, address, length);
            accept.flags(flags).build()
        };
        self.in_flight += 1;
        self.push(entry.user_data(user_data(OperationKind::Accept, listener)));
    }

    /// Listens no more at `listener` from the next wait on, which it has to stay open for; connections
    /// that were accepted already are still reported.
    pub fn stop_accepting(&mut self, listener: u32) {
        let Some(watched) = self.listeners.get_mut(listener as usize) else {
            return;
        };
        watched.wanted = false;
        if watched.operation == Operation::Armed {
            watched.operation = Operation::Stopping;
            self.cancel(user_data(OperationKind::Accept, listener));
        }
    }

    /// Reports `Signal` each time that `fd` (an eventfd) becomes readable, from now on.
    pub fn watch(&mut self, id: u32, fd: BorrowedFd<'_>) {
        if want(&mut self.watched, id, fd, false) {
            self.arm_watch(id);
        }
    }

    pub(super) fn arm_watch(&mut self, id: u32) {
        let watched = &mut self.watched[id as usize];
        watched.operation = Operation::Armed;
        let fd = types::Fd(watched.fd);
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true);
        self.in_flight += 1;
        self.push(poll.build().user_data(user_data(OperationKind::Watch, id)));
    }

    pub(super) fn cancel(&mut self, target: u64) {
        let entry = opcode::AsyncCancel2::new(types::CancelBuilder::user_data(target)).build();
        self.push_chore(entry);
    }

    /// An operation whose outcome says nothing that is not known.
    pub(super) fn push_chore(&mut self, entry: Entry) {
        let quiet = match self.features.quiet_sends {
            true => Flags::SKIP_SUCCESS,
            false => Flags::empty(),
        };
        self.push(
            entry
                .flags(quiet)
                .user_data(user_data(OperationKind::Chore, 0)),
        );
    }
}

/// A descriptor is wanted from now on. `true`: its operation is to be armed; one that is being stopped is
/// armed again after its last completion.
fn want(all: &mut Vec<Watched>, number: u32, fd: BorrowedFd<'_>, polls: bool) -> bool {
    let index = number as usize;
    if all.len() <= index {
        all.resize(index + 1, Watched::NONE);
    }
    let watched = &mut all[index];
    watched.fd = fd.as_raw_fd();
    watched.wanted = true;
    watched.polls = polls;
    watched.operation == Operation::Idle
}
