//! From what lies in the completion queue to what is reported.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use io_uring::cqueue;
use loadline_base::Token;

use super::sockets::{Operation, Sending};
use super::{Completion, OperationKind, Ring, Taken};

/// What a completion came to, without borrowing the buffer that it may name.
enum CompletionOutcome {
    Nothing,
    Other(Completion<'static>),
    Received {
        token: Token,
        buffer: u16,
        len: usize,
    },
}

const KINDS: [OperationKind; 10] = [
    OperationKind::Accept,
    OperationKind::Receive,
    OperationKind::QuietSend,
    OperationKind::Send,
    OperationKind::Room,
    OperationKind::ReadAhead,
    OperationKind::HangUp,
    OperationKind::Watch,
    OperationKind::Mark,
    OperationKind::Chore,
];

fn kind_of(data: u64) -> OperationKind {
    KINDS[(data >> super::KIND_SHIFT) as usize % KINDS.len()]
}

impl Taken {
    fn error(self) -> Option<io::Error> {
        (self.result < 0).then(|| io::Error::from_raw_os_error(-self.result))
    }

    fn is_errno(self, errno: i32) -> bool {
        self.result == -errno
    }

    fn goes_on(self) -> bool {
        cqueue::more(self.flags)
    }
}

impl Ring {
    /// The next thing that happened by the last `wait`; `None`: all was reported.
    pub fn next_completion(&mut self) -> Option<Completion<'_>> {
        if let Some(buffer) = self.lent.take() {
            self.give_back(buffer);
        }
        let (token, buffer, len) = loop {
            let outcome = match self.next_quiet() {
                Some(outcome) => outcome,
                None => {
                    let taken = *self.taken.get(self.reported)?;
                    self.reported += 1;
                    self.outcome(taken)
                }
            };
            match outcome {
                CompletionOutcome::Nothing => {}
                CompletionOutcome::Other(completion) => return Some(completion),
                CompletionOutcome::Received { token, buffer, len } => break (token, buffer, len),
            }
        };
        self.lent = Some(buffer);
        let bytes = self.buffers.filled(buffer, len);
        Some(Completion::Received { token, bytes })
    }

    pub(super) fn give_back(&mut self, buffer: u16) {
        self.buffers.put(buffer);
        self.put_back = true;
    }

    /// Takes what lies in the queue. Sends that did not go out whole stop being quiet.
    pub(super) fn take_completions(&mut self) {
        debug_assert_eq!(self.reported, self.taken.len());
        self.taken.clear();
        self.reported = 0;
        self.inputs = 0;
        let entries = self.uring.submission();
        self.is_full = entries.taskrun() || entries.cq_overflow();
        drop(entries);
        let queue = self.uring.completion();
        self.taken.extend(queue.map(|entry| Taken {
            user_data: entry.user_data(),
            result: entry.result(),
            flags: entry.flags(),
        }));
        let (mut are_loud, mut last) = (false, None);
        for taken in &self.taken {
            self.has_mark |= kind_of(taken.user_data) == OperationKind::Mark;
            if kind_of(taken.user_data) == OperationKind::Receive {
                if taken.is_errno(libc::ENOBUFS) {
                    self.wants_buffers = true;
                } else if taken.result > 0 && last != Some(taken.user_data) {
                    last = Some(taken.user_data); // several in a row are of one socket
                    self.inputs += 1;
                }
            }
            if kind_of(taken.user_data) == OperationKind::QuietSend
                && let Some((_, socket)) = self.sockets.at(taken.user_data as u32)
                && matches!(socket.sending, Sending::Quiet(..))
                && let Sending::Quiet(transmit, _) = std::mem::take(&mut socket.sending)
            {
                socket.sending = Sending::Waiting(transmit);
                are_loud = true;
            }
        }
        self.is_full |= self.wants_buffers;
        if are_loud {
            let is_other = |taken: &Taken| kind_of(taken.user_data) != OperationKind::QuietSend;
            self.taken.sort_by_key(is_other); // first of all, as `send` says
        }
    }

    /// The next of those sends that were submitted and of which nothing was reported. One that was
    /// reported has left `Sending::Quiet`, and the next of its socket has another number.
    fn next_quiet(&mut self) -> Option<CompletionOutcome> {
        while self.quiet_submitted > 0 {
            self.quiet_submitted -= 1;
            let (id, submitted) = self.quiet.pop_front()?;
            if let Some((_, socket)) = self.sockets.at(id.0.index)
                && matches!(socket.sending, Sending::Quiet(_, number) if number == submitted)
            {
                let len = socket.piece_len();
                return Some(self.sent(id.0.index, len as i64));
            }
        }
        None
    }

    fn outcome(&mut self, taken: Taken) -> CompletionOutcome {
        let index = taken.user_data as u32;
        match kind_of(taken.user_data) {
            OperationKind::Accept => self.accepted(index, taken),
            OperationKind::Receive => self.received(index, taken),
            OperationKind::QuietSend | OperationKind::Send => {
                // Nothing sent yet, and no room: it waits for some in the next operation.
                let result = match taken.is_errno(libc::EAGAIN) {
                    true => 0,
                    false => i64::from(taken.result),
                };
                self.sent(index, result)
            }
            OperationKind::Room => {
                if let Some((_, socket)) = self.sockets.at(index) {
                    socket.awaiting_room = false;
                }
                self.polled(index, |token| Completion::Writable { token })
            }
            OperationKind::ReadAhead => self.read(index, taken),
            OperationKind::HangUp => self.hung_up(index, taken),
            OperationKind::Watch => {
                if !taken.goes_on() {
                    self.in_flight -= 1;
                    if let Some(watched) = self.watched.get_mut(index as usize) {
                        watched.operation = Operation::Idle;
                        if watched.wanted {
                            self.arm_watch(index);
                        }
                    }
                }
                CompletionOutcome::Other(Completion::Signal { id: index })
            }
            OperationKind::Mark | OperationKind::Chore => CompletionOutcome::Nothing,
        }
    }

    /// The last completion of one operation of a socket has come; says whose, if its owner still
    /// wants to know.
    fn landed(&mut self, index: u32) -> Option<Token> {
        let (_, socket) = self.sockets.at(index)?;
        socket.in_flight -= 1;
        if socket.closing {
            self.sockets.release(index);
            return None;
        }
        Some(socket.owner)
    }

    fn polled(
        &mut self,
        index: u32,
        completion: impl FnOnce(Token) -> Completion<'static>,
    ) -> CompletionOutcome {
        match self.landed(index) {
            Some(token) => CompletionOutcome::Other(completion(token)),
            None => CompletionOutcome::Nothing,
        }
    }

    /// A range is in memory, as far as it could be read; what could not is left for whoever sends it.
    fn read(&mut self, index: u32, taken: Taken) -> CompletionOutcome {
        if let Some((_, socket)) = self.sockets.at(index) {
            socket.reading = None;
        }
        let bytes = u64::try_from(taken.result).unwrap_or(0);
        self.polled(index, |token| Completion::ReadAhead { token, bytes })
    }

    /// The kernel watches for the end of what the peer sends in any case, which says nothing here: that
    /// waits behind bytes that are not read yet. The kernel may end a poll before anything has happened,
    /// when completions have overflowed for instance.
    fn hung_up(&mut self, index: u32, taken: Taken) -> CompletionOutcome {
        let Some((id, socket)) = self.sockets.at(index) else {
            return CompletionOutcome::Nothing;
        };
        let owner = (!socket.closing).then_some(socket.owner);
        let broke = (libc::POLLHUP | libc::POLLERR) as i32;
        let has_broken = taken.result >= 0 && taken.result & broke != 0;
        if !taken.goes_on() {
            socket.watching_hang_up = false;
            let has_failed = taken.result < 0 && !taken.is_errno(libc::ECANCELED);
            let is_wanted = socket.wants_hang_up && !has_broken && !has_failed;
            self.landed(index);
            if is_wanted {
                self.watch_hang_up(id);
            }
        }
        match owner {
            Some(token) if has_broken => CompletionOutcome::Other(Completion::HungUp { token }),
            _ => CompletionOutcome::Nothing,
        }
    }

    fn accepted(&mut self, listener: u32, taken: Taken) -> CompletionOutcome {
        let Some(watched) = self.listeners.get_mut(listener as usize) else {
            return CompletionOutcome::Nothing;
        };
        let ended = !taken.goes_on();
        let mut was_stopped = false;
        if ended {
            self.in_flight -= 1;
            was_stopped = watched.operation == Operation::Stopping;
            watched.operation = Operation::Idle;
        }
        let wanted = watched.wanted;
        let Some(error) = taken.error() else {
            if watched.polls {
                watched.wanted = false;
                return CompletionOutcome::Other(Completion::AcceptReady { listener });
            }
            if ended && wanted {
                self.arm_accept(listener);
            }
            // SAFETY: the kernel has just made this descriptor for this completion, and gave it to
            // no other owner.
            let socket = unsafe { OwnedFd::from_raw_fd(taken.result) };
            return CompletionOutcome::Other(Completion::Accepted { listener, socket });
        };
        let is_cancelled = was_stopped && taken.is_errno(libc::ECANCELED);
        if wanted && (is_cancelled || is_of_the_new_one(&error)) {
            if ended {
                self.arm_accept(listener); // asked for again meanwhile, or the next may be well
            }
            return CompletionOutcome::Nothing;
        }
        watched.wanted = false;
        CompletionOutcome::Other(match is_cancelled {
            true => Completion::AcceptStopped { listener },
            false => Completion::AcceptFailed { listener, error },
        })
    }

    fn received(&mut self, index: u32, taken: Taken) -> CompletionOutcome {
        let buffer = cqueue::buffer_select(taken.flags);
        let multishot_goes_on = taken.goes_on();
        let Some((id, socket)) = self.sockets.at(index) else {
            return CompletionOutcome::Nothing;
        };
        let token = socket.owner;
        if !multishot_goes_on {
            socket.in_flight -= 1;
            socket.receiving = Operation::Idle;
        }
        socket.has_spoken |= taken.result > 0;
        let (closing, wanted, ended) = (socket.closing, socket.wanted, socket.ended);
        if closing || ended {
            if let Some(buffer) = buffer {
                self.give_back(buffer);
            }
            self.sockets.release(index);
            return CompletionOutcome::Nothing;
        }
        if taken.result > 0 {
            if !multishot_goes_on && wanted {
                self.rearm.push(id);
            }
            return match buffer {
                Some(buffer) => CompletionOutcome::Received {
                    token,
                    buffer,
                    len: taken.result as usize,
                },
                None => CompletionOutcome::Nothing, // not with selected buffers
            };
        }
        if let Some(buffer) = buffer {
            self.give_back(buffer);
        }
        let passing = [libc::ENOBUFS, libc::ECANCELED, libc::EINTR, libc::EAGAIN];
        if passing.iter().any(|errno| taken.is_errno(*errno)) {
            if wanted {
                self.rearm.push(id); // when the buffers of this turn are back
            }
            return CompletionOutcome::Nothing;
        }
        if let Some((_, socket)) = self.sockets.at(index) {
            socket.ended = true;
        }
        CompletionOutcome::Other(Completion::Ended {
            token,
            error: taken.error(),
        })
    }

    /// `result` bytes of the piece that was out have left, or it failed.
    fn sent(&mut self, index: u32, result: i64) -> CompletionOutcome {
        let Some((id, socket)) = self.sockets.at(index) else {
            return CompletionOutcome::Nothing;
        };
        let token = socket.owner;
        socket.in_flight -= 1;
        let (Sending::Quiet(mut transmit, _) | Sending::Waiting(mut transmit)) =
            std::mem::take(&mut socket.sending)
        else {
            return CompletionOutcome::Nothing;
        };
        if socket.closing {
            self.sockets.release(index);
            return CompletionOutcome::Nothing;
        }
        if result < 0 {
            let error = io::Error::from_raw_os_error(-(result as i32));
            return CompletionOutcome::Other(Completion::SendFailed {
                token,
                transmit,
                error,
            });
        }
        transmit.advance(result as u64);
        if transmit.is_done() {
            return CompletionOutcome::Other(Completion::Sent { token, transmit });
        }
        socket.sending = Sending::Waiting(transmit);
        self.push_send(id, OperationKind::Send);
        CompletionOutcome::Other(Completion::Progress {
            token,
            bytes: result as u64,
        })
    }
}

/// Errors of a connection that died in the queue, and interruptions: the next may be well.
fn is_of_the_new_one(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        Some(
            libc::EMFILE
                | libc::ENFILE
                | libc::ENOBUFS
                | libc::ENOMEM
                | libc::EBADF
                | libc::EINVAL
                | libc::ENOTSOCK
                | libc::EOPNOTSUPP
                | libc::ECANCELED
        )
    )
}

impl super::Socket {
    /// Bytes of the piece that was submitted.
    fn piece_len(&self) -> usize {
        let (Sending::Quiet(transmit, _) | Sending::Waiting(transmit)) = &self.sending else {
            return 0;
        };
        match transmit.front() {
            Some(loadline_base::Chunk::Memory(memory)) => memory.len().min(super::SEND_BYTES_MAX),
            _ => 0,
        }
    }
}
