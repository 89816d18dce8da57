//! Conditional requests (RFC 9110 section 13).
//!
//! Dates count in whole seconds. A date or a tag that cannot be read is ignored or matches nothing,
//! whichever is the safe side: a condition against overwriting fails, a copy is not called good.

use loadline_proto::{FieldName, Method, Request};

/// The condition fields of a request: values as they came.
#[derive(Clone, Debug)]
pub struct Conditions<'r, M, N> {
    /// The method.
    pub method: Method,
    /// Every value of If-Match.
    pub if_match: M,
    /// The value of If-Unmodified-Since.
    pub if_unmodified_since: Option<&'r [u8]>,
    /// Every value of If-None-Match.
    pub if_none_match: N,
    /// The value of If-Modified-Since.
    pub if_modified_since: Option<&'r [u8]>,
    /// The value of If-Range.
    pub if_range: Option<&'r [u8]>,
}

/// What is known of the representation that a request selects.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'v> {
    /// Its ETag as sent: with quotes, and `W/` if it is weak.
    pub etag: Option<&'v [u8]>,
    /// When it last changed, in whole seconds since 1970 (rounded down), as Last-Modified says.
    pub modified_seconds: Option<u64>,
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

/// The condition fields of `request`.
pub fn conditions_of(
    request: &Request,
) -> Conditions<'_, impl Iterator<Item = &[u8]>, impl Iterator<Item = &[u8]>> {
    // More than one date or validator is none: the empty value can be read as neither.
    let single = |name| {
        let mut values = request.field_values(name);
        let first = values.next();
        if values.next().is_some() {
            Some(&[][..])
        } else {
            first
        }
    };
    Conditions {
        method: request.method,
        if_match: request.field_values(FieldName::IfMatch),
        if_unmodified_since: single(FieldName::IfUnmodifiedSince),
        if_none_match: request.field_values(FieldName::IfNoneMatch),
        if_modified_since: single(FieldName::IfModifiedSince),
        if_range: single(FieldName::IfRange),
    }
}

/// Weighs the conditions in the order of RFC 9110 section 13.2.2. To be asked only if the answer
/// without them would be 200.
pub fn evaluate<'r, M, N>(conditions: Conditions<'r, M, N>, validators: &Validators<'_>) -> Decision
where
    M: Iterator<Item = &'r [u8]>,
    N: Iterator<Item = &'r [u8]>,
{
    let method = conditions.method;
    if matches!(method, Method::Connect | Method::Options | Method::Trace) {
        return Decision::Proceed { range: false };
    }
    let is_read = matches!(method, Method::Get | Method::Head);
    let modified = validators.modified_seconds;

    let if_match = any_tag_matches(conditions.if_match, validators.etag, strongly_equal);
    let unmodified_since = conditions.if_unmodified_since.and_then(date_seconds);
    let may_change = match (if_match, unmodified_since, modified) {
        (Some(matches), _, _) => matches,
        (None, Some(date), Some(modified)) => modified <= date,
        _ => true,
    };
    if !may_change {
        return Decision::PreconditionFailed;
    }

    let if_none_match = any_tag_matches(conditions.if_none_match, validators.etag, weakly_equal);
    let modified_since = conditions.if_modified_since.and_then(date_seconds);
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
                && conditions
                    .if_range
                    .is_none_or(|value| is_same_version(value, validators)),
        },
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
    // A date is a strong validator only once its second is over: before, the content may have
    // changed twice under the same Last-Modified (RFC 9110 section 8.8.2.2).
    date_seconds(value).is_some_and(|date| {
        validators.modified_seconds == Some(date) && date < validators.now_seconds
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
    const WHOLE: Decision = Proceed { range: false };
    const GO: Decision = Proceed { range: true };

    fn validators(etag: &str) -> Validators<'_> {
        Validators {
            etag: (!etag.is_empty()).then_some(etag.as_bytes()),
            modified_seconds: Some(MODIFIED),
            now_seconds: MODIFIED + 100,
        }
    }

    /// Fields as `("if-match", "value")`, weighed against a representation.
    fn decide(method: Method, fields: &[(&str, &str)], validators: &Validators<'_>) -> Decision {
        let of = |wanted: &'static str| {
            let matching = fields.iter().filter(move |(name, _)| *name == wanted);
            matching.map(|(_, value)| value.as_bytes())
        };
        let conditions = Conditions {
            method,
            if_match: of("if-match"),
            if_unmodified_since: of("if-unmodified-since").next(),
            if_none_match: of("if-none-match"),
            if_modified_since: of("if-modified-since").next(),
            if_range: of("if-range").next(),
        };
        evaluate(conditions, validators)
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
        let decide = |fields: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let limits = loadline_proto::Limits::default();
            let (request, _) =
                loadline_proto::http1::parse_request(head.as_bytes(), &limits).unwrap();
            evaluate(conditions_of(&request), &validators(ETAG))
        };
        let since = format!("If-Modified-Since: {AT}\r\n");
        assert_eq!(decide(&since), NotModified);
        assert_eq!(decide(&since.repeat(2)), GO);
        let unmodified = format!("If-Unmodified-Since: {BEFORE}\r\n");
        assert_eq!(decide(&unmodified), PreconditionFailed);
        assert_eq!(decide(&unmodified.repeat(2)), GO);
        let range = format!("If-Range: {ETAG}\r\n");
        assert_eq!(decide(&range), GO);
        assert_eq!(decide(&range.repeat(2)), WHOLE);
        let list = format!("If-None-Match: \"v0\"\r\nX: y\r\nif-none-match: {ETAG}\r\n");
        assert_eq!(decide(&list), NotModified);
        assert_eq!(decide("If-Match: \"v0\"\r\n"), PreconditionFailed);
    }

    #[test]
    fn table_of_methods_and_lines() {
        use Method::{Get, Head, Options, Put};
        let star_and_more = [("if-match", "*"), ("if-match", "\"v0\"")];
        let match_over_lines = [("if-match", "\"v0\""), ("if-match", ETAG)];
        let none_match_over_lines = [("if-none-match", "\"v0\""), ("if-none-match", ETAG)];
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
            (Put, &[("if-none-match", "*")], PreconditionFailed),
            (Head, &[("if-modified-since", AT)], NotModified),
            (Put, &[("if-modified-since", AT)], WHOLE),
            (Head, &[("if-range", ETAG)], WHOLE),
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
        check("if-match", &table);
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
        check("if-none-match", &table);
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
        check("if-modified-since", &modified_since);
        let unmodified_since = [
            (AT, ETAG, GO),
            (AFTER, ETAG, GO),
            (BEFORE, ETAG, PreconditionFailed),
            ("Sunday, 06-Nov-94 08:49:36 GMT", ETAG, PreconditionFailed),
            ("long ago", ETAG, GO),
        ];
        check("if-unmodified-since", &unmodified_since);
        let unknown = Validators {
            modified_seconds: None,
            ..validators(ETAG)
        };
        for name in ["if-modified-since", "if-unmodified-since"] {
            assert_eq!(decide(Method::Get, &[(name, BEFORE)], &unknown), GO);
        }
    }

    #[test]
    fn table_of_precedence() {
        const STALE: &str = "\"v0\"";
        for (fields, decision) in [
            // If-Match silences If-Unmodified-Since, either way.
            (
                &[("if-match", ETAG), ("if-unmodified-since", BEFORE)][..],
                GO,
            ),
            (
                &[("if-match", STALE), ("if-unmodified-since", AFTER)],
                PreconditionFailed,
            ),
            // If-None-Match silences If-Modified-Since, even if it cannot be read.
            (&[("if-none-match", STALE), ("if-modified-since", AT)], GO),
            (
                &[("if-none-match", ETAG), ("if-modified-since", BEFORE)],
                NotModified,
            ),
            (
                &[("if-none-match", "garbage"), ("if-modified-since", AT)],
                GO,
            ),
            // 412 comes before 304.
            (
                &[("if-match", STALE), ("if-none-match", ETAG)],
                PreconditionFailed,
            ),
            (&[("if-match", ETAG), ("if-none-match", ETAG)], NotModified),
            (
                &[("if-unmodified-since", BEFORE), ("if-modified-since", AT)],
                PreconditionFailed,
            ),
            (
                &[("if-unmodified-since", AT), ("if-modified-since", AT)],
                NotModified,
            ),
            // If-Range comes last and only ever costs the range.
            (&[("if-none-match", ETAG), ("if-range", ETAG)], NotModified),
            (&[("if-none-match", STALE), ("if-range", STALE)], WHOLE),
            (&[("if-match", ETAG), ("if-range", ETAG)], GO),
        ] {
            assert_eq!(
                decide(Method::Get, fields, &validators(ETAG)),
                decision,
                "{fields:?}"
            );
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
        check("if-range", &table);
        // The second of the change is not over, so that its date is weak.
        for (now_seconds, decision) in
            [(MODIFIED, WHOLE), (MODIFIED - 1, WHOLE), (MODIFIED + 1, GO)]
        {
            let young = Validators {
                now_seconds,
                ..validators(ETAG)
            };
            assert_eq!(decide(Method::Get, &[("if-range", AT)], &young), decision);
        }
    }
}
