//! Which options of a load fit together. What does not is refused in one line that says what would be
//! right.

use super::values::{HttpVersion, ScheduleOf};
use super::{LoadSpec, SERVER, foreseen, tls};
use crate::rules::{self, Rule, exclude, first_of, unfit};
use crate::{SpecError, Table, given};

const CLOCK: &str = "an open loop: --rate, --steps or --ramp";
const BY_CLOCK: &[&str] = &["rate", "steps", "ramp", "replay-timing"];

/// What holds of every load.
pub(super) const RULES: &[Rule] = &[
    // Each says by itself when requests are due, or what they are.
    Rule::OneOf(BY_CLOCK),
    Rule::OneOf(&["new-connection", "requests-per-connection"]),
    Rule::OneOf(&["body", "body-file"]),
    Rule::OneOf(&["scenario", "replay", "urls"]),
    Rule::OneOf(&["scenario", "player"]),
    Rule::OneOf(&["cacert", "insecure"]),
    Rule::OneOf(&["http", "http2"]),
    // What means something only together with something else.
    Rule::Needs("burst", &["rate"], "--rate"),
    Rule::Needs("step-duration", &["steps"], "--steps"),
    Rule::Needs("arrivals", &["rate", "steps", "ramp"], CLOCK),
    Rule::Needs("schedule", &["rate", "steps", "ramp"], CLOCK),
    Rule::Needs("burst-base", &["burst"], "--burst"),
    Rule::Needs("overflow", BY_CLOCK, CLOCK),
    Rule::Needs("retries", BY_CLOCK, CLOCK),
    Rule::Needs("retry-pause", &["retries"], "--retries"),
    Rule::Needs("retry-after-max", &["retries"], "--retries"),
    Rule::Needs("replay-timing", &["replay"], "--replay"),
    Rule::Needs("replay-all-methods", &["replay"], "--replay"),
    Rule::Needs("users", &["scenario"], "--scenario"),
    Rule::Needs("players", &["player"], "--player"),
    Rule::Needs("content-sample", &["expect-sha256"], "--expect-sha256"),
    Rule::Needs("streams", &["http2"], "--http2"),
    Rule::Needs("http2-share", &["http2"], "--http2"),
    Rule::Needs("cert", &["key"], "--key"),
    Rule::Needs("key", &["cert"], "--cert"),
    Rule::Needs("idle-request", &["idle-connections"], "--idle-connections"),
    // What would do nothing beside something else.
    Rule::Useless(
        "duration",
        &["steps"],
        "with --steps it follows from --step-duration",
    ),
    Rule::Useless(
        "duration",
        &["replay-timing"],
        "with --replay-timing it follows from the log",
    ),
    Rule::Useless(
        "warm-up",
        &["replay-timing"],
        "--replay-timing begins with the log's first line",
    ),
    Rule::Useless(
        "warm-up",
        &["requests"],
        "the requests of --requests are counted from the start",
    ),
    Rule::Useless(
        "streams",
        &["new-connection"],
        "with --new-connection each connection carries one request",
    ),
    Rule::Useless(
        "close-on-timeout",
        &["http2"],
        "over HTTP/2 a request that is late is reset, not its connection",
    ),
    Rule::Useless(
        "http2-share",
        &["replay-timing"],
        "the times of a log are not divided",
    ),
    Rule::Useless(
        "think",
        BY_CLOCK,
        "in an open loop requests are due by the clock",
    ),
    Rule::Useless(
        "no-coalescing",
        BY_CLOCK,
        "an open loop wakes up for each response in any case",
    ),
];

/// Options of plain clients.
pub(super) const OF_PLAIN: &[&str] = &[
    "requests",
    "think",
    "no-coalescing",
    "spin",
    "new-connection",
    "requests-per-connection",
    "close-on-timeout",
    "latency-goal",
    "http2",
    "http2-share",
    "streams",
];
/// Clients that speak HTTP/1.1 alone.
pub(super) const OF_HTTP1: &[&str] = &[
    "scenario",
    "player",
    "idle-connections",
    "slow-readers",
    "slow-heads",
    "slow-bodies",
    "vanishing",
];
/// What responses have to be.
pub(super) const EXPECTED: &[&str] = &["expect-status", "expect-length", "expect-sha256"];
/// What is asked for; a scenario says it by itself.
pub(super) const ASKED: &[&str] = &["method", "body", "body-file", "header", "user"];

/// Options of plain clients, where there are none.
fn check_plain(spec: &LoadSpec, given: &Table) -> Result<(), SpecError> {
    let has_none = spec.clients.connections.is_some_and(|count| *count == 0);
    let why = match (has_none, spec.has_actors_alone()) {
        (_, true) => "users and players stand in their place",
        (true, false) => "--connections 0 leaves none",
        (false, false) => return Ok(()),
    };
    let why = format!("it is for plain clients, and {why}");
    exclude(OF_PLAIN, &why, given)
}

/// What users and players, where they are alone, know by themselves.
fn check_known(spec: &LoadSpec, given: &Table) -> Result<(), SpecError> {
    if !spec.has_actors_alone() {
        return Ok(());
    }
    let own_pace = "users and players have a pace of their own; plain clients beside them are \
                    asked for by both --connections and --users or --players";
    exclude(&["rate", "steps", "ramp"], own_pace, given)?;
    if spec.users.scenario.is_none() {
        return exclude(EXPECTED, "a player expects the part it asks for", given);
    }
    for options in [ASKED, EXPECTED] {
        exclude(options, "the scenario says what is asked for", given)?;
    }
    match *spec.requests.http {
        HttpVersion::Http10 => {
            Err(unfit("http", "users of a scenario speak HTTP/1.1".to_owned()).with_value("1.0"))
        }
        HttpVersion::Http11 | HttpVersion::Http2 | HttpVersion::Http3 => Ok(()),
    }
}

/// HTTP/2 beside clients that do not speak it.
fn check_http2(spec: &LoadSpec, given: &Table) -> Result<(), SpecError> {
    match first_of(given, OF_HTTP1).filter(|_| spec.requests.http2) {
        Some(option) => {
            let why = format!("clients of --{option} speak HTTP/1.1 alone");
            Err(unfit("http2", why))
        }
        None => Ok(()),
    }
}

/// Options that connections with schedules of their own have no use for, each with the reason.
const SHARED_ALONE: &[(&[&str], &str)] = &[
    (
        &["steps", "ramp", "burst"],
        "with --schedule per-connection the rate does not change",
    ),
    (
        &["overflow", "retries"],
        "with --schedule per-connection each request has one attempt and waits for its connection",
    ),
    (
        &["http2"],
        "with --schedule per-connection clients speak HTTP/1.1",
    ),
];

/// A schedule for each connection.
fn check_schedule(spec: &LoadSpec, given: &Table) -> Result<(), SpecError> {
    if spec.pace.schedule != Some(ScheduleOf::PerConnection) {
        return Ok(());
    }
    let mut all = SHARED_ALONE.iter();
    all.try_for_each(|(options, why)| exclude(options, why, given))
}

/// Results name what is watched: each has a name of its own.
fn check_names(spec: &LoadSpec) -> Result<(), SpecError> {
    let watch = &spec.machine.watch;
    for (index, watched) in watch.iter().enumerate() {
        let name = &watched.name;
        let (pid, other) = match watch[..index].iter().find(|one| one.name == *name) {
            Some(other) => (other.pid, "--watch"),
            None => match spec.machine.server_pid {
                Some(pid) if name == SERVER => (pid, "--server-pid"),
                _ => continue,
            },
        };
        let problem = format!("process {pid} has this name already, by {other}");
        return Err(SpecError::new("watch", problem, "another one").with_value(watched));
    }
    Ok(())
}

impl LoadSpec {
    /// Whether its options fit together.
    ///
    /// # Errors
    /// The first that does not fit, and why.
    pub fn check(&self) -> Result<(), SpecError> {
        let given = given(self);
        rules::check(RULES, &given)?;
        check_http2(self, &given)?;
        check_schedule(self, &given)?;
        check_plain(self, &given)?;
        check_known(self, &given)?;
        check_names(self)?;
        tls::check(self, &given)?;
        foreseen::check(self, &given)
    }

    /// Whether requests are due by a rate, whatever the server does.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let pace = &self.pace;
        pace.rate.is_some() || pace.steps.is_some() || pace.ramp.is_some()
    }

    /// Whether there are users or players.
    #[must_use]
    pub fn has_actors(&self) -> bool {
        self.users.scenario.is_some() || self.users.player.is_some()
    }

    /// Whether users or players stand in place of plain clients.
    #[must_use]
    pub fn has_actors_alone(&self) -> bool {
        let plain = self.clients.connections.is_some_and(|count| *count > 0);
        let counted = self.users.users.is_some() || self.users.players.is_some();
        self.has_actors() && !(plain && counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_options_that_there_are() {
        let names = crate::names::<LoadSpec>();
        let of_rules = RULES.iter().flat_map(|rule| rule.options());
        let lists = [OF_PLAIN, OF_HTTP1, EXPECTED, ASKED, tls::OF_TLS].concat();
        let shared = SHARED_ALONE.iter().flat_map(|(options, _)| *options);
        for option in of_rules.chain(lists).chain(shared.copied()) {
            assert!(names.contains(option), "{option}");
        }
    }
}
