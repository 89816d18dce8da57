//! What a client speaks, by the first bytes of what should be a request: the one place that knows
//! other protocols than HTTP/1.
//!
//! | First bytes | Who | Answer |
//! |---|---|---|
//! | a token | HTTP/1, perhaps | it goes on |
//! | `PRI * HTTP/2.0` | HTTP/2 with prior knowledge (RFC 9113 section 3.4) | HTTP/2, if the connection begins with it; 505 later, and where HTTP/2 is off |
//! | `SSH-` | an SSH client (RFC 4253 section 4.2) | 400 |
//! | a byte that no method begins with | TLS (its records begin with 0x16), or anything else | 400 |
//!
//! What is refused is refused as soon as it is recognised: such a client waits for a word in its own protocol,
//! and would wait for as long as a slow head may take.

use crate::ascii::is_token_byte;
use crate::{Fault, Status};

/// What an HTTP/2 client begins with. No HTTP/1 client has a use for it.
const HTTP_2: &[u8] = b"PRI * HTTP/2.0";

/// Whether a connection that begins with these bytes speaks HTTP/2; `None`: it takes more to say so.
pub(crate) fn is_http2<'b>(bytes: &mut impl Iterator<Item = &'b u8>) -> Option<bool> {
    for wanted in HTTP_2 {
        if bytes.next()? != wanted {
            return Some(false);
        }
    }
    Some(true)
}

/// Judges what has come of a head, at least a byte. What it says of the begin it says of all of it, so
/// that it does not matter how the bytes are cut.
pub(super) fn check(head: &[u8]) -> Result<(), Fault> {
    match head {
        // A CR alone may be half of an empty line.
        [] | [b'\r'] => Ok(()),
        [first, ..] if is_token_byte(*first) => check_protocol(head),
        [first, ..] => Err(refusal(*first)),
    }
}

/// What is to be said of a head that has a fault: that it is none comes first, as if it had come byte
/// by byte.
#[cold]
pub(super) fn first(head: &[u8], fault: Fault) -> Fault {
    check(head).err().unwrap_or(fault)
}

fn check_protocol(head: &[u8]) -> Result<(), Fault> {
    if head.starts_with(HTTP_2) {
        return Err(Fault::peer(
            Status::HTTP_VERSION_NOT_SUPPORTED,
            "HTTP/2, which is not served here",
        ));
    }
    if head.starts_with(b"SSH-") {
        return Err(Fault::bad_request("SSH, not HTTP"));
    }
    Ok(())
}

fn refusal(first: u8) -> Fault {
    const TLS_HANDSHAKE: u8 = 0x16;
    Fault::bad_request(match first {
        TLS_HANDSHAKE => "TLS, not HTTP",
        _ => "a byte that no method begins with",
    })
}
