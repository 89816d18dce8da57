//! What requests and responses say about compression, as pure functions over their fields.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use loadline_codings::{AcceptedCodings, BYTES_MIN, Coding, essence, is_text_like};
use loadline_proto::Security;

/// Content that is longer, or of unknown length, is not compressed with brotli, whose encoder would keep the
/// last 8 MiB of it for each response.
const BROTLI_BYTES_MAX: u64 = 1 << 20;

/// Fields that are about the bytes of the content as they are.
const ABOUT_BYTES: [&str; 6] = [
    "content-digest",
    "content-encoding",
    "content-md5",
    "content-range",
    "digest",
    "repr-digest",
];

/// What a request says that counts for the compression of its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) is_head: bool,
    accepted: AcceptedCodings,
    /// The response may be for this client alone.
    has_credentials: bool,
    /// It knows content by a weak entity tag: perhaps by that of a compressed response.
    has_weak_tag: bool,
}

impl Asked {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let headers = request.headers();
        let values =
            |name: HeaderName| headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
        let security = request.extensions().get::<Arc<Security>>();
        Self {
            is_head: request.method() == Method::HEAD,
            accepted: AcceptedCodings::parse(values(header::ACCEPT_ENCODING)),
            has_credentials: headers.contains_key(header::COOKIE)
                || headers.contains_key(header::AUTHORIZATION)
                || security.is_some_and(|security| security.has_client_certificate),
            has_weak_tag: values(header::IF_NONE_MATCH)
                .any(|value| value.windows(2).any(|part| part == b"W/")),
        }
    }

    /// How long the content is, as its field or else its body says. Of a response to HEAD a length of 0 may be
    /// a framework's, for content that it left out itself.
    pub(super) fn content_len(&self, headers: &HeaderMap, body_len: Option<u64>) -> Option<u64> {
        let stated = headers.get(header::CONTENT_LENGTH);
        let stated = stated.and_then(|value| value.to_str().ok()?.parse().ok());
        stated.or_else(|| body_len.filter(|len| !self.is_head || *len > 0))
    }

    /// In which coding a compressible response leaves.
    pub(super) fn coding(
        &self,
        headers: &HeaderMap,
        len: Option<u64>,
        with_credentials: bool,
    ) -> Coding {
        if !with_credentials && self.may_have_secrets(headers) {
            return Coding::Identity;
        }
        let is_short = len.is_some_and(|len| len <= BROTLI_BYTES_MAX);
        let codings = Coding::COMPRESSED.into_iter();
        let codings = codings.filter(|coding| is_short || *coding != Coding::Brotli);
        match self.accepted.best(codings) {
            // At these levels zstd takes a third of the time for hardly more bytes.
            Coding::Brotli if !self.accepted.prefers(Coding::Brotli, Coding::Zstd) => Coding::Zstd,
            best => best,
        }
    }

    /// Whether the response may be for this client alone: with a secret in it, its length must not depend on
    /// what else it repeats (BREACH).
    fn may_have_secrets(&self, headers: &HeaderMap) -> bool {
        let says = |directive| lists(headers, header::CACHE_CONTROL, directive);
        let is_for_one = self.has_credentials || headers.contains_key(header::SET_COOKIE);
        says("private") || is_for_one && !says("public")
    }

    /// A 304: it says what the response with content would have said (RFC 9110 section 15.4.5), and to a client
    /// that has that compressed, what it has said. Whether it would have been text may not be known. A length would
    /// have to be that of the 200 (section 8.6), which nobody knows.
    pub(super) fn not_modified(&self, headers: &mut HeaderMap) {
        let is_text = !headers.contains_key(header::CONTENT_TYPE) || has_text(headers);
        if is_text && may_be_changed(headers) {
            vary_by_coding(headers);
            headers.remove(header::CONTENT_LENGTH);
        }
        if self.has_weak_tag {
            weaken_tag(headers);
        }
    }
}

/// Whether a response may be compressed for clients that accept it.
pub(super) fn is_compressible(status: StatusCode, headers: &HeaderMap, len: Option<u64>) -> bool {
    let has_whole = !status.is_informational()
        && !matches!(
            status,
            StatusCode::NO_CONTENT
                | StatusCode::RESET_CONTENT
                | StatusCode::PARTIAL_CONTENT
                | StatusCode::NOT_MODIFIED
        );
    has_whole
        && len.is_none_or(|len| len >= BYTES_MIN)
        && has_text(headers)
        && may_be_changed(headers)
}

fn has_text(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE);
    let media_type = media_type.and_then(|value| value.to_str().ok());
    media_type.is_some_and(|it| is_text_like(it) && !is_grpc(it))
}

/// Whether nothing that is said, or announced for the trailers, holds for the bytes as they are alone.
fn may_be_changed(headers: &HeaderMap) -> bool {
    let has_ranges = headers.contains_key(header::ACCEPT_RANGES)
        && !lists(headers, header::ACCEPT_RANGES, "none");
    let says = |name: &str| headers.contains_key(name) || lists(headers, header::TRAILER, name);
    !has_ranges
        && !ABOUT_BYTES.into_iter().any(says)
        && !lists(headers, header::CACHE_CONTROL, "no-transform")
}

/// gRPC compresses each message by itself (`application/grpc+json` is like text otherwise).
fn is_grpc(media_type: &str) -> bool {
    essence(media_type).starts_with("application/grpc")
}

/// Says that the response depends on what the client accepts.
pub(super) fn vary_by_coding(headers: &mut HeaderMap) {
    let says = |name| lists(headers, header::VARY, name);
    if !says("accept-encoding") && !says("*") {
        headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

/// Says that the content is in this coding, and no longer what holds for other bytes: its length and its
/// strong entity tag (RFC 9110 section 8.8.3.3). An app may know ranges without saying so: a client that asked for
/// the rest would join bytes of the content as it is to bytes of this coding.
pub(super) fn say_coding(headers: &mut HeaderMap, token: &'static str) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(token));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("none"));
    headers.remove(header::CONTENT_LENGTH);
    weaken_tag(headers);
}

/// Removes from the trailers of compressed content what holds for other bytes. Digests are of the content as it
/// is sent, or of the representation in its coding (RFC 9530 sections 2 and 3).
pub(super) fn correct_trailers(trailers: &mut HeaderMap) {
    for name in ABOUT_BYTES {
        trailers.remove(name);
    }
    weaken_tag(trailers);
}

fn weaken_tag(headers: &mut HeaderMap) {
    let Some(tag) = headers.get(header::ETAG).map(HeaderValue::as_bytes) else {
        return;
    };
    if tag.starts_with(b"W/") {
        return;
    }
    let weak = HeaderValue::from_bytes(&[b"W/", tag].concat());
    match weak.ok().filter(|_| tag.starts_with(b"\"")) {
        Some(weak) => headers.insert(header::ETAG, weak),
        None => headers.remove(header::ETAG), // it is none
    };
}

/// Whether a list has this member, with or without a value behind it.
fn lists(headers: &HeaderMap, name: HeaderName, member: &str) -> bool {
    let values = headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
    let mut members = values.flat_map(|value| value.split(|byte| *byte == b','));
    members.any(|it| {
        let name = it.split(|byte| *byte == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(member.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn asked(lines: &[(&'static str, &'static str)]) -> Asked {
        let mut request = Request::new(());
        *request.headers_mut() = fields(lines);
        Asked::of(&request)
    }

    #[test]
    fn what_may_be_compressed() {
        let text = ("content-type", "text/html; charset=utf-8");
        for (line, expected) in [
            (("x-other", "1"), true),
            (("vary", "*"), true),
            (("accept-ranges", "none"), true),
            (("cache-control", "no-store, max-age=0"), true),
            (("accept-ranges", "bytes"), false),
            (("cache-control", "max-age=1, No-Transform"), false),
            (("content-encoding", "br"), false),
            (("content-encoding", "identity"), false),
            (("content-range", "bytes 0-9/10"), false),
            (("repr-digest", "sha-256=:AAAA:"), false),
            (("trailer", "x-sum, Content-Digest"), false),
            (("trailer", "x-sum, etag"), true),
        ] {
            let headers = fields(&[text, line]);
            for len in [None, Some(1024)] {
                let is = is_compressible(StatusCode::OK, &headers, len);
                assert_eq!(is, expected, "{line:?}, {len:?}");
            }
        }
        for (media_type, expected) in [
            ("text/event-stream", true),
            ("application/problem+json", true),
            ("image/svg+xml", true),
            ("image/png", false),
            ("application/octet-stream", false),
            ("application/grpc", false),
            ("application/grpc+json", false),
            ("application/grpc-web-text+json", false),
            ("", false),
        ] {
            let headers = fields(&[("content-type", media_type)]);
            let is = is_compressible(StatusCode::OK, &headers, None);
            assert_eq!(is, expected, "{media_type}");
        }
        let (html, none) = (fields(&[text]), HeaderMap::new());
        for (status, headers, len, expected) in [
            (StatusCode::NOT_FOUND, &html, None, true),
            (StatusCode::NO_CONTENT, &html, None, false),
            (StatusCode::RESET_CONTENT, &html, None, false),
            (StatusCode::PARTIAL_CONTENT, &html, None, false),
            (StatusCode::NOT_MODIFIED, &html, None, false),
            (StatusCode::OK, &html, Some(1023), false),
            (StatusCode::OK, &html, Some(0), false),
            (StatusCode::OK, &none, None, false),
        ] {
            assert_eq!(is_compressible(status, headers, len), expected, "{status}");
        }
    }

    #[test]
    fn in_which_coding() {
        for (accept, short, long) in [
            ("gzip, deflate, br, zstd", Coding::Zstd, Coding::Zstd),
            ("gzip, br", Coding::Brotli, Coding::Gzip),
            ("br", Coding::Brotli, Coding::Identity),
            ("br, zstd;q=0.9", Coding::Brotli, Coding::Zstd),
            ("br, zstd;q=0", Coding::Brotli, Coding::Identity),
            ("gzip, zstd;q=0.9, br;q=0.8", Coding::Gzip, Coding::Gzip),
            ("*", Coding::Zstd, Coding::Zstd),
            ("identity;q=0, gzip;q=0.1", Coding::Gzip, Coding::Gzip),
            ("identity, gzip;q=0.5", Coding::Identity, Coding::Identity),
            ("identity;q=0", Coding::Identity, Coding::Identity),
            ("", Coding::Identity, Coding::Identity),
        ] {
            let asked = asked(&[("accept-encoding", accept)]);
            let coding = |len| asked.coding(&HeaderMap::new(), len, false);
            assert_eq!(coding(Some(1 << 20)), short, "{accept}");
            assert_eq!(coding(Some((1 << 20) + 1)), long, "{accept}");
            assert_eq!(coding(None), long, "{accept}");
        }
    }

    #[test]
    fn what_may_be_secret_is_not_compressed_unless_it_is_to_be() {
        let gzip = ("accept-encoding", "gzip");
        let none = ("x-none", "");
        for (request, response, is_secret) in [
            (none, none, false),
            (none, ("cache-control", "no-store"), false),
            (("cookie", "a=1"), none, true),
            (("authorization", "Bearer x"), none, true),
            (none, ("set-cookie", "a=1"), true),
            (none, ("cache-control", "max-age=9, Private=\"x\""), true),
            (("cookie", "a=1"), ("cache-control", "public"), false),
            (none, ("cache-control", "public, private"), true),
        ] {
            let (asked, headers) = (asked(&[gzip, request]), fields(&[response]));
            let is_compressed = |all| asked.coding(&headers, None, all) == Coding::Gzip;
            assert_eq!(is_compressed(false), !is_secret, "{request:?} {response:?}");
            assert!(is_compressed(true));
        }
        let mut request = Request::new(());
        *request.headers_mut() = fields(&[gzip]);
        let security = Security {
            has_client_certificate: true, // its subject may be unknown
            ..Security::default()
        };
        request.extensions_mut().insert(Arc::new(security));
        assert!(Asked::of(&request).has_credentials);
    }

    #[test]
    fn entity_tags_become_weak() {
        for (tag, weak) in [
            ("\"1\"", Some("W/\"1\"")),
            ("W/\"1\"", Some("W/\"1\"")),
            ("1", None),
            ("", None),
        ] {
            let mut headers = fields(&[("etag", tag), ("content-length", "9")]);
            say_coding(&mut headers, "gzip");
            let value = |name| headers.get(name).map(|value| value.to_str().unwrap());
            assert_eq!(value("etag"), weak, "{tag}");
            assert_eq!(value("content-encoding"), Some("gzip"));
            assert_eq!(value("accept-ranges"), Some("none"));
            assert_eq!(value("content-length"), None);
        }
        for (known, is_weak) in [
            ("W/\"1\"", true),
            ("\"0\", W/\"1\"", true),
            ("\"1\"", false),
        ] {
            let mut headers = fields(&[("etag", "\"1\"")]);
            asked(&[("if-none-match", known)]).not_modified(&mut headers);
            let tag = headers.get("etag").unwrap().to_str().unwrap();
            assert_eq!(tag.starts_with("W/"), is_weak, "{known}");
        }
    }

    /// Also to a client that has the response as it is.
    #[test]
    fn what_is_not_modified_varies_as_the_response_would() {
        for (line, varies) in [
            (("etag", "\"1\""), true),
            (("content-type", "text/html"), true),
            (("content-type", "image/png"), false),
            (("cache-control", "no-transform"), false),
            (("accept-ranges", "bytes"), false),
        ] {
            let mut headers = fields(&[line, ("content-length", "5000")]);
            asked(&[("if-none-match", "\"1\"")]).not_modified(&mut headers);
            assert_eq!(headers.contains_key("vary"), varies, "{line:?}");
            // That of the content as it is was stated.
            assert_eq!(headers.contains_key("content-length"), !varies, "{line:?}");
        }
    }

    #[test]
    fn trailers_say_nothing_of_other_bytes() {
        let mut trailers = fields(&[
            ("content-digest", "sha-256=:AAAA:"),
            ("repr-digest", "sha-256=:AAAA:"),
            ("etag", "\"1\""),
            ("x-sum", "7"),
        ]);
        correct_trailers(&mut trailers);
        assert_eq!(trailers, fields(&[("etag", "W/\"1\""), ("x-sum", "7")]));
    }

    #[test]
    fn vary_is_said_once() {
        for (before, lines) in [
            (&[][..], 1),
            (&[("vary", "Origin")], 2),
            (&[("vary", "Origin, Accept-encoding")], 1),
            (&[("vary", "*")], 1),
        ] {
            let mut headers = fields(before);
            vary_by_coding(&mut headers);
            assert_eq!(headers.get_all("vary").iter().count(), lines, "{before:?}");
        }
    }

    #[test]
    fn a_length_of_0_says_nothing_of_what_head_leaves_out() {
        let get = asked(&[]);
        let head = Asked {
            is_head: true,
            ..get
        };
        let stated = fields(&[("content-length", "7")]);
        for (asked, headers, body, len) in [
            (&get, &stated, Some(0), Some(7)),
            (&get, &HeaderMap::new(), Some(0), Some(0)),
            (&get, &HeaderMap::new(), None, None),
            (&head, &stated, Some(0), Some(7)),
            (&head, &HeaderMap::new(), Some(0), None),
            (&head, &HeaderMap::new(), Some(5), Some(5)),
        ] {
            assert_eq!(asked.content_len(headers, body), len);
        }
    }
}
