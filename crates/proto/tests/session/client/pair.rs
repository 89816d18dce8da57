//! Both ends on one wire, in memory: what the server's session sends, the client's understands.

use loadline_base::Buffer;
use loadline_proto::{
    Body, ClientSession, CloseReason, Context, Exchange, Layer as _, Limits, Method, Outcome,
    Received, Reply, ReplyFault, Status,
};

use super::tape::Seen;
use crate::drive::records::Records;
use crate::drive::{Driver, config, echo};
use crate::layered::LAYERED;

/// A client, its connection to a driver of the server's session, and how its bytes are cut.
struct Pair<'h> {
    client: ClientSession,
    server: Driver<'h>,
    delivered: usize,
    piece: usize,
    /// What stands between the client and its socket.
    layer: Option<Records>,
}

impl<'h> Pair<'h> {
    fn new(server: Driver<'h>, piece: usize) -> Self {
        Self {
            client: ClientSession::new(),
            server,
            delivered: 0,
            piece,
            layer: None,
        }
    }

    /// The same over a layer on both ends.
    fn layered(handle: impl FnMut(&mut Exchange, &mut Context<'_>) -> Outcome + 'h) -> Self {
        let limits = config(Limits::default());
        let mut pair = Self::new(Driver::speaking(LAYERED, &limits, handle), 1000);
        let mut hello = Buffer::default();
        let mut layer = Records::client(&mut hello);
        pair.server.feed(&hello);
        let (mut welcome, mut plain) = (pair.server.output.clone(), Buffer::default());
        pair.delivered = welcome.len();
        let result = layer.received(&mut welcome, &mut plain, &mut hello);
        assert!(result.is_ok() && layer.is_open() && plain.is_empty());
        pair.layer = Some(layer);
        pair
    }

    /// Sends a request and carries the answer over.
    fn ask(
        &mut self,
        method: Method,
        target: &str,
        rest: &str,
    ) -> (Result<Reply, ReplyFault>, Seen) {
        self.client.requested(method);
        let request = format!("{} {target} HTTP/1.1\r\nHost: h\r\n{rest}", method.as_str());
        let mut out = Buffer::default();
        match &mut self.layer {
            Some(layer) => layer.send(request.as_bytes(), &mut out),
            None => out.extend_from_slice(request.as_bytes()),
        }
        self.server.feed(&out);
        let mut seen = Seen::default();
        let mut new = self.server.output[self.delivered..].to_vec();
        self.delivered += new.len();
        if let Some(layer) = &mut self.layer {
            let mut plain = Buffer::default();
            for piece in new.chunks_mut(self.piece) {
                let result = layer.received(piece, &mut plain, &mut out);
                result.expect("records");
            }
            new = plain.to_vec();
        }
        let mut pieces = new.chunks(self.piece).peekable();
        while let Some(piece) = pieces.next() {
            let received = self.client.received(piece, &Limits::default(), &mut seen);
            match received {
                Received::More => {}
                Received::Reply(reply) => {
                    assert!(pieces.peek().is_none(), "bytes behind an answer");
                    return (Ok(reply), seen);
                }
                Received::Fault(fault) => return (Err(fault), seen),
            }
        }
        assert!(self.server.is_closed(), "half an answer");
        match self.client.received_eof() {
            Received::Fault(fault) => (Err(fault), seen),
            other => panic!("{other:?}"),
        }
    }
}

const PIECES: [usize; 4] = [usize::MAX, 1000, 7, 1];

#[test]
fn requests_of_every_kind_on_one_connection() {
    for piece in PIECES {
        let mut pair = Pair::new(Driver::echo(), piece);
        for round in 0..3 {
            let target = format!("/{round}");
            let (reply, seen) = pair.ask(Method::Get, &target, "\r\n");
            assert_eq!(seen.content, format!("GET {target}").as_bytes());
            let reply = reply.unwrap();
            assert!(reply.status == 200 && reply.keep_alive && reply.excess_bytes == 0);
            let (reply, seen) = pair.ask(Method::Head, "/", "\r\n");
            assert_eq!((reply.unwrap().content_bytes, seen.content.len()), (0, 0));
            let content = "Content-Length: 5\r\n\r\nhello";
            let (reply, seen) = pair.ask(Method::Post, "/p", content);
            assert_eq!(seen.content, b"POST /p hello");
            assert_eq!(reply.unwrap().content_bytes, 13);
            let content = "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello";
            let (_, seen) = pair.ask(Method::Put, "/c", content);
            assert_eq!(seen.content, b"PUT /c hello");
        }
        let (reply, _) = pair.ask(Method::Get, "/", "Connection: close\r\n\r\n");
        assert!(!reply.unwrap().keep_alive && pair.server.is_closed());
    }
}

#[test]
fn every_status_and_length() {
    let answer = |exchange: &mut Exchange, _: &mut Context<'_>| {
        let target = String::from_utf8_lossy(exchange.request.target()).into_owned();
        let (status, len) = target[1..].split_once('/').unwrap();
        exchange.response.status = Status::new(status.parse().unwrap()).unwrap();
        exchange.response.body = Body::Bytes(vec![b'x'; len.parse().unwrap()]);
        Outcome::Ready
    };
    for piece in [usize::MAX, 1000, 7] {
        let mut pair = Pair::new(Driver::new(&config(Limits::default()), answer), piece);
        for status in Status::ALL.iter().filter(|status| status.code() >= 200) {
            for len in [0, 1, 100_000] {
                let target = format!("/{}/{len}", status.code());
                let (reply, seen) = pair.ask(Method::Get, &target, "\r\n");
                let reply = reply.unwrap();
                assert_eq!(reply.status, status.code());
                assert!(reply.keep_alive, "{target}");
                assert_eq!(reply.content_bytes, seen.content.len() as u64);
                if len > 0 && !status.has_no_content() {
                    assert_eq!(reply.content_bytes, len as u64, "{target}");
                }
            }
        }
    }
}

#[test]
fn a_refusal_is_an_answer_and_a_breakdown_is_a_fault() {
    for piece in PIECES {
        let mut pair = Pair::new(Driver::echo(), piece);
        let (reply, _) = pair.ask(Method::Get, "/", "Host: other\r\n\r\n");
        let reply = reply.unwrap();
        assert_eq!((reply.status, reply.keep_alive), (400, false));

        let mut pair = Pair::new(Driver::echo(), piece);
        pair.server.abort(CloseReason::Failed);
        let (reply, _) = pair.ask(Method::Get, "/", "\r\n");
        assert_eq!(reply, Err(ReplyFault::ClosedEarly));
    }
}

/// As the load generator will speak TLS: the layer is the same for a client.
#[test]
fn a_layer_on_both_ends() {
    let mut pair = Pair::layered(echo);
    for round in 0..3 {
        let target = format!("/{round}");
        let (reply, seen) = pair.ask(Method::Get, &target, "\r\n");
        assert_eq!(seen.content, format!("GET {target}").as_bytes());
        assert!(reply.unwrap().keep_alive);
        let content = format!("Content-Length: 50000\r\n\r\n{}", "x".repeat(50_000));
        let (reply, _) = pair.ask(Method::Post, "/p", &content);
        assert_eq!(reply.unwrap().content_bytes, 50_008);
    }
    let (reply, _) = pair.ask(Method::Get, "/", "Connection: close\r\n\r\n");
    assert!(!reply.unwrap().keep_alive && pair.server.is_closed());
    assert!(
        pair.layer.is_some_and(|layer| layer.has_ended()),
        "the end came"
    );
}
