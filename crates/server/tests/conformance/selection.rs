//! Tables of ranges and conditions (RFC 9110 sections 13 and 14).

use loadline_apps::StaticOptions;

use crate::fixture::{Model, Server, limits, pattern};

every_model! {
    ranges,
    several_ranges,
    conditions,
    conditions_on_ranges,
    encoded_neighbours,
}

pub fn ranges(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    // A large file goes by sendfile, a middle one from memory, a small one inline.
    for (name, len) in [
        ("style.css", 5_000),
        ("middle.bin", 100_000),
        ("big.bin", 3_000_001),
    ] {
        let content = pattern(len);
        let last = len - 1;
        let whole = 0..len;
        let table = [
            ("bytes=0-0".to_owned(), 206, 0..1),
            ("bytes=0-99".to_owned(), 206, 0..100),
            ("bytes=10-".to_owned(), 206, 10..len),
            ("bytes=-7".to_owned(), 206, len - 7..len),
            (format!("bytes=-{}", len + 5), 206, whole.clone()),
            (format!("bytes=5-{}", len + 5), 206, 5..len),
            (format!("bytes={last}-{last}"), 206, last..len),
            (format!("bytes=0-{}", u64::MAX), 206, whole.clone()),
            ("BYTES=0-0".to_owned(), 206, 0..1),
            (format!("bytes={len}-"), 416, whole.clone()),
            ("bytes=-0".to_owned(), 416, whole.clone()),
            (format!("bytes={}-{}", len + 5, len + 9), 416, whole.clone()),
            // What is no valid range set is ignored, and so is another unit.
            ("bytes=".to_owned(), 200, whole.clone()),
            ("bytes=5-4".to_owned(), 200, whole.clone()),
            ("bytes=a-b".to_owned(), 200, whole.clone()),
            ("bytes=1".to_owned(), 200, whole.clone()),
            ("bytes 0-1".to_owned(), 200, whole.clone()),
            ("bytes=--1".to_owned(), 200, whole.clone()),
            ("bytes=+1-2".to_owned(), 200, whole.clone()),
            ("bytes=0x1-2".to_owned(), 200, whole.clone()),
            ("lines=0-1".to_owned(), 200, whole.clone()),
        ];
        for (range, status, part) in table {
            let answer = client.get(&format!("/{name}"), &format!("Range: {range}\r\n"));
            assert_eq!(answer.status, status, "{range} of {name}");
            let content_range = answer.field("content-range");
            match status {
                206 => {
                    let (first, last) = (part.start, part.end - 1);
                    let expected = format!("bytes {first}-{last}/{len}");
                    assert_eq!(content_range, Some(expected.as_str()), "{range} of {name}");
                    assert!(answer.body == content[part], "{range} of {name}");
                }
                416 => assert_eq!(content_range, Some(format!("bytes */{len}").as_str())),
                _ => {
                    assert_eq!(content_range, None, "{range}");
                    assert!(answer.body == content, "{range} of {name}");
                }
            }
        }
    }
}

pub fn several_ranges(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    for (name, len) in [("style.css", 5_000), ("big.bin", 3_000_001)] {
        let content = pattern(len);
        let answer = client.get(&format!("/{name}"), "Range: bytes=0-9, 100-299,-5\r\n");
        assert_eq!(answer.status, 206);
        let media = answer.field("content-type").unwrap();
        let boundary = media
            .strip_prefix("multipart/byteranges; boundary=")
            .unwrap();
        let boundary = boundary.trim_matches('"');
        let mut rest = &answer.body[..];
        for part in [0..10, 100..300, len - 5..len] {
            let at = rest.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
            let head = String::from_utf8(rest[..at].to_vec()).unwrap();
            assert!(
                head.trim_start().starts_with(&format!("--{boundary}\r\n")),
                "{head}"
            );
            let says = format!("bytes {}-{}/{len}", part.start, part.end - 1);
            assert!(
                head.to_ascii_lowercase()
                    .contains(&format!("content-range: {says}")),
                "{head}"
            );
            rest = &rest[at + 4..];
            let (body, after) = rest.split_at(part.len());
            assert!(body == &content[part]);
            rest = after;
        }
        let end = format!("\r\n--{boundary}--\r\n");
        assert_eq!(String::from_utf8_lossy(rest).trim_end(), end.trim_end());
        // One that can be satisfied among those that cannot.
        let answer = client.get(&format!("/{name}"), "Range: bytes=9999999-, 2-3\r\n");
        assert_eq!((answer.status, &answer.body[..]), (206, &content[2..4]));
        // Abuse: never more than the file itself.
        let many = format!("Range: bytes={}\r\n", ["0-"; 500].join(","));
        let answer = client.get(&format!("/{name}"), &many);
        assert!(matches!(answer.status, 200 | 206 | 416));
        assert!(answer.body.len() <= 2 * len, "{} bytes", answer.body.len());
    }
}

const PAST: &str = "Mon, 01 Jan 2001 00:00:00 GMT";
const FUTURE: &str = "Fri, 01 Jan 2100 00:00:00 GMT";

/// A server whose files are old, so that their validators are strong.
fn settled(model: Model) -> Server {
    let server = Server::start(model);
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
    for (name, _) in crate::fixture::FILES {
        let file = std::fs::File::options()
            .write(true)
            .open(server.path().join(name));
        file.unwrap().set_modified(old).unwrap();
    }
    server
}

pub fn conditions(model: Model) {
    let server = settled(model);
    let mut client = server.connect();
    for target in ["/style.css", "/middle.bin"] {
        let first = client.get(target, "");
        let tag = first.field("etag").unwrap();
        assert!(tag.starts_with('"'), "strong: {tag}");
        let modified = first.field("last-modified").unwrap();
        assert_eq!(modified, "Sun, 13 Sep 2020 12:26:40 GMT");
        let table = [
            (format!("If-None-Match: {tag}\r\n"), 304),
            (format!("If-None-Match: W/{tag}\r\n"), 304),
            (format!("If-None-Match: \"other\", {tag}\r\n"), 304),
            (
                format!("If-None-Match: \"other\"\r\nIf-None-Match: {tag}\r\n"),
                304,
            ),
            ("If-None-Match: *\r\n".into(), 304),
            ("If-None-Match: \"other\"\r\n".into(), 200),
            (format!("If-Modified-Since: {modified}\r\n"), 304),
            (format!("If-Modified-Since: {FUTURE}\r\n"), 304),
            (format!("If-Modified-Since: {PAST}\r\n"), 200),
            ("If-Modified-Since: yesterday\r\n".into(), 200),
            // If-None-Match wins (section 13.2.2).
            (
                format!("If-None-Match: \"other\"\r\nIf-Modified-Since: {FUTURE}\r\n"),
                200,
            ),
            (
                format!("If-None-Match: {tag}\r\nIf-Modified-Since: {PAST}\r\n"),
                304,
            ),
            (format!("If-Match: {tag}\r\n"), 200),
            (format!("If-Match: \"other\", {tag}\r\n"), 200),
            ("If-Match: *\r\n".into(), 200),
            ("If-Match: \"other\"\r\n".into(), 412),
            (format!("If-Match: W/{tag}\r\n"), 412),
            (format!("If-Unmodified-Since: {modified}\r\n"), 200),
            (format!("If-Unmodified-Since: {FUTURE}\r\n"), 200),
            (format!("If-Unmodified-Since: {PAST}\r\n"), 412),
            ("If-Unmodified-Since: yesterday\r\n".into(), 200),
            // If-Match wins over If-Unmodified-Since, and both come before If-None-Match.
            (
                format!("If-Match: {tag}\r\nIf-Unmodified-Since: {PAST}\r\n"),
                200,
            ),
            (
                format!("If-Match: \"other\"\r\nIf-None-Match: {tag}\r\n"),
                412,
            ),
            (format!("If-Match: {tag}\r\nIf-None-Match: {tag}\r\n"), 304),
        ];
        for (lines, status) in table {
            let answer = client.get(target, &lines);
            assert_eq!(answer.status, status, "{target}: {lines}");
            if status == 304 {
                assert_eq!(answer.field("etag"), Some(tag), "{lines}");
            }
        }
        let missing = client.get("/missing", "If-None-Match: *\r\n");
        assert_eq!(missing.status, 404, "what is not there has no validators");
    }
}

pub fn conditions_on_ranges(model: Model) {
    let server = settled(model);
    let mut client = server.connect();
    for target in ["/style.css", "/middle.bin"] {
        let first = client.get(target, "");
        let tag = first.field("etag").unwrap();
        let modified = first.field("last-modified").unwrap();
        // A date that several forms share cannot tell them apart.
        let by_date = match first.field("vary") {
            Some(_) => 200,
            None => 206,
        };
        let table = [
            (format!("If-Range: {tag}\r\n"), 206),
            ("If-Range: \"other\"\r\n".into(), 200),
            (format!("If-Range: W/{tag}\r\n"), 200),
            (format!("If-Range: {modified}\r\n"), by_date),
            (format!("If-Range: {PAST}\r\n"), 200),
            (format!("If-Range: {FUTURE}\r\n"), 200),
            (format!("If-None-Match: {tag}\r\n"), 304),
            ("If-Match: \"other\"\r\n".into(), 412),
            (format!("If-Match: {tag}\r\n"), 206),
        ];
        for (lines, status) in table {
            let answer = client.get(target, &format!("Range: bytes=3-5\r\n{lines}"));
            assert_eq!(answer.status, status, "{target}: {lines}");
        }
        // Not satisfiable, but no longer asked for either.
        let answer = client.get(target, "Range: bytes=99999999-\r\nIf-Range: \"other\"\r\n");
        assert_eq!(answer.status, 200);
    }
}

pub fn encoded_neighbours(model: Model) {
    let alone = StaticOptions {
        compress: false,
        ..StaticOptions::default()
    };
    let server = Server::start_over(model.options(), limits(), alone);
    std::fs::write(server.path().join("style.css.gz"), "as gzip").unwrap();
    std::fs::write(server.path().join("style.css.br"), "as brotli").unwrap();
    let mut client = server.connect();
    let mut tags = Vec::new();
    for (accept, coding) in [
        ("", None),
        ("gzip", Some("gzip")),
        ("br", Some("br")),
        ("gzip, br", Some("br")),
        ("gzip;q=1, br;q=0.5", Some("gzip")),
        ("gzip;q=0, br;q=0", None),
        ("identity", None),
        ("zstd", None),
    ] {
        let lines = format!("Accept-Encoding: {accept}\r\n");
        let answer = client.get("/style.css", &lines);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("content-encoding"), coding, "{accept}");
        assert!(
            answer
                .field("content-type")
                .unwrap()
                .starts_with("text/css")
        );
        let vary = answer.field("vary").expect("Vary where there are variants");
        assert!(
            vary.eq_ignore_ascii_case("accept-encoding"),
            "{accept}: {vary}"
        );
        let body: &[u8] = match coding {
            Some("gzip") => b"as gzip",
            Some(_) => b"as brotli",
            None => &pattern(5_000),
        };
        assert!(answer.body == body, "{accept}");
        let tag = answer.field("etag").unwrap().to_owned();
        tags.push((coding, tag));
    }
    for (coding, tag) in &tags {
        for (other_coding, other) in &tags {
            assert_eq!(
                coding == other_coding,
                tag == other,
                "an ETag for each variant"
            );
        }
    }
    assert_eq!(
        client
            .get("/big.bin", "Accept-Encoding: br\r\n")
            .field("content-encoding"),
        None
    );
}
