//! Both ends of a connection, and the bytes between them.

use std::collections::VecDeque;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::Request;
use loadline_proto::{
    ClientEvent, Http2Client, Http2Fields, Limits, Reply, RequestBlocks, StreamFault,
    StreamObserver, http2_client,
};

use super::server::Server;
use crate::wire::Wire;

/// Steps in which what a test waits for has to come.
const STEPS_MAX: usize = 200_000;
/// Steps without a byte, after which there will be none: what a task sends may be that of another.
const STILL_STEPS: usize = 10;
/// Content of a response that is kept.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// What the client has seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// Those that the test has not looked at; but for settings.
    pub events: VecDeque<ClientEvent>,
    /// By slot: the beginning of its response's content.
    pub content: Vec<Vec<u8>>,
    /// By slot: `status name: value`.
    pub fields: Vec<Vec<String>>,
}

impl StreamObserver for Seen {
    fn field(&mut self, slot: u32, status: u16, name: &[u8], value: &[u8]) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let line = format!("{status} {}: {}", text(name), text(value));
        self.fields[slot as usize].push(line);
    }

    fn content(&mut self, slot: u32, piece: &[u8]) {
        let content = &mut self.content[slot as usize];
        let room = KEPT_BYTES_MAX.saturating_sub(content.len());
        content.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

impl Seen {
    fn take(&mut self, client: &mut Http2Client, mut bytes: &[u8]) {
        let limits = Limits::default();
        while let Some(event) = client.receive(&mut bytes, &limits, self) {
            if event != ClientEvent::Settings {
                self.events.push_back(event);
            }
        }
        assert!(bytes.is_empty());
    }
}

pub struct Ends {
    pub client: Http2Client,
    pub server: Server,
    pub seen: Seen,
    /// Bytes that a step moves each way, at most.
    pub cut: usize,
    requests: Vec<RequestBlocks>,
    /// By slot: content of its request.
    bodies: Vec<Bytes>,
    wire: Wire,
}

impl Ends {
    /// A connection on which nothing has moved. It carries these requests, so many at one time.
    pub fn new<F, T>(builder: &Builder, slots: u32, requests: &[Http2Fields], handler: F) -> Self
    where
        F: FnMut(Request<RecvStream>, SendResponse<Bytes>) -> T + 'static,
        T: Future<Output = ()> + 'static,
    {
        let wire = Wire::of_server();
        let count = slots as usize;
        Self {
            client: Http2Client::new(slots, http2_client::STREAMS_ASSUMED),
            server: Server::new(wire.clone(), builder, handler),
            seen: Seen {
                events: VecDeque::new(),
                content: vec![Vec::new(); count],
                fields: vec![Vec::new(); count],
            },
            cut: usize::MAX,
            requests: RequestBlocks::prepare(requests),
            bodies: vec![Bytes::new(); count],
            wire,
        }
    }

    /// Sends a request, by its place in those of the connection, in a slot that is free.
    pub fn request(&mut self, slot: u32, request: usize, body: impl Into<Bytes>) {
        assert!(self.client.has_room());
        let at = slot as usize;
        self.seen.content[at].clear();
        self.seen.fields[at].clear();
        self.bodies[at] = body.into();
        self.client
            .request(slot, &self.requests[request], &self.bodies[at]);
    }

    /// Bytes move each way, and both ends take them in; whether there were any.
    pub fn step(&mut self) -> bool {
        if self.client.may_go_on() {
            let bodies = &self.bodies;
            self.client.go_on(move |slot| &bodies[slot as usize][..]);
        }
        let output = self.client.output();
        let sent = output.len().min(self.cut);
        let mut pipes = self.wire.pipes();
        pipes.to_server.bytes.extend_from_slice(&output[..sent]);
        drop(pipes);
        self.client.sent(sent);
        self.server.step();
        let mut pipes = self.wire.pipes();
        let count = pipes.to_client.bytes.len().min(self.cut);
        let received = pipes.to_client.bytes.split_to(count);
        drop(pipes);
        self.seen.take(&mut self.client, &received);
        sent + count > 0
    }

    /// Steps until something has come about.
    pub fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..STEPS_MAX {
            if is_so(self) {
                return;
            }
            self.step();
        }
        self.give_up(what);
    }

    /// Steps until nothing moves any more.
    pub fn settle(&mut self) {
        let mut still = 0;
        for _ in 0..STEPS_MAX {
            still = if self.step() { 0 } else { still + 1 };
            if still == STILL_STEPS {
                return;
            }
        }
        self.give_up("nothing moves any more");
    }

    /// The next event, for which it steps if need be.
    pub fn next_event(&mut self) -> ClientEvent {
        self.until("there is an event", |it| !it.seen.events.is_empty());
        self.seen.events.pop_front().unwrap()
    }

    /// What has come of all requests once nothing moves any more, in order.
    pub fn outcomes(&mut self) -> Vec<ClientEvent> {
        self.settle();
        self.seen.events.drain(..).collect()
    }

    /// The client ends the connection, and the server has found nothing wrong with all of it.
    pub fn end(mut self) {
        assert_eq!(self.client.open_count(), 0);
        self.client.end();
        self.until("the server has ended", |it| it.server.ended().is_some());
        assert!(
            matches!(self.server.ended(), Some(Ok(()))),
            "{:?}",
            self.server.ended()
        );
    }

    /// Whether the server sends no more.
    pub fn is_closed(&self) -> bool {
        let pipes = self.wire.pipes();
        pipes.to_client.is_closed && pipes.to_client.bytes.is_empty()
    }

    fn give_up(&self, what: &str) -> ! {
        let (events, ended) = (&self.seen.events, self.server.ended());
        panic!("it never came about that {what}: {events:?}, {ended:?}");
    }
}

/// A request of this method and path, which says who asks, and this.
pub fn request(method: &str, path: &str, more: &[(&str, &str)]) -> Http2Fields {
    let bytes = |text: &str| text.as_bytes().to_vec();
    let field = |(name, value): &(&str, &str)| (bytes(name), bytes(value));
    let fields = [("user-agent", "loadline")];
    Http2Fields {
        method: bytes(method),
        scheme: "http",
        authority: bytes("localhost"),
        path: bytes(path),
        fields: fields.iter().chain(more).map(field).collect(),
    }
}

pub fn get(path: &str) -> Http2Fields {
    request("GET", path, &[])
}

pub fn reply(slot: u32, status: u16, content_bytes: u64) -> ClientEvent {
    let reply = Reply {
        status,
        content_bytes,
        keep_alive: true,
        excess_bytes: 0,
    };
    ClientEvent::Reply { slot, reply }
}

pub fn failed(slot: u32, fault: StreamFault) -> ClientEvent {
    ClientEvent::Failed { slot, fault }
}

/// The server has reset a stream.
pub fn reset(slot: u32, reason: h2::Reason) -> ClientEvent {
    failed(slot, StreamFault::Reset(reason.into()))
}
