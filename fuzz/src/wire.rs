//! What a client makes of the bytes that it gets: answers, one after the other.

use loadline_proto::Method;

/// One answer as read from the wire; interim ones (1xx) are passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub code: u16,
    /// Whether it says `Connection: close`.
    pub close: bool,
    /// The content.
    pub content: Vec<u8>,
}

/// Reads whole answers to requests with these methods, in order; a last answer may go beyond them
/// (a request that could not be read). With `whole`, nothing may be left over.
///
/// # Panics
/// If the bytes are not answers as they should be.
#[must_use]
pub fn read_answers(mut wire: &[u8], methods: &[Method], whole: bool) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let Some(end) = wire.windows(4).position(|text| text == b"\r\n\r\n") {
        let head = std::str::from_utf8(&wire[..end]).expect("a head is ASCII");
        let after = &wire[end + 4..];
        let mut lines = head.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let code = status_line
            .strip_prefix("HTTP/1.1 ")
            .expect("a status line");
        let code: u16 = code[..3].parse().expect("a status code");
        if code < 200 {
            wire = after;
            continue;
        }
        let mut answer = Answer {
            code,
            close: false,
            content: Vec::new(),
        };
        let mut len = None;
        let mut chunked = false;
        for line in lines {
            let (name, value) = line.split_once(": ").expect("a field line");
            match name {
                "Content-Length" => assert_eq!(len.replace(value.parse().unwrap()), None),
                "Connection" => answer.close |= value.eq_ignore_ascii_case("close"),
                "Transfer-Encoding" => {
                    assert_eq!(value, "chunked");
                    chunked = true;
                }
                _ => {}
            }
        }
        let bare = code == 204 || code == 304 || methods.get(answers.len()) == Some(&Method::Head);
        // Whether an unreadable request was a HEAD is the server's guess.
        let guessed = methods.len() <= answers.len() && after.is_empty();
        assert!(!chunked || len.is_none(), "two lengths");
        let content = match len {
            _ if bare || guessed => Some((Vec::new(), after)),
            Some(len) => after
                .split_at_checked(len)
                .map(|(content, rest)| (content.to_vec(), rest)),
            None if chunked => read_chunks(after),
            None => {
                assert!(answer.close, "an end that nobody tells");
                Some((after.to_vec(), &[][..]))
            }
        };
        let Some((content, rest)) = content else {
            break;
        };
        answer.content = content;
        wire = rest;
        answers.push(answer);
    }
    assert!(
        !whole || wire.is_empty(),
        "left over: {}",
        wire.escape_ascii()
    );
    answers
}

/// Content in chunks, and what follows; `None`: it is not complete.
fn read_chunks(mut wire: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut content = Vec::new();
    loop {
        let (line, rest) = split_line(wire)?;
        let len = std::str::from_utf8(line).expect("a size is ASCII");
        let len = usize::from_str_radix(len, 16).expect("a size");
        if len == 0 {
            wire = rest;
            break;
        }
        let (chunk, rest) = rest.split_at_checked(len)?;
        content.extend_from_slice(chunk);
        let (line, rest) = split_line(rest)?;
        assert!(line.is_empty(), "a chunk longer than its size");
        wire = rest;
    }
    loop {
        let (line, rest) = split_line(wire)?;
        if line.is_empty() {
            return Some((content, rest));
        }
        assert_eq!(line, b"X-Sum: 1", "a trailer that nobody sent");
        wire = rest;
    }
}

/// A line without its end, and what follows it.
fn split_line(wire: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = wire.windows(2).position(|text| text == b"\r\n")?;
    Some((&wire[..end], &wire[end + 2..]))
}
