//! HTTP/2 by clients that others wrote, under every architecture, in plain text and over TLS: curl, nghttp
//! and h2load.
//!
//! curl 7.88.1, Debian 12's, breaks a connection in plain text that it uses again (its issue 10634), which is
//! not tried here. And it loses a response behind which the stream is reset at once since its request is not
//! needed any more: uploads that nobody wants are received for a while.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::h2spec::https_port;
use crate::program::{GRACE, Server};
use crate::{ARCHITECTURES, alone, options};

/// Pictures of the page.
const PICTURES: usize = 30;
/// What each has, in bytes, times its number.
const PICTURE_BYTES: usize = 10_007;
/// Requests of h2load.
const REQUESTS: u64 = 4_000;

const OVER_TLS: [&str; 6] = [
    "--listen",
    "https://127.0.0.1:0",
    "--tls",
    "self-signed",
    "--status-path",
    "/-/status",
];

/// A page with its assets.
fn write_site(site: &Path) {
    let mut page = "<link rel=stylesheet href=style.css><script src=a.js></script>".to_owned();
    for number in 1..=PICTURES {
        page += &format!("<img src={number}.png>");
        let picture = vec![number as u8; number * PICTURE_BYTES];
        fs::write(site.join(format!("{number}.png")), picture).unwrap();
    }
    fs::write(site.join("index.html"), page).unwrap();
    fs::write(site.join("style.css"), "img { width: 1px }").unwrap();
    fs::write(site.join("a.js"), "document").unwrap();
}

/// What a program prints; it may take as long as a test may wait.
fn printed(program: &str, arguments: &[&str]) -> String {
    let timeout = GRACE.as_secs().to_string();
    let output = Command::new("timeout")
        .args([&timeout, program])
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}: {out}{err} (apt-get install curl nghttp2-client)",
        output.status
    );
    out
}

/// A server's two addresses, in turn.
fn origins(server: &Server) -> [String; 2] {
    [
        format!("http://{}", server.address()),
        format!("https://127.0.0.1:{}", https_port(server)),
    ]
}

fn under_every_architecture(case: impl Fn(&str, &Server, &Path)) {
    let _alone = alone();
    for (name, _) in ARCHITECTURES {
        let Some(options) = options(name) else {
            continue;
        };
        let site = tempfile::tempdir().unwrap();
        write_site(site.path());
        let server = Server::start(site.path(), &[&options[..], &OVER_TLS].concat());
        case(name, &server, site.path());
    }
}

#[test]
#[ignore = "long: curl under every architecture"]
fn curl_gets_what_there_is() {
    under_every_architecture(|name, server, site| {
        let folder = tempfile::tempdir().unwrap();
        let got = folder.path().join("got");
        let got = got.to_str().unwrap();
        let how = "%{http_version} %{http_code} %{num_connects}";
        for origin in origins(server) {
            let http2 = match origin.starts_with("https") {
                true => ["--insecure", "--http2"],
                false => ["--http2-prior-knowledge", "--http2-prior-knowledge"],
            };
            let curl = |more: &[&str]| {
                let fixed = ["-sS", "-o", got, "-w", how];
                printed("curl", &[&fixed[..], &http2, more].concat())
            };
            let picture = format!("{origin}/{PICTURES}.png");
            assert_eq!(curl(&[&picture]), "2 200 1", "{name}");
            let whole = fs::read(site.join(format!("{PICTURES}.png"))).unwrap();
            assert!(fs::read(got).unwrap() == whole, "{name}, {origin}");
            assert_eq!(curl(&["-r", "5-99999", &picture]), "2 206 1", "{name}");
            assert!(
                fs::read(got).unwrap() == whole[5..=99_999],
                "{name}, {origin}"
            );
            assert_eq!(curl(&["--head", &picture]), "2 200 1", "{name}");
            let as_old = format!("{}/{PICTURES}.png", site.display());
            assert_eq!(curl(&["-z", &as_old, &picture]), "2 304 1", "{name}");
            assert_eq!(curl(&[&format!("{origin}/none")]), "2 404 1", "{name}");
            for number in [1, PICTURES] {
                let upload = format!("@{}/{number}.png", site.display());
                let posted = curl(&["--data-binary", &upload, &picture]);
                assert_eq!(posted, "2 405 1", "{name}");
            }
            if origin.starts_with("https") {
                // Several of them over one connection, one after the other and at once.
                let another = format!("{origin}/a.js");
                for more in [&[][..], &["--parallel"]] {
                    let urls = ["-o", "/dev/null", &*another, "-o", "/dev/null", &another];
                    let said = curl(&[more, &[&picture], &urls].concat());
                    assert_eq!(said.matches("2 200").count(), 3, "{name}: {said}");
                    assert_eq!(said.matches("2 200 1").count(), 1, "{name}: {said}");
                }
            } else {
                // The upgrade of RFC 7540 is gone (RFC 9113 section 3.1): the answer is one of HTTP/1.1.
                let said = printed("curl", &["-sS", "-o", got, "-w", how, "--http2", &picture]);
                assert_eq!(said, "1.1 200 1", "{name}");
            }
        }
    });
}

/// The lines of nghttp's statistics: status, and path.
fn responses(said: &str) -> Vec<(&str, &str)> {
    let (_, lines) = said.split_once("request path\n").expect("statistics");
    let lines = lines.lines().map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        (words[4], words[6])
    });
    let mut all: Vec<_> = lines.collect();
    all.sort_unstable();
    all
}

#[test]
#[ignore = "long: nghttp under every architecture"]
fn nghttp_gets_a_page_with_its_assets() {
    under_every_architecture(|name, server, _| {
        let mut expected = vec!["/".to_owned(), "/style.css".to_owned(), "/a.js".to_owned()];
        expected.extend((1..=PICTURES).map(|number| format!("/{number}.png")));
        expected.sort_unstable();
        for origin in origins(server) {
            let page = format!("{origin}/");
            for more in [
                &[][..],
                &["--no-dep", "--padding=200"],
                &["--window-bits=10", "--connection-window-bits=16"],
                &["--header-table-size=0", "--encoder-header-table-size=0"],
                &["--continuation", "--no-rfc7540-pri"],
            ] {
                let fixed = ["--get-assets", "--null-out", "--stat", "--no-verify-peer"];
                let said = printed("nghttp", &[&fixed[..], more, &[&page]].concat());
                let responses = responses(&said);
                assert!(
                    responses.iter().all(|(status, _)| *status == "200"),
                    "{name}: {said}"
                );
                let paths: Vec<_> = responses.iter().map(|(_, path)| *path).collect();
                assert_eq!(paths, expected, "{name}, {origin}, {more:?}");
            }
            let picture = format!("{origin}/{PICTURES}.png");
            let many = [
                "--multiply=100",
                "--null-out",
                "--stat",
                "--no-verify-peer",
                &picture,
            ];
            let said = printed("nghttp", &many);
            let responses = responses(&said);
            assert_eq!(responses.len(), 100, "{name}: {said}");
            assert!(
                responses.iter().all(|(status, _)| *status == "200"),
                "{name}: {said}"
            );
        }
    });
}

fn total(server: &Server) -> Value {
    let status: Value = serde_json::from_str(&server.get("/-/status")).unwrap();
    status["total"].clone()
}

#[test]
#[ignore = "long: h2load under every architecture"]
fn h2load_and_the_server_count_the_same() {
    under_every_architecture(|name, server, _| {
        for origin in origins(server) {
            let clients = if name == "sequential" { 1 } else { 8 };
            let before = total(server);
            let (requests, connections) = (REQUESTS.to_string(), clients.to_string());
            let fixed = ["-n", &requests, "-c", &connections, "-m", "20"];
            let urls = ["/", "/a.js", "/1.png", "/none"].map(|path| format!("{origin}{path}"));
            let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
            let said = printed("h2load", &[&fixed[..], &urls].concat());
            let good = REQUESTS / 4 * 3;
            let codes = format!(
                "status codes: {good} 2xx, 0 3xx, {} 4xx, 0 5xx",
                REQUESTS / 4
            );
            assert!(said.contains(&codes), "{name}, {origin}: {said}");
            let done = format!(
                "{REQUESTS} done, {good} succeeded, {} failed, 0 errored",
                REQUESTS / 4
            );
            assert!(said.contains(&done), "{name}, {origin}: {said}");
            let after = total(server);
            let more = |path: [&str; 2]| {
                let of = |total: &Value| total[path[0]][path[1]].as_u64().unwrap();
                of(&after) - of(&before)
            };
            let status_page = 1; // of `before`
            assert_eq!(
                more(["answers", "2xx"]),
                good + status_page,
                "{name}, {origin}"
            );
            assert_eq!(more(["answers", "4xx"]), REQUESTS / 4, "{name}, {origin}");
            assert_eq!(more(["http2", "connections"]), clients, "{name}, {origin}");
            for fault in [
                "errors",
                "floods",
                "refused_streams",
                "server_resets",
                "slow_streams",
            ] {
                assert_eq!(more(["http2", fault]), 0, "{name}, {origin}: {fault}");
            }
        }
    });
}
