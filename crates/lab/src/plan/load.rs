//! The load of a plan, typed: options of `loadline load`, and a rate as a multiple of a capacity.

use std::ops::RangeInclusive;

use loadline_spec::load::LoadSpec;
use loadline_spec::rules::refuse;
use loadline_spec::{SpecError, Table, Value, ValueError};

/// Options of a load that the lab sets itself, and what a plan has in their place.
const OWN: [(&str, &str); 9] = [
    ("url", "path"),
    ("duration", "duration_s"),
    ("warm-up", "warm_up_s"),
    ("requests", "duration_s"),
    ("steps", "a factor rate_per_s"),
    ("replay-timing", "duration_s"),
    ("cpus", "cpus"),
    ("seed", "the plan's seed"),
    ("server-pid", "nothing"),
];

/// The rate as a multiple of what a server carries, which is no option of `loadline load`.
const MULTIPLE: &str = "rate-of-capacity";
/// What it excludes.
const OTHER_RATES: [&str; 5] = ["rate", "steps", "ramp", "replay", "scenario"];
/// Beyond them is a slip.
const MULTIPLES: RangeInclusive<f64> = 0.001..=100.0;

/// A load without what the lab sets itself; paths and texts with placeholders.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedLoad {
    pub(crate) spec: LoadSpec,
    /// Whether the client may spin where it has CPUs of its own: `spin = false` says no.
    pub(crate) may_spin: bool,
    /// The rate as a multiple of what a server carries, if it is given so.
    pub(crate) rate_of_capacity: Option<f64>,
    /// The server whose capacity that is; `None`: its own.
    pub(crate) capacity_of: Option<String>,
}

impl PlannedLoad {
    /// Of options, or of some of them.
    pub(crate) fn new(mut options: Table) -> Result<Self, SpecError> {
        let multiple = options
            .remove(MULTIPLE)
            .filter(|it| *it != Value::Switch(false));
        let (rate_of_capacity, capacity_of) = match multiple {
            None => (None, None),
            Some(value) => {
                let (multiple, server) = multiple_of(&value, &options)?;
                (Some(multiple), server)
            }
        };
        refuse(&OWN, "the lab sets it itself", &options)?;
        Ok(Self {
            spec: loadline_spec::fill(&options)?,
            may_spin: options.get("spin") != Some(&Value::Switch(false)),
            rate_of_capacity,
            capacity_of,
        })
    }
}

fn multiple_of(value: &Value, beside: &Table) -> Result<(f64, Option<String>), SpecError> {
    let is_given =
        |name: &&&str| (beside.get(**name)).is_some_and(|it| *it != Value::Switch(false));
    if let Some(other) = OTHER_RATES.iter().find(is_given) {
        let problem = format!("load {other} and rate_of_capacity exclude each other");
        return Err(ValueError::new(problem, "one of them").into());
    }
    let text = value.text().unwrap_or_default();
    let (multiple, server) = match text.split_once(" of ") {
        Some((multiple, server)) => (multiple, Some(server.trim().to_owned())),
        None => (text, None),
    };
    let multiple = multiple.trim().parse::<f64>().ok();
    let multiple = multiple.filter(|multiple| MULTIPLES.contains(multiple));
    multiple.map(|it| (it, server)).ok_or_else(|| {
        let right = format!(
            "{} to {}: 0.9 for nine tenths of what the server carries, \"0.9 of NAME\" for what another \
             one does",
            MULTIPLES.start(),
            MULTIPLES.end()
        );
        ValueError::new("rate_of_capacity is no multiple", right).into()
    })
}
