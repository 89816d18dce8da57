//! A folder over HTTP, byte for byte, and nothing beside it.

use std::os::unix::fs::symlink;

use crate::fixture::{FILES, Model, Server, pattern};

every_model! {
    files_byte_for_byte,
    head_says_what_get_says,
    folders,
    nothing_escapes_the_root,
    a_changed_file_is_seen_within_a_second,
}

pub fn files_byte_for_byte(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    for _ in 0..3 {
        for (name, len) in FILES {
            let answer = client.get(&format!("/{name}"), "");
            assert_eq!(answer.status, 200, "{name}");
            assert!(answer.body == pattern(len), "{name}");
            assert!(answer.field("etag").is_some(), "{name}");
            assert!(answer.field("last-modified").is_some(), "{name}");
        }
    }
    let media = |answer: crate::answers::Answer| answer.field("content-type").map(str::to_owned);
    let html = media(client.get("/index.html", "")).unwrap();
    assert_eq!(html, "text/html; charset=utf-8");
    let css = media(client.get("/style.css", "")).unwrap();
    assert!(css.starts_with("text/css"), "{css}");
}

pub fn head_says_what_get_says(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    let targets = [
        "/",
        "/empty.txt",
        "/style.css",
        "/big.bin",
        "/missing",
        "/folder",
    ];
    for target in targets {
        for lines in ["", "Range: bytes=1-3\r\n", "If-None-Match: *\r\n"] {
            let get = client.get(target, lines);
            let head = client.head(target, lines);
            assert!(head.body.is_empty());
            // Range is defined for GET only (RFC 9110 section 14.2).
            if !lines.starts_with("Range") || get.status >= 300 && get.status != 416 {
                assert_eq!(head.status, get.status, "{target} {lines}");
                for name in ["content-length", "content-type", "etag", "location", "vary"] {
                    assert_eq!(
                        head.field(name),
                        get.field(name),
                        "{name} of {target} {lines}"
                    );
                }
            }
        }
    }
}

pub fn folders(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    assert_eq!(client.get("/", "").body, pattern(600));
    assert_eq!(client.get("/folder/", "").body, b"in a folder");
    for (target, location) in [
        ("/folder", "/folder/"),
        ("/folder?a=b&c", "/folder/?a=b&c"),
        ("/./folder", "/folder/"),
    ] {
        let answer = client.get(target, "");
        assert!(matches!(answer.status, 301 | 308), "{target}");
        assert_eq!(answer.field("location"), Some(location), "{target}");
    }
    // Never an address of another host.
    for target in ["//folder", "///folder", "//folder/../folder"] {
        let answer = client.get(target, "");
        if let Some(location) = answer.field("location") {
            assert!(!location.starts_with("//"), "{target}: {location}");
        }
    }
}

pub fn nothing_escapes_the_root(model: Model) {
    let server = Server::start(model);
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret.txt"), "SECRET").unwrap();
    std::fs::write(server.path().join(".hidden"), "SECRET").unwrap();
    std::fs::create_dir(server.path().join(".git")).unwrap();
    std::fs::write(server.path().join(".git/config"), "SECRET").unwrap();
    symlink(
        outside.path().join("secret.txt"),
        server.path().join("link.txt"),
    )
    .unwrap();
    symlink(outside.path(), server.path().join("link")).unwrap();
    let out = outside.path().display().to_string();
    let name = outside
        .path()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let mut client = server.connect();
    let mut targets: Vec<String> = [
        "/link.txt",
        "/link/secret.txt",
        "/.hidden",
        "/%2ehidden",
        "/.git/config",
        "/folder/../.git/config",
        "/%00",
        "/index.html%00",
        "/folder%5c..%5cindex.html",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/environ",
    ]
    .map(str::to_owned)
    .into();
    for up in [
        "..",
        "%2e%2e",
        ".%2e",
        "%2E.",
        "%252e%252e",
        "..%2f..",
        "..%5c..",
        "..\\..",
    ] {
        for depth in 1..8 {
            let climb = format!("{up}/").repeat(depth);
            targets.push(format!("/{climb}{name}/secret.txt"));
            targets.push(format!("/folder/{climb}{}/secret.txt", &out[1..]));
            targets.push(format!("/{climb}etc/passwd"));
        }
    }
    for target in targets {
        let answer = client.get(&target, "");
        assert!(
            matches!(answer.status, 400 | 403 | 404),
            "{target}: {}",
            answer.status
        );
        assert!(!answer.body.windows(6).any(|w| w == b"SECRET"), "{target}");
        assert!(!answer.body.starts_with(b"root:"), "{target}");
        if answer.closes() {
            client.end();
            client = server.connect();
        }
    }
}

pub fn a_changed_file_is_seen_within_a_second(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    let path = server.path().join("changing.txt");
    for round in 0..2 {
        let text = "again ".repeat(round + 1); // of another length: times of files have ticks
        std::fs::write(&path, &text).unwrap();
        let written = std::time::Instant::now();
        loop {
            let age = written.elapsed();
            let answer = client.get("/changing.txt", "");
            if answer.body == text.as_bytes() {
                break;
            }
            // The server's clock has milliseconds.
            assert!(age.as_millis() <= 1_001, "stale after {age:?}: {answer:?}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
