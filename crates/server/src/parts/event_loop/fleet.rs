//! What the loops of a reactor know of each other: mailboxes, loads, the cap they share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::admission::{Arrival, Welcome};
use crate::parts::balance::{self, Load};
use crate::parts::mailbox::Mailbox;
use crate::parts::workers::Message;

/// Connections over the cap that wait until an idle one was closed for each of them. That may take
/// some turns, and until then all of them see the same idle connection.
const EVICTIONS_MAX: usize = 64;

/// The loops of a reactor, seen from each other and from the main loop.
pub(crate) struct Fleet {
    members: Box<[Member]>,
    /// Connections of the whole server, without those that are only refused.
    connections: AtomicUsize,
    connections_max: usize,
    /// Threads that may still send newcomers: nobody leaves before they have all stopped.
    senders: AtomicUsize,
}

/// One loop, seen from outside.
pub(super) struct Member {
    pub(super) mailbox: Arc<Mailbox<Message>>,
    pub(super) load: Load,
}

impl Fleet {
    pub(crate) fn new(
        loops: usize,
        connections_max: usize,
        senders: usize,
    ) -> io::Result<Arc<Self>> {
        let member = |_| {
            Ok(Member {
                mailbox: Arc::new(Mailbox::new()?),
                load: Load::default(),
            })
        };
        Ok(Arc::new(Self {
            members: (0..loops).map(member).collect::<io::Result<_>>()?,
            connections: AtomicUsize::new(0),
            connections_max,
            senders: AtomicUsize::new(senders),
        }))
    }

    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The loop for a newcomer that `own` has accepted from a listener that all share: `own`,
    /// unless it has noticeably more connections than another. Wake-ups alone do not spread them:
    /// the kernel wakes the loop that went to sleep last, so under little load one gets them all.
    pub(super) fn share(&self, own: usize) -> usize {
        let connections = |index: usize| {
            let load = &self.members[index].load;
            load.connections.load(Ordering::Relaxed)
        };
        let fewest = (0..self.members.len()).min_by_key(|index| connections(*index));
        match fewest {
            Some(fewest) if connections(own) > share_limit(connections(fewest)) => fewest,
            _ => own,
        }
    }

    /// Counts a newcomer in, and says which loop takes it and how: `preferred` while there is
    /// room; at the cap the one with the oldest idle connection; if nobody is idle, a refusal.
    pub(super) fn place(&self, preferred: usize) -> (usize, Welcome) {
        let connections = self.connections.fetch_add(1, Ordering::Relaxed);
        if connections < self.connections_max {
            return (preferred, Welcome::Serve);
        }
        let is_pending = connections < self.connections_max.saturating_add(EVICTIONS_MAX);
        match self.oldest_idle().filter(|_| is_pending) {
            Some(index) => (index, Welcome::MakeRoom),
            None => {
                self.leave();
                (preferred, Welcome::Refuse)
            }
        }
    }

    /// The same for a newcomer that holds the last descriptor.
    pub(super) fn place_crowded(&self, preferred: usize) -> (usize, Welcome) {
        match self.oldest_idle() {
            Some(index) => {
                self.place_anyway();
                (index, Welcome::MakeRoom)
            }
            None => (preferred, Welcome::Refuse),
        }
    }

    /// Counts a newcomer in, over the cap if need be: for the last ones before a shutdown.
    pub(super) fn place_anyway(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection out.
    pub(super) fn leave(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// The loop whose oldest idle connection is idle the longest.
    pub(super) fn oldest_idle(&self) -> Option<usize> {
        balance::oldest_idle(self.members.iter().map(|member| &member.load))
    }

    /// Sends a newcomer to a loop.
    pub(super) fn send(&self, index: usize, arrival: Arrival) {
        let member = &self.members[index];
        member.load.connections.fetch_add(1, Ordering::Relaxed);
        member.load.under_way.fetch_add(1, Ordering::Relaxed);
        member.mailbox.post(Message::Arrival(arrival));
    }

    /// Asks a loop for a descriptor.
    pub(super) fn ask_for_room(&self, index: usize) {
        let member = &self.members[index];
        member.load.under_way.fetch_add(1, Ordering::Relaxed);
        member.mailbox.post(Message::MakeRoom);
    }

    /// A thread will send no more newcomers.
    pub(super) fn stops_sending(&self) {
        if self.senders.fetch_sub(1, Ordering::SeqCst) == 1 {
            for member in &self.members {
                member.mailbox.nudge();
            }
        }
    }

    /// Whether newcomers may still come by mail.
    pub(super) fn is_sending(&self) -> bool {
        self.senders.load(Ordering::SeqCst) > 0
    }
}

/// Connections that a loop may have before it hands newcomers to one that has `fewest`: handing
/// over costs a wake-up, so not for a difference that does not matter.
fn share_limit(fewest: usize) -> usize {
    fewest + fewest / 8 + 2
}

#[cfg(test)]
mod tests {
    use loadline_base::Millis;

    use super::*;

    #[test]
    fn at_the_cap_the_loop_with_the_oldest_idle_connection_takes_over() {
        let fleet = Fleet::new(3, 2, 0).unwrap();
        assert_eq!(fleet.place(1), (1, Welcome::Serve));
        assert_eq!(fleet.place(0), (0, Welcome::Serve));
        assert_eq!(fleet.place(1), (1, Welcome::Refuse));
        fleet.members[0].load.set_oldest_idle(Some(Millis(9)));
        fleet.members[2].load.set_oldest_idle(Some(Millis(5)));
        assert_eq!(fleet.place(1), (2, Welcome::MakeRoom));
        // The refused one was not counted; the one that makes room will count its victim out.
        fleet.leave();
        fleet.leave();
        assert_eq!(fleet.place(1), (1, Welcome::Serve));
    }

    #[test]
    fn a_loop_with_noticeably_more_connections_hands_newcomers_over() {
        let fleet = Fleet::new(3, 1000, 0).unwrap();
        let set = |index: usize, count| {
            let connections = &fleet.members[index].load.connections;
            connections.store(count, Ordering::Relaxed);
        };
        for (own, others, taker) in [
            (0, [0, 0], 0),
            (2, [0, 5], 0),
            (3, [5, 0], 2),
            (92, [80, 80], 0),
        ] {
            set(0, own);
            set(1, others[0]);
            set(2, others[1]);
            assert_eq!(fleet.share(0), taker, "{own} and {others:?}");
        }
        set(0, 93);
        assert_eq!(fleet.share(0), 1);
    }

    #[test]
    fn the_last_to_stop_sending_wakes_everybody() {
        let fleet = Fleet::new(2, 10, 2).unwrap();
        fleet.stops_sending();
        assert!(fleet.is_sending());
        assert!(
            fleet
                .members
                .iter()
                .all(|member| member.mailbox.fall_asleep())
        );
        fleet.stops_sending();
        assert!(!fleet.is_sending());
        assert!(
            !fleet
                .members
                .iter()
                .any(|member| member.mailbox.fall_asleep())
        );
    }
}
