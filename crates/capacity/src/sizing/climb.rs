//! The search for the fewest threads that do as much as any number does: up while it helps, down
//! while it does not hurt, with steps that get shorter.

use super::sample::{Pressure, Sample};

/// The first steps double and halve.
const FACTOR: f64 = 2.0;
/// Shorter steps than this are not worth their time.
const FACTOR_MIN: f64 = 1.3;
/// The first steps up may be so long, where the queue has a job for each new thread.
const FACTOR_FIRST: f64 = 4.0;
/// Up to here they need no proof: too many for a moment cost less than too few.
const UNPROVED_MAX: usize = 64;
/// More threads have to bring this share of what they would without a limit behind them,
const GAIN: f64 = 0.1;
/// where they are many: of a few threads none costs much,
const FEW: usize = 16;
/// and this share is enough,
const GAIN_OF_FEW: f64 = 0.02;
/// or they have to make long responses shorter by this share.
const SHORTER: f64 = 0.1;
/// Mean responses so much shorter count more than throughput.
const MUCH_SHORTER: f64 = 0.8;
/// Fewer threads may lose so much throughput and so much of the mean response time.
const LOSS: f64 = 0.02;
/// and so much where it is not known exactly.
const LOSS_MAX: f64 = 0.05;
/// A size is measured until its throughput is known so well,
const ERROR: f64 = 0.02;
/// and if it is not known so well, fewer threads are not accepted.
const ERROR_MAX: f64 = 0.1;
/// Where much is expected of a size, so many jobs show it.
const ROUGH_JOBS: u64 = 40;
/// Threads that are kept beyond those that are busy on average, in standard deviations of a Poisson
/// variable.
const SPARE: f64 = 6.0;
/// Fewer threads than were busy on average, so that the pool feels it, by so much.
const PROBE: f64 = 0.75;
/// Fewer threads than these are not worth a trial.
const PROBED_MIN: f64 = 3.0;
/// No size is measured longer than this.
const TIME_MAX_US: f64 = 500_000.0;

/// A search under way.
#[derive(Clone, Debug)]
pub(super) struct Climb {
    /// Whether fewer threads than were busy are to be tried where no job waits.
    probes: bool,
    /// The threads that busy CPUs need were tried, where no job waited for more.
    has_tried_needed: bool,
    best: Option<Point>,
    /// The most that any size did: many small losses are not accepted one by one.
    most_per_s: f64,
    factor: f64,
    direction: Direction,
    tried: (bool, bool),
}

/// What a size did.
#[derive(Clone, Copy, Debug)]
struct Point {
    size: usize,
    jobs_per_s: f64,
    /// Its standard error, as a part of it.
    error: f64,
    /// From queueing to the end, on average.
    mean_us: f64,
    /// The same for those that waited longer than 99 of 100.
    long_us: f64,
    pressure: Pressure,
    busy: f64,
    /// Event loops hardly have a CPU: they read and refuse less, so that more jobs are done.
    starves_loops: bool,
    /// Clearly fewer threads that are enough for the CPUs, which have no time left.
    needed: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Here,
    Up,
    Down,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The present size is measured further.
    Wait,
    /// Another size is tried.
    Try(usize),
    /// This is the size; whether jobs wait with it, too.
    Done { size: usize, waits: bool },
}

impl Climb {
    pub(super) fn new() -> Self {
        Self {
            probes: false,
            has_tried_needed: false,
            best: None,
            most_per_s: 0.0,
            factor: FACTOR,
            direction: Direction::Here,
            tried: (false, false),
        }
    }

    /// Tries fewer threads, too, although no job waits: where all are busy at a station behind, fewer may
    /// do more.
    pub(super) fn down() -> Self {
        Self {
            probes: true,
            ..Self::new()
        }
    }

    /// Whether another size was tried.
    pub(super) fn has_moved(&self) -> bool {
        self.direction != Direction::Here
    }

    /// Judges the present size by what was measured of it; sizes stay within `limits`.
    pub(super) fn next(
        &mut self,
        size: usize,
        sample: &Sample,
        cpus: f64,
        limits: (usize, usize),
    ) -> Next {
        if sample.jobs == 0 && sample.time_us >= TIME_MAX_US {
            let is_awaited = sample.queue_depth > 0;
            if !is_awaited || self.leap(size, sample, limits).is_none() {
                return self.end_without_jobs(size, sample);
            }
        }
        if !self.is_enough(size, sample, cpus) {
            return match self.leap(size, sample, limits) {
                Some(larger) => {
                    let point = Point::new(size, sample, cpus);
                    match self.best {
                        Some(best) if !self.is_better(&point, &best) => {}
                        _ => _ = self.accept(point),
                    }
                    self.direction = Direction::Up;
                    self.probes = true;
                    Next::Try(larger)
                }
                None => Next::Wait,
            };
        }
        let point = Point::new(size, sample, cpus);
        let best = match self.best {
            None => self.accept(point),
            Some(best) if self.is_better(&point, &best) => self.accept(point),
            Some(best) => {
                match self.direction {
                    Direction::Up => self.tried.0 = true,
                    Direction::Down => self.tried.1 = true,
                    Direction::Here => {}
                }
                best
            }
        };
        self.leave(&best, limits)
    }

    /// A larger size to go on to before the present one is known.
    fn leap(&self, size: usize, sample: &Sample, limits: (usize, usize)) -> Option<usize> {
        if self.direction == Direction::Down
            || self.factor < FACTOR
            || size >= UNPROVED_MAX && sample.jobs > 0
            || sample.pressure() < Pressure::Strong
            || sample.starves_loops()
        {
            return None;
        }
        let jobs = (size + sample.queue_depth).max(2 * size);
        let larger = (size as f64 * FACTOR_FIRST) as usize;
        let larger = larger.min(jobs).clamp(limits.0, limits.1);
        (larger > size).then_some(larger)
    }

    /// No job ends, so nothing tells one size from another. Whether jobs wait with this one is not known:
    /// the next that has to wait begins a new search.
    fn end_without_jobs(&self, size: usize, sample: &Sample) -> Next {
        let has_load = sample.busy_us > 0.0;
        Next::Done {
            size: match self.best {
                Some(best) if has_load => best.size.max(size), // all of them may be stuck
                Some(best) => best.size,
                None => size,
            },
            waits: false,
        }
    }

    fn accept(&mut self, point: Point) -> Point {
        match self.direction {
            // What lies behind was worse.
            Direction::Up => self.tried = (false, true),
            Direction::Down => self.tried = (true, false),
            Direction::Here => {}
        }
        self.most_per_s = self.most_per_s.max(point.jobs_per_s);
        self.best = Some(point);
        point
    }

    /// Where to go from the best size.
    fn leave(&mut self, best: &Point, limits: (usize, usize)) -> Next {
        if best.pressure == Pressure::None {
            if let Some(needed) = best.needed
                && !std::mem::replace(&mut self.has_tried_needed, true)
            {
                self.direction = Direction::Down;
                return Next::Try(needed.clamp(limits.0, limits.1));
            }
            let fewer = (PROBE * best.busy).round() as usize;
            let fewer = fewer.clamp(limits.0, limits.1);
            let probes = std::mem::take(&mut self.probes) && best.busy > PROBED_MIN;
            if probes && fewer < best.size {
                self.direction = Direction::Down;
                return Next::Try(fewer);
            }
            return best.done(); // all find a thread: there is nothing to gain
        }
        let directions = match best.pressure {
            Pressure::Strong => [Direction::Up, Direction::Down].as_slice(),
            _ => &[Direction::Up], // fewer would be too few
        };
        while self.factor >= FACTOR_MIN {
            for direction in directions.iter().copied() {
                let tried = match direction {
                    Direction::Up => self.tried.0,
                    _ => self.tried.1,
                };
                let size = self.step(best.size, direction, limits);
                if let (false, Some(size)) = (tried, size) {
                    self.direction = direction;
                    return Next::Try(size);
                }
            }
            self.factor = self.factor.sqrt();
            self.tried = (false, false);
        }
        best.done()
    }

    fn step(&self, size: usize, direction: Direction, limits: (usize, usize)) -> Option<usize> {
        let exact = match direction {
            Direction::Up => size as f64 * self.factor,
            _ => size as f64 / self.factor,
        };
        let stepped = (exact.round() as usize).clamp(limits.0, limits.1);
        match direction {
            Direction::Up => stepped > size,
            _ => stepped < size,
        }
        .then_some(stepped)
    }

    fn is_enough(&self, size: usize, sample: &Sample, cpus: f64) -> bool {
        let tries_fewer =
            self.probes || !self.has_tried_needed && sample.needed_of(size, cpus).is_some();
        let is_reference = tries_fewer && sample.pressure() == Pressure::None;
        let is_known = match self.direction {
            Direction::Here | Direction::Up if self.factor >= FACTOR && !is_reference => {
                sample.jobs >= ROUGH_JOBS
            }
            _ => sample.intervals >= 3 && sample.error() < ERROR,
        };
        // Where no job ends, all sizes look the same.
        sample.jobs > 0 && (sample.intervals >= 2 && is_known || sample.time_us >= TIME_MAX_US)
    }

    fn is_better(&self, point: &Point, best: &Point) -> bool {
        let ratio = |a: f64, b: f64| a / b.max(1e-9);
        let slower = ratio(point.mean_us, best.mean_us);
        let error = point.error.hypot(best.error);
        let loss = LOSS + error.min(LOSS_MAX - LOSS);
        if point.size > best.size {
            if point.starves_loops {
                return false;
            }
            let faster = ratio(point.jobs_per_s, best.jobs_per_s);
            let longer = ratio(point.long_us, best.long_us);
            let gain = GAIN * (ratio(point.size as f64, best.size as f64) - 1.0);
            let gain = match point.size <= FEW {
                true => gain.min(GAIN_OF_FEW + error),
                false => gain,
            };
            // Where a queue of before was worked off, fewer jobs were done: there were no more.
            let as_many = faster > 1.0 - loss || slower < MUCH_SHORTER;
            faster > 1.0 + gain || as_many && longer < 1.0 - SHORTER
        } else {
            let faster = ratio(point.jobs_per_s, self.most_per_s);
            let is_no_worse = faster > 1.0 - loss && slower < 1.0 + loss;
            point.error < ERROR_MAX && (is_no_worse || faster > 1.0 + 2.0 * loss)
        }
    }
}

impl Point {
    fn new(size: usize, sample: &Sample, cpus: f64) -> Self {
        Self {
            size,
            jobs_per_s: sample.jobs_per_s(),
            error: sample.error(),
            mean_us: sample.waits.mean_us() + sample.service_us(),
            long_us: sample.waits.quantile_us(0.99) + sample.service_us(),
            pressure: sample.pressure(),
            busy: sample.busy(),
            starves_loops: sample.starves_loops(),
            needed: sample.needed_of(size, cpus),
        }
    }

    fn done(&self) -> Next {
        let waits = self.pressure > Pressure::None;
        let used = (self.busy + SPARE * self.busy.sqrt()).ceil() as usize + 2;
        Next::Done {
            size: if waits {
                self.size
            } else {
                self.size.min(used)
            },
            waits,
        }
    }
}
