//! Which tries of a password are let through, as a function of time.
//!
//! A browser that the account knows, because it has logged in there before, has tries of its own, and
//! those of others do not count for it. All others have to pass three limits:
//!
//! | of | is held against | so that |
//! |---|---|---|
//! | an address, for all accounts | [`Throttle`] | one password cannot be tried on many accounts |
//! | a network, for one account | [`Throttle`] | an attacker waits, and users elsewhere do not |
//! | one account, in all | [`TurnQueue`] | many networks together guess no more than that |
//!
//! A try that is refused for the sake of the account counts for the address that sent it: one that keeps
//! trying has to wait by address, too. None of this asks whether there is such an account.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::limits::{TRIES_ENTRIES_MAX, TURNS_ENTRIES_MAX};
use crate::options::Options;
use crate::throttle::Throttle;
use crate::turns::TurnQueue;

/// The limits, with what was counted.
#[derive(Debug)]
pub(crate) struct Guard {
    by_device: Throttle<Key>,
    by_address: Throttle<IpAddr>,
    by_network: Throttle<(Key, IpAddr)>,
    by_account: TurnQueue<Key, IpAddr>,
}

/// An account or a browser: as long for each, and nothing that was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key([u8; 16]);

impl Key {
    pub(crate) fn of(text: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(text).into();
        let mut key = [0; 16];
        key.copy_from_slice(&hash[..16]);
        Self(key)
    }
}

/// The source of a try.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    /// A browser that the account knows.
    Device(Key),
    /// Any other.
    Stranger {
        /// `None` if no account can have the name that was given.
        account: Option<Key>,
        address: IpAddr,
    },
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    Right,
    Wrong,
    /// Not known: there was no database, or no time for a hash.
    Unknown,
}

impl Guard {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            by_device: Throttle::new(options.tries_by_device, TRIES_ENTRIES_MAX),
            by_address: Throttle::new(options.tries_by_address, TRIES_ENTRIES_MAX),
            by_network: Throttle::new(options.tries_by_network, TRIES_ENTRIES_MAX),
            by_account: TurnQueue::new(options.turns_by_account, TURNS_ENTRIES_MAX),
        }
    }

    /// Begins a try; it counts as failed until [`Guard::end`] says otherwise.
    ///
    /// # Errors
    /// It is not let through; another may be after the time that is returned.
    pub(crate) fn begin(&self, who: &Who, now_ms: i64) -> Result<(), Duration> {
        let (account, address) = match who {
            Who::Device(device) => return self.by_device.begin(device, now_ms),
            Who::Stranger { account, address } => (account, *address),
        };
        self.by_address.begin(&address, now_ms)?;
        let Some(account) = account else {
            return Ok(());
        };
        let key = (*account, network(address, 48));
        self.by_network.begin(&key, now_ms)?;
        self.by_account
            .begin(account, key.1, now_ms)
            .inspect_err(|_| self.by_network.give_back(&key))
    }

    /// Ends a try that was let through.
    pub(crate) fn end(&self, who: &Who, outcome: AttemptOutcome) {
        let (account, address) = match who {
            Who::Device(device) => {
                return match outcome {
                    AttemptOutcome::Right => self.by_device.forget(device),
                    AttemptOutcome::Wrong => (),
                    AttemptOutcome::Unknown => self.by_device.give_back(device),
                };
            }
            Who::Stranger { account, address } => (account, *address),
        };
        if outcome == AttemptOutcome::Wrong {
            return;
        }
        self.by_address.give_back(&address);
        let Some(account) = account else {
            return;
        };
        self.by_account.give_back(account);
        let key = (*account, network(address, 48));
        match outcome {
            AttemptOutcome::Right => self.by_network.forget(&key),
            _ => self.by_network.give_back(&key),
        }
    }
}

/// An IPv4 address, or the IPv6 network of `bits` that an address is in.
///
/// For an account it is 48 bits, the most that one customer is given (RFC 6177). For all accounts
/// together it is 64 bits, the least, so that customers of one provider are not taken for each other.
pub(crate) fn network(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - bits))).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const MINUTE_MS: i64 = 60_000;

    fn guard() -> Guard {
        let database = "sqlite:accounts.db".parse().unwrap();
        Guard::new(&Options::new(database))
    }

    fn stranger(address: u32) -> Who {
        Who::Stranger {
            account: Some(Key::of("ada")),
            address: Ipv4Addr::from(address).into(),
        }
    }

    /// A moment of the attack: each tries, so often, and is wrong.
    fn attack(guard: &Guard, addresses: u32, now_ms: i64) -> usize {
        let tries = (1..=addresses).flat_map(|address| [address; 2]);
        tries
            .filter(|address| guard.begin(&stranger(*address), now_ms).is_ok())
            .count()
    }

    /// The waits of owners who come from new addresses while others try at each second before them.
    fn waits(addresses: u32) -> Vec<i64> {
        let guard = guard();
        let mut waits = Vec::new();
        let (mut owner, mut came_ms, mut next_ms) = (1000, 0, 0);
        for now_ms in (0..6 * 60 * MINUTE_MS).step_by(1000) {
            attack(&guard, addresses, now_ms);
            if now_ms < next_ms {
                continue;
            }
            match guard.begin(&stranger(owner), now_ms) {
                Ok(()) => {
                    guard.end(&stranger(owner), AttemptOutcome::Right);
                    waits.push(now_ms - came_ms);
                    owner += 1;
                    came_ms = now_ms + 37_000;
                    next_ms = came_ms;
                }
                Err(wait) => next_ms = now_ms + i64::try_from(wait.as_millis()).unwrap(),
            }
        }
        waits
    }

    #[test]
    fn an_owner_elsewhere_waits_five_minutes_at_most_for_five_addresses_that_never_tire() {
        for addresses in [1, 2, 3, 4, 5] {
            let waits = waits(addresses);
            let longest = waits.iter().copied().max().unwrap_or(i64::MAX);
            assert!(waits.len() > 100, "{addresses}: {waits:?}");
            assert!(longest <= 5 * MINUTE_MS, "{addresses}: {waits:?}");
            let later = &waits[waits.len() / 2..];
            assert!(
                later.iter().all(|wait| *wait == 0),
                "{addresses}: {later:?}"
            );
        }
    }

    #[test]
    fn each_further_address_adds_one_turn_at_most() {
        for addresses in [6, 9, 12, 16] {
            let waits = waits(addresses);
            let longest = waits.iter().copied().max().unwrap_or(i64::MAX);
            let turns = i64::from(addresses) + 1;
            assert!(longest <= turns * 50_000, "{addresses}: {waits:?}");
        }
    }

    #[test]
    fn many_addresses_have_no_more_than_a_hundred_guesses_in_any_hour() {
        let guard = guard();
        let mut times = Vec::new();
        let mut next_ms = [0; 400]; // each comes when its wait ends: then it has the most
        for now_ms in (0..4 * 60 * MINUTE_MS).step_by(1000) {
            for (address, next_ms) in (0..).zip(&mut next_ms) {
                if *next_ms > now_ms {
                    continue;
                }
                match guard.begin(&stranger(address), now_ms) {
                    Ok(()) => times.push(now_ms),
                    Err(wait) => *next_ms = now_ms + i64::try_from(wait.as_millis()).unwrap(),
                }
            }
        }
        for begin in &times {
            let in_time = |at: &&i64| (*begin..begin + 60 * MINUTE_MS).contains(*at);
            let count = times.iter().filter(in_time).count();
            assert!(count <= 100, "{count} in the hour from {begin}");
        }
        assert!(times.len() > 250, "{}", times.len());
    }

    #[test]
    fn a_browser_that_is_known_has_tries_of_its_own() {
        let guard = guard();
        let device = Who::Device(Key::of("device"));
        for now_ms in (0..20 * MINUTE_MS).step_by(1000) {
            attack(&guard, 400, now_ms);
            guard.begin(&device, now_ms).unwrap();
            guard.end(&device, AttemptOutcome::Right);
        }
        let now_ms = 20 * MINUTE_MS;
        for _ in 0..5 {
            guard.begin(&device, now_ms).unwrap();
            guard.end(&device, AttemptOutcome::Wrong);
        }
        guard.begin(&device, now_ms).unwrap_err();
        guard
            .begin(&Who::Device(Key::of("another")), now_ms)
            .unwrap();
    }

    #[test]
    fn at_an_attackers_address_a_known_browser_is_let_in() {
        let guard = guard();
        let device = Who::Device(Key::of("device"));
        let mut guesses = 0;
        for now_ms in (0..6 * 60 * MINUTE_MS).step_by(1000) {
            if guard.begin(&stranger(1), now_ms).is_ok() && now_ms >= 60 * MINUTE_MS {
                guesses += 1;
            }
            guard.begin(&device, now_ms).unwrap();
            guard.end(&device, AttemptOutcome::Right);
        }
        assert!((1..=5 * 12).contains(&guesses), "{guesses}");
    }

    #[test]
    fn what_is_refused_for_an_account_counts_for_the_address() {
        let guard = guard();
        let other = Who::Stranger {
            account: Some(Key::of("bob")),
            address: Ipv4Addr::from(1).into(),
        };
        for _ in 0..20 {
            let _ = guard.begin(&stranger(1), 0); // five are let through
        }
        assert_eq!(guard.begin(&other, 0), Err(Duration::from_secs(1)));
        guard.begin(&stranger(2), 0).unwrap();
    }

    #[test]
    fn what_was_right_or_is_unknown_was_no_try() {
        for outcome in [AttemptOutcome::Right, AttemptOutcome::Unknown] {
            let guard = guard();
            for who in [stranger(1), Who::Device(Key::of("device"))] {
                for _ in 0..200 {
                    guard.begin(&who, 0).unwrap();
                    guard.end(&who, outcome);
                }
            }
        }
    }

    #[test]
    fn a_network_of_48_bits_is_one_for_an_account() {
        let guard = guard();
        let from = |subnet: u16, account: &str| Who::Stranger {
            account: Some(Key::of(account)),
            address: Ipv6Addr::new(0x2001, 0xdb8, 1, subnet, 0, 0, 0, 0).into(),
        };
        for subnet in 0..5 {
            guard.begin(&from(subnet, "ada"), 0).unwrap();
        }
        guard.begin(&from(5, "ada"), 0).unwrap_err();
        guard.begin(&from(5, "bob"), 0).unwrap();
    }
}
