//! What a client may do that costs the server something and brings nobody anything: resets, settings,
//! priorities, empty frames, and any other frames that are hardly more than their heads.

use loadline_base::Millis;

use crate::ClientKey;

/// So many at once, and never more: a browser that leaves a page resets all of its streams.
const AT_ONCE: u32 = 500;
/// All of them come back in so many seconds: 50 each second.
const BACK_S: u64 = 10;
/// Bytes beyond those that useful ones allow for: 60,000 pings, or 170,000 frames of one byte of content.
const OVERHEAD_BYTES_MAX: u64 = 1 << 20;
/// Bytes that each useful one allows for. The smallest message of gRPC has five, in a frame of 14.
const USEFUL_WEIGHT: u64 = 4;
/// A client that sends a ping a second never comes to the bound.
const OVERHEAD_BYTES_PER_S: u64 = 1000;
/// Clients of a proxy's connection that have spent something and do not have it back: as many as there are
/// streams by default. Who has cancelled one request has it back after 20 ms.
const CLIENTS_MAX: usize = 128;
/// All clients of a proxy's connection together may do what so many may. Ten: an attacker that has many
/// addresses gets no further than this, and proxies do not cancel thousands of requests at once.
const TOGETHER: u32 = 10;

/// Resets and the like that are still allowed: it counts down, and comes back with time and with requests
/// that are answered.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: u32,
    most: u32,
    /// Until when time was counted.
    at: Millis,
}

impl Allowance {
    /// Of so many clients.
    fn new(clients: u32, now: Millis) -> Self {
        let most = clients * AT_ONCE;
        Self {
            left: most,
            most,
            at: now,
        }
    }

    /// One more; `false`: that was too much.
    fn spend(&mut self, now: Millis) -> bool {
        let is_enough = self.has_some(now);
        self.left = self.left.saturating_sub(1);
        is_enough
    }

    /// A request was answered: a proxy that has some cancelled asks for many more.
    fn earn(&mut self) {
        self.left = (self.left + 1).min(self.most);
    }

    fn has_some(&mut self, now: Millis) -> bool {
        self.come_back(now);
        self.left > 0
    }

    fn is_whole(&mut self, now: Millis) -> bool {
        self.come_back(now);
        self.left == self.most
    }

    fn come_back(&mut self, now: Millis) {
        let more = now.since(self.at) * u64::from(self.most) / (BACK_S * 1000);
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(self.most);
            self.left = self.left.saturating_add(more).min(self.most);
            self.at = now;
        }
    }
}

/// What a connection may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    resets: Allowance,
    /// Bytes that were received beyond those that useful ones allow for, and until when time was counted.
    overhead_bytes: u64,
    at: Millis,
}

impl Budget {
    pub(super) fn new(now: Millis) -> Self {
        Self {
            resets: Allowance::new(1, now),
            overhead_bytes: 0,
            at: now,
        }
    }

    /// Bytes were received, of whatever; `false`: that was too much.
    pub(super) fn receive(&mut self, bytes: usize, now: Millis) -> bool {
        self.overhead_bytes += bytes as u64;
        if self.overhead_bytes > OVERHEAD_BYTES_MAX {
            let bytes = now.since(self.at) * OVERHEAD_BYTES_PER_S / 1000;
            self.overhead_bytes = self.overhead_bytes.saturating_sub(bytes);
            self.at = now;
        }
        self.overhead_bytes <= OVERHEAD_BYTES_MAX
    }

    /// So many bytes were content or fields, in either direction.
    pub(super) fn use_bytes(&mut self, bytes: usize) {
        let allowed = USEFUL_WEIGHT * bytes as u64;
        self.overhead_bytes = self.overhead_bytes.saturating_sub(allowed);
    }

    /// A request was answered.
    pub(super) fn earn(&mut self) {
        self.resets.earn();
    }

    /// One more; `false`: that was too much.
    pub(super) fn spend(&mut self, now: Millis) -> bool {
        self.resets.spend(now)
    }
}

/// Behind a trusted proxy: what its clients may do, each of them and all together. Empty until one has reset
/// something, so that other connections do not hold it.
#[derive(Debug, Default)]
pub(super) struct ClientBudgets(Option<Box<Clients>>);

#[derive(Debug)]
struct Clients {
    together: Allowance,
    /// Those that have spent something.
    each: Vec<(ClientKey, Allowance)>,
}

impl ClientBudgets {
    /// One more of this client. One whom the proxy does not name has no allowance of its own.
    pub(super) fn spend(&mut self, client: ClientKey, now: Millis) {
        let clients = self.0.get_or_insert_with(|| {
            Box::new(Clients {
                together: Allowance::new(TOGETHER, now),
                each: Vec::new(),
            })
        });
        // One that has spent its own takes nothing from the others.
        if client.is_nobody() || clients.find_or_add(client, now).spend(now) {
            clients.together.spend(now);
        }
    }

    /// A request of this client was answered.
    pub(super) fn earn(&mut self, client: ClientKey) {
        if let Some(clients) = &mut self.0 {
            clients.together.earn();
            if let Some(allowance) = clients.find(client) {
                allowance.earn();
            }
        }
    }

    /// Whether this client may ask.
    pub(super) fn allows(&mut self, client: ClientKey, now: Millis) -> bool {
        let Some(clients) = &mut self.0 else {
            return true;
        };
        let has_some = |it: &mut Allowance| it.has_some(now);
        has_some(&mut clients.together) && clients.find(client).is_none_or(has_some)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |clients| {
            size_of::<Clients>() + clients.each.capacity() * size_of::<(ClientKey, Allowance)>()
        })
    }
}

impl Clients {
    fn find(&mut self, client: ClientKey) -> Option<&mut Allowance> {
        let mut each = self.each.iter_mut();
        let found = each.find(|(of, _)| *of == client);
        found.map(|(_, allowance)| allowance)
    }

    /// If there is no room, the one with most left is forgotten: it has spent least.
    fn find_or_add(&mut self, client: ClientKey, now: Millis) -> &mut Allowance {
        let place = self.each.iter().position(|(of, _)| *of == client);
        let place = place.unwrap_or_else(|| {
            self.each.retain_mut(|(_, it)| !it.is_whole(now));
            if self.each.len() == CLIENTS_MAX {
                let most = self.each.iter().enumerate();
                let most = most.max_by_key(|(_, (_, it))| it.left);
                let place = most.map_or(0, |(place, _)| place);
                self.each.swap_remove(place);
            }
            self.each.push((client, Allowance::new(1, now)));
            self.each.len() - 1
        });
        &mut self.each[place].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_spent_and_comes_back() {
        let mut budget = Budget::new(Millis(1_000));
        assert!((0..AT_ONCE).all(|_| budget.spend(Millis(1_000))));
        assert!(!budget.spend(Millis(1_010)));
        assert!(budget.spend(Millis(1_020)), "one in 20 ms");
        assert!(!budget.spend(Millis(1_020)));
        let later = Millis(1_000_000);
        assert!((0..AT_ONCE).all(|_| budget.spend(later)));
        assert!(!budget.spend(later));
    }

    #[test]
    fn requests_that_are_answered_allow_for_as_many_resets() {
        let now = Millis(1_000);
        let mut budget = Budget::new(now);
        for _ in 0..10 * AT_ONCE {
            budget.earn();
            assert!(budget.spend(now));
        }
        (0..10 * AT_ONCE).for_each(|_| budget.earn());
        let allowed = (0..).find(|_| !budget.spend(now));
        assert_eq!(allowed, Some(AT_ONCE));
    }

    #[test]
    fn a_proxys_clients_have_a_budget_each() {
        let now = Millis(1_000);
        let (one, other) = (ClientKey::from_number(1), ClientKey::from_number(2));
        let mut budgets = ClientBudgets::default();
        for _ in 0..AT_ONCE {
            assert!(budgets.allows(one, now));
            budgets.spend(one, now);
        }
        (0..2 * TOGETHER * AT_ONCE).for_each(|_| budgets.spend(one, now));
        assert!(!budgets.allows(one, now));
        assert!(
            budgets.allows(other, now),
            "what one client does is its own"
        );
        budgets.earn(one);
        assert!(budgets.allows(one, now));
        budgets.spend(one, now);
        assert!(!budgets.allows(one, Millis(1_010)));
        assert!(budgets.allows(one, Millis(1_020)), "one in 20 ms");
    }

    #[test]
    fn all_clients_of_a_proxy_together_have_a_budget() {
        let now = Millis(1_000);
        for is_named in [true, false] {
            let client = |number: u32| match is_named {
                true => ClientKey::from_number(u64::from(1 + number)),
                false => ClientKey::NOBODY,
            };
            let mut budgets = ClientBudgets::default();
            assert_eq!(budgets.held_bytes(), 0);
            for number in 0..TOGETHER * AT_ONCE {
                assert!(budgets.allows(client(number), now), "{number}");
                budgets.spend(client(number), now);
            }
            let another = client(1_000_000);
            assert!(!budgets.allows(another, now));
            budgets.earn(another);
            assert!(budgets.allows(another, now));
            budgets.spend(another, now);
            assert!(!budgets.allows(another, Millis(1_001)));
            assert!(budgets.allows(another, Millis(1_002)), "one in 2 ms");
            assert!(budgets.held_bytes() < 8 << 10);
        }
    }

    /// Before, the next client's resets counted for the connection, and ended it.
    #[test]
    fn who_has_spent_least_makes_room() {
        let (now, later) = (Millis(1_000), Millis(1_020));
        let client = |number: usize| ClientKey::from_number(number as u64);
        let mut budgets = ClientBudgets::default();
        (0..AT_ONCE).for_each(|_| budgets.spend(client(1), now));
        for number in 2..=2 * CLIENTS_MAX {
            budgets.spend(client(number), now);
            budgets.spend(client(number), now);
        }
        let count = |budgets: &ClientBudgets| budgets.0.as_ref().map(|it| it.each.len());
        assert_eq!(count(&budgets), Some(CLIENTS_MAX));
        assert!(!budgets.allows(client(1), now), "it has spent most");
        let mut budgets = ClientBudgets::default();
        (1..=CLIENTS_MAX).for_each(|number| budgets.spend(client(number), now));
        budgets.spend(client(CLIENTS_MAX + 1), later);
        assert_eq!(count(&budgets), Some(1), "the others have all of it back");
    }

    #[test]
    fn frames_without_use_are_bounded_and_others_are_not() {
        let (start, later) = (Millis(1_000), Millis(601_000));
        let mut budget = Budget::new(start);
        let pings = (1..).find(|_| !budget.receive(17, start));
        assert_eq!(pings, Some(61_681), "at once");
        assert!(
            budget.receive(17, later),
            "ten minutes are worth 600,000 bytes"
        );

        let mut budget = Budget::new(start);
        for _ in 0..1_000_000 {
            budget.use_bytes(5); // the smallest message of gRPC
            assert!(budget.receive(14, start));
        }
        let mut budget = Budget::new(start);
        for second in 0..1_000_000 {
            assert!(
                budget.receive(17, Millis(1_000 + 1_000 * second)),
                "a ping a second"
            );
        }
    }
}
