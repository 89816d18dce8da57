//! However the same bytes are cut, they come to the same.

use super::tape::{Outcome, play};
use loadline_proto::{Limits, Method};

const ANSWERS: &[&str] = &[
    "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200\r\nConnection: keep-alive, close\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\nLink: <a>\r\n\r\nHTTP/1.0 200 OK\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nhel\r\n2\r\nlo\r\n0\r\nA: b\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\nX-1_2: y\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Len",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 ",
    "",
    "HTTP/1.1\r\nX",
    "HTTP/1.1 200 OK\r\nX: y\nZ: z\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX: y\u{0}z\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX: y\u{0}z",
    "HTTP/1.1 200 OK\r\n\rX",
    "HTTP/1.1 200 OK\r\n\rX\n",
    "HTTP/1.1 200 OK\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\nx\r\n",
    "HTTQ",
];

fn limits() -> Limits {
    Limits {
        head_bytes_max: 90,
        fields_max: 4,
        ..Limits::default()
    }
}

fn in_pieces(bytes: &[u8], pieces: &[&[u8]], whole: &Outcome) {
    let outcome = play(Method::Get, pieces, &limits());
    assert_eq!(
        &outcome,
        whole,
        "{:?} as {pieces:?}",
        bytes.escape_ascii().to_string()
    );
}

#[test]
fn at_every_two_places_and_in_equal_pieces() {
    for answer in ANSWERS {
        let bytes = answer.as_bytes();
        let whole = play(Method::Get, &[bytes], &limits());
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                in_pieces(bytes, &pieces, &whole);
            }
        }
        for len in 1..20 {
            let pieces: Vec<&[u8]> = bytes.chunks(len).collect();
            in_pieces(bytes, &pieces, &whole);
        }
    }
}

#[test]
fn whatever_one_byte_is_changed_to() {
    for answer in ANSWERS {
        for place in 0..answer.len() {
            for byte in *b"\r\n\t :0aZ\x00\xff," {
                let mut bytes = answer.as_bytes().to_vec();
                bytes[place] = byte;
                let whole = play(Method::Get, &[&bytes], &limits());
                // Bytes behind a response are reported with it only if they come with it.
                if matches!(&whole.result, Ok(reply) if reply.excess_bytes > 0) {
                    continue;
                }
                for len in [1, 2, 3, 7] {
                    let pieces: Vec<&[u8]> = bytes.chunks(len).collect();
                    in_pieces(&bytes, &pieces, &whole);
                }
            }
        }
    }
}
