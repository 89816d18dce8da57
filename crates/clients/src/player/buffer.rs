//! What a player has fetched and not played yet: a pure model of time and bytes.
//!
//! ```text
//!                 2 s are there                 nothing is left
//!      starting ───────────────► playing ─────────────────────────► stalled
//!                                   ▲                                  │
//!                                   └────────── 2 s are there ─────────┘
//! ```
//!
//! Video is played at a constant bit rate, so that its bytes are a time: `bytes * 8 / rate`. Every
//! nanosecond since the begin is one of starting, playing or stalled, exactly; what was played is
//! the rate times the time of playing.

const NS_PER_S: u64 = 1_000_000_000;

/// Video that has to be there for playing to begin, or to go on after a stall.
const START_NS: u64 = 2 * NS_PER_S;
/// Video that a player keeps ahead.
const AHEAD_NS: u64 = 10 * NS_PER_S;
/// Video that is asked for at once.
const SEGMENT_NS: u64 = 2 * NS_PER_S;

/// A player's buffer.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffer {
    bits_per_second: u64,
    /// Up to where time has been accounted for.
    at_ns: u64,
    fetched_bytes: u64,
    is_playing: bool,
    /// Time with a moving picture.
    pub(super) played_ns: u64,
    /// Time without a picture after it ran out.
    pub(super) stalled_ns: u64,
    /// Times that it ran out.
    pub(super) stalls: u64,
}

impl Buffer {
    /// Empty, from `now_ns` on. At least one bit per second.
    pub(super) fn new(bits_per_second: u64, now_ns: u64) -> Self {
        Self {
            bits_per_second: bits_per_second.max(1),
            at_ns: now_ns,
            ..Self::default()
        }
    }

    /// Time has passed, up to `now_ns`.
    fn advance(&mut self, now_ns: u64) {
        let mut passed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns += passed_ns;
        if self.is_playing {
            let played_ns = passed_ns.min(self.left_ns());
            self.played_ns += played_ns;
            passed_ns -= played_ns;
            if passed_ns > 0 {
                self.is_playing = false;
                self.stalls += 1;
            }
        }
        if self.stalls > 0 {
            self.stalled_ns += passed_ns; // before the first stall it starts
        }
    }

    /// Bytes of video came, at `now_ns`.
    pub(super) fn fetched(&mut self, bytes: u64, now_ns: u64) {
        self.advance(now_ns);
        self.fetched_bytes = self.fetched_bytes.saturating_add(bytes);
        self.is_playing |= self.left_ns() >= START_NS;
    }

    /// How much video is left to be played, as of the last fact.
    fn left_ns(&self) -> u64 {
        let rate = u128::from(self.bits_per_second);
        let fetched_ns = u128::from(self.fetched_bytes) * 8 * u128::from(NS_PER_S) / rate;
        u64::try_from(fetched_ns)
            .unwrap_or(u64::MAX)
            .saturating_sub(self.played_ns)
    }

    /// When there is room for another segment: at this moment, or while playing.
    pub(super) fn room_ns(&self) -> u64 {
        let over_ns = self.left_ns().saturating_sub(AHEAD_NS - SEGMENT_NS);
        self.at_ns.saturating_add(over_ns)
    }

    /// When the video will have run out, if nothing more comes; `None` while it does not play.
    pub(super) fn empty_ns(&self) -> Option<u64> {
        self.is_playing
            .then(|| self.at_ns.saturating_add(self.left_ns()))
    }

    /// Bytes of one segment, at least one.
    pub(super) fn segment_bytes(&self) -> u64 {
        let bytes = u128::from(self.bits_per_second) * u128::from(SEGMENT_NS / NS_PER_S) / 8;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A second of video is 1000 bytes.
    const RATE: u64 = 8000;

    fn seconds(seconds: u64) -> u64 {
        seconds * NS_PER_S
    }

    #[test]
    fn it_starts_plays_stalls_and_goes_on() {
        // At this second these bytes come; then: left, played, stalled, stalls.
        let table = [
            (3, 1999, (1, 0, 0, 0)), // not enough, by a byte
            (4, 1, (2, 0, 0, 0)),
            (5, 0, (1, 1, 0, 0)),
            (6, 500, (0, 2, 0, 0)), // it had run out, and half a second came in time
            (7, 0, (0, 2, 0, 1)),
            (8, 1500, (1, 2, 1, 1)),
            (9, 501, (2, 2, 2, 1)),
            (11, 0, (0, 4, 2, 1)),
        ];
        let mut buffer = Buffer::new(RATE, 0);
        for (at, bytes, expected) in table {
            buffer.fetched(bytes, seconds(at));
            let found = (
                buffer.left_ns() / NS_PER_S,
                buffer.played_ns / NS_PER_S,
                buffer.stalled_ns / NS_PER_S,
                buffer.stalls,
            );
            assert_eq!(found, expected, "at {at} s");
        }
    }

    #[test]
    fn a_segment_is_asked_for_when_there_is_room_for_it() {
        let mut buffer = Buffer::new(RATE, seconds(1));
        assert_eq!(buffer.segment_bytes(), 2000);
        assert_eq!(buffer.room_ns(), seconds(1));
        assert_eq!(buffer.empty_ns(), None);
        buffer.fetched(8000, seconds(1));
        assert_eq!(buffer.room_ns(), seconds(1));
        buffer.fetched(2000, seconds(1));
        assert_eq!(buffer.room_ns(), seconds(3));
        assert_eq!(buffer.empty_ns(), Some(seconds(11)));
        buffer.advance(seconds(3));
        assert_eq!(buffer.room_ns(), seconds(3));
        assert_eq!(buffer.empty_ns(), Some(seconds(11)));
    }

    proptest! {
        /// Whatever comes and when: no nanosecond and no byte is lost or made up.
        #[test]
        fn time_and_bytes_are_conserved(
            rate in 1_u64..50_000_000,
            steps in prop::collection::vec((0_u64..5_000_000_000, 0_u64..4_000_000), 0..60),
        ) {
            let begin_ns = 17;
            let mut buffer = Buffer::new(rate, begin_ns);
            let (mut now_ns, mut bytes, mut starting_ns) = (begin_ns, 0, 0);
            for (wait_ns, came) in steps {
                now_ns += wait_ns;
                bytes += came;
                let stalls = buffer.stalls;
                if !buffer.is_playing && stalls == 0 {
                    starting_ns += wait_ns;
                }
                buffer.fetched(came, now_ns);
                prop_assert!(buffer.stalls <= stalls + 1);
                let wall_ns = starting_ns + buffer.played_ns + buffer.stalled_ns;
                prop_assert_eq!(wall_ns, now_ns - begin_ns);
                let played_bytes = u128::from(buffer.played_ns) * u128::from(rate) / 8_000_000_000;
                prop_assert!(played_bytes <= u128::from(bytes));
                let left_bytes = u128::from(buffer.left_ns()) * u128::from(rate) / 8_000_000_000;
                let sum = left_bytes + played_bytes;
                // Two roundings down, and the fraction of a byte that a nanosecond is.
                prop_assert!(sum <= u128::from(bytes));
                prop_assert!(u128::from(bytes) - sum <= 2 + u128::from(rate) / 8_000_000_000);
                prop_assert!(buffer.stalled_ns == 0 || buffer.stalls > 0);
            }
        }

        /// How often it is looked at changes nothing.
        #[test]
        fn looking_changes_nothing(looks_ns in prop::collection::vec(0_u64..3_000_000_000, 0..30)) {
            let mut watched = Buffer::new(RATE, 0);
            let mut alone = watched.clone();
            watched.fetched(4000, 0);
            alone.fetched(4000, 0);
            let mut now_ns = 0;
            for look_ns in looks_ns {
                now_ns += look_ns;
                watched.advance(now_ns);
            }
            alone.advance(now_ns);
            prop_assert_eq!(format!("{watched:?}"), format!("{alone:?}"));
        }
    }
}
