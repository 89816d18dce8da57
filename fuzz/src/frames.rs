//! Frames of HTTP/2 as the input of a target says: mostly of types that there are, and of the first streams.

/// Those of RFC 9113, PRIORITY_UPDATE (RFC 9218), and two that are unknown.
const TYPES: [u8; 13] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x10, 0xa, 0xff];
const HEADERS: u8 = 1;

/// Each frame is a byte for its type, one for its flags, one for its stream, one for its length, and its
/// payload. A HEADERS frame whose payload begins with a zero byte has `fields` in place of that byte.
#[must_use]
pub fn frames(mut input: &[u8], fields: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let [kind, flags, stream, len, rest @ ..] = input {
        let (payload, behind) = rest.split_at(rest.len().min(usize::from(*len)));
        input = behind;
        let kind = TYPES[usize::from(*kind) % TYPES.len()];
        let payload = match payload {
            [0, more @ ..] if kind == HEADERS => [fields, more].concat(),
            _ => payload.to_vec(),
        };
        let [high, low] = (payload.len() as u16).to_be_bytes();
        out.extend([0, high, low, kind, *flags, 0, 0, 0, *stream]);
        out.extend(payload);
    }
    out
}
