//! What a session orders next.

use super::Http1Session;
use crate::progress::BodyReader;
use crate::session_state::{Pending, State};
use crate::{Action, CloseReason, Context, Then};

/// Only what the owner carries out is awaited.
const WAIT_FOR_OWNER: Action = Action::Wait {
    read: false,
    hang_up: false,
};

impl Http1Session {
    /// The next order. To be asked after every event until it says `Wait` or `Close`.
    #[inline]
    pub fn next_action(&mut self, cx: &mut Context<'_>) -> Action {
        // Those of a small request, with no look at what it does not need.
        let output_due = match (self.state, &self.progress) {
            _ if self.sending => return self.other_action(cx),
            // More answers may join the output, so that pipelined ones leave together.
            (State::RunDue, Some(progress)) => {
                progress.is_full(self.config.limits.output_bytes_max)
            }
            (State::Idle, progress) if !self.draining => {
                progress.as_ref().is_some_and(|it| it.has_output())
            }
            _ => return self.other_action(cx),
        };
        if output_due {
            return self.send(cx);
        }
        match self.state {
            State::RunDue => self.run(cx),
            _ => Action::Wait {
                read: !self.eof,
                hang_up: false,
            },
        }
    }

    #[inline(never)]
    fn other_action(&mut self, cx: &mut Context<'_>) -> Action {
        if matches!(self.state, State::Closed | State::CancelDue { .. }) {
            return self.cancel();
        }
        if self.sending {
            return match self.state {
                State::Streaming => self.stream_action(cx),
                _ => WAIT_FOR_OWNER,
            };
        }
        let full = match (&self.progress, self.state) {
            (None, _) => false,
            (Some(progress), State::Running | State::Blocking) => {
                debug_assert!(!progress.has_output());
                false
            }
            (Some(progress), _) => progress.has_output(),
        };
        if full {
            return self.send(cx);
        }
        match self.state {
            State::RunDue => Action::Close, // there is a request, and so there is its progress
            State::BlockDue => match self.progress(cx).exchange.take() {
                Some(exchange) => {
                    exchange.hang_up.reset();
                    let progress = self.progress(cx);
                    progress.hang_up = Some(exchange.hang_up.clone());
                    progress.exchange_bytes = exchange.memory_bytes();
                    self.state = State::Blocking;
                    Action::Block(exchange)
                }
                None => Action::Close,
            },
            State::StartDue => self.start(cx),
            State::Streaming => self.stream_action(cx),
            State::Running | State::Blocking => WAIT_FOR_OWNER,
            State::AnswerDue => Action::ReceivePending { certain: true },
            State::Idle if self.draining => self.close_idle(),
            State::Idle | State::Head | State::Collecting { .. } | State::Discarding => {
                Action::Wait {
                    read: !self.eof,
                    hang_up: false,
                }
            }
            State::Lingering => Action::Wait {
                read: true,
                hang_up: false,
            },
            State::Ending { linger: true } if !self.eof => {
                self.state = State::Lingering;
                self.begin_period(cx);
                Action::Finish
            }
            State::Ending { linger: false } if !self.eof && self.pending != Pending::Nothing => {
                Action::ReceivePending {
                    certain: self.draining || self.pending == Pending::Unknown,
                }
            }
            State::Ending { .. } | State::Closed | State::CancelDue { .. } => {
                self.close(CloseReason::Finished);
                Action::Close
            }
        }
    }

    /// What follows the output that is about to be sent.
    fn then(&self) -> Then {
        match self.state {
            State::Idle if !self.draining && !self.eof && !self.has_unread() => Then::Rest,
            State::Ending { linger: false } if !self.draining => Then::Close,
            _ => Then::More,
        }
    }

    /// In a drain.
    fn close_idle(&mut self) -> Action {
        if !self.eof && self.pending != Pending::Nothing {
            return Action::ReceivePending { certain: true };
        }
        self.close(CloseReason::Drained);
        Action::Close
    }

    fn run(&mut self, cx: &mut Context<'_>) -> Action {
        let draining = self.draining;
        let discard_max = self.config.limits.discard_bytes_max;
        let bytes_max = self.config.limits.body_bytes_max;
        let Some(mut exchange) = self.progress(cx).exchange.take() else {
            return Action::Close;
        };
        exchange.promised_s = self.promised_s(exchange.request.version);
        let progress = self.progress(cx);
        // What the handler does not ask for has to be read and thrown away, if that is bounded and
        // allowed, and if the client will send it: one that waits for 100 Continue may or may not.
        let can_skip_body = match progress.body {
            BodyReader::Done => true,
            _ if progress.expects_continue || progress.content_bytes_min() > bytes_max => false,
            BodyReader::Length { left } => left <= discard_max,
            BodyReader::Chunked(_) => true,
        };
        exchange.persist = progress.persist && can_skip_body && !progress.is_last(draining);
        exchange.lend_output(std::mem::take(&mut progress.output));
        self.state = State::Running;
        Action::Run(exchange)
    }

    #[inline]
    pub(super) fn send(&mut self, cx: &mut Context<'_>) -> Action {
        let mut progress = self.take_progress(cx);
        let transmit = progress.take_output(cx);
        self.progress = Some(progress);
        self.sending = true;
        self.begin_period(cx);
        Action::Send {
            transmit,
            then: self.then(),
        }
    }
}
