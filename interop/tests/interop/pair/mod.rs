//! A session with the `h2` crate at its other end, in memory: random operations, and the two agree on every
//! response.

mod server;

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use fastrand::Rng;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::{HeaderMap, Request};

use server::Server;

use crate::wire::Wire;

/// Runs, each with a seed of its own; and operations of each.
const RUNS: u64 = 400;
const OPERATIONS: usize = 1_000;
/// Streams that are open at one time: enough to fill the windows.
const STREAMS_MAX: usize = 40;
/// Content of one request.
const CONTENT_MAX: usize = 150_000;

/// A request and what has come of its response.
struct Asked {
    id: u32,
    path: String,
    takes_trailers: bool,
    response: Option<ResponseFuture>,
    body: Option<RecvStream>,
    sender: Option<SendStream<Bytes>>,
    /// Content that is not sent yet, and all of it.
    left: usize,
    len: usize,
    received: Vec<u8>,
    /// Content that was received and whose room was not given back.
    held: usize,
    trailers: Option<HeaderMap>,
    has_ended: bool,
}

struct Pair {
    rng: Rng,
    wire: Wire,
    server: Server,
    connection: Option<Connection<Wire, Bytes>>,
    requests: SendRequest<Bytes>,
    pings: PingPong,
    is_pinging: bool,
    is_draining: bool,
    asked: Vec<Asked>,
    answered: usize,
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// What byte stands at a place of the content of a request.
fn byte(id: u32, at: usize) -> u8 {
    (id as usize + at * 7 + at / 251) as u8
}

#[test]
fn random_operations() {
    let seed = std::env::var("LOADLINE_SEED").ok();
    let seeds = match seed.and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..RUNS,
    };
    let mut answered = 0;
    for seed in seeds {
        println!("LOADLINE_SEED={seed}"); // shown if it fails
        let mut pair = Pair::new(seed);
        for _ in 0..OPERATIONS {
            pair.operate();
        }
        answered += pair.end();
    }
    assert!(answered > 1_000, "{answered}");
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let wire = Wire::of_client();
        let mut server = Server::new();
        let mut builder = Builder::new();
        builder.initial_window_size(*rng.choice(&[0, 1, 1_000, 65_535, 1 << 20]).unwrap());
        builder.initial_connection_window_size(*rng.choice(&[65_535, 70_000, 1 << 20]).unwrap());
        builder.header_table_size(*rng.choice(&[0, 100, 4096, 65_536]).unwrap());
        builder.max_frame_size(*rng.choice(&[16_384, 100_000]).unwrap());
        let mut handshake = Box::pin(builder.handshake::<_, Bytes>(wire.clone()));
        let (requests, mut connection) = loop {
            match Future::poll(handshake.as_mut(), &mut context()) {
                Poll::Ready(ends) => break ends.unwrap(),
                Poll::Pending => transfer(&wire, &mut server),
            }
        };
        let pings = connection.ping_pong().unwrap();
        Self {
            rng,
            wire,
            server,
            connection: Some(connection),
            requests,
            pings,
            is_pinging: false,
            is_draining: false,
            asked: Vec::new(),
            answered: 0,
        }
    }

    fn operate(&mut self) {
        let at = self.rng.usize(..);
        match self.rng.u8(..20) {
            0..3 => self.ask(),
            3..6 => self.send_content(at),
            6..8 => self.receive_content(at),
            8..10 => self.give_room(at),
            10 => _ = self.server.complete(at),
            11..13 => _ = self.server.step_app(at, self.rng.usize(1..40_000)),
            13 if self.rng.u8(..8) == 0 => self.reset(at),
            14 => self.ping(),
            15 if self.rng.u8(..4) == 0 => self.change_window(),
            16 => self.server.flush(),
            17 => self.server.pass(self.rng.u64(..50)),
            _ => self.move_some(),
        }
        self.poll_connection();
    }

    /// Opens a stream.
    fn ask(&mut self) {
        let is_ready = matches!(
            self.requests.poll_ready(&mut context()),
            Poll::Ready(Ok(()))
        );
        if !is_ready || self.asked.len() >= STREAMS_MAX {
            return;
        }
        let path = match self.rng.u8(..4) {
            0 => format!("/bytes/{}", self.rng.usize(..100_000)),
            1 => "/block".to_owned(),
            2 => "/app".to_owned(),
            _ => "/content".to_owned(),
        };
        let has_content = !path.starts_with("/bytes") && self.rng.bool();
        let len = if has_content {
            self.rng.usize(..CONTENT_MAX)
        } else {
            0
        };
        let takes_trailers = self.rng.bool();
        let mut request = Request::builder()
            .method(if has_content { "POST" } else { "GET" })
            .uri(format!("http://localhost{path}"))
            .header("x-random", "r".repeat(self.rng.usize(..200)))
            .header("cookie", format!("a={}", self.rng.u8(..5)))
            .header("cookie", "b=1");
        if has_content && self.rng.bool() {
            request = request.header("content-length", len);
        }
        if takes_trailers {
            request = request.header("te", "trailers");
        }
        if self.rng.bool() {
            let urgency = self.rng.u8(..8);
            request = request.header("priority", format!("u={urgency}, i"));
        }
        let request = request.body(()).unwrap();
        let (response, sender) = self.requests.send_request(request, !has_content).unwrap();
        self.asked.push(Asked {
            id: sender.stream_id().as_u32(),
            path,
            takes_trailers,
            response: Some(response),
            body: None,
            sender: has_content.then_some(sender),
            left: len,
            len,
            received: Vec::new(),
            held: 0,
            trailers: None,
            has_ended: false,
        });
    }

    fn pick(&mut self, at: usize) -> Option<&mut Asked> {
        let count = self.asked.len().max(1);
        self.asked.get_mut(at % count)
    }

    /// A piece of a request's content, or its end.
    fn send_content(&mut self, at: usize) {
        let (most, with_trailers) = (self.rng.usize(1..50_000), self.rng.bool());
        let Some(asked) = self.pick(at) else {
            return;
        };
        let Some(sender) = &mut asked.sender else {
            return;
        };
        if asked.left == 0 {
            match with_trailers {
                true => {
                    let trailers = [("x-end".parse().unwrap(), "1".parse().unwrap())];
                    sender
                        .send_trailers(HeaderMap::from_iter(trailers))
                        .unwrap();
                }
                false => sender.send_data(Bytes::new(), true).unwrap(),
            }
            asked.sender = None;
            return;
        }
        sender.reserve_capacity(most.min(asked.left));
        let Poll::Ready(Some(Ok(room))) = sender.poll_capacity(&mut context()) else {
            return;
        };
        let len = room.min(most).min(asked.left);
        let from = asked.len - asked.left;
        let piece: Vec<u8> = (from..from + len).map(|at| byte(asked.id, at)).collect();
        sender.send_data(piece.into(), false).unwrap();
        asked.left -= len;
    }

    /// What has come of a response.
    fn receive_content(&mut self, at: usize) {
        let mut context = context();
        let Some(asked) = self.pick(at) else {
            return;
        };
        if let Some(response) = &mut asked.response {
            let Poll::Ready(response) = Pin::new(response).poll(&mut context) else {
                return;
            };
            let response = response.unwrap();
            assert_eq!(response.status(), 200, "{}", asked.path);
            assert_eq!(response.headers()["server"], "Loadline");
            asked.response = None;
            asked.body = Some(response.into_body());
        }
        let Some(body) = &mut asked.body else {
            return;
        };
        while let Poll::Ready(piece) = body.poll_data(&mut context) {
            match piece {
                Some(piece) => {
                    let piece = piece.unwrap();
                    asked.held += piece.len();
                    asked.received.extend_from_slice(&piece);
                }
                None => {
                    if let Poll::Ready(trailers) = body.poll_trailers(&mut context) {
                        asked.trailers = trailers.unwrap();
                        asked.has_ended = true;
                    }
                    break;
                }
            }
        }
        self.take_ended();
    }

    /// Those that have ended are looked at.
    fn take_ended(&mut self) {
        let is_over = |asked: &mut Asked| asked.has_ended && asked.sender.is_none();
        for mut asked in self.asked.extract_if(.., is_over) {
            asked.give_room(usize::MAX);
            let (id, path) = (asked.id, &asked.path);
            match path.strip_prefix("/bytes/") {
                Some(len) => {
                    let expected = vec![b'x'; len.parse().unwrap()];
                    assert!(asked.received == expected, "{path}");
                }
                None => {
                    assert_eq!(asked.received.len(), asked.len, "{path} on {id}");
                    let mut all = asked.received.iter().enumerate();
                    assert!(all.all(|(at, it)| *it == byte(id, at)), "{path} on {id}");
                }
            }
            let sum = asked
                .trailers
                .as_ref()
                .map(|it| it["x-sum"].to_str().unwrap());
            let expected = asked.len.to_string();
            let has_sum = path == "/app" && asked.takes_trailers;
            assert_eq!(sum, has_sum.then_some(&*expected), "{path} on {id}");
            self.answered += 1;
        }
    }

    fn give_room(&mut self, at: usize) {
        let most = self.rng.usize(1..100_000);
        if let Some(asked) = self.pick(at) {
            asked.give_room(most);
        }
    }

    fn reset(&mut self, at: usize) {
        if self.asked.is_empty() {
            return;
        }
        let at = at % self.asked.len();
        let asked = self.asked.swap_remove(at);
        if let Some(mut sender) = asked.sender {
            sender.send_reset(Reason::CANCEL); // and otherwise whoever drops it does
        }
    }

    fn ping(&mut self) {
        if !self.is_pinging {
            self.pings.send_ping(Ping::opaque()).unwrap();
            self.is_pinging = true;
        }
        if let Poll::Ready(pong) = self.pings.poll_pong(&mut context()) {
            pong.unwrap();
            self.is_pinging = false;
        }
    }

    fn change_window(&mut self) {
        let size = *self.rng.choice(&[0, 10, 5_000, 100_000]).unwrap();
        if let Some(connection) = &mut self.connection {
            let _ = connection.set_initial_window_size(size); // the last one may not be acknowledged yet
            connection.set_target_window_size(self.rng.u32(65_535..1 << 20));
        }
    }

    /// Some bytes each way.
    fn move_some(&mut self) {
        let most = *self.rng.choice(&[1, 9, 100, 5_000, 100_000]).unwrap();
        let mut pipes = self.wire.pipes();
        if self.server.is_reading() {
            let len = pipes.to_server.bytes.len().min(most);
            let bytes = pipes.to_server.bytes.split_to(len);
            self.server.receive(&bytes);
        }
        let output = self.server.take_output();
        pipes.to_client.bytes.extend_from_slice(&output);
    }

    fn poll_connection(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if let Poll::Ready(ended) = Pin::new(connection).poll(&mut context()) {
            assert!(self.is_draining, "too early: {ended:?}");
            ended.unwrap();
            self.connection = None;
        }
    }

    /// Everything comes to its end; returns how many responses were looked at.
    fn end(&mut self) -> usize {
        if let Some(connection) = &mut self.connection {
            connection.set_target_window_size(1 << 30);
        }
        for _ in 0..10_000 {
            if self.asked.is_empty() {
                break;
            }
            for at in 0..self.asked.len() {
                self.send_content(at);
            }
            for at in (0..self.asked.len()).rev() {
                self.asked[at].give_room(usize::MAX);
                self.receive_content(at);
            }
            while self.server.complete(0) {}
            while self.server.step_app(0, usize::MAX) {}
            self.poll_connection();
            transfer(&self.wire, &mut self.server);
            if let Some(connection) = &mut self.connection {
                let _ = connection.set_initial_window_size(100_000);
            }
            self.poll_connection();
        }
        let left: Vec<_> = self
            .asked
            .iter()
            .map(|it| (it.id, &it.path, it.left))
            .collect();
        assert!(left.is_empty(), "without an end: {left:?}");
        while self.server.complete(0) {} // for those that were reset
        self.is_draining = true;
        self.server.drain();
        for _ in 0..10 {
            transfer(&self.wire, &mut self.server);
            self.poll_connection();
        }
        assert!(self.connection.is_none(), "it goes on after GOAWAY");
        self.server.receive_eof();
        assert!(self.server.is_closed());
        self.answered
    }
}

impl Asked {
    fn give_room(&mut self, most: usize) {
        let len = self.held.min(most);
        if let Some(body) = &mut self.body
            && len > 0
        {
            body.flow_control().release_capacity(len).unwrap();
            self.held -= len;
        }
    }
}

/// All bytes, both ways.
fn transfer(wire: &Wire, server: &mut Server) {
    let mut pipes = wire.pipes();
    for _ in 0..1_000 {
        server.flush();
        let output = server.take_output();
        pipes.to_client.bytes.extend_from_slice(&output);
        pipes.to_client.is_closed = server.has_finished();
        if pipes.to_server.bytes.is_empty() || !server.is_reading() {
            return;
        }
        let bytes = pipes.to_server.bytes.split();
        server.receive(&bytes);
    }
}
