//! The streams of a client's connection, in slots that the caller numbers.

use crate::client_session::Reply;
use crate::http2::frame::WINDOW_BYTES_MAX;

use super::bounds::WINDOW_BYTES;

/// One stream: a request that is out, and what is known of its response.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClientStream {
    /// Of the final response; 0: its head has not come.
    pub(super) status: u16,
    pub(super) interim_count: u16,
    /// Whether something of a response has come.
    pub(super) has_begun: bool,
    /// The response has no content, whatever its fields say.
    pub(super) is_head: bool,
    /// What the response announces.
    pub(super) length: Option<u64>,
    pub(super) content_bytes: u64,
    /// What the server may still send, and how much of the window has not been given back.
    pub(super) receive_window: u32,
    pub(super) taken_bytes: u32,
    /// What the server takes of the request's content; below 0 after it has changed its mind.
    pub(super) send_window: i64,
    /// Bytes of the request's content that have been given to the output, and all of them.
    pub(super) body_sent: usize,
    pub(super) body_len: usize,
}

impl ClientStream {
    /// Whether there is content of the request that has not left.
    pub(super) fn has_body(&self) -> bool {
        self.body_sent < self.body_len
    }

    /// Its response, complete.
    pub(super) fn reply(&self) -> Reply {
        Reply {
            status: self.status,
            content_bytes: self.content_bytes,
            keep_alive: true,
            excess_bytes: 0,
        }
    }

    /// How much content there has to be; `None`: any.
    pub(super) fn expected_bytes(&self) -> Option<u64> {
        match self.is_head || matches!(self.status, 204 | 304) {
            true => Some(0),
            false => self.length,
        }
    }
}

/// What a frame's stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// That of this slot.
    Open(u32),
    /// Over.
    Closed,
    /// Never begun: no server may begin one.
    Idle,
}

/// All streams of a connection.
#[derive(Debug)]
pub(super) struct ClientStreams {
    /// By slot; 0: it is free. Apart from the rest, as they are searched.
    ids: Box<[u32]>,
    slots: Box<[ClientStream]>,
    /// The slot of the last frame. The next one is mostly of the same stream, or of the next: responses
    /// come in the order of the requests.
    last_found: usize,
    next_id: u32,
    open: u32,
}

impl ClientStreams {
    /// With room for so many at one time.
    pub(super) fn new(count: u32) -> Self {
        Self {
            ids: vec![0; count as usize].into(),
            slots: vec![ClientStream::default(); count as usize].into(),
            last_found: 0,
            next_id: 1,
            open: 0,
        }
    }

    /// Opens a stream in a free slot; returns its number. Numbers above 0 alone are searched for.
    #[inline]
    pub(super) fn open(&mut self, slot: u32, is_head: bool, body_len: usize, window: u32) -> u32 {
        let id = self.next_id;
        self.next_id += 2;
        self.open += 1;
        self.ids[slot as usize] = id;
        self.slots[slot as usize] = ClientStream {
            is_head,
            body_len,
            receive_window: WINDOW_BYTES,
            send_window: i64::from(window),
            ..ClientStream::default()
        };
        id
    }

    /// A stream is over; its slot is free.
    #[inline]
    pub(super) fn close(&mut self, slot: u32) {
        self.open -= 1;
        self.ids[slot as usize] = 0;
    }

    /// Which stream this is.
    #[inline]
    pub(super) fn find(&mut self, id: u32) -> Found {
        let mut likely = self.last_found..=self.last_found + 1;
        let at = likely
            .find(|at| self.ids.get(*at) == Some(&id))
            .or_else(|| self.ids.iter().position(|this| *this == id));
        match at {
            Some(at) => {
                self.last_found = at;
                Found::Open(at as u32)
            }
            None if id.is_multiple_of(2) || id >= self.next_id => Found::Idle,
            None => Found::Closed,
        }
    }

    /// A slot whose stream has a number above this one.
    pub(super) fn above(&self, id: u32) -> Option<u32> {
        let found = self.ids.iter().position(|this| *this > id);
        found.map(|at| at as u32)
    }

    /// The number of a slot's stream; 0: it is free.
    pub(super) fn id(&self, slot: u32) -> u32 {
        self.ids.get(slot as usize).copied().unwrap_or(0)
    }

    /// The number that the next stream will have.
    pub(super) fn next_id(&self) -> u32 {
        self.next_id
    }

    /// How many there are.
    pub(super) fn open_count(&self) -> u32 {
        self.open
    }

    pub(super) fn get(&mut self, slot: u32) -> &mut ClientStream {
        &mut self.slots[slot as usize]
    }

    /// The server gives another window to each stream (RFC 9113 section 6.9.2); whether all are within
    /// the bound.
    pub(super) fn change_windows(&mut self, by: i64) -> bool {
        let open = self
            .ids
            .iter()
            .zip(&mut self.slots)
            .filter(|(id, _)| **id != 0);
        let mut is_sound = true;
        for (_, stream) in open {
            stream.send_window += by;
            is_sound &= stream.send_window <= i64::from(WINDOW_BYTES_MAX);
        }
        is_sound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_found_in_any_order() {
        let mut streams = ClientStreams::new(4);
        let ids: Vec<u32> = (0..4).map(|slot| streams.open(slot, false, 0, 9)).collect();
        assert_eq!(ids, [1, 3, 5, 7]);
        for (id, found) in [
            (5, Found::Open(2)),
            (7, Found::Open(3)),
            (1, Found::Open(0)),
            (2, Found::Idle),
            (9, Found::Idle),
        ] {
            assert_eq!(streams.find(id), found, "{id}");
        }
        streams.close(1);
        assert_eq!(streams.find(3), Found::Closed);
        assert_eq!(
            (streams.open(1, false, 0, 9), streams.find(9)),
            (9, Found::Open(1))
        );
        assert_eq!(
            (streams.above(7), streams.above(9), streams.open_count()),
            (Some(1), None, 4)
        );
    }
}
