//! How many requests wait before the next one.

/// The time within which they count, in parts of the goal: 32 goals.
const YOUNG_SLOTS: usize = 256;
const SLOT_DIVISOR: u64 = 8;

/// How many wait that began after the last one that was answered in order: what has been overtaken (long polling) is
/// in no queue before others.
#[derive(Debug)]
pub(super) struct Young {
    slot_us: u64,
    slots: [u32; YOUNG_SLOTS],
    oldest: u64,
    newest: u64,
    count: u32,
}

impl Young {
    pub(super) fn new(goal_us: u64) -> Self {
        Self {
            slot_us: (goal_us / SLOT_DIVISOR).max(1),
            slots: [0; YOUNG_SLOTS],
            oldest: 0,
            newest: 0,
            count: 0,
        }
    }

    fn advance(&mut self, now_us: u64) {
        self.newest = self.newest.max(now_us / self.slot_us);
        self.forget((self.newest + 1).saturating_sub(YOUNG_SLOTS as u64));
    }

    pub(super) fn forget_before(&mut self, since_us: u64) {
        self.forget(since_us / self.slot_us);
    }

    fn forget(&mut self, oldest: u64) {
        let passed = oldest.saturating_sub(self.oldest).min(YOUNG_SLOTS as u64);
        for slot in self.oldest..self.oldest + passed {
            self.count -= std::mem::take(&mut self.slots[index(slot)]);
        }
        self.oldest = self.oldest.max(oldest);
    }

    pub(super) fn add(&mut self, now_us: u64) {
        self.advance(now_us);
        self.slots[index(self.newest)] += 1;
        self.count += 1;
    }

    pub(super) fn remove(&mut self, since_us: u64, now_us: u64) {
        self.advance(now_us);
        let slot = since_us / self.slot_us;
        if slot >= self.oldest && self.slots[index(slot)] > 0 {
            self.slots[index(slot)] -= 1;
            self.count -= 1;
        }
    }

    pub(super) fn count(&mut self, now_us: u64) -> u32 {
        self.advance(now_us);
        self.count
    }
}

fn index(slot: u64) -> usize {
    (slot % YOUNG_SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_were_overtaken_or_wait_for_long_do_not_count() {
        let mut young = Young::new(1_000_000);
        young.add(0);
        young.add(1_000_000);
        assert_eq!(young.count(31_999_999), 2);
        assert_eq!(young.count(32_000_000), 1);
        young.remove(0, 32_000_000);
        assert_eq!(young.count(32_000_000), 1);
        young.add(32_000_000);
        young.forget_before(32_000_000);
        assert_eq!(young.count(32_000_000), 1);
        young.remove(32_000_000, 32_000_001);
        assert_eq!(young.count(32_000_001), 0);
        young.add(990_000_000);
        assert_eq!(young.count(990_000_000), 1);
    }
}
