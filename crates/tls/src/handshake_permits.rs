//! How many handshakes are computed or wait for it, and whose they are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loadline_proto::ClientKey;

/// With fewer of them a client may have one of the last permits: more than a browser begins at once.
const FEW: usize = 8;

/// This part of all permits is for clients that have few: the steps of a client that has many wait for
/// each other, those of others are computed before them.
const PART_FOR_FEW: usize = 4;

/// Permits for handshakes that are computed or wait for it.
#[derive(Debug)]
pub(crate) struct HandshakePermits {
    taken: Arc<Mutex<Taken>>,
    max: usize,
    /// Those that a client with many of them can have, in all.
    max_for_many: usize,
}

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    /// Of those who have some.
    by_client: HashMap<ClientKey, usize>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct HandshakePermit {
    taken: Arc<Mutex<Taken>>,
    client: ClientKey,
}

impl HandshakePermits {
    /// With `shares`, the last of them are for clients that have few.
    pub(crate) fn new(max: usize, shares: bool) -> Self {
        let for_few = if shares { max / PART_FOR_FEW } else { 0 };
        Self {
            taken: Arc::default(),
            max,
            max_for_many: max - for_few,
        }
    }

    pub(crate) fn take(&self, client: ClientKey) -> Option<HandshakePermit> {
        let mut taken = lock(&self.taken);
        let own = taken.by_client.get(&client).copied().unwrap_or_default();
        let has_few = own < FEW || client.is_nobody();
        if taken.count >= if has_few { self.max } else { self.max_for_many } {
            return None;
        }
        taken.count += 1;
        taken.by_client.insert(client, own + 1);
        drop(taken);
        Some(HandshakePermit {
            taken: Arc::clone(&self.taken),
            client,
        })
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        taken.count -= 1;
        if let Some(own) = taken.by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                taken.by_client.remove(&self.client);
            }
        }
    }
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    // Nothing panics while it holds the lock.
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> ClientKey {
        ClientKey::of([192, 0, 2, number].into())
    }

    fn take_all(permits: &HandshakePermits, client: ClientKey) -> Vec<HandshakePermit> {
        std::iter::from_fn(|| permits.take(client)).collect()
    }

    #[test]
    fn the_last_permits_are_for_clients_that_have_few() {
        let permits = HandshakePermits::new(64, true);
        let many = take_all(&permits, client(1));
        assert_eq!(many.len(), 48);
        let second = take_all(&permits, client(2));
        let third = take_all(&permits, client(3));
        assert_eq!((second.len(), third.len()), (FEW, FEW));
        assert!(permits.take(client(4)).is_none(), "64 are taken");
        // What one gives back another one with few can have, and nobody with many.
        drop(second);
        assert!(permits.take(client(1)).is_none());
        assert_eq!(take_all(&permits, client(4)).len(), FEW);
        drop((many, third));
        assert!(lock(&permits.taken).by_client.is_empty());
        assert_eq!(lock(&permits.taken).count, 0);
    }

    #[test]
    fn without_shares_who_comes_first_has_all() {
        let permits = HandshakePermits::new(64, false);
        let all = take_all(&permits, client(1));
        assert_eq!(all.len(), 64);
        assert!(permits.take(client(2)).is_none());
    }

    #[test]
    fn clients_without_an_address_are_no_single_client() {
        let permits = HandshakePermits::new(64, true);
        assert_eq!(take_all(&permits, ClientKey::NOBODY).len(), 64);
    }

    #[test]
    fn the_smallest_bounds() {
        for max in 1..4 {
            let permits = HandshakePermits::new(max, true);
            assert_eq!(take_all(&permits, client(1)).len(), max);
        }
    }
}
