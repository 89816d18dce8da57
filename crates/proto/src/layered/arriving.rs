//! Input that the session does not know of yet: the rest of a record, the first request behind a handshake,
//! and how long the server has kept that handshake.

use loadline_base::Millis;

use super::Layered;
use crate::{Action, Exchange, FIRST_REQUEST_GRACE_MS, HandshakeTime, Layer, Session};

/// What is on its way, as far as is known.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    /// The rest of a record is awaited.
    is_partial: bool,
    /// Since when; in a drain since the first one behind a request.
    since: Option<Millis>,
    /// Bytes for the session that have come since.
    bytes: u64,
    /// When the layer was open; `None` once a request has come, or the time for it in a drain is up.
    open_since: Option<Millis>,
    is_draining: bool,
    /// A request has come, and the session has had something to do since.
    is_serving: bool,
    /// In a drain: the session would close but for what is on its way.
    is_last: bool,
    /// How long the server has kept the handshake, until the first request has come. What the client has taken
    /// between two messages is not in it.
    handshake_us: u64,
    /// When the last step of it was ordered, or was done.
    step_at: Millis,
}

/// Whether a request may be a copy of one that was recorded, and might do something twice (RFC 8470).
pub(super) fn is_too_early(exchange: &Exchange) -> bool {
    let is_early = exchange.security.as_ref().is_some_and(|it| it.is_early);
    is_early && !exchange.request.method.is_safe()
}

impl Arriving {
    /// The handshake is done.
    pub(super) fn opened(&mut self, now: Millis) {
        self.open_since = Some(now);
        self.begin(None); // what has come was of the handshake
        self.is_partial = false;
    }

    /// The layer has understood what was received, so many bytes of it for the session, but for a part of a
    /// record perhaps. In a drain only a request begins the time for a record anew: pings would hold it, in
    /// whatever pieces they come. The bytes of a large head buy time, as they do elsewhere.
    pub(super) fn received(&mut self, is_partial: bool, plain_bytes: usize, now: Millis) {
        let is_over = plain_bytes > 0 || !is_partial;
        if is_over && !self.is_draining {
            self.begin(None);
        }
        match self.since {
            Some(_) => self.bytes += plain_bytes as u64,
            None => self.begin(is_partial.then_some(now)),
        }
        self.is_partial = is_partial;
    }

    /// A message of the handshake has waited for its thread for so long.
    pub(super) fn delayed(&mut self, us: u64) {
        self.handshake_us = self.handshake_us.saturating_add(us);
    }

    /// A step of the handshake is ordered.
    pub(super) fn computes(&mut self, now: Millis) {
        self.step_at = now;
    }

    /// It is done, or was refused. In any case there was a handshake.
    pub(super) fn computed(&mut self, now: Millis) {
        let took_ms = now.since(std::mem::replace(&mut self.step_at, now));
        self.delayed(took_ms.saturating_mul(1000).max(1));
    }

    /// The time of the handshake, until a request has come.
    pub(super) fn handshake(&self, now: Millis) -> HandshakeTime {
        HandshakeTime {
            kept_us: self.handshake_us,
            computed_ago_us: 1000 * now.since(self.step_at),
            done_ago_us: 1000 * self.open_since.map_or(0, |since| now.since(since)),
        }
    }

    /// A request has come. The time of the handshake, if it is the first one behind that.
    pub(super) fn requested(&mut self, now: Millis) -> HandshakeTime {
        let handshake = self.handshake(now);
        self.open_since = None;
        self.is_serving = true;
        self.handshake_us = 0;
        handshake
    }

    /// The session has nothing to do. What has come behind a request has its time from then on.
    fn rested(&mut self, now: Millis) {
        if std::mem::take(&mut self.is_serving) {
            self.begin(self.is_partial.then_some(now));
        }
    }

    /// The time for a record begins.
    fn begin(&mut self, since: Option<Millis>) {
        (self.since, self.bytes) = (since, 0);
    }

    pub(super) fn draining(&mut self) {
        self.is_draining = true;
    }

    /// Time has passed.
    pub(super) fn expired(&mut self, now: Millis) {
        if self.first_request_until().is_some_and(|until| until <= now) {
            self.open_since = None;
        }
    }

    /// Since when the rest of a record is awaited.
    pub(super) fn record_since(&self) -> Option<Millis> {
        self.since.filter(|_| self.is_partial)
    }

    /// In a drain: until when the first request may come.
    pub(super) fn first_request_until(&self) -> Option<Millis> {
        let since = self.open_since.filter(|_| self.is_draining)?;
        Some(Millis(since.0.saturating_add(FIRST_REQUEST_GRACE_MS)))
    }

    /// Whether the first request is waited for.
    pub(super) fn is_first_awaited(&self, now: Millis) -> bool {
        self.first_request_until().is_some_and(|until| until > now)
    }
}

impl<L: Layer, S: Session> Layered<L, S> {
    /// The session's order may say that it has nothing more to do for now, or in a drain at all.
    pub(super) fn note_rest(&mut self, action: &Action, now: Millis) {
        let is_last = matches!(action, Action::ReceivePending { .. }) && self.owes_nothing();
        let is_idle = matches!(action, Action::Wait { .. }) && self.session.is_idle();
        self.arriving.is_last = is_last;
        if is_last || is_idle {
            self.arriving.rested(now);
        }
    }

    /// Whether a session that is about to close has input on its way that it does not know of.
    pub(super) fn awaits_input(&self, now: Millis) -> bool {
        let has_begun = self.layer.has_begun() || self.layer.partial_bytes() > 0;
        let is_handshaking = has_begun && !self.layer.is_open();
        let is_beginning = is_handshaking || self.arriving.is_first_awaited(now);
        self.owes_nothing() && (is_beginning || self.arriving.record_since().is_some())
    }

    /// Whether the handshake goes on: early data has opened the layer before its end.
    pub(super) fn is_handshaking(&self) -> bool {
        let security = self.layer.security();
        !self.layer.is_open() || security.is_some_and(|it| it.is_early)
    }

    /// Behind early data only between requests: a session that answers one may not read, and the rest of the
    /// handshake waits in the socket. It may be idle with an answer that is still to be sent: then it has not rested.
    pub(super) fn handshake_deadline(&self) -> Option<Millis> {
        let has_rested = self.session.is_idle() && !self.arriving.is_serving;
        let is_awaited = !self.layer.is_open() || has_rested;
        let allowed = self.config.limits.handshake_timeout_ms;
        let until = Millis(self.since.0.saturating_add(allowed));
        (is_awaited && self.is_handshaking()).then_some(until)
    }

    /// Whether no response is due of a session that orders `ReceivePending`. One of HTTP/2 orders it only
    /// then, also with part of a frame, or with streams that nobody waits for: it is not idle.
    fn owes_nothing(&self) -> bool {
        self.session.is_idle() || self.session.is_multiplexed()
    }

    /// Since when the rest of a record is awaited, and no response is due.
    pub(super) fn record_awaited_since(&self) -> Option<Millis> {
        let since = self.arriving.record_since()?;
        (self.session.is_idle() || self.arriving.is_last).then_some(since)
    }

    /// Once the layer is open. A record that comes to an idle session has the pace of a head, in place of the
    /// idle time. A session that is not idle has times of its own, which pings may begin anew for ever.
    pub(super) fn session_deadline(&self) -> Option<Millis> {
        let record = self.record_deadline();
        if record.is_some() && self.session.is_idle() {
            return record;
        }
        let first = self.arriving.first_request_until();
        let all = [record, first, self.session.deadline()];
        all.into_iter().flatten().min()
    }

    /// Whether the time for the rest of a record is up.
    pub(super) fn is_record_late(&self, now: Millis) -> bool {
        self.record_deadline().is_some_and(|until| until <= now)
    }

    fn record_deadline(&self) -> Option<Millis> {
        let since = self.record_awaited_since()?;
        let bytes = self.arriving.bytes + self.layer.partial_bytes() as u64;
        Some(self.config.limits.head_pace.deadline(since, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It had the first request of a connection refused, however long after an overload that came.
    #[test]
    fn a_handshake_was_long_ago_for_a_client_that_asks_later() {
        for (requested_ms, kept_us) in [
            (1_000, 900_000),
            (1_250, 900_000),
            (1_750, 400_000),
            (9_000, 0),
        ] {
            let mut arriving = Arriving::default();
            arriving.delayed(900_000);
            arriving.opened(Millis(1_000));
            let now = Millis(requested_ms);
            assert_eq!(arriving.handshake(now).counted_us(0), kept_us);
            assert_eq!(arriving.requested(now).counted_us(0), kept_us);
            assert_eq!(arriving.requested(now).kept_us, 0, "the next one");
            assert_eq!(arriving.handshake(now).kept_us, 0);
        }
    }
}
