//! A keep-alive request costs the core no allocation once its pools are warm.

use std::sync::Arc;

use loadline_base::Millis;
use loadline_proto::hpack::{Encoder, Indexing};
use loadline_proto::http2::frame::{Kind, PREFACE, flags, write_frame};
use loadline_proto::{
    Action, Body, ClientSession, Context, Counters, Exchange, Fields, ForwardedField, HttpDate,
    Limits, Method, Outcome, Pool, Received, ServerSession, SessionConfig, Status, TrustedProxies,
};

/// As many requests as a connection of HTTP/2 may have at once, by default.
const STREAMS_MAX: u32 = 128;

struct Core {
    session: ServerSession,
    pool: Pool,
    counters: Counters,
    date: HttpDate,
    now: Millis,
    answers: u64,
}

impl Core {
    fn new(config: SessionConfig) -> Self {
        let config = Arc::new(config);
        let (mut pool, counters, date) = (Pool::new(), Counters::default(), HttpDate::at(0));
        let mut cx = Context {
            now: Millis(0),
            came: Millis(0),
            date: &date,
            pool: &mut pool,
            counters: &counters,
            log: None,
        };
        let session = ServerSession::new(&config, None, &mut cx);
        Self {
            session,
            pool,
            counters,
            date,
            now: Millis(0),
            answers: 0,
        }
    }

    /// Feeds the pieces and carries out every order; the socket takes everything at once.
    fn exchange(&mut self, pieces: &mut [&mut [u8]], handle: &Handle) {
        self.now.0 += 1;
        let mut cx = Context {
            now: self.now,
            came: self.now,
            date: &self.date,
            pool: &mut self.pool,
            counters: &self.counters,
            log: None,
        };
        for piece in pieces {
            self.session.received(piece, &mut cx);
            loop {
                match self.session.next_action(&mut cx) {
                    Action::Run(mut exchange) => {
                        let outcome = handle(&mut exchange, &mut cx);
                        self.answers += u64::from(outcome == Outcome::Ready);
                        self.session.ran(exchange, outcome, &mut cx);
                    }
                    Action::Block(mut exchange) => {
                        exchange.response.status = Status::NO_CONTENT;
                        self.answers += 1;
                        self.session.completed(exchange, &mut cx);
                    }
                    Action::Send { mut transmit, .. } => {
                        transmit.advance(transmit.remaining());
                        self.session.sent(transmit, &mut cx);
                    }
                    Action::Wait { read: true, .. } => break,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// Frames of HTTP/2, in memory that is used again.
struct Client {
    encoder: Encoder,
    block: Vec<u8>,
    bytes: Vec<u8>,
    stream: u32,
}

impl Client {
    fn frame(&mut self, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
        write_frame(kind, flags, stream, payload, &mut self.bytes);
    }

    /// So many requests at once.
    fn request(&mut self, count: u32) -> &mut [u8] {
        self.bytes.clear();
        for _ in 0..count {
            let mut block = std::mem::take(&mut self.block);
            block.clear();
            for (name, value) in [
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", "localhost:8080"),
                (":path", "/index.html"),
                ("user-agent", "test/1.0"),
                ("cookie", "a=b"),
            ] {
                let (name, value) = (name.as_bytes(), value.as_bytes());
                self.encoder.field(name, value, Indexing::Kept, &mut block);
            }
            let flag = flags::END_STREAM | flags::END_HEADERS;
            self.frame(Kind::Headers, flag, self.stream, &block);
            self.block = block;
            self.stream += 2;
        }
        let more = (count * 20_000).to_be_bytes();
        self.frame(Kind::WindowUpdate, 0, 0, &more);
        &mut self.bytes
    }
}

/// The dates of responses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Dates {
    /// All of them have the same.
    Same,
    /// Those of each round have a new one. The tables of both ends are full by then.
    New,
}

impl Dates {
    /// Rounds until all memory is there: the table of fields grows with each new date, to 8 KiB.
    fn warm_up(self) -> u32 {
        match self {
            Self::Same => 10,
            Self::New => 300,
        }
    }
}

/// The same for requests of HTTP/2, so many at once.
fn assert_none_over_http2(what: &str, at_once: u32, dates: Dates, handle: &Handle) {
    let mut core = Core::new(SessionConfig::default());
    let mut client = Client {
        encoder: Encoder::default(),
        block: Vec::new(),
        bytes: Vec::new(),
        stream: 1,
    };
    client.bytes.extend_from_slice(PREFACE);
    client.frame(Kind::Settings, 0, 0, &[]);
    let mut preface = std::mem::take(&mut client.bytes);
    core.exchange(&mut [&mut preface], handle);
    let mut round = |core: &mut Core| {
        if dates == Dates::New {
            core.date = HttpDate::at(core.date.unix_seconds() + 1);
        }
        core.exchange(&mut [client.request(at_once)], handle);
    };
    for _ in 0..dates.warm_up() {
        round(&mut core);
    }
    let before = core.answers;
    let allocated = allocation_counter::measure(|| {
        for _ in 0..100 {
            round(&mut core);
        }
    });
    assert_eq!(core.answers - before, 100 * u64::from(at_once), "{what}");
    assert_eq!(
        allocated.count_total, 0,
        "{what}, {at_once} at once, {dates:?} dates: allocations in 100 rounds"
    );
}

type Handle = dyn Fn(&mut Exchange, &mut Context<'_>) -> Outcome;

fn assert_none(what: &str, pieces: &[&[u8]], requests: u64, handle: &Handle) {
    assert_none_with(SessionConfig::default(), what, pieces, requests, handle);
}

fn assert_none_with(
    config: SessionConfig,
    what: &str,
    pieces: &[&[u8]],
    requests: u64,
    handle: &Handle,
) {
    let mut owned: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
    let mut pieces: Vec<&mut [u8]> = owned.iter_mut().map(Vec::as_mut_slice).collect();
    let mut core = Core::new(config);
    for _ in 0..10 {
        core.exchange(&mut pieces, handle);
    }
    let before = core.answers;
    let allocated = allocation_counter::measure(|| {
        for _ in 0..100 {
            core.exchange(&mut pieces, handle);
        }
    });
    assert_eq!(core.answers - before, 100 * requests, "{what}");
    assert_eq!(
        allocated.count_total, 0,
        "{what}: allocations in 100 rounds"
    );
}

const GET: &[u8] = b"GET /index.html HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: test/1.0\r\n\
                     Accept: text/html,*/*;q=0.8\r\nAccept-Encoding: gzip, br\r\nCookie: a=b\r\n\r\n";

fn borrowed(exchange: &mut Exchange, cx: &mut Context<'_>) -> Outcome {
    let content = &[b'x'; 600];
    thread_local! {
        static FIELDS: Fields = Fields::default().with("Content-Type", "text/plain");
    }
    FIELDS.with(|fields| exchange.answer_borrowed(Status::OK, fields, content, cx));
    Outcome::Ready
}

#[test]
fn the_counter_counts() {
    let allocated = allocation_counter::measure(|| drop(std::hint::black_box(vec![1u8; 100])));
    assert_eq!(allocated.count_total, 1);
}

#[test]
fn a_small_cached_answer() {
    assert_none("one piece", &[GET], 1, &borrowed);
    assert_none("in two", &[&GET[..50], &GET[50..]], 1, &borrowed);
    let bytes: Vec<&[u8]> = GET.chunks(1).collect();
    assert_none("byte by byte", &bytes, 1, &borrowed);
    assert_none("sixteen pipelined", &[&GET.repeat(16)], 16, &borrowed);
    let cut = [GET, &GET[..50]].concat();
    assert_none("cut in the second", &[&cut, &GET[50..]], 2, &borrowed);
}

#[test]
fn a_client_behind_a_trusted_proxy() {
    let forwarded = "X-Forwarded-For: 6.6.6.6, 203.0.113.9:80, 192.0.2.8\r\nX-Forwarded-Proto: https\r\n\
                Forwarded: for=6.6.6.6, for=\"\\203.0.113.9:80\";proto=https, for=192.0.2.8\r\n\r\n";
    let get = [&GET[..GET.len() - 2], forwarded.as_bytes()].concat();
    for field in [ForwardedField::XForwardedFor, ForwardedField::Forwarded] {
        let proxies = ["unix", "192.0.2.0/24"].map(|proxy| proxy.parse().unwrap());
        let config = SessionConfig {
            trusted_proxies: TrustedProxies::new(&proxies, field),
            ..SessionConfig::default()
        };
        assert_none_with(config, "a proxy's", &[&get], 1, &|exchange, cx| {
            let client = exchange.client().map(|client| client.address);
            assert_eq!(client, Some([203, 0, 113, 9].into()));
            assert!(exchange.is_secure());
            borrowed(exchange, cx)
        });
    }
}

#[test]
fn a_head_answer() {
    let head = String::from_utf8_lossy(GET).replace("GET", "HEAD");
    assert_none("HEAD", &[head.as_bytes()], 1, &borrowed);
}

/// Answers with content that is too large to copy.
fn shared(len: usize) -> impl Fn(&mut Exchange, &mut Context<'_>) -> Outcome {
    let content: Arc<[u8]> = Arc::from(vec![b'x'; len]);
    let etag = Fields::default().with("ETag", "\"1\"");
    move |exchange, _| {
        exchange.response.field("Content-Type", "text/html");
        exchange.response.fields.append(&etag, 0);
        exchange.response.body = Body::Shared {
            bytes: Arc::clone(&content),
            start: 0,
            end: content.len(),
        };
        Outcome::Ready
    }
}

#[test]
fn shared_content_and_fields() {
    assert_none("shared", &[GET], 1, &shared(100_000));
}

#[test]
fn answers_without_content_and_error_pages() {
    for status in [Status::NOT_MODIFIED, Status::NO_CONTENT, Status::NOT_FOUND] {
        assert_none("status", &[GET], 1, &move |exchange, _| {
            exchange.response.status = status;
            Outcome::Ready
        });
    }
}

#[test]
fn a_blocking_step() {
    assert_none("blocking", &[GET], 1, &|_, _| Outcome::Blocking);
}

#[test]
fn content_that_is_skipped() {
    let post = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    assert_none("content", &[post], 1, &borrowed);
    let (head, content) = post.split_at(post.len() - 5);
    assert_none("content apart", &[head, content], 1, &borrowed);
}

/// Allocations of a client in 100 answers, each in these pieces, after `warm_up` of them.
fn of_a_client(pieces: &[&[u8]], warm_up: usize) -> u64 {
    let (mut session, limits) = (ClientSession::new(), Limits::default());
    let mut answer = || {
        session.requested(Method::Get);
        let mut last = Received::More;
        for piece in pieces {
            last = session.received(piece, &limits, &mut ());
        }
        assert!(matches!(last, Received::Reply(_)), "{last:?}");
    };
    for _ in 0..warm_up {
        answer();
    }
    let allocated = allocation_counter::measure(|| {
        for _ in 0..100 {
            answer();
        }
    });
    allocated.count_total
}

#[test]
fn a_client_reads_an_answer_in_one_piece_without_any() {
    let answer = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello";
    let (head, content) = answer.split_at(answer.len() - 5);
    assert_eq!(of_a_client(&[answer], 0), 0, "not even the first time");
    assert_eq!(of_a_client(&[head, content], 0), 0);
}

#[test]
fn a_client_keeps_what_it_needs_for_other_answers() {
    let answer = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello";
    let bytes: Vec<&[u8]> = answer.chunks(1).collect();
    assert_eq!(of_a_client(&[&answer[..20], &answer[20..]], 1), 0);
    assert_eq!(of_a_client(&bytes, 1), 0);
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let bytes: Vec<&[u8]> = chunked.chunks(1).collect();
    assert_eq!(of_a_client(&[chunked], 1), 0);
    assert_eq!(of_a_client(&bytes, 1), 0);
}

#[test]
fn requests_of_http2() {
    for at_once in [1, 32, 64, 100, STREAMS_MAX] {
        assert_none_over_http2("borrowed", at_once, Dates::Same, &borrowed);
        assert_none_over_http2("shared", at_once, Dates::Same, &shared(20_000));
        assert_none_over_http2("a blocking step", at_once, Dates::Same, &|_, _| {
            Outcome::Blocking
        });
    }
}

/// The first response with a date is no borrowed one, since it changes the table of fields.
#[test]
fn requests_of_http2_in_seconds_of_their_own() {
    for at_once in [1, STREAMS_MAX] {
        assert_none_over_http2("borrowed", at_once, Dates::New, &borrowed);
        assert_none_over_http2("shared", at_once, Dates::New, &shared(20_000));
        assert_none_over_http2("own content", at_once, Dates::New, &|exchange, _| {
            let mut content = exchange.response.content_memory();
            content.extend_from_slice(&[b'x'; 600]);
            exchange.response.body = Body::Bytes(content);
            Outcome::Ready
        });
    }
}
