//! Flow control and priorities (RFC 9113 section 5.2, RFC 9218).

use std::collections::BTreeMap;

use loadline_proto::http2::frame::{Kind, PAYLOAD_BYTES_MAX, Setting, WINDOW_BYTES, flags};
use loadline_proto::{Body, Session};

use crate::connection::{Connection, Frame};

/// Of the connection, for all uploads together.
const WINDOW: usize = 256 << 10;
const CANCEL: [u8; 4] = [0, 0, 0, 8];

#[test]
fn no_more_is_sent_than_the_windows_allow() {
    let mut connection = Connection::new();
    connection.get(1, "/bytes/200000");
    let mut frames = connection.take();
    assert_eq!(
        Connection::content(&frames, 1).0.len(),
        WINDOW_BYTES as usize
    );
    connection.window(1, 100_000);
    assert_eq!(
        connection.take(),
        [],
        "the connection's own is used up, too"
    );
    connection.window(0, 50_000);
    frames.extend(connection.take());
    assert_eq!(
        Connection::content(&frames, 1),
        (vec![b'x'; 115_535], false)
    );
    connection.window(0, 500_000).window(1, 34_464);
    frames.extend(connection.take());
    assert_eq!(
        Connection::content(&frames, 1),
        (vec![b'x'; 199_999], false)
    );
    connection.window(1, 1);
    frames.extend(connection.take());
    assert_eq!(Connection::content(&frames, 1), (vec![b'x'; 200_000], true));
    assert!(frames.iter().all(|frame| frame.payload.len() <= 16_384));
    assert!(connection.batch_bytes_max <= (64 << 10) + 20_000);
}

#[test]
fn a_smaller_window_can_be_below_zero() {
    let mut connection = Connection::new();
    connection.get(1, "/bytes/70000");
    let sent = Connection::content(&connection.take(), 1).0.len();
    assert_eq!(sent, 65_535);
    connection
        .window(0, 1_000_000)
        .setting(Setting::INITIAL_WINDOW_SIZE, 1_000);
    connection.window(1, 64_535);
    assert_eq!(
        Connection::content(&connection.take(), 1).0.len(),
        0,
        "it is 0 now"
    );
    connection.window(1, 1);
    assert_eq!(Connection::content(&connection.take(), 1).0.len(), 1);
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 100_000);
    assert_eq!(
        Connection::content(&connection.take(), 1),
        (vec![b'x'; 4_464], true)
    );
}

#[test]
fn a_response_without_content_needs_no_window() {
    let mut connection = Connection::new();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 0);
    connection.take();
    connection.get(1, "/bytes/0").get(3, "/bytes/1");
    let frames = connection.take();
    assert!(Connection::content(&frames, 1).1);
    assert!(!Connection::content(&frames, 3).1);
    connection.window(3, 1);
    assert!(Connection::content(&connection.take(), 3).1);
}

/// Those who do not get their turn wait for it, and the more urgent ones come first.
#[test]
fn the_most_urgent_is_sent_first() {
    let mut connection = Connection::new();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 1 << 20);
    connection.get(1, "/bytes/65535"); // uses the connection's window up
    connection.take();
    for (stream, priority) in [
        (3, "u=5"),
        (5, "u=1"),
        (7, "u=3, i"),
        (9, "u=3, i"),
        (11, "u=3"),
    ] {
        let block = connection.request("GET", "/bytes/40000", &[("priority", priority)]);
        connection.frame(
            Kind::Headers,
            flags::END_HEADERS | flags::END_STREAM,
            stream,
            &block,
        );
    }
    connection.take();
    connection.window(0, 1_000_000);
    let frames = connection.take();
    let mut order: Vec<_> = frames.iter().map(|frame| frame.stream).collect();
    let turns = order
        .iter()
        .filter(|stream| [7, 9].contains(*stream))
        .count();
    order.dedup();
    assert_eq!(order[..2], [5, 11]);
    assert_eq!(order[2..][..turns], [7, 9, 7, 9, 7, 9], "in turn");
    assert_eq!(order.last(), Some(&3));
}

#[test]
fn a_priority_can_change() {
    let mut connection = Connection::new();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 1 << 20);
    connection
        .get(1, "/bytes/65535")
        .get(3, "/bytes/100")
        .get(5, "/bytes/100");
    connection.take();
    let mut update = 5_u32.to_be_bytes().to_vec();
    update.extend_from_slice(b"u=0");
    connection
        .frame(Kind::PriorityUpdate, 0, 0, &update)
        .window(0, 1000);
    let frames = connection.take();
    let order: Vec<_> = frames.iter().map(|frame| frame.stream).collect();
    assert_eq!(order, [5, 3]);
}

/// What says that a priority has changed may overtake the request; the last word counts.
#[test]
fn a_priority_can_change_before_its_request() {
    let mut connection = Connection::new();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 1 << 20);
    connection.get(1, "/bytes/65535");
    connection.take();
    let update = |stream: u32, value: &[u8]| [&stream.to_be_bytes()[..], value].concat();
    for (stream, value) in [(5, b"u=7"), (7, b"u=7"), (5, b"u=0")] {
        connection.frame(Kind::PriorityUpdate, 0, 0, &update(stream, value));
    }
    connection.get(3, "/bytes/100");
    let block = connection.request("GET", "/bytes/100", &[("priority", "u=5")]);
    let of_both = flags::END_HEADERS | flags::END_STREAM;
    connection.frame(Kind::Headers, of_both, 5, &block);
    connection.get(9, "/bytes/100"); // 7 is closed now
    connection.take();
    connection.window(0, 1000);
    let frames = connection.take();
    let order: Vec<_> = frames.iter().map(|frame| frame.stream).collect();
    assert_eq!(order, [5, 3, 9]);
}

/// Pseudorandom ones: a linear congruential generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// A response of which so many frames are still to come.
struct Waiting {
    stream: u32,
    urgency: usize,
    is_incremental: bool,
    frames: usize,
}

/// A client that asks with priorities, and knows in which order frames of content have to come.
struct Downloads {
    connection: Connection,
    numbers: Numbers,
    /// In the order of their requests.
    waiting: Vec<Waiting>,
    /// The stream of each frame that has to have come.
    expected: Vec<u32>,
}

impl Downloads {
    fn new(seed: u64) -> Self {
        let mut connection = Connection::new();
        connection.setting(Setting::INITIAL_WINDOW_SIZE, 1 << 20);
        connection.get(1, "/bytes/65535"); // uses the connection's window up
        connection.take();
        Self {
            connection,
            numbers: Numbers(seed),
            waiting: Vec::new(),
            expected: Vec::new(),
        }
    }

    /// A priority, and the field that says so. Of few urgencies, so that several have the same one.
    fn priority(&mut self) -> (usize, bool, String) {
        let urgency = 2 + self.numbers.below(3);
        let is_incremental = self.numbers.below(2) == 0;
        let more = if is_incremental { ", i" } else { "" };
        (urgency, is_incremental, format!("u={urgency}{more}"))
    }

    fn ask(&mut self, stream: u32) {
        let (urgency, is_incremental, field) = self.priority();
        let frames = 1 + self.numbers.below(4);
        let path = format!("/bytes/{}", frames * PAYLOAD_BYTES_MAX);
        let connection = &mut self.connection;
        let block = connection.request("GET", &path, &[("priority", field.as_str())]);
        let of_both = flags::END_HEADERS | flags::END_STREAM;
        connection.frame(Kind::Headers, of_both, stream, &block);
        self.waiting.push(Waiting {
            stream,
            urgency,
            is_incremental,
            frames,
        });
    }

    /// One of those that wait gets another priority.
    fn change_one(&mut self) {
        let (urgency, is_incremental, field) = self.priority();
        let index = self.numbers.below(self.waiting.len());
        let one = &mut self.waiting[index];
        (one.urgency, one.is_incremental) = (urgency, is_incremental);
        let update = [&one.stream.to_be_bytes()[..], field.as_bytes()].concat();
        self.connection.frame(Kind::PriorityUpdate, 0, 0, &update);
    }

    /// The connection's window opens for so many frames.
    fn open(&mut self, frames: usize) {
        for _ in 0..frames {
            let Some(index) = self.next_index() else {
                break;
            };
            let next = &mut self.waiting[index];
            self.expected.push(next.stream);
            next.frames -= 1;
            if next.frames == 0 {
                self.waiting.remove(index);
            }
        }
        let bytes = frames * PAYLOAD_BYTES_MAX;
        self.connection.window(0, bytes as u32);
    }

    /// Of the most urgent responses those that are not incremental, one after the other; then the one whose last
    /// turn is longest ago.
    fn next_index(&self) -> Option<usize> {
        let urgency = self.waiting.iter().map(|one| one.urgency).min()?;
        let urgent = (0..self.waiting.len()).filter(|it| self.waiting[*it].urgency == urgency);
        let urgent: Vec<usize> = urgent.collect();
        let is_whole = |index: &usize| !self.waiting[*index].is_incremental;
        if let Some(index) = urgent.iter().copied().find(is_whole) {
            return Some(index);
        }
        let last_turn = |index: &usize| {
            let stream = self.waiting[*index].stream;
            self.expected.iter().rposition(|it| *it == stream)
        };
        urgent.into_iter().min_by_key(last_turn)
    }
}

/// RFC 9218 section 10, also if some ask later, and one changes its priority, when others have had a part.
#[test]
fn frames_come_by_urgency_and_those_of_incremental_responses_in_turn() {
    for seed in 0..200 {
        let mut downloads = Downloads::new(seed);
        (0..8).for_each(|index| downloads.ask(3 + 2 * index));
        let frames = 1 + downloads.numbers.below(7); // fewer than there are
        downloads.open(frames);
        downloads.change_one();
        (8..12).for_each(|index| downloads.ask(3 + 2 * index));
        downloads.open(48); // as many as there are at most
        assert!(downloads.waiting.is_empty(), "{seed}");
        let frames = downloads.connection.take();
        let data = frames.iter().filter(|frame| frame.kind == Kind::Data);
        let order: Vec<u32> = data.map(|frame| frame.stream).collect();
        assert_eq!(order, downloads.expected, "{seed}");
    }
}

/// An upload of this length, in which the client keeps to its windows: `stream` and `all`.
fn upload(connection: &mut Connection, id: u32, len: u64, mut all: u64) {
    let (mut sent, mut stream) = (0, 64_u64 << 10);
    while sent < len {
        assert!(
            stream.min(all) >= 8_000,
            "the windows open again: {stream} {all}"
        );
        connection.frame(Kind::Data, 0, id, &[b'x'; 8_000]);
        sent += 8_000;
        (stream, all) = (stream - 8_000, all - 8_000);
        for frame in connection.take() {
            assert_eq!(frame.kind, Kind::WindowUpdate);
            let more = u64::from(u32::from_be_bytes(frame.payload[..].try_into().unwrap()));
            match frame.stream {
                0 => all += more,
                _ => stream += more,
            }
        }
        assert!(stream <= 64 << 10 && all <= 256 << 10);
    }
}

#[test]
fn the_client_may_send_as_much_as_is_taken() {
    let mut connection = Connection::new();
    connection.post(1, "/p", &[]);
    upload(&mut connection, 1, 900_000, 256 << 10);
}

/// Apps that do not read hold three quarters of the connection's window.
#[test]
fn uploads_that_nobody_reads_do_not_stop_others() {
    let mut connection = Connection::new();
    for stream in [1, 3, 5] {
        connection.post(stream, "/task", &[]);
        for _ in 0..4 {
            connection.frame(Kind::Data, 0, stream, &[b'x'; 16_384]);
        }
    }
    assert_eq!(connection.take(), []);
    connection.post(7, "/p", &[]);
    upload(&mut connection, 7, 900_000, 64 << 10);
}

/// Padding uses the windows up as content does, and is worth nothing to an app that waits for all of it.
#[test]
fn padding_does_not_shut_a_streams_window_for_good() {
    const LEN: usize = 60_000;
    let mut connection = Connection::new();
    connection.post(1, "/task", &[("content-length", "60000")]);
    let payload = [&[255][..], &[b'x'; 500], &[0; 255]].concat();
    let (mut window, mut sent) = (64_usize << 10, 0);
    while sent < LEN {
        assert!(window >= payload.len(), "{sent} of {LEN} bytes were sent");
        sent += 500;
        window -= payload.len();
        let end = if sent == LEN { flags::END_STREAM } else { 0 };
        connection.frame(Kind::Data, flags::PADDED | end, 1, &payload);
        let frames = connection.take();
        let of_it = frames.iter().filter(|frame| frame.stream == 1);
        for update in of_it.filter(|frame| frame.kind == Kind::WindowUpdate) {
            window += u32::from_be_bytes(update.payload[..].try_into().unwrap()) as usize;
        }
    }
    let app = &connection.apps[&1];
    assert_eq!((app.content.len(), app.has_end), (LEN, true));
}

/// What has come of a request is for nobody once the response has begun, however long that takes.
#[test]
fn unread_content_is_given_back_when_the_response_begins() {
    let mut connection = Connection::new();
    for stream in [1, 3] {
        connection.post(stream, "/task", &[]);
        for _ in 0..4 {
            connection.frame(Kind::Data, 0, stream, &[b'x'; 16_384]);
        }
    }
    assert_eq!(connection.take(), []);
    for stream in [1, 3] {
        connection.answer_with(stream, Body::Bytes(vec![b'y'; 70_000]));
    }
    let frames = connection.take();
    assert!(!Connection::content(&frames, 1).1 && !Connection::content(&frames, 3).1);
    let is_update = |it: &&Frame| (it.kind, it.stream) == (Kind::WindowUpdate, 0);
    let update = frames.iter().find(is_update).expect("a window");
    assert_eq!(update.payload, (128_u32 << 10).to_be_bytes());
}

/// It kept the connection's window until the worker was done, so that a few of them stopped all uploads.
#[test]
fn content_of_a_request_that_was_reset_is_given_back_while_a_worker_has_it() {
    let mut connection = Connection::new();
    connection.hold_blocking = true;
    for stream in [1, 3] {
        connection.post(stream, "/deaf-block", &[]);
        for _ in 0..4 {
            connection.frame(Kind::Data, 0, stream, &[b'x'; 16_384]);
        }
    }
    assert_eq!(connection.take(), []);
    let held = connection.session().held_bytes();
    for stream in [1, 3] {
        connection.frame(Kind::RstStream, 0, stream, &CANCEL);
    }
    let frames = connection.take();
    let updates: Vec<_> = frames.iter().map(|it| (it.kind, it.stream)).collect();
    assert_eq!(updates, [(Kind::WindowUpdate, 0)]);
    assert_eq!(frames[0].payload, (128_u32 << 10).to_be_bytes());
    let freed = held - connection.session().held_bytes();
    assert!(freed > 100_000, "{freed}");
    connection.complete(1).complete(3);
    assert_eq!(connection.take(), [], "and no second time");
}

/// A client that uploads at random and keeps to its windows, as far as it can see them.
struct Uploads {
    connection: Connection,
    numbers: Numbers,
    /// What it may send on all streams together.
    window: usize,
    next_stream: u32,
    /// Streams whose requests are incomplete, with what was sent on them.
    open: BTreeMap<u32, usize>,
    /// What apps have consumed.
    consumed: BTreeMap<u32, usize>,
}

impl Uploads {
    fn new(seed: u64) -> Self {
        let mut connection = Connection::new();
        connection.hold_blocking = true;
        connection.window(0, 1 << 30); // responses do not wait
        Self {
            connection,
            numbers: Numbers(seed),
            window: WINDOW,
            next_stream: 1,
            open: BTreeMap::new(),
            consumed: BTreeMap::new(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.numbers.below(bound)
    }

    fn one_of(&mut self, streams: &[u32]) -> Option<u32> {
        match streams.len() {
            0 => None,
            len => Some(streams[self.below(len)]),
        }
    }

    fn begin(&mut self) {
        const TARGETS: [&str; 5] = ["/p", "/task", "/deaf", "/deaf-block", "/block"];
        let (stream, target) = (self.next_stream, TARGETS[self.below(TARGETS.len())]);
        self.next_stream += 2;
        self.connection.post(stream, target, &[]);
        self.open.insert(stream, 0);
    }

    /// Some content, with padding at times, and the end of the request at others.
    fn send(&mut self, stream: u32) {
        let sent = self.open[&stream];
        let len = self.below(16_000).min(60_000 - sent).min(self.window);
        let end = match self.below(8) {
            0 => flags::END_STREAM,
            _ => 0,
        };
        if len == 0 {
            return;
        }
        let mut payload = vec![b'x'; len];
        let padded = match self.below(4) {
            0 => {
                payload[0] = (len - 1).min(9) as u8;
                flags::PADDED
            }
            _ => 0,
        };
        self.window -= len;
        self.open.insert(stream, sent + len);
        if end != 0 {
            self.open.remove(&stream);
        }
        self.connection
            .frame(Kind::Data, padded | end, stream, &payload);
    }

    fn reset(&mut self, stream: u32) {
        self.open.remove(&stream);
        self.connection.frame(Kind::RstStream, 0, stream, &CANCEL);
    }

    fn step(&mut self) {
        let open: Vec<u32> = self.open.keys().copied().collect();
        let parked: Vec<u32> = self.connection.parked.keys().copied().collect();
        let apps = &self.connection.apps;
        let asking = apps.iter().filter(|(_, app)| app.exchange.is_some());
        let asking: Vec<u32> = asking.map(|(stream, _)| *stream).collect();
        match self.below(10) {
            0 | 1 => self.begin(),
            2 => {
                if let Some(stream) = self.one_of(&open) {
                    self.reset(stream);
                }
            }
            3 => {
                if let Some(stream) = self.one_of(&parked) {
                    self.connection.complete(stream);
                }
            }
            4 => {
                if let Some(stream) = self.one_of(&asking) {
                    let body = Body::Bytes(b"answer".to_vec());
                    self.connection.answer_with(stream, body);
                }
            }
            5 | 6 => {
                if let Some(stream) = self.one_of(&asking) {
                    self.consume(stream);
                }
            }
            _ => {
                if let Some(stream) = self.one_of(&open) {
                    self.send(stream);
                }
            }
        }
    }

    fn consume(&mut self, stream: u32) {
        let consumed = self.consumed.get(&stream).copied().unwrap_or_default();
        let left = self.connection.apps[&stream].content.len() - consumed;
        let some = self.below(left + 1);
        self.consumed.insert(stream, consumed + some);
        self.connection.consume(stream, some);
    }

    /// Whether the connection's window has grown.
    fn look(&mut self) -> bool {
        let mut has_grown = false;
        for frame in self.connection.take() {
            match (frame.kind, frame.stream) {
                (Kind::WindowUpdate, 0) => {
                    let more = u32::from_be_bytes(frame.payload[..].try_into().unwrap());
                    self.window += more as usize;
                    has_grown = true;
                }
                (Kind::RstStream, stream) => _ = self.open.remove(&stream),
                (Kind::GoAway, _) => panic!("{frame:?}"),
                _ => {}
            }
        }
        has_grown
    }
}

/// What a client may send, and what the server has taken and not given back, come to the same window always.
#[test]
fn no_credit_is_lost_or_given_twice() {
    for seed in 0..200 {
        let mut uploads = Uploads::new(seed);
        for _ in 0..150 {
            uploads.step();
            uploads.look();
            assert!(uploads.window <= WINDOW, "{seed}: given twice");
        }
        // Once nobody has any content, all that was sent is given back with the next update.
        let begun = (1..uploads.next_stream).step_by(2);
        for stream in begun {
            uploads.reset(stream);
        }
        uploads.look();
        let last = uploads.next_stream;
        uploads.connection.post(last, "/deaf", &[]);
        uploads.look();
        let has_grown = (0..40).any(|_| {
            uploads.window -= 8_000;
            let connection = &mut uploads.connection;
            connection.frame(Kind::Data, 0, last, &[b'x'; 8_000]);
            uploads.look()
        });
        assert!(has_grown, "{seed}: the window stays shut");
        assert_eq!(uploads.window, WINDOW, "{seed}");
    }
}
