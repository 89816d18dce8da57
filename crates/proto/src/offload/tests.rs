//! A loop and a worker in memory.

use loadline_base::Chunk;

use super::*;
use crate::{Body, Counters, HttpDate, Pool, Protocol, RequestBody};

const FIRST: &[u8] = b"GET /first HTTP/1.1\r\nHost: h\r\n\r\n";
const SECOND: &[u8] = b"GET /second HTTP/1.1\r\nHost: h\r\n\r\n";

const CONVERSATION: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n\
    GET /blocking HTTP/1.1\r\nHost: h\r\n\r\n\
    POST /content HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello\
    PUT /chunked HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
    GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

struct Connection {
    session: ServerSession,
    /// What the worker has, which keeps it while it is busy.
    away: Option<Box<dyn Computation>>,
    is_worker_busy: bool,
    output: Vec<u8>,
    /// Steps of requests that were ordered of the loop.
    steps_here: u32,
    reads: bool,
    is_closed: bool,
    pool: Pool,
    counters: Counters,
    date: HttpDate,
}

macro_rules! cx {
    ($it:ident) => {
        &mut Context {
            now: Millis(0),
            came: Millis(0),
            date: &$it.date,
            pool: &mut $it.pool,
            counters: &$it.counters,
            log: None,
        }
    };
}

impl Connection {
    fn speaking(protocol: &Protocol) -> Self {
        let (mut pool, counters, date) = (Pool::new(), Counters::default(), HttpDate::at(0));
        let config = Arc::new(SessionConfig::default());
        let mut cx = Context {
            now: Millis(0),
            came: Millis(0),
            date: &date,
            pool: &mut pool,
            counters: &counters,
            log: None,
        };
        let session = protocol.session(&config, None, &mut cx);
        Self {
            session,
            away: None,
            is_worker_busy: false,
            output: Vec::new(),
            steps_here: 0,
            reads: true,
            is_closed: false,
            pool,
            counters,
            date,
        }
    }

    fn offloaded() -> Self {
        Self::speaking(&Protocol::OFFLOADED)
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.session.received(&mut bytes.to_vec(), cx!(self));
        self.drive();
    }

    fn eof(&mut self) {
        self.session.received_eof(cx!(self));
        self.drive();
    }

    /// The loop.
    fn drive(&mut self) {
        for _ in 0..1000 {
            match self.session.next_action(cx!(self)) {
                Action::Run(mut exchange) => {
                    self.steps_here += 1;
                    let outcome = handle(&mut exchange);
                    self.session.ran(exchange, outcome, cx!(self));
                }
                Action::Block(mut exchange) => {
                    self.steps_here += 1;
                    echo(&mut exchange);
                    self.session.completed(exchange, cx!(self));
                }
                Action::Compute(computation) => {
                    self.away = Some(computation);
                    if !self.is_worker_busy {
                        self.work();
                    }
                }
                Action::Send { transmit, .. } => self.send(transmit),
                Action::ReceivePending { .. } => self.session.nothing_pending(cx!(self)),
                Action::Finish => {}
                Action::Wait { read, .. } => {
                    self.reads = read;
                    return;
                }
                Action::Close => {
                    self.is_closed = true;
                    return;
                }
                action => panic!("{action:?}"),
            }
        }
        panic!("orders without end");
    }

    /// The worker, which gives the session back.
    fn work(&mut self) {
        let mut computation = self.away.take().unwrap();
        let offload = Offload::of(&mut *computation).unwrap();
        offload.parse(false, cx!(self));
        while let Some(step) = offload.next_step(true, cx!(self)) {
            match step {
                Action::Run(mut exchange) => {
                    let outcome = handle(&mut exchange);
                    offload.ran(exchange, outcome, cx!(self));
                }
                Action::Block(mut exchange) => {
                    echo(&mut exchange);
                    offload.completed(exchange, false, cx!(self));
                }
                action => panic!("{action:?}"),
            }
        }
        self.session.computed(computation, cx!(self));
    }

    fn send(&mut self, mut transmit: Transmit) {
        while let Some(Chunk::Memory(bytes)) = transmit.front() {
            self.output.extend_from_slice(bytes);
            let sent = bytes.len() as u64;
            transmit.advance(sent);
        }
        self.session.sent(transmit, cx!(self));
    }

    /// Whether the worker sees that nobody reads the response.
    fn is_abandoned(&self) -> bool {
        self.away.as_ref().is_some_and(|it| it.is_abandoned())
    }

    fn says(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.output).contains(text)
    }
}

fn handle(exchange: &mut Exchange) -> Outcome {
    let is_unread = exchange.request.path() == b"/unread";
    if let RequestBody::Pending { .. } = exchange.request.body
        && !is_unread
    {
        return Outcome::Collect { bytes_max: 1000 };
    }
    if exchange.request.path() == b"/blocking" {
        return Outcome::Blocking;
    }
    echo(exchange);
    Outcome::Ready
}

fn echo(exchange: &mut Exchange) {
    let mut content = exchange.request.target().to_vec();
    if let RequestBody::Whole(body) = &exchange.request.body {
        content.extend_from_slice(body);
    }
    exchange.response.body = Body::Bytes(content);
}

/// What is answered to these pieces, and in how many steps on the loop.
fn answered(protocol: &Protocol, pieces: [&[u8]; 2]) -> (Vec<u8>, u32) {
    let mut connection = Connection::speaking(protocol);
    for piece in pieces {
        connection.feed(piece);
    }
    assert!(connection.is_closed, "behind the last response");
    (connection.output, connection.steps_here)
}

#[test]
fn workers_answer_what_a_loop_would_however_it_is_cut() {
    for cut in 1..CONVERSATION.len() {
        let pieces = [&CONVERSATION[..cut], &CONVERSATION[cut..]];
        let (expected, steps) = answered(&Protocol::Http, pieces);
        assert!(steps >= 5, "{steps}");
        assert!(
            answered(&Protocol::OFFLOADED, pieces) == (expected, 0),
            "{cut}"
        );
    }
}

#[test]
fn what_comes_while_a_worker_has_the_session_is_parsed_after_that() {
    let mut connection = Connection::offloaded();
    connection.is_worker_busy = true;
    connection.feed(FIRST);
    assert!(connection.away.is_some() && !connection.reads);
    assert!(connection.session.has_work_out() && !connection.session.is_idle());
    assert_eq!(connection.session.deadline(), None);
    connection.feed(SECOND);
    connection.eof();
    assert!(connection.output.is_empty());
    connection.is_worker_busy = false;
    connection.work();
    connection.drive();
    assert!(connection.says("/first") && connection.says("/second"));
    assert!(connection.is_closed && connection.steps_here == 0);
}

/// A ring reports late that one has left which nothing follows.
#[test]
fn a_response_is_followed_by_what_has_come_meanwhile() {
    for (second, follows) in [(&b""[..], Then::Rest), (SECOND, Then::More)] {
        let mut connection = Connection::offloaded();
        connection.is_worker_busy = true;
        connection.feed(FIRST);
        if !second.is_empty() {
            connection.feed(second);
        }
        connection.work();
        let order = connection.session.next_action(cx!(connection));
        assert!(
            matches!(&order, Action::Send { then, .. } if *then == follows),
            "{order:?}"
        );
    }
}

#[test]
fn a_client_that_leaves_meanwhile_ends_its_connection_when_the_worker_is_done() {
    let mut connection = Connection::offloaded();
    connection.is_worker_busy = true;
    connection.feed(FIRST);
    assert!(!connection.is_abandoned());
    connection.session.peer_gone(cx!(connection));
    assert!(connection.is_abandoned());
    connection.drive();
    assert!(!connection.is_closed);
    connection.work();
    connection.session.ended(cx!(connection));
    let closed = &connection.counters.closed;
    assert_eq!(closed[CloseReason::Vanished as usize].value(), 1);
}

/// Nor is it counted as one that was idle.
#[test]
fn nothing_is_parsed_for_a_client_that_has_left() {
    let mut connection = Connection::offloaded();
    connection.is_worker_busy = true;
    connection.feed(FIRST);
    connection.session.peer_gone(cx!(connection));
    let unparsed = connection.away.take().unwrap();
    connection.session.computed(unparsed, cx!(connection));
    connection.drive();
    assert!(connection.is_closed && connection.away.is_none());
    connection.session.ended(cx!(connection));
    let closed = &connection.counters.closed;
    assert_eq!(closed[CloseReason::Vanished as usize].value(), 1);
}

/// A loop that is late looks at deadlines before it asks for orders.
#[test]
fn what_is_still_to_be_parsed_has_no_deadline() {
    let mut connection = Connection::offloaded();
    assert!(connection.session.deadline().is_some());
    let mut head = FIRST.to_vec();
    connection.session.received(&mut head, cx!(connection));
    assert_eq!(connection.session.deadline(), None);
    connection.drive();
    assert!(connection.says("/first"));
    assert!(connection.session.deadline().is_some());
}

/// It was not, and the connection stayed until its client had had time to close it.
#[test]
fn the_end_of_input_is_known_though_a_drain_begins_before_it_is_parsed() {
    let mut connection = Connection::offloaded();
    connection.feed(b"PUT /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n");
    assert!(connection.says("/unread") && !connection.is_closed);
    let mut content = b"hel".to_vec();
    connection.session.received(&mut content, cx!(connection));
    connection.session.received_eof(cx!(connection));
    connection.session.draining(cx!(connection));
    connection.drive();
    assert!(connection.is_closed);
}

#[test]
fn one_that_is_closed_while_a_worker_has_it_is_counted_and_recorded() {
    let mut connection = Connection::offloaded();
    let record = Box::new(ConnectionRecord::new(1, None, 0));
    connection.session.keep_record(Some(record));
    connection.is_worker_busy = true;
    connection.feed(FIRST);
    connection.session.abort(CloseReason::Drained);
    let record = connection.session.ended(cx!(connection)).unwrap();
    assert_eq!(record.reason, CloseReason::Drained);
    assert_eq!(record.bytes_in, FIRST.len() as u64);
    let closed = &connection.counters.closed;
    assert_eq!(closed[CloseReason::Drained as usize].value(), 1);
}

#[test]
fn a_panic_of_a_worker_closes_the_connection() {
    let mut connection = Connection::offloaded();
    connection.is_worker_busy = true;
    connection.feed(FIRST);
    let mut computation = connection.away.take().unwrap();
    Offload::of(&mut *computation).unwrap().give_up();
    connection.session.computed(computation, cx!(connection));
    connection.drive();
    assert!(connection.is_closed && connection.output.is_empty());
}

#[test]
fn http_2_is_no_workers_to_parse() {
    let mut connection = Connection::offloaded();
    connection.is_worker_busy = true;
    connection.feed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    assert!(connection.session.is_multiplexed());
    assert!(connection.away.is_none() && connection.reads);
}

/// The first of them were kept for a worker.
#[test]
fn http_2_whose_first_bytes_come_in_two_pieces_may_be_idle() {
    let is_idle = |protocol: &Protocol| {
        let mut connection = Connection::speaking(protocol);
        let mut first = b"PRI * HT".to_vec();
        connection.session.received(&mut first, cx!(connection));
        connection.feed(b"TP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        assert!(connection.session.is_multiplexed());
        connection.session.is_idle()
    };
    assert!(is_idle(&Protocol::Http) && is_idle(&Protocol::OFFLOADED));
}
