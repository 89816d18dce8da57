//! What each client holds at each loop, as far as the other loops need it: written only while memory is
//! short, by each loop on a page of its own.
//!
//! ```text
//!   loop   its page is old ▸ writes it, and has the others take a turn ▸ all pages are new: closes
//! ```
//!
//! A loop that has work for longer than `WAIT_MS` is not waited for; it is left out until it has written. What
//! would need more than there is has to go meanwhile, whosever it is.

use std::sync::{Mutex, MutexGuard, PoisonError};

use loadline_base::{Millis, sorting};

use crate::fairness::ClientKey;

/// Clients that a page names, those that hold most: one that is not named holds less than this share
/// of what its loop holds. With those of 64 loops it takes some 100 us to add all pages.
const CLIENTS_MAX: usize = 64;

/// A page is good for so long. A loop that has something to do writes its page every few ms, and what
/// others hold does not change.
const GOOD_FOR_MS: u64 = 500;

/// The pages of other loops are waited for so long: they come within microseconds, unless a loop has other
/// work or no CPU.
const WAIT_MS: u64 = 250;

/// What a client holds at one loop or at several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) client: ClientKey,
    /// In all.
    pub(crate) bytes: u64,
    /// By connections that wait for it.
    pub(crate) slow: Part,
    /// By those that have been idle for long enough.
    pub(crate) idle: Part,
}

/// What the end of some connections would free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) bytes: u64,
    pub(crate) connections: u64,
}

/// What all clients hold at one loop or at several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// In the order of clients.
    pub(crate) named: Vec<Held>,
    /// The others together, and how many they are.
    pub(crate) rest: Held,
    pub(crate) rest_clients: u64,
}

/// The pages of all loops.
#[derive(Debug)]
pub(crate) struct Ledger(Box<[Mutex<Page>]>);

#[derive(Debug, Default)]
struct Page {
    written_at: Option<Millis>,
    sums: Sums,
}

/// What a loop reads on the pages of the others.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    pub(crate) sums: Sums,
    /// Some have not written lately.
    pub(crate) is_partial: bool,
}

impl Part {
    pub(crate) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.connections += other.connections;
    }
}

impl Held {
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.slow.add(other.slow);
        self.idle.add(other.idle);
    }
}

impl Sums {
    /// Of clients that come once each.
    pub(crate) fn of(mut named: Vec<Held>) -> Self {
        let (mut rest, mut rest_clients) = (Held::default(), 0);
        if named.len() > CLIENTS_MAX {
            sorting::sort_by_key(&mut named, |held| u64::MAX - held.bytes);
            for held in named.drain(CLIENTS_MAX..) {
                rest.add(&held);
                rest_clients += 1;
            }
        }
        sorting::sort_by_key(&mut named, |held| held.client);
        Self {
            named,
            rest,
            rest_clients,
        }
    }

    fn add(&mut self, other: &Self) {
        self.named.extend_from_slice(&other.named);
        self.rest.add(&other.rest);
        self.rest_clients += other.rest_clients;
    }

    /// Clients that were added several times come once from here on.
    fn settle(&mut self) {
        sorting::sort_by_key(&mut self.named, |held| held.client);
        self.named.dedup_by(|held, before| {
            let is_same = held.client == before.client;
            if is_same {
                before.add(held);
            }
            is_same
        });
    }
}

impl Ledger {
    pub(crate) fn new(loops: usize) -> Self {
        Self((0..loops).map(|_| Mutex::default()).collect())
    }

    /// A loop writes its page. `true`: it was old, and the others are to take a turn.
    pub(crate) fn write(&self, index: usize, now: Millis, sums: Sums) -> bool {
        let mut page = lock(&self.0[index]);
        let is_news = self.0.len() > 1 && !page.is_good(now);
        page.written_at = Some(now);
        page.sums = sums;
        is_news
    }

    /// What the other loops have written.
    pub(crate) fn elsewhere(&self, index: usize, now: Millis) -> Elsewhere {
        let mut elsewhere = Elsewhere::default();
        for (other, page) in self.0.iter().enumerate() {
            if other == index {
                continue;
            }
            let page = lock(page);
            match page.is_good(now) {
                true => elsewhere.sums.add(&page.sums),
                false => elsewhere.is_partial = true,
            }
        }
        elsewhere.sums.settle();
        elsewhere
    }

    /// Whether some of the other loops have not written lately.
    pub(crate) fn is_partial(&self, index: usize, now: Millis) -> bool {
        let mut others = self.0.iter().enumerate();
        others.any(|(other, page)| other != index && !lock(page).is_good(now))
    }
}

impl Page {
    fn is_good(&self, now: Millis) -> bool {
        // Loops read their clocks at different times.
        self.written_at.is_some_and(|at| now.0 < at.0 + GOOD_FOR_MS)
    }
}

fn lock(page: &Mutex<Page>) -> MutexGuard<'_, Page> {
    // Nothing panics while it holds the lock.
    page.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one loop keeps from one look at its connections to the next.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// When they may be looked through again.
    look_after: Millis,
    /// Since when it waits for the pages of others.
    waits_since: Option<Millis>,
    /// The clients that give something up, here or elsewhere, if that is enough for all, and until when
    /// that holds.
    givers: Vec<ClientKey>,
    holds_until: Millis,
}

impl Plan {
    /// Whether it is time for a look.
    pub(crate) fn is_due(&self, ledger: &Ledger, index: usize, now: Millis) -> bool {
        match self.waits_since {
            Some(since) => now.0 >= since.0 + WAIT_MS || !ledger.is_partial(index, now),
            None => now >= self.look_after,
        }
    }

    /// Memory is not short any more.
    #[inline]
    pub(crate) fn rest(&mut self) {
        if self.waits_since.is_some() {
            self.waits_since = None;
        }
    }

    /// Pages of others are missing. `true`: they are waited for.
    pub(crate) fn waits(&mut self, now: Millis) -> bool {
        let since = *self.waits_since.get_or_insert(now);
        now.0 < since.0 + WAIT_MS
    }

    /// The look has come to this; not again for so long.
    pub(crate) fn set(&mut self, givers: Vec<ClientKey>, is_enough: bool, now: Millis, ms: u64) {
        self.waits_since = None;
        self.look_after = Millis(now.0 + ms);
        self.givers = givers;
        self.holds_until = match is_enough {
            true => Millis(now.0 + GOOD_FOR_MS),
            false => now,
        };
    }

    /// Whether others give up enough, so that this client need not.
    pub(crate) fn spares(&self, client: ClientKey, now: Millis) -> bool {
        now < self.holds_until && self.givers.binary_search(&client).is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(client: u32, bytes: u64) -> Held {
        let part = Part {
            bytes,
            connections: 1,
        };
        Held {
            client: ClientKey::of(std::net::Ipv4Addr::from(client).into()),
            bytes,
            slow: part,
            idle: Part::default(),
        }
    }

    fn sums(held_by: &[(u32, u64)]) -> Sums {
        let named = held_by.iter().map(|(client, bytes)| held(*client, *bytes));
        Sums::of(named.collect())
    }

    #[test]
    fn a_client_is_added_up_over_the_pages_of_the_others() {
        let ledger = Ledger::new(3);
        let now = Millis(1000);
        assert!(ledger.elsewhere(0, now).is_partial);
        assert!(ledger.write(0, now, sums(&[(7, 1)])));
        assert!(ledger.write(1, now, sums(&[(9, 10), (7, 20)])));
        assert!(ledger.is_partial(0, now) && ledger.is_partial(1, now));
        assert!(!ledger.is_partial(2, now), "both others have written");
        ledger.write(2, now, sums(&[(7, 300), (8, 400)]));
        let elsewhere = ledger.elsewhere(0, now);
        assert!(!elsewhere.is_partial);
        let found = elsewhere.sums.named.iter().map(|it| it.bytes);
        assert_eq!(found.collect::<Vec<_>>(), [320, 400, 10]);
        assert_eq!(elsewhere.sums.named[0].slow.connections, 2);
    }

    #[test]
    fn an_old_page_is_left_out_and_its_next_version_is_news() {
        let ledger = Ledger::new(2);
        ledger.write(1, Millis(1000), sums(&[(7, 300)]));
        let last = Millis(1000 + GOOD_FOR_MS - 1);
        assert!(!ledger.write(1, last, sums(&[(7, 200)])));
        assert_eq!(ledger.elsewhere(0, Millis(1600)).sums.named[0].bytes, 200);
        let late = Millis(last.0 + GOOD_FOR_MS);
        let elsewhere = ledger.elsewhere(0, late);
        assert!(elsewhere.is_partial && elsewhere.sums.named.is_empty());
        assert!(ledger.write(1, late, sums(&[])));
        let alone = Ledger::new(1);
        assert!(
            !alone.write(0, Millis(0), sums(&[])),
            "no loop is to be notified"
        );
        assert!(!alone.is_partial(0, Millis(0)));
    }

    #[test]
    fn a_page_has_a_bound_and_names_those_who_hold_most() {
        let many: Vec<_> = (1..=1000)
            .map(|client| (client, u64::from(client)))
            .collect();
        let sums = sums(&many);
        assert_eq!(sums.named.len(), CLIENTS_MAX);
        assert!(sums.named.iter().all(|it| it.bytes > 1000 - 64));
        assert!(sums.named.is_sorted_by_key(|it| it.client));
        assert_eq!(sums.rest_clients, 936);
        assert_eq!(sums.rest.bytes, 936 * 937 / 2);
        assert_eq!(sums.rest.slow.connections, 936);
    }

    #[test]
    fn a_loop_waits_for_the_pages_of_others_but_not_for_long() {
        let ledger = Ledger::new(2);
        let mut plan = Plan::default();
        let at = Millis;
        assert!(plan.is_due(&ledger, 0, at(1000)));
        assert!(plan.waits(at(1000)));
        assert!(!plan.is_due(&ledger, 0, at(1005)), "nothing has come");
        ledger.write(1, at(1006), sums(&[]));
        assert!(plan.is_due(&ledger, 0, at(1006)));
        plan.set(Vec::new(), true, at(1006), 1);
        assert!(!plan.is_due(&ledger, 0, at(1006)) && plan.is_due(&ledger, 0, at(1007)));
        assert!(plan.waits(at(2000)));
        let late = at(2000 + WAIT_MS);
        assert!(plan.is_due(&ledger, 0, late), "it has work for long");
        assert!(!plan.waits(late));
        plan.rest();
        assert!(plan.waits(late), "another shortage");
    }

    #[test]
    fn who_gives_nothing_up_is_spared_while_others_give_enough() {
        let mut plan = Plan::default();
        let client = |number| held(number, 0).client;
        assert!(!plan.spares(client(1), Millis(0)), "there is no plan");
        plan.set(vec![client(2)], true, Millis(10), 1);
        assert!(plan.spares(client(1), Millis(20)));
        assert!(!plan.spares(client(2), Millis(20)));
        assert!(
            !plan.spares(client(1), Millis(10 + GOOD_FOR_MS)),
            "that was before"
        );
        plan.set(vec![client(2)], false, Millis(20), 1);
        assert!(!plan.spares(client(1), Millis(20)), "all have to");
    }
}
