//! Our session: it collects the content of each request, says how much there was, and sends as much as the
//! request asks for.

use loadline_base::{Chunk, Millis};
use loadline_proto::{
    Action, Body, Context, Counters, Exchange, Http2Session, HttpDate, Outcome, Pool, RequestBody,
    Session,
};

use super::{CONFIG, Seen, content_of};

/// More than any request here has.
const CONTENT_MAX: u64 = 1 << 20;

/// A connection that was accepted.
pub struct Ours {
    session: Option<Http2Session>,
    pool: Pool,
    counters: Counters,
    date: HttpDate,
    /// What it has sent to its client.
    pub seen: Seen,
}

macro_rules! cx {
    ($it:ident) => {
        &mut Context {
            now: Millis(1_000),
            came: Millis(1_000),
            date: &$it.date,
            pool: &mut $it.pool,
            counters: &$it.counters,
            log: None,
        }
    };
}

fn handle(exchange: &mut Exchange) -> Outcome {
    let len = match &exchange.request.body {
        RequestBody::Pending { .. } => {
            return Outcome::Collect {
                bytes_max: CONTENT_MAX,
            };
        }
        RequestBody::Whole(content) => content.len(),
        RequestBody::Empty => 0,
    };
    exchange.response.field("X-Len", len.to_string());
    let content = content_of(exchange.request.path());
    exchange.response.body = Body::Bytes(content.to_vec());
    Outcome::Ready
}

impl Default for Ours {
    fn default() -> Self {
        let mut ours = Self {
            session: None,
            pool: Pool::new(),
            counters: Counters::default(),
            date: HttpDate::at(784_111_777),
            seen: Seen::default(),
        };
        ours.session = Some(Http2Session::new(&CONFIG, None, None, cx!(ours)));
        ours
    }
}

impl Ours {
    /// The client sends bytes.
    ///
    /// # Panics
    /// It orders what it should not.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.seen.windows.received(bytes);
        if let Some(session) = &mut self.session {
            session.received(&mut bytes.to_vec(), cx!(self));
        }
        for _ in 0..10_000 {
            let Some(session) = &mut self.session else {
                return;
            };
            match session.next_action(cx!(self)) {
                Action::Run(mut exchange) => {
                    let outcome = handle(&mut exchange);
                    session.ran(exchange, outcome, cx!(self));
                }
                Action::Send { mut transmit, .. } => {
                    while let Some(Chunk::Memory(bytes)) = transmit.front() {
                        self.seen.read(bytes);
                        let len = bytes.len() as u64;
                        transmit.advance(len);
                    }
                    session.sent(transmit, cx!(self));
                }
                Action::ReceivePending { .. } => session.nothing_pending(cx!(self)),
                Action::Finish => {}
                Action::Wait { .. } => return,
                Action::Close => {
                    session.ended(cx!(self));
                    self.session = None;
                }
                action => panic!("{action:?}"),
            }
        }
        panic!("orders without end");
    }
}
