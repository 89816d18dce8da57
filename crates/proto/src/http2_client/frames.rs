//! What a client makes of the server's frames.

use crate::Limits;
use crate::http2::frame::{
    ErrorCode, FrameHead, Kind, Setting, WINDOW_BYTES_MAX, flags, number, unwrapped,
};

use super::bounds::WINDOW_UPDATE_BYTES;
use super::input::{FramePayload, FramePiece};
use super::output::increment;
use super::response::ResponseFields;
use super::streams::Found;
use super::{ClientEvent, Http2Client, StreamFault, StreamObserver};

impl Http2Client {
    /// A piece of the server's bytes: what has happened, if anything.
    #[inline]
    pub(super) fn piece(
        &mut self,
        piece: FramePiece<'_>,
        limits: &Limits,
        observer: &mut impl StreamObserver,
    ) -> Result<Option<ClientEvent>, ConnectionFault> {
        match piece {
            FramePiece::Data(head) => self.data(head),
            FramePiece::Content(bytes) => Ok(self.content(bytes, observer)),
            FramePiece::DataEnd(head) => {
                let receiving = self.receiving.take();
                let ended = receiving.filter(|_| head.has(flags::END_STREAM));
                Ok(ended.map(|slot| self.complete(slot)))
            }
            FramePiece::Frame(head, payload) => {
                let result = match head.kind {
                    Kind::Headers => self.headers(head, payload.bytes(), limits, observer),
                    _ => self.other_frame(head, &payload, limits, observer),
                };
                self.input.give_back(payload);
                result
            }
        }
    }

    /// A DATA frame begins (section 6.1): what it takes of the windows.
    #[inline]
    fn data(&mut self, head: FrameHead) -> Result<Option<ClientEvent>, ConnectionFault> {
        self.expect_settings(head)?;
        self.expect_no_block()?;
        let len = head.len as u32;
        let left = self.receive_window.checked_sub(len);
        self.receive_window = left.ok_or(ErrorCode::FlowControl)?;
        self.taken_bytes += len;
        if self.taken_bytes >= WINDOW_UPDATE_BYTES {
            let taken = std::mem::take(&mut self.taken_bytes);
            self.receive_window += taken;
            self.output.window_update(0, taken);
        }
        let Some(slot) = self.open_stream(head)? else {
            return Ok(None);
        };
        let stream = self.streams.get(slot);
        if stream.status == 0 {
            return Ok(Some(
                self.failed(slot, StreamFault::Malformed("content before a status")),
            ));
        }
        let left = stream.receive_window.checked_sub(len);
        stream.receive_window = left.ok_or(ErrorCode::FlowControl)?;
        stream.taken_bytes += len;
        if stream.taken_bytes >= WINDOW_UPDATE_BYTES && !head.has(flags::END_STREAM) {
            let taken = std::mem::take(&mut stream.taken_bytes);
            stream.receive_window += taken;
            self.output.window_update(head.stream, taken);
        }
        self.receiving = Some(slot);
        Ok(None)
    }

    #[inline]
    fn content(&mut self, bytes: &[u8], observer: &mut impl StreamObserver) -> Option<ClientEvent> {
        let slot = self.receiving?;
        let stream = self.streams.get(slot);
        stream.content_bytes += bytes.len() as u64;
        let most = stream.expected_bytes();
        if most.is_some_and(|most| stream.content_bytes > most) {
            return Some(self.failed(slot, StreamFault::Long));
        }
        observer.content(slot, bytes);
        None
    }

    /// A response or its trailers begin (section 6.2).
    #[inline]
    fn headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        limits: &Limits,
        observer: &mut impl StreamObserver,
    ) -> Result<Option<ClientEvent>, ConnectionFault> {
        self.expect_settings(head)?;
        self.expect_no_block()?;
        let block = unwrapped(head, payload)?;
        if head.has(flags::END_HEADERS) {
            return self.fields(head, block, limits, observer);
        }
        self.block.begin(head, block);
        Ok(None)
    }

    /// A whole field block.
    #[inline]
    fn fields(
        &mut self,
        head: FrameHead,
        block: &[u8],
        limits: &Limits,
        observer: &mut impl StreamObserver,
    ) -> Result<Option<ClientEvent>, ConnectionFault> {
        let slot = self.open_stream(head)?;
        let mut fields = ResponseFields::default();
        let decoded = match slot {
            // It may change the table, whoever it is for.
            None => self.decoder.decode(block, &mut self.field, |_, _| ()),
            Some(slot) => {
                observer.begun(slot);
                let of_final = self.streams.get(slot).status;
                self.decoder.decode(block, &mut self.field, |name, value| {
                    fields.field(name, value, limits.fields_max);
                    let status = if of_final == 0 {
                        fields.status
                    } else {
                        of_final
                    };
                    observer.field(slot, status, name, value);
                })
            }
        };
        decoded.map_err(|_| ErrorCode::Compression)?;
        Ok(slot.and_then(|slot| self.response(slot, head, &fields, limits)))
    }

    #[inline]
    fn response(
        &mut self,
        slot: u32,
        head: FrameHead,
        fields: &ResponseFields,
        limits: &Limits,
    ) -> Option<ClientEvent> {
        let ends = head.has(flags::END_STREAM);
        let stream = self.streams.get(slot);
        stream.has_begun = true;
        let fault = match (fields.fault, stream.status, fields.status) {
            (Some(text), ..) => Some(text),
            (None, 0, 0) => Some("a response without a status"),
            (None, 0, 101) => Some("a change of protocol without a request"),
            (None, 0, ..200) if ends => Some("an interim response that ends the stream"),
            (None, 0, ..200) => {
                stream.interim_count += 1;
                let is_much = stream.interim_count > limits.interim_answers_max;
                is_much.then_some("more interim responses than allowed")
            }
            (None, 0, status) => {
                (stream.status, stream.length) = (status, fields.length);
                None
            }
            // Trailers (section 8.1).
            (None, _, 0) if ends => None,
            (None, ..) => Some("trailers with a status, or that do not end the stream"),
        };
        match fault {
            Some(text) => Some(self.failed(slot, StreamFault::Malformed(text))),
            None => ends.then(|| self.complete(slot)),
        }
    }

    /// The server has ended a stream.
    #[inline]
    fn complete(&mut self, slot: u32) -> ClientEvent {
        let stream = *self.streams.get(slot);
        let is_short = stream
            .expected_bytes()
            .is_some_and(|all| stream.content_bytes < all);
        if is_short {
            return self.failed(slot, StreamFault::Short);
        }
        match stream.has_body() {
            // It has answered without all of the content, and may not take the rest (section 8.1).
            true => self.give_up(slot, ErrorCode::Cancel),
            false => self.close(slot),
        }
        let reply = stream.reply();
        ClientEvent::Reply { slot, reply }
    }

    /// Frames that a response seldom has.
    #[cold]
    fn other_frame(
        &mut self,
        head: FrameHead,
        payload: &FramePayload<'_>,
        limits: &Limits,
        observer: &mut impl StreamObserver,
    ) -> Result<Option<ClientEvent>, ConnectionFault> {
        self.expect_settings(head)?;
        let payload = payload.bytes();
        if self.block.is_open() || head.kind == Kind::Continuation {
            return match self.block.go_on(head, payload)? {
                None => Ok(None),
                Some((begun, block)) => self.fields(begun, &block, limits, observer),
            };
        }
        match head.kind {
            Kind::Settings if head.has(flags::ACK) => {}
            Kind::Settings => return self.settings(payload).map(Some),
            Kind::Ping if head.has(flags::ACK) => {}
            Kind::Ping => self.output.answer(Kind::Ping, flags::ACK, payload),
            Kind::GoAway => {
                let last_id = number(payload) & WINDOW_BYTES_MAX;
                // It may become smaller, and never larger (section 6.8).
                self.last_id = Some(self.last_id.map_or(last_id, |before| before.min(last_id)));
                return Ok(Some(ClientEvent::GoingAway));
            }
            Kind::RstStream => {
                return Ok(self.open_stream(head)?.map(|slot| {
                    self.close(slot);
                    let fault = StreamFault::Reset(number(payload));
                    ClientEvent::Failed { slot, fault }
                }));
            }
            Kind::WindowUpdate if head.stream == 0 => self.output.widened(payload)?,
            Kind::WindowUpdate => return self.stream_widened(head, payload),
            Kind::PushPromise => return Err("a push that was not allowed".into()),
            Kind::PriorityUpdate => return Err("a priority of the server's".into()),
            _ => {}
        }
        Ok(None)
    }

    fn settings(&mut self, payload: &[u8]) -> Result<ClientEvent, ConnectionFault> {
        let change = self.output.settings(payload)?;
        if change != 0 && !self.streams.change_windows(change) {
            return Err(ErrorCode::FlowControl.into());
        }
        let all = Setting::parse_all(payload);
        let said = all
            .filter(|it| it.id == Setting::MAX_CONCURRENT_STREAMS)
            .last();
        match said {
            Some(setting) => self.streams_max = setting.value,
            // Without a word of it there is no bound.
            None if !self.is_established => self.streams_max = u32::MAX,
            None => {}
        }
        self.is_established = true;
        Ok(ClientEvent::Settings)
    }

    fn stream_widened(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<ClientEvent>, ConnectionFault> {
        let Some(slot) = self.stream_of(head)? else {
            return Ok(None);
        };
        let stream = self.streams.get(slot);
        let by = increment(payload);
        stream.send_window += i64::from(by.unwrap_or(0));
        let is_sound = by.is_some() && stream.send_window <= i64::from(WINDOW_BYTES_MAX);
        let fault = StreamFault::Malformed("a window that grows by nothing, or beyond its bound");
        Ok((!is_sound).then(|| self.failed(slot, fault)))
    }

    /// The slot of a frame's stream; `None`: it is over, and what the server still says of it is passed
    /// over.
    fn stream_of(&mut self, head: FrameHead) -> Result<Option<u32>, ConnectionFault> {
        match self.streams.find(head.stream) {
            Found::Open(slot) => Ok(Some(slot)),
            Found::Closed => Ok(None),
            Found::Idle => Err("a frame of a stream that was not begun".into()),
        }
    }

    /// The same of a frame that a stream can have no more once the server has ended it.
    #[inline]
    fn open_stream(&mut self, head: FrameHead) -> Result<Option<u32>, ConnectionFault> {
        let slot = self.stream_of(head)?;
        match slot {
            None if !self.has_cancelled && head.kind != Kind::RstStream => {
                Err(ErrorCode::StreamClosed.into())
            }
            slot => Ok(slot),
        }
    }

    /// The server's first frame is SETTINGS (section 3.4).
    #[inline]
    fn expect_settings(&self, head: FrameHead) -> Result<(), ConnectionFault> {
        let is_first = head.kind == Kind::Settings && !head.has(flags::ACK);
        match self.is_established || is_first {
            true => Ok(()),
            false => Err("the connection does not begin with SETTINGS".into()),
        }
    }

    /// Nothing comes between the frames of a block (section 6.10).
    #[inline]
    fn expect_no_block(&self) -> Result<(), ConnectionFault> {
        match self.block.is_open() {
            false => Ok(()),
            true => Err("a frame between those of a field block".into()),
        }
    }

    /// The client cannot make use of a response.
    #[cold]
    fn failed(&mut self, slot: u32, fault: StreamFault) -> ClientEvent {
        self.give_up(slot, ErrorCode::Protocol);
        ClientEvent::Failed { slot, fault }
    }

    /// Ends a stream because of what the server has sent.
    fn give_up(&mut self, slot: u32, code: ErrorCode) {
        self.end_stream(slot, code);
        self.output.count_answer();
    }

    pub(super) fn end_stream(&mut self, slot: u32, code: ErrorCode) {
        self.output.reset(self.streams.id(slot), code);
        self.close(slot);
        self.has_cancelled = true;
    }

    /// A stream is over; what still comes of a frame of it is of none.
    #[inline]
    pub(super) fn close(&mut self, slot: u32) {
        self.streams.close(slot);
        if self.receiving == Some(slot) {
            self.receiving = None;
        }
    }

    #[cold]
    pub(super) fn fault(&mut self, fault: ConnectionFault) -> ClientEvent {
        self.output.go_away(fault.code);
        self.is_over = true;
        ClientEvent::Fault(fault.text)
    }
}

/// What ends a connection.
pub(super) struct ConnectionFault {
    pub(super) code: ErrorCode,
    pub(super) text: &'static str,
}

impl From<ErrorCode> for ConnectionFault {
    fn from(code: ErrorCode) -> Self {
        let text = match code {
            ErrorCode::FlowControl => "more than a window has room for",
            ErrorCode::StreamClosed => "a frame of a stream that is over",
            ErrorCode::FrameSize => "a frame of the wrong size",
            ErrorCode::Compression => "a field block that cannot be decoded",
            ErrorCode::EnhanceYourCalm => "more than a client takes",
            _ => "a frame that is malformed or out of place",
        };
        Self { code, text }
    }
}

impl From<&'static str> for ConnectionFault {
    fn from(text: &'static str) -> Self {
        let code = ErrorCode::Protocol;
        Self { code, text }
    }
}
