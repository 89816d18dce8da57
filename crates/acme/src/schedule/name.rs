//! What is remembered of one name: its certificate, its order, and what was tried without success.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits::{self, Pause};
use super::{Validity, Window};
use crate::UnixTime;

/// What was tried without success.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attempts {
    pub(super) failures: u32,
    /// Not before.
    pub(super) next: UnixTime,
    /// How long that was ahead when it failed.
    #[serde(default)]
    pub(super) pause: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Name {
    pub(super) validity: Option<Validity>,
    /// Of its last certificate, also if that is lost.
    #[serde(default)]
    pub(super) life: Duration,
    pub(super) window: Option<Window>,
    pub(super) renew_at: UnixTime,
    /// Of all that are due, the one that was due first is asked for.
    pub(super) inquire_at: UnixTime,
    /// When the authority failed at its order, or refused to make one for a limit. Those that are due take turns
    /// by it.
    #[serde(default)]
    pub(super) tried_at: UnixTime,
    pub(super) attempts: Attempts,
    /// An order is under way: to go on with it is no new one.
    pub(super) is_ordered: bool,
    /// Since when.
    #[serde(default)]
    pub(super) ordered_at: UnixTime,
    /// How far that order is.
    #[serde(default)]
    pub(super) progress: Progress,
    /// Since when its certificate may exist, if it may.
    #[serde(default)]
    pub(super) finalized_at: UnixTime,
    /// How often it was refused since its certificate may exist.
    #[serde(default)]
    pub(super) refusals: u32,
    /// How often the authority has failed at its orders since its last certificate.
    #[serde(default)]
    pub(super) faults: u32,
    /// A certificate was issued for it at some time.
    pub(super) is_known: bool,
}

/// How far an order is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Progress {
    #[default]
    Validation,
    /// The authority issues a certificate, or has issued it.
    Finalized,
    /// It has issued it.
    Granted,
}

impl Attempts {
    pub(super) fn failed(
        &mut self,
        pause: Pause,
        retry_after: Option<Duration>,
        jitter: f64,
        now: UnixTime,
    ) {
        let doubled = pause.first.saturating_mul(1 << self.failures.min(16));
        let pause = doubled.min(pause.longest).mul_f64(0.75 + jitter / 2.0);
        self.failures = self.failures.saturating_add(1);
        let pause = pause.max(retry_after.unwrap_or_default());
        self.pause = pause.min(limits::PAUSE_MAX);
        self.next = now.plus(self.pause);
    }

    /// A pause that began by a clock that was wrong is no longer, and no shorter, than it should be.
    pub(super) fn clock_is(&mut self, now: UnixTime) {
        let latest = now.plus(self.pause);
        let was_not_set = self.failures > 0 && self.next < limits::CLOCK_IS_SET;
        if self.next > latest || was_not_set {
            self.next = latest;
        }
    }
}

impl Name {
    pub(super) fn clock_is(&mut self, now: UnixTime) {
        self.attempts.clock_is(now);
        self.inquire_at = self.inquire_at.min(now.plus(limits::INQUIRY_MOST));
        self.tried_at = self.tried_at.min(now);
        for at in [&mut self.ordered_at, &mut self.finalized_at] {
            if !(limits::CLOCK_IS_SET..=now).contains(&*at) {
                *at = now;
            }
        }
    }

    pub(super) fn order_ended(&mut self) {
        self.is_ordered = false;
        self.progress = Progress::default();
        self.refusals = 0;
    }

    pub(super) fn has(&mut self, validity: Validity, jitter: f64) {
        self.validity = Some(validity);
        self.life = validity.life();
        self.window = None;
        self.is_known = true;
        self.renew_at = validity.two_thirds(jitter);
    }

    /// Whether its order has lasted for so long that nothing comes of it any more.
    pub(super) fn order_is_overdue(&self, now: UnixTime) -> bool {
        let since = self.ordered_since();
        let is_known = since >= limits::CLOCK_IS_SET; // otherwise it is from now on, once the clock is set
        self.is_ordered && is_known && now.since(since) >= limits::order_life(self.life)
    }

    /// Whether it waits before it may be tried again, or for an order.
    pub(super) fn is_pending(&self, now: UnixTime) -> bool {
        self.attempts.next > now || (self.is_ordered && !self.order_is_overdue(now))
    }

    /// The latest of what is remembered.
    pub(super) fn latest(&self) -> UnixTime {
        let ordered = self.is_ordered.then(|| self.ordered_since());
        self.attempts.next.max(ordered.unwrap_or_default())
    }

    fn ordered_since(&self) -> UnixTime {
        match self.progress {
            Progress::Validation => self.ordered_at,
            Progress::Finalized | Progress::Granted => self.finalized_at,
        }
    }
}
