//! A request as a line of a log has it.

use std::borrow::Cow;

use loadline_proto::Method;

use super::time::LogTime;

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine<'l> {
    /// The method; `None`: one that is not known here.
    pub method: Option<Method>,
    /// The target in origin form, as it was sent; nothing in it can end a request line.
    pub target: Cow<'l, [u8]>,
    /// When the request was logged, if the line says.
    pub time: Option<LogTime>,
}

/// `GET /path HTTP/1.1`. A line without a version was cut, or is no request of today.
pub(super) fn request_line(line: &[u8]) -> Result<(Option<Method>, Cow<'_, [u8]>), &'static str> {
    const REASON: &str = "what is in its quotes is no request";
    let first = line.iter().position(|byte| *byte == b' ').ok_or(REASON)?;
    let last = line.iter().rposition(|byte| *byte == b' ').ok_or(REASON)?;
    if first == last || !line[last + 1..].starts_with(b"HTTP/") {
        return Err(REASON);
    }
    let method = method(&line[..first])?;
    Ok((method, origin(&line[first + 1..last])?))
}

/// The method by its name, `None` for one that is not known.
pub(super) fn method(name: &[u8]) -> Result<Option<Method>, &'static str> {
    let is_name = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'-' || *byte == b'_';
    if name.is_empty() || !name.iter().all(is_name) {
        return Err("its method is none");
    }
    Ok(Method::from_token(name))
}

/// The origin form of a target: a proxy's log has whole URLs.
pub(super) fn origin(target: &[u8]) -> Result<Cow<'_, [u8]>, &'static str> {
    if target.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return Err("its target has a blank or a control character in it");
    }
    if target.starts_with(b"/") {
        return Ok(Cow::Borrowed(target));
    }
    let after = |scheme: &[u8]| {
        let (begin, rest) = target.split_at_checked(scheme.len())?;
        begin.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let Some(rest) = after(b"http://").or_else(|| after(b"https://")) else {
        return Err("its target is no path");
    };
    match rest.iter().position(|byte| matches!(byte, b'/' | b'?')) {
        None => Ok(Cow::Borrowed(b"/")),
        Some(begin) if rest[begin] == b'/' => Ok(Cow::Borrowed(&rest[begin..])),
        Some(begin) => Ok(Cow::Owned([b"/", &rest[begin..]].concat())),
    }
}
