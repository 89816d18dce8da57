//! Conditional requests (RFC 9110 section 13).
//!
//! Dates count in whole seconds. A date or a tag that cannot be read is ignored or matches nothing,
//! whichever is the safe side: a condition against overwriting fails, a copy is not called good.

use loadline_proto::{FieldName, Method, Request};

/// What is known of the representation that a request selects.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'v> {
    /// Its ETag as sent: with quotes, and `W/` if it is weak.
    pub etag: Option<&'v [u8]>,
    /// When it last changed, in whole seconds since 1970 (rounded down), as Last-Modified says.
    pub modified_seconds: Option<u64>,
    /// Whether there are, or may be, other representations with the same date: compressed ones, for
    /// instance. Then the date cannot tell which of them a client has (RFC 9110 section 8.8.1).
    pub is_date_shared: bool,
    /// The time now, in seconds since 1970, as Date says.
    pub now_seconds: u64,
}

/// What the conditions come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Answer as if there were no conditions; `range`: Range may be honoured, if it is there.
    Proceed {
        /// Whether Range applies.
        range: bool,
    },
    /// 304: the client's copy is good.
    NotModified,
    /// 412.
    PreconditionFailed,
}

/// Weighs the condition fields of `request` in the order of RFC 9110 section 13.2.2. To be asked only
/// if the answer without them would be 200.
#[must_use]
pub fn evaluate(request: &Request, validators: &Validators<'_>) -> Decision {
    let method = request.method;
    if matches!(method, Method::Connect | Method::Options | Method::Trace) {
        return Decision::Proceed { range: false };
    }
    let is_read = matches!(method, Method::Get | Method::Head);
    let modified = validators.modified_seconds;

    let if_match = request.field_values(FieldName::IfMatch);
    let if_match = any_tag_matches(if_match, validators.etag, strongly_equal);
    let unmodified_since = single(request, FieldName::IfUnmodifiedSince).and_then(date_seconds);
    let may_change = match (if_match, unmodified_since, modified) {
        (Some(matches), _, _) => matches,
        (None, Some(date), Some(modified)) => modified <= date,
        _ => true,
    };
    if !may_change {
        return Decision::PreconditionFailed;
    }

    let if_none_match = request.field_values(FieldName::IfNoneMatch);
    let if_none_match = any_tag_matches(if_none_match, validators.etag, weakly_equal);
    let modified_since = single(request, FieldName::IfModifiedSince).and_then(date_seconds);
    let has_copy = match (if_none_match, modified_since, modified) {
        (Some(matches), _, _) => matches,
        (None, Some(date), Some(modified)) => is_read && modified <= date,
        _ => false,
    };
    match (has_copy, is_read) {
        (true, true) => Decision::NotModified,
        (true, false) => Decision::PreconditionFailed,
        (false, _) => Decision::Proceed {
            range: method == Method::Get
                && single(request, FieldName::IfRange)
                    .is_none_or(|value| is_same_version(value, validators)),
        },
    }
}

/// The value of a date or of one validator. More than one is none: the empty value can be read as
/// neither.
fn single(request: &Request, name: FieldName) -> Option<&[u8]> {
    let mut values = request.field_values(name);
    match (values.next(), values.next()) {
        (first, None) => first,
        (_, Some(_)) => Some(&[]),
    }
}

/// Whether If-Range names exactly the version at hand (RFC 9110 section 13.1.5).
fn is_same_version(value: &[u8], validators: &Validators<'_>) -> bool {
    if value.starts_with(b"\"") || value.starts_with(b"W/") {
        let is_one_tag = matches!(split_tag(value), Some((_, b"")));
        return is_one_tag
            && validators
                .etag
                .is_some_and(|etag| strongly_equal(value, etag));
    }
    // A date is a strong validator only of one representation alone, and once its second is over: before,
    // the content may have changed twice under the same Last-Modified (RFC 9110 section 8.8.2.2).
    date_seconds(value).is_some_and(|date| {
        validators.modified_seconds == Some(date)
            && date < validators.now_seconds
            && !validators.is_date_shared
    })
}

/// Whether a list of tags over several field lines has the current one; `None`: there is no such
/// field. `*` matches whatever there is, if it stands alone.
fn any_tag_matches<'r>(
    mut values: impl Iterator<Item = &'r [u8]>,
    etag: Option<&[u8]>,
    equal: fn(&[u8], &[u8]) -> bool,
) -> Option<bool> {
    let first = values.next()?;
    if first == b"*" {
        return Some(values.next().is_none());
    }
    let etag = etag.unwrap_or_default();
    Some(
        std::iter::once(first)
            .chain(values)
            .any(|value| tags(value).any(|tag| equal(tag, etag))),
    )
}

/// The well-formed tags of one field line, quotes and `W/` included.
fn tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = value;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let start = rest.trim_ascii_start();
            let found = split_tag(start);
            let after = found.map_or(start, |(_, after)| after);
            let end = after.iter().position(|byte| *byte == b',');
            let (gap, next) = after.split_at(end.unwrap_or(after.len()));
            rest = next.get(1..).unwrap_or_default();
            if let Some((tag, _)) = found
                && gap.trim_ascii().is_empty()
            {
                return Some(tag);
            }
        }
        None
    })
}

/// An entity-tag (RFC 9110 section 8.8.3) and what follows it.
fn split_tag(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let open = if value.starts_with(b"W/") { 2 } else { 0 };
    if value.get(open) != Some(&b'"') {
        return None;
    }
    let is_tag_char = |byte: &u8| matches!(byte, 0x21 | 0x23..=0x7e | 0x80..);
    let inner = &value[open + 1..];
    let close = inner.iter().position(|byte| !is_tag_char(byte))?;
    (inner[close] == b'"').then(|| value.split_at(open + 1 + close + 1))
}

fn strongly_equal(one: &[u8], other: &[u8]) -> bool {
    one == other && one.starts_with(b"\"")
}

fn weakly_equal(one: &[u8], other: &[u8]) -> bool {
    fn opaque(tag: &[u8]) -> &[u8] {
        tag.strip_prefix(b"W/").unwrap_or(tag)
    }
    opaque(one) == opaque(other)
}

/// Seconds since 1970 of a date in any of the three forms of RFC 9110 section 5.6.7.
fn date_seconds(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let date = httpdate::parse_http_date(text).ok()?;
    let since = date.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::Decision::{NotModified, PreconditionFailed, Proceed};
    use super::*;

    const ETAG: &str = "\"v1\"";
    const MODIFIED: u64 = 784_111_777;
    const AT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const MATCH: &str = "if-match";
    const NONE_MATCH: &str = "if-none-match";
    const SINCE: &str = "if-modified-since";
    const UNMODIFIED: &str = "if-unmodified-since";
    const RANGE: &str = "if-range";
    const WHOLE: Decision = Proceed { range: false };
    const GO: Decision = Proceed { range: true };

    fn validators(etag: &str) -> Validators<'_> {
        Validators {
            etag: (!etag.is_empty()).then_some(etag.as_bytes()),
            modified_seconds: Some(MODIFIED),
            is_date_shared: false,
            now_seconds: MODIFIED + 100,
        }
    }

    /// Fields as `("if-match", "value")`, weighed against a representation.
    fn decide(method: Method, fields: &[(&str, &str)], validators: &Validators<'_>) -> Decision {
        let line = |(name, value): &(&str, &str)| format!("{name}: {value}\r\n");
        let lines: String = fields.iter().map(line).collect();
        let head = format!("{} / HTTP/1.1\r\nHost: a\r\n{lines}\r\n", method.as_str());
        let limits = loadline_proto::Limits::default();
        let (request, _) = loadline_proto::http1::parse_request(head.as_bytes(), &limits).unwrap();
        evaluate(&request, validators)
    }

    /// GETs with one field of this value, against a representation with this tag.
    fn check(name: &str, table: &[(&str, &str, Decision)]) {
        for (value, etag, decision) in table {
            let decided = decide(Method::Get, &[(name, value)], &validators(etag));
            assert_eq!(decided, *decision, "{name}: {value} against {etag}");
        }
    }

    #[test]
    fn two_dates_or_validators_are_none_and_lists_go_over_lines() {
        let decide = |fields: &[_]| decide(Method::Get, fields, &validators(ETAG));
        for (name, value, once, twice) in [
            ("If-Modified-Since", AT, NotModified, GO),
            ("If-Unmodified-Since", BEFORE, PreconditionFailed, GO),
            ("If-Range", ETAG, GO, WHOLE),
        ] {
            assert_eq!(decide(&[(name, value)]), once, "{name}");
            assert_eq!(decide(&[(name, value); 2]), twice, "{name}");
        }
        let list = [
            ("If-None-Match", "\"v0\""),
            ("X", "y"),
            ("if-none-match", ETAG),
        ];
        assert_eq!(decide(&list), NotModified);
        assert_eq!(decide(&[("If-Match", "\"v0\"")]), PreconditionFailed);
    }

    #[test]
    fn table_of_methods_and_lines() {
        use Method::{Get, Head, Options, Put};
        let star_and_more = [(MATCH, "*"), (MATCH, "\"v0\"")];
        let match_over_lines = [(MATCH, "\"v0\""), (MATCH, ETAG)];
        let none_match_over_lines = [(NONE_MATCH, "\"v0\""), (NONE_MATCH, ETAG)];
        for (method, fields, decision) in [
            (Get, &[][..], GO),
            (Head, &[], WHOLE),
            (Put, &[], WHOLE),
            (Options, &[], WHOLE),
            (Get, &match_over_lines, GO),
            (Get, &star_and_more, PreconditionFailed),
            (Head, &none_match_over_lines, NotModified),
            (Put, &none_match_over_lines, PreconditionFailed),
            (Options, &none_match_over_lines, WHOLE),
            (Put, &[(NONE_MATCH, "*")], PreconditionFailed),
            (Head, &[(SINCE, AT)], NotModified),
            (Put, &[(SINCE, AT)], WHOLE),
            (Head, &[(RANGE, ETAG)], WHOLE),
        ] {
            let decided = decide(method, fields, &validators(ETAG));
            assert_eq!(decided, decision, "{method:?}: {fields:?}");
        }
    }

    #[test]
    fn table_of_if_match() {
        let table = [
            (r#""v1""#, ETAG, GO),
            (r#""v0", "v1""#, ETAG, GO),
            (r#""v0","v1","v2""#, ETAG, GO),
            (r#" , "v0" ,, "v1" "#, ETAG, GO),
            ("*", ETAG, GO),
            ("*", "", GO),
            (r#""v,1", "v1""#, ETAG, GO),
            (r#""v,1""#, r#""v,1""#, GO),
            (r#""v0""#, ETAG, PreconditionFailed),
            (r#"W/"v1""#, ETAG, PreconditionFailed),
            (r#""v1""#, r#"W/"v1""#, PreconditionFailed),
            (r#"W/"v1""#, r#"W/"v1""#, PreconditionFailed),
            (r#""V1""#, ETAG, PreconditionFailed),
            (r#""v1""#, "", PreconditionFailed),
            ("", ETAG, PreconditionFailed),
            ("", "", PreconditionFailed),
            ("v1", ETAG, PreconditionFailed),
            (r#""v1"#, ETAG, PreconditionFailed),
            (r#"v1""#, ETAG, PreconditionFailed),
            (r#""v1"x"#, ETAG, PreconditionFailed),
            (r#""v1" "v2""#, ETAG, PreconditionFailed),
            (r#"x, "v1""#, ETAG, GO),
            (r#"*, "v1""#, ETAG, GO),
            (r#""v2", *"#, ETAG, PreconditionFailed),
            (r#""v0,"v1""#, ETAG, PreconditionFailed),
        ];
        check(MATCH, &table);
    }

    #[test]
    fn table_of_if_none_match() {
        let table = [
            (r#""v1""#, ETAG, NotModified),
            (r#"W/"v1""#, ETAG, NotModified),
            (r#""v1""#, r#"W/"v1""#, NotModified),
            (r#""v0", W/"v1""#, ETAG, NotModified),
            (r#""v0","v1""#, ETAG, NotModified),
            ("*", ETAG, NotModified),
            ("*", "", NotModified),
            (r#""v0""#, ETAG, GO),
            (r#""v1""#, "", GO),
            (r#""""#, "", GO),
            ("", ETAG, GO),
            (r#"w/"v1""#, ETAG, GO),
            (r#"W/v1"#, ETAG, GO),
            ("v1", ETAG, GO),
            (r#""v1-gzip""#, ETAG, GO),
        ];
        check(NONE_MATCH, &table);
    }

    #[test]
    fn table_of_dates() {
        let modified_since = [
            (AT, ETAG, NotModified),
            (AFTER, ETAG, NotModified),
            (BEFORE, ETAG, GO),
            ("Sunday, 06-Nov-94 08:49:37 GMT", ETAG, NotModified),
            ("Sun Nov  6 08:49:37 1994", ETAG, NotModified),
            ("", ETAG, GO),
            ("yesterday", ETAG, GO),
            ("784111777", ETAG, GO),
            ("Sun, 06 Nov 1994 08:49:37", ETAG, GO),
            ("Sun, 32 Nov 2094 08:49:37 GMT", ETAG, GO),
            ("S\u{fc}n, 06 Nov 1994 08:49:37 GMT", ETAG, GO),
            (
                "Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
                ETAG,
                GO,
            ),
        ];
        check(SINCE, &modified_since);
        let unmodified_since = [
            (AT, ETAG, GO),
            (AFTER, ETAG, GO),
            (BEFORE, ETAG, PreconditionFailed),
            ("Sunday, 06-Nov-94 08:49:36 GMT", ETAG, PreconditionFailed),
            ("long ago", ETAG, GO),
        ];
        check(UNMODIFIED, &unmodified_since);
        let unknown = Validators {
            modified_seconds: None,
            ..validators(ETAG)
        };
        for name in [SINCE, UNMODIFIED] {
            assert_eq!(decide(Method::Get, &[(name, BEFORE)], &unknown), GO);
        }
    }

    #[test]
    fn table_of_precedence() {
        const STALE: &str = "\"v0\"";
        for (fields, decision) in [
            // If-Match silences If-Unmodified-Since, either way.
            (&[(MATCH, ETAG), (UNMODIFIED, BEFORE)][..], GO),
            (&[(MATCH, STALE), (UNMODIFIED, AFTER)], PreconditionFailed),
            // If-None-Match silences If-Modified-Since, even if it cannot be read.
            (&[(NONE_MATCH, STALE), (SINCE, AT)], GO),
            (&[(NONE_MATCH, ETAG), (SINCE, BEFORE)], NotModified),
            (&[(NONE_MATCH, "garbage"), (SINCE, AT)], GO),
            // 412 comes before 304.
            (&[(MATCH, STALE), (NONE_MATCH, ETAG)], PreconditionFailed),
            (&[(MATCH, ETAG), (NONE_MATCH, ETAG)], NotModified),
            (&[(UNMODIFIED, BEFORE), (SINCE, AT)], PreconditionFailed),
            (&[(UNMODIFIED, AT), (SINCE, AT)], NotModified),
            // If-Range comes last and only ever costs the range.
            (&[(NONE_MATCH, ETAG), (RANGE, ETAG)], NotModified),
            (&[(NONE_MATCH, STALE), (RANGE, STALE)], WHOLE),
            (&[(MATCH, ETAG), (RANGE, ETAG)], GO),
        ] {
            let decided = decide(Method::Get, fields, &validators(ETAG));
            assert_eq!(decided, decision, "{fields:?}");
        }
    }

    #[test]
    fn table_of_if_range() {
        let table = [
            (ETAG, ETAG, GO),
            (AT, ETAG, GO),
            ("Sun Nov  6 08:49:37 1994", ETAG, GO),
            ("\"v0\"", ETAG, WHOLE),
            ("W/\"v1\"", ETAG, WHOLE),
            ("W/\"v1\"", "W/\"v1\"", WHOLE),
            (ETAG, "W/\"v1\"", WHOLE),
            (ETAG, "", WHOLE),
            ("\"v1\", \"v2\"", ETAG, WHOLE),
            ("*", ETAG, WHOLE),
            ("", ETAG, WHOLE),
            (BEFORE, ETAG, WHOLE),
            (AFTER, ETAG, WHOLE),
            ("v1", ETAG, WHOLE),
        ];
        check(RANGE, &table);
        // The second of the change is not over, so that its date is weak.
        for (now_seconds, decision) in
            [(MODIFIED, WHOLE), (MODIFIED - 1, WHOLE), (MODIFIED + 1, GO)]
        {
            let young = Validators {
                now_seconds,
                ..validators(ETAG)
            };
            assert_eq!(decide(Method::Get, &[(RANGE, AT)], &young), decision);
        }
        // Part of one form behind part of another would be neither.
        let shared = Validators {
            is_date_shared: true,
            ..validators(ETAG)
        };
        for (value, decision) in [(AT, WHOLE), (ETAG, GO)] {
            let decided = decide(Method::Get, &[(RANGE, value)], &shared);
            assert_eq!(decided, decision, "{value}");
        }
        assert_eq!(decide(Method::Get, &[(SINCE, AT)], &shared), NotModified);
    }
}
