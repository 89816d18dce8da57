//! What each client holds at each loop, as far as the other loops need it: written only while memory is
//! short, by each loop on a page of its own.
//!
//! ```text
//!   loop   its page is old ▸ writes it, and has the others take a turn ▸ all pages are new: closes
//! ```
//!
//! A loop that has work for longer than `WAIT_MS` is not waited for; it is left out until it has written, and
//! its part is not freed by others. What would need more than there is has to go meanwhile, whosever it is.

use std::sync::{Mutex, MutexGuard, PoisonError};

use loadline_base::{MemoryPressure, Millis, sorting};

use crate::fairness::ClientKey;

/// Clients that a page names, those that hold most: one that is not named holds less than this share
/// of what its loop holds. With those of 64 loops it takes some 100 us to add all pages.
const CLIENTS_MAX: usize = 64;

/// A page is good for so long. A loop that has something to do writes its page every few ms, or clears it once
/// memory is not short, and what others hold does not change.
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
    /// So many have not written lately.
    pub(crate) missing: u64,
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

    /// A loop takes its page back: what clients hold there changes from now on.
    pub(crate) fn clear(&self, index: usize) {
        lock(&self.0[index]).written_at = None;
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
                false => elsewhere.missing += 1,
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
    /// When they may be looked through again, unless memory is shorter than it was at the last look.
    look_after: Millis,
    looked_at: MemoryPressure,
    /// When the loop has to look again, whether anything comes or not.
    wakes_at: Option<Millis>,
    /// Its page may be good.
    has_written: bool,
    /// Since when it waits for the pages of others.
    waits_since: Option<Millis>,
    /// The clients that give something up, here or elsewhere, if that is enough for all, and until when
    /// that holds.
    givers: Vec<ClientKey>,
    holds_until: Millis,
}

impl Plan {
    /// Whether it is time for a look.
    pub(crate) fn is_due(
        &self,
        ledger: &Ledger,
        index: usize,
        pressure: MemoryPressure,
        now: Millis,
    ) -> bool {
        match self.waits_since {
            Some(since) => now.0 >= since.0 + WAIT_MS || !ledger.is_partial(index, now),
            None => now >= self.look_after || pressure > self.looked_at,
        }
    }

    /// Memory is not short any more. `true`: the loop has to clear its page. It may come back at once, so a page
    /// is kept until it is time for another look.
    #[inline]
    pub(crate) fn rest(&mut self, now: Millis) -> bool {
        (self.waits_since, self.wakes_at) = (None, None);
        let is_over = self.has_written && now >= self.look_after;
        if is_over {
            (self.has_written, self.looked_at) = (false, MemoryPressure::None);
        }
        is_over
    }

    /// Pages of others are missing. `true`: they are waited for.
    pub(crate) fn waits(&mut self, now: Millis) -> bool {
        self.has_written = true;
        let since = *self.waits_since.get_or_insert(now);
        now.0 < since.0 + WAIT_MS
    }

    /// The look has come to this; not again for so long. `true`: memory is shorter than it was at the last one.
    pub(crate) fn set(
        &mut self,
        givers: Vec<ClientKey>,
        is_enough: bool,
        pressure: MemoryPressure,
        now: Millis,
        ms: u64,
    ) -> bool {
        self.has_written = true;
        self.waits_since = None;
        self.look_after = Millis(now.0 + ms);
        self.givers = givers;
        self.holds_until = match is_enough {
            true => Millis(now.0 + GOOD_FOR_MS),
            false => now,
        };
        pressure > std::mem::replace(&mut self.looked_at, pressure)
    }

    /// The turn ends. A loop looks again in time if connections that wait for their clients have to go, and if it
    /// waits for pages.
    pub(crate) fn end_turn(&mut self, is_slow: bool) {
        self.wakes_at = match self.waits_since {
            Some(since) => Some(Millis(since.0 + WAIT_MS)),
            None => is_slow.then_some(self.look_after),
        };
    }

    /// When the loop has to look again, whether anything comes or not.
    pub(crate) fn wakes_at(&self) -> Option<Millis> {
        self.wakes_at
    }

    /// Whether others give up enough, so that this client need not, or that is about to be known.
    pub(crate) fn spares(&self, client: ClientKey, now: Millis) -> bool {
        let is_planned = now < self.holds_until && self.givers.binary_search(&client).is_err();
        is_planned || self.waits_since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: MemoryPressure = MemoryPressure::Slow;

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
        assert_eq!(ledger.elsewhere(0, now).missing, 2);
        assert!(ledger.write(0, now, sums(&[(7, 1)])));
        assert!(ledger.write(1, now, sums(&[(9, 10), (7, 20)])));
        assert!(ledger.is_partial(0, now) && ledger.is_partial(1, now));
        assert!(!ledger.is_partial(2, now), "both others have written");
        ledger.write(2, now, sums(&[(7, 300), (8, 400)]));
        let elsewhere = ledger.elsewhere(0, now);
        assert_eq!(elsewhere.missing, 0);
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
        assert!(elsewhere.missing == 1 && elsewhere.sums.named.is_empty());
        assert!(ledger.write(1, late, sums(&[])));
        assert_eq!(ledger.elsewhere(0, late).missing, 0);
        ledger.clear(1);
        assert_eq!(ledger.elsewhere(0, late).missing, 1);
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
        let is_due = |plan: &Plan, now| plan.is_due(&ledger, 0, SLOW, now);
        assert!(is_due(&plan, at(1000)));
        assert!(plan.waits(at(1000)));
        assert!(!is_due(&plan, at(1005)), "nothing has come");
        ledger.write(1, at(1006), sums(&[]));
        assert!(is_due(&plan, at(1006)));
        plan.set(Vec::new(), true, SLOW, at(1006), 1);
        assert!(!is_due(&plan, at(1006)) && is_due(&plan, at(1007)));
        assert!(plan.waits(at(2000)));
        let late = at(2000 + WAIT_MS);
        assert!(is_due(&plan, late), "it has work for long");
        assert!(!plan.waits(late));
        plan.rest(late);
        assert!(plan.waits(late), "another shortage");
    }

    #[test]
    fn memory_that_is_shorter_than_at_the_last_look_is_looked_at_at_once() {
        let ledger = Ledger::new(1);
        let mut plan = Plan::default();
        let mut set = |pressure| plan.set(Vec::new(), false, pressure, Millis(1000), 10);
        assert!(set(MemoryPressure::Idle));
        assert!(!set(MemoryPressure::Idle));
        assert!(set(SLOW));
        let is_due = |pressure| plan.is_due(&ledger, 0, pressure, Millis(1000));
        assert!(is_due(MemoryPressure::Full));
        assert!(!is_due(SLOW) && !is_due(MemoryPressure::Idle));
    }

    #[test]
    fn a_loop_wakes_up_for_its_next_look_while_connections_have_to_go_or_pages_to_come() {
        let mut plan = Plan::default();
        plan.set(Vec::new(), false, SLOW, Millis(1000), 10);
        plan.end_turn(true);
        assert_eq!(plan.wakes_at(), Some(Millis(1010)));
        plan.end_turn(false);
        assert_eq!(plan.wakes_at(), None);
        plan.waits(Millis(2000));
        plan.end_turn(false);
        assert_eq!(plan.wakes_at(), Some(Millis(2000 + WAIT_MS)));
        plan.rest(Millis(2000));
        assert_eq!(plan.wakes_at(), None);
    }

    #[test]
    fn a_page_is_cleared_once_when_memory_is_not_short_any_more() {
        let mut plan = Plan::default();
        assert!(!plan.rest(Millis(1000)), "there is none");
        plan.set(Vec::new(), false, SLOW, Millis(1000), 10);
        assert!(!plan.rest(Millis(1009)), "it may be short again at once");
        assert!(plan.rest(Millis(1010)));
        assert!(!plan.rest(Millis(1011)));
        plan.waits(Millis(2000));
        assert!(plan.rest(Millis(2000)));
    }

    #[test]
    fn who_gives_nothing_up_is_spared_while_others_give_enough() {
        let mut plan = Plan::default();
        let client = |number| held(number, 0).client;
        assert!(!plan.spares(client(1), Millis(0)), "there is no plan");
        plan.set(vec![client(2)], true, SLOW, Millis(10), 1);
        assert!(plan.spares(client(1), Millis(20)));
        assert!(!plan.spares(client(2), Millis(20)));
        assert!(
            !plan.spares(client(1), Millis(10 + GOOD_FOR_MS)),
            "that was before"
        );
        plan.set(vec![client(2)], false, SLOW, Millis(20), 1);
        assert!(!plan.spares(client(1), Millis(20)), "all have to");
        assert!(plan.waits(Millis(30)));
        assert!(plan.spares(client(1), Millis(30)), "it is not known yet");
    }
}
