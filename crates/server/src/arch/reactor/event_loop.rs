//! One loop: many connections on one thread. See the order of a turn in `reactor.rs`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loadline_base::{IndexList, Millis, Slab, TimerWheel, Token};
use loadline_proto::{CloseReason, Handler};
use loadline_sys::{Event, Events, Interest, Poller};

use super::fleet::Fleet;
use crate::kit::Kit;
use crate::listener::Listener;
use crate::options::SocketIo;
use crate::parts::balance::Load;
use crate::parts::connection::{BLOCKS_MAX, Connection, Noted, Pause};
use crate::parts::counters::Role;
use crate::parts::dispatch::{After, Desk, Served, Work};
use crate::parts::door::Door;
use crate::parts::shutdown::Stage;
use crate::parts::workers::{Message, Workers};
use crate::site::Site;

/// What a slot holds.
pub(super) struct Slot {
    /// `None` while a worker has it.
    pub(super) connection: Option<Connection>,
    /// Since when it is idle; only meaningful while it is in the list of idle ones.
    pub(super) idle_since: Millis,
    /// What events said while a worker had it.
    pub(super) missed: Noted,
    pub(super) registered: bool,
    /// In the queue of those who used up their share.
    pub(super) queued: bool,
    /// The session knows that the server is going down.
    pub(super) told: bool,
    pub(super) standing: Standing,
}

/// How a connection counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
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
    pub(super) index: usize,
    pub(super) site: Arc<Site<H>>,
    pub(super) kit: Kit<H>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) desk: Desk,
    pub(super) poller: Poller,
    pub(super) slots: Slab<Slot>,
    pub(super) timers: TimerWheel,
    /// Slots of idle connections, the longest idle first.
    pub(super) idle: IndexList,
    /// Those who used up their share, and the vector that they are taken from.
    pub(super) again: Vec<Token>,
    pub(super) round: Vec<Token>,
    pub(super) mail: Vec<Message>,
    /// Boxes for connections that go to a worker.
    #[allow(clippy::vec_box, reason = "the boxes are what is used again")]
    pub(super) boxes: Vec<Box<Served>>,
    pub(super) door: Option<Door>,
    /// Connections that count as served.
    pub(super) served: usize,
    pub(super) refused: usize,
    pub(super) stage: Stage,
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
            Some(Door::open(
                listeners,
                interest,
                &poller,
                LISTENERS,
                &site.descriptor_log_after,
            )?)
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
            if self.turn(&mut events)? {
                return Ok(());
            }
        }
    }

    /// One turn; `true` if it was the last.
    fn turn(&mut self, events: &mut Events) -> io::Result<bool> {
        self.wait(events)?;
        let began_us = self.begin_turn();
        self.follow_shutdown()?;
        let knocking = self.sockets(events);
        self.letters();
        self.accept(knocking)?;
        self.expire();
        self.visit_again();
        let is_last = self.is_finished();
        self.end_turn(began_us);
        Ok(is_last)
    }

    /// Until something is ready, the earliest deadline comes, or mail does.
    pub(super) fn wait(&self, events: &mut Events) -> io::Result<()> {
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
    pub(super) fn is_accepting(&self) -> bool {
        self.door
            .as_ref()
            .is_some_and(|door| door.reopens_at().is_none())
    }

    /// Takes the time, once.
    pub(super) fn begin_turn(&mut self) -> u64 {
        self.kit.tick();
        let began_us = self.kit.now_us();
        self.load().turn_begins(began_us);
        began_us
    }

    pub(super) fn end_turn(&mut self, began_us: u64) {
        self.kit.offer_log();
        if self.fleet.members().len() > 1 {
            self.show_oldest_idle();
        }
        let now_us = self.kit.clock().now_us();
        self.load().turn_ends(began_us, now_us);
        self.kit.row.busy_us.add(now_us.saturating_sub(began_us));
    }

    pub(super) fn load(&self) -> &Load {
        &self.fleet.members()[self.index].load
    }

    /// Connections with events; says whether there were any at the listeners.
    pub(super) fn sockets(&mut self, events: &Events) -> bool {
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
    pub(super) fn on_event(&mut self, token: Token, event: Event) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        let Some(connection) = &mut slot.connection else {
            slot.missed.add(event);
            return;
        };
        connection.note(event.into());
        if slot.standing == Standing::OverCapacity {
            // It has nothing to do before its first read: an event for writing must not begin one.
            if event.is_readable() {
                connection.read_in_vain(self.kit.lend().scratch);
                self.abort(token, CloseReason::OverCapacity);
            }
        } else if self.stage != Stage::Up && !slot.told {
            self.tell_going_down(token);
        } else if connection.is_ready() {
            self.attend(token);
        }
    }

    /// Visits a connection, here or at a worker.
    #[inline]
    pub(super) fn attend(&mut self, token: Token) {
        if self.site.options.socket_io == SocketIo::Worker {
            self.hand_over(token);
        } else {
            self.serve(token);
        }
    }

    /// Visits a connection here, until it waits, has had its share, or is closed.
    #[inline]
    pub(super) fn serve(&mut self, token: Token) {
        let mut blocked_here = 0;
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
                    blocked_here += 1;
                    if blocked_here == BLOCKS_MAX {
                        return self.queue(token);
                    }
                }
            }
        }
    }

    /// Tells a connection that its work is done.
    pub(super) fn give_back(&mut self, token: Token, work: Work) {
        let connection = self
            .slots
            .get_mut(token)
            .and_then(|slot| slot.connection.as_mut());
        match (work, connection) {
            (Work::Block(exchange), Some(connection)) => {
                connection.completed(exchange, &self.site, &mut self.kit);
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
    pub(super) fn settle(&mut self, token: Token) {
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
    pub(super) fn queue(&mut self, token: Token) {
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

    pub(super) fn abort(&mut self, token: Token, reason: CloseReason) {
        if let Some(slot) = self.slots.get_mut(token)
            && let Some(connection) = &mut slot.connection
        {
            connection.abort(reason);
            self.close(token);
        }
    }

    pub(super) fn close(&mut self, token: Token) {
        let Some(slot) = self.slots.remove(token) else {
            return;
        };
        // Before the close is counted: whoever sees all closed sees nobody connected.
        self.kit.row.connections.sub(1);
        if let Some(connection) = slot.connection {
            connection.end(&mut self.kit.turn());
        }
        self.timers.disarm(token);
        self.idle.remove(token.index);
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
    pub(super) fn hand_over(&mut self, token: Token) {
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
    pub(super) fn take_back(&mut self, token: Token, mut served: Box<Served>) {
        let connection = served.connection.take();
        self.boxes.push(served);
        if let (Some(slot), Some(mut connection)) = (self.slots.get_mut(token), connection) {
            connection.note(slot.missed);
            slot.connection = Some(connection);
        }
    }

    /// What came by mail: results of workers, newcomers.
    pub(super) fn letters(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.desk.mailbox.take(&mut mail);
        for message in mail.drain(..) {
            self.load().under_way.fetch_sub(1, Relaxed);
            match message {
                Message::Arrival(arrival) => self.welcome(arrival),
                Message::MakeRoom => {
                    self.evict_oldest();
                }
                Message::Done { token, work } => self.on_done(token, work),
            }
        }
        self.mail = mail;
    }

    pub(super) fn on_done(&mut self, token: Token, work: Work) {
        let after = match &work {
            Work::Serve(served) => Some(served.after),
            Work::Block(_) | Work::Warm(_) => None,
        };
        self.give_back(token, work);
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        // Only what is new: the worker has left it with nothing to do.
        let is_ready = slot.missed.is_anything();
        match after {
            Some(After::Close) => self.close(token),
            _ if self.stage != Stage::Up && !slot.told => self.tell_going_down(token),
            None => self.serve(token),
            Some(After::Again) => self.queue(token),
            Some(After::Wait) if is_ready => self.hand_over(token),
            Some(After::Wait) => self.settle(token),
        }
    }

    /// Connections whose deadline may have passed.
    pub(super) fn expire(&mut self) {
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
    pub(super) fn visit_again(&mut self) {
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
}

#[cfg(test)]
mod tests;
