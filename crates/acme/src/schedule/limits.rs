//! How often an authority is asked at most, each with its reason.
//!
//! Authorities do not say their limits before they are reached. These are below those that Let's Encrypt
//! publishes, the strictest of the large ones; what an authority says itself (`Retry-After`) holds on top.

use std::time::Duration;

use crate::UnixTime;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// A clock that shows an earlier time has not been set since the machine started: this program did not exist.
pub(super) const CLOCK_IS_SET: UnixTime = UnixTime(1_735_689_600); // 2025-01-01

/// So many in a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// How many.
    pub(super) count: usize,
    /// In what time.
    pub(super) window: Duration,
}

/// New accounts. Let's Encrypt: 10 in 3 hours from an address.
pub(super) const REGISTRATIONS: Limit = Limit {
    count: 5,
    window: HOUR.saturating_mul(3),
};
/// New orders. Let's Encrypt: 300 in 3 hours for an account.
pub(super) const ORDERS: Limit = Limit {
    count: 200,
    window: HOUR.saturating_mul(3),
};
/// Certificates of a name. Let's Encrypt: 5 in 7 days for the same names.
pub(super) const CERTIFICATES_OF_NAME: Limit = Limit {
    count: 4,
    window: WEEK,
};

/// The same for certificates of this life. An organisation's own authority may issue them for hours: two in
/// a life are allowed, since renewals at two thirds of it are one and a half.
pub(super) fn certificates_of_name(life: Duration) -> Limit {
    let of_lives = (2 * WEEK.as_secs()).checked_div(life.as_secs());
    Limit {
        count: (of_lives.unwrap_or(0) as usize).max(CERTIFICATES_OF_NAME.count),
        ..CERTIFICATES_OF_NAME
    }
}

/// First certificates of names whose last two labels are the same. Let's Encrypt: 50 in 7 days for a
/// registered domain, which has two labels or more.
pub(super) const FIRST_CERTIFICATES_OF_DOMAIN: Limit = Limit {
    count: 40,
    window: WEEK,
};
/// Failed validations of a name. Let's Encrypt: 5 in an hour.
pub(super) const FAILED_VALIDATIONS: Limit = Limit {
    count: 4,
    window: HOUR,
};
/// How often an authority may refuse to hand out what it has issued: one that does so by mistake is right
/// again after the first pauses, which are an hour and a quarter together.
pub(super) const REFUSALS_OF_ORDER: u32 = 5;
/// How long an order is gone on with whose certificate does not come, whatever is wrong: since it was finalized, or
/// made, if it was not. Orders of Let's Encrypt last a week, and a certificate of 90 days has three more by then.
const ORDER_LIFE: Duration = WEEK;

/// The same for an order after a certificate of this life, if there was one: those of days have a third of it left
/// when they are renewed, in which another order has to come to its end.
pub(super) fn order_life(life: Duration) -> Duration {
    match life / LIFE_PART {
        Duration::ZERO => ORDER_LIFE,
        part => ORDER_LIFE.min(part),
    }
}

/// So many failures of the authority at the orders of a name, since its last certificate, and what is asked for may
/// be why: it has been down for a few minutes otherwise.
pub(super) const FAULTS_OF_ORDER: u32 = 3;
/// How many events are remembered: more than there are in a week of as many names as there may be, with
/// certificates of three hours. When it is full, the next order waits.
pub(super) const REMEMBERED_MAX: usize = 10_000;

/// A pause after failures: the first one, which doubles, and the longest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    /// After the first failure.
    pub(super) first: Duration,
    /// After many.
    pub(super) longest: Duration,
}

impl Pause {
    /// No longer than this part of a certificate's life, if that is known: those of hours are renewed with a third
    /// of it left.
    pub(super) fn within(self, life: Duration) -> Self {
        match life / LIFE_PART {
            Duration::ZERO => self,
            part => Self {
                longest: self.longest.min(part).max(self.first),
                ..self
            },
        }
    }
}

/// The part of a certificate's life that a pause of its name, or an order, takes at most.
const LIFE_PART: u32 = 8;

/// The authority does not answer: it is asked again soon, since what is broken is not ours.
pub(super) const UNREACHABLE: Pause = Pause {
    first: Duration::from_secs(60),
    longest: HOUR,
};
/// The authority has refused: somebody has to change something first.
pub(super) const REFUSED: Pause = Pause {
    first: Duration::from_secs(300),
    longest: HOUR.saturating_mul(12),
};
/// A limit of the authority is reached, and it does not say for how long.
pub(super) const RATE_LIMITED: Pause = Pause {
    first: HOUR,
    longest: DAY,
};
/// The same between new orders of all names: most limits of Let's Encrypt are on one name or domain, but that on the
/// account holds for all. With 100 names, each of which is refused, the last one waits for a day and a half:
/// certificates of six days have two left when they are renewed.
pub(super) const NEW_ORDERS_LIMITED: Pause = Pause {
    first: Duration::from_secs(300),
    longest: Duration::from_secs(1200),
};
/// How many names that are not configured any more are remembered: as many as there may be.
pub(super) const FORMER_NAMES_MAX: usize = 100;
/// Whatever the authority says, it is asked again after a week: that is its longest window.
pub(super) const PAUSE_MAX: Duration = WEEK;

/// How often the authority is asked when to renew (RFC 9773 section 4.3.2 asks for such bounds).
pub(super) const INQUIRY_LEAST: Duration = Duration::from_secs(600);
/// The same, at most.
pub(super) const INQUIRY_MOST: Duration = DAY;
/// The same, if it does not say, or has no such service.
pub(super) const INQUIRY: Duration = HOUR.saturating_mul(6);
