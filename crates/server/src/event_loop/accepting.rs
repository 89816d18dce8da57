//! How a loop takes connections in: accepting, making room, turning away.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;

use loadline_proto::{CloseReason, Handler};
use loadline_sys::Accepted;
use loadline_sys::socket::received_ago_ms;

use super::loop_group::New;
use super::{Acceptance, EventLoop, LONG_TURN_US, Slot, connection_at, connection_at_mut};
use crate::accept::acceptor::{ACCEPT_BATCH, NewConnection};
use crate::admission::{Admission, EVICTION_TRIES_MAX, Handoff, Verdict};
use crate::connection::{Connection, Origin};
use crate::memory::Footprint;
use crate::options::{Accept, SocketIo, copies_for};
use crate::shutdown::Stage;
use crate::transport::socket::Readiness;
use crate::transport::{Driver, LoopTransport};
use loadline_base::Token;

/// Connections accepted for each millisecond since events were taken: 8 take some 25 us of it.
const ACCEPTS_PER_MS: usize = 8;

impl<H: Handler, D: Driver> EventLoop<H, D> {
    /// Accepts a bounded batch, if a listener is ready.
    pub(super) fn accept(&mut self, is_accept_ready: bool) -> io::Result<()> {
        if let Some(listeners) = &mut self.listeners {
            listeners.resume_due(self.thread.now(), &mut self.driver)?;
            if is_accept_ready {
                self.accept_batch()?;
                if let Some(listeners) = &mut self.listeners {
                    listeners.watch_on(&mut self.driver);
                }
            }
        }
        Ok(())
    }

    /// More if the events of this turn were many or took long, even where it is cut into several turns:
    /// connections that came meanwhile wait for one batch, not for many.
    fn accept_batch_max(&self) -> usize {
        let turn = self.thread.turn.as_ref();
        let turn_us = turn.map_or(0, |turn| turn.lasts_us(self.thread.now_us()));
        let more = usize::try_from(turn_us / 1000).unwrap_or(0) * ACCEPTS_PER_MS;
        ACCEPT_BATCH.saturating_add(more)
    }

    pub(super) fn accept_batch(&mut self) -> io::Result<()> {
        for count in 0..self.accept_batch_max() {
            let Some(listeners) = &mut self.listeners else {
                return Ok(());
            };
            match listeners.next(self.thread.now(), &self.thread.stats, &mut self.driver)? {
                Some(NewConnection::Regular(accepted)) => self.assign(accepted),
                Some(NewConnection::LastDescriptor(accepted)) => {
                    self.want_room();
                    let new = New {
                        is_last_descriptor: true,
                        ..self.new_connection(&accepted)
                    };
                    let verdict = self.assign_as(accepted, new);
                    if let Verdict::EvictIdle | Verdict::EvictOf { .. } = verdict
                        && let Some(listeners) = &mut self.listeners
                    {
                        listeners.resume(&mut self.driver)?;
                    }
                }
                None => {
                    let pauses = listeners.resumes_at().is_some();
                    self.has_backlog = pauses;
                    return match count == 0 && pauses {
                        true => self.find_descriptor(),
                        false => Ok(()),
                    };
                }
            }
        }
        self.has_backlog = true;
        // What is left has its requests, perhaps: those have waited since then.
        if let Some(turn) = &mut self.thread.turn {
            turn.has_left_some();
            self.thread.note_came();
        }
        Ok(())
    }

    /// A listener is ready, and there is not even a spare descriptor: evicts the oldest idle connection.
    fn find_descriptor(&mut self) -> io::Result<()> {
        self.want_room();
        self.show_oldest_idle();
        match (self.group.oldest_idle(), &mut self.listeners) {
            (Some(index), Some(listeners)) if index == self.index => {
                listeners.resume(&mut self.driver)?;
                self.evict_oldest();
            }
            (Some(other), _) => self.group.ask_for_room(other), // the pause is time enough
            (None, _) => {}
        }
        Ok(())
    }

    /// Descriptors have run out: idle connections that threads keep come back, so that the oldest can go.
    fn want_room(&mut self) {
        self.is_room_short = true;
        self.want_connections();
    }

    /// Finds the loop for a new connection of our own: this one, unless with a shared listener another
    /// has noticeably fewer, or at the cap another has to make room.
    pub(super) fn assign(&mut self, accepted: Accepted) {
        let is_draining = self.stage != Stage::Up;
        let preferred = match self.site.options.accept {
            Accept::Shared if !is_draining => self.group.share(self.index),
            Accept::Shared | Accept::Handoff | Accept::ReusePort => self.index,
        };
        let new = New {
            preferred,
            is_draining,
            ..self.new_connection(&accepted)
        };
        let verdict = self.assign_as(accepted, new);
        self.is_room_short = is_draining || verdict != Verdict::Admit;
        self.want_connections();
    }

    fn new_connection(&self, accepted: &Accepted) -> New {
        let config = self.thread.config();
        New {
            preferred: self.index,
            client: config.client(accepted.listener, accepted.peer),
            is_memory_full: self.group.is_memory_full(),
            now: self.thread.now(),
            ..New::default()
        }
    }

    fn assign_as(&mut self, accepted: Accepted, new: New) -> Verdict {
        self.show_oldest_idle();
        let (index, verdict) = self.group.place(new);
        let handoff = Handoff {
            accepted,
            verdict,
            client: new.client,
            tries: 0,
            came_after_us: None,
            is_memory_full: new.is_memory_full,
        };
        self.hand_off(index, handoff);
        verdict
    }

    /// One that is dropped needs no other loop for that.
    fn hand_off(&mut self, index: usize, handoff: Handoff) {
        if index == self.index || handoff.verdict == Verdict::Drop {
            self.load().connections.fetch_add(1, Relaxed);
            self.take_in(handoff);
        } else {
            self.pass_on(index, handoff);
        }
    }

    /// Sends a new connection to another loop, whose turns say nothing of how long it has waited here.
    fn pass_on(&self, index: usize, mut handoff: Handoff) {
        let came_after_us = self.came_after_us();
        handoff.came_after_us.get_or_insert(came_after_us);
        self.group.send(index, handoff);
    }

    /// Requests of connections that are accepted now came after this.
    fn came_after_us(&self) -> u64 {
        match &self.thread.turn {
            Some(turn) if !self.has_backlog => turn.oldest_us(),
            _ => 0, // not known
        }
    }

    /// Takes in a new connection that is counted already.
    pub(super) fn take_in(&mut self, handoff: Handoff) {
        let Some((handoff, mut acceptance)) = self.make_room(handoff) else {
            return; // another loop does, and takes it
        };
        let refused_for = handoff.refused_for();
        let Handoff {
            accepted,
            client,
            came_after_us,
            ..
        } = handoff;
        let full = |capacity| self.served >= capacity;
        if acceptance == Acceptance::Served && self.site.options.capacity_per_loop.is_some_and(full)
        {
            acceptance = Acceptance::OverCapacity;
        }
        let record = self.thread.log_accepted(accepted.peer);
        let copies_files = copies_for(self.site.options.file_io, accepted.peer);
        let is_read_here = acceptance == Acceptance::Served
            && self.stage == Stage::Up
            && self.site.options.socket_io == SocketIo::Loop;
        let came_us = match is_read_here {
            true => self.came_us(accepted.socket.as_fd(), came_after_us),
            false => None,
        };
        let origin = Origin::from(&accepted);
        let transport = D::Transport::new(accepted.socket, copies_files);
        let connection = Connection::new(transport, origin, record, &mut self.thread);
        if acceptance != Acceptance::Refused {
            self.group.count_as(client, connection.client());
        }
        let token = self.insert(connection, acceptance, None);
        match acceptance {
            Acceptance::Served => {
                self.served += 1;
                if self.stage != Stage::Up {
                    self.begin_connection_drain(token);
                } else if self.dispatcher.has_free_threads() {
                    self.hand_over(token); // which waits for its first request
                } else if self.site.options.socket_io == SocketIo::Worker {
                    self.await_request(token);
                } else {
                    self.judge_by(came_us);
                    if self.thread.turn.is_none() {
                        // It may have come at any time of this turn.
                        let now_us = self.thread.now_us();
                        let came_us = u64::midpoint(self.began_us, now_us);
                        self.thread.received_since(came_us);
                    }
                    self.drive_here(token); // the first read needs no event
                    self.judge_by(None);
                    self.thread.note_came();
                }
            }
            Acceptance::OverCapacity => self.settle(token),
            Acceptance::Refused => self.refuse_connection(token, refused_for),
        }
    }

    /// When the request of a connection came that is new to this loop, if the loop is behind, or if it came through
    /// another thread long after `came_after_us`: it may have waited in the backlog or on its way, of which turns
    /// say nothing. `None`: at about this time, or the kernel does not say; or what has come is not read at once,
    /// but reported in a later turn.
    pub(super) fn came_us(
        &mut self,
        socket: BorrowedFd<'_>,
        came_after_us: Option<u64>,
    ) -> Option<u64> {
        if D::REPORTS_BEFORE_DRAIN {
            return None;
        }
        self.thread.tick_in_long_turn();
        let turn = self.thread.turn.as_ref()?;
        let now_us = self.thread.now_us();
        let is_long_ago = |since_us| now_us.saturating_sub(since_us) > LONG_TURN_US;
        let may_have_waited = self.has_backlog || came_after_us.is_some_and(is_long_ago);
        if !may_have_waited && turn.lasts_us(now_us) <= LONG_TURN_US {
            return None;
        }
        let ago_ms = received_ago_ms(socket)?;
        Some(now_us.saturating_sub(u64::from(ago_ms) * 1000))
    }

    /// What is driven now is judged by when it came.
    pub(super) fn judge_by(&mut self, came_us: Option<u64>) {
        if let Some(turn) = &mut self.thread.turn {
            turn.judge_by(came_us);
            self.thread.note_came();
        }
    }

    /// Gives a connection a slot. `name`: among those whose cost is known; `None`: it is new to the server.
    pub(super) fn insert(
        &mut self,
        connection: Connection<D::Transport>,
        acceptance: Acceptance,
        name: Option<u64>,
    ) -> Token {
        let token = self.slots.insert(Slot {
            connection: Some(connection),
            idle_since: self.thread.now(),
            missed: Readiness::default(),
            queued: false,
            knows_drain: false,
            acceptance,
            footprint: Footprint::default(),
        });
        self.enter_costs(token, name);
        if let Some(connection) = connection_at_mut(&mut self.slots, token) {
            connection.transport_mut().adopt(token, &mut self.driver);
        }
        self.thread.stats.connections.add(1);
        token
    }

    /// Closes another connection for a new one, if one has to go. `None`: another loop does.
    fn make_room(&mut self, mut handoff: Handoff) -> Option<(Handoff, Acceptance)> {
        let is_up = self.stage == Stage::Up;
        let acceptance = match handoff.verdict {
            Verdict::Refuse | Verdict::Drop => Acceptance::Refused,
            Verdict::EvictIdle if is_up && !self.evict_oldest() => {
                // The loop that sent it here saw an idle connection that is not idle any more.
                self.show_oldest_idle();
                handoff.tries += 1;
                let is_last_try = handoff.tries == EVICTION_TRIES_MAX;
                if let Some(other) = self.group.oldest_idle().filter(|_| !is_last_try) {
                    self.load().connections.fetch_sub(1, Relaxed);
                    self.pass_on(other, handoff);
                    return None;
                }
                self.group.leave(handoff.client);
                Acceptance::Refused
            }
            Verdict::EvictOf { client, only_idle }
                if is_up && !self.find_room_of(client, only_idle) =>
            {
                self.group.leave(handoff.client);
                self.thread
                    .stats
                    .refused_over_share
                    .add(u64::from(only_idle));
                Acceptance::Refused
            }
            _ => Acceptance::Served,
        };
        Some((handoff, acceptance))
    }

    /// A worker has it once there is something to read.
    fn await_request(&mut self, token: Token) {
        if let Some(connection) = connection_at_mut(&mut self.slots, token) {
            connection.transport_mut().read_by_event();
        }
        self.settle(token);
    }

    fn refuse_connection(&mut self, token: Token, reason: CloseReason) {
        let verdict = Admission::refusal(self.refused);
        self.refused += 1;
        if verdict == Verdict::Drop {
            return self.abort(token, reason);
        }
        if let Some(connection) = connection_at_mut(&mut self.slots, token) {
            connection.refuse(reason, &mut self.thread.cx());
        }
        self.drive_here(token);
    }

    /// Closes the connection that is idle the longest; `false` if none is, or if that is not certain
    /// before the next turn.
    pub(super) fn evict_oldest(&mut self) -> bool {
        let Some(token) = self.oldest_idle() else {
            return false;
        };
        let connection = connection_at(&self.slots, token);
        let is_idle = connection.is_some_and(|it| it.is_certainly_idle(&mut self.driver));
        if is_idle {
            self.abort(token, CloseReason::Evicted);
        }
        is_idle
    }

    pub(super) fn show_oldest_idle(&self) {
        let oldest = self.oldest_idle().and_then(|token| self.slots.get(token));
        self.load()
            .set_oldest_idle(oldest.map(|slot| slot.idle_since));
    }

    fn oldest_idle(&self) -> Option<Token> {
        self.slots.token_at(self.idle.first()? as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use loadline_proto::Fields;

    use super::*;
    use crate::event_loop::tests::{Hello, accepted_over_tcp, event_loop_at, has_rings};
    use crate::site::tests::clock;
    use crate::transport::ring::driver::RingDriver;
    use crate::transport::socket::epoll::Epoll;

    fn asks<D: Driver>() -> bool {
        let now_us = clock();
        now_us.store(1_000_000, Relaxed);
        let goal = Some(Duration::from_secs(1));
        let mut event_loop = event_loop_at::<_, D>(now_us, Hello(Fields::default()), goal);
        let (_client, accepted) = accepted_over_tcp();
        let came_us = event_loop.came_us(accepted.socket.as_fd(), Some(0));
        came_us.is_some()
    }

    /// A ring asked, too, though what it receives is judged in a later turn.
    #[test]
    fn a_loop_asks_when_a_request_came_if_it_reads_it_at_once() {
        assert!(asks::<Epoll>());
        if has_rings() {
            assert!(!asks::<RingDriver>());
        }
    }
}
