//! Options that do not fit together: each refused in one line that says what would be right.

use crate::failure::Failure;
use crate::flags::load_defs::{HttpVersion, LoadFlags};

/// The name of what `--server-pid` watches.
pub(super) const SERVER: &str = "server";

/// Refuses the first pair that does not fit.
pub(super) fn refuse_contradictions(flags: &LoadFlags) -> Result<(), Failure> {
    refuse_several(flags)?;
    refuse_without(flags)?;
    refuse_plain(flags)?;
    refuse_known(flags)?;
    refuse_idle(flags)?;
    refuse_namesakes(flags)
}

/// Of these, one at most: each says by itself when requests are due, or what they are.
fn refuse_several(flags: &LoadFlags) -> Result<(), Failure> {
    let pace = &flags.pace;
    let requests = &flags.requests;
    let alternatives: [&[(&str, bool)]; 5] = [
        &[
            ("--rate", pace.rate.is_some()),
            ("--steps", pace.steps.is_some()),
            ("--ramp", pace.ramp.is_some()),
            ("--replay-timing", requests.replay_timing.is_some()),
        ],
        &[
            ("--new-connection", flags.clients.new_connection),
            (
                "--requests-per-connection",
                flags.clients.requests_per_connection.is_some(),
            ),
        ],
        &[
            ("--body", requests.body.is_some()),
            ("--body-file", requests.body_file.is_some()),
        ],
        &[
            ("--scenario", flags.users.scenario.is_some()),
            ("--replay", requests.replay.is_some()),
            ("--urls", requests.urls_file.is_some()),
        ],
        &[
            ("--scenario", flags.users.scenario.is_some()),
            ("--player", flags.users.player.is_some()),
        ],
    ];
    for group in alternatives {
        let mut given = group.iter().filter(|(_, given)| *given);
        if let (Some((first, _)), Some((second, _))) = (given.next(), given.next()) {
            return refuse(format!(
                "{first} and {second} exclude each other; right would be one of them"
            ));
        }
    }
    Ok(())
}

/// What means something only together with something else.
fn refuse_without(flags: &LoadFlags) -> Result<(), Failure> {
    let (pace, requests, users) = (&flags.pace, &flags.requests, &flags.users);
    let open = pace.rate.is_some() || pace.steps.is_some() || pace.ramp.is_some();
    let by_clock = open || requests.replay_timing.is_some();
    let clock = "an open loop: --rate, --steps or --ramp";
    let needs = [
        (
            "--burst",
            pace.burst.is_some(),
            pace.rate.is_some(),
            "--rate",
        ),
        (
            "--step-duration",
            pace.step_duration.is_some(),
            pace.steps.is_some(),
            "--steps",
        ),
        ("--arrivals", pace.arrivals.is_some(), open, clock),
        ("--overflow", pace.overflow.is_some(), by_clock, clock),
        (
            "--replay-timing",
            requests.replay_timing.is_some(),
            requests.replay.is_some(),
            "--replay",
        ),
        (
            "--replay-all-methods",
            requests.replay_all_methods,
            requests.replay.is_some(),
            "--replay",
        ),
        (
            "--users",
            users.users.is_some(),
            users.scenario.is_some(),
            "--scenario",
        ),
        (
            "--players",
            users.players.is_some(),
            users.player.is_some(),
            "--player",
        ),
        (
            "--content-sample",
            flags.expect.content_sample.is_some(),
            flags.expect.expect_sha256.is_some(),
            "--expect-sha256",
        ),
    ];
    for (option, given, has, needed) in needs {
        if given && !has {
            return refuse(format!("{option}: it goes with {needed}"));
        }
    }
    Ok(())
}

/// What is for plain clients, where there are none.
fn refuse_plain(flags: &LoadFlags) -> Result<(), Failure> {
    let clients = &flags.clients;
    let why = match (clients.connections, has_users_alone(flags)) {
        (_, true) => "users and players stand in their place",
        (Some(0), false) => "--connections 0 leaves none",
        _ => return Ok(()),
    };
    let plain = [
        ("--requests", clients.requests.is_some()),
        ("--think", clients.think.is_some()),
        ("--no-coalescing", clients.no_coalescing),
        ("--spin", flags.machine.spin),
        ("--new-connection", clients.new_connection),
        (
            "--requests-per-connection",
            clients.requests_per_connection.is_some(),
        ),
    ];
    if let Some((option, _)) = plain.iter().find(|(_, given)| *given) {
        return refuse(format!("{option}: it is for plain clients, and {why}"));
    }
    Ok(())
}

/// What users and players, where they are alone, know by themselves.
fn refuse_known(flags: &LoadFlags) -> Result<(), Failure> {
    let (requests, users, expect) = (&flags.requests, &flags.users, &flags.expect);
    if !has_users_alone(flags) {
        return Ok(());
    }
    let expected = [
        ("--expect-status", expect.expect_status.is_some()),
        ("--expect-length", expect.expect_length.is_some()),
        ("--expect-sha256", expect.expect_sha256.is_some()),
    ];
    let asked = [
        ("--method", requests.method.is_some()),
        ("--body", requests.body.is_some()),
        ("--body-file", requests.body_file.is_some()),
        ("--header", !requests.header.is_empty()),
        ("--user", requests.user.is_some()),
    ];
    let given = |(_, given): &&(&str, bool)| *given;
    if users.scenario.is_none() {
        return match expected.iter().find(given) {
            Some((option, _)) => refuse(format!("{option}: a player expects the part it asks for")),
            None => Ok(()),
        };
    }
    if let Some((option, _)) = asked.iter().chain(&expected).find(given) {
        return refuse(format!("{option}: the scenario says what is asked for"));
    }
    match requests.http {
        HttpVersion::Http10 => refuse("--http 1.0: users of a scenario speak HTTP/1.1".to_owned()),
        HttpVersion::Http11 => Ok(()),
    }
}

/// Whether users or players stand in place of plain clients.
fn has_users_alone(flags: &LoadFlags) -> bool {
    let users = &flags.users;
    let plain = flags.clients.connections.is_some_and(|count| count > 0);
    let beside = plain && (users.users.is_some() || users.players.is_some());
    (users.scenario.is_some() || users.player.is_some()) && !beside
}

/// What would do nothing beside something else.
fn refuse_idle(flags: &LoadFlags) -> Result<(), Failure> {
    let (clients, pace, requests) = (&flags.clients, &flags.pace, &flags.requests);
    let open = pace.rate.is_some() || pace.steps.is_some() || pace.ramp.is_some();
    let by_clock = open || requests.replay_timing.is_some();
    let useless = [
        (
            "--duration",
            clients.duration.is_some() && pace.steps.is_some(),
            "with --steps it follows from --step-duration",
        ),
        (
            "--duration",
            clients.duration.is_some() && requests.replay_timing.is_some(),
            "with --replay-timing it follows from the log",
        ),
        (
            "--warm-up",
            clients.warm_up.is_some() && requests.replay_timing.is_some(),
            "--replay-timing begins with the log's first line",
        ),
        (
            "--think",
            clients.think.is_some() && by_clock,
            "in an open loop requests are due by the clock",
        ),
        (
            "--idle-request",
            flags.hostile.idle_request && flags.hostile.idle_connections.is_none(),
            "it is of idle connections, and there are none; right would be --idle-connections beside it",
        ),
        (
            "--no-coalescing",
            clients.no_coalescing && by_clock,
            "an open loop wakes up for each answer in any case",
        ),
        (
            "--rate",
            open && has_users_alone(flags),
            "users and players have a pace of their own; plain clients beside them are asked for \
             by both --connections and --users or --players",
        ),
    ];
    match useless.iter().find(|(_, is_useless, _)| *is_useless) {
        Some((option, _, why)) => refuse(format!("{option}: {why}")),
        None => Ok(()),
    }
}

/// Results name what is watched: each has a name of its own.
fn refuse_namesakes(flags: &LoadFlags) -> Result<(), Failure> {
    let watch = &flags.machine.watch;
    for (index, watched) in watch.iter().enumerate() {
        let name = &watched.name;
        let (pid, other) = match watch[..index].iter().find(|one| one.name == *name) {
            Some(other) => (other.pid, "--watch"),
            None if name == SERVER && flags.machine.server_pid.is_some() => {
                (flags.machine.server_pid.unwrap_or(0), "--server-pid")
            }
            None => continue,
        };
        return refuse(format!(
            "--watch {name}={}: the name is that of process {pid} already, by {other}; right would \
             be another one",
            watched.pid
        ));
    }
    Ok(())
}

fn refuse(message: String) -> Result<(), Failure> {
    Err(Failure::usage(message))
}
