//! The task of an app, moved by the test: what it was given, and what it says.

use loadline_base::{Buffer, Millis};
use loadline_proto::{Body, Context, Exchange, Fields, Piece, RequestBody, StreamId};

use super::{Driver, Event};

/// What an app's task has.
#[derive(Debug, Default)]
pub struct App {
    /// The request, until it is answered.
    pub exchange: Option<Box<Exchange>>,
    /// Content that it was offered.
    pub content: Vec<u8>,
    /// How much of that it has consumed.
    pub consumed: usize,
    /// The fields behind it.
    pub trailers: Option<Fields>,
    /// All content was offered.
    pub has_end: bool,
    /// Bytes that it may produce.
    pub room: usize,
}

impl App {
    pub(super) fn offered(&mut self, piece: Piece) {
        match piece {
            Piece::Data(bytes) => {
                assert!(!bytes.is_empty() && !self.has_end && self.trailers.is_none());
                self.content.extend_from_slice(&bytes);
            }
            Piece::End => {
                assert!(!self.has_end, "the end twice");
                self.has_end = true;
            }
            Piece::Trailers(fields) => {
                assert!(!fields.is_empty() && !self.has_end);
                assert!(self.trailers.replace(fields).is_none(), "trailers twice");
            }
            Piece::Abort => panic!("not offered"),
        }
    }
}

impl Driver<'_> {
    pub(super) fn start(&mut self, exchange: Box<Exchange>) {
        assert!(
            self.app.is_none() && self.parked.is_none(),
            "two exchanges out"
        );
        assert_eq!(
            self.unsent_answers, 0,
            "waiting output must be sent before Start"
        );
        self.events.push(Event::Start);
        self.app = Some(App {
            has_end: matches!(exchange.request.body, RequestBody::Empty),
            exchange: Some(exchange),
            room: self.window,
            ..App::default()
        });
    }

    pub(super) fn cancelled(&mut self) {
        self.events.push(Event::Cancel);
        self.cancelled = self.app.take().or_else(|| self.ended.take());
        assert!(self.cancelled.is_some(), "Cancel for nobody");
    }

    pub fn app(&mut self) -> &mut App {
        let app = self.app.as_mut().expect("an app that has a request");
        assert!(
            app.content.len() - app.consumed <= self.window,
            "over the window"
        );
        app
    }

    fn with_session(
        &mut self,
        fact: impl FnOnce(&mut loadline_proto::ServerSession, &mut Context<'_>),
    ) {
        let session = self.session.as_mut().expect("an open connection");
        let mut cx = Context {
            now: self.now,
            came: self.now,
            date: &self.date,
            pool: &mut self.pool,
            counters: &self.counters,
            log: self.log.as_mut(),
        };
        fact(session, &mut cx);
    }

    /// The app answers with what `answer` puts into its exchange. The session has not acted on it yet.
    pub fn app_answers(&mut self, answer: impl FnOnce(&mut Exchange)) -> &mut Self {
        let mut exchange = self.app().exchange.take().expect("one answer");
        answer(&mut exchange);
        let is_whole = !matches!(exchange.response.body, Body::Stream { .. });
        if is_whole {
            self.app = None;
        }
        self.with_session(|session, cx| session.answered(exchange, cx));
        self
    }

    /// The app begins an answer whose content follows.
    pub fn app_begins(&mut self, len: Option<u64>) -> &mut Self {
        self.app_answers(|exchange| exchange.response.body = Body::Stream { len })
    }

    /// The app produces content.
    pub fn app_says(&mut self, bytes: &[u8]) -> &mut Self {
        let app = self.app();
        assert!(bytes.len() <= app.room, "more than there is room for");
        app.room -= bytes.len();
        self.app_produces(Piece::Data(Buffer::from(bytes.to_vec())))
    }

    /// The app produces something.
    pub fn app_produces(&mut self, piece: Piece) -> &mut Self {
        if matches!(piece, Piece::End | Piece::Abort) {
            // A failed one may have to be cancelled: then it is there for that.
            self.ended = self.app.take();
        }
        self.with_session(|session, cx| session.produced(StreamId(0), piece, cx));
        self
    }

    /// The app reads on: so much of what it was offered is used up.
    pub fn app_consumes(&mut self, bytes: usize) -> &mut Self {
        let app = self.app();
        app.consumed += bytes;
        assert!(app.consumed <= app.content.len());
        self.with_session(|session, cx| session.consumed(StreamId(0), bytes, cx));
        self
    }

    /// Carries out what the facts so far have led to.
    pub fn go(&mut self) -> &mut Self {
        self.drive();
        self
    }

    /// The app sends back what it is sent, as far as it can now, and ends when that has ended.
    pub fn app_echoes(&mut self, len: Option<u64>) -> &mut Self {
        loop {
            let Some(app) = &mut self.app else {
                return self;
            };
            if app.exchange.is_some() {
                self.app_begins(len).app_consumes(0).go();
                continue;
            }
            let left = &app.content[app.consumed..];
            let some = left.len().min(app.room);
            if some > 0 {
                let bytes = left[..some].to_vec();
                self.app_says(&bytes).app_consumes(some).go();
            } else if left.is_empty() && app.has_end {
                self.app_produces(Piece::End).go();
            } else {
                return self;
            }
        }
    }

    /// How long the app or its client may still take.
    pub fn patience_ms(&self) -> u64 {
        let deadline = self.deadline().unwrap_or(Millis(u64::MAX));
        deadline.since(self.now)
    }
}
