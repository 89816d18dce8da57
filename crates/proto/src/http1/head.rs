//! The head of a request: finding its end, resumably, and parsing it once it is there.

use memchr::{memchr, memchr2};

use super::authority::{has_port, is_authority};
use super::framing::{self, Framing};
use super::lines::{Stop, line_end, name_end, target_end};
use super::opening;
use crate::ascii::is_token_byte;
use crate::request::{Field, FieldName, Request, Span, TargetForm, Version};
use crate::{Fault, Limits, Method, Status};

/// Room in the request line for the method, the version and two spaces.
const LINE_EXTRA_BYTES: usize = 32;

/// Empty lines that are skipped in front of a request line (RFC 9112 section 2.2 asks for one).
const EMPTY_LINES_MAX: u8 = 2;

/// What a scan came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadScan {
    /// The head is not there yet.
    Partial,
    /// The head is `bytes[start..end]`, from the request line to the empty line.
    Complete {
        /// First byte of the request line.
        start: usize,
        /// One past the empty line.
        end: usize,
    },
}

/// Finds the end of a head. It remembers how far it has looked, so that a head that drips in byte
/// by byte costs linear work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadScanner {
    scanned: usize,
    line_start: usize,
    head_start: usize,
    lines: usize,
    empty_lines: u8,
}

impl HeadScanner {
    /// Looks on in `bytes`, which must begin with all that earlier calls were shown.
    ///
    /// # Errors
    /// 400 for a line that does not end in CRLF and for what is no HTTP/1 from its first bytes on
    /// (505 if it is HTTP/2), 414 or 431 for a head beyond the limits.
    #[inline]
    pub fn scan(&mut self, bytes: &[u8], limits: &Limits) -> Result<HeadScan, Fault> {
        self.look_on(bytes, limits)
            .map_err(|fault| opening::first(&bytes[self.head_start..], fault))
    }

    fn look_on(&mut self, bytes: &[u8], limits: &Limits) -> Result<HeadScan, Fault> {
        while let Some(found) = memchr(b'\n', &bytes[self.scanned..]) {
            let lf = self.scanned + found;
            self.scanned = lf + 1;
            if lf == self.line_start || bytes[lf - 1] != b'\r' {
                return Err(Fault::bad_request("a line of the head ends in a bare LF"));
            }
            let line_len = lf - 1 - self.line_start;
            if line_len > 0 {
                self.end_line(&bytes[self.line_start..lf - 1], limits)?;
            } else if self.lines > 0 {
                let (start, end) = (self.head_start, lf + 1);
                if end - start > limits.head_bytes_max {
                    return Err(too_large());
                }
                return Ok(HeadScan::Complete { start, end });
            } else {
                self.empty_lines += 1;
                if self.empty_lines > EMPTY_LINES_MAX {
                    return Err(Fault::bad_request(
                        "too many empty lines before the request",
                    ));
                }
                self.head_start = lf + 1;
            }
            self.line_start = lf + 1;
        }
        self.scanned = bytes.len();
        self.check_partial(bytes, limits)?;
        Ok(HeadScan::Partial)
    }

    fn end_line(&mut self, line: &[u8], limits: &Limits) -> Result<(), Fault> {
        if self.lines == 0 {
            check_request_line_len(line, limits)?;
        } else if self.lines > limits.fields_max {
            return Err(Fault::large_fields("more fields than allowed"));
        }
        self.lines += 1;
        Ok(())
    }

    fn check_partial(&self, bytes: &[u8], limits: &Limits) -> Result<(), Fault> {
        opening::check(&bytes[self.head_start..])?;
        if self.lines == 0 {
            check_request_line_len(&bytes[self.line_start..], limits)?;
        }
        if bytes.len() - self.head_start > limits.head_bytes_max {
            return Err(too_large());
        }
        Ok(())
    }
}

fn too_large() -> Fault {
    Fault::large_fields("the head is larger than allowed")
}

fn check_request_line_len(line: &[u8], limits: &Limits) -> Result<(), Fault> {
    if line.len() <= limits.target_bytes_max + LINE_EXTRA_BYTES {
        return Ok(());
    }
    if memchr(b' ', &line[..LINE_EXTRA_BYTES]).is_none() {
        return Err(Fault::bad_request("the request line has no method"));
    }
    Err(Fault::limit(
        Status::URI_TOO_LONG,
        "the target is longer than allowed",
    ))
}

/// What the head says about the connection and the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadFacts {
    /// Whether the client lets the connection stay open.
    pub persist: bool,
    /// Where the content ends.
    pub framing: Framing,
    /// The client waits for 100 Continue.
    pub expects_continue: bool,
}

/// Parses `request.head`, which holds exactly one head, into the rest of `request`.
///
/// Kept apart: inlined into the session, its loops over bytes took 4 % more instructions for a
/// browser's head, depending on what else was there.
#[inline(never)]
pub(crate) fn parse(request: &mut Request, limits: &Limits) -> Result<HeadFacts, Fault> {
    let head = std::mem::take(&mut request.head);
    let result = parse_lines(&head, request, limits);
    request.head = head;
    result?;
    facts(request)
}

/// Judges a request whose line and fields are there.
#[inline]
pub(crate) fn facts(request: &mut Request) -> Result<HeadFacts, Fault> {
    check_host(request)?;
    let framing = framing::of(request)?;
    Ok(HeadFacts {
        persist: persists(request)?,
        framing,
        expects_continue: expects_continue(request, framing)?,
    })
}

fn parse_lines(head: &[u8], request: &mut Request, limits: &Limits) -> Result<(), Fault> {
    let mut start =
        parse_request_line(head, request, limits).map_err(|fault| opening::first(head, fault))?;
    while !head[start..].starts_with(b"\r\n") {
        if request.fields.len() == limits.fields_max {
            return Err(Fault::large_fields("more fields than allowed"));
        }
        let (field, end) = parse_field(head, start).map_err(fault)?;
        request.known |= 1 << field.known as u32;
        request.fields.push(field);
        start = end + 2;
    }
    Ok(())
}

fn fault(stop: Stop) -> Fault {
    Fault::bad_request(match stop {
        Stop::Cut => "the head has no end",
        Stop::Bad(text) => text,
    })
}

/// Parses the request line (RFC 9112 section 3); returns where the next line begins.
fn parse_request_line(head: &[u8], request: &mut Request, limits: &Limits) -> Result<usize, Fault> {
    let method_end = head.iter().position(|byte| !is_token_byte(*byte));
    let Some(method_end) = method_end.filter(|end| *end > 0 && head[*end] == b' ') else {
        return Err(Fault::bad_request("no method and a space in front"));
    };
    // First: the response to HEAD has no content, whatever else is wrong with the request.
    request.method = parse_method(&head[..method_end], head)?;
    let target_start = method_end + 1;
    let target_end = target_end(head, target_start);
    if head.get(target_end) != Some(&b' ') {
        return Err(Fault::bad_request(match head.get(target_end) {
            Some(b'\r') | None => "the request line has no version",
            _ => "the target holds a byte that a URI may not",
        }));
    }
    let version_start = target_end + 1;
    let line_end = line_end(head, version_start).map_err(fault)?;
    request.version = parse_version(&head[version_start..line_end])?;
    parse_target(head, span(target_start, target_end), request, limits)?;
    Ok(line_end + 2)
}

/// The method of this name, a token; `opening` is what the client began with, as far as that can be
/// another protocol.
#[inline]
pub(crate) fn parse_method(name: &[u8], opening: &[u8]) -> Result<Method, Fault> {
    match Method::from_token(name) {
        Some(method) => Ok(method),
        None => opening::check(opening).map(|()| Method::Other),
    }
}

fn parse_version(version: &[u8]) -> Result<Version, Fault> {
    match version {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => Ok(Version::Http11),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(Fault::peer(
                Status::HTTP_VERSION_NOT_SUPPORTED,
                "the version is not HTTP/1",
            ))
        }
        _ => Err(Fault::bad_request("the version is malformed")),
    }
}

/// Sorts the target, visible ASCII, into its form and parts (RFC 9112 section 3.2).
#[inline]
pub(crate) fn parse_target(
    head: &[u8],
    place: Span,
    request: &mut Request,
    limits: &Limits,
) -> Result<(), Fault> {
    let Span { start, end } = place;
    let target = place.of(head);
    if target.len() > limits.target_bytes_max {
        return Err(Fault::limit(
            Status::URI_TOO_LONG,
            "the target is longer than allowed",
        ));
    }
    request.target = place;
    if target.is_empty() {
        return Err(Fault::bad_request("the target is empty"));
    }
    let mark = memchr2(b'?', b'#', target);
    let rest = mark.map_or(&target[..0], |mark| &target[mark..]);
    if memchr(b'#', rest).is_some() {
        return Err(Fault::bad_request("the target holds a fragment"));
    }
    if request.method == Method::Connect {
        if !is_authority(target) || !has_port(target) {
            return Err(Fault::bad_request("CONNECT wants host:port"));
        }
        request.form = TargetForm::Authority;
        request.authority = request.target;
        return Ok(());
    }
    if target[0] == b'/' {
        request.form = TargetForm::Origin;
        split_query(request, start, mark, end);
        return Ok(());
    }
    if target == b"*" {
        if request.method != Method::Options {
            return Err(Fault::bad_request("the target * is for OPTIONS only"));
        }
        request.form = TargetForm::Asterisk;
        request.path = request.target;
        return Ok(());
    }
    parse_absolute(head, request, mark)
}

const HTTP: &[u8] = b"http://";
const HTTPS: &[u8] = b"https://";

fn parse_absolute(head: &[u8], request: &mut Request, mark: Option<usize>) -> Result<(), Fault> {
    let Span { start, end } = request.target;
    let target = request.target.of(head);
    let scheme_len = [HTTP, HTTPS]
        .iter()
        .find(|scheme| {
            target.len() >= scheme.len() && target[..scheme.len()].eq_ignore_ascii_case(scheme)
        })
        .map(|scheme| scheme.len())
        .ok_or_else(|| Fault::bad_request("the target has no form that HTTP knows"))?;
    let rest = &target[scheme_len..];
    let len = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'))
        .unwrap_or(rest.len());
    if len == 0 || !is_authority(&rest[..len]) {
        return Err(Fault::bad_request("the target has no valid authority"));
    }
    let authority_start = start as usize + scheme_len;
    request.form = TargetForm::Absolute;
    request.authority = span(authority_start, authority_start + len);
    split_query(request, request.authority.end, mark, end);
    if request.path.is_empty() {
        // An empty path means "/" (RFC 9110 section 4.2.3); the scheme's first slash is one.
        request.path = span(authority_start - 2, authority_start - 1);
    }
    Ok(())
}

/// What a target of the other scheme names is another resource (RFC 9110 section 7.4).
pub(crate) fn check_scheme(request: &Request, is_secure: bool) -> Result<(), Fault> {
    let target = request.target();
    let begins = |scheme: &[u8]| {
        target
            .get(..scheme.len())
            .is_some_and(|it| it.eq_ignore_ascii_case(scheme))
    };
    match request.form == TargetForm::Absolute && begins(HTTPS) != is_secure {
        true => Err(Fault::peer(
            Status::MISDIRECTED_REQUEST,
            "a target of another scheme than the connection's",
        )),
        false => Ok(()),
    }
}

/// Path and query of a target that begins at `start`, and whose path does at `path`.
fn split_query(request: &mut Request, path: u32, mark: Option<usize>, end: u32) {
    let start = request.target.start as usize;
    match mark.map(|mark| start + mark) {
        None => request.path = Span { start: path, end },
        Some(mark) => {
            request.path = span(path as usize, mark);
            request.query = Some(span(mark + 1, end as usize));
        }
    }
}

/// Parses the field line that begins at `start` (RFC 9112 section 5); says where its CR is.
fn parse_field(head: &[u8], start: usize) -> Result<(Field, usize), Stop> {
    let colon = name_end(head, start)?;
    let line_end = line_end(head, colon + 1)?;
    let (mut value_start, mut value_end) = (colon + 1, line_end);
    while is_blank(head[value_start]) {
        value_start += 1; // the CR is none
    }
    while value_end > value_start && is_blank(head[value_end - 1]) {
        value_end -= 1;
    }
    let field = Field {
        known: FieldName::from_bytes(&head[start..colon]),
        name: span(start, colon),
        value: span(value_start, value_end),
    };
    Ok((field, line_end))
}

/// Host rules of RFC 9112 section 3.2: exactly one since HTTP/1.1, and a valid one.
fn check_host(request: &mut Request) -> Result<(), Fault> {
    let mut hosts = request
        .fields
        .iter()
        .filter(|field| field.known == FieldName::Host);
    let host = hosts.next().copied();
    if hosts.next().is_some() {
        return Err(Fault::bad_request("more than one Host"));
    }
    let Some(host) = host else {
        if request.version != Version::Http10 {
            return Err(Fault::bad_request("no Host"));
        }
        return Ok(());
    };
    let value = host.value.of(&request.head);
    if !value.is_empty() && !is_authority(value) {
        return Err(Fault::bad_request("Host is not a host and a port"));
    }
    if matches!(request.form, TargetForm::Origin | TargetForm::Asterisk) {
        request.authority = host.value;
    }
    Ok(())
}

/// Whether the connection may stay open (RFC 9112 section 9.3).
fn persists(request: &Request) -> Result<bool, Fault> {
    let mut close = false;
    let mut keep_alive = false;
    for value in request.field_values(FieldName::Connection) {
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if !option.iter().all(|byte| is_token_byte(*byte)) {
                return Err(Fault::bad_request("Connection is not a list of tokens"));
            }
            close |= option.eq_ignore_ascii_case(b"close");
            keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    Ok(!close && (request.version != Version::Http10 || keep_alive))
}

/// RFC 9110 section 10.1.1. An expectation in HTTP/1.0, or without content, is ignored.
fn expects_continue(request: &Request, framing: Framing) -> Result<bool, Fault> {
    let mut expects = false;
    for value in request.field_values(FieldName::Expect) {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Fault::peer(
                Status::EXPECTATION_FAILED,
                "the expectation is not known",
            ));
        }
        expects = true;
    }
    Ok(expects && request.version != Version::Http10 && framing != Framing::Empty)
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Heads are bounded by `Limits::head_bytes_max`, far below 4 GiB.
#[allow(clippy::cast_possible_truncation, reason = "see above")]
fn span(start: usize, end: usize) -> Span {
    Span {
        start: start as u32,
        end: end as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::parse_request;

    fn ok(head: &[u8]) -> (Request, HeadFacts) {
        parse_request(head, &Limits::default()).unwrap()
    }

    #[test]
    fn a_head_in_parts() {
        let (request, facts) =
            ok(b"GET /a/b?c=d HTTP/1.1\r\nHost: h:80\r\nX-Y:  z \r\nRange: bytes=0-\r\n\r\n");
        assert_eq!(
            (request.path(), request.query()),
            (&b"/a/b"[..], Some(&b"c=d"[..]))
        );
        assert_eq!(request.authority(), b"h:80");
        assert_eq!(request.field(FieldName::Range), Some(&b"bytes=0-"[..]));
        assert_eq!(request.fields().nth(1), Some((&b"X-Y"[..], &b"z"[..])));
        assert!(facts.persist && facts.framing == Framing::Empty && !facts.expects_continue);
    }

    #[test]
    fn an_absolute_target_wins_over_host_and_its_empty_path_is_a_slash() {
        let (request, _) = ok(b"GET http://a:1?q HTTP/1.1\r\nHost: b\r\n\r\n");
        assert_eq!(request.authority(), b"a:1");
        assert_eq!(
            (request.path(), request.query()),
            (&b"/"[..], Some(&b"q"[..]))
        );
    }

    #[test]
    fn scanning_byte_by_byte_looks_at_each_byte_once() {
        let head = b"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let mut scanner = HeadScanner::default();
        for len in 0..head.len() {
            assert_eq!(
                scanner.scan(&head[..len], &Limits::default()),
                Ok(HeadScan::Partial)
            );
            assert_eq!(scanner.scanned, len);
        }
        let whole = HeadScan::Complete {
            start: 2,
            end: head.len(),
        };
        assert_eq!(scanner.scan(head, &Limits::default()), Ok(whole));
    }
}
