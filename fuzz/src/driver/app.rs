//! An app's task as a session meets it: it reads content, answers whole or in pieces, keeps to its
//! windows, and may break what it has promised. What it does is in the letter behind `/s`.

use loadline_base::Buffer;
use loadline_proto::{Body, Exchange, Fields, Piece, RequestBody, Status, StreamId};

use super::Driver;

const STREAM: StreamId = StreamId(0);

/// How an app answers: with its target and what it has read of the content, unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// In one piece.
    Whole,
    /// In pieces, of a length that is announced.
    Length,
    /// In pieces, without.
    Unknown,
    /// The same, with trailers.
    Trailers,
    /// In pieces that nobody may see.
    NoContent,
    /// With fewer bytes than announced.
    Short,
    /// With more.
    Long,
    /// Breaks off in the middle.
    Abort,
    /// Not at all.
    Silent,
}

impl Plan {
    fn of(exchange: &Exchange) -> Self {
        match exchange.request.path().get(2) {
            Some(b'l') => Self::Length,
            Some(b'c') => Self::Unknown,
            Some(b't') => Self::Trailers,
            Some(b'n') => Self::NoContent,
            Some(b'u') => Self::Short,
            Some(b'o') => Self::Long,
            Some(b'a') => Self::Abort,
            Some(b'q') => Self::Silent,
            _ => Self::Whole,
        }
    }

    /// Whether the client gets all of the answer.
    fn is_kept(self) -> bool {
        !matches!(self, Self::Short | Self::Long | Self::Abort)
    }
}

/// The task, and what its owner has given it.
pub(super) struct Task {
    plan: Plan,
    /// Until it answers.
    exchange: Option<Box<Exchange>>,
    asked: bool,
    offered: Vec<u8>,
    has_trailers: bool,
    content_ended: bool,
    read: Vec<u8>,
    room: usize,
    /// What it has still to produce.
    rest: Vec<u8>,
}

impl Task {
    pub(super) fn start(exchange: Box<Exchange>, window: usize) -> Self {
        Self {
            plan: Plan::of(&exchange),
            content_ended: matches!(exchange.request.body, RequestBody::Empty),
            exchange: Some(exchange),
            asked: false,
            has_trailers: false,
            offered: Vec::new(),
            read: Vec::new(),
            room: window,
            rest: Vec::new(),
        }
    }

    /// Whether the client may have got a part of the answer.
    pub(super) fn has_begun(&self) -> bool {
        self.exchange.is_none()
    }

    pub(super) fn offer(&mut self, piece: Piece, window: usize) {
        assert!(!self.content_ended, "content behind its end");
        match piece {
            Piece::Data(bytes) => self.offered.extend_from_slice(&bytes),
            Piece::End => self.content_ended = true,
            Piece::Trailers(fields) => {
                assert!(!fields.is_empty() && !std::mem::replace(&mut self.has_trailers, true));
            }
            Piece::Abort => panic!("offered what no request has"),
        }
        assert!(self.offered.len() <= window, "more than the window");
    }

    pub(super) fn pull(&mut self, room: usize, window: usize) {
        assert!(room > 0);
        self.room += room;
        assert!(self.room <= window, "more room than a window");
    }
}

impl Driver<'_> {
    /// The app does what comes next: reads to the end, answers, produces. `false`: it waits.
    pub fn app_step(&mut self) -> bool {
        let Some(task) = &self.task else {
            return false;
        };
        if !task.has_begun() {
            match (task.offered.is_empty(), task.content_ended) {
                (true, true) => self.app_answers(),
                (true, false) if task.asked => return false,
                _ => self.app_reads(usize::MAX),
            }
        } else if task.rest.is_empty() {
            self.app_ends();
        } else if task.room == 0 {
            return false;
        } else {
            self.app_produces(usize::MAX);
        }
        true
    }

    /// The app takes up to `len` bytes of what it was offered; says that it waits if there is none.
    pub fn app_reads(&mut self, len: usize) {
        let Some(task) = &mut self.task else {
            return;
        };
        let len = len.min(task.offered.len());
        if len == 0 && (task.asked || task.content_ended) {
            return; // it waits already, or has nothing to wait for
        }
        task.asked = true;
        task.read.extend(task.offered.drain(..len));
        let turn = &mut self.lent.turn();
        self.session.consumed(STREAM, len, turn);
        self.settle();
    }

    /// The app answers, whatever it has read.
    pub fn app_answers(&mut self) {
        let Some(task) = &mut self.task else {
            return;
        };
        if task.plan == Plan::Silent {
            return self.app_ends();
        }
        let Some(mut exchange) = task.exchange.take() else {
            return;
        };
        let plan = task.plan;
        let content = [exchange.request.target(), &task.read].concat();
        let len = content.len() as u64;
        let status = match plan {
            Plan::NoContent => Status::NO_CONTENT,
            _ => Status::OK,
        };
        exchange.response.status = status;
        exchange.response.body = match plan {
            Plan::Whole => Body::Bytes(content.clone()),
            Plan::Length => Body::Stream { len: Some(len) },
            Plan::Short => Body::Stream { len: Some(len + 3) },
            Plan::Long => Body::Stream { len: Some(len - 1) },
            _ => Body::Stream { len: None },
        };
        task.rest.clone_from(&content);
        if plan == Plan::Abort {
            task.rest.truncate(content.len() / 2);
        }
        if plan == Plan::Whole {
            self.task = None;
        }
        let is_known = plan.is_kept() && plan != Plan::NoContent;
        self.note(status, Some(content).filter(|_| is_known));
        self.cut_off |= !plan.is_kept();
        self.session.answered(exchange, &mut self.lent.turn());
        self.settle();
    }

    /// The app produces up to `len` bytes of its answer, within its room.
    pub fn app_produces(&mut self, len: usize) {
        let Some(task) = self.task.as_mut().filter(|task| task.has_begun()) else {
            return;
        };
        let len = len.min(task.room).min(task.rest.len());
        if len == 0 {
            return;
        }
        task.room -= len;
        let bytes: Vec<u8> = task.rest.drain(..len).collect();
        self.produce(Piece::Data(Buffer::from(bytes)));
    }

    /// The app says that this is all; or breaks off, before its answer or where it should not end.
    pub fn app_ends(&mut self) {
        let Some(task) = self.task.take() else {
            return;
        };
        self.app_is_over = true;
        if !task.has_begun() {
            self.note(Status::INTERNAL_SERVER_ERROR, None);
            return self.produce(Piece::Abort);
        }
        self.cut_off |= !task.rest.is_empty();
        match task.plan {
            Plan::Abort => return self.produce(Piece::Abort),
            Plan::Trailers => {
                let lines = Fields::default().with("X-Sum", "1");
                let turn = &mut self.lent.turn();
                self.session.produced(STREAM, Piece::Trailers(lines), turn);
            }
            _ => {}
        }
        match task.rest.is_empty() {
            true => self.produce(Piece::End),
            false => self.produce(Piece::Abort),
        }
    }

    fn produce(&mut self, piece: Piece) {
        self.session.produced(STREAM, piece, &mut self.lent.turn());
        self.settle();
    }
}
