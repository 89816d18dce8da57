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
        for line in lines {
            let (name, value) = line.split_once(": ").expect("a field line");
            match name {
                "Content-Length" => assert_eq!(len.replace(value.parse().unwrap()), None),
                "Connection" => answer.close |= value.eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
        let bare = code == 204 || code == 304 || methods.get(answers.len()) == Some(&Method::Head);
        // Whether an unreadable request was a HEAD is the server's guess.
        let guessed = methods.len() <= answers.len() && after.is_empty();
        let len: usize = if bare || guessed {
            0
        } else {
            len.expect("a length")
        };
        if after.len() < len {
            break;
        }
        answer.content = after[..len].to_vec();
        wire = &after[len..];
        answers.push(answer);
    }
    assert!(
        !whole || wire.is_empty(),
        "left over: {}",
        wire.escape_ascii()
    );
    answers
}
