//! Frames that say how others are sent: settings, windows and priorities (RFC 9113 sections 6.3, 6.5, 6.9).

use super::ending::{Failure, Parsed};
use super::{CONNECTION, Http2Session};
use crate::http2::frame::{
    ErrorCode, FrameHead, Kind, PAYLOAD_BYTES_MAX, Setting, WINDOW_BYTES, WINDOW_BYTES_MAX, flags,
    number,
};
use crate::http2::priority::Priority;
use crate::http2::stream::Phase;
use crate::{Context, StreamId};

impl Http2Session {
    /// The server's settings, which come first (section 3.4).
    pub(super) fn introduce(&mut self, cx: &mut Context<'_>) {
        let limits = &self.config.limits;
        let setting = |id, value| Setting { id, value };
        let settings = [
            setting(Setting::MAX_CONCURRENT_STREAMS, limits.streams_max),
            setting(
                Setting::INITIAL_WINDOW_SIZE,
                super::stream_window(limits.stream_window_bytes),
            ),
            setting(
                Setting::MAX_HEADER_LIST_SIZE,
                u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX),
            ),
            setting(Setting::NO_RFC7540_PRIORITIES, 1),
        ];
        let more = limits.connection_window_bytes.saturating_sub(WINDOW_BYTES);
        self.output.settings(&settings, cx);
        if more > 0 {
            self.output.window_update(CONNECTION, more, cx);
        }
    }

    /// Section 6.5.
    pub(super) fn settings(&mut self, payload: &[u8], cx: &mut Context<'_>) -> Parsed {
        self.spend(cx)?;
        for setting in Setting::parse_all(payload) {
            setting
                .check()
                .map_err(|code| Failure(code, "a setting that cannot be"))?;
            match setting.id {
                Setting::HEADER_TABLE_SIZE => self.encoder.resize(setting.value as usize),
                Setting::INITIAL_WINDOW_SIZE => {
                    self.spend(cx)?; // each goes over all streams, and a frame can have thousands
                    self.resize_windows(setting.value)?;
                }
                _ => {}
            }
        }
        self.output
            .frame(Kind::Settings, flags::ACK, CONNECTION, &[], cx);
        Ok(())
    }

    /// Section 6.9.2: windows of streams change by the difference.
    fn resize_windows(&mut self, size: u32) -> Parsed {
        let more = i64::from(size) - i64::from(self.stream_send_window);
        self.stream_send_window = size;
        for stream in self.streams.iter_mut() {
            stream.send_window += more;
            if stream.send_window > i64::from(WINDOW_BYTES_MAX) {
                return Err(Failure(ErrorCode::FlowControl, "a window beyond its limit"));
            }
        }
        Ok(())
    }

    /// Section 6.9.
    pub(super) fn window_update(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        cx: &mut Context<'_>,
    ) -> Parsed {
        let id = StreamId(head.stream);
        let more = i64::from(number(payload) & WINDOW_BYTES_MAX);
        let most = i64::from(WINDOW_BYTES_MAX);
        if id == CONNECTION {
            self.send_window += more;
            return match (more, self.send_window > most) {
                (0, _) => Err(Failure(ErrorCode::Protocol, "a window grows by nothing")),
                (_, true) => Err(Failure(ErrorCode::FlowControl, "a window beyond its limit")),
                _ => Ok(()),
            };
        }
        if !self.is_taken(head, cx)? {
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(()); // those that take it are there
        };
        stream.send_window += more;
        match (more, stream.send_window > most) {
            (0, _) => self.refuse_stream(id, ErrorCode::Protocol, cx),
            (_, true) => self.refuse_stream(id, ErrorCode::FlowControl, cx),
            _ => Ok(()),
        }
    }

    /// Section 6.3. The priorities of RFC 7540 are not used.
    pub(super) fn priority(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        cx: &mut Context<'_>,
    ) -> Parsed {
        self.spend(cx)?;
        let id = StreamId(head.stream);
        match payload.len() {
            5 if depends_on_itself(head, payload) => {
                Err(Failure(ErrorCode::Protocol, "a stream depends on itself"))
            }
            5 => Ok(()),
            _ if self.streams.get_mut(id).is_some() => {
                self.refuse_stream(id, ErrorCode::FrameSize, cx)
            }
            _ => Err(Failure(
                ErrorCode::FrameSize,
                "a PRIORITY frame of a wrong length",
            )),
        }
    }

    /// RFC 9218 section 7.1.
    pub(super) fn priority_update(&mut self, payload: &[u8], cx: &Context<'_>) -> Parsed {
        self.spend(cx)?;
        let id = StreamId(number(payload) & WINDOW_BYTES_MAX);
        if id.0.is_multiple_of(2) {
            // Even numbers are the server's, which pushes nothing.
            return Err(Failure(ErrorCode::Protocol, "a priority for no stream"));
        }
        let priority = Priority::parse(&payload[4..]);
        if let Some(stream) = self.streams.get(id) {
            let is_other = stream.priority.urgency != priority.urgency;
            if is_other && stream.is_due && !self.peer_is_trusted() {
                self.due.change(id, priority.urgency);
            }
            self.streams.set_priority(id, priority);
        } else if id.0 > self.last_stream {
            return self.keep_priority(id, priority);
        }
        Ok(())
    }

    /// The request to which it belongs is still to come. There may be no more such streams, together with
    /// those that are open, than may be open.
    fn keep_priority(&mut self, id: StreamId, priority: Priority) -> Parsed {
        let last_stream = self.last_stream;
        let kept = &mut self.early_priorities;
        kept.retain(|(of, _)| of.0 > last_stream && *of != id);
        let streams = self.streams.iter();
        let open_count = streams.filter(|it| it.phase != Phase::Reset).count();
        if open_count + kept.len() >= self.config.limits.streams_max as usize {
            return Err(Failure(
                ErrorCode::Protocol,
                "more priorities before their requests than there may be streams",
            ));
        }
        kept.push((id, priority));
        Ok(())
    }

    /// What came before a request is newer than its field, which was made with it.
    pub(super) fn early_priority(&mut self, id: StreamId) -> Option<Priority> {
        let at = (self.early_priorities.iter()).position(|(of, _)| *of == id)?;
        Some(self.early_priorities.swap_remove(at).1)
    }

    /// The client may send so much more.
    pub(super) fn give_credit(&mut self, id: StreamId, bytes: u32, cx: &mut Context<'_>) {
        self.credit += bytes;
        let window = super::stream_window(self.config.limits.stream_window_bytes);
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        stream.credit += bytes;
        // Gathered content is not given back before its task begins: what else there is may be needed.
        let is_gathered = matches!(stream.phase, Phase::Collect { for_task: true, .. });
        let is_short = is_gathered && (stream.window as usize) < PAYLOAD_BYTES_MAX;
        let is_worth_it = stream.credit >= window.div_ceil(2);
        if !stream.has_all && (is_worth_it || is_short && stream.credit > 0) {
            let more = std::mem::take(&mut stream.credit);
            stream.window += more;
            self.output.window_update(id, more, cx);
        }
    }

    /// The same for the connection, once it is worth a frame, or if little is left: what apps have not read
    /// may keep the credit small for long.
    pub(super) fn use_credit(&mut self, cx: &mut Context<'_>) {
        let is_worth_it = self.credit >= self.config.limits.connection_window_bytes.div_ceil(2);
        if is_worth_it || self.credit > 0 && self.is_window_short() {
            let more = std::mem::take(&mut self.credit);
            if let Some(since) = self.shut_since.take() {
                self.excuse_silence(since, cx.now);
            }
            self.window += more;
            self.output.window_update(CONNECTION, more, cx);
        }
    }

    /// Whether the client may send less than a frame's payload on all streams together.
    pub(super) fn is_window_short(&self) -> bool {
        (self.window as usize) < PAYLOAD_BYTES_MAX
    }
}

/// What RFC 7540 section 5.3.1 forbids.
pub(super) fn depends_on_itself(head: FrameHead, payload: &[u8]) -> bool {
    let padding = usize::from(head.kind == Kind::Headers && head.has(flags::PADDED));
    let parent = payload.get(padding..padding + 4);
    parent.is_some_and(|bytes| number(bytes) & WINDOW_BYTES_MAX == head.stream)
}
