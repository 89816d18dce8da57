//! What a connection orders next.

use std::collections::BTreeMap;

use loadline_base::Millis;

use super::{Http2Session, Stage};
use crate::http2::frame::ErrorCode;
use crate::http2::stream::{Phase, Stream};
use crate::{Action, ClientKey, CloseReason, Context, Http2Count, StreamId, Then};

/// So many clients of a proxy may leave their responses unread before others of its connection have to wait
/// for them.
const SLOW_CLIENTS_MAX: usize = 4;

/// Content in memory that is to be sent, behind a proxy.
#[derive(Debug, Default)]
struct Waiting {
    /// Of streams whose windows are open.
    for_all: usize,
    /// Of streams whose windows are shut: that holds up nobody but their client.
    for_clients: BTreeMap<ClientKey, usize>,
}

impl Waiting {
    /// What counts for this client.
    fn for_client(&self, client: ClientKey) -> usize {
        let own = self.for_clients.get(&client);
        self.for_all + own.copied().unwrap_or_default()
    }
}

impl Http2Session {
    pub(super) fn order(&mut self, cx: &mut Context<'_>) -> Action {
        loop {
            if self.stage == Stage::Closed {
                return Action::Close;
            }
            if let Some(id) = self.cancelled.pop_front() {
                return Action::Cancel(id);
            }
            self.recount_waiting();
            while let Some(at) = self.next_due() {
                if let Some(id) = self.due.remove(at)
                    && let Some(action) = self.order_of(id, cx)
                {
                    return action;
                }
            }
            if self.sending {
                return self.wait(cx);
            }
            self.use_credit(cx);
            self.fill(cx);
            if self.eof {
                self.end_blocked(cx);
            }
            if !self.output.is_empty() {
                return self.send(cx);
            }
            if self.next_due().is_none()
                && let Some(action) = self.end(cx)
            {
                return action;
            }
        }
    }

    /// The place of the next stream that may give its order, the most urgent first. Heads join the output at
    /// once, and what the client does not take waits in memory: beyond their bounds no request is begun, nor
    /// while they are held.
    pub(super) fn next_due(&self) -> Option<usize> {
        if self.due.is_empty() {
            return None;
        }
        let limits = &self.config.limits;
        if self.are_requests_held || self.output.len() >= limits.output_bytes_max as u64 {
            return self.due.iter().position(|id| !self.begins(id));
        }
        let bytes_max = limits.waiting_bytes_max;
        if self.waiting_bytes_most < bytes_max {
            return Some(0);
        }
        let waiting_bytes = self.waiting_bytes();
        if waiting_bytes < bytes_max {
            return Some(0);
        }
        let has_others = self.peer_is_trusted() && waiting_bytes / SLOW_CLIENTS_MAX < bytes_max;
        let waiting = has_others.then(|| self.waiting_by_client());
        let has_room = |id: StreamId| {
            let of_stream = waiting.as_ref().zip(self.streams.get(id));
            of_stream.is_some_and(|(waiting, it)| waiting.for_client(it.client) < bytes_max)
        };
        let mut due = self.due.iter();
        due.position(|id| !self.begins(id) || has_room(id))
    }

    /// What waits is counted anew once it may have come to its bound, and not for each request: there may be
    /// thousands of streams.
    fn recount_waiting(&mut self) {
        let has_come_to_bound = self.waiting_bytes_most >= self.config.limits.waiting_bytes_max;
        if has_come_to_bound && !self.due.is_empty() {
            let waiting_bytes = self.waiting_bytes();
            debug_assert!(waiting_bytes <= self.waiting_bytes_most);
            self.waiting_bytes_most = waiting_bytes;
        }
    }

    fn waiting_bytes(&self) -> usize {
        self.streams.iter().map(Stream::waiting_bytes).sum()
    }

    /// A request may be begun though other clients of a proxy leave their responses unread.
    fn waiting_by_client(&self) -> Waiting {
        let mut waiting = Waiting::default();
        for stream in self.streams.iter() {
            let counts_for = match stream.send_window > 0 {
                true => &mut waiting.for_all,
                false => waiting.for_clients.entry(stream.client).or_default(),
            };
            *counts_for += stream.waiting_bytes();
        }
        waiting
    }

    /// The client will open no window any more: what waits for one cannot be sent.
    fn end_blocked(&mut self, cx: &mut Context<'_>) {
        while let Some(id) = self.blocked() {
            self.reason.get_or_insert(CloseReason::Vanished);
            self.leave(id, cx);
        }
    }

    fn blocked(&self) -> Option<StreamId> {
        let mut streams = self.streams.iter();
        let blocked = streams.find(|stream| stream.is_blocked(self.send_window));
        blocked.map(|stream| stream.id)
    }

    fn begins(&self, id: StreamId) -> bool {
        let stream = self.streams.get(id);
        stream.is_some_and(|stream| stream.phase.awaits_turn())
    }

    /// The next request of a client's queue is begun: those behind it wait for their turn from now on. One
    /// that did not wait itself has none of them before it, unless it is more urgent than some that wait for room.
    fn renew_turns(&mut self, id: StreamId, now: Millis) {
        let has_waiting = self.streams.awaits_room();
        let begun = self.streams.get(id);
        let begun = begun.filter(|stream| has_waiting || stream.since < now);
        let Some(client) = begun.map(|stream| stream.client) else {
            return;
        };
        for stream in self.streams.iter_mut() {
            if stream.client == client && stream.phase.awaits_turn() {
                stream.begin_period(now);
            }
        }
    }

    fn wait(&mut self, cx: &Context<'_>) -> Action {
        let has_due = !self.due.is_empty() && !self.are_requests_held;
        self.streams.await_room(has_due);
        let has_room = self.output.len() < self.config.limits.output_bytes_max as u64;
        if !has_room {
            cx.counters.http2(Http2Count::Unread);
        }
        Action::Wait {
            read: !self.eof && has_room,
            hang_up: self.eof,
        }
    }

    fn order_of(&mut self, id: StreamId, cx: &mut Context<'_>) -> Option<Action> {
        if self.begins(id) {
            self.renew_turns(id, cx.now);
            self.streams.have_room(cx.came);
        }
        let stream = self.streams.get_mut(id)?;
        stream.is_due = false;
        match stream.phase {
            Phase::Run => {
                stream.phase = Phase::Running;
                let mut exchange = stream.exchange.take()?;
                self.lend_output(&mut exchange, cx);
                Some(Action::Run(exchange))
            }
            Phase::Block => {
                let exchange = stream.exchange.take()?;
                exchange.hang_up.reset();
                if self.eof {
                    exchange.hang_up.half_close();
                }
                stream.hang_up = Some(exchange.hang_up.clone());
                stream.exchange_bytes = exchange.memory_bytes();
                stream.phase = Phase::Blocking;
                Some(Action::Block(exchange))
            }
            Phase::Start => self.start(id, cx),
            Phase::Task => self.order_of_task(id),
            Phase::Running
            | Phase::Collect { .. }
            | Phase::Blocking
            | Phase::Answering
            | Phase::Discarding
            | Phase::Reset => None,
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) -> Action {
        self.sending_bytes = self.output.memory_bytes();
        let transmit = self.output.take(cx);
        self.out_bytes = transmit.remaining();
        self.out_sent = 0;
        self.sending = true;
        self.begin_period(cx);
        // The owner counts the connection as idle from now on: no request may be in progress, and no frame that
        // has begun, but for DATA of a stream that has ended, whose rest nobody awaits.
        let is_quiet = self.streams.is_empty() && self.unread.is_empty() && self.block.is_none();
        Action::Send {
            transmit,
            then: match self.stage == Stage::Open && !self.eof && is_quiet {
                true => Then::Rest,
                false => Then::More,
            },
        }
    }

    /// Nothing is to be sent. `None`: there is something now.
    fn end(&mut self, cx: &mut Context<'_>) -> Option<Action> {
        if !self.is_finished() {
            return Some(self.wait(cx));
        }
        match self.stage {
            Stage::Open if self.eof => {
                self.close(CloseReason::Client);
                None
            }
            Stage::Draining if !self.eof && !self.nothing_pending => {
                Some(Action::ReceivePending { certain: true })
            }
            Stage::Draining => {
                self.reason.get_or_insert(CloseReason::Drained);
                self.go_away(ErrorCode::NoError, cx);
                None
            }
            Stage::Ending if self.eof => {
                self.close(CloseReason::Finished);
                None
            }
            Stage::Ending => {
                self.stage = Stage::Lingering;
                self.begin_period(cx);
                Some(Action::Finish)
            }
            Stage::Open | Stage::Lingering | Stage::Closed => Some(self.wait(cx)),
        }
    }

    /// Whether no stream is left but those that nobody waits for.
    pub(super) fn is_finished(&self) -> bool {
        self.streams
            .iter()
            .all(|stream| matches!(stream.phase, Phase::Reset | Phase::Discarding))
    }
}
