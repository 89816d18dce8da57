//! One budget of memory for all threads of a process, and each thread's account of it.
//!
//! ```text
//!   budget   limit ────────────────────────────────────────────► reserved + credits of all accounts
//!   account  credit, taken in steps ─► used: a plain number of its thread
//! ```
//!
//! An account takes credit from the shared counter in steps, so that most changes touch memory of their
//! own thread alone. What is counted here was allocated already: whoever allocates settles its account
//! when it is done, and follows what [`MemoryBudget::pressure`] says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The largest step of credit. 1 MiB: a loop that serves some thousand connections touches the shared
/// counter some times a second.
const STEP_BYTES_MAX: u64 = 1 << 20;

/// The smallest one, for small budgets and for threads with one connection each.
const STEP_BYTES_MIN: u64 = 4 << 10;

/// Steps into which a budget is divided at least, so that credit that is not used is no part of it
/// that matters.
const STEPS_MIN: u64 = 1024;

/// How short memory is, and what is to be done about it. Each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryPressure {
    /// There is enough.
    #[default]
    None,
    /// Three quarters are used: spare memory is freed rather than kept.
    Spare,
    /// Seven eighths: idle connections are closed.
    Idle,
    /// Fifteen sixteenths: connections that hold memory while they wait for their clients are closed.
    Slow,
    /// 31 of 32: what would need more is refused.
    Full,
}

/// What a process may use for its connections, buffers and caches.
#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: Option<u64>,
    /// Above the 32nds of the limit at which each level begins.
    levels: [u64; 4],
    step_bytes: u64,
    taken: AtomicU64,
}

impl MemoryBudget {
    /// A budget of so many bytes; `None`: without a limit.
    #[must_use]
    pub fn new(limit_bytes: Option<u64>) -> Arc<Self> {
        let of_32 = |parts: u64| limit_bytes.map_or(u64::MAX, |limit| limit / 32 * parts);
        let step_bytes = limit_bytes.map_or(STEP_BYTES_MAX, |limit| limit / STEPS_MIN);
        Arc::new(Self {
            limit_bytes,
            levels: [of_32(24), of_32(28), of_32(30), of_32(31)],
            step_bytes: step_bytes.clamp(STEP_BYTES_MIN, STEP_BYTES_MAX),
            taken: AtomicU64::new(0),
        })
    }

    /// Takes this much for good: for what has a bound of its own.
    pub fn reserve(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Relaxed);
    }

    /// How short memory is.
    #[inline]
    #[must_use]
    pub fn pressure(&self) -> MemoryPressure {
        let taken = self.taken.load(Relaxed);
        match self.levels {
            [spare, ..] if taken < spare => MemoryPressure::None,
            [_, idle, ..] if taken < idle => MemoryPressure::Spare,
            [_, _, slow, _] if taken < slow => MemoryPressure::Idle,
            [.., full] if taken < full => MemoryPressure::Slow,
            _ => MemoryPressure::Full,
        }
    }

    /// Whether memory is not short, and would not be with so much more.
    #[must_use]
    pub fn has_room_for(&self, bytes: u64) -> bool {
        self.used_bytes().saturating_add(bytes) < self.levels[0]
    }

    /// What is to be freed until this level has passed.
    #[must_use]
    pub fn excess_bytes(&self, level: MemoryPressure) -> u64 {
        let index = (level as usize).saturating_sub(1);
        (self.used_bytes()).saturating_sub(self.levels[index].saturating_sub(1))
    }

    /// Whether the whole of it is used, or more.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.limit_bytes
            .is_some_and(|limit| self.used_bytes() >= limit)
    }

    /// What is used, with credit that threads have taken and not used.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// The whole of it; `None`: without a limit.
    #[must_use]
    pub fn limit_bytes(&self) -> Option<u64> {
        self.limit_bytes
    }
}

/// What one thread uses of the budget. Its memory goes back when it is dropped.
#[derive(Debug)]
pub struct MemoryAccount {
    budget: Arc<MemoryBudget>,
    step_bytes: u64,
    credit: u64,
    used: u64,
}

impl MemoryAccount {
    /// Of a thread with many connections, which takes credit in large steps.
    #[must_use]
    pub fn of_many(budget: &Arc<MemoryBudget>) -> Self {
        Self::with_step(budget, budget.step_bytes)
    }

    /// Of a thread with one connection at a time. There may be thousands of them.
    #[must_use]
    pub fn of_one(budget: &Arc<MemoryBudget>) -> Self {
        Self::with_step(budget, STEP_BYTES_MIN)
    }

    fn with_step(budget: &Arc<MemoryBudget>, step_bytes: u64) -> Self {
        Self {
            budget: Arc::clone(budget),
            step_bytes,
            credit: 0,
            used: 0,
        }
    }

    /// What had `before` bytes has `now` bytes. `true`: the thread had to take more credit, so it is time
    /// to look at the pressure.
    #[inline]
    pub fn change(&mut self, before: u64, now: u64) -> bool {
        if before == now {
            return false;
        }
        self.used = (self.used + now).saturating_sub(before);
        if self.used > self.credit {
            self.take();
            return true;
        }
        if self.credit - self.used > 2 * self.step_bytes {
            self.give();
        }
        false
    }

    /// Nothing of it is used any more, and no credit is kept.
    pub fn empty(&mut self) {
        if self.credit > 0 {
            self.budget.taken.fetch_sub(self.credit, Relaxed);
        }
        (self.used, self.credit) = (0, 0);
    }

    /// The budget.
    #[must_use]
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// How short memory is.
    #[inline]
    #[must_use]
    pub fn pressure(&self) -> MemoryPressure {
        self.budget.pressure()
    }

    #[cold]
    fn take(&mut self) {
        let credit = self.used.next_multiple_of(self.step_bytes);
        self.budget.taken.fetch_add(credit - self.credit, Relaxed);
        self.credit = credit;
    }

    #[cold]
    fn give(&mut self) {
        let credit = self.used.next_multiple_of(self.step_bytes) + self.step_bytes;
        self.budget.taken.fetch_sub(self.credit - credit, Relaxed);
        self.credit = credit;
    }
}

impl Drop for MemoryAccount {
    fn drop(&mut self) {
        self.empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn each_level_has_its_share() {
        let budget = MemoryBudget::new(Some(32 * MIB));
        let mut seen = Vec::new();
        for used in 0..=32 {
            assert_eq!(budget.used_bytes(), used * MIB);
            let level = budget.pressure();
            if seen.last().is_none_or(|(_, last)| *last != level) {
                seen.push((used, level));
            }
            budget.reserve(MIB);
        }
        let right = [
            (0, MemoryPressure::None),
            (24, MemoryPressure::Spare),
            (28, MemoryPressure::Idle),
            (30, MemoryPressure::Slow),
            (31, MemoryPressure::Full),
        ];
        assert_eq!(seen, right);
    }

    #[test]
    fn there_is_room_for_what_makes_memory_not_short() {
        let budget = MemoryBudget::new(Some(32 * MIB));
        budget.reserve(20 * MIB);
        assert!(budget.has_room_for(4 * MIB - 1));
        assert!(!budget.has_room_for(4 * MIB));
        assert!(!budget.has_room_for(u64::MAX));
    }

    #[test]
    fn without_a_limit_there_is_no_pressure() {
        let budget = MemoryBudget::new(None);
        budget.reserve(1 << 60);
        assert_eq!(budget.pressure(), MemoryPressure::None);
        assert!(budget.has_room_for(1 << 60));
        assert_eq!(budget.excess_bytes(MemoryPressure::Spare), 0);
        assert_eq!(budget.limit_bytes(), None);
    }

    #[test]
    fn freeing_the_excess_ends_the_level() {
        let budget = MemoryBudget::new(Some(32 * MIB));
        let mut account = MemoryAccount::of_many(&budget);
        account.change(0, 31 * MIB + 5);
        assert_eq!(account.pressure(), MemoryPressure::Full);
        assert!(!budget.is_used_up());
        account.change(0, MIB);
        assert!(budget.is_used_up());
        account.change(MIB, 0);
        for (level, before) in [
            (MemoryPressure::Slow, MemoryPressure::Idle),
            (MemoryPressure::Spare, MemoryPressure::None),
        ] {
            let excess = budget.excess_bytes(level);
            // Credit that is kept for later is not free yet.
            account.change(excess + 3 * budget.step_bytes, 0);
            assert_eq!(account.pressure(), before);
        }
    }

    #[test]
    fn small_changes_are_the_threads_own() {
        let budget = MemoryBudget::new(Some(1 << 30));
        let mut account = MemoryAccount::of_many(&budget);
        assert!(account.change(0, 4096), "the first byte takes a step");
        let taken = budget.used_bytes();
        assert_eq!(taken, MIB);
        for _ in 0..200 {
            assert!(!account.change(0, 4096));
        }
        for _ in 0..200 {
            assert!(!account.change(4096, 0));
        }
        assert_eq!(budget.used_bytes(), taken);
        assert!(account.change(0, 2 << 20));
        assert!(!account.change(2 << 20, 0), "giving back needs no look");
        assert!(budget.used_bytes() <= 3 * MIB);
        account.empty();
        assert_eq!(budget.used_bytes(), 0);
        assert!(account.change(0, 4096), "it is used again");
        assert_eq!(budget.used_bytes(), MIB);
        drop(account);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn accounts_never_lose_a_byte() {
        let budget = MemoryBudget::new(Some(1 << 30));
        let threads: Vec<_> = (0..4_u64)
            .map(|seed| {
                let budget = Arc::clone(&budget);
                std::thread::spawn(move || {
                    let mut account = match seed % 2 {
                        0 => MemoryAccount::of_many(&budget),
                        _ => MemoryAccount::of_one(&budget),
                    };
                    let (mut random, mut held, mut sum) = (seed + 1, [0_u64; 16], 0_u64);
                    for step in 0..20_000 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let now = random % 300_000;
                        let before = std::mem::replace(&mut held[step % 16], now);
                        sum = sum + now - before;
                        account.change(before, now);
                        assert_eq!(account.used, sum);
                        assert!(account.credit >= sum);
                        assert!(account.credit <= sum + 3 * account.step_bytes);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(budget.used_bytes(), 0, "what ended threads had is back");
    }
}
