//! Clients that play a file as a video player does: by range requests, at the pace of the video.
//!
//! Each virtual user plays the file of its request at a constant bit rate, whatever the file is:
//!
//! - It asks for segments of 2 s of video, one after the other, on a connection that stays. The
//!   first answer says how long the file is (Content-Range); after its end the file is played from
//!   its begin again.
//! - It starts to play when 2 s are there; bytes count as they come, not when a segment is whole.
//! - It keeps up to 10 s ahead: a segment is asked for when there is room for it (due then), so that
//!   in the steady state each player sends a request every 2 s.
//! - When nothing is left to be played it stalls, until 2 s are there again. Stalls and their time
//!   are counted (`Tally::stalls`, `Tally::stalled_ns`), the time before the first picture is not.
//!
//! The latency of each range request is recorded: from due to its last byte. A segment that is slow
//! is no error but may be a stall; one that does not go on for the timeout is a timeout. After a
//! failure the player goes on from the last byte that it got, after a pause of 10 ms in the mean,
//! doubling up to 1 s while connections last less than a second.
//!
//! Only a 206 with the range that was asked for is good; another range is `wrong_content`. A server
//! that sends the whole file instead (200, `other_status`) is cut off. After an answer that is no
//! part of the video the player tries again after a second.

use loadline_load::Expectation;
use loadline_proto::ReplyObserver;
use loadline_record::ErrorKind;

use crate::caller::{self, Behaviour, Caller};
use crate::{Event, ExchangeProgress, Order, RequestSpec, UserContext, UserGroup, Watch};

mod buffer;
mod range;
#[cfg(test)]
mod tests;

use buffer::Buffer;

/// What is received at once.
const RECEIVE_BYTES: usize = 64 << 10;
/// A stall that lasts is counted at least this often, so that each second shows its own.
const COUNTED_EVERY_NS: u64 = 1_000_000_000;
/// How long it stays away from a server that has answered with no part of the video.
const PAUSE_NS: u64 = 1_000_000_000;

/// Users of this group play the file of the request at `bits_per_second`; the expectation is a
/// player's own.
#[must_use]
pub fn user_group(bits_per_second: u64, mut spec: RequestSpec) -> UserGroup {
    spec.expectation = Expectation {
        statuses: vec![206],
        ..Expectation::default()
    };
    caller::user_group(spec, move |_, _| Player::new(bits_per_second))
}

#[derive(Default)]
struct Player {
    bits_per_second: u64,
    /// From the first connection on, or from the failure to get one.
    buffer: Option<Buffer>,
    /// Where in the file it fetches.
    next_byte: u64,
    length: Option<u64>,
    look: Look,
    /// When there will be room for the next segment, while it waits for that.
    room_ns: Option<u64>,
    /// The run is over, and time was accounted for up to its end.
    is_off: bool,
}

/// Looks at an answer while it passes.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    /// What was asked for, both included.
    first_byte: u64,
    last_byte: u64,
    /// It is that part of the video.
    is_video: bool,
    fault: Option<ErrorKind>,
    length: Option<u64>,
    /// Bytes of video of the piece at hand.
    video_bytes: u64,
}

impl Look {
    fn is_asked(&self, sent: range::Sent) -> bool {
        // The end of the file may come before the end of what was asked for.
        let is_last = sent.length.is_some_and(|length| length - 1 == sent.last);
        let is_cut = is_last && sent.last < self.last_byte;
        sent.first == self.first_byte && (sent.last == self.last_byte || is_cut)
    }
}

impl ReplyObserver for Look {
    fn head(&mut self, head: &[u8]) {
        match head.get(9..12) {
            Some(b"206") => {}
            Some([b'2', ..]) => {
                self.fault = Some(ErrorKind::OtherStatus);
                return;
            }
            _ => return, // judged by its status
        }
        match range::sent(head) {
            Some(sent) if self.is_asked(sent) => {
                self.is_video = true;
                self.length = sent.length;
            }
            _ => self.fault = Some(ErrorKind::WrongContent),
        }
    }

    fn content(&mut self, piece: &[u8]) {
        if self.is_video {
            self.video_bytes += piece.len() as u64;
        }
    }
}

impl Watch for Look {
    fn fault(&self) -> Option<ErrorKind> {
        self.fault
    }
}

impl Player {
    fn new(bits_per_second: u64) -> Self {
        Self {
            bits_per_second,
            ..Self::default()
        }
    }

    /// Time has passed, and perhaps bytes were received; counts new stalls.
    fn advance(&mut self, video_bytes: u64, context: &mut UserContext<'_>) {
        let Some(buffer) = &mut self.buffer else {
            return;
        };
        if std::mem::replace(&mut self.is_off, context.is_ending) {
            return;
        }
        let before = (buffer.stalls, buffer.stalled_ns);
        buffer.fetched(video_bytes, context.now_ns);
        let now = (buffer.stalls, buffer.stalled_ns);
        if now != before {
            let tally = context.recorder.tally(context.phase);
            tally.stalls += now.0 - before.0;
            tally.stalled_ns += now.1 - before.1;
        }
    }

    /// Asks for the next segment.
    fn ask(&mut self, caller: &mut Caller, context: &mut UserContext<'_>) -> Order {
        caller.sends(context);
        let bytes = self.buffer.as_ref().map_or(1, Buffer::segment_bytes);
        if self.length.is_some_and(|length| self.next_byte >= length) {
            self.next_byte = 0;
        }
        let first_byte = self.next_byte;
        let end_byte = self.length.unwrap_or(u64::MAX).saturating_sub(1);
        let last_byte = first_byte.saturating_add(bytes - 1).min(end_byte);
        self.look = Look {
            first_byte,
            last_byte,
            ..Look::default()
        };
        Order::Send(range::asking(caller.request(), first_byte, last_byte))
    }

    /// Waits for more of the answer, but not beyond the moment in which the picture stops.
    fn listen(&self, caller: &mut Caller, context: &UserContext<'_>) -> Order {
        let empty_ns = self.buffer.as_ref().and_then(Buffer::empty_ns);
        let empty_ns = empty_ns.filter(|ns| *ns > context.now_ns);
        let counted_ns = context.now_ns.saturating_add(COUNTED_EVERY_NS);
        Order::ReceiveUntil {
            bytes_max: RECEIVE_BYTES,
            ns: caller
                .silent_until_ns(context)
                .min(counted_ns)
                .min(empty_ns.unwrap_or(u64::MAX)),
        }
    }

    fn received(&mut self, bytes: &[u8], caller: &mut Caller, context: &mut UserContext<'_>) {
        self.look.video_bytes = 0;
        let progress = caller.received(bytes, &mut self.look, true, context);
        let look = self.look;
        self.next_byte = self.next_byte.saturating_add(look.video_bytes);
        self.length = look.length.or(self.length);
        self.advance(look.video_bytes, context);
        let until_ns = context.now_ns.saturating_add(PAUSE_NS);
        match (progress, look.fault) {
            (ExchangeProgress::Complete(_), _) if !look.is_video => {
                (self.next_byte, self.length) = (0, None); // the file may have changed
                caller.vanish(false, until_ns, context);
            }
            (ExchangeProgress::More, Some(kind)) => {
                caller.fail(kind, context);
                caller.vanish(true, until_ns, context);
            }
            _ => {}
        }
    }
}

impl Behaviour for Player {
    const WAITS_AT_END: bool = true;

    /// Waits until there is room for a segment, which is due then.
    fn first(&mut self, caller: &mut Caller, context: &mut UserContext<'_>) -> Option<Order> {
        self.advance(0, context);
        if !caller.is_free() || context.is_ending {
            return None;
        }
        let room_ns = self.buffer.as_ref().map_or(0, Buffer::room_ns);
        if room_ns > context.now_ns {
            self.room_ns = Some(room_ns);
            return Some(Order::SleepUntil { ns: room_ns });
        }
        if let Some(due_ns) = self.room_ns.take() {
            caller.exchange.due(due_ns, context);
        }
        None
    }

    fn next_order(&mut self, caller: &mut Caller, context: &mut UserContext<'_>) -> Order {
        match caller.exchange.is_out() {
            true => self.listen(caller, context),
            false => self.ask(caller, context),
        }
    }

    fn on_event(&mut self, caller: &mut Caller, event: Event<'_>, context: &mut UserContext<'_>) {
        match event {
            Event::Received(bytes) => return self.received(bytes, caller, context),
            Event::Connected | Event::Failed(_) => {
                let begun = || Buffer::new(self.bits_per_second, context.now_ns);
                self.buffer.get_or_insert_with(begun);
            }
            _ => {}
        }
        caller.on_event(event, context);
    }
}
