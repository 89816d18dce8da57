//! Streams that have an order to give, the most urgent first.

use std::collections::VecDeque;

use super::Http2Session;
use crate::StreamId;

/// With their urgencies; those of one urgency in the order in which they have come.
#[derive(Debug, Default)]
pub(super) struct Due(VecDeque<(u8, StreamId)>);

impl Due {
    /// Most clients ask for everything with one urgency: then only the last one is looked at.
    pub(super) fn add(&mut self, id: StreamId, urgency: u8) {
        match self.0.back() {
            Some((last, _)) if *last > urgency => {
                let at = self.0.partition_point(|(other, _)| *other <= urgency);
                self.0.insert(at, (urgency, id));
            }
            _ => self.0.push_back((urgency, id)),
        }
    }

    /// Its urgency is another one.
    pub(super) fn change(&mut self, id: StreamId, urgency: u8) {
        let at = self.iter().position(|other| other == id);
        if let Some(at) = at {
            self.remove(at);
            self.add(id, urgency);
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<StreamId> {
        self.0.remove(at).map(|(_, id)| id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = StreamId> {
        self.0.iter().map(|(_, id)| *id)
    }
}

impl Http2Session {
    /// A stream has an order to give. Of a proxy's clients none overtakes another, whatever it says is urgent.
    pub(super) fn mark_due(&mut self, id: StreamId) {
        let is_of_proxy = self.peer_is_trusted();
        if let Some(stream) = self.streams.get_mut(id)
            && !std::mem::replace(&mut stream.is_due, true)
        {
            let urgency = match is_of_proxy {
                true => 0,
                false => stream.priority.urgency,
            };
            self.due.add(id, urgency);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_by_urgency_and_then_in_order() {
        let mut due = Due::default();
        for (id, urgency) in [(1, 3), (3, 3), (5, 0), (7, 5), (9, 3), (11, 0)] {
            due.add(StreamId(id), urgency);
        }
        let ids = |due: &Due| due.iter().map(|id| id.0).collect::<Vec<_>>();
        assert_eq!(ids(&due), [5, 11, 1, 3, 9, 7]);
        for (id, urgency) in [(1, 5), (9, 0), (13, 0)] {
            due.change(StreamId(id), urgency);
        }
        assert_eq!(ids(&due), [5, 11, 9, 3, 7, 1]);
        assert_eq!(due.remove(1), Some(StreamId(11)));
        assert_eq!(ids(&due), [5, 9, 3, 7, 1]);
    }
}
