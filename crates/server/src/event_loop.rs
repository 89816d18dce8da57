//! A loop that serves many connections on one thread, and never waits for one of them.
//!
//! How it waits is its driver's business: readiness in `transport/socket/epoll.rs`, completions in
//! `transport/ring/driver.rs`. One turn, in this order:
//!
//! 1. wait, until the earliest deadline at most, and not at all while a connection is queued
//! 2. take the time, once
//! 3. sockets: connections with events
//! 4. mailbox: results of workers, new connections from elsewhere
//! 5. accept, a bounded batch
//! 6. expired deadlines
//! 7. connections that used up their share in an earlier round, or whose events were reported late in this one
//!
//! A minute after a request the handler gives back what nobody has asked for since.

mod accepting;
mod costs;
mod drain;
mod driving;
pub(crate) mod loop_group;
mod main_loop;
mod memory;
mod messages;
mod moving;
mod shares;
mod task_events;
mod threads;

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loadline_base::{IndexList, Millis, Slab, TimerWheel, Token};
use loadline_proto::{CloseReason, Handler};
use loadline_sys::{Accepted, Interest};

use crate::accept::balance::Load;
use crate::accept::listener::Listener;
use crate::accept::listener_set::ListenerSet;
use crate::connection::Connection;
use crate::fairness::ClientKey;
use crate::memory::{Footprint, Plan};
use crate::overload::{TurnBegin, TurnControl};
use crate::shutdown::Stage;
use crate::site::Site;
use crate::telemetry::counters::Role;
use crate::thread::context::{Borrowed, ThreadContext};
use crate::transport::socket::Readiness;
use crate::transport::{Driver, DriverEvent, LoopTransport, Reported};
use crate::worker::dispatcher::{Dispatcher, LoopTasks};
use crate::worker::job::Message;
use crate::worker::job::Served;
use crate::worker::pool::Workers;
use costs::Costs;
use loop_group::LoopGroup;
use memory::JobsOut;
use moving::Leaving;
use shares::Victims;
pub(crate) use threads::run;

/// A turn of this length, in microseconds, may make what came meanwhile late: the loop then looks whether
/// anything did before it waits, as it does where the turn has left some behind.
const LONG_TURN_US: u64 = 5000;

/// How long a turn reports events, in microseconds, if those that are left stay for the next one. What
/// a ring is to send leaves when the turn has ended.
const TURN_MAX_US: u64 = 5000;

/// Events between two looks at the clock in a long turn: often enough for a goal of milliseconds, and
/// less than 1 % of what small requests cost.
const EVENTS_PER_TICK: u32 = 16;

/// How long after a request, in milliseconds, the handler is asked to give back what is not in use, and how
/// long after that again. A minute: a loop without requests then wakes up rarely, and twice at most if
/// nothing is left.
const RELEASE_AFTER_MS: u64 = 60_000;

/// What a slot holds.
struct Slot<T> {
    /// `None` while a worker has it.
    connection: Option<Connection<T>>,
    /// Since when it is idle; only meaningful while it is.
    idle_since: Millis,
    /// What events said while a worker had it.
    missed: Readiness,
    /// In the queue of those who wait for their turn.
    queued: bool,
    /// The session knows that the server is draining.
    knows_drain: bool,
    acceptance: Acceptance,
    footprint: Footprint,
}

/// How a connection counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acceptance {
    /// Towards the cap of the server and the capacity of the loop.
    Served,
    /// Over the loop's capacity: closed at its first read.
    OverCapacity,
    /// Not at all: it is being refused.
    Refused,
}

/// What is left to do after an event.
enum Next {
    Connection(Token, Reported),
    Accepted(Accepted),
    AcceptReady,
    Nothing,
}

/// One loop.
pub(crate) struct EventLoop<H: Handler, D: Driver> {
    index: usize,
    site: Arc<Site<H>>,
    thread: ThreadContext<H>,
    group: Arc<LoopGroup>,
    dispatcher: Dispatcher,
    driver: D,
    slots: Slab<Slot<D::Transport>>,
    timers: TimerWheel,
    /// Slots of idle connections, the longest idle first.
    idle: IndexList,
    /// Those who wait for their turn without an event, and the vector that they are taken from.
    again: Vec<Token>,
    round: Vec<Token>,
    mail: Vec<Message>,
    /// Boxes for connections that go to a worker.
    #[allow(clippy::vec_box, reason = "the boxes are what is used again")]
    boxes: Vec<Box<Served>>,
    listeners: Option<ListenerSet>,
    victims: Victims,
    /// The clients with whose connections those of trusted proxies are counted, by their slots: only those
    /// with a request in progress, so never more than there are connections.
    proxied: HashMap<u32, ClientKey>,
    /// Connections that are to go to other loops.
    leaving: Vec<Leaving>,
    /// What its connections cost (`--balance adaptive`).
    costs: Option<Box<Costs>>,
    /// Connections that count as served.
    served: usize,
    refused: usize,
    /// The last new connection had to wait until another one made room, or was refused.
    is_room_short: bool,
    /// More connections were there to be accepted than the last batch took, or may have been: accepting pauses.
    has_backlog: bool,
    stage: Stage,
    /// When this turn began, when its events were taken from the kernel (for an earlier turn, if that
    /// has left some), and when the last turn ended, in microseconds.
    began_us: u64,
    taken_us: u64,
    ended_us: u64,
    /// Nothing was left by the last turn and nothing came during it, or it was short and the loop has waited since.
    has_waited: bool,
    /// The last turn has left events for this one.
    is_cut_short: bool,
    /// A drain has begun; idle connections learn of it after all pending events were reported.
    is_reporting: bool,
    /// Who gives up what while memory is short.
    plan: Plan,
    /// Of closed connections with jobs out: at most as many as there are jobs.
    jobs_out: HashMap<Token, JobsOut>,
    /// When the handler gives back what is not in use; `None`: nothing has come since it has.
    releases_at: Option<Millis>,
}

impl<H: Handler, D: Driver> EventLoop<H, D> {
    pub(crate) fn new(
        index: usize,
        site: &Arc<Site<H>>,
        group: &Arc<LoopGroup>,
        workers: Option<Arc<Workers>>,
        listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        let mut thread = ThreadContext::new(site, Role::Loop);
        let turn = site.options.latency_goal.map(TurnControl::new);
        thread.turn = turn.map(|turn| turn.counting_handshakes(workers.is_none()));
        let mut driver = D::new()?;
        let mailbox = Arc::clone(&group.loops()[index].mailbox);
        driver.watch_waker(mailbox.waker().as_fd())?;
        driver.watch_waker(site.shutdown.drain_fd())?;
        driver.watch_waker(site.shutdown.stop_fd())?;
        let listeners = if listeners.is_empty() {
            None
        } else {
            let shared = site.options.accept == crate::Accept::Shared && site.options.loops > 1;
            let interest = match shared {
                true => Interest::SharedListener,
                false => Interest::Listener,
            };
            let log_after = &site.descriptor_log_after;
            let set = ListenerSet::open(listeners, interest, &mut driver, log_after)?;
            Some(set)
        };
        Ok(Self {
            index,
            dispatcher: Dispatcher {
                tasks: Arc::new(LoopTasks {
                    mailbox: Arc::clone(&mailbox),
                    workers: workers.clone(),
                }),
                workers,
                mailbox,
                stats: Arc::clone(&thread.stats),
            },
            timers: TimerWheel::new(thread.now()),
            site: Arc::clone(site),
            group: Arc::clone(group),
            thread,
            driver,
            slots: Slab::new(),
            idle: IndexList::new(),
            again: Vec::new(),
            round: Vec::new(),
            mail: Vec::new(),
            boxes: Vec::new(),
            listeners,
            victims: Victims::default(),
            proxied: HashMap::new(),
            leaving: Vec::new(),
            costs: group.adaptive().map(|_| Box::default()),
            served: 0,
            refused: 0,
            is_room_short: false,
            has_backlog: false,
            stage: Stage::Up,
            began_us: 0,
            taken_us: 0,
            ended_us: 0,
            has_waited: true,
            is_cut_short: false,
            is_reporting: false,
            plan: Plan::default(),
            jobs_out: HashMap::new(),
            releases_at: None,
        })
    }

    /// Serves until everything is finished after a drain, or cut.
    fn run(mut self) -> io::Result<()> {
        self.thread.stats.runs_here();
        let ended = loop {
            match self.turn() {
                Ok(false) => {}
                ended => break ended.map(drop),
            }
        };
        self.thread.stats.ends_here();
        ended
    }

    /// One turn; `true` if it was the last.
    fn turn(&mut self) -> io::Result<bool> {
        self.wait()?;
        self.work()
    }

    /// What a turn does after waiting; `true` if it was the last.
    fn work(&mut self) -> io::Result<bool> {
        let began_us = self.begin_turn();
        self.follow_shutdown()?;
        let has_events = self.driver.left() > 0;
        let is_accept_ready = self.sockets();
        self.drain_mailbox();
        self.accept(is_accept_ready)?;
        self.expire();
        self.drive_queued();
        self.release_unused(has_events);
        let is_last = self.is_finished();
        self.end_turn(began_us);
        Ok(is_last)
    }

    /// Waits until something is ready, the earliest deadline comes, or mail does.
    fn wait(&mut self) -> io::Result<()> {
        let timeout_ms = self.begin_wait();
        let was_long = self.ended_us > self.taken_us + LONG_TURN_US;
        let looks_first = was_long || self.driver.is_full();
        if looks_first {
            self.driver.wait(Some(0))?;
        }
        let finds_none = !looks_first || self.driver.left() == 0;
        let is_first = self.ended_us == 0; // nothing is older than the loop
        // Of a backlog the kernel says how old it is: it would make all older for as long as it lasts.
        let is_look = timeout_ms == Some(0) && !self.has_backlog;
        self.has_waited = finds_none && (looks_first || is_first || !is_look);
        if finds_none {
            self.driver.wait(timeout_ms)?;
        }
        self.dispatcher.mailbox.wake_up();
        Ok(())
    }

    /// How long to wait at most; `None`: for an event. From here on the mailbox wakes the loop.
    pub(crate) fn begin_wait(&self) -> Option<u64> {
        let now = self.thread.now();
        let mailbox = &self.dispatcher.mailbox;
        let accepting_last = self.stage != Stage::Up && self.is_accepting();
        let busy = !self.again.is_empty() || accepting_last;
        if busy || !mailbox.fall_asleep() {
            return Some(0);
        }
        let reopening = self.listeners.as_ref().and_then(ListenerSet::resumes_at);
        let cut = self.site.shutdown.cut_at();
        let workers = self.dispatcher.workers.as_ref();
        let deadline = workers.and_then(|workers| workers.wake_expired(now));
        let look = self.plan.wakes_at();
        let moments = [reopening, cut, deadline, self.releases_at, look];
        let moments = moments.into_iter().flatten();
        let until = moments.map(|at| at.since(now));
        until.chain(self.timers.wait_ms(now)).min()
    }

    /// Whether new connections can be taken in now.
    fn is_accepting(&self) -> bool {
        self.listeners
            .as_ref()
            .is_some_and(|listeners| listeners.resumes_at().is_none())
    }

    /// Takes the time, once.
    fn begin_turn(&mut self) -> u64 {
        self.thread.tick();
        let began_us = self.thread.now_us();
        self.began_us = began_us;
        if !self.is_cut_short {
            let before_us = std::mem::replace(&mut self.taken_us, began_us);
            if self.thread.turn.is_none() {
                // As `TurnControl` says: on average one came in the middle of the time.
                let came_us = match self.has_waited {
                    true => began_us,
                    false => u64::midpoint(before_us, began_us),
                };
                self.thread.events_came(came_us);
            }
        }
        self.load().turn_begins(began_us);
        self.begin_costs(began_us);
        if let Some(turn) = &mut self.thread.turn {
            let begin = TurnBegin {
                now_us: began_us,
                ended_us: self.ended_us,
                has_waited: self.has_waited,
                is_full: self.driver.is_full(),
                events: self.driver.inputs(),
                connections: self.slots.len(),
                has_mark: !self.is_cut_short && self.driver.take_mark(),
                is_rest: self.is_cut_short,
            };
            turn.begin(begin);
            if turn.marks() {
                self.driver.mark();
            }
        }
        self.thread.note_came();
        began_us
    }

    fn end_turn(&mut self, began_us: u64) {
        if self.group.loops().len() > 1 {
            self.show_oldest_idle();
        }
        self.relieve();
        self.count_waits();
        let now_us = self.thread.end_turn();
        self.balance(began_us, now_us);
        self.send_leaving();
        self.ended_us = now_us;
        self.load().turn_ends(began_us, now_us);
        self.thread
            .stats
            .busy_us
            .add(now_us.saturating_sub(began_us));
    }

    /// Without workers requests wait for the loop, and for nothing else.
    fn count_waits(&mut self) {
        if self.dispatcher.workers.is_none()
            && let Some(turn) = &mut self.thread.turn
        {
            let (begun, waited_us) = turn.take_waits();
            self.thread.stats.queue_taken.add(begun);
            self.thread.stats.queue_wait_us.add(waited_us);
        }
    }

    fn load(&self) -> &Load {
        &self.group.loops()[self.index].load
    }

    /// Connections with events; says whether a listener is ready.
    fn sockets(&mut self) -> bool {
        let (mut is_accept_ready, mut is_late) = (false, false);
        for count in 1_u32.. {
            if count.is_multiple_of(EVENTS_PER_TICK) {
                if D::KEEPS_EVENTS {
                    self.thread.tick(); // it bounds the turn, with or without a goal
                } else {
                    self.thread.tick_in_long_turn();
                }
            }
            if D::KEEPS_EVENTS && self.thread.now_us() > self.began_us + TURN_MAX_US {
                if !self.computes_for_long() {
                    self.is_cut_short = true;
                    return is_accept_ready;
                }
                is_late = true; // what was sent is seen, and what has come is read, before more is computed
            }
            let left = self.driver.left();
            self.load().ready.store(left, Relaxed);
            match self.next_event() {
                Some(Next::Connection(token, reported)) => self.after(token, reported, is_late),
                Some(Next::Accepted(accepted)) => {
                    if let Some(listeners) = &mut self.listeners {
                        listeners.accepted();
                    }
                    self.assign(accepted);
                }
                Some(Next::AcceptReady) => is_accept_ready = true,
                Some(Next::Nothing) => {}
                None => break,
            }
            self.thread.offer_full_log();
        }
        self.is_cut_short = false;
        is_accept_ready
    }

    /// Reports the next event to its connection.
    #[inline]
    fn next_event(&mut self) -> Option<Next> {
        Some(match self.driver.next()? {
            DriverEvent::Woken => Next::Nothing,
            DriverEvent::AcceptReady => Next::AcceptReady,
            DriverEvent::Arrived(accepted) => Next::Accepted(accepted),
            DriverEvent::To(token, event) => {
                // A slot that was closed earlier in the batch misses: its generation has passed.
                let slot = self.slots.get_mut(token);
                match slot.map(|slot| (&mut slot.connection, &mut slot.missed)) {
                    Some((Some(connection), _)) => {
                        let (transport, session) = connection.parts();
                        let reported = transport.on_event(event, session, &mut self.thread.cx());
                        Next::Connection(token, reported)
                    }
                    Some((None, missed)) => {
                        D::miss(missed, event);
                        Next::Nothing
                    }
                    None => Next::Nothing,
                }
            }
        })
    }

    /// Whether it does itself what workers would do, and that takes long.
    fn computes_for_long(&self) -> bool {
        let turn = self.thread.turn.as_ref();
        self.dispatcher.workers.is_none() && turn.is_some_and(TurnControl::answers_take_long)
    }

    /// An event was reported to a connection. `is_late`: others wait for their turn already.
    #[inline]
    fn after(&mut self, token: Token, reported: Reported, is_late: bool) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        if slot.acceptance == Acceptance::OverCapacity {
            // It has nothing to do before its first read: an event for writing must not begin one.
            if reported.is_input {
                if let Some(connection) = &slot.connection {
                    connection
                        .transport()
                        .discard_input(self.thread.borrow().read_buffer);
                }
                self.abort(token, CloseReason::OverCapacity);
            }
        } else if self.stage != Stage::Up
            && !slot.knows_drain
            && !self.may_have_unreported_input(token)
        {
            self.begin_connection_drain(token);
        } else if reported.is_ready {
            match is_late {
                true => self.queue(token),
                false => self.drive(token),
            }
        }
    }

    /// Whether it is idle, and may have input that was not reported yet.
    fn may_have_unreported_input(&self, token: Token) -> bool {
        let connection = connection_at(&self.slots, token).filter(|_| self.is_reporting);
        connection.is_some_and(Connection::is_idle::<D>)
    }

    /// Connections whose deadline may have passed.
    fn expire(&mut self) {
        let now = self.thread.now();
        if let Some(workers) = &self.dispatcher.workers {
            workers.wake_expired(now); // a loop with much to do does not wait, where it would do so
        }
        while let Some(token) = self.timers.expired(now) {
            let Some(slot) = self.slots.get_mut(token) else {
                continue;
            };
            let Some(connection) = &mut slot.connection else {
                continue; // armed again when it is back
            };
            if self.stage != Stage::Up && !slot.knows_drain {
                self.begin_connection_drain(token);
                continue;
            }
            match connection.deadline::<D>() {
                None => {}
                Some(deadline) if deadline > now => self.timers.arm(token, deadline),
                // Its request has come in time and is reported in one of the next turns.
                Some(_)
                    if connection.is_idle::<D>()
                        && !connection.is_certainly_idle(&mut self.driver) =>
                {
                    self.timers.arm(token, Millis(now.0 + 1));
                }
                Some(_) => {
                    connection.expired(&mut self.thread.cx());
                    self.drive_here(token);
                }
            }
        }
    }

    /// The handler gives back what no request has asked for lately, also if no more come.
    fn release_unused(&mut self, has_events: bool) {
        let now = self.thread.now();
        let again = match self.releases_at {
            Some(at) if at <= now => {
                let Borrowed { config, cx, .. } = self.thread.borrow();
                config.release_unused(&cx)
            }
            None => has_events,
            Some(_) => return,
        };
        self.releases_at = again.then_some(Millis(now.0 + RELEASE_AFTER_MS));
    }

    /// Those who wait for their turn, in order. Where what they have answered leaves only after this turn of the loop,
    /// their time is bounded. It begins here, however long the turn has lasted: many may only have to be refused.
    fn drive_queued(&mut self) {
        if self.again.is_empty() {
            return;
        }
        let mut round = std::mem::take(&mut self.round);
        std::mem::swap(&mut round, &mut self.again);
        let began_us = self.thread.now_us();
        let mut left = round.drain(..);
        for token in left.by_ref() {
            if let Some(slot) = self.slots.get_mut(token) {
                slot.queued = false;
                self.drive(token);
            }
            if D::KEEPS_EVENTS && self.thread.now_us() > began_us + TURN_MAX_US {
                break; // what they have answered leaves first
            }
        }
        let driven_again = self.again.len();
        self.again.extend(left);
        self.again.rotate_left(driven_again);
        self.round = round;
    }
}

/// The connection in a slot; `None`: it is closed, or a worker has it.
fn connection_at<T>(slots: &Slab<Slot<T>>, token: Token) -> Option<&Connection<T>> {
    slots.get(token)?.connection.as_ref()
}

/// The same, to be changed.
fn connection_at_mut<T>(slots: &mut Slab<Slot<T>>, token: Token) -> Option<&mut Connection<T>> {
    slots.get_mut(token)?.connection.as_mut()
}

#[cfg(test)]
mod tests;
