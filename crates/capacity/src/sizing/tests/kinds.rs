//! Loads and machines to draw from.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::world::{Arrivals, Kind, Load, Machine, Phase, Spread};

/// The most threads that a pool may have.
pub(super) const THREADS_MAX: usize = 256;
/// The most connections.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// Jobs a second of a simulation: more of them show nothing else.
const RATE_MAX_PER_S: f64 = 12_000.0;

/// A machine, and two loads that it is given one after the other.
pub(super) fn draw(seed: u64) -> (Machine, [Load; 2]) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let machine = Machine {
        cpus: [1, 2, 2, 4][rng.random_range(0..4)],
        stolen: [0.0, 0.0, 0.0, 0.4][rng.random_range(0..4)],
        overhead_us: rng.random_range(4.0..12.0),
        thrash: [0.0, 0.0002, 0.001][rng.random_range(0..3)],
        loop_us: [0.0, 2.0, 4.0][rng.random_range(0..3)],
        wake_us: [0.0, 3.0][rng.random_range(0..2)],
        station_servers: rng.random_range(1..=12),
        station_slows: [0.0, 0.0, 0.002, 0.01][rng.random_range(0..4)],
    };
    let first = load(&mut rng, &machine);
    let second = load(&mut rng, &machine);
    (machine, [first, second])
}

/// A database and what lies before it, and two kinds of statements that it is given one after the other.
pub(super) fn draw_database(seed: u64) -> (Machine, [Load; 2]) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let machine = Machine {
        cpus: 4,
        stolen: 0.0,
        overhead_us: rng.random_range(4.0..12.0),
        thrash: 0.0,
        loop_us: 0.0,
        wake_us: 0.0,
        station_servers: rng.random_range(1..=12),
        station_slows: [0.0, 0.0, 0.002, 0.01][rng.random_range(0..4)],
    };
    let mut load = || {
        let spread = spread(&mut rng);
        let away_us = [0.0, 0.0, 500.0, 5000.0][rng.random_range(0..4)];
        let statement_us = [100.0, 400.0, 1000.0, 4000.0][rng.random_range(0..4)];
        let name = match away_us > 0.0 {
            true => format!("{statement_us} us, {away_us} us away"),
            false => format!("{statement_us} us"),
        };
        let phases = [
            Phase::Sleep(away_us),
            Phase::Station(statement_us),
            Phase::Nothing,
        ];
        let kind = Kind {
            weight: 1.0,
            phases,
            spread,
        };
        asked(&mut rng, &machine, CONNECTIONS_MAX, name, vec![kind])
    };
    let loads = [load(), load()];
    (machine, loads)
}

fn load(rng: &mut Pcg64Mcg, machine: &Machine) -> Load {
    let spread = spread(rng);
    let (name, kinds) = kinds(rng, spread);
    asked(rng, machine, THREADS_MAX, name, kinds)
}

fn spread(rng: &mut Pcg64Mcg) -> Spread {
    [Spread::Constant, Spread::Some, Spread::Exponential][rng.random_range(0..3)]
}

/// Who asks for jobs of these kinds.
fn asked(
    rng: &mut Pcg64Mcg,
    machine: &Machine,
    size_max: usize,
    mut name: String,
    kinds: Vec<Kind>,
) -> Load {
    let capacity = capacity_per_s(machine, size_max, &kinds);
    let arrivals = if rng.random_range(0..2) == 0 {
        let jobs_per_s = (capacity * rng.random_range(0.2..0.8)).min(RATE_MAX_PER_S);
        name.push_str(", open");
        Arrivals::Open { jobs_per_s }
    } else {
        let clients = [4, 16, 64, 200][rng.random_range(0..4)];
        let alone_us: f64 = demands(machine, &kinds).iter().sum();
        let cheap = capacity > RATE_MAX_PER_S;
        let think_us = if cheap {
            (clients as f64 * 1e6 / RATE_MAX_PER_S - alone_us).max(0.0)
        } else {
            0.0
        };
        name.push_str(", closed");
        Arrivals::Closed { clients, think_us }
    };
    Load {
        name,
        kinds,
        arrivals,
    }
}

fn kinds(rng: &mut Pcg64Mcg, spread: Spread) -> (String, Vec<Kind>) {
    let sleep = |us| [Phase::Sleep(us), Phase::Nothing, Phase::Nothing];
    let compute = |us| [Phase::Compute(us), Phase::Nothing, Phase::Nothing];
    let login_us = rng.random_range(1000.0..5000.0);
    let login = [
        Phase::Compute(login_us * 0.05),
        Phase::Station(login_us),
        Phase::Compute(login_us * 0.02),
    ];
    let (name, kinds) = match rng.random_range(0..12) {
        0 => ("sleep 0", vec![(1.0, [Phase::Nothing; 3])]),
        1 => ("sleep 100 us", vec![(1.0, sleep(100.0))]),
        2 => ("sleep 1 ms", vec![(1.0, sleep(1e3))]),
        3 => ("sleep 10 ms", vec![(1.0, sleep(1e4))]),
        4 => ("sleep 100 ms", vec![(1.0, sleep(1e5))]),
        5 => ("compute 100 us", vec![(1.0, compute(100.0))]),
        6 => ("compute 1 ms", vec![(1.0, compute(1e3))]),
        7 | 8 => ("log in", vec![(1.0, login)]),
        9 => (
            "compute 100 us, a tenth sleep 10 ms",
            vec![(0.9, compute(100.0)), (0.1, sleep(1e4))],
        ),
        10 => (
            "compute 1 ms, half sleep 10 ms",
            vec![(0.5, compute(1e3)), (0.5, sleep(1e4))],
        ),
        _ => (
            "log in, half compute 100 us",
            vec![(0.5, login), (0.5, compute(100.0))],
        ),
    };
    let kinds = kinds.into_iter().map(|(weight, phases)| Kind {
        weight,
        phases,
        spread,
    });
    (name.to_owned(), kinds.collect())
}

/// What one job takes: of the CPUs, asleep, of the station.
fn demands(machine: &Machine, kinds: &[Kind]) -> [f64; 3] {
    let total: f64 = kinds.iter().map(|kind| kind.weight).sum();
    let mut demands = [machine.overhead_us + 2.0 * machine.loop_us, 0.0, 0.0];
    for kind in kinds {
        for phase in kind.phases {
            let (place, us) = match phase {
                Phase::Compute(us) => (0, us),
                Phase::Sleep(us) => (1, us),
                Phase::Station(us) => (2, us),
                Phase::Nothing => continue,
            };
            demands[place] += us * kind.weight / total;
        }
    }
    demands
}

/// Jobs a second with the largest pool.
fn capacity_per_s(machine: &Machine, size_max: usize, kinds: &[Kind]) -> f64 {
    let [cpu_us, sleep_us, station_us] = demands(machine, kinds);
    let by_cpus = (machine.cpus as f64 - machine.stolen) / cpu_us;
    let by_threads = size_max as f64 / (cpu_us + sleep_us + station_us);
    let by_station = machine.station_servers as f64 / station_us.max(1e-3);
    by_cpus.min(by_threads).min(by_station) * 1e6
}
