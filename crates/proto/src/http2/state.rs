//! The states of a stream, and which frames lead from one to another: figure 2 of RFC 9113 (section
//! 5.1) as a server goes through it, which pushes nothing. The same tables stand in
//! `docs/supported-http.md`.
//!
//! PRIORITY is not in them: it may come in each state, and changes none (section 5.1).

use super::frame::{ErrorCode, FrameHead, Kind, flags};

/// Where a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing has been sent: its number is higher than that of every stream before, or one that only
    /// servers begin.
    Idle,
    /// The request has begun and not ended, and so has, or will, the response.
    Open,
    /// The response has ended before the request.
    HalfClosedLocal,
    /// The request has ended.
    HalfClosedRemote,
    /// It was reset a moment ago: frames that the client sent before it knew are on their way.
    Reset,
    /// Both have ended.
    Closed,
}

/// A frame of the client's for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A field block, complete.
    Headers,
    /// The same with END_STREAM.
    HeadersEnd,
    /// Content.
    Data,
    /// The same with END_STREAM.
    DataEnd,
    /// RST_STREAM.
    RstStream,
    /// WINDOW_UPDATE.
    WindowUpdate,
}

/// A frame of the server's for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// HEADERS or DATA with END_STREAM.
    EndStream,
    /// RST_STREAM.
    RstStream,
}

/// What a frame does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is taken; the stream is in this state then.
    Enter(State),
    /// It changes nothing. Field blocks are decoded all the same, and content counts for the
    /// connection's window.
    Ignored,
    /// The stream is reset (section 5.4.2).
    StreamError(ErrorCode),
    /// The connection ends (section 5.4.1).
    ConnectionError(ErrorCode),
}

/// What a frame does, and the section of RFC 9113 that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// What it does.
    pub effect: Effect,
    /// Where that is said.
    pub section: &'static str,
}

impl State {
    /// In the order of the figure.
    pub const ALL: [Self; 6] = [
        Self::Idle,
        Self::Open,
        Self::HalfClosedLocal,
        Self::HalfClosedRemote,
        Self::Reset,
        Self::Closed,
    ];

    /// As the standard calls it; `reset` is a part of its `closed`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Open => "open",
            Self::HalfClosedLocal => "half-closed (local)",
            Self::HalfClosedRemote => "half-closed (remote)",
            Self::Reset => "closed by RST_STREAM",
            Self::Closed => "closed",
        }
    }

    /// What a frame of the client's does.
    #[must_use]
    pub const fn receive(self, frame: Received) -> Transition {
        use Effect::{ConnectionError, Enter, Ignored, StreamError};
        use ErrorCode::{Protocol, StreamClosed};
        use Received::{Data, DataEnd, Headers, HeadersEnd, RstStream, WindowUpdate};
        use State::{Closed, HalfClosedLocal, HalfClosedRemote, Idle, Open, Reset};
        let (effect, section) = match (self, frame) {
            (Idle, Headers) => (Enter(Open), "5.1"),
            (Idle, HeadersEnd) => (Enter(HalfClosedRemote), "5.1"),
            (Idle, Data | DataEnd) => (ConnectionError(Protocol), "5.1"),
            (Idle, RstStream) => (ConnectionError(Protocol), "6.4"),
            (Idle, WindowUpdate) => (ConnectionError(Protocol), "5.1"),

            (Open | HalfClosedLocal, Headers) => (StreamError(Protocol), "8.1"),
            (Open, HeadersEnd) => (Enter(HalfClosedRemote), "8.1"),
            (Open, Data) => (Enter(Open), "6.1"),
            (Open, DataEnd) => (Enter(HalfClosedRemote), "5.1"),
            (Open, WindowUpdate) => (Enter(Open), "6.9"),

            (HalfClosedLocal, HeadersEnd) => (Enter(Closed), "8.1"),
            (HalfClosedLocal, Data) => (Enter(HalfClosedLocal), "6.1"),
            (HalfClosedLocal, DataEnd) => (Enter(Closed), "5.1"),
            (HalfClosedLocal, WindowUpdate) => (Enter(HalfClosedLocal), "5.1"),

            (HalfClosedRemote, Headers | HeadersEnd | Data | DataEnd) => {
                (StreamError(StreamClosed), "5.1")
            }
            (HalfClosedRemote, WindowUpdate) => (Enter(HalfClosedRemote), "5.1"),

            (Open | HalfClosedLocal | HalfClosedRemote, RstStream) => (Enter(Closed), "6.4"),

            (Reset, _) => (Ignored, "5.1"),

            (Closed, Headers | HeadersEnd) => (ConnectionError(StreamClosed), "5.1"),
            (Closed, Data | DataEnd) => (StreamError(StreamClosed), "6.1"),
            (Closed, RstStream | WindowUpdate) => (Ignored, "5.1"),
        };
        Transition { effect, section }
    }

    /// Where a frame of the server's leads. `None`: it sends none in this state.
    #[must_use]
    pub const fn send(self, frame: Sent) -> Option<(Self, &'static str)> {
        match (self, frame) {
            (Self::Open, Sent::EndStream) => Some((Self::HalfClosedLocal, "5.1")),
            (Self::HalfClosedRemote, Sent::EndStream) => Some((Self::Closed, "5.1")),
            (Self::Open | Self::HalfClosedLocal | Self::HalfClosedRemote, Sent::RstStream) => {
                Some((Self::Reset, "5.4.2"))
            }
            (Self::Closed, Sent::RstStream) => Some((Self::Reset, "6.1")),
            _ => None,
        }
    }
}

impl Received {
    /// In the order of section 6.
    pub const ALL: [Self; 6] = [
        Self::Headers,
        Self::HeadersEnd,
        Self::Data,
        Self::DataEnd,
        Self::RstStream,
        Self::WindowUpdate,
    ];

    /// A frame by its head. `None`: it is for no stream, or its stream's state does not matter.
    #[must_use]
    pub const fn of(head: FrameHead) -> Option<Self> {
        match (head.kind, head.has(flags::END_STREAM)) {
            (Kind::Headers, false) => Some(Self::Headers),
            (Kind::Headers, true) => Some(Self::HeadersEnd),
            (Kind::Data, false) => Some(Self::Data),
            (Kind::Data, true) => Some(Self::DataEnd),
            (Kind::RstStream, _) => Some(Self::RstStream),
            (Kind::WindowUpdate, _) => Some(Self::WindowUpdate),
            _ => None,
        }
    }

    /// As the tables call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Headers => "HEADERS",
            Self::HeadersEnd => "HEADERS, END_STREAM",
            Self::Data => "DATA",
            Self::DataEnd => "DATA, END_STREAM",
            Self::RstStream => "RST_STREAM",
            Self::WindowUpdate => "WINDOW_UPDATE",
        }
    }
}

impl Sent {
    /// Both.
    pub const ALL: [Self; 2] = [Self::EndStream, Self::RstStream];

    /// As the tables call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EndStream => "HEADERS or DATA, END_STREAM",
            Self::RstStream => "RST_STREAM",
        }
    }
}
