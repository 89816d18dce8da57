//! Requests of an open loop that failed and are tried again after a pause.
//!
//! A request is tried again after what may pass: a connection that failed or ended early, a timeout, or
//! one of the statuses for which curl's `--retry` does so. Pauses double, and half of each is drawn at
//! random, so that clients that failed together do not come back together; a `Retry-After` in seconds
//! makes the pause longer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use loadline_proto::ReplyObserver;
use loadline_record::ErrorKind;
use rand_pcg::Pcg64Mcg;
use sha2::{Digest, Sha256};

use super::{Driver, Engine};
use crate::seed::{self, Purpose};
use crate::{Plan, Retries, Share};

/// Requests of one thread that wait to be tried again: 48 MB. Beyond it they are over at once.
const WAITING_MAX: usize = 1 << 20;

/// One attempt of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attempt {
    /// When it is due. First, so that attempts are ordered by it.
    pub(super) attempt_due_ns: u64,
    /// When the first attempt was due.
    pub(super) due_ns: u64,
    /// Index into `Mix::requests`.
    pub(super) request: u32,
    /// That in which the first attempt was due.
    pub(super) phase: u16,
    /// Attempts before this one.
    pub(super) retries: u8,
    /// Whether the first byte left in one of them.
    pub(super) was_sent: bool,
}

impl Attempt {
    /// The first one of a request.
    #[inline]
    pub(super) fn first(request: u32, due_ns: u64, phase: u16) -> Self {
        Self {
            attempt_due_ns: due_ns,
            due_ns,
            request,
            phase,
            retries: 0,
            was_sent: false,
        }
    }
}

/// What waits to be tried again, by when it is due.
#[derive(Debug)]
pub(super) struct RetryQueue {
    /// `None`: nothing is tried again.
    limits: Option<Retries>,
    /// Each with the index of its server.
    waiting: BinaryHeap<Reverse<(Attempt, u16)>>,
    generator: Pcg64Mcg,
    /// Whether the first one is due and waits for a free client.
    is_held: bool,
}

impl RetryQueue {
    /// Of one thread.
    pub(super) fn new(plan: &Plan, share: Share) -> Self {
        Self {
            limits: plan.retries,
            waiting: BinaryHeap::new(),
            generator: seed::generator(plan.seed, Purpose::Retries, share),
            is_held: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the first one is to be looked at; `u64::MAX`: none is waiting, or it waits for a client.
    #[inline]
    pub(super) fn next_ns(&self) -> u64 {
        match self.waiting.peek() {
            Some(Reverse((first, _))) if !self.is_held => first.attempt_due_ns,
            _ => u64::MAX,
        }
    }

    /// The first one and its server, if it is due.
    #[inline]
    pub(super) fn due(&self, now_ns: u64) -> Option<(Attempt, u16)> {
        let Reverse(first) = *self.waiting.peek()?;
        (first.0.attempt_due_ns <= now_ns).then_some(first)
    }

    /// Takes the first one out.
    pub(super) fn pop(&mut self) {
        self.waiting.pop();
        self.is_held = false;
    }

    /// No client is free for the first one.
    pub(super) fn hold(&mut self) {
        self.is_held = true;
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Takes out all that wait.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Attempt> {
        self.is_held = false;
        self.waiting.drain().map(|Reverse((one, _))| one)
    }

    /// When a request that failed at `now_ns` is tried again; `None`: it has had its attempts.
    fn next_attempt_ns(&mut self, retries: u8, retry_after_s: u16, now_ns: u64) -> Option<u64> {
        let limits = self.limits.filter(|limits| retries < limits.count)?;
        let pause_ns = limits.pause_ns.saturating_mul(1 << retries.min(32));
        let part = 0.5 + seed::unit_above_zero(&mut self.generator) / 2.0;
        let asked_ns = u64::from(retry_after_s) * 1_000_000_000;
        let asked_ns = asked_ns.min(limits.retry_after_ns_max);
        Some(now_ns.saturating_add(asked_ns.max((pause_ns as f64 * part) as u64)))
    }
}

impl Engine<'_> {
    /// Whether the request in hand, whose attempt failed, is tried again: then it waits for that, and
    /// the error of this attempt is counted. `status` is that of a complete answer.
    #[cold]
    pub(super) fn is_tried_again(
        &mut self,
        index: u32,
        kind: ErrorKind,
        status: Option<u16>,
    ) -> bool {
        let Driver::Open(open) = &mut self.driver else {
            return false;
        };
        if self.time.is_ending || open.retries.limits.is_none() || !may_pass(kind, status) {
            return false;
        }
        let client = &self.clients[index as usize];
        let (retries, due_ns) = (client.retries, client.stamps.due_ns);
        let queue = &mut open.retries;
        let now_ns = self.time.now_ns;
        let Some(at_ns) = queue.next_attempt_ns(retries, client.retry_after_s, now_ns) else {
            return false;
        };
        let deadline_ns = self.plan.deadline_ns;
        let is_late = deadline_ns.is_some_and(|most| at_ns - due_ns > most);
        if is_late || queue.waiting.len() >= WAITING_MAX {
            return false;
        }
        let attempt = Attempt {
            attempt_due_ns: at_ns,
            due_ns,
            request: client.request,
            phase: client.phase,
            retries: retries + 1,
            was_sent: client.was_sent,
        };
        queue.waiting.push(Reverse((attempt, client.server)));
        open.look_at(at_ns);
        self.recorder.tally(client.phase).retried(kind);
        true
    }
}

/// Whether another attempt may succeed.
fn may_pass(kind: ErrorKind, status: Option<u16>) -> bool {
    match kind {
        ErrorKind::Refused
        | ErrorKind::ConnectTimeout
        | ErrorKind::ConnectFailed
        | ErrorKind::Handshake
        | ErrorKind::Reset
        | ErrorKind::ClosedEarly
        | ErrorKind::StreamReset
        | ErrorKind::Timeout => true,
        kind => kind.is_of_status() && matches!(status, Some(408 | 429 | 500 | 502 | 503 | 504)),
    }
}

/// Looks at answers for a `Retry-After`, beside the check of their content.
pub(super) struct Looking<'c> {
    pub(super) hasher: Option<&'c mut Sha256>,
    pub(super) retry_after_s: &'c mut u16,
}

impl ReplyObserver for Looking<'_> {
    fn head(&mut self, head: &[u8]) {
        // `HTTP/1.1 503`: only those of errors are looked at.
        if matches!(head.get(9), Some(b'4' | b'5')) {
            *self.retry_after_s = retry_after_s(head).unwrap_or(0);
        }
    }

    fn content(&mut self, piece: &[u8]) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(piece);
        }
    }
}

/// The seconds of a `Retry-After`; a date is passed over.
fn retry_after_s(head: &[u8]) -> Option<u16> {
    let fields = head.split(|byte| *byte == b'\n').skip(1);
    let values = fields.filter_map(|line| {
        let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
        name.eq_ignore_ascii_case(b"retry-after")
            .then(|| value[1..].trim_ascii())
    });
    retry_seconds(values.last()?)
}

/// The seconds that a `Retry-After` says.
pub(super) fn retry_seconds(value: &[u8]) -> Option<u16> {
    let digits = std::str::from_utf8(value).ok()?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prepared;

    fn queue(retries: Retries) -> RetryQueue {
        let address = ([127, 0, 0, 1], 80).into();
        let mut plan = Plan::new(address, Prepared::get("a", "/"), Vec::new());
        plan.retries = Some(retries);
        RetryQueue::new(&plan, Share::WHOLE)
    }

    const MS: u64 = 1_000_000;
    const TWO: Retries = Retries {
        count: 2,
        pause_ns: 100 * MS,
        retry_after_ns_max: 3_000 * MS,
    };

    #[test]
    fn pauses_double_and_are_spread_and_retry_after_makes_them_longer() {
        let mut queue = queue(TWO);
        let mut pause = |retries, asked_s| queue.next_attempt_ns(retries, asked_s, 0);
        let mut first: Vec<u64> = (0..100).filter_map(|_| pause(0, 0)).collect();
        first.sort_unstable();
        assert!(first[0] >= 50 * MS && first[99] <= 100 * MS);
        assert!(first[99] - first[0] > 40 * MS, "{first:?}");
        let second = pause(1, 0).unwrap();
        assert!((100 * MS..=200 * MS).contains(&second));
        assert_eq!(pause(0, 1), Some(1_000 * MS));
        assert_eq!(pause(0, 60), Some(3_000 * MS));
        assert_eq!(pause(2, 0), None);
    }

    #[test]
    fn the_earliest_comes_first() {
        let mut queue = queue(TWO);
        for (number, at_ns) in [(1, 30), (2, 10), (3, 20)] {
            let attempt = Attempt {
                attempt_due_ns: at_ns,
                ..Attempt::first(number, 5, 0)
            };
            queue.waiting.push(Reverse((attempt, 0)));
        }
        assert_eq!((queue.next_ns(), queue.due(9)), (10, None));
        queue.hold();
        assert_eq!(queue.next_ns(), u64::MAX);
        let mut taken = Vec::new();
        while let Some((attempt, _)) = queue.due(99) {
            queue.pop();
            taken.push(attempt.request);
        }
        assert_eq!(taken, [2, 3, 1]);
        assert!(queue.is_empty() && !queue.is_held());
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        for (kind, status, expected) in [
            (ErrorKind::Refused, None, true),
            (ErrorKind::Timeout, None, true),
            (ErrorKind::StreamReset, None, true),
            (ErrorKind::Status5xx, Some(503), true),
            (ErrorKind::Status4xx, Some(429), true),
            (ErrorKind::Status4xx, Some(404), false),
            (ErrorKind::Status5xx, Some(501), false),
            (ErrorKind::WrongContent, Some(200), false),
            (ErrorKind::Late, Some(200), false),
            (ErrorKind::Malformed, None, false),
        ] {
            assert_eq!(may_pass(kind, status), expected, "{kind:?}");
        }
    }

    #[test]
    fn a_retry_after_is_read_in_seconds() {
        for (field, expected) in [
            ("Retry-After: 3", Some(3)),
            ("retry-after:3 ", Some(3)),
            ("Retry-After: 99999999", Some(u16::MAX)),
            ("Retry-After: -1", None),
            ("Retry-After:", None),
            ("Retry-After: Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("X-Retry-After: 3", None),
        ] {
            let head = format!("HTTP/1.1 503 Unavailable\r\nA: b\r\n{field}\r\n\r\n");
            assert_eq!(retry_after_s(head.as_bytes()), expected, "{field}");
        }
    }
}
