//! What was asked of an authority, and when: the memory behind limits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits::{self, Limit, REMEMBERED_MAX};
use crate::UnixTime;

/// What counts towards a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Event {
    Registration,
    Order,
    FirstCertificate,
    Certificate,
    FailedValidation,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    at: UnixTime,
    event: Event,
    name: String,
}

/// What counts towards limits still, in the order in which it happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Ledger(Vec<Entry>);

impl Ledger {
    pub(super) fn add(&mut self, event: Event, name: &str, at: UnixTime) {
        self.0.push(Entry {
            at,
            event,
            name: name.to_owned(),
        });
    }

    /// Forgets what is too old to matter. What lies ahead, since the clock was set back, is taken to be
    /// now: too late rather than never. The clock has been set: what were moved to an earlier time would be
    /// too old once it is right.
    pub(super) fn passed(&mut self, now: UnixTime) {
        self.0.retain(|entry| entry.counts_until() >= now);
        for entry in &mut self.0 {
            entry.at = entry.at.min(now);
        }
    }

    /// From when on a limit allows one more of these.
    pub(super) fn allows(
        &self,
        limit: Limit,
        event: Event,
        is_counted: impl Fn(&str) -> bool,
    ) -> UnixTime {
        let counted = |entry: &&Entry| entry.event == event && is_counted(&entry.name);
        let nth_last = self.0.iter().rev().filter(counted).nth(limit.count - 1);
        let second = Duration::from_secs(1); // an event at the edge still counts
        nth_last.map_or(UnixTime(0), |it| it.at.plus(limit.window).plus(second))
    }

    /// From when on there is room for more.
    pub(super) fn has_room(&self) -> UnixTime {
        if self.0.len() < REMEMBERED_MAX {
            return UnixTime(0);
        }
        let first = self.0.iter().map(Entry::counts_until).min();
        first.unwrap_or_default().plus(Duration::from_secs(1))
    }
}

impl Entry {
    fn counts_until(&self) -> UnixTime {
        let limit = match self.event {
            Event::Registration => limits::REGISTRATIONS,
            Event::Order => limits::ORDERS,
            Event::FirstCertificate => limits::FIRST_CERTIFICATES_OF_DOMAIN,
            Event::Certificate => limits::CERTIFICATES_OF_NAME,
            Event::FailedValidation => limits::FAILED_VALIDATIONS,
        };
        self.at.plus(limit.window)
    }
}
