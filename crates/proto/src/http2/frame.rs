//! Frames (RFC 9113 sections 4 and 6): their heads, and what is in them.

/// Bytes of a frame's head.
pub const HEAD_BYTES: usize = 9;
/// The largest payload that every endpoint takes (`SETTINGS_MAX_FRAME_SIZE` until something else is
/// said, section 6.5.2). Loadline asks for no more.
pub const PAYLOAD_BYTES_MAX: usize = 16_384;
/// What a client begins with, before its first frame (section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Of a connection and of each stream, until something else is said (section 6.9.2).
pub const WINDOW_BYTES: u32 = 65_535;
/// No window is larger (section 6.9.1).
pub const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;

/// Section 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// Nothing is wrong.
    NoError = 0x0,
    /// The protocol was violated in a way that has no code of its own.
    Protocol = 0x1,
    /// A fault of the server's own.
    Internal = 0x2,
    /// More was sent than there was room for.
    FlowControl = 0x3,
    /// Settings were not acknowledged in time.
    SettingsTimeout = 0x4,
    /// A frame for a stream that is half-closed.
    StreamClosed = 0x5,
    /// A frame of a length that its type does not have.
    FrameSize = 0x6,
    /// The request was not processed, and can be sent again.
    RefusedStream = 0x7,
    /// The stream is not needed any more.
    Cancel = 0x8,
    /// A field block cannot be decoded.
    Compression = 0x9,
    /// The connection of a CONNECT request was reset.
    Connect = 0xa,
    /// The peer does what causes load.
    EnhanceYourCalm = 0xb,
    /// TLS is not as good as section 9.2 demands.
    InadequateSecurity = 0xc,
    /// HTTP/1.1 is required.
    Http11Required = 0xd,
}

/// Section 6, and RFC 9218 section 7.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Content.
    Data,
    /// A request, a response or trailers begin.
    Headers,
    /// Deprecated.
    Priority,
    /// A stream ends at once.
    RstStream,
    /// Settings, or that they were seen.
    Settings,
    /// Of servers alone, and not sent by this one.
    PushPromise,
    /// A measurement of the round trip.
    Ping,
    /// No more streams are accepted.
    GoAway,
    /// There is room for more content.
    WindowUpdate,
    /// More of a field block.
    Continuation,
    /// The priority of a stream was changed (RFC 9218).
    PriorityUpdate,
    /// Another one, to be ignored (section 4.1).
    Unknown,
}

impl Kind {
    const CODES: [(u8, Self); 11] = [
        (0x0, Self::Data),
        (0x1, Self::Headers),
        (0x2, Self::Priority),
        (0x3, Self::RstStream),
        (0x4, Self::Settings),
        (0x5, Self::PushPromise),
        (0x6, Self::Ping),
        (0x7, Self::GoAway),
        (0x8, Self::WindowUpdate),
        (0x9, Self::Continuation),
        (0x10, Self::PriorityUpdate),
    ];

    fn from_code(code: u8) -> Self {
        let mut codes = Self::CODES.into_iter();
        let found = codes.find(|(this, _)| *this == code);
        found.map_or(Self::Unknown, |(_, kind)| kind)
    }

    fn code(self) -> u8 {
        let mut codes = Self::CODES.into_iter();
        let found = codes.find(|(_, this)| *this == self);
        found.map_or(u8::MAX, |(code, _)| code)
    }
}

/// Flags; which of them a frame can have depends on its type.
pub mod flags {
    /// The last frame of its direction (DATA, HEADERS).
    pub const END_STREAM: u8 = 0x1;
    /// An acknowledgement (SETTINGS, PING).
    pub const ACK: u8 = 0x1;
    /// The field block is complete (HEADERS, CONTINUATION).
    pub const END_HEADERS: u8 = 0x4;
    /// There is padding (DATA, HEADERS).
    pub const PADDED: u8 = 0x8;
    /// There is a priority (HEADERS).
    pub const PRIORITY: u8 = 0x20;
}

/// Appends a frame.
pub fn write_frame(kind: Kind, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let head = FrameHead {
        len: payload.len(),
        kind,
        flags,
        stream,
    };
    head.write(out);
    out.extend_from_slice(payload);
}

/// A frame as bytes.
#[must_use]
pub fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(kind, flags, stream, payload, &mut bytes);
    bytes
}

/// The head of a frame (section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of its payload.
    pub len: usize,
    /// Its type.
    pub kind: Kind,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
}

impl FrameHead {
    /// From its bytes.
    #[must_use]
    pub fn parse(bytes: &[u8; HEAD_BYTES]) -> Self {
        let [high, middle, low, kind, flags, stream @ ..] = *bytes;
        Self {
            len: u32::from_be_bytes([0, high, middle, low]) as usize,
            kind: Kind::from_code(kind),
            flags,
            stream: u32::from_be_bytes(stream) & WINDOW_BYTES_MAX, // the first bit is reserved
        }
    }

    /// Appends its bytes.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes());
    }

    /// As it is sent.
    #[must_use]
    pub fn bytes(self) -> [u8; HEAD_BYTES] {
        let len = (self.len as u32).to_be_bytes();
        let id = self.stream.to_be_bytes();
        let (kind, flags) = (self.kind.code(), self.flags);
        [
            len[1], len[2], len[3], kind, flags, id[0], id[1], id[2], id[3],
        ]
    }

    /// Whether it has a flag.
    #[must_use]
    pub const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether it stands where frames of its type may, and is as long as they are (section 6). What
    /// depends on the state of a stream is not looked at.
    ///
    /// # Errors
    /// The connection error that it is.
    pub fn check(self) -> Result<(), ErrorCode> {
        let of_connection = match self.kind {
            Kind::Settings | Kind::Ping | Kind::GoAway | Kind::PriorityUpdate => Some(true),
            Kind::WindowUpdate | Kind::Unknown => None,
            _ => Some(false),
        };
        if self.len > PAYLOAD_BYTES_MAX {
            return Err(ErrorCode::FrameSize);
        }
        if of_connection.is_some_and(|expected| expected != (self.stream == 0)) {
            return Err(ErrorCode::Protocol);
        }
        let fits = match self.kind {
            Kind::Settings if self.has(flags::ACK) => self.len == 0,
            Kind::Settings => self.len.is_multiple_of(Setting::BYTES),
            Kind::Ping => self.len == 8,
            Kind::RstStream | Kind::WindowUpdate => self.len == 4,
            Kind::GoAway => self.len >= 8,
            Kind::PriorityUpdate => self.len >= 4,
            Kind::Data | Kind::Headers if self.has(flags::PADDED) => self.len >= 1,
            _ => true, // PRIORITY of another length ends its stream alone
        };
        if fits {
            Ok(())
        } else {
            Err(ErrorCode::FrameSize)
        }
    }
}

/// A parameter of a connection (section 6.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Which.
    pub id: u16,
    /// Its value.
    pub value: u32,
}

impl Setting {
    /// Bytes of a setting in a frame.
    pub const BYTES: usize = 6;
    /// The size of the dynamic table of the peer's encoder.
    pub const HEADER_TABLE_SIZE: u16 = 0x1;
    /// Whether the server may push.
    pub const ENABLE_PUSH: u16 = 0x2;
    /// How many streams there may be at one time.
    pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    /// The window of a new stream.
    pub const INITIAL_WINDOW_SIZE: u16 = 0x4;
    /// The largest payload.
    pub const MAX_FRAME_SIZE: u16 = 0x5;
    /// The largest list of fields, each with 32 bytes more than its name and value.
    pub const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    /// Whether extended CONNECT is understood (RFC 8441).
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    /// Whether the priorities of RFC 7540 are ignored (RFC 9218).
    pub const NO_RFC7540_PRIORITIES: u16 = 0x9;

    /// Those of a frame whose length was checked.
    pub fn parse_all(payload: &[u8]) -> impl Iterator<Item = Self> {
        payload.chunks_exact(Self::BYTES).map(|bytes| Self {
            id: u16::from_be_bytes([bytes[0], bytes[1]]),
            value: number(&bytes[2..]),
        })
    }

    /// Whether its value is one that it can have (section 6.5.2).
    ///
    /// # Errors
    /// The connection error that it is.
    pub fn check(self) -> Result<(), ErrorCode> {
        match self.id {
            Self::ENABLE_PUSH | Self::ENABLE_CONNECT_PROTOCOL | Self::NO_RFC7540_PRIORITIES
                if self.value > 1 =>
            {
                Err(ErrorCode::Protocol)
            }
            Self::INITIAL_WINDOW_SIZE if self.value > WINDOW_BYTES_MAX => {
                Err(ErrorCode::FlowControl)
            }
            Self::MAX_FRAME_SIZE if !(PAYLOAD_BYTES_MAX as u32..1 << 24).contains(&self.value) => {
                Err(ErrorCode::Protocol)
            }
            _ => Ok(()),
        }
    }

    /// Appends its bytes.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&self.value.to_be_bytes());
    }
}

/// The content or the field block of a DATA or HEADERS frame, without padding and priority
/// (sections 6.1 and 6.2).
///
/// # Errors
/// The connection error: there is more padding than payload, or less than a priority has.
pub fn unwrapped(head: FrameHead, payload: &[u8]) -> Result<&[u8], ErrorCode> {
    let mut rest = payload;
    if head.has(flags::PADDED) {
        let (padding, behind) = rest.split_first().ok_or(ErrorCode::FrameSize)?;
        let len = behind.len().checked_sub(usize::from(*padding));
        rest = &behind[..len.ok_or(ErrorCode::Protocol)?];
    }
    if head.kind == Kind::Headers && head.has(flags::PRIORITY) {
        rest = rest.get(5..).ok_or(ErrorCode::FrameSize)?;
    }
    Ok(rest)
}

/// The first four bytes of a payload as a number.
///
/// # Panics
/// It has fewer.
#[must_use]
pub fn number(payload: &[u8]) -> u32 {
    u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: Kind, len: usize, flags: u8, stream: u32) -> FrameHead {
        FrameHead {
            len,
            kind,
            flags,
            stream,
        }
    }

    #[test]
    fn heads_come_back() {
        for (code, kind) in Kind::CODES {
            let head = head(kind, 0x01_02_03, 0x2d, 0x7fff_fffe);
            let mut bytes = Vec::new();
            head.write(&mut bytes);
            assert_eq!(bytes[..4], [1, 2, 3, code]);
            assert_eq!(FrameHead::parse(&bytes.try_into().unwrap()), head);
        }
        let reserved = FrameHead::parse(&[0, 0, 0, 0x55, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(
            (reserved.kind, reserved.stream),
            (Kind::Unknown, WINDOW_BYTES_MAX)
        );
    }

    #[test]
    fn frames_stand_where_they_may_and_are_as_long_as_they_are() {
        use ErrorCode::{FrameSize, Protocol};
        for (head, checked) in [
            (head(Kind::Data, PAYLOAD_BYTES_MAX, 0, 1), Ok(())),
            (
                head(Kind::Data, PAYLOAD_BYTES_MAX + 1, 0, 1),
                Err(FrameSize),
            ),
            (head(Kind::Data, 0, 0, 0), Err(Protocol)),
            (head(Kind::Data, 0, flags::PADDED, 1), Err(FrameSize)),
            (head(Kind::Headers, 1, 0, 0), Err(Protocol)),
            (head(Kind::Priority, 4, 0, 1), Ok(())),
            (head(Kind::Priority, 5, 0, 0), Err(Protocol)),
            (head(Kind::RstStream, 4, 0, 0), Err(Protocol)),
            (head(Kind::RstStream, 3, 0, 1), Err(FrameSize)),
            (head(Kind::Settings, 12, 0, 0), Ok(())),
            (head(Kind::Settings, 5, 0, 0), Err(FrameSize)),
            (head(Kind::Settings, 6, flags::ACK, 0), Err(FrameSize)),
            (head(Kind::Settings, 0, 0, 1), Err(Protocol)),
            (head(Kind::Ping, 8, 0, 0), Ok(())),
            (head(Kind::Ping, 7, 0, 0), Err(FrameSize)),
            (head(Kind::Ping, 8, 0, 1), Err(Protocol)),
            (head(Kind::GoAway, 7, 0, 0), Err(FrameSize)),
            (head(Kind::GoAway, 8, 0, 1), Err(Protocol)),
            (head(Kind::WindowUpdate, 4, 0, 0), Ok(())),
            (head(Kind::WindowUpdate, 4, 0, 1), Ok(())),
            (head(Kind::WindowUpdate, 5, 0, 1), Err(FrameSize)),
            (head(Kind::Continuation, 1, 0, 0), Err(Protocol)),
            (head(Kind::PriorityUpdate, 3, 0, 0), Err(FrameSize)),
            (head(Kind::Unknown, 1, 0xff, 5), Ok(())),
        ] {
            assert_eq!(head.check(), checked, "{head:?}");
        }
    }

    #[test]
    fn settings_and_their_values() {
        use ErrorCode::{FlowControl, Protocol};
        let setting = |id, value| Setting { id, value };
        for (setting, checked) in [
            (setting(Setting::HEADER_TABLE_SIZE, u32::MAX), Ok(())),
            (setting(Setting::ENABLE_PUSH, 1), Ok(())),
            (setting(Setting::ENABLE_PUSH, 2), Err(Protocol)),
            (
                setting(Setting::INITIAL_WINDOW_SIZE, WINDOW_BYTES_MAX),
                Ok(()),
            ),
            (
                setting(Setting::INITIAL_WINDOW_SIZE, 1 << 31),
                Err(FlowControl),
            ),
            (setting(Setting::MAX_FRAME_SIZE, 16_383), Err(Protocol)),
            (setting(Setting::MAX_FRAME_SIZE, (1 << 24) - 1), Ok(())),
            (setting(Setting::MAX_FRAME_SIZE, 1 << 24), Err(Protocol)),
            (setting(Setting::NO_RFC7540_PRIORITIES, 2), Err(Protocol)),
            (setting(0xffff, u32::MAX), Ok(())),
        ] {
            let mut bytes = Vec::new();
            setting.write(&mut bytes);
            let parsed: Vec<_> = Setting::parse_all(&bytes).collect();
            assert_eq!(parsed, [setting]);
            assert_eq!(setting.check(), checked, "{setting:?}");
        }
    }

    #[test]
    fn padding_and_priority_are_no_content() {
        let of = |kind, flags, payload: &'static [u8]| {
            unwrapped(head(kind, payload.len(), flags, 1), payload)
        };
        assert_eq!(of(Kind::Data, 0, b"abc"), Ok(&b"abc"[..]));
        assert_eq!(of(Kind::Data, flags::PADDED, b"\x02abc"), Ok(&b"a"[..]));
        assert_eq!(of(Kind::Data, flags::PADDED, b"\x03abc"), Ok(&b""[..]));
        assert_eq!(
            of(Kind::Data, flags::PADDED, b"\x04abc"),
            Err(ErrorCode::Protocol)
        );
        assert_eq!(
            of(Kind::Data, flags::PRIORITY, b"abcdef"),
            Ok(&b"abcdef"[..])
        );
        let both = flags::PADDED | flags::PRIORITY;
        assert_eq!(of(Kind::Headers, both, b"\x0112345ab"), Ok(&b"a"[..]));
        assert_eq!(of(Kind::Headers, both, b"\x051234512345"), Ok(&b""[..]));
        assert_eq!(
            of(Kind::Headers, flags::PRIORITY, b"1234"),
            Err(ErrorCode::FrameSize)
        );
    }
}
