//! Places of a connection for requests in an open loop: as long as one is free, the connection stands
//! among those that can be given a request.
//!
//! In a closed loop each client has its own place, and nothing here decides.

use super::Http2Links;
use crate::engine::{Driver, Engine};

/// The places of one connection, by slot.
#[derive(Debug)]
pub(super) struct Places {
    /// The first `unused` have no request.
    slots: Box<[u32]>,
    unused: usize,
    /// Requests that the connection may have in hand; 0: it is given none for now.
    room: usize,
}

impl Places {
    /// None of them is used, and there is no room yet.
    pub(super) fn new(streams: u32) -> Self {
        Self {
            slots: (0..streams).rev().collect(),
            unused: streams as usize,
            room: 0,
        }
    }

    fn set_room(&mut self, room: u32) {
        self.room = (room as usize).min(self.slots.len());
    }

    /// Takes the slot of one that is free; there is one.
    #[inline]
    fn take(&mut self) -> u32 {
        self.unused -= 1;
        self.slots[self.unused]
    }

    #[inline]
    fn vacate(&mut self, slot: u32) {
        self.slots[self.unused] = slot;
        self.unused += 1;
    }

    /// How many can be taken.
    #[inline]
    fn free_count(&self) -> usize {
        let used = self.slots.len() - self.unused;
        self.room.saturating_sub(used)
    }
}

impl Http2Links<'_> {
    /// Takes a free place of a connection: whose it is, and whether there is another one.
    #[inline]
    pub(in crate::engine) fn take_place(&mut self, number: u32) -> (u32, bool) {
        let first = self.clients_of(number).start;
        let places = &mut self.link(number).places;
        let index = first + places.take();
        (index, places.free_count() > 0)
    }

    /// Places that can be taken, over all connections.
    pub(in crate::engine) fn free_places(&self) -> usize {
        let free = self.links.iter().map(|link| link.places.free_count());
        free.sum()
    }
}

impl Engine<'_> {
    /// A connection may have so many requests in hand at one time, or as many as it has places. Those
    /// that it has beyond that keep theirs.
    pub(super) fn set_room(&mut self, number: u32, room: u32) {
        self.http2.link(number).places.set_room(room);
        self.list_link(number);
    }

    /// The request of this client is over.
    #[inline]
    pub(in crate::engine) fn vacate(&mut self, index: u32) {
        if matches!(self.driver, Driver::Open(_)) {
            let (number, slot) = self.http2.place(index);
            self.http2.link(number).places.vacate(slot);
        }
    }

    /// Has a connection stand among those that can be given a request if it has a free place.
    #[inline]
    pub(super) fn list_link(&mut self, number: u32) {
        let link = self.http2.link(number);
        let (server, is_free) = (link.server, link.places.free_count() > 0);
        match is_free && !self.time.is_ending {
            true => self.list_free(number, server),
            false => self.unlist(number, server),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_free_within_the_room() {
        let mut places = Places::new(3);
        assert_eq!(places.free_count(), 0);
        places.set_room(2);
        assert_eq!((places.take(), places.take()), (0, 1));
        assert_eq!(places.free_count(), 0);
        places.set_room(u32::MAX);
        assert_eq!((places.free_count(), places.take()), (1, 2));
        // Less room than is used.
        places.set_room(1);
        places.vacate(1);
        places.vacate(0);
        assert_eq!(places.free_count(), 0);
        places.vacate(2);
        assert_eq!((places.free_count(), places.take()), (1, 2));
    }
}
