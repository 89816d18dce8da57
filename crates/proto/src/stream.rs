//! What a session keeps of a request that an app's task has: windows, times, and a copy of the
//! request, since the app holds the exchange.
//!
//! ```text
//!   content   received ─► offer ─► offered, not consumed ─► consumed       │ one window
//!   answer    room, not used ─► produced, waiting ─► leaving ─► left       │ one window
//! ```

use loadline_base::{Buffer, Millis};

use crate::{Exchange, Fields, Limits, Piece};

/// How a streamed answer ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AnswerEnd {
    /// Its head is still awaited.
    #[default]
    NoHead,
    /// After this many more bytes.
    Length { left: u64 },
    /// By the last chunk.
    Chunked,
    /// By the end of the connection (HTTP/1.0).
    Close,
    /// No content may follow this head (HEAD, 204, 304): what the app produces is dropped.
    Nothing,
}

/// Which side is awaited, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The client, with content that the app asks for.
    Client(Millis),
    /// The app.
    App(Millis),
}

/// Of the one request that an app's task has. Default while there is none.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// A copy of the request, to be answered without the app. Until the app answers.
    pub(crate) request_copy: Option<Box<Exchange>>,
    /// The answer whose content follows, for the log.
    pub(crate) answered: Option<Box<Exchange>>,
    pub(crate) end: AnswerEnd,
    pub(crate) persist: bool,
    pub(crate) takes_trailers: bool,
    pub(crate) trailers: Fields,
    /// Length of the content produced so far.
    pub(crate) content_len: u64,

    /// Content that waits to be offered.
    pub(crate) offer: Buffer,
    /// Bytes that wait to be offered or consumed.
    pub(crate) offered_bytes: usize,
    /// Fields behind the content that wait to be offered.
    request_trailers: Option<Box<Fields>>,
    /// Memory of them, also once the app has them.
    pub(crate) trailer_bytes: usize,
    /// All content has come, and the app knows or need not know.
    pub(crate) end_offered: bool,
    /// Content that has come in all.
    pub(crate) received_bytes: u64,
    /// The app reads.
    pub(crate) asked: bool,

    /// Bytes that the app may still produce.
    room_bytes: usize,
    /// Bytes of the content that wait to be sent.
    waiting_bytes: usize,
    /// Bytes of the content that are being sent.
    leaving_bytes: usize,

    /// When the app last did something.
    app_since: Millis,
    /// The period of the client's content, not counting time in which none was awaited.
    client_since: Millis,
    client_moved: u64,
    /// When content last came.
    content_at: Millis,
    /// Since when no content is awaited.
    fed_since: Option<Millis>,
    /// When content was last awaited anew.
    hungry_since: Millis,
}

impl Stream {
    /// A task begins, perhaps with content that was gathered for it.
    pub(crate) fn begin(&mut self, request_copy: Box<Exchange>, window: usize, now: Millis) {
        *self = Self {
            request_copy: Some(request_copy),
            room_bytes: window,
            app_since: now,
            client_since: now,
            content_at: now,
            fed_since: Some(now),
            offer: std::mem::take(&mut self.offer),
            offered_bytes: self.offered_bytes,
            received_bytes: self.received_bytes,
            request_trailers: self.request_trailers.take(),
            trailer_bytes: self.trailer_bytes,
            ..Self::default()
        };
    }

    pub(crate) fn has_head(&self) -> bool {
        self.end != AnswerEnd::NoHead
    }

    /// The app did something: its time begins anew.
    pub(crate) fn app_moved(&mut self, now: Millis) {
        self.app_since = now;
    }

    /// Content came; its framing does not count.
    pub(crate) fn client_moved(&mut self, bytes: u64, limits: &Limits, now: Millis) {
        if bytes > 0 {
            self.content_at = now;
        }
        self.client_moved += bytes;
        let (since, moved) = (self.client_since, self.client_moved);
        if let Some(since) = limits.body_pace.renewed(since, moved, now) {
            self.client_since = since;
            self.client_moved = 0;
        }
    }

    /// The client could send nothing meanwhile: if content is awaited, that time is not its own.
    pub(crate) fn excuse_client(&mut self, since: Millis, now: Millis) {
        if self.fed_since.is_none() {
            for at in [&mut self.client_since, &mut self.content_at] {
                at.0 += now.since(since.max(*at));
            }
        }
    }

    /// Follows whether the app waits for the client: only that time counts as the client's.
    pub(crate) fn note_hunger(&mut self, content_left: bool, now: Millis) {
        let hungry = content_left && self.asked && self.offered_bytes == 0;
        match self.fed_since {
            Some(since) if hungry => {
                self.client_since.0 += now.since(since);
                self.fed_since = None;
                self.hungry_since = now;
            }
            None if !hungry => {
                self.fed_since = Some(now);
                self.app_since = now; // what it waited for is there
            }
            _ => {}
        }
    }

    /// Who is awaited, and until when. `line_since`: when a line of the framing began that is incomplete.
    ///
    /// Once the answer has begun, the two talk with each other, and the client may be silent as long as the
    /// app may.
    pub(crate) fn awaited(&self, line_since: Option<Millis>, limits: &Limits) -> Awaited {
        let since = self.awaited_since();
        if self.fed_since.is_none() {
            let pace = &limits.body_pace;
            let deadline = match self.has_head() {
                false => pace.deadline(since, self.client_moved),
                true => Millis(since.0.saturating_add(limits.app_silence_timeout_ms)),
            };
            let line = line_since.map(|since| pace.deadline(since.max(self.hungry_since), 0));
            return Awaited::Client(line.map_or(deadline, |line| line.min(deadline)));
        }
        let ms = match self.has_head() {
            false => limits.app_answer_timeout_ms,
            true => limits.app_silence_timeout_ms,
        };
        Awaited::App(Millis(since.0.saturating_add(ms)))
    }

    /// Since when that one is awaited, but for the framing.
    pub(crate) fn awaited_since(&self) -> Millis {
        match (self.fed_since, self.has_head()) {
            (Some(_), _) => self.app_since,
            (None, false) => self.client_since,
            (None, true) => self.app_since.max(self.content_at),
        }
    }

    /// The content has come, and these are behind it.
    pub(crate) fn keep_trailers(&mut self, trailers: Option<Box<Fields>>) {
        let fields = trailers.as_deref();
        self.trailer_bytes = fields.map_or(0, |it| size_of::<Fields>() + it.memory_bytes());
        self.request_trailers = trailers;
    }

    /// They go to a handler, with the content; or to nobody.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        self.trailer_bytes = 0;
        self.request_trailers.take()
    }

    /// What the app is to get next of the request's content.
    pub(crate) fn next_offer(&mut self, content_left: bool) -> Option<Piece> {
        if !self.offer.is_empty() {
            return Some(Piece::Data(std::mem::take(&mut self.offer)));
        }
        if content_left || self.end_offered {
            return None;
        }
        if let Some(trailers) = self.request_trailers.take() {
            return Some(Piece::Trailers(*trailers));
        }
        self.end_offered = true;
        Some(Piece::End)
    }

    /// Room to give to the app, once it is half a window.
    pub(crate) fn take_room(&mut self, window: usize) -> Option<usize> {
        let used = self.room_bytes + self.waiting_bytes + self.leaving_bytes;
        let room = window.saturating_sub(used);
        if room < window.div_ceil(2) {
            return None;
        }
        self.room_bytes += room;
        Some(room)
    }

    /// The app has produced `bytes`, of which `sent` go out.
    pub(crate) fn produced(&mut self, bytes: usize, sent: usize) {
        self.room_bytes = self.room_bytes.saturating_sub(bytes);
        self.waiting_bytes += sent;
        self.content_len += sent as u64;
    }

    /// What waits is being sent.
    pub(crate) fn leaves(&mut self) {
        self.leaving_bytes = std::mem::take(&mut self.waiting_bytes);
    }

    /// So much of what waited was put into the output.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
    }

    /// It has left.
    pub(crate) fn left(&mut self) {
        self.leaving_bytes = 0;
    }

    /// Content of the answer that has left by now, if `batch_bytes` of the present batch have.
    pub(crate) fn content_sent(&self, batch_bytes: u64) -> u64 {
        let unsent = self.waiting_bytes as u64;
        let leaving = (self.leaving_bytes as u64).saturating_sub(batch_bytes);
        self.content_len.saturating_sub(unsent + leaving)
    }
}
