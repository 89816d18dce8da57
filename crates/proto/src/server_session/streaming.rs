//! A request that an app's task has: its content and its answer, piece by piece.
//!
//! ```text
//!            Start          answered (whole)
//!  StartDue ──────► Streaming ───────────────────────────► (answer)
//!                   │  │ ▲ answered (stream) · produced
//!                   │  └─┘ consumed · received · Offer · Pull
//!                   │ time up, client gone, content broken      Cancel
//!                   └──────────────────────► CancelDue ─────────────────► Ending | Closed
//! ```

use super::ServerSession;
use crate::http1::encode;
use crate::progress::BodyReader;
use crate::session_state::State;
use crate::stream::{AnswerEnd, Awaited};
use crate::{
    Action, Body, CloseReason, Exchange, Fault, Method, Piece, RequestBody, Status, StreamId,
    TaskOptions, Turn, Version, answer,
};

/// The one stream of an HTTP/1 connection.
const STREAM: StreamId = StreamId(0);

impl ServerSession {
    /// The app's task answers: with the whole, or with a head whose content follows by `produced`.
    pub fn answered(&mut self, mut exchange: Box<Exchange>, turn: &mut Turn<'_>) {
        let sending = self.sending;
        let discard_max = self.config.limits.discard_bytes_max;
        let promised_s = self.promised_s(exchange.request.version);
        let progress = match &mut self.progress {
            Some(progress) if self.state == State::Streaming && !progress.stream.has_head() => {
                progress
            }
            // Too late, or a second time.
            _ => return turn.pool.give_exchange(exchange),
        };
        let stream = &mut progress.stream;
        if let Some(stand_in) = stream.stand_in.take() {
            turn.pool.give_exchange(stand_in);
        }
        let asked = stream.asked;
        stream.app_moved(turn.now);
        let can_skip_body = match progress.body {
            BodyReader::Done => true,
            _ if progress.expects_continue => false,
            BodyReader::Length { left } => asked || left <= discard_max,
            BodyReader::Chunked(_) => true,
        };
        exchange.persist = progress.persist && can_skip_body;
        exchange.promised_s = promised_s;
        let Body::Stream { len } = exchange.response.body else {
            self.leave_stream(turn);
            return self.answer_with(exchange, sending, turn);
        };
        self.begin_answer(exchange, len, turn);
    }

    /// The task has read this much of what was offered: the window reopens. The first call, with
    /// 0 perhaps, says that it wants content at all.
    pub fn consumed(&mut self, _stream: StreamId, bytes: usize, turn: &mut Turn<'_>) {
        if self.state != State::Streaming {
            return;
        }
        let progress = self.progress(turn);
        let stream = &mut progress.stream;
        stream.asked = true;
        stream.offered_bytes = stream.offered_bytes.saturating_sub(bytes);
        if bytes > 0 {
            stream.app_moved(turn.now);
        }
        let has_come = stream.offered_bytes > 0 || bytes > 0;
        let wants_continue = progress.expects_continue && !progress.stream.has_head();
        if wants_continue && !has_come && !progress.has_carry() {
            progress.push_continue(turn);
        }
        progress.expects_continue &= !wants_continue;
        self.read_stream(None, turn);
    }

    /// The task has produced a piece of its answer.
    pub fn produced(&mut self, _stream: StreamId, piece: Piece, turn: &mut Turn<'_>) {
        if self.state != State::Streaming {
            return;
        }
        let progress = self.progress(turn);
        progress.stream.app_moved(turn.now);
        let has_head = progress.stream.has_head();
        match piece {
            Piece::Abort => self.broken_off(turn),
            _ if !has_head => {} // nowhere to put it
            Piece::Data(bytes) => {
                if !progress.push_content(bytes, turn) {
                    self.broken_off(turn); // more than the head said
                }
            }
            Piece::Trailers(fields) => progress.stream.trailers = fields,
            Piece::End => self.end_answer(turn),
        }
    }

    /// An app's task is to have the request, unless it has more content than that takes.
    #[inline(never)]
    pub(super) fn start_due(
        &mut self,
        exchange: Box<Exchange>,
        options: TaskOptions,
        turn: &mut Turn<'_>,
    ) {
        if self.has_content_beyond(options.body_bytes_max) {
            return self.refuse_content(exchange, turn);
        }
        self.state = State::StartDue;
        let progress = self.progress(turn);
        progress.task = options;
        progress.exchange = Some(exchange);
    }

    /// Orders `Start`, or nothing more if the client has left meanwhile.
    #[inline(never)]
    pub(super) fn start(&mut self, turn: &mut Turn<'_>) -> Action {
        let window = self.config.limits.stream_window_bytes;
        let mut progress = self.take_progress(turn);
        if self.eof && progress.task.cancel_on_half_close {
            self.progress = Some(progress);
            self.close(CloseReason::Vanished);
            return Action::Close;
        }
        let Some(exchange) = progress.exchange.take() else {
            return Action::Close;
        };
        let mut stand_in = turn.pool.take_exchange();
        stand_in.copy_request(&exchange);
        progress.stream.begin(stand_in, window, turn.now);
        progress.stream.end_offered = matches!(exchange.request.body, RequestBody::Empty);
        progress.expects_continue &= !progress.has_carry();
        self.progress = Some(progress);
        self.state = State::Streaming;
        self.begin_period(turn);
        self.read_stream(None, turn);
        let State::CancelDue { close } = self.state else {
            return Action::Start(exchange);
        };
        // Its content cannot be had: no task was started, so none is cancelled.
        turn.pool.give_exchange(exchange);
        self.state = after_task(close);
        self.next_action(turn)
    }

    /// The client will send no more, which says nothing of whether it still reads.
    #[inline(never)]
    pub(super) fn received_eof_streaming(&mut self, turn: &mut Turn<'_>) {
        if self.progress(turn).task.cancel_on_half_close {
            return self.close(CloseReason::Vanished);
        }
        self.read_stream(None, turn);
    }

    /// What is to be done for an app's task, while output may be on its way.
    #[inline(never)]
    pub(super) fn stream_action(&mut self, turn: &mut Turn<'_>) -> Action {
        let window = self.config.limits.stream_window_bytes;
        if !self.sending && self.has_output() {
            return self.send(turn);
        }
        let progress = self.progress(turn);
        let content_left = !matches!(progress.body, BodyReader::Done);
        if let Some(piece) = progress.stream.next_offer(content_left) {
            return Action::Offer(STREAM, piece);
        }
        if let Some(room) = progress.stream.take_room(window) {
            return Action::Pull(STREAM, room);
        }
        // Behind the content only the end is awaited, and a bounded part of a next request.
        let read = match content_left {
            true => progress.stream.offered_bytes < window && !progress.has_carry(),
            false => progress.carry_len() < window as u64,
        };
        Action::Wait {
            read: read && !self.eof,
            hang_up: self.eof,
        }
    }

    /// Orders `Cancel`; then whatever the reason for it demands.
    #[cold]
    pub(super) fn cancel(&mut self) -> Action {
        let State::CancelDue { close } = self.state else {
            return Action::Close;
        };
        self.state = after_task(close);
        Action::Cancel(STREAM)
    }

    /// Bytes came while a task has the request.
    #[inline(never)]
    pub(super) fn received_streaming(&mut self, bytes: &[u8], turn: &mut Turn<'_>) {
        let limits = &self.config.limits;
        let Some(progress) = &mut self.progress else {
            return;
        };
        progress.stream.client_moved(bytes.len(), limits, turn.now);
        if progress.has_carry() {
            progress.keep(bytes, turn);
            self.read_stream(None, turn);
        } else {
            self.read_stream(Some(bytes), turn);
        }
    }

    /// Time is up for the client or for the app.
    #[inline(never)]
    pub(super) fn expired_streaming(&mut self, turn: &mut Turn<'_>) {
        let limits = &self.config.limits;
        let Some(progress) = &self.progress else {
            return;
        };
        let has_head = progress.stream.has_head();
        let (status, text) = match progress.stream.awaited(limits) {
            Awaited::Client(_) => (Status::REQUEST_TIMEOUT, "the request took too long"),
            Awaited::App(_) => (Status::SERVICE_UNAVAILABLE, "the app took too long"),
        };
        let status = Some(status).filter(|_| !has_head);
        let fault = Fault::timeout(status, text);
        self.fail_stream(fault, CloseReason::Slow, turn);
    }

    /// Until when the client or the app is awaited.
    #[inline(never)]
    pub(super) fn streaming_deadline(&self) -> Option<loadline_base::Millis> {
        let progress = self.progress.as_ref()?;
        match progress.stream.awaited(&self.config.limits) {
            Awaited::Client(at) | Awaited::App(at) => Some(at),
        }
    }

    /// Moves content on towards the app, as far as the window allows.
    fn read_stream(&mut self, fresh: Option<&[u8]>, turn: &mut Turn<'_>) {
        let config = &self.config;
        let Some(progress) = &mut self.progress else {
            return;
        };
        if let Err(fault) = progress.read_stream(fresh, &config.limits, turn) {
            return self.fail_stream(fault, CloseReason::BadRequest, turn);
        }
        let content_left = !matches!(progress.body, BodyReader::Done);
        if content_left && self.eof && !progress.has_carry() {
            let fault = Fault::bad_request("the content ended before its length");
            return self.fail_stream(fault, CloseReason::BadRequest, turn);
        }
        progress.stream.note_hunger(content_left, turn.now);
    }

    /// The head of an answer whose content follows.
    fn begin_answer(&mut self, mut exchange: Box<Exchange>, len: Option<u64>, turn: &mut Turn<'_>) {
        let mut progress = self.take_progress(turn);
        let is_old = exchange.request.version == Version::Http10;
        let is_empty =
            exchange.request.method == Method::Head || exchange.response.status.has_no_content();
        let end = match len {
            _ if is_empty => AnswerEnd::Nothing,
            Some(left) => AnswerEnd::Length { left },
            None if is_old => AnswerEnd::Close,
            None => AnswerEnd::Chunked,
        };
        exchange.persist &= end != AnswerEnd::Close;
        self.count_request();
        let persist = answer::take_over(
            &mut exchange,
            &mut progress,
            self.draining,
            &self.config,
            turn,
        );
        let stream = &mut progress.stream;
        stream.end = end;
        stream.persist = persist;
        stream.takes_trailers = encode::takes_trailers(&exchange.request);
        stream.answered = Some(exchange);
        self.progress = Some(progress);
    }

    /// The answer is complete, as far as the app is concerned.
    fn end_answer(&mut self, turn: &mut Turn<'_>) {
        let progress = self.progress(turn);
        match progress.stream.end {
            AnswerEnd::Length { left: 1.. } => return self.broken_off(turn),
            AnswerEnd::Chunked => progress.push_last_chunk(turn),
            _ => {}
        }
        let persist = progress.stream.persist;
        progress.content_len = progress.stream.content_len;
        self.leave_stream(turn);
        self.go_on(persist, turn);
        if self.draining {
            self.draining(turn);
        }
    }

    /// The task ended without its answer, or broke what its head promised.
    fn broken_off(&mut self, turn: &mut Turn<'_>) {
        let progress = self.progress(turn);
        let fault = Fault {
            blame: crate::Blame::Local,
            status: None,
            text: "an app did not finish its answer",
        };
        if let Some(mut exchange) = progress.stream.stand_in.take() {
            turn.counters.fault(&fault);
            exchange.response.error(Status::INTERNAL_SERVER_ERROR);
            return self.answered(exchange, turn);
        }
        self.fail_stream(fault, CloseReason::Failed, turn);
    }

    /// Ends the task and the connection: with an answer if there is none yet.
    fn fail_stream(&mut self, fault: Fault, reason: CloseReason, turn: &mut Turn<'_>) {
        let progress = self.progress(turn);
        match progress.stream.stand_in.take() {
            Some(exchange) if fault.status.is_some() && !progress.stream.has_head() => {
                progress.exchange = Some(exchange);
                self.leave_stream(turn);
                self.fault(fault, turn);
                self.state = State::CancelDue { close: false };
            }
            stand_in => {
                if let Some(exchange) = stand_in {
                    turn.pool.give_exchange(exchange);
                }
                turn.counters.fault(&fault);
                self.close(reason);
            }
        }
    }

    /// The stream is over: what was kept for it goes back, and its answer is logged.
    fn leave_stream(&mut self, turn: &mut Turn<'_>) {
        if let Some(progress) = &mut self.progress {
            progress.end_stream(None, turn);
        }
    }
}

/// Where a connection stands whose task was given up.
fn after_task(close: bool) -> State {
    match close {
        true => State::Closed,
        false => State::Ending { linger: true },
    }
}
