//! Runs virtual users: one thread, one epoll loop, any number of connections.
//!
//! What it is not: it knows nothing of requests, and decides nothing that a user could decide.
//!
//! ```text
//!   turn ── wait ── events ── timers ── those that had more to do ── connections to be opened
//!                      │        │          │
//!                      └────────┴──────────┴──► drive: order ─► carried out ─► event ─► order …
//! ```
//!
//! A virtual user is driven until its order has to wait for the network or the clock, but for
//! [`drive::STEPS_MAX`] steps at most: then the others have their turn before it goes on. A virtual user that waits costs
//! nothing but its memory: sockets are watched edge-triggered and registered once, and only moments
//! that are waited for are in the heap of timers.
//!
//! While a virtual user sleeps, nothing is read for it; so what its peer sends fills the socket's buffer,
//! and then the peer's. The end of the connection is reported all the same, once nothing lies before it
//! that could still be received. Of TLS that shows only in what it has sealed: once the peer sends no
//! more, that is read from the socket, and kept until it is received.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use loadline_base::Token;
use loadline_base::sorting::sort;
use loadline_sys::clock::monotonic_ns;
use loadline_sys::{Events, Poller};

mod drive;
mod in_flight;
mod opening;
mod preparing;
mod queue;
mod user_state;

use loadline_load::calendar::Boundary;
use loadline_load::client_loop::{self, ClientLoop, Timeline, WAIT_NS_MAX};
use loadline_load::load_threads::ExtraThread;
use loadline_load::recorder::GroupRecorder;
use loadline_load::secure_link::UnfitServer;
use loadline_load::{Control, Message, Plan, Recorder, Share, ThreadReport};

use self::in_flight::InFlight;
use self::preparing::EarlyConnection;
use self::queue::StartQueue;
use self::user_state::{Activity, UserState};
use crate::timers::Timers;
use crate::{Event, UserContext, UserGroup, VirtualUser};

/// Users that had more to do, driven in one turn: events wait no longer than these take.
const READY_USERS_MAX: usize = 256;
/// What is received at once.
const RECEIVE_BYTES: usize = 64 << 10;

/// One thread's virtual users and all that they need.
pub(super) struct Executor<'p> {
    plan: &'p Plan,
    user_groups: &'p [UserGroup],
    poller: Poller,
    events: Events,
    /// `None`: it is done.
    users: Vec<Option<UserState>>,
    /// Users that are not done.
    left: usize,
    timers: Timers,
    time: Timeline<'p>,
    recorder: Recorder,
    /// Where users that prepare record: nobody reads it.
    unrecorded: GroupRecorder,
    in_flight: InFlight,
    /// Users whose first connection is opened before the start.
    opening: StartQueue,
    /// Users that prepare before the start.
    preparing: StartQueue,
    /// Their last connections, by user: what the start finds open is counted.
    early_connections: HashMap<u32, EarlyConnection>,
    /// Why there will be no start.
    failure: Option<String>,
    /// Something has come through a layer, so that the server fits.
    is_proven: bool,
    /// Why no connection is of any use.
    unfit: Option<UnfitServer>,
    /// Users that have more to do.
    ready_queue: VecDeque<u32>,
    buffer: Box<[u8]>,
    /// Connections that were begun, modulo 2^32: the generation of the next one.
    begun: u32,
    /// Until when to wait for those that want to wait, after the end.
    rest_until_ns: u64,
}

impl<'p> Executor<'p> {
    /// With the users of all user groups that belong to `share`.
    fn new(plan: &'p Plan, user_groups: &'p [UserGroup], share: Share) -> io::Result<Self> {
        let mut users = Vec::new();
        for (index, user_group) in user_groups.iter().enumerate() {
            if usize::from(user_group.server) >= plan.servers.len() {
                let text = format!(
                    "group {index} goes to server {}: no such",
                    user_group.server
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let first = share.first(user_group.count);
            users.extend(
                (first..first + share.count(user_group.count)).map(|number| {
                    Some(UserState {
                        virtual_user: (user_group.make)(number, plan.seed),
                        link: None,
                        activity: Activity::Nothing,
                        until_ns: u64::MAX,
                        number,
                        user_group: index as u16,
                        group: user_group.group,
                        is_preparing: false,
                        is_queued: false,
                        requests_out: 0,
                    })
                }),
            );
        }
        let mut groups: Vec<u16> = user_groups
            .iter()
            .map(|user_group| user_group.group)
            .collect();
        sort(&mut groups);
        groups.dedup();
        Ok(Self {
            plan,
            user_groups,
            poller: Poller::new()?,
            events: Events::new(),
            left: users.len(),
            timers: Timers::new(users.len()),
            time: Timeline::new(plan),
            recorder: Recorder::new(groups.iter().copied()),
            unrecorded: GroupRecorder::new(0),
            in_flight: InFlight::new(groups),
            opening: StartQueue::default(),
            preparing: StartQueue::default(),
            early_connections: HashMap::new(),
            failure: None,
            is_proven: false,
            unfit: None,
            ready_queue: VecDeque::new(),
            buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            users,
            begun: 0,
            rest_until_ns: 0,
        })
    }

    fn check_fit(&mut self) -> io::Result<()> {
        let unfit = self.unfit.take();
        unfit.map_or(Ok(()), |unfit| Err(io::Error::other(unfit)))
    }

    fn wait_ns(&self, now_ns: u64, until_ns: u64) -> u64 {
        if !self.ready_queue.is_empty() {
            return 0;
        }
        until_ns
            .min(self.timers.next_ns().unwrap_or(u64::MAX))
            .min(self.time.calendar.next_ns())
            .saturating_sub(now_ns)
            .min(WAIT_NS_MAX)
    }

    /// Notes how long ago the moment was that a virtual user slept for. Before the start nothing is late.
    fn note_lag(&mut self, index: u32) {
        let Some(user) = &self.users[index as usize] else {
            return;
        };
        if self.time.is_started && matches!(user.activity, Activity::Sleeping) {
            let lag_ns = self.time.now_ns.saturating_sub(user.until_ns);
            self.time.meter.lagged(lag_ns);
            self.recorder.group(user.group).lagged(lag_ns);
        }
    }

    /// Calls a virtual user.
    fn call<R>(
        &mut self,
        index: u32,
        call: impl FnOnce(&mut dyn VirtualUser, &mut UserContext<'_>) -> R,
    ) -> Option<R> {
        let user = self.users[index as usize].as_mut()?;
        let group = user.group;
        let recorder = match user.virtual_user.prepares() {
            true => &mut self.unrecorded,
            false => self.recorder.group(group),
        };
        let mut context = UserContext {
            now_ns: self.time.now_ns,
            phase: self.time.calendar.phase(),
            calendar: Some(&self.time.calendar),
            recorder,
            is_ending: self.time.is_ending,
        };
        let result = call(&mut *user.virtual_user, &mut context);
        let requests_out = user.virtual_user.requests_out();
        if requests_out != user.requests_out {
            let before = std::mem::replace(&mut user.requests_out, requests_out);
            let recorder = &mut self.recorder;
            self.in_flight
                .moved(group, before, requests_out, self.time.now_ns, recorder);
        }
        Some(result)
    }

    /// This user is done.
    fn retire(&mut self, index: u32) {
        let Some(user) = self.users[index as usize].take() else {
            return;
        };
        self.left -= 1;
        self.timers.clear(index);
        self.end_turn(&user.activity, user.is_preparing);
        let recorder = &mut self.recorder;
        self.in_flight
            .moved(user.group, user.requests_out, 0, self.time.now_ns, recorder);
    }

    fn drive_later(&mut self, index: u32) {
        if let Some(user) = &mut self.users[index as usize]
            && !std::mem::replace(&mut user.is_queued, true)
        {
            self.ready_queue.push_back(index);
        }
    }

    fn user_count(&self) -> u32 {
        u32::try_from(self.users.len()).unwrap_or(u32::MAX)
    }
}

impl<'p> ClientLoop<'p> for Executor<'p> {
    fn time(&mut self) -> &mut Timeline<'p> {
        &mut self.time
    }

    fn is_opening(&mut self) -> io::Result<bool> {
        self.open_more();
        self.prepare_more();
        self.check_fit()?;
        match self.failure.take() {
            Some(why) => Err(io::Error::other(why)),
            None => Ok(!self.opening.is_done() || !self.preparing.is_done()),
        }
    }

    fn open_count(&self) -> u64 {
        let is_open = |user: &&UserState| match user.activity {
            Activity::Opened(Ok(())) => true,
            Activity::Prepared => user.link.is_some(),
            _ => false,
        };
        self.users.iter().flatten().filter(is_open).count() as u64
    }

    fn turn(&mut self, until_ns: u64, out: &mut dyn FnMut(Message)) -> io::Result<()> {
        let before_ns = monotonic_ns();
        self.sample_in_flight(before_ns);
        let wait_ns = self.wait_ns(before_ns, until_ns);
        self.poller.wait_ns(&mut self.events, Some(wait_ns))?;
        self.time.look_at_clock();
        self.sample_in_flight(self.time.now_ns);
        let waited_ns = self.time.now_ns.saturating_sub(before_ns);
        self.time.meter.waited(waited_ns, self.events.len());
        self.pass_boundaries(out);
        for at in 0..self.events.len() {
            let event = self.events.get(at);
            let Token { index, generation } = Token::from_bits(event.bits);
            let user = self.users.get_mut(index as usize);
            let user = user.and_then(Option::as_mut);
            let link = user.and_then(|user| user.link.as_mut());
            let Some(link) = link.filter(|link| link.generation == generation) else {
                continue;
            };
            link.is_decided |= event.is_writable();
            link.is_writable |= event.is_writable();
            link.is_readable |= event.is_readable();
            link.is_half_closed |= event.is_half_closed();
            self.drive(index);
        }
        let woken_ns = self.time.now_ns; // later moments belong to the next turn
        while let Some(index) = self.timers.expired(woken_ns) {
            self.note_lag(index);
            self.drive(index);
        }
        for _ in 0..self.ready_queue.len().min(READY_USERS_MAX) {
            let Some(index) = self.ready_queue.pop_front() else {
                break;
            };
            if let Some(Some(user)) = self.users.get_mut(index as usize) {
                user.is_queued = false;
                self.drive(index);
            }
        }
        self.check_fit()
    }

    fn start(&mut self, _: u64) {
        self.in_flight.begin(self.time.now_ns);
        for index in 0..self.user_count() {
            self.drive_later(index);
        }
    }

    fn passed(&mut self, boundary: Boundary, _: u16) {
        self.in_flight.settle(boundary.at_ns, &mut self.recorder);
    }

    fn sample_in_flight(&mut self, now_ns: u64) {
        let _ = self.time.meter.sample(now_ns, self.in_flight.total());
    }

    /// The requests of the run are done, or no user is left.
    fn is_done(&self, control: &Control) -> bool {
        self.left == 0 || control.is_ended()
    }

    /// Asks every user for the last order.
    fn end(&mut self, _: u64) {
        for index in 0..self.user_count() {
            if let Some(user) = &mut self.users[index as usize]
                && !matches!(user.activity, Activity::Sending { .. })
            {
                let activity = std::mem::replace(&mut user.activity, Activity::Nothing);
                let was_preparing = std::mem::take(&mut user.is_preparing);
                self.end_turn(&activity, was_preparing);
                self.drive(index);
            }
        }
        self.in_flight.settle(self.time.now_ns, &mut self.recorder);
        let timeout_ns = self.plan.timeout_ns;
        self.rest_until_ns = self.time.now_ns.saturating_add(timeout_ns);
    }

    fn rest(&self) -> Option<u64> {
        let is_in_time = self.time.now_ns < self.rest_until_ns;
        (self.left > 0 && is_in_time).then_some(self.rest_until_ns)
    }

    fn give_up_rest(&mut self, _: u64) {
        for index in 0..self.user_count() {
            self.call(index, |user, context| {
                user.on_event(Event::Abandoned, context)
            });
            self.retire(index);
        }
        self.in_flight.settle(self.time.now_ns, &mut self.recorder);
    }

    fn flush(&mut self, second: u32, phase: u16, after_end: bool, out: &mut dyn FnMut(Message)) {
        self.recorder.flush(second, phase, after_end, out);
    }

    fn report(self, share: Share) -> ThreadReport {
        let groups = self.user_groups.iter().map(|user_group| user_group.group);
        ThreadReport {
            name: format!("users {}", share.index),
            group: groups.min().unwrap_or(0),
            ..self.time.meter.report(share)
        }
    }
}

/// The thread that runs user groups, for the threads of a process; `None`: there are no user groups.
#[must_use]
pub fn thread(user_groups: Vec<UserGroup>) -> Option<ExtraThread> {
    (!user_groups.is_empty()).then(|| ExtraThread {
        name: "users",
        run: Arc::new(move |plan, share, control, out| {
            run(plan, &user_groups, share, control, out)
        }),
    })
}

/// Runs the users of all user groups that belong to `share`, on the calling thread, as `engine::run` does
/// with plain clients.
///
/// # Errors
/// The kernel refuses what every run needs (an epoll instance, say).
pub fn run(
    plan: &Plan,
    user_groups: &[UserGroup],
    share: Share,
    control: &Control,
    out: &mut dyn FnMut(Message),
) -> io::Result<()> {
    let mut executor = Executor::new(plan, user_groups, share)?;
    for index in 0..executor.user_count() {
        executor.ask_beforehand(index);
    }
    client_loop::run(executor, share, control, out)
}

#[cfg(test)]
mod tests {
    use loadline_load::Prepared;

    use super::*;
    use crate::Order;

    struct Waiting;

    impl VirtualUser for Waiting {
        fn next_order(&mut self, _: &mut UserContext<'_>) -> Order {
            Order::Receive { bytes_max: 1 }
        }
        fn on_event(&mut self, _: Event<'_>, _: &mut UserContext<'_>) {}
    }

    /// Unlike the deadlines of plain clients, which are exact to 16 ms.
    #[test]
    fn a_wait_ends_at_the_earliest_moment_for_all_who_wait_for_it() {
        let server = ([127, 0, 0, 1], 9).into();
        let plan = Plan::new(server, Prepared::get("here", "/"), Vec::new());
        let groups = [UserGroup::new(Arc::new(|_, _| Box::new(Waiting))).of(0, 3)];
        let mut executor = Executor::new(&plan, &groups, Share::WHOLE).unwrap();
        let (now_ns, until_ns) = (5_000_000_000, 5_003_300_001);
        for (index, ns) in [(0, until_ns), (1, until_ns + 1), (2, until_ns)] {
            executor.timers.set(index, ns);
        }
        assert_eq!(executor.wait_ns(now_ns, u64::MAX), 3_300_001);
        assert_eq!(executor.timers.expired(until_ns - 1), None);
        let woken = std::iter::from_fn(|| executor.timers.expired(until_ns));
        assert_eq!(woken.collect::<Vec<u32>>(), [0, 2]);
        assert_eq!(executor.wait_ns(until_ns, u64::MAX), 1);
    }

    #[test]
    fn a_user_that_waits_takes_little_memory() {
        let timer_bytes = size_of::<(u64, u32)>() * 2 + size_of::<u64>(); // in nodes that are half full
        let bytes = size_of::<Option<UserState>>() + crate::idle::USER_BYTES + timer_bytes;
        assert!(bytes < 256, "{bytes}");
    }
}
