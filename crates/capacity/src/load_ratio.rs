//! How far the present load is from what a server can carry at its latency goal, estimated from what
//! the server measures while it serves. Nothing is loaded for it.
//!
//! A server is a row of **stations** that each request visits: a loop, the worker slots, all CPUs. In a
//! window of time each was busy for so many server-seconds, and so many requests ended: their quotient
//! is the **demand** of the station (the service demand law). From the demand follows the rate at which
//! the station would keep the goal: with Poisson arrivals, `c` servers and a wait of
//!
//! ```text
//!   P(wait > t) = C(c, a) exp(-(c - a) t / (S (1 + scv) / 2))      a = rate * S
//! ```
//!
//! (Erlang's C; exact for exponential service, Allen and Cunneen's approximation for others), the
//! highest rate whose share of late requests is what the goal allows. The lowest of these rates is what
//! the server can carry; the ratio is the present rate, with what was refused, divided by it.
//!
//! The server's own pages are load as requests are, since nothing tells the busy times of the two apart.
//! Requests that take longer than half of the goal may wait for half of it, as before the server's workers.
//! While nothing is served, requests are taken to need what those before did, and as many of them to be
//! under way as the busy time is enough for; the station with the highest ratio counts.
//!
//! Requests may also wait at no station: within an app, for a lock or a database. Where such waits are known to be
//! those of a queue, the app is one more station ([`AppQueue`]). Where not, they show by what is refused for them:
//! where more requests are refused as late than the goal allows, the server can carry no more than it served
//! meanwhile.
//!
//! It is an extrapolation: it takes the demand at the limit to be what it is now. What waits together
//! (a batch, a burst) is served better or worse than that.

use crate::stats::{Interval, LEVEL, mean_interval};

/// Blocks of windows of which each is left out once for the interval.
const BLOCKS_MAX: usize = 10;

/// An app that is a queue, whose times are taken to be exponential.
const APP: Station = Station {
    servers: 1.0,
    scv: 1.0,
};

/// Stations with more servers queue only where they are all but full.
const ERLANG_SERVERS_MAX: f64 = 256.0;

/// Fewer late requests say nothing of the capacity: a pause of the machine can be the reason.
const LATE_MIN: f64 = 10.0;

/// A queue within an app is not known before it has given so many answers while others waited.
const APP_ANSWERS_MIN: f64 = 32.0;

/// What is known of it is not more precise than this, relatively, however many answers there were.
const APP_ERROR_MIN: f64 = 0.05;

/// A station is the limit if what was served while requests were refused is so much of what it can carry.
const EXPLAINED_MIN: f64 = 0.8;

/// A place where requests wait for one of some equal servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// How many can serve at once; CPUs by a quota may be a fraction. Of a pool that grows with the load
    /// there may be fewer now.
    pub servers: f64,
    /// The squared coefficient of variation of service times: 1 for exponential ones, 0 for equal ones.
    pub scv: f64,
}

/// An app within which requests wait for each other: one server, of which each of them needs the same time on
/// average, and which varies as exponential times do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppQueue {
    /// What each request costs the next one.
    pub each_s: f64,
    /// Half of the width of its interval at 95 %, relatively.
    pub error: f64,
}

impl AppQueue {
    /// By so many answers in a time in which others waited; `None` if these are too few.
    #[must_use]
    pub fn measured(seconds: f64, answers: f64) -> Option<Self> {
        let is_known = seconds > 0.0 && answers >= APP_ANSWERS_MIN;
        is_known.then(|| Self {
            each_s: seconds / answers,
            // Two standard errors, as of exponential times: of others it is less.
            error: APP_ERROR_MIN + 2.0 / answers.sqrt(),
        })
    }
}

/// What an app did between two moments with the requests that waited within it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AppCounts {
    /// Requests that it answered.
    pub answered: f64,
    /// Requests that were refused, since they would have waited in it for too long.
    pub refused: f64,
}

/// The present load of an app.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppLoad {
    /// Which app.
    pub index: usize,
    /// What each of its requests that wait costs.
    pub demand_s: f64,
    /// The share of the app that is used.
    pub utilisation: f64,
}

/// What is known of a server beside what it counts.
#[derive(Clone, Copy, Debug)]
pub struct Server<'a> {
    /// Its stations.
    pub stations: &'a [Station],
    /// Its apps; `None`: it is not known that requests wait for each other in it.
    pub apps: &'a [Option<AppQueue>],
    /// What is promised.
    pub goal: Goal,
}

/// What was counted between two moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Its length.
    pub seconds: f64,
    /// Requests that were served.
    pub served: f64,
    /// Other answers that belong to the busy time: the server's own pages.
    pub others: f64,
    /// Requests that were refused for want of capacity.
    pub refused: f64,
    /// Of these, the ones that would have come too late for the goal.
    pub late: f64,
    /// Server-seconds for which each station was busy.
    pub busy_s: Vec<f64>,
    /// Server-seconds that each station had.
    pub server_s: Vec<f64>,
    /// What each app did with the requests that waited within it.
    pub apps: Vec<AppCounts>,
}

impl Window {
    /// Server-seconds of each station for each of so many requests.
    fn demands_s(&self, requests: f64) -> Vec<f64> {
        self.busy_s.iter().map(|busy| busy / requests).collect()
    }

    /// How many requests of these demands the busy time of each station is enough for.
    fn served_by(&self, demands_s: &[f64]) -> Vec<f64> {
        let stations = self.busy_s.iter().zip(demands_s);
        let served = stations.map(|(busy, demand)| match *demand > 0.0 {
            true => busy / demand,
            false => 0.0,
        });
        served.collect()
    }
}

/// What is promised of latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The latency; `f64::INFINITY` if nothing is promised.
    pub latency_s: f64,
    /// The share of requests within it.
    pub share: f64,
}

/// The present load beside what can be carried.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadRatio {
    /// Present rate by capacity: 1 is the load line.
    pub ratio: f64,
    /// Its interval; `None` from a single window.
    pub interval: Option<Interval>,
    /// The rate that can be carried, in requests a second.
    pub capacity_per_s: f64,
    /// The station that limits it; behind the stations the apps are numbered. `None`: a wait at none of them.
    pub limit: Option<usize>,
    /// Server-seconds that a request takes of each station.
    pub demands_s: Vec<f64>,
    /// The share of each station, as large as it was, that was busy.
    pub utilisations: Vec<f64>,
    /// Those apps that are known to be queues.
    pub apps: Vec<AppLoad>,
}

/// The estimate; `None` where nothing was answered and nothing is known. `known_s`: the demands of an earlier
/// estimate, which hold while nothing is served.
#[must_use]
pub fn estimate(
    server: Server<'_>,
    windows: &[Window],
    known_s: Option<&[f64]>,
) -> Option<LoadRatio> {
    let all = sum(server.stations.len(), windows);
    let carried_per_s = carried_per_s(windows, server.goal);
    let estimate = of_window(server, &all, known_s)?;
    let mut estimate = estimate.at_most(carried_per_s, &all);
    estimate.interval = interval(server, windows, &estimate, carried_per_s);
    Some(estimate)
}

/// What was answered a second in those windows in which more requests were late than the goal allows. `None` unless
/// that holds for all windows together, too.
fn carried_per_s(windows: &[Window], goal: Goal) -> Option<f64> {
    let is_over = |it: &Window| it.late > (1.0 - goal.share) * (it.served + it.late);
    let all = sum(0, windows);
    let over = sum(0, windows.iter().filter(|window| is_over(window)));
    let is_known = all.late >= LATE_MIN && is_over(&all) && over.served > 0.0;
    is_known.then_some((over.served + over.others) / over.seconds)
}

/// By stations and apps.
fn of_window(server: Server<'_>, window: &Window, known_s: Option<&[f64]>) -> Option<LoadRatio> {
    let Server { stations, goal, .. } = server;
    if window.seconds <= 0.0 {
        return None;
    }
    let answers = window.served + window.others;
    let (served, demands_s) = match known_s {
        Some(known_s) if window.served <= 0.0 => (window.served_by(known_s), known_s.to_vec()),
        _ if answers > 0.0 => (vec![answers; stations.len()], window.demands_s(answers)),
        _ => return None,
    };
    let rates = stations.iter().zip(&demands_s);
    let rates = rates.map(|(station, demand)| station.rate_max(*demand, goal));
    let rates: Vec<f64> = rates.collect();
    let all = rates.iter().copied().enumerate();
    let (limit, capacity_per_s) = all.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    if !(capacity_per_s.is_finite() && capacity_per_s > 0.0) {
        return None;
    }
    let loads = served.iter().zip(&rates);
    let loads = loads.map(|(served, rate)| (served + window.refused) / window.seconds / rate);
    let used = window.busy_s.iter().zip(&window.server_s);
    let by_stations = LoadRatio {
        ratio: loads.fold(0.0, f64::max),
        interval: None,
        capacity_per_s,
        limit: Some(limit),
        demands_s,
        utilisations: used
            .map(|(busy, had)| busy / had.max(f64::MIN_POSITIVE))
            .collect(),
        apps: Vec::new(),
    };
    Some(by_stations.with_apps(server, window))
}

/// By the jackknife over blocks of neighbouring windows: the ratio is no mean of the windows' ratios,
/// and neighbours resemble each other.
fn interval(
    server: Server<'_>,
    windows: &[Window],
    whole: &LoadRatio,
    carried_whole_per_s: Option<f64>,
) -> Option<Interval> {
    let count = windows.len().min(BLOCKS_MAX);
    if count < 2 {
        return None;
    }
    let bound = |block: usize| block * windows.len() / count;
    let pseudo_values: Option<Vec<f64>> = (0..count)
        .map(|block| {
            let others = [&windows[..bound(block)], &windows[bound(block + 1)..]].concat();
            let carried_per_s = carried_per_s(&others, server.goal).or(carried_whole_per_s);
            let others = sum(server.stations.len(), &others);
            let without = of_window(server, &others, Some(&whole.demands_s))?;
            let without = without.at_most(carried_per_s, &others);
            Some(count as f64 * whole.ratio - (count - 1) as f64 * without.ratio)
        })
        .collect();
    let interval = mean_interval(&pseudo_values?, LEVEL)?;
    // What an app's requests cost was measured at another time, so the two errors are independent.
    let middle = f64::midpoint(interval.low, interval.high);
    let half = (interval.high - middle).hypot(whole.ratio * whole.error_of_limit(server));
    Some(Interval {
        low: (middle - half).max(0.0),
        high: middle + half,
        ..interval
    })
}

fn sum<'a>(stations: usize, windows: impl IntoIterator<Item = &'a Window>) -> Window {
    let mut all = Window {
        busy_s: vec![0.0; stations],
        server_s: vec![0.0; stations],
        ..Window::default()
    };
    for window in windows {
        all.seconds += window.seconds;
        all.served += window.served;
        all.others += window.others;
        all.refused += window.refused;
        all.late += window.late;
        let sums = (all.busy_s.iter_mut()).chain(&mut all.server_s);
        for (to, from) in sums.zip(window.busy_s.iter().chain(&window.server_s)) {
            *to += from;
        }
        let apps = all.apps.len().max(window.apps.len());
        all.apps.resize(apps, AppCounts::default());
        for (to, from) in all.apps.iter_mut().zip(&window.apps) {
            to.answered += from.answered;
            to.refused += from.refused;
        }
    }
    all
}

impl LoadRatio {
    /// With the queues within apps as further stations. What else a request needs is as it was: the server carries
    /// all its present requests in the same mix until one of its apps carries no more.
    fn with_apps(mut self, server: Server<'_>, window: &Window) -> Self {
        let load_per_s = (window.served + window.others + window.refused) / window.seconds;
        let apps = server.apps.iter().zip(&window.apps).enumerate();
        for (index, (queue, counts)) in apps {
            let Some(AppQueue { each_s, .. }) = *queue else {
                continue;
            };
            let of = |requests: f64| requests * each_s / window.seconds;
            self.apps.push(AppLoad {
                index,
                demand_s: each_s,
                utilisation: of(counts.answered).min(1.0),
            });
            let used_max = APP.rate_max(each_s, server.goal) * each_s;
            let ratio = of(counts.answered + counts.refused) / used_max;
            self.ratio = self.ratio.max(ratio);
            // Of a response that is still being sent nothing was served.
            if load_per_s > 0.0 && load_per_s < ratio * self.capacity_per_s {
                self.capacity_per_s = load_per_s / ratio;
                self.limit = Some(server.stations.len() + index);
            }
        }
        self
    }

    /// Of the ratio, relatively, where an app is the limit: its cost is not measured in the same windows.
    fn error_of_limit(&self, server: Server<'_>) -> f64 {
        let stations = server.stations.len();
        let index = self.limit.and_then(|limit| limit.checked_sub(stations));
        let app = index.and_then(|index| server.apps.get(index).copied().flatten());
        app.map_or(0.0, |app| app.error)
    }

    /// The same if no more can be carried than this.
    fn at_most(mut self, carried_per_s: Option<f64>, window: &Window) -> Self {
        let Some(carried_per_s) = carried_per_s.filter(|it| *it < self.capacity_per_s) else {
            return self;
        };
        if carried_per_s < EXPLAINED_MIN * self.capacity_per_s {
            self.limit = None;
        }
        let load_per_s = (window.served + window.others + window.refused) / window.seconds;
        self.ratio = self.ratio.max(load_per_s / carried_per_s);
        self.capacity_per_s = carried_per_s;
        self
    }
}

impl Station {
    /// The highest rate that keeps the goal if each request takes `demand_s`; infinite if it takes
    /// nothing.
    fn rate_max(&self, demand_s: f64, goal: Goal) -> f64 {
        if demand_s <= 0.0 {
            return f64::INFINITY;
        }
        let wait_max_s = (goal.latency_s - demand_s).max(goal.latency_s / 2.0);
        let is_late = |offered: f64| self.late(offered, demand_s, wait_max_s) > 1.0 - goal.share;
        let (mut low, mut high) = (0.0, self.servers);
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if is_late(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        low / demand_s
    }

    /// The share of requests that wait longer than `wait_max_s` when `offered` servers are busy on
    /// average.
    fn late(&self, offered: f64, demand_s: f64, wait_max_s: f64) -> f64 {
        let waiting = match self.servers <= ERLANG_SERVERS_MAX {
            true => erlang_c(self.servers, offered),
            false => (offered / self.servers).powf(self.servers.sqrt()),
        };
        let spread = f64::midpoint(1.0, self.scv);
        waiting * (-(self.servers - offered) * wait_max_s / (demand_s * spread)).exp()
    }
}

/// The share of requests that wait at all, with `offered` of `servers` busy on average. A fraction of a
/// server counts as slower servers, one less.
fn erlang_c(servers: f64, offered: f64) -> f64 {
    let whole = servers.floor().max(1.0);
    let offered = offered * whole / servers;
    let mut blocked = 1.0; // Erlang's B, by its recursion
    let mut count = 1.0;
    while count <= whole {
        blocked = offered * blocked / (count + offered * blocked);
        count += 1.0;
    }
    blocked / (1.0 - offered / whole * (1.0 - blocked))
}

#[cfg(test)]
mod tests;
