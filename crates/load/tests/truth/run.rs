//! One run: a stub, a plan, the load threads, and what both sides say afterwards.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{SystemTime, UNIX_EPOCH};

use loadline_load::load_threads::{LoadThreads, RunEvent, ThreadSpec};
use loadline_load::trial::{Ending, Merger, Probe};
use loadline_load::{
    Arrivals, Control, Loop, Message, Overflow, Phase, Plan, Prepared, Schedule, Share,
};
use loadline_record::{Results, TrialRecord};
use loadline_stub::{Report, Stub, StubOptions};
use loadline_sys::clock::monotonic_ns;
use loadline_sys::{affinity, usage};

pub(crate) const US: u64 = 1000;
pub(crate) const MS: u64 = 1000 * US;
pub(crate) const SECOND: u64 = 1000 * MS;

/// What came out.
pub(crate) struct Outcome {
    pub(crate) record: TrialRecord,
    pub(crate) report: Report,
    /// When the load began.
    pub(crate) start_ns: u64,
}

impl Outcome {
    /// Of the plain clients, over the whole run.
    pub(crate) fn results(&self) -> &Results {
        &self.record.headline().unwrap().total
    }
}

/// The tests of this program take turns: each would be the other's disturbance.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// CPUs for the stub and for the client, one each, if there are as many. On one they would take
/// turns, and wake each other only when the other sleeps.
fn cpus() -> Option<(usize, usize)> {
    match *affinity::cpus_allowed() {
        [stub, client, ..] => Some((stub, client)),
        _ => None,
    }
}

/// The client's CPU, if it has one of its own.
pub(crate) fn client_cpu() -> Option<usize> {
    cpus().map(|(_, client)| client)
}

/// A stub that starts with these options, on a CPU of its own, and wakes promptly: threads inherit
/// that from the one that starts them.
pub(crate) fn stub(options: StubOptions) -> Stub {
    let cpu = cpus().map(|(stub, _)| stub);
    let start = move || {
        let _ = usage::wake_promptly(); // what it cannot do shows in its record
        Stub::start(StubOptions { cpu, ..options }).unwrap()
    };
    std::thread::spawn(start).join().unwrap()
}

/// A seed of chance, printed; or the one that is asked for.
pub(crate) fn seed() -> u64 {
    let asked = std::env::var("LOADLINE_SEED").ok();
    let seed = asked.map_or_else(
        || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            since.as_nanos() as u64
        },
        |text| text.parse().unwrap(),
    );
    eprintln!("LOADLINE_SEED={seed}");
    seed
}

/// A closed loop of so many clients that ends after so many requests.
pub(crate) fn closed(server: SocketAddr, connections: u32, requests: u64) -> Plan {
    Plan {
        requests_max: Some(requests),
        ..plan(server, connections, 3600 * SECOND)
    }
}

/// An open loop with so many connections, in which requests wait for one if need be. It goes on
/// until all are answered, also those that were due at its end.
pub(crate) fn open(
    server: SocketAddr,
    connections: u32,
    rate: f64,
    duration_ns: u64,
    arrivals: Arrivals,
) -> Plan {
    let duration = std::time::Duration::from_nanos(duration_ns);
    let load = Loop::Open {
        schedule: Schedule::constant(rate, duration).unwrap(),
        arrivals,
        overflow: Overflow::Queue,
    };
    let requests = rate * duration_ns as f64 / SECOND as f64;
    Plan {
        load,
        requests_max: Some(requests.round() as u64),
        ..plan(server, connections, duration_ns + 3600 * SECOND)
    }
}

fn plan(server: SocketAddr, connections: u32, end_ns: u64) -> Plan {
    let phase = Phase {
        end_ns,
        counted: true,
        ..Phase::default()
    };
    Plan {
        connections,
        timeout_ns: 30 * SECOND,
        ..Plan::new(server, Prepared::get("stub", "/"), vec![phase])
    }
}

/// Runs a plan to its end against a stub, on one thread, and stops the stub.
pub(crate) fn run(plan: Plan, stub: Stub) -> Outcome {
    run_from(plan, stub, 1, |ready_ns| ready_ns)
}

/// The same on so many threads, from the moment that `start_ns` says; it is given the moment at
/// which everybody was ready.
pub(crate) fn run_from(
    plan: Plan,
    stub: Stub,
    engine_threads: u32,
    start_ns: impl Fn(u64) -> u64,
) -> Outcome {
    let spec = ThreadSpec {
        share: Share::WHOLE,
        engine_threads,
        extra: None,
        cpus: client_cpu().into_iter().collect(),
    };
    let (plan, control) = (Arc::new(plan), Arc::new(Control::new()));
    let mut merger = Merger::new(&plan);
    let probe = Probe::begin();
    let (sender, events) = mpsc::channel();
    let report = move |event| {
        let _ = sender.send(event); // no receiver any more: the test has failed already
    };
    let load_threads = LoadThreads::start(&plan, &spec, &control, report).unwrap();
    let (mut ready, mut ended, mut started_ns) = (0, 0, None);
    while ended < load_threads.thread_count() {
        match events.recv().unwrap() {
            RunEvent::Message(message) => {
                ready += usize::from(matches!(message, Message::Ready { .. }));
                merger.take(message);
            }
            RunEvent::Ended { thread, result } => {
                assert!(result.is_ok(), "{thread}: {result:?}");
                ended += 1;
            }
            RunEvent::Interrupted => unreachable!("no signal is caught"),
        }
        if ready == load_threads.thread_count() && started_ns.is_none() {
            let at_ns = start_ns(monotonic_ns());
            started_ns = Some(at_ns);
            control.start_at(at_ns);
        }
    }
    load_threads.join();
    let report = stub.stop().unwrap();
    let record = merger.finish(Ending {
        processes: 1,
        machine: probe.end(),
        ..Ending::default()
    });
    Outcome {
        record,
        report,
        start_ns: started_ns.unwrap(),
    }
}
