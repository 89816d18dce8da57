//! Clients of each kind: how many, and the groups of virtual users.

use loadline_load::Plan;
use loadline_load::requests::template::basic;
use loadline_load::requests::url::Url;
use loadline_spec::SpecError;
use loadline_spec::rules::unfit;

use crate::player;
use crate::scenario::{Scenario, Setting};
use crate::{RequestSpec, UserGroup, idle, slow_reader, slow_sender, vanishing};
use loadline_spec::load::LoadSpec;

/// Plain connections, unless something else is asked for: as weighttp's and Webbench's users write it
/// most often, and little enough for any server.
const CONNECTIONS: usize = 64;

/// Clients of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Plain clients.
    pub(super) plain: u32,
    /// Users of a scenario.
    pub(super) users: u64,
    /// Video players.
    pub(super) players: u64,
    /// Slow and hostile ones.
    pub(super) hostile: u64,
}

impl Counts {
    /// All of them.
    pub(super) fn total(self) -> u64 {
        u64::from(self.plain) + self.users + self.players + self.hostile
    }
}

/// Counts them: users and players stand in place of plain clients, unless both numbers are given.
pub(super) fn count(spec: &LoadSpec) -> Result<Counts, SpecError> {
    let given = spec.clients.connections.map(|count| *count);
    let (users, hostile) = (&spec.users, &spec.hostile);
    let own_count = users.users.or(users.players).map(|count| *count);
    let user_count = own_count.or(given).unwrap_or(CONNECTIONS) as u64;
    let plain = match (spec.has_actors(), given, own_count) {
        (false, given, _) => given.unwrap_or(CONNECTIONS),
        (true, Some(beside), Some(_)) => beside,
        (true, _, _) => 0,
    };
    let slow = [
        hostile.slow_readers,
        hostile.slow_heads,
        hostile.slow_bodies,
    ];
    let others = [hostile.idle_connections, hostile.vanishing];
    let others: usize = others.iter().flatten().map(|count| **count).sum();
    let counts = Counts {
        plain: u32::try_from(plain).unwrap_or(u32::MAX),
        users: users.scenario.as_ref().map_or(0, |_| user_count),
        players: users.player.map_or(0, |_| user_count),
        hostile: slow.iter().flatten().map(|slow| slow.count).sum::<u64>() + others as u64,
    };
    if counts.total() == 0 || (spec.is_open() && plain == 0) {
        return Err(
            SpecError::new("connections", "no client would send", "at least 1").with_value(0),
        );
    }
    Ok(counts)
}

/// Adds the groups of a plan, the headline's first. Returns the user_groups, and the scenario that users
/// follow, which counts how its steps fare.
pub(super) fn add(
    spec: &LoadSpec,
    counts: Counts,
    plan: &mut Plan,
) -> Result<(Vec<UserGroup>, Option<Scenario>), SpecError> {
    let mut user_groups = Vec::new();
    if counts.plain > 0 {
        add_group(plan, "clients");
    }
    let path = spec.users.scenario.as_deref();
    let scenario = path.map(Scenario::read).transpose()?;
    if let Some(scenario) = &scenario {
        let group = add_group(plan, "users");
        user_groups.push(users(spec, scenario, group, counts.users, plan)?);
    }
    if let Some(bits_per_second) = spec.users.player {
        let group = add_group(plan, "players");
        let made = player::user_group(bits_per_second.0, asked(plan));
        user_groups.push(made.of(group, counts.players));
    }
    add_hostile(spec, plan, &mut user_groups);
    if let Some(request) = plan.mix.requests.first() {
        for user_group in &mut user_groups {
            user_group.server = request.server;
        }
    }
    if spec.users.source_per_client {
        deal_sources(plan, &mut user_groups);
    }
    Ok((user_groups, scenario))
}

fn add_hostile(spec: &LoadSpec, plan: &mut Plan, user_groups: &mut Vec<UserGroup>) {
    let hostile = &spec.hostile;
    let first = asked(plan);
    let mut add = |name, count, made: UserGroup| {
        let group = add_group(plan, name);
        user_groups.push(made.of(group, count));
    };
    if let Some(count) = hostile.idle_connections {
        let request = hostile.idle_request.then(|| first.clone());
        add("idle", *count as u64, idle::user_group(request));
    }
    if let Some(slow) = hostile.slow_readers {
        let made = slow_reader::user_group(slow.bytes_per_second, first.clone());
        add("slow-readers", slow.count, made);
    }
    if let Some(slow) = hostile.slow_heads {
        let made = slow_sender::heads(slow.bytes_per_second, first.clone());
        add("slow-heads", slow.count, made);
    }
    if let Some(slow) = hostile.slow_bodies {
        let request = with_content(slow.bytes_per_second, first.clone());
        let made = slow_sender::bodies(slow.bytes_per_second, request);
        add("slow-bodies", slow.count, made);
    }
    if let Some(count) = hostile.vanishing {
        add("vanishing", *count as u64, vanishing::user_group(first));
    }
}

/// Users with a scenario; its paths are asked for below the path of the URL.
fn users(
    spec: &LoadSpec,
    scenario: &Scenario,
    group: u16,
    count: u64,
    plan: &Plan,
) -> Result<UserGroup, SpecError> {
    let [url] = spec.url.as_slice() else {
        return Err(unfit(
            "scenario",
            "it goes with one URL, the server's".to_owned(),
        ));
    };
    let url = Url::parse(url)?;
    if let Some((_, query)) = url.target.split_once('?') {
        return Err(SpecError::new(
            "scenario",
            format!("the URL has a query, ?{query}"),
            format!(
                "the begin of the paths, {}://{}/shop say",
                url.scheme(),
                url.authority
            ),
        ));
    }
    let make = scenario.factory(Setting {
        path_prefix: url.target.trim_end_matches('/').to_owned(),
        is_https: url.is_https,
        authority: url.authority,
        authorization: url.user.as_deref().map(basic),
        timeout_ns: plan.timeout_ns,
        deadline_ns: plan.deadline_ns,
    });
    Ok(UserGroup::new(make).of(group, count))
}

fn add_group(plan: &mut Plan, name: &str) -> u16 {
    plan.groups.push(name.to_owned());
    u16::try_from(plan.groups.len() - 1).unwrap_or(u16::MAX)
}

/// What clients of a user_group ask for: the first request of the plan.
fn asked(plan: &Plan) -> RequestSpec {
    let request = plan.mix.requests[0].clone(); // a mix without requests is refused
    let expectation = plan.mix.expectations.get(request.expectation as usize);
    RequestSpec {
        expectation: expectation.cloned().unwrap_or_default(),
        request,
        timeout_ns: plan.timeout_ns,
    }
}

/// How long a slow client drips at a content that is made up for it, and bytes of it at least and at
/// most: what servers usually take.
const DRIP_S: u64 = 60;
const DRIP_BYTES: std::ops::RangeInclusive<u64> = 1_000..=1_000_000;

/// A request whose content can drip: the first one if it has any, else one like it that has.
fn with_content(bytes_per_second: u64, asked: RequestSpec) -> RequestSpec {
    if slow_sender::has_content(&asked.request) {
        return asked;
    }
    let bytes = bytes_per_second.saturating_mul(DRIP_S);
    let bytes = bytes.clamp(*DRIP_BYTES.start(), *DRIP_BYTES.end());
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    RequestSpec {
        request: slow_sender::post(&asked.request, bytes),
        ..asked
    }
}

/// Gives each client an address of its own, as there are that many.
fn deal_sources(plan: &mut Plan, user_groups: &mut [UserGroup]) {
    let plain = plan.connections as usize;
    let mut rest = plan.sources.split_off(plain.min(plan.sources.len()));
    for user_group in user_groups {
        let count = usize::try_from(user_group.count).unwrap_or(usize::MAX);
        user_group.sources = rest.drain(..count.min(rest.len())).collect();
    }
}

#[cfg(test)]
mod tests {
    use loadline_load::{Expectation, Prepared};

    use super::*;
    use crate::harness::Harness;
    use crate::resolve::requests::prepared;
    use crate::resolve::tests::typed;
    use crate::{Event, Order};

    fn counts(options: &str) -> Result<Counts, SpecError> {
        count(&typed(options))
    }

    #[test]
    fn users_and_players_stand_in_place_of_plain_clients_or_beside_them() {
        for (options, (plain, users, players, hostile)) in [
            ("", (64, 0, 0, 0)),
            ("-c 5", (5, 0, 0, 0)),
            ("--scenario x", (0, 64, 0, 0)),
            ("--scenario x -c 5", (0, 5, 0, 0)),
            ("--scenario x --users 7", (0, 7, 0, 0)),
            ("--scenario x --users 7 -c 5", (5, 7, 0, 0)),
            ("--player 5Mbps --players 3", (0, 0, 3, 0)),
            ("--player 5Mbps --players 3 -c 2", (2, 0, 3, 0)),
            ("-c 0 --idle-connections 9", (0, 0, 0, 9)),
            (
                "--slow-heads 2@1B/s --slow-bodies 3@1B/s --vanishing 4",
                (64, 0, 0, 9),
            ),
        ] {
            let right = Counts {
                plain,
                users,
                players,
                hostile,
            };
            assert_eq!(counts(options), Ok(right), "{options}");
        }
        assert!(counts("-c 0").is_err());
        assert!(counts("-c 0 --rate 5 --idle-connections 2").is_err());
    }

    /// What slow clients of a list with this line send, with or without another URL.
    fn dripped(line: &str, has_url: bool) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), line).unwrap();
        let path = file.path().display();
        let mut spec = typed(&format!("-c 0 --slow-bodies 1@1B/s --urls {path}"));
        if !has_url {
            spec.url.clear();
        }
        let asked = RequestSpec {
            request: prepared(&spec).unwrap().mix.requests[0].clone(),
            expectation: Expectation::default(),
            timeout_ns: 1,
        };
        let request = with_content(1, asked).request;
        String::from_utf8(request.keep.to_vec()).unwrap()
    }

    #[test]
    fn a_made_up_content_goes_to_the_target_of_the_first_line() {
        let whole = "POST /line HTTP/1.1\r\nHost: 127.0.0.1:8\r\n";
        let of_url = "POST /line HTTP/1.1\r\nHost: 127.0.0.1:9\r\n";
        let content = format!("Content-Length: 1000\r\n\r\n{}", "x".repeat(1000));
        for (line, has_url, head) in [
            ("http://127.0.0.1:8/line", false, whole),
            ("http://127.0.0.1:8/line", true, whole),
            ("/line", true, of_url),
            ("POST /line", true, of_url),
        ] {
            let request = dripped(line, has_url);
            assert!(request.starts_with(head), "{line}: {request}");
            assert!(request.ends_with(&content), "{line}: {request}");
            assert_eq!(request.matches("Content-Length").count(), 1, "{line}");
        }
        let own = dripped("PUT /line body=abc", true);
        assert!(own.starts_with("PUT /line "), "{own}");
        assert!(own.ends_with("Content-Length: 3\r\n\r\nabc"), "{own}");
    }

    #[test]
    fn users_send_the_credentials_of_the_url() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[[step]]\npath = \"/\"\n").unwrap();
        let scenario = Scenario::read(file.path()).unwrap();
        let mut spec = typed("http://ann:pw@127.0.0.1:9/");
        spec.url.remove(0);
        let server = ([127, 0, 0, 1], 9).into();
        let plan = Plan::new(server, Prepared::get("h", "/"), Vec::new());
        let group = users(&spec, &scenario, 0, 1, &plan).unwrap();
        let mut user = Harness::new((group.make)(0, 1));
        assert_eq!(user.order(), Order::Connect);
        user.on_event(Event::Connected);
        let Order::Send(request) = user.order() else {
            panic!("it sends nothing");
        };
        let request = String::from_utf8(request).unwrap();
        let credentials = "\r\nAuthorization: Basic YW5uOnB3\r\n";
        assert!(request.contains(credentials), "{request}");
    }
}
