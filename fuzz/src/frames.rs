//! What a peer of HTTP/2 sends, as the input of a target says: mostly frames of types that there are, and of the
//! first streams.

/// Those of RFC 9113, PRIORITY_UPDATE (RFC 9218), and two that are unknown.
const TYPES: [u8; 13] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x10, 0xa, 0xff];
const HEADERS: u8 = 1;

/// First bytes of what is no short frame.
const BYTES: u8 = 0xfd;
const PAUSE: u8 = 0xfe;
const LONG: u8 = 0xff;

const PAUSE_UNIT_MS: u64 = 10;
/// No operation follows once so much is sent, so that an execution takes no longer than some milliseconds.
const SENT_BYTES_MAX: usize = 64 << 10;

/// What a peer sends, and when.
#[derive(Debug)]
pub struct Sent {
    /// All of it.
    pub bytes: Vec<u8>,
    /// Behind how many bytes nothing is sent for how many milliseconds.
    pub pauses: Vec<(usize, u64)>,
}

impl Sent {
    /// What comes without a pause, and the pause behind it in milliseconds.
    #[must_use]
    pub fn parts(&self) -> Vec<(&[u8], u64)> {
        let end = (self.bytes.len(), 0);
        let mut from = 0;
        let part = |(to, pause_ms): &(usize, u64)| {
            let bytes = &self.bytes[from..*to];
            from = *to;
            (bytes, *pause_ms)
        };
        self.pauses.iter().chain([&end]).map(part).collect()
    }
}

/// Behind `beginning`, what the operations of `input` say. Each begins with a byte:
///
/// - 0xfd: then a length, and so many bytes that are sent as they are.
/// - 0xfe: then two bytes. For so many hundredths of a second nothing is sent.
/// - 0xff: a long frame. Then its type, its flags, four bytes for its stream (with the reserved bit), two for the
///   length of its payload, the length of a pattern, and the pattern: the payload repeats it, or is zeros.
/// - Another one: a short frame of that type. Then its flags, a byte for its stream, one for its length, and its
///   payload.
///
/// A HEADERS frame whose payload begins with a zero byte has `fields` in place of that byte.
#[must_use]
pub fn frames(beginning: &[u8], mut input: &[u8], fields: &[u8]) -> Sent {
    let mut bytes = beginning.to_vec();
    let mut pauses = Vec::new();
    while bytes.len() < SENT_BYTES_MAX {
        match input {
            [BYTES, len, rest @ ..] => {
                let (given, behind) = split(rest, *len);
                input = behind;
                bytes.extend_from_slice(given);
            }
            [PAUSE, high, low, behind @ ..] => {
                input = behind;
                let units = u16::from_be_bytes([*high, *low]);
                pauses.push((bytes.len(), u64::from(units) * PAUSE_UNIT_MS));
            }
            [LONG, kind, flags, s1, s2, s3, s4, high, low, len, rest @ ..] => {
                let (pattern, behind) = split(rest, *len);
                input = behind;
                let len = u16::from_be_bytes([*high, *low]);
                let payload = repeated(pattern, usize::from(len));
                let stream = [*s1, *s2, *s3, *s4];
                frame(*kind, *flags, stream, &payload, fields, &mut bytes);
            }
            [kind, flags, stream, len, rest @ ..] => {
                let (payload, behind) = split(rest, *len);
                input = behind;
                let stream = [0, 0, 0, *stream];
                frame(*kind, *flags, stream, payload, fields, &mut bytes);
            }
            _ => break,
        }
    }
    Sent { bytes, pauses }
}

/// The first `len` bytes, or as many as there are, and those behind them.
fn split(bytes: &[u8], len: u8) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.len().min(usize::from(len)))
}

fn repeated(pattern: &[u8], len: usize) -> Vec<u8> {
    match pattern {
        [] => vec![0; len],
        _ => pattern.iter().copied().cycle().take(len).collect(),
    }
}

fn frame(kind: u8, flags: u8, stream: [u8; 4], payload: &[u8], fields: &[u8], out: &mut Vec<u8>) {
    let kind = TYPES[usize::from(kind) % TYPES.len()];
    let payload = match payload {
        [0, more @ ..] if kind == HEADERS => [fields, more].concat(),
        _ => payload.to_vec(),
    };
    let [_, len @ ..] = (payload.len() as u32).to_be_bytes();
    out.extend(len);
    out.extend([kind, flags]);
    out.extend(stream);
    out.extend(payload);
}
