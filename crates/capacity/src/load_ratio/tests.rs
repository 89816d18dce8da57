//! The estimate against simulated servers whose limit is known in closed form.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::*;

const GOAL: Goal = Goal {
    latency_s: 0.1,
    share: 0.99,
};

const LONG: Goal = Goal {
    latency_s: 1.0,
    share: 0.99,
};

const WINDOWS: usize = 30;

/// Without apps.
fn estimate(
    stations: &[Station],
    windows: &[Window],
    goal: Goal,
    known_s: Option<&[f64]>,
) -> Option<LoadRatio> {
    let server = Server {
        stations,
        apps: &[],
        goal,
    };
    super::estimate(server, windows, known_s)
}

/// How long a service takes.
#[derive(Clone, Copy)]
enum Service {
    Exponential(f64),
    Fixed(f64),
}

impl Service {
    fn draw(self, rng: &mut Pcg64Mcg) -> f64 {
        match self {
            Self::Exponential(mean) => exponential(mean, rng),
            Self::Fixed(time) => time,
        }
    }
}

fn exponential(mean: f64, rng: &mut Pcg64Mcg) -> f64 {
    -mean * (1.0 - rng.random::<f64>()).ln()
}

/// Windows of a second of a server of `servers` equal servers with one queue, Poisson arrivals.
fn simulate(servers: usize, service: Service, rate: f64, rng: &mut Pcg64Mcg) -> Vec<Window> {
    let empty = Window {
        seconds: 1.0,
        busy_s: vec![0.0],
        server_s: vec![servers as f64],
        ..Window::default()
    };
    let mut windows = vec![empty; WINDOWS];
    let mut free_at = vec![0.0_f64; servers];
    let mut now = 0.0;
    while now < WINDOWS as f64 {
        now += exponential(1.0 / rate, rng);
        let first = free_at.iter_mut().min_by(|a, b| a.total_cmp(b)).unwrap();
        let begin = now.max(*first);
        *first = begin + service.draw(rng);
        if let Some(window) = windows.get_mut(*first as usize) {
            window.served += 1.0;
        }
        let touched = begin as usize..=*first as usize;
        for (second, window) in windows.iter_mut().enumerate().skip(begin as usize) {
            if !touched.contains(&second) {
                break;
            }
            let (from, to) = (second as f64, second as f64 + 1.0);
            window.busy_s[0] += (first.min(to) - begin.max(from)).max(0.0);
        }
    }
    windows
}

/// The highest rate at which `share` of the responses of an M/M/c queue come within the goal.
fn rate_of_mmc(servers: usize, mean: f64, goal: Goal) -> f64 {
    let (c, mu) = (servers as f64, 1.0 / mean);
    let late = |rate: f64| {
        let a = rate * mean;
        let spare = c - 1.0 - a;
        let t = mu * goal.latency_s;
        (-t).exp() * (1.0 + erlang_c(c, a) * (1.0 - (-t * spare).exp()) / spare)
    };
    let (mut low, mut high) = (0.0, c * mu * 0.999_999);
    for _ in 0..60 {
        let middle = (low + high) / 2.0 + 1e-9; // not where the formula divides by zero
        match late(middle) > 1.0 - goal.share {
            true => high = middle,
            false => low = middle,
        }
    }
    low
}

fn station(servers: usize, scv: f64) -> Station {
    let servers = servers as f64;
    Station { servers, scv }
}

fn rng(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::new(u128::from(seed) << 64 | 0xcafe_f00d_d15e_a5e5)
}

#[test]
fn erlang_c_as_tables_have_it() {
    for (servers, offered, expected) in [(1.0, 0.5, 0.5), (2.0, 1.0, 1.0 / 3.0), (5.0, 4.0, 0.5541)]
    {
        let share = erlang_c(servers, offered);
        assert!((share - expected).abs() < 1e-4, "{servers}: {share}");
    }
}

#[test]
fn the_ratio_of_an_mmc_queue_is_within_a_tenth_of_the_truth() {
    let mean = 0.004;
    for servers in [1, 2, 8] {
        let capacity = rate_of_mmc(servers, mean, GOAL);
        for load in [0.3, 0.5, 0.7, 0.9] {
            for seed in 0..20 {
                let rate = load * capacity;
                let windows = simulate(servers, Service::Exponential(mean), rate, &mut rng(seed));
                let found = estimate(&[station(servers, 1.0)], &windows, GOAL, None).unwrap();
                let error = found.ratio / load - 1.0;
                assert!(
                    error.abs() < 0.1,
                    "{servers} servers at {load}, seed {seed}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn equal_services_wait_half_as_long() {
    let (servers, time) = (2, 0.004);
    for load in [0.3, 0.6, 0.9] {
        // A goal that is far longer than the service is kept almost until all servers are busy.
        let rate = load * servers as f64 / time;
        let windows = simulate(servers, Service::Fixed(time), rate, &mut rng(1));
        let found = estimate(&[station(servers, 0.0)], &windows, GOAL, None).unwrap();
        assert!((found.ratio / load - 1.0).abs() < 0.1, "{found:?}");
        let same = estimate(&[station(servers, 1.0)], &windows, GOAL, None).unwrap();
        let capacity = same.capacity_per_s;
        assert!(found.capacity_per_s > capacity, "{found:?} and {capacity}");
    }
}

#[test]
fn the_interval_holds_the_truth_as_often_as_it_says() {
    let (servers, mean, load) = (2, 0.004, 0.6);
    let rate = load * rate_of_mmc(servers, mean, GOAL);
    let runs = 300;
    let held = (0..runs).filter(|seed| {
        let windows = simulate(servers, Service::Exponential(mean), rate, &mut rng(*seed));
        let found = estimate(&[station(servers, 1.0)], &windows, GOAL, None).unwrap();
        let interval = found.interval.unwrap();
        assert!(interval.contains(found.ratio), "{found:?}");
        interval.contains(load)
    });
    let held = held.count() as f64 / runs as f64;
    assert!((0.88..=0.99).contains(&held), "{held}");
}

#[test]
fn the_narrowest_station_is_the_limit_and_what_is_refused_is_load() {
    let stations = [station(4, 1.0), station(2, 1.0)];
    let window = Window {
        seconds: 1.0,
        served: 100.0,
        others: 0.0,
        refused: 100.0,
        late: 0.0,
        busy_s: vec![1.0, 1.0],
        server_s: vec![2.0, 2.0], // the first can get twice as large
        apps: Vec::new(),
    };
    let none = Goal {
        latency_s: f64::INFINITY,
        share: 0.99,
    };
    let found = estimate(&stations, std::slice::from_ref(&window), none, None).unwrap();
    assert_eq!(found.limit, Some(1));
    assert_eq!(found.demands_s, [0.01, 0.01]);
    assert_eq!(found.utilisations, [0.5, 0.5]);
    assert!((found.capacity_per_s - 200.0).abs() < 1.0, "{found:?}");
    assert!((found.ratio - 1.0).abs() < 0.01, "{found:?}");
    assert!(found.interval.is_none());
    assert!(estimate(&stations, &[], none, None).is_none());
    assert!(estimate(&stations, &[Window::default()], none, None).is_none());
}

/// Two servers that are always busy, and as many requests refused as served: 100 a second.
fn overloaded() -> Window {
    Window {
        seconds: 1.0,
        served: 100.0,
        others: 0.0,
        refused: 100.0,
        late: 0.0,
        busy_s: vec![2.0],
        server_s: vec![2.0],
        apps: Vec::new(),
    }
}

#[test]
fn a_demand_beyond_the_goal_is_a_ratio_above_one() {
    let tight = Goal {
        latency_s: 0.015,
        ..GOAL
    };
    let windows = vec![overloaded(); 4];
    let found = estimate(&[station(2, 1.0)], &windows, tight, None).unwrap();
    // By Erlang's C: of 10.4 requests a second one in a hundred waits for more than 7.5 ms.
    assert!((found.capacity_per_s - 10.4).abs() < 0.05, "{found:?}");
    assert!((found.ratio - 19.2).abs() < 0.1, "{found:?}");
    assert!(found.interval.is_some_and(|it| it.low > 19.0), "{found:?}");
}

/// It vanished as the demand came near the goal, and was all that the servers can do beyond it.
#[test]
fn the_load_that_can_be_carried_falls_steadily_with_the_demand() {
    for servers in [1, 2, 4, 8] {
        let rate_max = |demand_s| station(servers, 1.0).rate_max(demand_s, GOAL);
        let goal_s = GOAL.latency_s;
        let (below, beyond) = (rate_max(0.999 * goal_s), rate_max(1.001 * goal_s));
        assert!((below / beyond - 1.0).abs() < 0.02, "{below} and {beyond}");
        let mut last = f64::INFINITY;
        for percent in 1..400 {
            let demand_s = f64::from(percent) / 100.0 * goal_s;
            let offered = rate_max(demand_s) * demand_s;
            assert!(
                offered <= last + 1e-9,
                "{servers} at {demand_s} s: {offered}"
            );
            last = offered;
        }
    }
}

#[test]
fn what_serves_nothing_and_refuses_is_overloaded() {
    let nothing = Window {
        served: 0.0,
        refused: 300.0,
        ..overloaded()
    };
    let windows = vec![nothing; 4];
    let stations = [station(2, 1.0)];
    assert!(estimate(&stations, &windows, GOAL, None).is_none());
    let found = estimate(&stations, &windows, GOAL, Some(&[0.02])).unwrap();
    assert_eq!(found.demands_s, [0.02]);
    assert!(found.capacity_per_s < 100.0, "{found:?}");
    assert!(found.ratio > 3.0, "{found:?}");
    assert!(found.interval.is_some_and(|it| it.low > 3.0), "{found:?}");
}

/// It was 0 while requests were under way that take longer than is looked at.
#[test]
fn what_is_busy_and_ends_nothing_is_loaded() {
    let nothing = Window {
        served: 0.0,
        others: 1.0, // the page that says so
        refused: 0.0,
        ..overloaded()
    };
    let windows = vec![nothing; 4];
    let found = estimate(&[station(2, 1.0)], &windows, GOAL, Some(&[0.02])).unwrap();
    assert_eq!(found.demands_s, [0.02]);
    assert!((0.9..2.0).contains(&found.ratio), "{found:?}");
    assert!(found.interval.is_some_and(|it| it.low > 0.9), "{found:?}");
}

/// The status page of another listener takes CPU time, of which requests need next to nothing.
#[test]
fn a_station_that_is_hardly_used_is_no_load_for_a_narrow_one() {
    let stations = [station(2, 1.0), station(4, 1.0)];
    let window = Window {
        seconds: 1.0,
        busy_s: vec![0.0, 0.01],
        server_s: vec![2.0, 4.0],
        ..Window::default()
    };
    let windows = vec![window; 4];
    let found = estimate(&stations, &windows, GOAL, Some(&[0.05, 0.0001])).unwrap();
    assert_eq!(found.limit, Some(0));
    assert!((0.001..0.01).contains(&found.ratio), "{found:?}");
}

#[test]
fn nothing_is_zero() {
    let nothing = Window {
        seconds: 1.0,
        busy_s: vec![0.0],
        server_s: vec![2.0],
        ..Window::default()
    };
    let windows = vec![nothing; 4];
    let found = estimate(&[station(2, 1.0)], &windows, GOAL, Some(&[0.02])).unwrap();
    let interval = found.interval.unwrap();
    assert_eq!((found.ratio, interval.low, interval.high), (0.0, 0.0, 0.0));
    assert!(found.capacity_per_s > 0.0, "{found:?}");
}

/// Leaving out the only window with requests left no ratio, and so no interval.
#[test]
fn one_window_with_requests_among_others_has_an_interval() {
    let nothing = Window {
        served: 0.0,
        refused: 0.0,
        busy_s: vec![0.0],
        ..overloaded()
    };
    let windows = [nothing.clone(), overloaded(), nothing];
    let found = estimate(&[station(2, 1.0)], &windows, GOAL, None).unwrap();
    let interval = found.interval.unwrap();
    assert!(interval.contains(found.ratio), "{found:?}");
}

/// A second of an app with a capacity of 200 requests, in which so many were served and refused as late. The loop,
/// its only station, could carry some 2,000.
fn second_of_app(served: f64, late: f64) -> Window {
    Window {
        seconds: 1.0,
        served,
        refused: late,
        late,
        busy_s: vec![served * 0.0005],
        server_s: vec![1.0],
        ..Window::default()
    }
}

fn estimate_of_app(seconds: &[Window]) -> LoadRatio {
    estimate(&[station(1, 1.0)], seconds, GOAL, None).unwrap()
}

/// The ratio was 0.2 there.
#[test]
fn where_requests_are_late_the_capacity_is_at_most_what_was_served() {
    let all = vec![second_of_app(200.0, 200.0); WINDOWS];
    let found = estimate_of_app(&all);
    assert!((found.capacity_per_s - 200.0).abs() < 1e-9, "{found:?}");
    assert!((found.ratio - 2.0).abs() < 1e-9, "{found:?}");
    assert_eq!(found.limit, None);
    assert!(found.interval.is_some_and(|it| it.low > 1.9), "{found:?}");
    // One reading is enough.
    let found = estimate_of_app(&all[..1]);
    assert!((found.ratio - 2.0).abs() < 1e-9, "{found:?}");
}

#[test]
fn after_an_overload_the_capacity_is_what_was_served_in_it() {
    let overload = vec![second_of_app(200.0, 200.0); WINDOWS / 2];
    let after = vec![second_of_app(50.0, 0.0); WINDOWS / 2];
    let found = estimate_of_app(&[overload, after].concat());
    assert!((found.capacity_per_s - 200.0).abs() < 1e-9, "{found:?}");
    assert!((found.ratio - 1.125).abs() < 1e-9, "{found:?}");
    let interval = found.interval.unwrap();
    assert!(interval.contains(found.ratio), "{found:?}");
}

/// What was served in the second of the burst counts: by the mean of all seconds the ratio would be above 1.
#[test]
fn a_burst_that_is_carried_on_average_is_no_overload() {
    let mut all = vec![second_of_app(20.0, 0.0); WINDOWS];
    all[7] = second_of_app(120.0, 180.0);
    let found = estimate_of_app(&all);
    assert!((0.1..0.5).contains(&found.ratio), "{found:?}");
}

#[test]
fn a_few_late_requests_do_not_bound_the_capacity() {
    let mut few = vec![second_of_app(2.0, 0.0); WINDOWS];
    few[3] = second_of_app(1.0, LATE_MIN - 1.0);
    // Fewer than the goal allows, however many they are.
    let mut rare = vec![second_of_app(200.0, 0.0); WINDOWS];
    rare[3] = second_of_app(150.0, 50.0);
    for seconds in [few, rare] {
        let found = estimate_of_app(&seconds);
        assert!(found.capacity_per_s > 1_000.0, "{found:?}");
        assert!(found.ratio < 0.2, "{found:?}");
        assert_eq!(found.limit, Some(0));
    }
}

/// Two workers that were busy for nine tenths of the time.
#[test]
fn a_busy_station_stays_the_limit_where_requests_are_late() {
    let over = Window {
        served: 190.0,
        refused: 190.0,
        late: 190.0,
        busy_s: vec![1.8],
        ..overloaded()
    };
    let windows = vec![over; 4];
    let found = estimate(&[station(2, 1.0)], &windows, LONG, None).unwrap();
    assert_eq!(found.limit, Some(0));
    assert!((found.capacity_per_s - 190.0).abs() < 1e-9, "{found:?}");
    assert!((found.ratio - 2.0).abs() < 1e-9, "{found:?}");
}

#[test]
fn late_requests_where_nothing_is_served_say_nothing_of_the_capacity() {
    let nothing = Window {
        served: 0.0,
        refused: 300.0,
        late: 300.0,
        ..overloaded()
    };
    let windows = vec![nothing; 4];
    let found = estimate(&[station(2, 1.0)], &windows, GOAL, Some(&[0.02])).unwrap();
    assert!((3.0..10.0).contains(&found.ratio), "{found:?}");
}

/// A second in which apps answered so many requests, and so many were refused for each.
fn second_of_apps(apps: &[(f64, f64)]) -> Window {
    let counts = apps.iter().map(|(answered, refused)| AppCounts {
        answered: *answered,
        refused: *refused,
    });
    let served: f64 = apps.iter().map(|(answered, _)| answered).sum();
    let late: f64 = apps.iter().map(|(_, refused)| refused).sum();
    Window {
        apps: counts.collect(),
        ..second_of_app(served, late)
    }
}

fn estimate_with(apps: &[Option<AppQueue>], windows: &[Window]) -> LoadRatio {
    let server = Server {
        stations: &[station(1, 1.0)],
        apps,
        goal: LONG,
    };
    super::estimate(server, windows, None).unwrap()
}

/// So many answers in so many seconds in which requests waited.
fn measured(seconds: f64, answers: f64) -> Option<AppQueue> {
    AppQueue::measured(seconds, answers)
}

/// An app that has two requests at a time, each for 10 ms.
#[test]
fn an_app_that_is_known_to_be_a_queue_is_a_station() {
    for level in [0.3, 0.5, 0.7, 0.9] {
        for seed in 0..10 {
            let seconds = simulate(2, Service::Fixed(0.01), level * 200.0, &mut rng(seed));
            let answered: f64 = seconds.iter().map(|second| second.served).sum();
            let truth = answered / WINDOWS as f64 / 200.0;
            let seconds = seconds.iter().map(|it| second_of_apps(&[(it.served, 0.0)]));
            let seconds: Vec<Window> = seconds.collect();
            let found = estimate_with(&[measured(5.0, 1_000.0)], &seconds);
            let what = format!("{level} {seed}: {found:?}, in truth {truth}");
            assert!((found.ratio / truth - 1.0).abs() < 0.1, "{what}");
            assert_eq!(found.limit, Some(1), "{what}");
            assert!((found.apps[0].utilisation - truth).abs() < 1e-9, "{what}");
            let interval = found.interval.unwrap();
            assert!(interval.contains(truth), "{what}");
            assert!(interval.high - interval.low > 0.2 * found.ratio, "{what}");
            // One that only sleeps has answered as many.
            let found = estimate_with(&[None], &seconds);
            assert_eq!((found.limit, found.apps.len()), (Some(0), 0), "{found:?}");
            assert!(found.ratio < 0.15, "{found:?}");
        }
    }
}

#[test]
fn of_several_apps_the_one_that_is_used_most_is_the_limit() {
    let apps = [None, measured(5.0, 1_000.0), measured(1.0, 1_000.0), None];
    let calm = vec![second_of_apps(&[(0.0, 0.0), (40.0, 0.0), (600.0, 0.0)]); 4];
    let found = estimate_with(&apps, &calm);
    // By Erlang's C: of 995.4 requests a second one in a hundred waits for a second.
    assert!((found.ratio - 0.6028).abs() < 0.001, "{found:?}");
    assert!((found.capacity_per_s - 1_061.8).abs() < 2.0, "{found:?}");
    assert_eq!(found.limit, Some(3));
    let apps_found = found.apps.iter().map(|app| (app.index, app.demand_s));
    assert_eq!(apps_found.collect::<Vec<_>>(), [(1, 0.005), (2, 0.001)]);
    // The other one refuses: what is refused for it is its load alone.
    let over = vec![second_of_apps(&[(0.0, 0.0), (40.0, 300.0), (600.0, 0.0)]); 4];
    let found = estimate_with(&apps, &over);
    assert_eq!(found.limit, Some(2));
    assert!((1.7..1.8).contains(&found.ratio), "{found:?}");
}

#[test]
fn the_interval_is_as_wide_as_what_is_known_of_the_app() {
    let windows = vec![second_of_apps(&[(100.0, 0.0)]); 4];
    let of = |answers: f64| {
        let app = measured(answers / 200.0, answers).unwrap();
        let found = estimate_with(&[Some(app)], &windows);
        let interval = found.interval.unwrap();
        let half = (interval.high - interval.low) / 2.0;
        assert!((half / found.ratio - app.error).abs() < 1e-6, "{found:?}");
        half
    };
    assert!(of(100.0) > 1.5 * of(1_600.0));
    assert_eq!(measured(1.0, 31.0), None);
    assert_eq!(measured(0.0, 1_000.0), None);
}

#[test]
fn an_app_that_explains_why_requests_are_late_stays_the_limit() {
    let windows = vec![second_of_apps(&[(200.0, 200.0)]); WINDOWS];
    let found = estimate_with(&[measured(10.0, 2_000.0)], &windows);
    assert_eq!(found.limit, Some(1));
    assert!((1.95..2.1).contains(&found.ratio), "{found:?}");
}
