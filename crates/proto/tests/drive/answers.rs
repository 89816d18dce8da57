//! Answers read back from bytes, strictly, without any code of the server's own.

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Behind chunked content.
    pub trailers: Vec<(String, String)>,
}

impl Answer {
    /// The value of a field that must not be there twice.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self
            .fields
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let first = values.next();
        assert!(values.next().is_none(), "{name} twice in {self:?}");
        first.map(|(_, value)| value.as_str())
    }

    /// Whether it says that the connection ends after it.
    pub fn closes(&self) -> bool {
        self.field("connection")
            .is_some_and(|v| v.eq_ignore_ascii_case("close"))
    }
}

/// Reads all of `bytes` as answers; `is_head(n)` says whether the `n`th final answer is to a HEAD.
///
/// Panics on anything that RFC 9112 does not allow a server to send, or on leftovers.
pub fn parse_answers(mut bytes: &[u8], is_head: impl Fn(usize) -> bool) -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut finals = 0;
    while !bytes.is_empty() {
        let (answer, rest) = parse_answer(bytes, is_head(finals));
        if answer.status >= 200 {
            finals += 1;
        }
        answers.push(answer);
        bytes = rest;
    }
    answers
}

fn parse_answer(bytes: &[u8], is_head: bool) -> (Answer, &[u8]) {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned();
    let end = bytes
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("no end of the head in {shown:?}"));
    let head = std::str::from_utf8(&bytes[..end]).expect("a head in ASCII");
    let mut lines = head.split("\r\n");
    let line = lines.next().expect("a status line");
    let rest = line
        .strip_prefix("HTTP/1.1 ")
        .unwrap_or_else(|| panic!("status line {line:?}"));
    assert_eq!(rest.as_bytes().get(3), Some(&b' '), "status line {line:?}");
    let status: u16 = rest[..3].parse().expect("a status code");
    let fields: Vec<(String, String)> = lines.map(parse_field).collect();
    let mut answer = Answer {
        status,
        fields,
        body: Vec::new(),
        trailers: Vec::new(),
    };
    let len = content_length(&answer);
    if status >= 200 {
        let date = answer.field("date").expect("a Date");
        assert!(date.len() == 29 && date.ends_with(" GMT"), "Date {date:?}");
    }
    let after = &bytes[end + 4..];
    let len = if is_head || status < 200 || status == 204 || status == 304 {
        assert_eq!(answer.field("transfer-encoding"), None);
        0
    } else if let Some(coding) = answer.field("transfer-encoding") {
        assert_eq!((coding, len), ("chunked", None));
        let rest = read_chunks(after, &mut answer);
        return (answer, rest);
    } else if len.is_none() && answer.closes() {
        after.len() // until the end of the connection
    } else {
        len.expect("a Content-Length")
    };
    assert!(
        len <= after.len(),
        "content cut: {} of {len} bytes in {shown:?}",
        after.len()
    );
    answer.body = after[..len].to_vec();
    (answer, &after[len..])
}

/// Reads chunked content; what is behind it is the next answer's.
fn read_chunks<'b>(mut bytes: &'b [u8], answer: &mut Answer) -> &'b [u8] {
    let line = |bytes: &mut &'b [u8]| {
        let end = bytes.windows(2).position(|w| w == b"\r\n");
        let (line, rest) = bytes.split_at(end.expect("a whole line in chunked content"));
        *bytes = &rest[2..];
        std::str::from_utf8(line).expect("framing in ASCII")
    };
    loop {
        let len = line(&mut bytes);
        let len = usize::from_str_radix(len, 16).unwrap_or_else(|_| panic!("chunk size {len:?}"));
        if len == 0 {
            break;
        }
        answer.body.extend_from_slice(&bytes[..len]);
        assert_eq!(&bytes[len..len + 2], b"\r\n");
        bytes = &bytes[len + 2..];
    }
    loop {
        match line(&mut bytes) {
            "" => return bytes,
            field => answer.trailers.push(parse_field(field)),
        }
    }
}

fn parse_field(line: &str) -> (String, String) {
    let (name, value) = line
        .split_once(':')
        .unwrap_or_else(|| panic!("field line {line:?}"));
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    assert!(
        !name.is_empty() && name.bytes().all(is_token),
        "name {name:?}"
    );
    assert!(
        value.bytes().all(|b| b == b'\t' || (32..127).contains(&b)),
        "value {value:?}"
    );
    (name.to_owned(), value.trim_matches([' ', '\t']).to_owned())
}

fn content_length(answer: &Answer) -> Option<usize> {
    let len = answer.field("content-length")?;
    assert!(
        answer.status >= 200 && answer.status != 204,
        "RFC 9110 section 8.6: no Content-Length in a {}",
        answer.status
    );
    assert!(len.bytes().all(|b| b.is_ascii_digit()));
    Some(len.parse().expect("a length"))
}
