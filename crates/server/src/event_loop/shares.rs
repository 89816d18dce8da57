//! Closing connections of the client that has most of them, for others.

use loadline_base::{Millis, Token};
use loadline_proto::{CloseReason, Handler};

use super::{Acceptance, EventLoop, Slot, connection_at};
use crate::fairness::{ClientKey, Occupation};
use crate::transport::Driver;

/// Connections that are chosen at once: a look at all of them takes some ten microseconds for each
/// thousand.
const CHOSEN_MAX: usize = 64;

/// They are chosen anew after this time, since what they do changes.
const CHOSEN_FOR_MS: u64 = 100;

/// Connections of one client that are closed next, the first one last.
#[derive(Debug, Default)]
pub(super) struct Victims {
    client: ClientKey,
    only_idle: bool,
    until: Millis,
    tokens: Vec<Token>,
    /// There were more than were chosen.
    has_more: bool,
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

    /// Closes a connection of this client, here or at another loop; `false`: nowhere.
    pub(super) fn find_room_of(&mut self, client: ClientKey, only_idle: bool) -> bool {
        self.evict_of(client, only_idle)
            || (!only_idle && self.group.ask_for_room_of(client, self.index, self.index))
    }

    /// Does so for a loop that is asking.
    pub(super) fn make_room_of(&mut self, client: ClientKey, asking: usize) {
        if !self.evict_of(client, false) {
            self.group.ask_for_room_of(client, self.index, asking);
        }
    }

    fn evict_of(&mut self, client: ClientKey, only_idle: bool) -> bool {
        let now = self.thread.now();
        let victims = &self.victims;
        let is_for_this = victims.client == client && victims.only_idle == only_idle;
        let is_new = !is_for_this || now >= victims.until;
        if is_new {
            self.choose_victims(client, only_idle);
        }
        while let Some(token) = self.victims.tokens.pop() {
            let Some(connection) = connection_at(&self.slots, token) else {
                continue;
            };
            match connection.is_idle::<D>() {
                true if !connection.is_certainly_idle(&mut self.driver) => continue,
                true => self.abort(token, CloseReason::Evicted),
                false if only_idle => continue,
                false => self.abort(token, CloseReason::OverShare),
            }
            return true;
        }
        if !is_new && self.victims.has_more {
            self.victims.until = Millis(0);
            return self.evict_of(client, only_idle);
        }
        false
    }

    fn choose_victims(&mut self, client: ClientKey, only_idle: bool) {
        let mut found: Vec<(Occupation, Token)> = (0..self.slots.slot_count())
            .filter_map(|index| {
                let token = self.slots.token_at(index)?;
                let slot = self.slots.get(token)?;
                let own = slot.connection.as_ref()?.client();
                let of = self.proxied.get(&token.index).copied().unwrap_or(own);
                let is_of = of == client && slot.acceptance == Acceptance::Served;
                let occupation = occupation::<D>(slot).filter(|_| is_of)?;
                let is_wanted = !only_idle || matches!(occupation, Occupation::Idle(_));
                is_wanted.then_some((occupation, token))
            })
            .collect();
        found.sort_unstable_by_key(|(occupation, token)| (*occupation, token.index));
        self.victims.has_more = found.len() > CHOSEN_MAX;
        let chosen = found.iter().take(CHOSEN_MAX).rev();
        self.victims.tokens.clear();
        self.victims.tokens.extend(chosen.map(|(_, token)| *token));
        self.victims.client = client;
        self.victims.only_idle = only_idle;
        self.victims.until = Millis(self.thread.now().0 + CHOSEN_FOR_MS);
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
