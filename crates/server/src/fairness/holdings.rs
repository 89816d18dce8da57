//! How many connections each client has.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use loadline_base::Millis;

use super::ClientKey;

/// A client with fewer connections is nobody's burden: browsers open six to a server.
const CONNECTIONS_OF_A_BROWSER: u32 = 8;

/// Who holds most is looked for again after this time, and as much longer as there are clients.
const LOOK_MS: u64 = 10;
const CLIENTS_PER_MS: u64 = 128;

/// Connections of a server by client; the table grows with them, and has a bound where they have.
#[derive(Debug, Default)]
pub(crate) struct Holdings(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Hashed with a secret, as the standard library does.
    connections: HashMap<ClientKey, u32>,
    heaviest: ClientKey,
    look_after: Millis,
}

/// Who makes room for a new connection where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Share {
    /// No client has more than its share: whoever is idle the longest.
    #[default]
    Even,
    /// This client, by its slowest connection: it has far more than the new one's.
    Other(ClientKey),
    /// The new connection's own client, by an idle connection.
    Own(ClientKey),
}

impl Holdings {
    /// A client has one more connection.
    pub(crate) fn enter(&self, client: ClientKey) {
        if !client.is_nobody() {
            *self.lock().connections.entry(client).or_default() += 1;
        }
    }

    /// It has one less.
    pub(crate) fn leave(&self, client: ClientKey) {
        if client.is_nobody() {
            return;
        }
        let mut state = self.lock();
        if let Some(count) = state.connections.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                state.connections.remove(&client);
            }
        }
    }

    /// Who makes room for a connection of this client, which is counted already.
    pub(crate) fn share(&self, client: ClientKey, now: Millis) -> Share {
        let mut state = self.lock();
        let (heaviest, most) = state.heaviest(now);
        let own = state.connections.get(&client).copied().unwrap_or(0);
        // The new connection may be nobody's, and is not counted then.
        let is_alone = state.connections.len() == usize::from(own > 0);
        if is_alone || most < CONNECTIONS_OF_A_BROWSER {
            return Share::Even;
        }
        if own >= CONNECTIONS_OF_A_BROWSER && u64::from(own) * 2 > u64::from(most) {
            return Share::Own(client);
        }
        match u64::from(own) * 2 <= u64::from(most) {
            true => Share::Other(heaviest),
            false => Share::Even,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The client with most connections, as of some milliseconds ago, and how many it has now.
    fn heaviest(&mut self, now: Millis) -> (ClientKey, u32) {
        let known = self.connections.get(&self.heaviest).copied();
        if let Some(count) = known.filter(|_| now < self.look_after) {
            return (self.heaviest, count);
        }
        let most = self.connections.iter().max_by_key(|(_, count)| **count);
        let (client, count) = most.map_or((ClientKey::NOBODY, 0), |(key, count)| (*key, *count));
        self.heaviest = client;
        let clients = self.connections.len() as u64;
        self.look_after = Millis(now.0 + LOOK_MS + clients / CLIENTS_PER_MS);
        (client, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> ClientKey {
        ClientKey::of([192, 0, 2, number].into())
    }

    fn with(counts: &[(u8, u32)]) -> Holdings {
        let holdings = Holdings::default();
        for (number, count) in counts {
            (0..*count).for_each(|_| holdings.enter(client(*number)));
        }
        holdings
    }

    #[test]
    fn the_client_with_most_connections_makes_room_for_one_with_few() {
        let holdings = with(&[(1, 100), (2, 50), (3, 1)]);
        let share = |number| holdings.share(client(number), Millis(0));
        assert_eq!(share(3), Share::Other(client(1)));
        assert_eq!(share(2), Share::Other(client(1)));
        assert_eq!(share(1), Share::Own(client(1)));
        holdings.enter(client(2));
        assert_eq!(holdings.share(client(2), Millis(0)), Share::Own(client(2)));
    }

    #[test]
    fn where_all_have_about_as_many_or_one_is_alone_shares_are_even() {
        let alone = with(&[(1, 100)]);
        assert_eq!(alone.share(client(1), Millis(0)), Share::Even);
        let nobody = with(&[(1, 100)]).share(ClientKey::NOBODY, Millis(0));
        assert_eq!(
            nobody,
            Share::Other(client(1)),
            "two, though one is not counted"
        );
        let few = with(&[(1, 7), (2, 1)]);
        assert_eq!(few.share(client(2), Millis(0)), Share::Even);
        let about = with(&[(1, 10), (2, 6)]);
        assert_eq!(about.share(client(2), Millis(0)), Share::Even);
    }

    #[test]
    fn who_has_left_is_forgotten_and_nobody_is_not_counted() {
        let holdings = with(&[(1, 20), (2, 30), (3, 1)]);
        (0..30).for_each(|_| holdings.leave(client(2)));
        holdings.enter(ClientKey::NOBODY);
        assert_eq!(holdings.lock().connections.len(), 2);
        assert_eq!(
            holdings.share(client(3), Millis(0)),
            Share::Other(client(1))
        );
        // A new heaviest is found after a moment.
        (0..40).for_each(|_| holdings.enter(client(4)));
        assert_eq!(
            holdings.share(client(3), Millis(1)),
            Share::Other(client(1))
        );
        assert_eq!(
            holdings.share(client(3), Millis(99)),
            Share::Other(client(4))
        );
    }
}
