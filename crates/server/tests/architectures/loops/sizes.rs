//! Pools of workers that change their size.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use loadline_server::{Architecture, Queue, Role, ServerOptions, SizeRange};
use loadline_sys::affinity::cpu_budget;
use loadline_sys::usage::process_cpu;

use super::util::*;
use super::workers::ask_at_random;

on_loops! {
    a_pool_grows_for_handlers_that_sleep_and_shrinks_when_it_has_nothing_to_do,
    a_pool_grows_while_all_of_its_workers_are_stuck,
    workers_that_compute_become_hardly_more_than_cpus,
    nothing_is_lost_while_a_pool_changes_its_size,
    a_drain_ends_workers_that_came_later,
    a_worker_counts_as_memory_while_it_is_there,
}

/// Twenty times as often as usual, so that ten seconds are half of one.
const INTERVAL: Duration = Duration::from_millis(5);

fn resized(architecture: Architecture, loops: usize, max: usize, queue: Queue) -> Server {
    start(ServerOptions {
        workers_range: Some(SizeRange { min: 2, max }),
        sizing_interval: INTERVAL,
        queue,
        ..options(architecture, loops, 2)
    })
}

fn workers(server: &Server) -> usize {
    server.handle.snapshot().threads(Role::Worker)
}

/// Clients that ask for one path again and again, until `is_enough` returns or fails.
fn while_asked(server: &Server, clients: usize, path: &str, is_enough: impl FnOnce()) {
    struct Over<'o>(&'o AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = server.connect();
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(client.get(path).status, 200);
                }
            });
        }
        is_enough();
    });
}

fn a_pool_grows_for_handlers_that_sleep_and_shrinks_when_it_has_nothing_to_do(
    architecture: Architecture,
) {
    for queue in Queue::ALL {
        let server = resized(architecture, 1, 32, *queue);
        assert_eq!(workers(&server), 2);
        while_asked(&server, 12, "/nap", || eventually(|| workers(&server) >= 8));
        eventually(|| workers(&server) == 2);
        assert_eq!(server.connect().get("/nap").status, 200);
        assert!(server.end().is_clean());
    }
}

fn a_pool_grows_while_all_of_its_workers_are_stuck(architecture: Architecture) {
    let server = resized(architecture, 1, 8, Queue::Shared);
    let mut stuck: Vec<_> = (0..4).map(|_| server.connect()).collect();
    stuck.iter_mut().for_each(|client| client.ask("/gate"));
    server.handler.gate.await_waiting(4);
    assert_eq!(server.connect().get("/blocking").status, 200);
    server.handler.gate.open();
    for client in &mut stuck {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    assert!(server.end().is_clean());
}

/// `./x test` runs it behind the other tests (`xtask/src/programs.rs`), since it counts their CPU time as its own.
fn workers_that_compute_become_hardly_more_than_cpus(architecture: Architecture) {
    let _turn = one_at_a_time();
    // In intervals of some ms, a thread that waits for a CPU cannot be distinguished from one that is blocked.
    let cpus = cpu_budget().cpus();
    let max = 16 * cpus;
    let server = start(ServerOptions {
        workers_range: Some(SizeRange { min: 2, max }),
        ..options(architecture, 1, 8 * cpus)
    });
    // More for a moment are no failure: where others take CPUs away, that may look like blocking.
    let is_right = || workers(&server) <= 2 * cpus && server.total().jobs >= 300;
    while_asked(&server, 8 * cpus, "/compute-long", || {
        let neighbours = Neighbours::begin();
        let began = Instant::now();
        while !is_right() && began.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (share, workers) = (neighbours.share(), workers(&server));
        if share > NEIGHBOURS_MAX {
            // Beside them more threads have more of the CPUs: the pool is right to keep them.
            let message = format!(
                "\nworkers that compute: SKIPPED, the machine disturbed: {:.0} % of the CPUs were others'\n",
                share * 100.0
            );
            let _ = std::io::stderr().write_all(message.as_bytes()); // past the test's capture
        } else {
            assert!(
                is_right(),
                "{workers} workers; {share:.2} of the CPUs were others'"
            );
        }
    });
    assert!(server.end().is_clean());
}

/// What other processes than this one use of the CPUs.
struct Neighbours {
    began: Instant,
    busy: Duration,
    own: Duration,
}

/// Where they use more, the pool does not see that its threads use all that there is.
const NEIGHBOURS_MAX: f64 = 0.1;

impl Neighbours {
    fn begin() -> Self {
        Self {
            began: Instant::now(),
            busy: Self::busy(),
            own: process_cpu(),
        }
    }

    /// Of the time of all CPUs.
    fn share(&self) -> f64 {
        let others = (Self::busy() - self.busy).saturating_sub(process_cpu() - self.own);
        let cpus = std::thread::available_parallelism().unwrap().get() as f64;
        others.as_secs_f64() / (self.began.elapsed().as_secs_f64() * cpus)
    }

    /// The time of all CPUs in which they were not idle, other machines' use of them included.
    fn busy() -> Duration {
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        let numbers = text.lines().next().unwrap().split_whitespace().skip(1);
        let ticks: Vec<u64> = numbers.map(|it| it.parse().unwrap()).collect();
        let idle = ticks[3] + ticks[4];
        Duration::from_millis((ticks[..8].iter().sum::<u64>() - idle) * 10)
    }
}

fn nothing_is_lost_while_a_pool_changes_its_size(architecture: Architecture) {
    for queue in Queue::ALL {
        let server = start(ServerOptions {
            workers_range: Some(SizeRange { min: 1, max: 16 }),
            sizing_interval: Duration::from_millis(1),
            queue: *queue,
            ..options(architecture, 2, 3)
        });
        server.handler.gate.open();
        let answers: u64 = std::thread::scope(|scope| {
            let ask = |seed| {
                let server = &server;
                scope.spawn(move || ask_at_random(server, seed, false))
            };
            let clients: Vec<_> = (0..12).map(ask).collect();
            let counts = clients.into_iter().map(|client| client.join().unwrap());
            counts.sum()
        });
        assert_eq!(server.total().requests(), answers);
        eventually(|| server.total().queue_depth == 0);
        assert!(server.end().is_clean());
    }
}

fn a_drain_ends_workers_that_came_later(architecture: Architecture) {
    let server = resized(architecture, 1, 16, Queue::Shared);
    let mut stuck: Vec<_> = (0..6).map(|_| server.connect()).collect();
    stuck.iter_mut().for_each(|client| client.ask("/gate"));
    server.handler.gate.await_waiting(6);
    server.handle.drain();
    server.handler.gate.open();
    for client in &mut stuck {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    assert!(server.end().is_clean());
}

fn a_worker_counts_as_memory_while_it_is_there(architecture: Architecture) {
    const WORKER_BYTES: u64 = 64 << 10; // its read buffer alone
    let server = resized(architecture, 1, 16, Queue::Shared);
    let used = || server.handle.snapshot().memory_used_bytes;
    let before = used();
    assert!(before >= 2 * WORKER_BYTES);
    let mut stuck: Vec<_> = (0..8).map(|_| server.connect()).collect();
    stuck.iter_mut().for_each(|client| client.ask("/gate"));
    server.handler.gate.await_waiting(8);
    assert!(used() >= before + 6 * WORKER_BYTES);
    server.handler.gate.open();
    for client in &mut stuck {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    drop(stuck);
    eventually(|| workers(&server) == 2 && used() < before + WORKER_BYTES);
    assert!(server.end().is_clean());
}
