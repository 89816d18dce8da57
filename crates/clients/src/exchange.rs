//! One request of a virtual user at a time, and its answer: followed, judged and counted.

use loadline_load::recorder::Stamps;
use loadline_load::{Expectation, Prepared, judge};
use loadline_proto::{ClientSession, Limits, Method, Received, Reply, ReplyFault, ReplyObserver};
use loadline_record::ErrorKind;

use crate::UserContext;

/// What the users of a user group ask for.
#[derive(Clone, Debug)]
pub struct RequestSpec {
    /// The request.
    pub request: Prepared,
    /// What its answer has to be; content is not checked.
    pub expectation: Expectation,
    /// How long a user that waits for bytes waits, in nanoseconds; each byte begins it anew.
    pub timeout_ns: u64,
}

/// The state of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RequestState {
    /// There is none.
    #[default]
    None,
    /// It has become due; nothing of it was sent.
    Due,
    /// Its first byte was given to the kernel.
    Out,
}

/// Inspects an answer while it is received, and may find fault with it.
pub(crate) trait Watch: ReplyObserver {
    /// What is wrong with it, beside its status and length.
    fn fault(&self) -> Option<ErrorKind> {
        None
    }
}

impl Watch for () {}

/// A request and its answer on one connection after the other.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    session: ClientSession,
    stamps: Stamps,
    phase: u16,
    state: RequestState,
}

/// What a piece of an answer came to. What is over has been counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum ExchangeProgress {
    /// The answer goes on.
    More,
    /// It is complete, good or not.
    Complete(Reply),
    /// There will be none.
    Failed,
}

impl Exchange {
    /// A fresh connection.
    pub(crate) fn connected(&mut self) {
        self.session = ClientSession::new();
    }

    /// A request has become due, unless one has already.
    pub(crate) fn due(&mut self, due_ns: u64, context: &mut UserContext<'_>) {
        if self.state == RequestState::None {
            self.state = RequestState::Due;
            self.phase = context.phase_of(due_ns);
            self.stamps = Stamps {
                due_ns,
                ..Stamps::default()
            };
            context.recorder.tally(self.phase).offered += 1;
        }
    }

    /// The first byte of the request is about to be given to the kernel.
    pub(crate) fn sent(&mut self, method: Method, context: &mut UserContext<'_>) {
        self.state = RequestState::Out;
        self.stamps.sent_ns = context.now_ns;
        self.session.requested(method);
        context.recorder.tally(self.phase).sent += 1;
    }

    /// Bytes of its answer came: what they come to, for the client to judge.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        observer: &mut impl ReplyObserver,
        now_ns: u64,
    ) -> Received {
        if self.stamps.first_ns == 0 {
            self.stamps.first_ns = now_ns;
        }
        self.session.received(bytes, &Limits::default(), observer)
    }

    /// The same of the end of the connection, in good order or cut.
    pub(crate) fn take_end(&mut self, is_cut: bool) -> Received {
        match self.state {
            RequestState::Due => Received::Fault(ReplyFault::ClosedEarly),
            _ if is_cut => self.session.received_cut(),
            _ => self.session.received_eof(),
        }
    }

    /// Bytes of its answer came.
    pub(crate) fn received(
        &mut self,
        bytes: &[u8],
        watch: &mut impl Watch,
        spec: &RequestSpec,
        context: &mut UserContext<'_>,
    ) -> ExchangeProgress {
        let received = self.take(bytes, watch, context.now_ns);
        self.judge(received, spec, watch, context)
    }

    /// The connection has ended, in good order or cut.
    pub(crate) fn closed(
        &mut self,
        is_cut: bool,
        spec: &RequestSpec,
        context: &mut UserContext<'_>,
    ) -> ExchangeProgress {
        let received = self.take_end(is_cut);
        self.judge(received, spec, &(), context)
    }

    fn judge(
        &mut self,
        received: Received,
        spec: &RequestSpec,
        watch: &impl Watch,
        context: &mut UserContext<'_>,
    ) -> ExchangeProgress {
        let kind = match received {
            Received::More => return ExchangeProgress::More,
            Received::Reply(reply) => {
                let fault = judge::fault(&reply, spec.request.method, &spec.expectation, None);
                self.completed(&reply, fault.or_else(|| watch.fault()), context);
                return ExchangeProgress::Complete(reply);
            }
            Received::Fault(fault) => judge::cut(fault),
        };
        self.failed(kind, context);
        ExchangeProgress::Failed
    }

    /// The answer is complete; `fault`: what is wrong with it.
    pub(crate) fn completed(
        &mut self,
        reply: &Reply,
        fault: Option<ErrorKind>,
        context: &mut UserContext<'_>,
    ) {
        self.stamps.last_ns = context.now_ns;
        let tally = context.recorder.tally(self.phase);
        tally.answered(reply.status, reply.content_bytes);
        tally.judged(fault, reply.status);
        context.recorder.completed(self.phase, &self.stamps);
        self.state = RequestState::None;
    }

    /// The request has failed; no change without one.
    pub(crate) fn failed(&mut self, kind: ErrorKind, context: &mut UserContext<'_>) {
        if self.has_request() {
            self.state = RequestState::None;
            let after_ns = self.since_due_ns(context.now_ns);
            context.recorder.failed(self.phase, kind, after_ns);
        }
    }

    /// The request that is due cannot be sent: an error that took no time.
    pub(crate) fn unsendable(&mut self, kind: ErrorKind, context: &mut UserContext<'_>) {
        self.state = RequestState::None;
        context.recorder.tally(self.phase).error(kind);
    }

    /// The client gives the request up; no change without one.
    pub(crate) fn given_up(&mut self, context: &mut UserContext<'_>) {
        if self.has_request() {
            self.state = RequestState::None;
            context.recorder.tally(self.phase).unfinished += 1;
        }
    }

    /// How long ago the request, or the last one, became due.
    pub(crate) fn since_due_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.stamps.due_ns)
    }

    /// Whether there is a request, sent or not.
    pub(crate) fn has_request(&self) -> bool {
        self.state != RequestState::None
    }

    /// Whether a request is out.
    pub(crate) fn is_out(&self) -> bool {
        self.state == RequestState::Out
    }

    /// Bytes of content that are known to come.
    pub(crate) fn content_left(&self) -> Option<u64> {
        self.session.content_left()
    }
}
