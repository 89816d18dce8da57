//! Conditions and ranges, on content in memory and on open files alike.

use loadline_apps::StaticOptions;

use crate::site::{Answer, Site, settled};

/// Sites that hold 0123456789 as `/n`, once in memory and once as an open file.
fn digits() -> [Site; 2] {
    let kept_open = StaticOptions {
        memory_bytes_max: 0,
        ..settled()
    };
    [settled(), kept_open].map(|options| Site::new(&[("n", "0123456789")], options))
}

fn ranged(site: &mut Site, range: &str) -> Answer {
    site.request("GET", "/n", &[("Range", range)])
}

#[test]
fn ranges() {
    let table = [
        ("bytes=0-0", 206, "bytes 0-0/10", "0"),
        ("bytes=2-4", 206, "bytes 2-4/10", "234"),
        ("bytes=7-", 206, "bytes 7-9/10", "789"),
        ("bytes=-3", 206, "bytes 7-9/10", "789"),
        ("bytes=-99", 206, "bytes 0-9/10", "0123456789"),
        ("bytes=5-99", 206, "bytes 5-9/10", "56789"),
        ("lines=1-2", 200, "", "0123456789"),
        ("bytes=4-2", 200, "", "0123456789"),
    ];
    for mut site in digits() {
        let whole = site.get("/n");
        for (range, status, content_range, text) in table {
            for _ in 0..2 {
                let answer = ranged(&mut site, range);
                assert_eq!((answer.status, answer.text()), (status, text), "{range}");
                assert_eq!(answer.field("Content-Range"), content_range, "{range}");
                assert_eq!(answer.field("ETag"), whole.field("ETag"));
                assert_eq!(answer.field("Content-Type"), whole.field("Content-Type"));
            }
        }
        let answer = ranged(&mut site, "bytes=10-");
        assert_eq!(
            (answer.status, answer.field("Content-Range")),
            (416, "bytes */10")
        );
        // Range is for GET alone.
        let head = site.request("HEAD", "/n", &[("Range", "bytes=0-1")]);
        assert_eq!((head.status, head.field("Content-Length")), (200, "10"));
    }
}

#[test]
fn several_ranges_in_one_answer() {
    for mut site in digits() {
        let answer = ranged(&mut site, "bytes=0-1,-2");
        assert_eq!(answer.status, 206);
        let media_type = answer.field("Content-Type").to_owned();
        let boundary = media_type
            .strip_prefix("multipart/byteranges; boundary=")
            .unwrap();
        let text = answer.text();
        assert_eq!(text.matches(&format!("--{boundary}")).count(), 3, "{text}");
        assert!(text.trim_end().ends_with(&format!("--{boundary}--")));
        assert!(
            text.contains("Content-Range: bytes 0-1/10\r\n\r\n01\r\n"),
            "{text}"
        );
        assert!(
            text.contains("Content-Range: bytes 8-9/10\r\n\r\n89\r\n"),
            "{text}"
        );
        let again = ranged(&mut site, "bytes=0-1,-2");
        assert_ne!(
            again.field("Content-Type"),
            media_type,
            "a boundary cannot be foreseen"
        );
    }
}

#[test]
fn conditions() {
    for mut site in digits() {
        let whole = site.get("/n");
        let (etag, modified) = (whole.field("ETag"), whole.field("Last-Modified"));
        let past = "Sun, 06 Nov 1994 08:49:37 GMT";
        let table: [(&[(&str, &str)], u16); 13] = [
            (&[("If-None-Match", etag)], 304),
            (&[("If-None-Match", "*")], 304),
            (&[("If-None-Match", "\"other\"")], 200),
            (
                &[
                    ("If-None-Match", "\"other\""),
                    ("If-Modified-Since", modified),
                ],
                200,
            ),
            (&[("If-Modified-Since", modified)], 304),
            (&[("If-Modified-Since", past)], 200),
            (&[("If-Match", etag)], 200),
            (&[("If-Match", "\"other\"")], 412),
            (&[("If-Unmodified-Since", past)], 412),
            (&[("If-Unmodified-Since", modified)], 200),
            (&[("If-Range", etag), ("Range", "bytes=0-1")], 206),
            (&[("If-Range", "\"other\""), ("Range", "bytes=0-1")], 200),
            (&[("If-None-Match", etag), ("Range", "bytes=0-1")], 304),
        ];
        for (fields, status) in table {
            for method in ["GET", "HEAD"] {
                let answer = site.request(method, "/n", fields);
                let status = if method == "HEAD" && status == 206 {
                    200
                } else {
                    status
                };
                assert_eq!(answer.status, status, "{method} {fields:?}");
                if matches!(status, 304 | 206 | 200) {
                    assert_eq!(answer.field("ETag"), etag, "{method} {fields:?}");
                }
            }
        }
        assert_eq!(
            site.request("GET", "/missing", &[("If-None-Match", "*")])
                .status,
            404
        );
    }
}
