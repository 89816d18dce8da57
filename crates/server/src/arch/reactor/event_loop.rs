//! One loop: many connections on one thread. See the order of a turn in `reactor.rs`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loadline_base::{IndexList, Millis, Slab, TimerWheel, Token};
use loadline_proto::{CloseReason, Handler};
use loadline_sys::{Accepted, Event, Events, Interest, Poller};

use super::fleet::Fleet;
use crate::kit::Kit;
use crate::listener::Listener;
use crate::options::SocketIo;
use crate::parts::acceptor::{ACCEPT_BATCH, Newcomer};
use crate::parts::balance::Load;
use crate::parts::connection::{Arrival, Connection, Noted, Pause, Welcome};
use crate::parts::counters::Role;
use crate::parts::dispatch::{After, Desk, Served, Work};
use crate::parts::door::Door;
use crate::parts::shutdown::Stage;
use crate::parts::workers::{Message, Workers};
use crate::site::Site;

/// Refused newcomers that are answered at the same time, beside those that the cap counts. Each
/// needs a descriptor until it has read its 503; whoever comes beyond is closed without one.
const REFUSALS_MAX: usize = 64;

/// How long a newcomer may take with its first bytes while the server goes down: its connection
/// was complete, so its request is as good as on its way.
const LAST_PATIENCE_MS: u64 = 250;

/// What a slot holds.
pub(super) struct Slot {
    /// `None` while a worker has it.
    connection: Option<Connection>,
    /// Since when it is idle; only meaningful while it is in the list of idle ones.
    idle_since: Millis,
    /// What events said while a worker had it.
    missed: Noted,
    registered: bool,
    /// In the queue of those who used up their share.
    queued: bool,
    /// The session knows that the server is going down.
    told: bool,
    standing: Standing,
}

/// How a connection counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Towards the cap of the server and the capacity of the loop.
    Served,
    /// Over the loop's capacity: closed at its first read.
    OverCapacity,
    /// Not at all: it is only being told that there is no room.
    Refused,
}

/// Bits of events that are no connection's: no slot has these indexes.
const MAILBOX: u64 = u64::MAX;
const SHUTDOWN: u64 = u64::MAX - 1;
const LISTENERS: u64 = u64::MAX - 2;

/// One loop.
pub(super) struct EventLoop<H: Handler> {
    index: usize,
    site: Arc<Site<H>>,
    kit: Kit<H>,
    fleet: Arc<Fleet>,
    desk: Desk,
    poller: Poller,
    slots: Slab<Slot>,
    timers: TimerWheel,
    /// Slots of idle connections, the longest idle first.
    idle: IndexList,
    /// Those who used up their share, and the vector that they are taken from.
    again: Vec<Token>,
    round: Vec<Token>,
    mail: Vec<Message>,
    /// Boxes for connections that go to a worker.
    #[allow(clippy::vec_box, reason = "the boxes are what is used again")]
    boxes: Vec<Box<Served>>,
    door: Option<Door>,
    /// Connections that count as served.
    served: usize,
    refused: usize,
    stage: Stage,
}

impl<H: Handler> EventLoop<H> {
    pub(super) fn new(
        index: usize,
        site: &Arc<Site<H>>,
        fleet: &Arc<Fleet>,
        workers: Option<Arc<Workers>>,
        listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        let kit = Kit::new(site, Role::Loop);
        let poller = Poller::new()?;
        let mailbox = Arc::clone(&fleet.members()[index].mailbox);
        poller.add(mailbox.waker_fd(), MAILBOX, Interest::Waker)?;
        poller.add(site.shutdown.drain_fd(), SHUTDOWN, Interest::Waker)?;
        poller.add(site.shutdown.stop_fd(), SHUTDOWN, Interest::Waker)?;
        let door = if listeners.is_empty() {
            None
        } else {
            let shared = site.options.accept == crate::Accept::Shared && site.options.loops > 1;
            let interest = if shared {
                Interest::SharedListener
            } else {
                Interest::Listener
            };
            Some(Door::open(listeners, interest, &poller, LISTENERS)?)
        };
        Ok(Self {
            index,
            desk: Desk {
                workers,
                mailbox,
                row: Arc::clone(&kit.row),
            },
            timers: TimerWheel::new(kit.now()),
            site: Arc::clone(site),
            fleet: Arc::clone(fleet),
            kit,
            poller,
            slots: Slab::new(),
            idle: IndexList::new(),
            again: Vec::new(),
            round: Vec::new(),
            mail: Vec::new(),
            boxes: Vec::new(),
            door,
            served: 0,
            refused: 0,
            stage: Stage::Up,
        })
    }

    /// Serves until everything is finished after a drain, or cut.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::new();
        loop {
            self.wait(&mut events)?;
            let began_us = self.begin_turn();
            self.follow_shutdown()?;
            let knocking = self.sockets(&events);
            self.letters();
            self.accept(knocking)?;
            self.expire();
            self.visit_again();
            if self.is_finished() {
                return Ok(());
            }
            self.end_turn(began_us);
        }
    }

    /// Until something is ready, the earliest deadline comes, or mail does.
    fn wait(&self, events: &mut Events) -> io::Result<()> {
        let now = self.kit.now();
        let mailbox = &self.desk.mailbox;
        let accepting_last = self.stage != Stage::Up && self.is_accepting();
        let busy = !self.again.is_empty() || accepting_last;
        let timeout_ms = if busy || !mailbox.fall_asleep() {
            Some(0)
        } else {
            let reopening = self.door.as_ref().and_then(Door::reopens_at);
            let cut = self.site.shutdown.cut_at();
            let moments = [reopening, cut].into_iter().flatten();
            let until = moments.map(|at| at.since(now));
            until.chain(self.timers.wait_ms(now)).min()
        };
        self.poller.wait(events, timeout_ms)?;
        mailbox.wake_up();
        Ok(())
    }

    /// Whether newcomers can be taken in now.
    fn is_accepting(&self) -> bool {
        self.door
            .as_ref()
            .is_some_and(|door| door.reopens_at().is_none())
    }

    /// Takes the time, once.
    fn begin_turn(&mut self) -> u64 {
        self.kit.tick();
        let began_us = self.kit.now_us();
        self.load().turn_begins(began_us);
        began_us
    }

    fn end_turn(&mut self, began_us: u64) {
        self.kit.offer_log();
        if self.fleet.members().len() > 1 {
            self.show_oldest_idle();
        }
        let now_us = self.kit.clock().now_us();
        self.load().turn_ends(began_us, now_us);
        self.kit.row.busy_us.add(now_us.saturating_sub(began_us));
    }

    fn load(&self) -> &Load {
        &self.fleet.members()[self.index].load
    }

    /// Connections with events; says whether there were any at the listeners.
    fn sockets(&mut self, events: &Events) -> bool {
        let mut knocking = false;
        let mut left = events.len();
        for event in events.iter() {
            self.load().ready.store(left, Relaxed);
            left -= 1;
            match event.bits {
                MAILBOX | SHUTDOWN => {}
                LISTENERS => knocking = true,
                bits => self.on_event(Token::from_bits(bits), event),
            }
            self.kit.offer_full_log();
        }
        self.load().ready.store(0, Relaxed);
        knocking
    }

    /// Events of a slot that was closed earlier in the batch miss: its generation has passed.
    #[inline]
    fn on_event(&mut self, token: Token, event: Event) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        let Some(connection) = &mut slot.connection else {
            slot.missed.add(event);
            return;
        };
        connection.note(event.into());
        if slot.standing == Standing::OverCapacity && event.is_readable() {
            connection.abort(CloseReason::OverCapacity);
            self.serve(token);
        } else if self.stage != Stage::Up && !slot.told {
            self.tell_going_down(token);
        } else if connection.is_ready() {
            self.attend(token);
        }
    }

    /// Visits a connection, here or at a worker.
    #[inline]
    fn attend(&mut self, token: Token) {
        if self.site.options.socket_io == SocketIo::Worker {
            self.hand_over(token);
        } else {
            self.serve(token);
        }
    }

    /// Visits a connection here, until it waits, has had its share, or is closed.
    #[inline]
    fn serve(&mut self, token: Token) {
        loop {
            let Some(slot) = self.slots.get_mut(token) else {
                return;
            };
            let Some(connection) = &mut slot.connection else {
                return;
            };
            let work = match connection.visit(&self.site, &mut self.kit) {
                Pause::Wait => return self.settle(token),
                Pause::Again => return self.queue(token),
                Pause::Close => return self.close(token),
                Pause::Block(exchange) => Work::Block(exchange),
                Pause::Warm(range) => Work::Warm(range),
            };
            let scratch = self.kit.lend().scratch;
            match self.desk.dispatch(work, token, &self.site, scratch) {
                None => {
                    self.load().under_way.fetch_add(1, Relaxed);
                }
                Some(work) => {
                    self.kit.tick(); // it may have taken its time
                    self.give_back(token, work);
                }
            }
        }
    }

    /// Tells a connection that its work is done.
    fn give_back(&mut self, token: Token, work: Work) {
        let connection = self
            .slots
            .get_mut(token)
            .and_then(|slot| slot.connection.as_mut());
        match (work, connection) {
            (Work::Block(exchange), Some(connection)) => {
                connection.completed(exchange, &mut self.kit.turn());
            }
            // The client has gone meanwhile.
            (Work::Block(exchange), None) => self.kit.turn().pool.give_exchange(exchange),
            (Work::Warm(_), Some(connection)) => connection.warmed(),
            (Work::Warm(_), None) => {}
            (Work::Serve(served), _) => self.take_back(token, served),
        }
    }

    /// Nothing to do for it before an event: watches the socket and the time.
    #[inline]
    fn settle(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        let Some(connection) = &slot.connection else {
            return;
        };
        if !slot.registered {
            // The first read came before this. What has come since is an event at once.
            slot.registered = true;
            let bits = token.to_bits();
            if let Err(error) = self
                .poller
                .add(connection.socket(), bits, Interest::Connection)
            {
                tracing::warn!("watching a connection: {error}");
                return self.abort(token, CloseReason::Failed);
            }
        }
        if let Some(deadline) = connection.deadline() {
            self.timers.arm(token, deadline);
        }
        if connection.is_idle() && slot.standing == Standing::Served {
            slot.idle_since = self.kit.now();
            self.idle.push_last(token.index);
        } else {
            self.idle.remove(token.index);
        }
    }

    /// It has used up its share: others first. No event will come for it.
    fn queue(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        if !slot.queued {
            slot.queued = true;
            self.again.push(token);
        }
        self.idle.remove(token.index);
        if let Some(deadline) = slot.connection.as_ref().and_then(Connection::deadline) {
            self.timers.arm(token, deadline);
        }
    }

    fn abort(&mut self, token: Token, reason: CloseReason) {
        if let Some(slot) = self.slots.get_mut(token)
            && let Some(connection) = &mut slot.connection
        {
            connection.abort(reason);
            self.close(token);
        }
    }

    fn close(&mut self, token: Token) {
        let Some(slot) = self.slots.remove(token) else {
            return;
        };
        if let Some(connection) = slot.connection {
            connection.end(&mut self.kit.turn());
        }
        self.timers.disarm(token);
        self.idle.remove(token.index);
        self.kit.row.connections.sub(1);
        self.load().connections.fetch_sub(1, Relaxed);
        match slot.standing {
            Standing::Served => self.served -= 1,
            Standing::OverCapacity => {}
            Standing::Refused => {
                self.refused -= 1;
                return; // was not counted
            }
        }
        self.fleet.leave();
    }

    /// Gives a connection that is ready to a worker (`--socket-io worker`).
    fn hand_over(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        let Some(connection) = slot.connection.take() else {
            return;
        };
        slot.missed = Noted::default();
        self.idle.remove(token.index);
        let mut served = self.boxes.pop().unwrap_or_default();
        served.connection = Some(connection);
        let scratch = self.kit.lend().scratch;
        let work = Work::Serve(served);
        match self.desk.dispatch(work, token, &self.site, scratch) {
            None => {
                self.load().under_way.fetch_add(1, Relaxed);
            }
            Some(work) => {
                // The queue is full: 503, unless an answer is on its way already.
                self.give_back(token, work);
                if let Some(connection) = self
                    .slots
                    .get_mut(token)
                    .and_then(|slot| slot.connection.as_mut())
                    && connection.is_idle()
                {
                    connection.refuse(&mut self.kit.turn());
                }
                self.serve(token);
            }
        }
    }

    /// A connection is here again.
    fn take_back(&mut self, token: Token, mut served: Box<Served>) {
        let connection = served.connection.take();
        self.boxes.push(served);
        if let (Some(slot), Some(mut connection)) = (self.slots.get_mut(token), connection) {
            connection.note(slot.missed);
            slot.connection = Some(connection);
        }
    }

    /// What came by mail: results of workers, newcomers.
    fn letters(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.desk.mailbox.take(&mut mail);
        for message in mail.drain(..) {
            self.load().under_way.fetch_sub(1, Relaxed);
            match message {
                Message::Arrival(arrival) => self.welcome(arrival),
                Message::Done { token, work } => self.on_done(token, work),
            }
        }
        self.mail = mail;
    }

    fn on_done(&mut self, token: Token, work: Work) {
        let after = match &work {
            Work::Serve(served) => Some(served.after),
            Work::Block(_) | Work::Warm(_) => None,
        };
        self.give_back(token, work);
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        let is_ready = slot.connection.as_ref().is_some_and(Connection::is_ready);
        match after {
            Some(After::Close) => self.close(token),
            _ if self.stage != Stage::Up && !slot.told => self.tell_going_down(token),
            None => self.serve(token),
            Some(After::Again) => self.queue(token),
            Some(After::Wait) if is_ready => self.hand_over(token),
            Some(After::Wait) => self.settle(token),
        }
    }

    /// Accepts a bounded batch, if somebody knocks.
    fn accept(&mut self, knocking: bool) -> io::Result<()> {
        if let Some(door) = &mut self.door {
            door.reopen(self.kit.now(), &self.poller)?;
            if knocking {
                self.accept_batch()?;
            }
        }
        Ok(())
    }

    fn accept_batch(&mut self) -> io::Result<()> {
        for _ in 0..ACCEPT_BATCH {
            let Some(door) = &mut self.door else {
                return Ok(());
            };
            match door.next(self.kit.now(), &self.kit.row, &self.poller)? {
                Some(Newcomer::Serve(accepted)) => self.seat(accepted),
                Some(Newcomer::Refuse(accepted)) => {
                    self.load().connections.fetch_add(1, Relaxed);
                    let welcome = Welcome::Refuse;
                    self.welcome(Arrival { accepted, welcome });
                }
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Finds the loop for a newcomer of our own: this one, unless at the cap another has to make
    /// room.
    fn seat(&mut self, accepted: Accepted) {
        self.show_oldest_idle();
        let (index, welcome) = if self.stage == Stage::Up {
            self.fleet.place(self.index)
        } else {
            self.fleet.place_anyway();
            (self.index, Welcome::Serve)
        };
        let arrival = Arrival { accepted, welcome };
        if index == self.index {
            self.load().connections.fetch_add(1, Relaxed);
            self.welcome(arrival);
        } else {
            self.fleet.send(index, arrival);
        }
    }

    /// Takes in a newcomer that is counted already.
    fn welcome(&mut self, arrival: Arrival) {
        let Arrival { accepted, welcome } = arrival;
        let mut standing = Standing::Served;
        if welcome == Welcome::MakeRoom && self.stage == Stage::Up && !self.evict_oldest() {
            // Whoever sent it here saw an idle connection that is not idle any more.
            self.show_oldest_idle();
            self.load().connections.fetch_sub(1, Relaxed);
            if let Some(other) = self.fleet.oldest_idle() {
                return self.fleet.send(other, Arrival { accepted, welcome });
            }
            self.load().connections.fetch_add(1, Relaxed);
            self.fleet.leave();
            standing = Standing::Refused;
        }
        if welcome == Welcome::Refuse {
            standing = Standing::Refused;
        }
        let full = |capacity| self.served >= capacity;
        if standing == Standing::Served && self.site.options.capacity_per_loop.is_some_and(full) {
            standing = Standing::OverCapacity;
        }
        let connection = Connection::new(accepted, &self.site, &mut self.kit.turn());
        let token = self.slots.insert(Slot {
            connection: Some(connection),
            idle_since: self.kit.now(),
            missed: Noted::default(),
            registered: false,
            queued: false,
            told: false,
            standing,
        });
        self.kit.row.connections.add(1);
        match standing {
            Standing::Served => {
                self.served += 1;
                if self.stage != Stage::Up {
                    self.tell_going_down(token);
                } else if self.site.options.socket_io == SocketIo::Worker {
                    self.settle(token); // a worker has it once it is ready
                } else {
                    self.serve(token); // the first read needs no event
                }
            }
            Standing::OverCapacity => self.settle(token),
            Standing::Refused => self.turn_away(token),
        }
    }

    fn turn_away(&mut self, token: Token) {
        self.refused += 1;
        if self.refused > REFUSALS_MAX {
            return self.abort(token, CloseReason::Refused);
        }
        if let Some(slot) = self.slots.get_mut(token)
            && let Some(connection) = &mut slot.connection
        {
            connection.refuse(&mut self.kit.turn());
        }
        self.serve(token);
    }

    /// Closes the connection that is idle the longest; `false` if none is.
    fn evict_oldest(&mut self) -> bool {
        let oldest = self
            .idle
            .first()
            .and_then(|index| self.slots.token_at(index as usize));
        if let Some(token) = oldest {
            self.abort(token, CloseReason::Evicted);
        }
        oldest.is_some()
    }

    fn show_oldest_idle(&self) {
        let oldest = self
            .idle
            .first()
            .and_then(|index| self.slots.token_at(index as usize));
        let since = oldest
            .and_then(|token| self.slots.get(token))
            .map(|slot| slot.idle_since);
        self.load().set_oldest_idle(since);
    }

    /// Connections whose deadline may have passed.
    fn expire(&mut self) {
        let now = self.kit.now();
        while let Some(token) = self.timers.expired(now) {
            let Some(slot) = self.slots.get_mut(token) else {
                continue;
            };
            let Some(connection) = &mut slot.connection else {
                continue; // armed again when it is back
            };
            if self.stage != Stage::Up && !slot.told {
                self.tell_going_down(token);
                continue;
            }
            match connection.deadline() {
                None => {}
                Some(deadline) if deadline > now => self.timers.arm(token, deadline),
                Some(_) => {
                    connection.expired(&mut self.kit.turn());
                    self.serve(token);
                }
            }
        }
    }

    /// Those who used up their share in an earlier round.
    fn visit_again(&mut self) {
        if self.again.is_empty() {
            return;
        }
        let mut round = std::mem::take(&mut self.round);
        std::mem::swap(&mut round, &mut self.again);
        for token in round.drain(..) {
            if let Some(slot) = self.slots.get_mut(token) {
                slot.queued = false;
                self.attend(token);
            }
        }
        self.round = round;
    }

    /// Follows the stages of a shutdown. First of all, so that requests that come after it are
    /// answered with `Connection: close`.
    fn follow_shutdown(&mut self) -> io::Result<()> {
        if self.stage == Stage::Up {
            if self.site.shutdown.is_draining() {
                self.begin_to_drain()?;
            }
            return Ok(());
        }
        if self.door.is_some() {
            self.accept_last()?;
        }
        Ok(())
    }

    /// Whether nothing is left to do here, be it that time is up.
    fn is_finished(&mut self) -> bool {
        if self.stage == Stage::Up {
            return false;
        }
        if self.site.shutdown.is_cut(self.site.clock.now()) {
            self.cut();
            return true;
        }
        self.slots.is_empty() && !self.fleet.is_accepting() && !self.desk.mailbox.has_mail()
    }

    /// Takes in whoever has connected by now, closes the door, and tells every connection.
    fn begin_to_drain(&mut self) -> io::Result<()> {
        self.stage = Stage::Draining;
        if let Some(door) = &mut self.door {
            door.begin_drain();
            self.accept_last()?;
        }
        for index in 0..self.slots.slot_count() {
            if let Some(token) = self.slots.token_at(index) {
                self.tell_going_down(token);
            }
        }
        Ok(())
    }

    /// Takes in who is left in the backlog; then closes the door.
    fn accept_last(&mut self) -> io::Result<()> {
        self.accept_batch()?;
        if self.door.as_ref().is_some_and(Door::is_drained) {
            if let Some(door) = self.door.take() {
                door.close(&self.poller);
            }
            self.fleet.stops_accepting();
        }
        Ok(())
    }

    /// Tells a connection that the server is going down, once; one that a worker has, when it is
    /// back; a newcomer, when its first bytes came or its patience is over.
    fn tell_going_down(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        let Some(connection) = &mut slot.connection else {
            return;
        };
        if slot.told {
            return;
        }
        let patience_ends = Millis(slot.idle_since.0 + LAST_PATIENCE_MS);
        let patient = slot.standing == Standing::Served && self.kit.now() < patience_ends;
        if connection.drain(&mut self.kit, patient) {
            slot.told = true;
            self.attend(token);
        } else {
            self.settle(token);
            self.timers.arm(token, patience_ends);
        }
    }

    /// What is left is closed now.
    fn cut(&mut self) {
        self.site.registry.cut.add(self.slots.len() as u64);
        for index in 0..self.slots.slot_count() {
            if let Some(token) = self.slots.token_at(index) {
                self.abort(token, CloseReason::Drained);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_takes_at_most_192_bytes() {
        let bytes = Slab::<Slot>::SLOT_BYTES + TimerWheel::NODE_BYTES + IndexList::NODE_BYTES;
        println!("{bytes} bytes for an idle connection");
        assert!(bytes <= 192, "{bytes}");
    }
}
