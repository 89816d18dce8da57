//! One stream: a request, its response, and how far both have come (RFC 9113 section 5.1).
//!
//! ```text
//!   Run ─► Running ─► Answering (─► Discarding)        a handler's quick step
//!            ├─► Collect ─► Run                        its content is gathered first
//!            ├─► Block ─► Blocking ─► Answering        its blocking step
//!            └─► (Collect) ─► Start ─► Task            an app's task; then as its response says
//! ```

use core::cmp::Reverse;
use std::collections::VecDeque;

use loadline_base::{Buffer, BufferPool, Millis, Segment};

use super::priority::{Priority, URGENCIES};
use super::state::State;
use crate::stream::Stream as AppStream;
use crate::{ClientKey, Exchange, Fields, HangUp, Pace, StreamId, TaskOptions};

/// Memory of a stream's content that has been taken and is kept: more of it is given back once it is half of
/// its buffer, so that all copies together are no longer than the content. 64 KiB: a piece of an app's response
/// is sent from one buffer to its end.
const TAKEN_BYTES_MAX: usize = 64 << 10;

/// So much of what is left is copied at once, so that a handler's large content does not hold up a loop.
/// 256 KiB with each frame of 16 KiB: the second half has been copied before a sixteenth of it is sent.
const COPIED_BYTES_MAX: usize = 256 << 10;

/// Where the request stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The handler's quick step is due.
    #[default]
    Run,
    /// The handler has the exchange.
    Running,
    /// Content is gathered, for the handler or for an app's task.
    Collect { bytes_max: u64, for_task: bool },
    /// The blocking step is due.
    Block,
    /// The blocking step has the exchange.
    Blocking,
    /// An app's task is due.
    Start,
    /// An app's task has the exchange.
    Task,
    /// The response is on its way.
    Answering,
    /// The response is in the output, and the end of the request has not come.
    Discarding,
    /// It was reset; the blocking step still has the exchange.
    Reset,
}

impl Phase {
    /// Whether something is to be begun for the request, once it is its turn.
    pub(crate) fn awaits_turn(self) -> bool {
        matches!(self, Self::Run | Self::Block | Self::Start)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) phase: Phase,
    /// It is among those that have an order to give.
    pub(crate) is_due: bool,
    pub(crate) exchange: Option<Box<Exchange>>,
    /// Memory of the exchange while a worker or an app's task has it.
    pub(crate) exchange_bytes: usize,
    /// The size of its head, as long as that is held. It does not change while the stream is among the others.
    pub(crate) head_bytes: usize,
    /// Whose request it is, as a trusted proxy says.
    pub(crate) client: ClientKey,
    pub(crate) hang_up: Option<HangUp>,
    /// It was reset, and takes no place from other clients: its own has given up too many.
    pub(crate) is_uncounted: bool,
    pub(crate) task: TaskOptions,
    /// Content of the request that waits, and the windows of an app's task.
    pub(crate) app: AppStream,
    pub(crate) priority: Priority,

    /// The request is complete.
    pub(crate) has_all: bool,
    /// Bytes of content that are still to come, if the head said so.
    pub(crate) announced_left: Option<u64>,
    pub(crate) expects_continue: bool,
    /// How much the client may send, and what it may send more once that is said.
    pub(crate) window: u32,
    pub(crate) credit: u32,

    /// The head of the response is in the output.
    pub(crate) has_head: bool,
    /// How much content the client takes; below zero after it has made its windows smaller (section
    /// 6.9.2).
    pub(crate) send_window: i64,
    /// Content that waits, and how much of its first piece, if that is a buffer, has been taken.
    pub(crate) content: VecDeque<Segment>,
    pub(crate) front_taken: usize,
    /// It has used its windows up once.
    pub(crate) was_blocked: bool,
    /// Whether an app produces more.
    pub(crate) is_produced: bool,
    /// The content that an app has promised and not produced.
    pub(crate) promised_left: Option<u64>,
    pub(crate) takes_trailers: bool,
    pub(crate) trailers: Option<Fields>,
    /// The answered request, for the log.
    pub(crate) answered: Option<Box<Exchange>>,
    /// Content that was put into the output.
    pub(crate) content_sent: u64,

    /// The period of its deadline, and what has moved in it.
    pub(crate) since: Millis,
    pub(crate) moved: u64,
    /// When it had its last turn, among those of its urgency.
    pub(crate) turn: u64,
    /// How much of the connection's content it has counted, its own included.
    pub(crate) counted: u64,
}

impl Stream {
    /// Where it stands for the client.
    pub(crate) fn state(&self) -> State {
        match self.phase {
            Phase::Reset => State::Reset,
            Phase::Discarding => State::HalfClosedLocal,
            _ if self.has_all => State::HalfClosedRemote,
            _ => State::Open,
        }
    }

    /// Whether the client has to make room before content can be sent.
    pub(crate) fn is_blocked(&self, connection_window: i64) -> bool {
        !self.content.is_empty() && self.send_window.min(connection_window) <= 0
    }

    /// Whether something can be sent now: content, or its end.
    pub(crate) fn can_send(&self, connection_window: i64) -> bool {
        self.has_head
            && self.phase != Phase::Discarding
            && match self.content.is_empty() {
                true => !self.is_produced,
                false => self.send_window.min(connection_window) > 0,
            }
    }

    /// Its turn is to come: its order is due.
    pub(crate) fn await_turn(&mut self, phase: Phase, now: Millis) {
        self.phase = phase;
        self.begin_period(now);
    }

    /// The same once its content was gathered, the last of which came then.
    pub(crate) fn gathered(&mut self, phase: Phase, came: Millis, now: Millis) {
        if let Some(exchange) = &mut self.exchange {
            exchange.ready = came;
        }
        self.await_turn(phase, now);
    }

    /// Its period begins.
    pub(crate) fn begin_period(&mut self, now: Millis) {
        (self.since, self.moved) = (now, 0);
    }

    /// So much has moved in its period.
    pub(crate) fn advance(&mut self, bytes: u64, pace: &Pace, now: Millis) {
        self.moved += bytes;
        if let Some(since) = pace.renewed(self.since, self.moved, now) {
            (self.since, self.moved) = (since, 0);
        }
    }

    /// Takes content of this length at most from what waits.
    pub(crate) fn take_content(&mut self, most: u64, buffers: &mut BufferPool) -> Option<Segment> {
        let front = self.content.front_mut()?;
        if front.len() <= most && self.front_taken == 0 {
            return self.content.pop_front();
        }
        Some(match front {
            Segment::File { file, offset, len } => {
                let piece = Segment::File {
                    file: file.clone(),
                    offset: *offset,
                    len: most,
                };
                *offset += most;
                *len -= most;
                piece
            }
            Segment::Shared { bytes, start, end } => {
                let cut = *start + most as usize;
                let piece = Segment::Shared {
                    bytes: bytes.clone(),
                    start: *start,
                    end: cut.min(*end),
                };
                *start = cut;
                piece
            }
            Segment::Buffer(bytes) => {
                let left = &bytes[self.front_taken..];
                let len = left.len().min(most as usize);
                let mut piece = buffers.take(len);
                piece.extend_from_slice(&left[..len]);
                self.front_taken += len;
                self.give_back_taken(buffers);
                Segment::Buffer(piece)
            }
        })
    }

    /// Gives back memory of the front that has been taken. Only the end of a buffer can be given back without
    /// a copy of all that is left: it is moved into pieces of its own, the last first.
    fn give_back_taken(&mut self, buffers: &mut BufferPool) {
        let Some(Segment::Buffer(bytes)) = self.content.front_mut() else {
            return;
        };
        let left = bytes.len() - self.front_taken;
        if left == 0 {
            self.front_taken = 0;
            buffers.give(std::mem::take(bytes));
            self.content.pop_front();
        } else if self.front_taken > TAKEN_BYTES_MAX.max(bytes.capacity() / 2) {
            let start = bytes.len() - left.min(COPIED_BYTES_MAX);
            let end = Buffer::from(bytes[start..].to_vec());
            if start == self.front_taken {
                self.front_taken = 0;
                buffers.give(std::mem::replace(bytes, end));
            } else {
                bytes.truncate(start);
                bytes.shrink_to_fit(); // the allocator unmaps the end, and copies nothing
                self.content.insert(1, Segment::Buffer(end));
            }
        }
    }

    /// Nobody reads what has come of the request any more. Returns how much of the connection's window that
    /// has kept.
    pub(crate) fn drop_request_content(&mut self, buffers: &mut BufferPool) -> u32 {
        drop(self.app.take_trailers());
        buffers.give(std::mem::take(&mut self.app.offer));
        std::mem::take(&mut self.app.offered_bytes) as u32 // within a window
    }

    /// Becomes as good as new, but for memory. It holds nothing any more.
    pub(crate) fn clear(&mut self) {
        let mut content = std::mem::take(&mut self.content);
        content.clear();
        *self = Self {
            content,
            ..Self::default()
        };
    }

    /// Memory of the content that waits.
    fn content_bytes(&self) -> usize {
        self.content.iter().map(Segment::memory_bytes).sum()
    }

    /// The same without what the client has been sent of it.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.content_bytes().saturating_sub(self.front_taken)
    }

    /// Memory of what it holds, beside itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        let exchanges = [&self.exchange, &self.answered, &self.app.request_copy];
        let exchanges = exchanges.into_iter().flatten();
        let exchanges: usize = exchanges.map(|exchange| exchange.memory_bytes()).sum();
        let with_app = (self.app.offered_bytes).saturating_sub(self.app.offer.len());
        exchanges
            + self.exchange_bytes
            + self.content_bytes()
            + self.app.offer.capacity()
            + with_app
            + self.app.trailer_bytes
            + size_of::<Self>()
    }
}

/// The streams of a connection that are not closed, in the order of their numbers. Most leave from the front.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    all: VecDeque<Box<Stream>>,
    head_bytes: usize,
    /// How many have each urgency.
    by_urgency: [u32; URGENCIES],
    /// Requests among them are begun once the client has taken other responses.
    awaits_room: bool,
}

impl Streams {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The size of all their heads together.
    pub(crate) fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    /// A new one, whose number is the highest.
    pub(crate) fn push(&mut self, stream: Box<Stream>) -> &mut Stream {
        self.count(&stream);
        self.all.push_back(stream);
        let last = self.all.len() - 1;
        &mut self.all[last]
    }

    /// One that was removed.
    pub(crate) fn insert(&mut self, stream: Box<Stream>) {
        let index = self.all.partition_point(|it| it.id.0 < stream.id.0);
        self.count(&stream);
        self.all.insert(index, stream);
    }

    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        Some(&self.all[self.index(id)?])
    }

    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        let index = self.index(id)?;
        Some(&mut self.all[index])
    }

    pub(crate) fn remove(&mut self, id: StreamId) -> Option<Box<Stream>> {
        let index = self.index(id)?;
        let stream = self.all.remove(index)?;
        self.discount(&stream);
        Some(stream)
    }

    pub(crate) fn set_priority(&mut self, id: StreamId, priority: Priority) {
        if let Some(index) = self.index(id) {
            let stream = &mut self.all[index];
            self.by_urgency[usize::from(stream.priority.urgency)] -= 1;
            self.by_urgency[usize::from(priority.urgency)] += 1;
            stream.priority = priority;
        }
    }

    /// Whether something of a more urgent response to this client can be sent. Where all have one urgency, none
    /// is looked at.
    pub(crate) fn has_more_urgent(
        &self,
        client: ClientKey,
        urgency: u8,
        connection_window: i64,
    ) -> bool {
        let mut counts = self.by_urgency[..usize::from(urgency)].iter();
        if counts.all(|count| *count == 0) {
            return false;
        }
        let is_before = |it: &&Stream| it.priority.urgency < urgency && it.client == client;
        let mut more_urgent = self.iter().filter(is_before);
        more_urgent.any(|it| it.can_send(connection_window))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.all.iter().map(|stream| &**stream)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.all.iter_mut().map(|stream| &mut **stream)
    }

    pub(crate) fn awaits_room(&self) -> bool {
        self.awaits_room
    }

    /// The connection waits for its client. Whether requests do, too, which could begin otherwise.
    pub(crate) fn await_room(&mut self, awaits_room: bool) {
        self.awaits_room = awaits_room;
    }

    /// A request is begun. Those that have waited for their client have waited for the server from now on.
    pub(crate) fn have_room(&mut self, came: Millis) {
        if !std::mem::take(&mut self.awaits_room) {
            return;
        }
        for stream in self.iter_mut().filter(|it| it.phase.awaits_turn()) {
            if let Some(exchange) = &mut stream.exchange {
                exchange.ready = exchange.ready.max(came);
            }
        }
    }

    /// Whose request holds most; of those that hold as much, the oldest.
    pub(crate) fn largest_client(&self) -> ClientKey {
        let by_bytes = self
            .iter()
            .map(|it| (it.memory_bytes(), Reverse(it.id.0), it));
        let largest = by_bytes.max_by_key(|(bytes, age, _)| (*bytes, *age));
        largest.map_or(ClientKey::NOBODY, |(.., stream)| stream.client)
    }

    /// The one with the lowest number.
    pub(crate) fn pop(&mut self) -> Option<Box<Stream>> {
        let stream = self.all.pop_front()?;
        self.discount(&stream);
        Some(stream)
    }

    fn count(&mut self, stream: &Stream) {
        self.head_bytes += stream.head_bytes;
        self.by_urgency[usize::from(stream.priority.urgency)] += 1;
    }

    fn discount(&mut self, stream: &Stream) {
        self.head_bytes -= stream.head_bytes;
        self.by_urgency[usize::from(stream.priority.urgency)] -= 1;
    }

    fn index(&self, id: StreamId) -> Option<usize> {
        if self.all.front()?.id == id {
            return Some(0);
        }
        self.all
            .binary_search_by_key(&id.0, |stream| stream.id.0)
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const FRAME_BYTES: u64 = 16 << 10;

    #[test]
    fn a_frame_copies_a_bounded_part_of_large_content() {
        let content: Vec<u8> = (0..8_000_003_u32).map(|n| (n % 251) as u8).collect();
        let (len, copied_max) = (content.len(), COPIED_BYTES_MAX as u64);
        let mut stream = Stream::default();
        let buffer = Buffer::from(content.clone());
        stream.content.push_back(Segment::Buffer(buffer));
        let mut buffers = BufferPool::new();
        let mut taken = Vec::new();
        while let Some(piece) = stream.take_content(FRAME_BYTES, &mut buffers) {
            let Segment::Buffer(bytes) = piece else {
                panic!("it is in memory");
            };
            taken.extend_from_slice(&bytes);
            // The handler's own buffer is in front as long as all that was taken is of it.
            let own = usize::from(stream.front_taken == taken.len());
            let mut copies = stream.content.iter().skip(own);
            let (at, held) = (taken.len(), stream.content_bytes());
            assert!(copies.all(|it| it.len() <= copied_max), "at {at}");
            assert!(held <= len, "{held} at {at}");
            let has_given_back = held <= len - at + COPIED_BYTES_MAX;
            assert!(at <= len * 5 / 8 || has_given_back, "{held} at {at}");
        }
        assert!(taken == content);
    }

    #[test]
    fn shared_content_is_not_copied() {
        let content: Arc<[u8]> = vec![b's'; 1 << 20].into();
        let mut stream = Stream::default();
        stream.content.push_back(Segment::Shared {
            bytes: Arc::clone(&content),
            start: 0,
            end: content.len(),
        });
        let mut buffers = BufferPool::new();
        let mut taken = 0;
        while let Some(piece) = stream.take_content(FRAME_BYTES, &mut buffers) {
            taken += piece.len();
            let Segment::Shared { bytes, .. } = piece else {
                panic!("it is shared");
            };
            assert!(Arc::ptr_eq(&bytes, &content));
        }
        assert_eq!(taken, 1 << 20);
    }

    #[test]
    fn a_more_urgent_stream_is_one_that_can_send() {
        let stream = |number, urgency| {
            let mut stream = Stream {
                id: StreamId(number),
                has_head: true,
                send_window: 1,
                ..Stream::default()
            };
            stream.priority.urgency = urgency;
            let content = Segment::Buffer(Buffer::from(b"x".to_vec()));
            stream.content.push_back(content);
            Box::new(stream)
        };
        let mine = ClientKey::NOBODY;
        let found = |streams: &Streams| [1, 2, 3].map(|it| streams.has_more_urgent(mine, it, 1));
        let mut streams = Streams::default();
        streams.push(stream(1, 3));
        streams.push(stream(3, 1));
        assert_eq!(found(&streams), [false, true, true]);
        let connection_window = 0;
        assert!(!streams.has_more_urgent(mine, 3, connection_window));
        assert!(!streams.has_more_urgent(ClientKey::from_number(1), 3, 1));
        streams.set_priority(StreamId(3), Priority::default());
        assert_eq!(found(&streams), [false; 3]);
        streams.set_priority(StreamId(1), Priority::parse(b"u=0"));
        assert_eq!(found(&streams), [true; 3]);
        streams.remove(StreamId(1));
        assert_eq!(found(&streams), [false; 3]);
        streams.insert(stream(1, 0));
        assert_eq!(found(&streams), [true; 3]);
        streams.pop();
        assert_eq!(found(&streams), [false; 3]);
    }
}
