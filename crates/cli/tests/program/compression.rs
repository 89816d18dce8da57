//! Compression as people meet it: ahead by `precompress`, on the fly by `serve`, and where there is none.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::util::{Server, run, site};

/// The head of the response to a GET with these field lines, and how long its content is.
fn get(server: &Server, target: &str, lines: &str) -> (String, usize) {
    ask(server.connect(), target, lines)
}

fn ask(mut stream: TcpStream, target: &str, lines: &str) -> (String, usize) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    (head, answer.len() - end - 4)
}

const BROWSER: &str = "Accept-Encoding: gzip, deflate, br, zstd\r\n";

#[test]
fn what_is_compressed_ahead_is_served_and_the_rest_is_compressed_on_the_fly() {
    let site = site();
    let root = site.path().to_str().unwrap();
    let text = "some text, again and again\n".repeat(1000);
    fs::write(site.path().join("a.css"), &text).unwrap();
    let output = run(&["precompress", root, "--encodings", "gzip"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("2 files: 1 variants written (27000 bytes became "),
        "{said}"
    );
    let again = run(&["precompress", root, "--encodings", "gzip,gzip"]);
    let said = String::from_utf8(again.stdout).unwrap();
    assert!(
        said.contains(" 0 variants written ") && said.contains(" 1 up to date"),
        "{said}"
    );

    fs::write(site.path().join("b.css"), &text).unwrap();
    let server = Server::start(site.path(), &[]);
    for (target, coding) in [("/a.css", "gzip"), ("/b.css", "br"), ("/b.css", "br")] {
        let (head, len) = get(&server, target, BROWSER);
        let field = format!("\r\nContent-Encoding: {coding}");
        assert!(
            head.contains(&field) && head.contains("\r\nVary: Accept-Encoding"),
            "{head}"
        );
        assert!(len < text.len() / 10, "{target}: {len} bytes");
    }
    for more in [
        &["--compress", "off"][..],
        &["--architecture", "reactor", "--workers", "0"],
    ] {
        let server = Server::start(site.path(), more);
        let (head, len) = get(&server, "/b.css", BROWSER);
        assert!(
            !head.contains("Content-Encoding") && len == text.len(),
            "{more:?}: {head}"
        );
        let (head, _) = get(&server, "/a.css", BROWSER);
        assert!(
            head.contains("\r\nContent-Encoding: gzip"),
            "{more:?}: {head}"
        );
    }
}

#[test]
fn pages_with_secrets_are_not_compressed() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/accounts.db", state.path().display());
    let server = Server::start(site.path(), &["--accounts", &url]);
    for target in ["/accounts/login", "/accounts/register"] {
        for _ in 0..2 {
            let (head, len) = get(&server, target, BROWSER);
            assert!(head.starts_with("HTTP/1.1 200 ") && len > 1024, "{head}");
            assert!(!head.to_lowercase().contains("content-encoding"), "{head}");
            assert!(head.to_lowercase().contains("no-transform"), "{head}");
        }
    }
}

#[test]
fn a_variant_that_cannot_be_written_is_said_and_the_others_are() {
    let site = site();
    let root = site.path().to_str().unwrap();
    for name in ["a.css", "b.css"] {
        fs::write(site.path().join(name), "some text\n".repeat(1000)).unwrap();
    }
    let blocked = site.path().join("a.css.gz");
    fs::create_dir(&blocked).unwrap();
    let old = std::time::UNIX_EPOCH;
    fs::File::open(&blocked).unwrap().set_modified(old).unwrap();
    let output = run(&["precompress", root, "--jobs", "1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("{}: ", blocked.display())), "{said}");
    let summary = String::from_utf8_lossy(&output.stdout);
    assert!(
        summary.contains("5 variants written") && summary.contains("1 failed"),
        "{summary}"
    );
    assert!(site.path().join("b.css.gz").exists());
}
