//! What every serving thread owns, and lends to sessions for one turn. The only reader of clocks.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use loadline_base::{MemoryAccount, MemoryPressure, Millis};
use loadline_proto::{
    AccessLog, ConnectionRecord, Context, Exchange, Handler, HttpDate, Outcome, Pool,
};
use loadline_sys::Waker;
use loadline_sys::write::FileBuffer;

use crate::admission::Refusing;
use crate::config::{Config, ThreadConfig};
use crate::memory::{Footprint, thread_bytes};
use crate::overload::{AppRequest, TurnControl};
use crate::site::Site;
use crate::task::TaskPool;
use crate::telemetry::connection_log::ThreadConnectionLog;
use crate::telemetry::counters::{Role, ThreadStats};
use crate::telemetry::log;

/// Bytes read at once: 64 KiB, what a socket's receive window starts with; a longer upload pays
/// one system call for each 64 KiB.
pub(crate) const READ_BUFFER_BYTES: usize = 64 << 10;

const _: () = assert!(READ_BUFFER_BYTES.is_multiple_of(loadline_proto::RECEIVE_BYTES));

/// How long an app's poll takes in the mean: one counts for one in so many.
const APP_WEIGHT: u64 = 16;

/// Apps that take so long in the mean are slow: files would wait for them longer than it takes to hand a request over
/// to the loop and on to another thread, some 20 us.
const SLOW_APP_US: u64 = 500;

/// Log lines that make a batch worth handing over in the middle of a busy turn.
const LOG_BATCH_BYTES: usize = 32 << 10;

/// What every serving thread owns.
pub(crate) struct ThreadContext<H: Handler> {
    pub(crate) site: Arc<Site<H>>,
    pub(crate) stats: Arc<ThreadStats>,
    role: Role,
    served: ThreadConfig<H>,
    pool: Pool,
    /// What this thread and its connections use of the memory of the process.
    pub(crate) memory: MemoryAccount,
    now_us: u64,
    /// When a thread with one connection at a time last began to do something for it.
    busy_since_us: u64,
    now: Millis,
    date: HttpDate,
    date_ends: Millis,
    /// When the server's clock began, in microseconds since 1970; found anew each second.
    began_unix_us: u64,
    read_buffer: Box<[u8]>,
    files: FileBuffer,
    log: Option<AccessLog>,
    connection_log: Option<ThreadConnectionLog>,
    /// What wakes a blocking thread for an app's task, once it has had one.
    task_waker: Option<Arc<Waker>>,
    pub(crate) tasks: TaskPool,
    /// How long apps have kept this thread of late in the mean, times `APP_WEIGHT`.
    weighted_app_us: u64,
    /// How long slow apps have kept this thread of a pool while it served their connections, since
    /// `take_slow_apps_us`.
    slow_apps_us: u64,
    /// How long a loop's work in place of workers, and tasks that began at once, have taken in a row, in microseconds:
    /// until a connection had nothing else to do.
    pub(crate) in_place_us: u64,
    /// Of a loop, if there is a latency goal.
    pub(crate) turn: Option<TurnControl>,
    /// Of a loop without one: when the events of its turn came, about.
    events_came_us: Option<u64>,
    /// What it serves now is refused.
    pub(crate) refusing: Option<Refusing>,
}

/// The parts of a thread's context, borrowed at once for a turn.
pub(crate) struct Borrowed<'k, H: Handler> {
    pub(crate) site: &'k Site<H>,
    pub(crate) config: &'k Arc<Config<H>>,
    pub(crate) local: &'k mut H::Local,
    pub(crate) read_buffer: &'k mut [u8],
    pub(crate) files: &'k mut FileBuffer,
    pub(crate) tasks: &'k mut TaskPool,
    pub(crate) late: Late<'k>,
    pub(crate) cx: Context<'k>,
}

/// What comes too late to be answered within the latency goal. Nearly references alone, since it is lent for each
/// order of a session and few need it.
pub(crate) struct Late<'k> {
    refusing: &'k Option<Refusing>,
    turn: &'k mut Option<TurnControl>,
    is_loop: bool,
    now_us: &'k u64,
    stats: &'k Arc<ThreadStats>,
}

impl Late<'_> {
    /// The handler's quick step; 503 instead if the request is too old, unless the handler exempts it.
    #[inline]
    pub(crate) fn handle<H: Handler>(
        &mut self,
        config: &Config<H>,
        local: &mut H::Local,
        exchange: &mut Exchange,
        cx: &mut Context<'_>,
    ) -> Outcome {
        if !self.is_loop {
            // What its connection sends behind it has come later, or may have.
            self.stats.core.latencies.has_waited(0);
        }
        if let Some(refusing) = self.refusing {
            if !config.is_exempt(exchange) {
                return self.refuse(*refusing, exchange);
            }
        } else if let Some(turn) = self.turn.as_mut()
            && let Err(too_old) = turn.judge(*self.now_us, exchange)
        {
            if !config.is_exempt(exchange) {
                let retry_after_s = turn.refuse_too_old(*self.now_us, too_old);
                return self.refuse(Refusing::late(retry_after_s), exchange);
            }
            turn.answers_exempt();
        }
        let outcome = config.handle(local, exchange, cx);
        self.put_off(exchange, &outcome);
        outcome
    }

    fn refuse(&self, refusing: Refusing, exchange: &mut Exchange) -> Outcome {
        exchange.refuse(refusing.retry_after_s);
        refusing.count(self.stats);
        Outcome::Ready
    }

    /// One of many requests of a connection is checked again before what follows its quick step.
    #[inline]
    fn put_off(&mut self, exchange: &Exchange, outcome: &Outcome) {
        let is_to_follow = matches!(outcome, Outcome::Blocking | Outcome::Later(_));
        if is_to_follow
            && exchange.is_multiplexed()
            && self.refusing.is_none()
            && let Some(turn) = self.turn.as_mut()
        {
            turn.put_off();
        }
    }
}

impl<H: Handler> ThreadContext<H> {
    pub(crate) fn new(site: &Arc<Site<H>>, role: Role) -> Self {
        Self::with_read_buffer(site, role, READ_BUFFER_BYTES)
    }

    /// A context with a read buffer of another size.
    pub(crate) fn with_read_buffer(site: &Arc<Site<H>>, role: Role, scratch_bytes: usize) -> Self {
        let served = ThreadConfig::new(&site.config); // first: the handler's own part may panic
        let stats = site.registry.thread_stats(role);
        let mut memory = match role {
            Role::Thread => MemoryAccount::of_one(&site.memory),
            Role::Acceptor | Role::Loop | Role::Worker => MemoryAccount::of_many(&site.memory),
        };
        memory.change(
            0,
            thread_bytes(role, site.options.architecture, scratch_bytes),
        );
        let mut thread = Self {
            tasks: TaskPool::new(Arc::clone(&stats)),
            weighted_app_us: 0,
            slow_apps_us: 0,
            in_place_us: 0,
            site: Arc::clone(site),
            stats,
            role,
            served,
            pool: Pool::new(),
            memory,
            now_us: 0,
            busy_since_us: 0,
            now: Millis(0),
            date: HttpDate::at(0),
            date_ends: Millis(0),
            began_unix_us: 0,
            read_buffer: vec![0; scratch_bytes].into_boxed_slice(),
            files: FileBuffer::default(),
            log: site
                .access
                .as_ref()
                .map(|(format, _)| AccessLog::new(*format)),
            connection_log: site.connection_log.as_ref().map(ThreadConnectionLog::new),
            task_waker: None,
            turn: None,
            events_came_us: None,
            refusing: None,
        };
        thread.tick();
        thread
    }

    /// Reads the clock and takes up the current configuration: to be called once at the begin of a turn,
    /// after waiting.
    pub(crate) fn tick(&mut self) -> Millis {
        self.served.refresh();
        self.now_us = self.site.clock.now_us();
        self.now = Millis(self.now_us / 1000);
        if self.now >= self.date_ends {
            self.refresh_date();
        }
        self.stats.core.latencies.begin_turn(self.now_us);
        if self.role == Role::Loop {
            self.note_came();
        }
        self.follow_memory();
        if let Some(log) = &mut self.log {
            log.tick(self.now_us, self.began_unix_us + self.now_us);
        }
        self.now
    }

    /// Keeps nothing for later while memory is short.
    #[inline]
    fn follow_memory(&mut self) {
        let pressure = self.memory.pressure();
        self.pool.set_short(pressure == MemoryPressure::Full);
        if pressure >= MemoryPressure::Spare {
            self.pool.free_spare();
        }
    }

    /// A connection of this thread is put aside and holds this much. `true`: it is time to look at the
    /// pressure.
    #[inline]
    pub(crate) fn note_memory(&mut self, footprint: &mut Footprint, held_bytes: usize) -> bool {
        footprint.note(held_bytes, &mut self.memory)
    }

    /// In the middle of a turn, where what is late is refused: after work that may have taken long.
    pub(crate) fn tick_in_long_turn(&mut self) {
        if self.turn.is_some() {
            self.tick();
        }
    }

    /// A loop without a latency goal begins a turn: its events came then, about.
    pub(crate) fn events_came(&mut self, came_us: u64) {
        self.events_came_us = Some(came_us);
    }

    /// What this loop receives from now on came when its turn says: to be called when that has changed.
    pub(crate) fn note_came(&self) {
        let came_us = match &self.turn {
            Some(turn) => turn.came_us(),
            None => self.events_came_us.unwrap_or(self.now_us),
        };
        self.received_since(came_us);
    }

    /// What is received from now on has waited since then: on a thread with one connection until a request of it is
    /// read, or the next tick.
    pub(crate) fn received_since(&self, came_us: u64) {
        let waited_us = self.now_us.saturating_sub(came_us);
        self.stats.core.latencies.has_waited(waited_us);
    }

    /// As `tick`, on a thread with one connection at a time, whose busy time is counted from here.
    pub(crate) fn begin_busy(&mut self) {
        self.tick();
        self.busy_since_us = self.now_us;
        self.stats.job_began_us.set(self.now_us);
    }

    /// Ends a turn on such a thread. Returns the time.
    pub(crate) fn end_busy(&mut self) -> u64 {
        let now_us = self.end_turn();
        let busy_us = now_us.saturating_sub(self.busy_since_us);
        self.stats.job_began_us.set(0);
        self.stats.busy_us.add(busy_us);
        self.busy_since_us = now_us;
        now_us
    }

    #[cold]
    fn refresh_date(&mut self) {
        // A clock before 1970 is shown as 1970.
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let unix_us = u64::try_from(wall.as_micros()).unwrap_or(u64::MAX);
        self.began_unix_us = unix_us.saturating_sub(self.now_us);
        if wall.as_secs() != self.date.unix_seconds() {
            self.date = HttpDate::at(wall.as_secs());
        }
        self.date_ends = Millis(self.now.0 + 1000 - u64::from(wall.subsec_millis()));
    }

    /// Whether what it serves now is refused, so that a handshake is not computed: the request behind it would
    /// come as if it had not waited. It is counted.
    pub(crate) fn refuses_handshake(&self) -> bool {
        self.refusing.inspect(|it| it.count(&self.stats)).is_some()
    }

    /// How long what this loop reads now has waited for that, about, where that counts for it.
    pub(crate) fn waited_unread_us(&self) -> u64 {
        let turn = self.turn.as_ref();
        turn.map_or(0, |turn| turn.age_us(self.now_us))
    }

    /// How long a request has waited for this loop, read or not.
    pub(crate) fn request_age_us(&self, exchange: &Exchange) -> u64 {
        let turn = self.turn.as_ref();
        turn.map_or(0, |turn| turn.request_age_us(self.now_us, exchange))
    }

    /// A request is about to be worked on here, after its quick step. `Err`: it has waited behind others of its
    /// connection since, for too long, and has its 503.
    pub(crate) fn check_again(&mut self, exchange: &mut Exchange) -> Result<(), ()> {
        let now_us = self.now_us;
        let turn = self.turn.as_mut();
        let Some(Err(retry_after_s)) = turn.map(|turn| turn.check_again(now_us, exchange)) else {
            return Ok(());
        };
        exchange.refuse(retry_after_s);
        self.stats.refused_late.add(1);
        Err(())
    }

    /// How long a message of a handshake has waited for this thread, where that counts for the request behind it.
    pub(crate) fn handshake_waited_us(&self) -> u64 {
        let turn = self.turn.as_ref();
        turn.map_or(0, |turn| turn.handshake_waited_us(self.now_us))
    }

    /// Whether a handshake that was kept for so long is not computed, since the request behind it would be too late
    /// for this loop. It is counted.
    pub(crate) fn refuses_late_handshake(&mut self, handshake_us: u64) -> bool {
        let now_us = self.now_us;
        let turn = self.turn.as_mut();
        let refuses = turn.is_some_and(|turn| turn.refuses_handshake(now_us, handshake_us));
        self.stats.refused_late.add(u64::from(refuses));
        refuses
    }

    /// A request for an app has come. `Err`: the app could not answer it in time, and the exchange has its 503.
    pub(crate) fn admit_to_app(&self, exchange: &mut Exchange) -> Result<Option<AppRequest>, ()> {
        let Some(apps) = &self.site.apps else {
            return Ok(None);
        };
        match apps.admit(exchange.mount) {
            Ok(request) => Ok(Some(request)),
            Err(retry_after_s) => {
                exchange.refuse(retry_after_s);
                self.stats.refused_late.add(1);
                Err(())
            }
        }
    }

    /// What this thread serves.
    pub(crate) fn config(&self) -> &Arc<Config<H>> {
        &self.served.config
    }

    /// Lends what sessions need.
    #[inline]
    pub(crate) fn cx(&mut self) -> Context<'_> {
        self.borrow().cx
    }

    /// Lends the handler's local state and the buffers as well.
    #[inline]
    pub(crate) fn borrow(&mut self) -> Borrowed<'_, H> {
        let came = self.turn.as_ref().map_or(self.now, TurnControl::came);
        Borrowed {
            site: &self.site,
            config: &self.served.config,
            local: &mut self.served.local,
            read_buffer: &mut self.read_buffer,
            files: &mut self.files,
            tasks: &mut self.tasks,
            late: Late {
                refusing: &self.refusing,
                turn: &mut self.turn,
                is_loop: self.role == Role::Loop,
                now_us: &self.now_us,
                stats: &self.stats,
            },
            cx: Context {
                now: self.now,
                came,
                date: &self.date,
                pool: &mut self.pool,
                counters: &self.stats.core,
                log: self.log.as_mut(),
            },
        }
    }

    /// What wakes this thread for an app's task; costs a descriptor from the first time on.
    pub(crate) fn task_waker(&mut self) -> io::Result<Arc<Waker>> {
        let task_waker = match self.task_waker.take() {
            Some(task_waker) => task_waker,
            None => Arc::new(Waker::new()?),
        };
        self.task_waker = Some(Arc::clone(&task_waker));
        Ok(task_waker)
    }

    /// An app has kept this thread for so long, polled once.
    pub(crate) fn app_took(&mut self, us: u64) {
        let weighted_us = self.weighted_app_us.saturating_add(us);
        self.weighted_app_us = weighted_us - self.app_us();
    }

    /// The same of a thread of a pool that serves the app's connection, over HTTP/1.
    pub(crate) fn app_took_in_place(&mut self, us: u64) {
        self.app_took(us);
        if self.has_slow_apps() {
            self.slow_apps_us += us;
        }
    }

    /// Whether apps are so slow that they wait in a lane of their own if anything waits, also over HTTP/1. Without
    /// fairness there is no such lane.
    pub(crate) fn has_slow_apps(&self) -> bool {
        self.app_us() >= SLOW_APP_US && self.site.options.fairness
    }

    /// How long this thread was kept by slow apps, which does not count as time that a connection takes.
    pub(crate) fn take_slow_apps_us(&mut self) -> u64 {
        std::mem::take(&mut self.slow_apps_us)
    }

    /// How long apps have kept this thread of late, in the mean; 0: not known.
    pub(crate) fn app_us(&self) -> u64 {
        self.weighted_app_us / APP_WEIGHT
    }

    /// Ends a turn, before waiting: hands log lines on, and counts the latencies of what was answered in
    /// this turn. Returns the time.
    #[inline]
    pub(crate) fn end_turn(&mut self) -> u64 {
        self.offer_log();
        let now_us = self.site.clock.now_us();
        self.stats.core.latencies.settle(now_us);
        now_us
    }

    /// Hands log lines on.
    #[inline]
    pub(crate) fn offer_log(&mut self) {
        if let (Some(lines), Some((_, sink))) = (&mut self.log, &self.site.access)
            && !lines.lines().is_empty()
        {
            log::harmless(|| sink.offer(lines.lines()));
            lines.lines().clear(); // as the sink leaves it, unless it has panicked
        }
        if let Some(log) = &mut self.connection_log {
            log.offer(); // harmless as well
        }
    }

    /// Hands log lines on if they have become many; for the middle of a long turn.
    #[inline]
    pub(crate) fn offer_full_log(&mut self) {
        let requests = self.log.as_mut().map_or(0, |log| log.lines().len());
        let connections = self
            .connection_log
            .as_mut()
            .map_or(0, ThreadConnectionLog::len);
        if requests.max(connections) >= LOG_BATCH_BYTES {
            self.offer_log();
        }
    }

    /// Notes a new connection in the connection log, if there is one. Its record is the session's
    /// to keep.
    pub(crate) fn log_accepted(
        &mut self,
        peer: Option<SocketAddr>,
    ) -> Option<Box<ConnectionRecord>> {
        let log = self.connection_log.as_mut()?;
        Some(log.accepted(peer, self.now_us, self.began_unix_us))
    }

    /// Notes that a connection is closed.
    pub(crate) fn log_closed(&mut self, record: Option<Box<ConnectionRecord>>) {
        if let (Some(log), Some(record)) = (&mut self.connection_log, record) {
            log.closed(&record, self.now_us, self.began_unix_us);
        }
    }

    /// The time of this turn.
    pub(crate) fn now(&self) -> Millis {
        self.now
    }

    /// The same in microseconds, where a span begins.
    pub(crate) fn now_us(&self) -> u64 {
        self.now_us
    }
}

impl<H: Handler> Drop for ThreadContext<H> {
    fn drop(&mut self) {
        self.end_turn();
        self.site
            .registry
            .release(self.role, Arc::clone(&self.stats));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Duration;

    use super::*;
    use crate::ServerOptions;
    use crate::site::tests::{clock, site_at};

    /// Where requests are exempt.
    const PROBES: u32 = 1;

    /// Counts how often it is asked whether a request is exempt.
    struct Probed(&'static AtomicU64);

    impl Handler for Probed {
        type Local = ();

        fn local(&self) {}

        fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
            Outcome::Blocking
        }

        fn is_exempt(&self, exchange: &Exchange) -> bool {
            self.0.fetch_add(1, Relaxed);
            exchange.listener == PROBES
        }
    }

    /// They were answered, and counted as refused: then other requests were refused that could wait.
    #[test]
    fn late_requests_that_are_exempt_are_no_overload() {
        let (clock_us, asked) = (clock(), clock());
        let site = site_at(clock_us, Probed(asked), ServerOptions::default());
        let mut thread = ThreadContext::new(&Arc::new(site), Role::Loop);
        let stats = Arc::clone(&thread.stats);
        let mut is_refused = |now_us: u64, waited_us: u64, listener: u32| {
            clock_us.store(now_us, Relaxed);
            thread.tick();
            let goal = Duration::from_secs(1);
            let turn = thread.turn.get_or_insert_with(|| TurnControl::new(goal));
            turn.judge_by(Some(now_us - waited_us));
            let Borrowed {
                config,
                local,
                mut late,
                mut cx,
                ..
            } = thread.borrow();
            let mut exchange = Exchange::default();
            exchange.listener = listener;
            let outcome = late.handle(config, local, &mut exchange, &mut cx);
            matches!(outcome, Outcome::Ready)
        };
        for now_us in (3_000_000..3_500_000).step_by(10_000) {
            assert!(!is_refused(now_us, 2_000_000, PROBES));
        }
        assert!(!is_refused(3_500_000, 500_000, 0));
        assert_eq!(asked.load(Relaxed), 50, "not if a request is in time");
        assert!(is_refused(3_500_000, 2_000_000, 0));
        let counts = (asked.load(Relaxed), stats.refused_late.value());
        assert_eq!(counts, (51, 1));
    }
}
