//! Pools where more is asked than the CPUs can do: loops share these, and refuse what would come too late.

use super::*;

/// What is asked of a server and what it takes, as means: each request the same.
#[derive(Clone, Copy)]
struct Overload {
    cpus: f64,
    /// What a request takes of a thread,
    compute_us: f64,
    /// and of a loop, whether it is refused or not.
    loop_us: f64,
    asked_per_s: f64,
    /// How long those wait that are not refused.
    wait_us: u64,
    connections: u64,
    keeps_connections: bool,
}

impl Overload {
    /// An interval with so many threads, all of which and the loop share the CPUs evenly.
    fn measured(&self, size: usize) -> Measured {
        let asked_cpus = self.asked_per_s * self.loop_us / 1e6;
        let loop_cpus = asked_cpus.min(self.cpus / (size as f64 + 1.0)).min(1.0);
        let read_per_s = loop_cpus * 1e6 / self.loop_us;
        let jobs_per_s = (self.cpus - loop_cpus) * 1e6 / self.compute_us;
        // Threads that have no job leave the CPUs to the loop.
        let balanced_per_s = self.cpus * 1e6 / (self.loop_us + self.compute_us);
        let (read_per_s, jobs_per_s) = match jobs_per_s > read_per_s {
            true => (balanced_per_s, balanced_per_s),
            false => (read_per_s, jobs_per_s),
        };
        let loop_runs = read_per_s * self.loop_us / 1e6;
        let loop_waits = match asked_cpus > loop_cpus {
            true => 1.0 - loop_runs, // it has more to do at any time
            false => (loop_runs * size as f64 / self.cpus).min(1.0 - loop_runs),
        };
        let in_interval = |per_s: f64| (per_s / 10.0) as u64;
        let jobs = in_interval(jobs_per_s);
        let cpu_us = in_interval(jobs_per_s * self.compute_us);
        let busy_us = 100_000 * size as u64;
        let queue_depth = (jobs_per_s * self.wait_us as f64 / 1e6) as usize;
        Measured {
            cpus: match self.keeps_connections {
                true => f64::INFINITY,
                false => self.cpus,
            },
            shared_cpus: self.cpus,
            jobs,
            answers: in_interval(read_per_s),
            waits: waits(jobs, self.wait_us),
            busy_us,
            cpu_us,
            others_cpu_us: in_interval(read_per_s * self.loop_us),
            ready_us: busy_us.saturating_sub(cpu_us),
            loops: 1,
            loops_cpu_us: in_interval(read_per_s * self.loop_us),
            loops_ready_us: in_interval(loop_waits * 1e6),
            connections: self.connections,
            busy_max: size,
            present_max: size + queue_depth,
            queue_depth,
            ..stuck(size, 0)
        }
    }
}

/// On one CPU, which can do 100 a second.
fn ten_ms(asked_per_s: f64) -> Overload {
    Overload {
        cpus: 1.0,
        compute_us: 10_000.0,
        loop_us: 30.0,
        asked_per_s,
        wait_us: 400_000,
        connections: 10_000,
        keeps_connections: true,
    }
}

const KEPT: Bounds = Bounds { min: 2, max: 256 };

/// The largest size in so many intervals.
fn most(sizer: &mut Sizer, intervals: usize, of: impl Fn(usize) -> Measured) -> usize {
    let sizes = (0..intervals).map(|_| sizer.decide(&of(sizer.size())).size);
    sizes.max().unwrap_or(0)
}

/// They went to more than a hundred, since what threads wait for that keep connections bounds them by no CPU.
#[test]
fn threads_that_keep_connections_stay_few_where_requests_compute() {
    for asked_per_s in [200.0, 1_000.0] {
        let overload = ten_ms(asked_per_s);
        let mut sizer = Sizer::new(KEPT, 2);
        let size = most(&mut sizer, 100, |size| overload.measured(size));
        assert!(size <= 4, "{size} for {asked_per_s}/s");
    }
}

#[test]
fn threads_that_keep_connections_stay_few_in_a_burst() {
    let overload = ten_ms(1_000.0);
    let mut sizer = Sizer::new(KEPT, 2);
    for _ in 0..3 {
        follow(&mut sizer, 15, |size| Measured {
            cpus: f64::INFINITY,
            shared_cpus: 1.0,
            ..nothing(size)
        });
        let size = most(&mut sizer, 20, |size| overload.measured(size));
        assert!(size <= 4, "{size}");
    }
}

#[test]
fn threads_that_keep_connections_become_few_when_requests_come_to_compute() {
    let overload = ten_ms(1_000.0);
    let mut sizer = Sizer::new(KEPT, 64);
    let size = follow(&mut sizer, 20, |size| overload.measured(size));
    assert!(size <= 4, "{size}");
}

/// It counted as one: under overload there were eight threads for each CPU.
#[test]
fn what_refusals_cost_loops_is_no_cost_of_jobs() {
    let useful = |answers| {
        let mut sample = Sample::default();
        sample.add(&Measured {
            jobs: 1_000,
            answers,
            busy_us: 100_000,
            cpu_us: 90_000,
            others_cpu_us: 9_000,
            ready_us: 10_000,
            ..stuck(1, 1)
        });
        sample.useful(1.0, 1.0)
    };
    assert_eq!(useful(1_000), 5.0);
    assert_eq!(useful(500), 5.0, "some jobs are no responses");
    assert_eq!(useful(0), 5.0, "it is not known");
    assert_eq!(useful(4_000), 2.0);
}

/// Twice what a CPU can do, of short requests that workers carry out.
const SHORT: Overload = Overload {
    cpus: 1.0,
    compute_us: 200.0,
    loop_us: 30.0,
    asked_per_s: 8_700.0,
    wait_us: 20_000,
    connections: 10_000,
    keeps_connections: false,
};

/// With eight of them the loop had a ninth of the CPU. It read and refused less, so that more requests were carried
/// out, but each of ten thousand clients waited for more than two seconds.
#[test]
fn workers_that_leave_a_loop_hardly_a_cpu_become_few() {
    for begins_with in [1, 2, 8, 20] {
        let mut sizer = Sizer::new(BOUNDS, begins_with);
        let size = follow(&mut sizer, 30, |size| SHORT.measured(size));
        assert!(size <= 3, "{size} after {begins_with}");
        let size = most(&mut sizer, 200, |size| SHORT.measured(size));
        assert!(size <= 3, "{size} later, after {begins_with}");
    }
}

/// They never wait long for the loop.
#[test]
fn before_few_clients_workers_may_have_the_cpu_first() {
    let few = Overload {
        connections: 64,
        ..SHORT
    };
    let mut sizer = Sizer::new(BOUNDS, 8);
    let size = follow(&mut sizer, 30, |size| few.measured(size));
    assert!(size > 3, "{size}");
}

/// An interval on one CPU in which 23 threads block at any time, and the loop has an eighth of the CPU.
fn blocking(size: usize) -> Measured {
    let busy_us = 100_000 * size as u64;
    Measured {
        cpus: 1.0,
        shared_cpus: 1.0,
        jobs: 400,
        answers: 400,
        waits: waits(400, 20_000),
        busy_us,
        cpu_us: 80_000,
        others_cpu_us: 12_000,
        ready_us: busy_us.saturating_sub(2_380_000),
        loops: 1,
        loops_cpu_us: 12_000,
        loops_ready_us: 88_000,
        connections: 10_000,
        ..stuck(size, 500)
    }
}

/// Those that block do so at random, and for how long is not known exactly: with none to spare, CPUs could idle.
#[test]
fn workers_that_block_keep_some_to_spare_where_a_loop_hardly_has_a_cpu() {
    let mut sizer = Sizer::new(BOUNDS, 60);
    let size = follow(&mut sizer, 20, blocking);
    assert!((35..50).contains(&size), "26 keep the CPU busy: {size}");
}

/// Sizes of a pool that keeps connections, and the responses of ten seconds; `shared_cpus` infinite: whatever the
/// CPUs can use.
fn kept(load: &Asked, shared_cpus: f64) -> (Vec<usize>, usize) {
    let mut sizer = Sizer::new(KEPT, 2);
    let mut world = World::new(MACHINE, load.clone(), sizer.size(), 7);
    let mut sizes = Vec::new();
    for interval in 1..=100_u32 {
        world.run_until(f64::from(interval) * INTERVAL_MS as f64 * 1000.0);
        let decision = sizer.decide(&Measured {
            cpus: f64::INFINITY,
            shared_cpus,
            ..world.measure()
        });
        world.set_size(decision.size);
        sizes.push(decision.size);
    }
    (sizes, world.take_responses_us().len())
}

#[test]
fn threads_that_keep_connections_are_as_many_as_requests_that_sleep() {
    for sleep_us in [10_000.0, 100_000.0] {
        let load = asked(Phase::Sleep(sleep_us), closed(40));
        let (sizes, _) = kept(&load, 2.0);
        assert_eq!(sizes, kept(&load, f64::INFINITY).0, "{sleep_us}");
        assert!(sizes[99] >= 40, "{}", sizes[99]);
    }
}

#[test]
fn threads_that_keep_connections_are_enough_where_some_requests_sleep() {
    let mut load = asked(Phase::Compute(1000.0), closed(200));
    load.kinds.push(Kind {
        phases: [Phase::Sleep(10_000.0), Phase::Nothing, Phase::Nothing],
        ..load.kinds[0].clone()
    });
    let (sizes, responses) = kept(&load, 2.0);
    let (_, unbounded) = kept(&load, f64::INFINITY);
    let share = responses as f64 / unbounded as f64;
    assert!(share > 0.9, "{share}");
    let most = sizes.iter().max();
    assert!(most < Some(&64), "{most:?}");
}
