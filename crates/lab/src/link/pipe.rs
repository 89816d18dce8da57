//! One direction of a link: which packets come through, and when. No clock and no sockets: the time is an
//! argument.
//!
//! ```text
//!   put ──► buffer, bounded ──► sent at the bandwidth ──► lost, or on its way for the delay ──► take
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use super::Direction;
use crate::journal::DirectionFacts;

/// Bytes that may wait or be on their way at once: the largest buffer, and half a second of the fastest link.
const ON_WAY_BYTES_MAX: u64 = 128 << 20;
const NS_PER_S: u128 = 1_000_000_000;

/// Packets of any kind on their way in one direction. Times are nanoseconds of any clock that does not go
/// back.
#[derive(Debug)]
pub struct Pipe<T> {
    delay_ns: u64,
    jitter_ns: u64,
    bandwidth_bps: Option<u64>,
    loss: f64,
    buffer_bytes: u64,
    may_reorder: bool,
    random: Pcg64,
    /// When the last byte in the buffer will have been sent.
    free_at_ns: u64,
    last_due_ns: u64,
    number: u64,
    /// Packets with their bytes, by when they are due, and then by when they came.
    on_way: BTreeMap<(u64, u64), (u64, T)>,
    on_way_bytes: u64,
    counts: DirectionFacts,
}

impl<T> Pipe<T> {
    /// An empty one. The seed and the packets decide which of them are lost.
    #[must_use]
    pub fn new(direction: &Direction, buffer_bytes: u64, seed: u64) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            delay_ns: ns(direction.delay),
            jitter_ns: ns(direction.jitter),
            bandwidth_bps: direction.bandwidth_bps,
            loss: direction.loss,
            buffer_bytes,
            may_reorder: direction.reorder,
            random: Pcg64::seed_from_u64(seed),
            free_at_ns: 0,
            last_due_ns: 0,
            number: 0,
            on_way: BTreeMap::new(),
            on_way_bytes: 0,
            counts: DirectionFacts::default(),
        }
    }

    /// A packet of so many bytes comes in. It is given back if it goes no further.
    pub fn put(&mut self, now_ns: u64, bytes: usize, packet: T) -> Option<T> {
        // Drawn for each packet, so that the fate of one does not depend on that of others.
        let is_lost = self.random.random::<f64>() < self.loss;
        let off = self.random.random::<f64>() * 2.0 - 1.0;
        let size = bytes as u64;
        self.number += 1;
        self.counts.packets += 1;
        self.counts.bytes += size;
        let waiting = self.waiting_bytes(now_ns);
        if waiting + size > self.buffer_bytes || self.on_way_bytes + size > ON_WAY_BYTES_MAX {
            self.counts.dropped += 1;
            return Some(packet);
        }
        let sent_ns = self.free_at_ns.max(now_ns) + self.sending_ns(size);
        if self.bandwidth_bps.is_some() {
            self.free_at_ns = sent_ns;
            self.counts.waiting_bytes_max = self.counts.waiting_bytes_max.max(waiting + size);
        }
        if is_lost {
            self.counts.lost += 1; // it has had its time of the bandwidth all the same
            return Some(packet);
        }
        let jitter_ns = (off * self.jitter_ns as f64) as i64;
        let due_ns = (sent_ns + self.delay_ns).saturating_add_signed(jitter_ns);
        let due_ns = match self.may_reorder {
            true => due_ns,
            false => due_ns.max(self.last_due_ns),
        };
        self.last_due_ns = self.last_due_ns.max(due_ns);
        self.on_way_bytes += size;
        self.on_way.insert((due_ns, self.number), (size, packet));
        None
    }

    /// The next packet that is through by now, and when it was due.
    pub fn take(&mut self, now_ns: u64) -> Option<(T, u64)> {
        let next = self.on_way.first_entry()?;
        let (due_ns, _) = *next.key();
        if due_ns > now_ns {
            return None;
        }
        let (bytes, packet) = next.remove();
        self.on_way_bytes -= bytes;
        Some((packet, due_ns))
    }

    /// When the next packet will be through.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        let (&(due_ns, _), _) = self.on_way.first_key_value()?;
        Some(due_ns)
    }

    /// What became of packets so far, but for those that the kernel refused, and how late they left.
    #[must_use]
    pub fn counts(&self) -> DirectionFacts {
        self.counts
    }

    /// Bytes that wait for the bandwidth, with what is left of the one that is being sent.
    fn waiting_bytes(&self, now_ns: u64) -> u64 {
        let Some(bps) = self.bandwidth_bps else {
            return 0;
        };
        let rest_ns = u128::from(self.free_at_ns.saturating_sub(now_ns));
        (rest_ns * u128::from(bps) / (8 * NS_PER_S)) as u64
    }

    fn sending_ns(&self, bytes: u64) -> u64 {
        let ns = |bps: u64| u128::from(bytes) * 8 * NS_PER_S / u128::from(bps);
        self.bandwidth_bps.map_or(0, |bps| ns(bps) as u64)
    }
}
