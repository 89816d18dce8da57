//! Closing connections of the client that has most of them, for others.

use loadline_base::{Millis, Token, sorting};
use loadline_proto::{CloseReason, Handler};
use loadline_sys::usage;

use super::{Acceptance, EventLoop, Slot};
use crate::connection::Connection;
use crate::fairness::{ClientKey, Occupation};
use crate::options::SocketIo;
use crate::shutdown::Stage;
use crate::transport::Driver;

/// Connections that are chosen at once: a look at all of them takes some ten microseconds for each
/// thousand.
const CHOSEN_MAX: usize = 64;

/// They are chosen anew after this time, since what they do changes.
const CHOSEN_FOR_MS: u64 = 100;

/// Clients whose connections are chosen at a time: those that have about as many have new ones in turn.
const LISTS_MAX: usize = 8;

/// The part of a loop's time in which it looks in vain for idle connections of clients that want more of
/// their own: a tenth at most. In between such clients are refused.
const LOOK_DIVISOR: u64 = 10;

/// Connections that are closed next.
#[derive(Debug, Default)]
pub(super) struct Victims {
    lists: Vec<VictimList>,
    /// When connections may be looked through again for a client's own, in microseconds.
    look_after_us: u64,
}

/// Those of one client, the first one last.
#[derive(Debug)]
struct VictimList {
    client: ClientKey,
    only_idle: bool,
    until: Millis,
    /// With what each was occupied when it was chosen.
    chosen: Vec<(Occupation, Token)>,
    /// There were more than were chosen, or there may be by now.
    has_more: bool,
    /// Workers had connections, perhaps of this client, which may be back by now.
    workers_had_some: bool,
}

impl Victims {
    /// Keeps a list, in place of the oldest one if there are many.
    fn keep(&mut self, list: VictimList) {
        let by_age = self.lists.iter().enumerate();
        let oldest = by_age.min_by_key(|(_, list)| list.until);
        if let Some((oldest, _)) = oldest.filter(|_| self.lists.len() == LISTS_MAX) {
            self.lists.swap_remove(oldest);
        }
        self.lists.push(list);
    }

    /// All connections were looked through, and none was found.
    fn looked_in_vain(&mut self, began_us: u64, took_us: u64) {
        self.look_after_us = began_us + LOOK_DIVISOR * took_us;
    }

    /// Takes the list of this client, if its time is not over.
    fn take(&mut self, client: ClientKey, only_idle: bool, now: Millis) -> Option<VictimList> {
        let is_wanted = |list: &VictimList| (list.client, list.only_idle) == (client, only_idle);
        let at = self.lists.iter().position(is_wanted)?;
        Some(self.lists.swap_remove(at)).filter(|list| now < list.until)
    }
}

impl<H: Handler, D: Driver> EventLoop<H, D> {
    /// A trusted proxy's connection is counted with those of its request's client from now on, while that
    /// request is in progress. What is answered within a turn is never counted, and takes no lock for that.
    pub(super) fn count_for(&mut self, token: Token, client: ClientKey) {
        let before = match client.is_nobody() {
            true if self.proxied.is_empty() => return,
            true => self.proxied.remove(&token.index),
            false => self.proxied.insert(token.index, client),
        };
        self.group.count_as(before.unwrap_or_default(), client);
    }

    /// Closes a connection of this client, here or at another loop, or the next one that a worker gives back;
    /// `false`: none.
    pub(super) fn find_room_of(&mut self, client: ClientKey, only_idle: bool) -> bool {
        self.evict_of(client, only_idle)
            || (!only_idle && self.find_room_elsewhere_of(client, self.index))
    }

    /// Does so for a loop that is asking.
    pub(super) fn make_room_of(&mut self, client: ClientKey, asking: usize) {
        if !self.evict_of(client, false) {
            self.find_room_elsewhere_of(client, asking);
        }
    }

    /// At the next loop. Where no loop has a connection of this client, workers have them all.
    fn find_room_elsewhere_of(&self, client: ClientKey, asking: usize) -> bool {
        let workers_have_some = self.site.options.socket_io == SocketIo::Worker;
        self.group.ask_for_room_of(client, self.index, asking)
            || (workers_have_some && self.group.owe_room(client))
    }

    /// A worker has given a connection back. `true`: it was closed, since its client owes room.
    pub(super) fn close_for_room(&mut self, token: Token) -> bool {
        if !self.group.is_room_owed() || self.stage != Stage::Up {
            return false;
        }
        let slot = self.slots.get(token);
        let served = slot.filter(|slot| slot.acceptance == Acceptance::Served);
        let Some(connection) = served.and_then(|slot| slot.connection.as_ref()) else {
            return false;
        };
        let is_owed = self.group.take_owed(connection.holder());
        if is_owed {
            self.abort(token, CloseReason::OverShare);
        }
        is_owed
    }

    fn evict_of(&mut self, client: ClientKey, only_idle: bool) -> bool {
        let kept = self.victims.take(client, only_idle, self.thread.now());
        if let Some(mut list) = kept {
            let has_evicted = self.evict_first(&mut list);
            // While room is owed, those that come back are closed: there is nothing to look for.
            let may_be_back = list.workers_had_some && !self.group.is_room_owed();
            if has_evicted || !(list.has_more || may_be_back) {
                self.victims.keep(list);
                return has_evicted;
            }
        }
        let Some(mut list) = self.choose_victims(client, only_idle) else {
            return false;
        };
        let has_evicted = self.evict_first(&mut list);
        self.victims.keep(list);
        has_evicted
    }

    /// Closes the first one that may go; `false`: none may.
    fn evict_first(&mut self, list: &mut VictimList) -> bool {
        while let Some((then, token)) = list.chosen.pop() {
            let Some(slot) = self.slots.get(token) else {
                continue;
            };
            let (Some(connection), Some(now)) = (&slot.connection, occupation::<D>(slot)) else {
                list.workers_had_some |= !list.only_idle;
                continue;
            };
            // A trusted proxy may have sent another client's request meanwhile.
            if self.counted_for(token, connection) != list.client || now > then {
                list.has_more = true;
                continue;
            }
            match now {
                Occupation::Idle(_) if !connection.is_certainly_idle(&mut self.driver) => continue,
                Occupation::Idle(_) => self.abort(token, CloseReason::Evicted),
                _ if list.only_idle => continue,
                _ => self.abort(token, CloseReason::OverShare),
            }
            return true;
        }
        false
    }

    /// The client that a connection counts for.
    fn counted_for(&self, token: Token, connection: &Connection<D::Transport>) -> ClientKey {
        let proxied = self.proxied.get(&token.index).copied();
        proxied.unwrap_or_else(|| connection.client())
    }

    /// Looks all connections through; `None`: it is too soon for that.
    fn choose_victims(&mut self, client: ClientKey, only_idle: bool) -> Option<VictimList> {
        let began_us = self.site.clock.now_us();
        if only_idle && began_us < self.victims.look_after_us {
            return None;
        }
        let cpu_before = usage::thread_cpu();
        let mut workers_have_some = false;
        let mut found: Vec<(Occupation, Token)> = (0..self.slots.slot_count())
            .filter_map(|index| {
                let token = self.slots.token_at(index)?;
                let slot = self.slots.get(token)?;
                workers_have_some |= slot.connection.is_none();
                let of = self.counted_for(token, slot.connection.as_ref()?);
                let is_of = of == client && slot.acceptance == Acceptance::Served;
                let occupation = occupation::<D>(slot).filter(|_| is_of)?;
                let is_wanted = !only_idle || matches!(occupation, Occupation::Idle(_));
                is_wanted.then_some((occupation, token))
            })
            .collect();
        sorting::sort_by_key(&mut found, |(occupation, token)| (*occupation, token.index));
        if found.is_empty() {
            let took = usage::thread_cpu().saturating_sub(cpu_before);
            let took_us = u64::try_from(took.as_micros()).unwrap_or_default();
            self.victims.looked_in_vain(began_us, took_us);
        }
        let has_more = found.len() > CHOSEN_MAX;
        found.truncate(CHOSEN_MAX);
        found.reverse();
        Some(VictimList {
            client,
            only_idle,
            until: Millis(self.thread.now().0 + CHOSEN_FOR_MS),
            chosen: found,
            has_more,
            workers_had_some: workers_have_some && !only_idle,
        })
    }
}

/// `None`: a worker has it.
pub(super) fn occupation<D: Driver>(slot: &Slot<D::Transport>) -> Option<Occupation> {
    let connection = slot.connection.as_ref()?;
    Some(match connection.awaits_client_since::<D>() {
        _ if connection.is_idle::<D>() => Occupation::Idle(slot.idle_since),
        Some(since) => Occupation::Slow(since),
        None => Occupation::Served,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_loop::tests::{connect, event_loops};
    use crate::site::tests::Quiet;
    use crate::transport::socket::epoll::Epoll;

    fn client(number: u8) -> ClientKey {
        ClientKey::of([192, 0, 2, number].into())
    }

    /// Two clients in turn had all connections looked through for each new one.
    #[test]
    fn clients_that_come_in_turn_keep_their_lists() {
        let mut victims = Victims::default();
        let clients = LISTS_MAX as u8;
        for number in 0..=clients {
            victims.keep(VictimList {
                client: client(number),
                only_idle: true,
                until: Millis(100 + u64::from(number)),
                chosen: Vec::new(),
                has_more: false,
                workers_had_some: false,
            });
        }
        assert!(victims.take(client(0), true, Millis(0)).is_none());
        assert!(victims.take(client(1), false, Millis(0)).is_none());
        for _ in 0..3 {
            for number in 1..=clients {
                let list = victims.take(client(number), true, Millis(0)).unwrap();
                victims.keep(list);
            }
        }
        assert!(victims.take(client(1), true, Millis(101)).is_none());
        assert!(victims.take(client(2), true, Millis(101)).is_some());
    }

    #[test]
    fn a_proxy_s_connection_that_serves_another_client_meanwhile_is_not_closed() {
        let mut event_loop = event_loops::<_, Epoll>(Quiet, 1).pop().unwrap();
        let _proxy = [connect(&mut event_loop), connect(&mut event_loop)];
        for index in 0..2 {
            let token = event_loop.slots.token_at(index).unwrap();
            event_loop.count_for(token, client(1));
        }
        assert!(event_loop.evict_of(client(1), false));
        let left = (0..2).find_map(|index| event_loop.slots.token_at(index));
        event_loop.count_for(left.unwrap(), client(2));
        assert!(!event_loop.evict_of(client(1), false));
        assert_eq!(event_loop.slots.len(), 1);
        assert!(event_loop.evict_of(client(2), false));
    }

    #[test]
    fn a_connection_that_was_used_meanwhile_is_not_closed_before_one_that_was_not() {
        let mut event_loop = event_loops::<_, Epoll>(Quiet, 1).pop().unwrap();
        let _clients = [0; 4].map(|_| connect(&mut event_loop));
        let tokens = [0, 1, 2, 3].map(|index| event_loop.slots.token_at(index).unwrap());
        let set_idle = |event_loop: &mut EventLoop<Quiet, Epoll>, index: usize, since| {
            event_loop.slots.get_mut(tokens[index]).unwrap().idle_since = Millis(since);
        };
        for (index, token) in tokens.into_iter().enumerate() {
            event_loop.count_for(token, client(1));
            set_idle(&mut event_loop, index, index as u64);
        }
        assert!(event_loop.evict_of(client(1), false));
        set_idle(&mut event_loop, 1, 9);
        for closed in [2, 3, 1] {
            assert!(event_loop.evict_of(client(1), false));
            let is_closed = event_loop.slots.get(tokens[closed]).is_none();
            assert!(is_closed, "connection {closed}");
        }
    }

    /// Once back they could not go for 100 ms; then, each new connection had all of them looked through.
    #[test]
    fn those_that_workers_had_are_looked_for_again_unless_room_is_owed() {
        let mut event_loop = event_loops::<_, Epoll>(Quiet, 1).pop().unwrap();
        let _client = connect(&mut event_loop);
        let token = event_loop.slots.token_at(0).unwrap();
        event_loop.count_for(token, client(1));
        let away = event_loop.slots.get_mut(token).unwrap().connection.take();
        assert!(!event_loop.evict_of(client(1), false));
        event_loop.slots.get_mut(token).unwrap().connection = away;
        let cap = event_loop.site.options.connections_max;
        (0..cap).for_each(|_| event_loop.group.enter());
        assert!(event_loop.group.owe_room(client(2)));
        assert!(!event_loop.evict_of(client(1), false));
        assert!(event_loop.group.take_owed(client(2)));
        assert!(event_loop.evict_of(client(1), false));
    }

    #[test]
    fn looks_in_vain_take_a_tenth_of_the_time() {
        let mut victims = Victims::default();
        victims.looked_in_vain(1000, 80);
        assert_eq!(victims.look_after_us, 1800);
    }
}
