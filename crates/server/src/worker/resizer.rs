//! Pools that change their size while the server runs: one thread decides for all of them, ten times a
//! second, once a second while they have nothing to do. A job that has to wait ends such a pause.

use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use loadline_base::LogLimit;
use loadline_capacity::sizing::{Bounds, Decision, INTERVAL_MS, Measured, Sizer};
use loadline_proto::Handler;
use loadline_sys::affinity::cpu_budget;
use loadline_sys::usage::process_cpu;
use loadline_sys::{Waker, wait_readable};

use crate::site::Site;
use crate::telemetry::log;
use crate::worker::early_look::EarlyLook;
use crate::worker::meter::{LoopUse, Work, as_us};
use crate::worker::pool::Workers;

/// Intervals without a job after which the pools are looked at rarely.
const INTERVALS_IDLE: u32 = 100;
/// An interval is then so many times as long.
const RARELY: u32 = 10;

/// The thread, until dropped.
pub(crate) struct Resizer {
    stop: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Resizer {
    /// Starts the thread if the size of the pools is to change.
    pub(crate) fn start<H: Handler>(
        site: &Arc<Site<H>>,
        pools: &[Arc<Workers>],
    ) -> io::Result<Option<Self>> {
        let Some(range) = site.options.changing_sizes() else {
            return Ok(None);
        };
        let bounds = Bounds {
            min: range.min,
            max: range.max,
        };
        let cpus = cpu_budget().cpu_seconds_per_second() / pools.len().max(1) as f64;
        let resized = |workers: &Arc<Workers>| Resized {
            workers: Arc::clone(workers),
            sizer: Sizer::new(bounds, workers.count()),
            cpus: match workers.keeps_connections() {
                true => f64::INFINITY, // what they wait for uses no CPU of theirs: their clients
                false => cpus,
            },
            shared_cpus: cpus,
            last: Work::default(),
            last_us: site.clock.now_us(),
        };
        let mut pools = Pools {
            all: pools.iter().map(resized).collect(),
            last_process_us: as_us(process_cpu()),
            last_answers: site.registry.answers_and_connections().0,
            last_loops: LoopUse::read(&site.registry),
        };
        let stop = Arc::new(Waker::new()?);
        let early = Arc::new(EarlyLook::new()?);
        for workers in &pools.all {
            workers.workers.set_early_look(&early);
        }
        let (site, stopped) = (Arc::clone(site), Arc::clone(&stop));
        let thread = Builder::new()
            .name("pool sizes".to_owned())
            .spawn(move || {
                site.guarded_alone("the thread that sizes pools", || {
                    let decide = |times| pools.decide(&site, times);
                    follow(&site, &stopped, &early, decide)
                });
            })?;
        Ok(Some(Self {
            stop,
            thread: Some(thread),
        }))
    }
}

impl Drop for Resizer {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has caught what could panic
        }
    }
}

/// Decides once in each interval, until it is stopped, or the server drains. A panic costs the decision
/// that it came from: pools keep their size for an interval.
fn follow<H: Handler>(
    site: &Site<H>,
    stop: &Waker,
    early: &EarlyLook,
    mut decide: impl FnMut(f64) -> bool,
) -> io::Result<()> {
    let interval_ms = u64::try_from(site.options.sizing_interval.as_millis()).unwrap_or(u64::MAX);
    let interval_ms = interval_ms.max(1);
    let times = INTERVAL_MS as f64 / interval_ms as f64;
    let mut idle = 0_u32;
    loop {
        let is_pause = idle >= INTERVALS_IDLE;
        let rarely = if is_pause { RARELY } else { 1 };
        early.want(is_pause);
        if !wait(site, stop, early, interval_ms * u64::from(rarely))? {
            return Ok(());
        }
        early.want(false);
        let is_busy = catch_unwind(AssertUnwindSafe(|| decide(times)));
        let is_busy = is_busy.unwrap_or_else(|panic| {
            log::log_panic("the thread that sizes pools", panic.as_ref());
            true
        });
        idle = if is_busy { 0 } else { idle.saturating_add(1) };
    }
}

/// Waits for so long, or until a job has to wait in a pause; `false`: there is to be no other decision.
fn wait<H: Handler>(
    site: &Site<H>,
    stop: &Waker,
    early: &EarlyLook,
    wait_ms: u64,
) -> io::Result<bool> {
    let until = site.clock.now().after(Duration::from_millis(wait_ms));
    loop {
        let left_ms = until.since(site.clock.now());
        let fds = [stop.as_fd(), site.shutdown.drain_fd(), early.as_fd()];
        let [is_stopped, is_draining, is_early] = wait_readable(&fds, Some(left_ms))?;
        if is_stopped || is_draining {
            return Ok(false);
        }
        if is_early {
            early.clear();
            return Ok(true);
        }
        if until.since(site.clock.now()) == 0 {
            return Ok(true);
        }
    }
}

/// All pools of a server, which share what threads beside their workers do.
struct Pools {
    all: Vec<Resized>,
    /// CPU time of the process.
    last_process_us: u64,
    /// Responses of the server.
    last_answers: u64,
    last_loops: LoopUse,
}

impl Pools {
    /// Decides for all of them; `true`: one of them has something to do.
    fn decide<H: Handler>(&mut self, site: &Arc<Site<H>>, times: f64) -> bool {
        let mut is_busy = false;
        let mut useful = 0;
        let measured = self.measure(site, times);
        for (pool, measured) in self.all.iter_mut().zip(&measured) {
            is_busy |= pool.decide(site, measured);
            useful += pool.sizer.useful_max();
        }
        site.registry.workers_useful.set(useful as u64);
        is_busy
    }

    /// All of them, before any decision: the workers of one are no other threads of the next.
    fn measure<H: Handler>(&mut self, site: &Site<H>, times: f64) -> Vec<Measured> {
        let now_us = site.clock.now_us();
        let pools = self.all.iter_mut();
        let mut measured: Vec<Measured> = pools.map(|pool| pool.measure(now_us, times)).collect();
        let process_us = as_us(process_cpu());
        let since_us = process_us.saturating_sub(self.last_process_us);
        self.last_process_us = process_us;
        let own_us: Vec<u64> = measured.iter().map(|one| one.cpu_us).collect();
        let others_us = others_us(scaled(since_us, times), &own_us);
        let (answers, connections) = site.registry.answers_and_connections();
        let since = answers.saturating_sub(std::mem::replace(&mut self.last_answers, answers));
        let loops_now = LoopUse::read(&site.registry);
        let loops = loops_now.since(std::mem::replace(&mut self.last_loops, loops_now));
        let pools = own_us.len().max(1) as u64;
        for one in &mut measured {
            one.others_cpu_us = others_us;
            (one.answers, one.connections) = (since / pools, connections / pools);
            one.loops = loops.loops;
            one.loops_cpu_us = scaled(loops.cpu_us, times);
            one.loops_ready_us = scaled(loops.ready_us, times);
        }
        measured
    }
}

/// A pool's part of the CPU time of threads that are no workers: `process_us` without what the workers of
/// each pool used, `own_us`.
fn others_us(process_us: u64, own_us: &[u64]) -> u64 {
    let workers_us: u64 = own_us.iter().sum();
    process_us.saturating_sub(workers_us) / own_us.len().max(1) as u64
}

fn scaled(us: u64, times: f64) -> u64 {
    (us as f64 * times) as u64
}

/// A pool whose size changes.
struct Resized {
    workers: Arc<Workers>,
    sizer: Sizer,
    cpus: f64,
    shared_cpus: f64,
    last: Work,
    last_us: u64,
}

impl Resized {
    /// Decides, and changes the size; `true`: it has something to do.
    fn decide<H: Handler>(&mut self, site: &Arc<Site<H>>, measured: &Measured) -> bool {
        let decision = self.sizer.decide(measured);
        if decision.size != decision.from {
            self.say(&decision);
        }
        // Each time: workers that could not be started are tried again.
        if let Err(error) = self.workers.resize(site, decision.size) {
            static LIMIT: LogLimit = LogLimit::new(1);
            log::say_within(&LIMIT, |more| {
                tracing::warn!("a worker could not be started: {error}{more}");
            });
        }
        measured.busy_us > 0 || measured.queue_depth > 0 || measured.jobs > 0
    }

    /// What it has done since the last time, with all times `times` as long.
    fn measure(&mut self, now_us: u64, times: f64) -> Measured {
        let work = match self.workers.meter() {
            Some(meter) => meter.read(now_us),
            None => Work::default(),
        };
        let since = work.since(&self.last);
        let interval_us = now_us.saturating_sub(self.last_us).max(1);
        self.last = work;
        self.last_us = now_us;
        let scaled = |us: u64| scaled(us, times);
        let peaks = self.workers.take_peaks();
        Measured {
            interval_us: scaled(interval_us),
            size: self.workers.count(),
            cpus: self.cpus,
            shared_cpus: self.shared_cpus,
            jobs: since.jobs,
            answers: 0, // as all that other threads did
            waits: since.waits(times, self.workers.keeps_connections()),
            busy_us: scaled(since.busy_us),
            cpu_us: scaled(since.cpu_us),
            others_cpu_us: 0, // known once all pools are measured
            ready_us: scaled(since.ready_us),
            loops: 0,
            loops_cpu_us: 0,
            loops_ready_us: 0,
            connections: 0,
            busy_max: peaks.busy,
            present_max: peaks.present,
            queue_depth: self.workers.depth(),
        }
    }

    fn say(&self, decision: &Decision) {
        static LIMIT: LogLimit = LogLimit::new(log::LINES_MAX);
        let Decision {
            from, size, reason, ..
        } = *decision;
        let rounded = |value: f64| (value * 10.0).round() / 10.0;
        log::say_within(&LIMIT, |more| {
            tracing::debug!(
                pool = self.workers.number(),
                jobs_per_s = decision.jobs_per_s.round(),
                service_us = decision.service_us.round(),
                wait_us = decision.wait_mean_us.round(),
                busy = rounded(decision.busy),
                cpus = rounded(decision.cpus_used),
                useful = decision.useful.min(1e6).round(),
                "{size} workers instead of {from} ({reason:?}){more}"
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerOptions;
    use crate::fairness::ClientKey;
    use crate::site::tests::{Quiet, config_of, quiet_site, site_of};
    use crate::worker::job::{Job, Work as Given};
    use crate::worker::mailbox::Mailbox;

    #[test]
    fn workers_of_other_pools_are_no_other_threads() {
        assert_eq!(others_us(4_080, &[1_000; 4]), 20);
        assert_eq!(
            others_us(3_990, &[1_000; 4]),
            0,
            "clocks are read one by one"
        );
    }

    #[test]
    fn a_decision_that_panics_is_not_the_last_one() {
        let (site, stop) = (quiet_site(), Waker::new().unwrap());
        let early = EarlyLook::new().unwrap();
        let mut decisions = 0;
        let result = follow(&site, &stop, &early, |_| {
            decisions += 1;
            match decisions {
                1 => panic!("on purpose"),
                _ => stop.wake(),
            }
            true
        });
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(decisions, 2);
    }

    #[test]
    fn a_job_that_has_to_wait_ends_a_pause() {
        const LONG_MS: u64 = 3_600_000;
        let options = ServerOptions {
            workers: 1,
            ..ServerOptions::default()
        };
        let site = site_of(config_of(Quiet), options);
        let (stop, early) = (Waker::new().unwrap(), Arc::new(EarlyLook::new().unwrap()));
        let (workers, _no_thread) = Workers::new(&site, 1, 0).unwrap();
        workers.set_early_look(&early);
        let reply = Arc::new(Mailbox::new().unwrap());
        let submit = || {
            let job = Job::of(ClientKey::NOBODY, Given::Serve(Box::default()), &reply);
            assert!(workers.submit(job).is_ok());
        };
        submit();
        let is_woken = || wait_readable(&[early.as_fd()], Some(0)).unwrap()[0];
        assert!(!is_woken(), "there is no pause");
        early.want(true);
        submit();
        assert!(wait(&site, &stop, &early, LONG_MS).unwrap());
        submit();
        assert!(!is_woken(), "once for a pause");
        stop.wake();
        assert!(!wait(&site, &stop, &early, LONG_MS).unwrap());
    }
}
