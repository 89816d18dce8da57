//! How many clients there are of each kind.

use crate::failure::Failure;
use crate::flags::load_defs::LoadFlags;

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
pub(super) fn count(flags: &LoadFlags) -> Result<Counts, Failure> {
    let given = flags.clients.connections;
    let (users, hostile) = (&flags.users, &flags.hostile);
    let own_count = users.users.or(users.players);
    let actors = own_count.or(given).unwrap_or(CONNECTIONS) as u64;
    let has_actors = users.scenario.is_some() || users.player.is_some();
    let plain = match (has_actors, given, own_count) {
        (false, given, _) => given.unwrap_or(CONNECTIONS),
        (true, Some(beside), Some(_)) => beside,
        (true, _, _) => 0,
    };
    let slow = [
        hostile.slow_readers,
        hostile.slow_heads,
        hostile.slow_bodies,
    ];
    let counts = Counts {
        plain: u32::try_from(plain).unwrap_or(u32::MAX),
        users: if users.scenario.is_some() { actors } else { 0 },
        players: if users.player.is_some() { actors } else { 0 },
        hostile: slow.iter().flatten().map(|crowd| crowd.count).sum::<u64>()
            + (hostile.idle_connections.unwrap_or(0) + hostile.vanishing.unwrap_or(0)) as u64,
    };
    let pace = &flags.pace;
    let open = pace.rate.is_some() || pace.steps.is_some() || pace.ramp.is_some();
    if counts.total() == 0 || (open && plain == 0) {
        return Err(Failure::usage(
            "--connections 0: nobody would send; right would be at least 1",
        ));
    }
    Ok(counts)
}

/// Adds the clients with a mind of their own to a plan.
pub(super) fn add(flags: &LoadFlags, counts: Counts) -> Result<(), Failure> {
    if counts.total() > u64::from(counts.plain) || flags.users.scenario.is_some() {
        return Err(Failure::usage(
            "users, players, slow and hostile clients are not in this build",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Typed, defs::Command, read};

    fn counts(options: &str) -> Result<Counts, Failure> {
        let words = ["loadline", "load", "http://127.0.0.1:9/"];
        let words = words.into_iter().chain(options.split_ascii_whitespace());
        match read(words.map(Into::into))? {
            Typed::Command(Command::Load(flags)) => count(&flags),
            other => panic!("{other:?}"),
        }
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
}
