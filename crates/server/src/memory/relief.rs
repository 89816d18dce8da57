//! Which connections are closed when memory is short: those of the client that holds most of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use loadline_base::{MemoryPressure, Millis};

use crate::fairness::{ClientKey, Occupation};

/// Idle connections are closed if they have been idle for so long: the next request of a client that is
/// at work may be on its way.
const IDLE_MIN_MS: u64 = 1000;

/// A connection, and what its end would free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding<T> {
    pub(crate) client: ClientKey,
    pub(crate) occupation: Occupation,
    pub(crate) bytes: u64,
    pub(crate) connection: T,
}

/// What is to be freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortage {
    pub(crate) pressure: MemoryPressure,
    pub(crate) excess_bytes: u64,
    pub(crate) now: Millis,
}

impl Shortage {
    /// The connections whose end frees so much. Each is of the client that then holds most, in the order
    /// of occupations; connections of nobody in particular are those of one client.
    pub(crate) fn first_to_close<T: Copy>(&self, mut all: Vec<Holding<T>>) -> Vec<T> {
        all.sort_unstable_by_key(|it| (it.client, Reverse(it.occupation)));
        let of_one = all.chunk_by(|one, other| one.client == other.client);
        let (mut clients, mut lines) = (BinaryHeap::new(), Vec::new());
        for (index, own) in of_one.enumerate() {
            let bytes: u64 = own.iter().map(|it| it.bytes).sum();
            clients.push((bytes, Reverse(index)));
            lines.push(own.iter().filter(|it| self.may_go(it.occupation)));
        }
        let (mut freed, mut chosen) = (0, Vec::new());
        while freed < self.excess_bytes
            && let Some((bytes, index)) = clients.pop()
        {
            // The last of them is the first to give up.
            if let Some(first) = lines[index.0].next_back() {
                freed += first.bytes;
                chosen.push(first.connection);
                clients.push((bytes - first.bytes, index));
            }
        }
        chosen
    }

    fn may_go(&self, occupation: Occupation) -> bool {
        match occupation {
            Occupation::Slow(_) => self.pressure >= MemoryPressure::Slow,
            Occupation::Idle(since) => since.0 + IDLE_MIN_MS <= self.now.0,
            Occupation::Served => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(client: u8, occupation: Occupation, name: &'static str) -> Holding<&'static str> {
        Holding {
            client: ClientKey::of([192, 0, 2, client].into()),
            occupation,
            bytes: 100,
            connection: name,
        }
    }

    fn slow(client: u8, since: u64, name: &'static str) -> Holding<&'static str> {
        holding(client, Occupation::Slow(Millis(since)), name)
    }

    fn idle(client: u8, since: u64, name: &'static str) -> Holding<&'static str> {
        holding(client, Occupation::Idle(Millis(since)), name)
    }

    fn closed(
        pressure: MemoryPressure,
        excess_bytes: u64,
        all: &[Holding<&'static str>],
    ) -> Vec<&'static str> {
        let now = Millis(10_000);
        let shortage = Shortage {
            pressure,
            excess_bytes,
            now,
        };
        shortage.first_to_close(all.to_vec())
    }

    #[test]
    fn who_holds_most_gives_up_first_however_short_he_has_waited() {
        let all = [
            slow(1, 1, "old"),
            slow(2, 7, "b"),
            slow(2, 5, "a"),
            slow(2, 9, "c"),
        ];
        let slow = |excess| closed(MemoryPressure::Slow, excess, &all);
        assert!(slow(0).is_empty());
        assert_eq!(slow(1), ["a"]);
        assert_eq!(slow(101), ["a", "b"]);
        // Now both hold as much.
        assert_eq!(slow(u64::MAX).len(), 4);
        assert_eq!(slow(u64::MAX)[..2], ["a", "b"]);
    }

    #[test]
    fn of_one_client_slow_connections_go_before_idle_ones_and_requests_in_progress_stay() {
        let served = holding(1, Occupation::Served, "served");
        let all = [
            idle(1, 3, "idle"),
            served,
            slow(1, 8, "slow"),
            idle(1, 9500, "young"),
        ];
        assert_eq!(
            closed(MemoryPressure::Slow, u64::MAX, &all),
            ["slow", "idle"]
        );
        assert_eq!(closed(MemoryPressure::Idle, u64::MAX, &all), ["idle"]);
    }

    #[test]
    fn what_a_client_has_with_the_server_counts_as_well() {
        let served = holding(2, Occupation::Served, "served");
        let all = [
            slow(1, 1, "one"),
            slow(1, 1, "two"),
            served,
            served,
            slow(2, 9, "three"),
        ];
        assert_eq!(closed(MemoryPressure::Full, 1, &all), ["three"]);
        assert_eq!(
            closed(MemoryPressure::Full, 200, &all),
            ["three", "two"],
            "who has given up all that he can is passed over"
        );
    }
}
