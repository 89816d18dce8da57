//! How much content may be sent (RFC 9113 sections 5.2 and 6.9), by the frames of both sides.

use std::collections::{BTreeMap, VecDeque};

use loadline_proto::http2::frame::{
    FrameHead, HEAD_BYTES, Kind, PREFACE, Setting, WINDOW_BYTES, WINDOW_BYTES_MAX, flags, number,
};

/// The windows of one direction: the receiver of content opens them, the sender keeps to them.
///
/// WINDOW_UPDATE counts once it has come to the sender, SETTINGS once the sender has acknowledged them. They
/// may leave a window below zero (section 6.9.2).
#[derive(Debug)]
pub struct Windows {
    /// The beginning of a frame of the receiver's.
    unread: Vec<u8>,
    connection: i64,
    /// Of a new stream.
    initial: i64,
    /// By how much the window of a stream differs from that of a new one.
    streams: BTreeMap<u32, i64>,
    /// Of each SETTINGS frame that was not acknowledged: the window of new streams, if it has one.
    settings: VecDeque<Option<u32>>,
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            unread: Vec::new(),
            connection: i64::from(WINDOW_BYTES),
            initial: i64::from(WINDOW_BYTES),
            streams: BTreeMap::new(),
            settings: VecDeque::new(),
        }
    }
}

impl Windows {
    /// What is left of that of the connection.
    #[must_use]
    pub fn connection(&self) -> i64 {
        self.connection
    }

    /// Bytes of the receiver of content have come to its sender.
    pub fn received(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        let mut unread = std::mem::take(&mut self.unread);
        let mut rest = unread.strip_prefix(PREFACE).unwrap_or(&unread);
        while let Some((head, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
            let head = FrameHead::parse(head);
            let Some((payload, behind)) = behind.split_at_checked(head.len) else {
                break;
            };
            self.frame(head, payload);
            rest = behind;
        }
        let read = unread.len() - rest.len();
        unread.drain(..read); // not copied: a frame may come byte by byte
        self.unread = unread;
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8]) {
        match head.kind {
            Kind::WindowUpdate if payload.len() == 4 => {
                let more = i64::from(number(payload) & WINDOW_BYTES_MAX);
                match head.stream {
                    0 => self.connection += more,
                    id => *self.streams.entry(id).or_default() += more,
                }
            }
            Kind::Settings if !head.has(flags::ACK) => {
                let sizes = Setting::parse_all(payload)
                    .filter(|setting| setting.id == Setting::INITIAL_WINDOW_SIZE);
                let last = sizes.last().map(|setting| setting.value);
                self.settings.push_back(last);
            }
            _ => {}
        }
    }

    /// The sender of content has sent a frame.
    ///
    /// # Panics
    /// It has more content than a window, or acknowledges SETTINGS that have not come.
    pub fn sent(&mut self, head: FrameHead) {
        match head.kind {
            Kind::Settings if head.has(flags::ACK) => {
                let settings = self.settings.pop_front().expect("SETTINGS have come");
                self.initial = settings.map_or(self.initial, i64::from);
            }
            Kind::Data if head.len > 0 => {
                let stream = self.streams.entry(head.stream).or_default();
                *stream -= head.len as i64;
                self.connection -= head.len as i64;
                let (connection, stream) = (self.connection, self.initial + *stream);
                assert!(
                    connection >= 0 && stream >= 0,
                    "beyond a window: connection {connection}, stream {stream}"
                );
            }
            _ => {}
        }
    }
}
