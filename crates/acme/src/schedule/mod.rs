//! When an authority is asked for what: a state machine without a clock, a socket or a file.
//!
//! ```text
//!   events (past tense)                              orders (imperative)
//!   loaded · registered · ordering · finalized ──►   Register · Order · Inquire · Wait
//!   finalization_refused · granted · issued
//!   order_refused · failed
//!   inquired · inquiry_failed · passed
//! ```
//!
//! Each name has a certificate of its own, so that a name that fails does not keep the others from
//! theirs. It is renewed in the window that the authority suggests (ARI, RFC 9773), or at two thirds of
//! its life. Failures lead to pauses that double, with jitter: those of the authority (it does not
//! answer) hold for all names, those of a name for that name. An authority may fail for one name alone, so
//! all that are due take turns, and so do orders and inquiries. A new order that is refused for a limit
//! holds up those of other names, too, but not for as long: the authority does not say, in a way that
//! programs can read, whether the limit is on all names together or on that one. Everything is data that is written to a file
//! before an authority is asked, so that no restart forgets what has been asked already.

mod ledger;
mod limits;
mod name;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::UnixTime;
use ledger::{Event, Ledger};
use limits::Limit;
use name::{Attempts, Name, Progress};

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make an account.
    Register,
    /// Order a certificate for this name, or go on with its order.
    Order(String),
    /// Ask when the certificate of this name is to be renewed.
    Inquire(String),
    /// Nothing before this time.
    Wait(UnixTime),
}

/// How long a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// From.
    pub from: UnixTime,
    /// To.
    pub to: UnixTime,
}

/// When an authority wants a certificate renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Not before.
    pub start: UnixTime,
    /// Not after.
    pub end: UnixTime,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The authority did not answer, or not as an authority does: this holds for all names.
    Unreachable,
    /// A validation failed.
    Invalid,
    /// The authority refused something else.
    Refused,
    /// The authority says that a limit is reached.
    RateLimited,
}

/// What is drawn at random, from 0 up to 1: jitter.
pub type Draw = Box<dyn FnMut() -> f64 + Send>;

/// When an authority is asked for what.
#[derive(Serialize, Deserialize)]
pub struct Schedule {
    is_registered: bool,
    authority: Attempts,
    /// New orders that were refused for a limit, which may be one on all names together.
    #[serde(default)]
    new_orders: Attempts,
    names: BTreeMap<String, Name>,
    /// Those that are not configured any more, in case they come back.
    #[serde(default)]
    former: BTreeMap<String, Name>,
    ledger: Ledger,
    /// The authority has failed at an order since it last did anything else: an inquiry that is due comes
    /// before the next order.
    #[serde(skip)]
    is_inquiry_next: bool,
    #[serde(skip, default = "no_jitter")]
    draw: Draw,
}

impl Schedule {
    /// Of these names, none of which has a certificate.
    #[must_use]
    pub fn new(names: &[String], draw: Draw) -> Self {
        let mut it = Self {
            is_registered: false,
            authority: Attempts::default(),
            new_orders: Attempts::default(),
            names: BTreeMap::new(),
            former: BTreeMap::new(),
            ledger: Ledger::default(),
            is_inquiry_next: false,
            draw,
        };
        it.names_are(names);
        it
    }

    /// Goes on with what was remembered, for these names.
    #[must_use]
    pub fn resumed(mut self, names: &[String], draw: Draw) -> Self {
        self.draw = draw;
        self.names_are(names);
        self
    }

    /// At the start: what there is. A name without a certificate is ordered for.
    pub fn loaded(&mut self, name: &str, found: Option<Validity>) {
        let jitter = (self.draw)();
        let Some(it) = self.names.get_mut(name) else {
            return;
        };
        match found {
            None => it.validity = None,
            Some(validity) if it.validity == Some(validity) => {}
            Some(validity) => it.has(validity, jitter),
        }
    }

    /// Whether there is an account.
    pub fn registered(&mut self, is_registered: bool) {
        self.is_registered = is_registered;
    }

    /// An account is about to be made.
    pub fn registering(&mut self, now: UnixTime) {
        self.ledger.add(Event::Registration, "", now);
    }

    /// An order is about to be made, or to be gone on with.
    pub fn ordering(&mut self, name: &str, now: UnixTime) {
        let Some(it) = self.names.get_mut(name) else {
            return;
        };
        if !it.is_ordered {
            it.is_ordered = true;
            it.ordered_at = now;
            self.ledger.add(Event::Order, name, now);
        }
    }

    /// An order is about to be finalized: its certificate may exist from now on.
    pub fn finalized(&mut self, name: &str, now: UnixTime) {
        if now >= self.new_orders.next {
            self.new_orders = Attempts::default(); // new orders are made again
        }
        if let Some(it) = self.names.get_mut(name)
            && it.progress == Progress::Validation
        {
            it.progress = Progress::Finalized;
            it.finalized_at = now;
        }
    }

    /// The authority has refused to finalize an order: there is no certificate of it.
    pub fn finalization_refused(&mut self, name: &str) {
        if let Some(it) = self.names.get_mut(name) {
            it.progress = Progress::default();
        }
    }

    /// The authority has issued the certificate of an order. It counts, whether it can be had or not.
    pub fn granted(&mut self, name: &str, now: UnixTime) {
        self.finalized(name, now);
        let Some(it) = self.names.get_mut(name) else {
            return;
        };
        if it.progress == Progress::Granted {
            return;
        }
        it.progress = Progress::Granted;
        if !it.is_known {
            it.is_known = true;
            self.ledger.add(Event::FirstCertificate, name, now);
        }
        self.ledger.add(Event::Certificate, name, now);
    }

    /// The authority refuses to go on with an order, or does not know its account, or its certificate cannot be used.
    /// Returns whether it is to be asked again: not without end, since it may refuse for good.
    pub fn order_refused(&mut self, name: &str) -> bool {
        let Some(it) = self.names.get_mut(name) else {
            return false;
        };
        if it.progress == Progress::Validation {
            return false;
        }
        it.refusals = it.refusals.saturating_add(1);
        it.refusals < limits::REFUSALS_OF_ORDER
    }

    /// Whether the order of a name is finalized, so that its certificate may exist.
    #[must_use]
    pub fn certificate_may_exist(&self, name: &str) -> bool {
        let it = self.names.get(name);
        it.is_some_and(|it| it.progress != Progress::Validation)
    }

    /// Whether an order has lasted for so long that nothing comes of it any more, whatever the authority says.
    #[must_use]
    pub fn order_is_overdue(&self, name: &str, now: UnixTime) -> bool {
        let it = self.names.get(name);
        it.is_some_and(|it| it.order_is_overdue(now))
    }

    /// Whether the authority has failed so often at the orders of a name that what they ask for may be why.
    #[must_use]
    pub fn has_failed_often(&self, name: &str) -> bool {
        let it = self.names.get(name);
        it.is_some_and(|it| it.faults >= limits::FAULTS_OF_ORDER)
    }

    /// The order of a name is over, and there is none to go on with.
    pub fn order_ended(&mut self, name: &str) {
        if let Some(it) = self.names.get_mut(name) {
            it.order_ended();
        }
    }

    /// There is a new certificate.
    pub fn issued(&mut self, name: &str, validity: Validity, now: UnixTime) {
        let jitter = (self.draw)();
        self.authority = Attempts::default();
        self.is_inquiry_next = false;
        self.granted(name, now);
        let Some(it) = self.names.get_mut(name) else {
            return;
        };
        it.order_ended();
        it.attempts = Attempts::default();
        it.tried_at = UnixTime::default();
        it.faults = 0;
        it.inquire_at = now;
        it.has(validity, jitter);
    }

    /// Something was not done: for a name, or for all. The authority may have said when it may be tried
    /// again. If no order of the name is under way, none was made.
    pub fn failed(
        &mut self,
        name: Option<&str>,
        reason: Reason,
        retry_after: Option<Duration>,
        now: UnixTime,
    ) {
        let jitter = (self.draw)();
        if reason == Reason::Invalid {
            self.ledger
                .add(Event::FailedValidation, name.unwrap_or_default(), now);
        }
        let it = name.and_then(|name| self.names.get(name));
        let life = it.map_or(Duration::ZERO, |it| it.life);
        let pause = match reason {
            Reason::Unreachable => limits::UNREACHABLE,
            Reason::Invalid | Reason::Refused => limits::REFUSED.within(life),
            Reason::RateLimited => limits::RATE_LIMITED,
        };
        let attempts = match name.and_then(|name| self.names.get_mut(name)) {
            Some(it) if reason == Reason::Unreachable => {
                it.tried_at = now;
                it.faults = it.faults.saturating_add(1);
                self.is_inquiry_next = true;
                &mut self.authority
            }
            Some(it) => {
                self.authority = Attempts::default(); // it has answered
                if reason == Reason::RateLimited && !it.is_ordered {
                    it.tried_at = now;
                    self.new_orders
                        .failed(limits::NEW_ORDERS_LIMITED, None, jitter, now);
                }
                &mut it.attempts
            }
            None => &mut self.authority,
        };
        attempts.failed(pause, retry_after, jitter, now);
    }

    /// The authority has said when it wants a certificate renewed, or that it cannot say; and when it may
    /// be asked again.
    pub fn inquired(
        &mut self,
        name: &str,
        window: Option<Window>,
        again: Option<Duration>,
        now: UnixTime,
    ) {
        let jitter = (self.draw)();
        self.authority = Attempts::default();
        self.is_inquiry_next = false;
        let Some(it) = self.names.get_mut(name) else {
            return;
        };
        let again = again.unwrap_or(limits::INQUIRY);
        it.inquire_at = now.plus(again.clamp(limits::INQUIRY_LEAST, limits::INQUIRY_MOST));
        if let (Some(window), Some(validity)) = (window, it.validity)
            && it.window != Some(window)
        {
            it.window = Some(window);
            it.renew_at = validity.renew_in(window, jitter);
        }
    }

    /// The authority has not said when it wants the certificate of a name renewed. It is asked for those of
    /// others first.
    pub fn inquiry_failed(
        &mut self,
        name: &str,
        reason: Reason,
        retry_after: Option<Duration>,
        now: UnixTime,
    ) {
        self.failed(None, reason, retry_after, now);
        self.is_inquiry_next = false;
        if let Some(it) = self.names.get_mut(name) {
            it.inquire_at = now;
        }
    }

    /// Time has passed: what is to be done now?
    pub fn passed(&mut self, now: UnixTime) -> Step {
        if now >= limits::CLOCK_IS_SET {
            self.clock_is(now);
        }
        // A clock that was not set may be right at any time: what lies ahead is looked at again.
        let look_again = now.plus(limits::PAUSE_MAX + Duration::from_secs(1));
        let orders = self.names.iter().map(|(name, it)| {
            let urgency = it.validity.map_or(UnixTime(0), |validity| validity.to);
            let at = self.order_at(name, it).min(look_again);
            (at.max(now), it.tried_at, urgency, name)
        });
        let order = orders.min().map(|(at, _, _, name)| (at, name));
        let has_certificate = |(_, it): &(&String, &Name)| it.validity.is_some();
        let inquiries = self.names.iter().filter(has_certificate);
        let inquiry = inquiries.map(|(name, it)| (it.inquire_at, name)).min();
        let inquiry = inquiry.map(|(at, name)| (at.max(self.authority.next), name));
        let is_inquiry_first = self.is_inquiry_next && inquiry.is_some_and(|(at, _)| at <= now);
        match (order, inquiry) {
            (Some((at, _)), _) if at <= now && !self.is_registered => Step::Register,
            (Some((at, name)), _) if at <= now && !is_inquiry_first => Step::Order(name.clone()),
            (_, Some((at, name))) if at <= now && self.is_registered => Step::Inquire(name.clone()),
            (Some((order, _)), Some((inquiry, _))) if self.is_registered => {
                Step::Wait(order.min(inquiry))
            }
            (Some((order, _)), _) => Step::Wait(order),
            (None, _) => Step::Wait(now.plus(limits::INQUIRY_MOST)),
        }
    }

    /// How often the authority, or a name, has failed since it last succeeded.
    #[must_use]
    pub fn failures(&self) -> u32 {
        let names = self.names.values().map(|it| it.attempts.failures);
        names.max().unwrap_or(0).max(self.authority.failures)
    }

    /// How often a name has failed since it last succeeded.
    #[must_use]
    pub fn failures_of(&self, name: &str) -> u32 {
        self.names.get(name).map_or(0, |it| it.attempts.failures)
    }

    /// When an order for a name may be tried again, or the authority be asked anything.
    #[must_use]
    pub fn next_try(&self, name: Option<&str>) -> UnixTime {
        let of_name = name.and_then(|name| self.names.get_key_value(name));
        of_name.map_or(self.authority.next, |(name, it)| self.order_at(name, it))
    }

    /// The end of a name's certificate, if no other one may be ordered before it.
    #[must_use]
    pub fn ends_unrenewed(&self, name: &str, now: UnixTime) -> Option<UnixTime> {
        let (name, it) = self.names.get_key_value(name)?;
        let end = it.validity?.to;
        (self.order_at(name, it).max(now) >= end).then_some(end)
    }

    /// When the certificate of a name is to be renewed.
    #[must_use]
    pub fn renew_at(&self, name: &str) -> Option<UnixTime> {
        let it = self.names.get(name)?;
        it.validity.map(|_| it.renew_at)
    }

    /// The clock may have been set since anything happened: nothing waits for longer because of that.
    fn clock_is(&mut self, now: UnixTime) {
        self.ledger.passed(now);
        self.authority.clock_is(now);
        self.new_orders.clock_is(now);
        for name in self.names.values_mut().chain(self.former.values_mut()) {
            name.clock_is(now);
        }
        self.former.retain(|_, it| it.is_pending(now));
    }

    /// What was refused, and an order under way, hold for a name that comes back, too.
    fn names_are(&mut self, names: &[String]) {
        self.former.append(&mut self.names);
        for name in names {
            let of_before = || self.former.remove(name).unwrap_or_default();
            self.names.entry(name.clone()).or_insert_with(of_before);
        }
        while self.former.len() > limits::FORMER_NAMES_MAX
            && let Some((name, _)) = self.former.iter().min_by_key(|(_, it)| it.latest())
        {
            let name = name.clone();
            self.former.remove(&name);
        }
    }

    /// From when on a certificate may be ordered for a name, and is due.
    fn order_at(&self, name: &str, it: &Name) -> UnixTime {
        let due = it.validity.map_or(UnixTime(0), |_| it.renew_at);
        let allows = |limit: Limit, event, is_counted: &dyn Fn(&str) -> bool| {
            self.ledger.allows(limit, event, is_counted)
        };
        let of_name = |other: &str| other == name;
        let of_domain = |other: &str| domain(other) == domain(name);
        let mut at = due
            .max(it.attempts.next)
            .max(self.authority.next)
            .max(self.ledger.has_room())
            .max(allows(
                limits::FAILED_VALIDATIONS,
                Event::FailedValidation,
                &of_name,
            ));
        if !it.is_ordered {
            at = at
                .max(self.new_orders.next)
                .max(allows(limits::ORDERS, Event::Order, &|_| true));
        }
        if it.progress != Progress::Granted {
            at = at.max(self.certificate_at(name, it)); // otherwise it counts already
        }
        if !it.is_known {
            let limit = limits::FIRST_CERTIFICATES_OF_DOMAIN;
            at = at.max(allows(limit, Event::FirstCertificate, &of_domain));
        }
        if !self.is_registered {
            at = at.max(allows(limits::REGISTRATIONS, Event::Registration, &|_| {
                true
            }));
        }
        at
    }

    /// From when on the limit on a name's certificates allows another one. No certificate ends because of
    /// it: it does not hold beyond two thirds of a life. But half a life passes since the last one in any
    /// case, since all of them look old to a clock that is wrong.
    fn certificate_at(&self, name: &str, it: &Name) -> UnixTime {
        let of_name = |other: &str| other == name;
        let allows = |limit: Limit| self.ledger.allows(limit, Event::Certificate, of_name);
        let at = allows(limits::certificates_of_name(it.life));
        let Some(validity) = it.validity else {
            return at;
        };
        let half = Limit {
            count: 1,
            window: validity.life() / 2,
        };
        at.min(validity.two_thirds(0.0).max(allows(half)))
    }
}

impl Validity {
    /// Whether it is valid then.
    pub(crate) fn contains(self, time: UnixTime) -> bool {
        (self.from..self.to).contains(&time)
    }

    fn life(self) -> Duration {
        self.to.since(self.from)
    }

    /// At two thirds of its life, and up to a fiftieth later: not all servers of a network at once.
    fn two_thirds(self, jitter: f64) -> UnixTime {
        let life = self.life();
        self.from.plus(life * 2 / 3 + life.mul_f64(jitter / 50.0))
    }

    /// Anywhere in the window, but never without time to try again.
    fn renew_in(self, window: Window, jitter: f64) -> UnixTime {
        let at = window
            .start
            .plus(window.end.since(window.start).mul_f64(jitter));
        at.min(self.to.minus(self.life() / 10))
    }
}

/// The last two labels: of the same registered domain if the same, or of more than one.
fn domain(name: &str) -> &str {
    let before = |end: usize| name[..end].rfind('.');
    match before(name.len()).and_then(before) {
        Some(at) => &name[at + 1..],
        None => name,
    }
}

fn no_jitter() -> Draw {
    Box::new(|| 0.5)
}
