//! Sessions that a server remembers: of TLS 1.2 clients without tickets and, where early data is served, of
//! all clients.
//!
//! The library has such a memory, too, but its sessions end only when others push them out: a server with few
//! clients would keep their secrets for ever.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustls::server::StoresServerSessions;

use crate::tickets::SESSION_AGE_MAX;

/// The last sessions of a server.
pub(crate) struct ServerSessions {
    remembered: Mutex<Remembered>,
    max: usize,
}

#[derive(Default)]
struct Remembered {
    by_id: HashMap<Vec<u8>, Session>,
    /// Their ids by their numbers: the oldest first.
    in_order: BTreeMap<u64, Vec<u8>>,
    next_number: u64,
}

struct Session {
    number: u64,
    since: Instant,
    state: Vec<u8>,
}

impl ServerSessions {
    /// Remembers so many at most.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            remembered: Mutex::default(),
            max,
        }
    }

    /// Taken for a handshake.
    fn lock(&self) -> MutexGuard<'_, Remembered> {
        // Nothing panics while it holds the lock.
        (self.remembered.lock()).unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ServerSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerSessions")
    }
}

impl StoresServerSessions for ServerSessions {
    fn put(&self, id: Vec<u8>, state: Vec<u8>) -> bool {
        self.lock().put((id, state), self.max, Instant::now());
        true
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.lock().get(id, Instant::now())
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.lock().take(id, Instant::now())
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl Remembered {
    fn put(&mut self, (id, state): (Vec<u8>, Vec<u8>), max: usize, now: Instant) {
        self.take(&id, now);
        while self.by_id.len() >= max.max(1) {
            let Some((_, oldest)) = self.in_order.pop_first() else {
                break;
            };
            self.by_id.remove(&oldest);
        }
        let number = self.next_number;
        self.next_number += 1;
        self.in_order.insert(number, id.clone());
        let session = Session {
            number,
            since: now,
            state,
        };
        self.by_id.insert(id, session);
    }

    fn get(&mut self, id: &[u8], now: Instant) -> Option<Vec<u8>> {
        self.forget_old(now);
        Some(self.by_id.get(id)?.state.clone())
    }

    fn take(&mut self, id: &[u8], now: Instant) -> Option<Vec<u8>> {
        self.forget_old(now);
        let session = self.by_id.remove(id)?;
        self.in_order.remove(&session.number);
        Some(session.state)
    }

    fn forget_old(&mut self, now: Instant) {
        while let Some(oldest) = self.in_order.first_entry() {
            let session = self.by_id.get(oldest.get());
            let age = session.map(|it| now.saturating_duration_since(it.since));
            if age.is_some_and(|age| age < SESSION_AGE_MAX) {
                return;
            }
            self.by_id.remove(&oldest.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn put(remembered: &mut Remembered, id: u8, now: Instant) {
        remembered.put((vec![id], vec![id, 1]), 3, now);
    }

    #[test]
    fn a_session_ends_after_a_day() {
        let mut all = Remembered::default();
        let start = Instant::now();
        put(&mut all, 1, start);
        put(&mut all, 2, start + SECOND);
        let end = start + SESSION_AGE_MAX;
        assert_eq!(all.get(&[1], end - SECOND), Some(vec![1, 1]));
        assert_eq!(all.get(&[1], end), None);
        assert_eq!(all.take(&[2], end), Some(vec![2, 1]));
        assert_eq!(all.take(&[2], end), None, "one use");
    }

    #[test]
    fn the_secrets_of_old_ones_are_forgotten_at_the_next_handshake() {
        let start = Instant::now();
        let end = start + SESSION_AGE_MAX;
        let handshakes: [fn(&mut Remembered, Instant); 3] = [
            |all, now| put(all, 9, now),
            |all, now| assert_eq!(all.get(&[9], now), None),
            |all, now| assert_eq!(all.take(&[9], now), None),
        ];
        for (handshake, left) in handshakes.into_iter().zip([1, 0, 0]) {
            let mut all = Remembered::default();
            put(&mut all, 1, start);
            put(&mut all, 2, start);
            handshake(&mut all, end);
            assert_eq!((all.by_id.len(), all.in_order.len()), (left, left));
        }
    }

    #[test]
    fn a_new_session_takes_the_place_of_the_oldest() {
        let mut all = Remembered::default();
        let now = Instant::now();
        for id in [1, 2, 3, 1, 4] {
            put(&mut all, id, now);
        }
        // One that was put again is a new one, and one that was taken leaves room.
        let ids = |all: &Remembered| all.in_order.values().flatten().copied().collect::<Vec<_>>();
        assert_eq!(ids(&all), [3, 1, 4]);
        assert!(all.take(&[1], now).is_some());
        put(&mut all, 5, now);
        assert_eq!(ids(&all), [3, 4, 5]);
        assert_eq!(all.by_id.len(), 3);
    }
}
