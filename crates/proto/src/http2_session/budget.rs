//! What a client may do that costs the server something and brings nobody anything: resets, settings,
//! priorities, empty frames, and any other frames that are hardly more than their heads.

use loadline_base::Millis;

use crate::ClientKey;

/// So many at once, and never more: a browser that leaves a page resets all of its streams.
const AT_ONCE: u64 = 500;
/// So many a second later on.
const PER_S: u64 = 50;
/// Bytes beyond those that useful ones allow for: 60,000 pings, or 170,000 frames of one byte of content.
const OVERHEAD_BYTES_MAX: u64 = 1 << 20;
/// Bytes that each useful one allows for. The smallest message of gRPC has five, in a frame of 14.
const USEFUL_WEIGHT: u64 = 4;
/// A client that sends a ping a second never comes to the bound.
const OVERHEAD_BYTES_PER_S: u64 = 1000;
/// Clients of a proxy's connection that have spent something and do not have it back: as many as there are
/// streams by default. Who has cancelled one request has it back after 20 ms.
const CLIENTS_MAX: usize = 128;

/// Counts down, and comes back with time and with what is of use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    left: u64,
    /// Bytes that were received beyond those that useful ones allow for.
    overhead_bytes: u64,
    /// Until when time was counted.
    at: Millis,
}

impl Budget {
    pub(super) fn new(now: Millis) -> Self {
        Self {
            left: AT_ONCE,
            overhead_bytes: 0,
            at: now,
        }
    }

    /// Bytes were received, of whatever; `false`: that was too much.
    pub(super) fn receive(&mut self, bytes: usize, now: Millis) -> bool {
        self.overhead_bytes += bytes as u64;
        if self.overhead_bytes > OVERHEAD_BYTES_MAX {
            self.come_back(now);
        }
        self.overhead_bytes <= OVERHEAD_BYTES_MAX
    }

    /// So many bytes were content or fields, in either direction.
    pub(super) fn use_bytes(&mut self, bytes: usize) {
        let allowed = USEFUL_WEIGHT * bytes as u64;
        self.overhead_bytes = self.overhead_bytes.saturating_sub(allowed);
    }

    /// A request was answered: a proxy that has some cancelled asks for many more.
    pub(super) fn earn(&mut self) {
        self.left = (self.left + 1).min(AT_ONCE);
    }

    fn come_back(&mut self, now: Millis) {
        let ms = now.since(self.at);
        let more = ms * PER_S / 1000;
        if more > 0 {
            self.left = (self.left + more).min(AT_ONCE);
            let bytes = ms * OVERHEAD_BYTES_PER_S / 1000;
            self.overhead_bytes = self.overhead_bytes.saturating_sub(bytes);
            self.at = now;
        }
    }

    /// One more; `false`: that was too much.
    pub(super) fn spend(&mut self, now: Millis) -> bool {
        self.come_back(now);
        let is_enough = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_enough
    }
}

/// Behind a trusted proxy: the budgets of its clients, as far as they have spent of them.
#[derive(Debug, Default)]
pub(super) struct ClientBudgets(Vec<(ClientKey, Budget)>);

impl ClientBudgets {
    /// One more of this client; `false`: it has no budget of its own, and the connection's counts.
    pub(super) fn spend(&mut self, client: ClientKey, now: Millis) -> bool {
        if client.is_nobody() {
            return false;
        }
        if let Some(budget) = self.of(client) {
            budget.spend(now);
            return true;
        }
        self.0.retain_mut(|(_, budget)| {
            budget.come_back(now);
            budget.left < AT_ONCE
        });
        if self.0.len() == CLIENTS_MAX {
            return false;
        }
        let mut budget = Budget::new(now);
        budget.spend(now);
        self.0.push((client, budget));
        true
    }

    /// A request of this client was answered.
    pub(super) fn earn(&mut self, client: ClientKey) {
        if let Some(budget) = self.of(client) {
            budget.earn();
        }
    }

    /// Whether this client may ask.
    pub(super) fn allows(&mut self, client: ClientKey, now: Millis) -> bool {
        self.of(client).is_none_or(|budget| {
            budget.come_back(now);
            budget.left > 0
        })
    }

    fn of(&mut self, client: ClientKey) -> Option<&mut Budget> {
        let mut budgets = self.0.iter_mut();
        let found = budgets.find(|(of, _)| *of == client);
        found.map(|(_, budget)| budget)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.0.capacity() * size_of::<(ClientKey, Budget)>()
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
            assert!(budgets.spend(one, now));
        }
        assert!(!budgets.allows(one, now));
        assert!(budgets.allows(other, now));
        budgets.earn(one);
        assert!(budgets.allows(one, now));
        assert!(budgets.spend(one, now));
        assert!(!budgets.allows(one, Millis(1_010)));
        assert!(budgets.allows(one, Millis(1_020)), "one in 20 ms");
        let nobody = ClientKey::NOBODY;
        assert!(!budgets.spend(nobody, now) && budgets.allows(nobody, now));
    }

    #[test]
    fn so_many_clients_have_a_budget_at_one_time() {
        let (now, later) = (Millis(1_000), Millis(1_020));
        let client = |number: usize| ClientKey::from_number(number as u64);
        let mut budgets = ClientBudgets::default();
        assert!((1..=CLIENTS_MAX).all(|number| budgets.spend(client(number), now)));
        assert!(!budgets.spend(client(CLIENTS_MAX + 1), now));
        assert!(budgets.spend(client(1), now), "it has one");
        assert!(budgets.spend(client(CLIENTS_MAX + 1), later));
        assert_eq!(budgets.0.len(), 2, "the others have all of it back");
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
