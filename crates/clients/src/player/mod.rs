//! Clients that play a file as a video player does: by range requests, paced by the picture.
//!
//! Each member plays the file of its request at a constant bit rate, whatever the file is:
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
//! failure the player goes on from the last byte that it got, after a pause of 10 ms, doubling up to
//! 1 s while connections last less than a second.
//!
//! Only a 206 with the range that was asked for is good; another range is `wrong_content`. A server
//! that sends the whole file instead (200, `other_status`) is cut off. After an answer that is no
//! part of the video the player tries again after a second.

use std::sync::Arc;

use loadline_load::Expectation;
use loadline_proto::ReplyObserver;
use loadline_record::ErrorKind;

use crate::{Caller, Order, Progress, RequestSpec, UserContext, UserGroup, VirtualUser, Watch};

pub mod buffer;
mod range;
#[cfg(test)]
mod tests;

use buffer::Buffer;

/// What is received at once.
const RECEIVE_BYTES: usize = 64 << 10;
/// How often a stall that lasts is counted at least, so that each second shows its own.
const TOLD_NS_MAX: u64 = 1_000_000_000;
/// How long it stays away from a server that has answered with no part of the video.
const PAUSE_NS: u64 = 1_000_000_000;

/// Members of this user group play the file of the request at `bits_per_second`. For `server` and
/// `group` see [`UserGroup`]; the expectation is a player's own.
#[must_use]
pub fn user_group(
    group: u16,
    server: u16,
    count: u64,
    bits_per_second: u64,
    spec: RequestSpec,
) -> UserGroup {
    let spec = Arc::new(RequestSpec {
        expectation: Expectation {
            statuses: vec![206],
            ..Expectation::default()
        },
        ..spec
    });
    let make =
        Arc::new(move |_, _| Box::new(Player::new(&spec, bits_per_second)) as Box<dyn VirtualUser>);
    UserGroup::new(group, server, count, make)
}

struct Player {
    caller: Caller,
    bits_per_second: u64,
    /// From the first connection on, or from the failure to get one.
    buffer: Option<Buffer>,
    /// Where in the file it fetches.
    next_byte: u64,
    length: Option<u64>,
    look: Look,
    /// What was counted of stalls: how many, and nanoseconds.
    reported: (u64, u64),
    /// When there will be room for the next segment, while it waits for that.
    room_ns: Option<u64>,
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
    fn for_range(first_byte: u64, last_byte: u64) -> Self {
        Self {
            first_byte,
            last_byte,
            ..Self::default()
        }
    }

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
    fn new(spec: &Arc<RequestSpec>, bits_per_second: u64) -> Self {
        Self {
            caller: Caller::new(Arc::clone(spec), true),
            bits_per_second,
            buffer: None,
            next_byte: 0,
            length: None,
            look: Look::default(),
            reported: (0, 0),
            room_ns: None,
        }
    }

    /// Time has passed, and perhaps bytes came; what is new of stalls is counted.
    fn advance(&mut self, video_bytes: u64, context: &mut UserContext<'_>) {
        let Some(buffer) = &mut self.buffer else {
            return;
        };
        if context.is_ending {
            return; // the picture is off
        }
        buffer.fetched(video_bytes, context.now_ns);
        let now = (buffer.stalls(), buffer.stalled_ns());
        let before = std::mem::replace(&mut self.reported, now);
        if now != before {
            let tally = context.recorder.tally(context.phase);
            tally.stalls += now.0 - before.0;
            tally.stalled_ns += now.1 - before.1;
        }
    }

    /// The player has begun, whether it got its connection or not.
    fn begin(&mut self, context: &UserContext<'_>) {
        let (rate, now_ns) = (self.bits_per_second, context.now_ns);
        self.buffer.get_or_insert_with(|| Buffer::new(rate, now_ns));
    }

    /// When there is room for a segment, if that is later than now.
    fn full_until_ns(&mut self, now_ns: u64) -> Option<u64> {
        let room_ns = self.buffer.as_ref()?.room_ns();
        let full_until_ns = (room_ns > now_ns).then_some(room_ns);
        self.room_ns = full_until_ns.or(self.room_ns);
        full_until_ns
    }

    /// Asks for the next segment.
    fn ask(&mut self, context: &mut UserContext<'_>) -> Order {
        self.caller.sends(context);
        let bytes = self.buffer.as_ref().map_or(1, Buffer::segment_bytes);
        if self.length.is_some_and(|length| self.next_byte >= length) {
            self.next_byte = 0;
        }
        let first_byte = self.next_byte;
        let last_byte = first_byte.saturating_add(bytes - 1);
        let end_byte = self.length.unwrap_or(u64::MAX).saturating_sub(1);
        self.look = Look::for_range(first_byte, last_byte.min(end_byte));
        let request = &self.caller.spec().request.keep;
        Order::Send(range::asking(request, first_byte, self.look.last_byte))
    }

    /// Waits for more of the answer, but not beyond the moment in which the picture stops.
    fn listen(&mut self, context: &UserContext<'_>) -> Order {
        let silent_until_ns = self.caller.silent_until_ns(context);
        let empty_ns = self.buffer.as_ref().and_then(Buffer::empty_ns);
        let empty_ns = empty_ns.filter(|ns| *ns > context.now_ns);
        let told_ns = context.now_ns.saturating_add(TOLD_NS_MAX);
        Order::ReceiveUntil {
            bytes_max: RECEIVE_BYTES,
            ns: silent_until_ns
                .min(told_ns)
                .min(empty_ns.unwrap_or(u64::MAX)),
        }
    }
}

impl VirtualUser for Player {
    fn next_order(&mut self, context: &mut UserContext<'_>) -> Order {
        self.advance(0, context);
        if self.caller.is_free() && !context.is_ending {
            if let Some(ns) = self.full_until_ns(context.now_ns) {
                return Order::SleepUntil { ns };
            }
            if let Some(due_ns) = self.room_ns.take() {
                self.caller.due_at(due_ns, context);
            }
        }
        self.caller.due_before_connecting(context);
        if let Some(order) = self.caller.order(context) {
            return order;
        }
        match self.caller.exchange().is_out() {
            true => self.listen(context),
            false => self.ask(context),
        }
    }

    fn connected(&mut self, context: &mut UserContext<'_>) {
        self.begin(context);
        self.caller.connected(context);
    }

    fn sent(&mut self, _context: &mut UserContext<'_>) {}

    fn received(&mut self, bytes: &[u8], context: &mut UserContext<'_>) {
        self.look.video_bytes = 0;
        let progress = self.caller.received(bytes, &mut self.look, true, context);
        let look = self.look;
        self.next_byte = self.next_byte.saturating_add(look.video_bytes);
        self.length = look.length.or(self.length);
        self.advance(look.video_bytes, context);
        match (progress, look.fault) {
            (Progress::Complete(_), _) if !look.is_video => {
                (self.next_byte, self.length) = (0, None); // the file may have changed
                let until_ns = context.now_ns.saturating_add(PAUSE_NS);
                self.caller.vanish(false, until_ns, context);
            }
            (Progress::More, Some(kind)) => {
                self.caller.fail(kind, context);
                let until_ns = context.now_ns.saturating_add(PAUSE_NS);
                self.caller.vanish(true, until_ns, context);
            }
            _ => {}
        }
    }

    fn woken(&mut self, context: &mut UserContext<'_>) {
        self.caller.woken(context);
    }

    fn closed(&mut self, context: &mut UserContext<'_>) {
        let _ = self.caller.closed(context);
    }

    fn failed(&mut self, kind: ErrorKind, context: &mut UserContext<'_>) {
        self.begin(context);
        self.caller.failed(kind, context);
    }

    fn abandoned(&mut self, context: &mut UserContext<'_>) {
        self.caller.abandoned(context);
    }

    fn requests_out(&self) -> u32 {
        self.caller.requests_out()
    }
}
