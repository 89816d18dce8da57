//! An app's task over HTTP/2: it reads, responds and produces as the input of a target says, keeps to its
//! windows, and may break what it has promised.

use loadline_base::Buffer;
use loadline_proto::{
    Body, Context, Exchange, Fields, Http2Session, Piece, RequestBody, Session, StreamId,
};

/// The task, and what its session has given it.
#[derive(Debug)]
pub struct Task {
    /// Of its request.
    pub stream: StreamId,
    /// Until it responds.
    exchange: Option<Box<Exchange>>,
    window: usize,
    /// Content that it has not read.
    offered: usize,
    content_ended: bool,
    /// How much it may produce.
    room: usize,
}

impl Task {
    /// It begins with this request.
    #[must_use]
    pub fn start(exchange: Box<Exchange>) -> Self {
        let window = exchange.stream_window_bytes;
        Self {
            stream: exchange.stream,
            content_ended: matches!(exchange.request.body, RequestBody::Empty),
            exchange: Some(exchange),
            window,
            offered: 0,
            room: window,
        }
    }

    /// A piece of the request's content.
    ///
    /// # Panics
    /// It is more than there is room for, or behind the end.
    pub fn offer(&mut self, piece: Piece) {
        assert!(!self.content_ended, "content behind its end");
        match piece {
            Piece::Data(bytes) => self.offered += bytes.len(),
            Piece::Trailers(fields) => assert!(!fields.is_empty()),
            Piece::End => self.content_ended = true,
            Piece::Abort => panic!("offered what no request has"),
        }
        assert!(self.offered <= self.window, "more than the window");
    }

    /// Room for more of the response.
    ///
    /// # Panics
    /// It is more than a window.
    pub fn pull(&mut self, room: usize) {
        assert!(room > 0);
        self.room += room;
        assert!(self.room <= self.window, "more room than a window");
    }

    /// Does one thing: the lower four bits say what, the others how much. Returns whether it is over.
    pub fn act(&mut self, how: u8, session: &mut Http2Session, cx: &mut Context<'_>) -> bool {
        let size = usize::from(how >> 4);
        match (how & 0xf, self.exchange.is_some()) {
            (0..3, _) => {
                let len = self.offered.min(size * 20);
                self.offered -= len;
                session.consumed(self.stream, len, cx);
            }
            (3, true) => {
                self.respond(Body::Bytes(vec![b'r'; size * 100]), session, cx);
                return true;
            }
            (4, true) => {
                let len = Some(size as u64 * 40);
                self.respond(Body::Stream { len }, session, cx);
            }
            (5..15, true) => self.respond(Body::Stream { len: None }, session, cx),
            (3..11, false) => self.produce(size * 40 + 1, session, cx),
            (11 | 12, false) => {
                let fields = Fields::default().with("X-Sum", "1");
                session.produced(self.stream, Piece::Trailers(fields), cx);
            }
            (13 | 14, false) => {
                session.produced(self.stream, Piece::End, cx);
                return true;
            }
            _ => {
                session.produced(self.stream, Piece::Abort, cx);
                return true;
            }
        }
        false
    }

    /// Responds if it has not, and produces nothing more.
    pub fn end(mut self, session: &mut Http2Session, cx: &mut Context<'_>) {
        self.respond(Body::Stream { len: None }, session, cx);
        session.produced(self.stream, Piece::End, cx);
    }

    fn respond(&mut self, body: Body, session: &mut Http2Session, cx: &mut Context<'_>) {
        if let Some(mut exchange) = self.exchange.take() {
            exchange.response.body = body;
            session.answered(exchange, cx);
        }
    }

    fn produce(&mut self, most: usize, session: &mut Http2Session, cx: &mut Context<'_>) {
        let len = most.min(self.room);
        if len > 0 {
            self.room -= len;
            let bytes = Buffer::from(vec![b'p'; len]);
            session.produced(self.stream, Piece::Data(bytes), cx);
        }
    }
}
