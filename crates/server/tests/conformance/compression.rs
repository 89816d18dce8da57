//! Compression on the fly: by a step that may block, and never on a loop.

use std::io::Read;
use std::sync::LazyLock;

use loadline_apps::{StaticFiles, StaticOptions};
use loadline_server::ServerOptions;

use crate::client::Client;
use crate::fixture::{Model, Server, eventually, limits};

every_model! {
    files_are_compressed_for_those_who_accept_it,
}

/// As long as the longest file.
const LEN_MAX: usize = 1_000_000;

/// Text in which little comes again as it was.
fn text(len: usize) -> Vec<u8> {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let words = (0_u64..).map(|n| format!("{:x} ", n.wrapping_mul(0x9e37_79b9) % 0xffff));
        words.take(LEN_MAX / 3 + 1).collect()
    });
    TEXT.as_bytes()[..len].to_vec()
}

fn decoded(coding: Option<&str>, bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    match coding {
        None => content.extend_from_slice(bytes),
        Some("gzip") => {
            let mut decoder = flate2::read::GzDecoder::new(bytes);
            decoder.read_to_end(&mut content).unwrap();
        }
        Some("zstd") => {
            let mut decoder = zstd::stream::read::Decoder::new(bytes).unwrap();
            decoder.read_to_end(&mut content).unwrap();
        }
        Some("br") => {
            brotli_decompressor::BrotliDecompress(&mut &*bytes, &mut content).unwrap();
        }
        Some(other) => panic!("{other}"),
    }
    content
}

pub fn files_are_compressed_for_those_who_accept_it(model: Model) {
    let options = model.options();
    let server = Server::start(model);
    // Sent from memory, and from the disk.
    let sites = [("page.html", text(20_000)), ("large.js", text(LEN_MAX))];
    for (name, content) in &sites {
        std::fs::write(server.path().join(name), content).unwrap();
    }
    let mut client = server.connect();
    for (name, content) in &sites {
        let target = format!("/{name}");
        let plain = client.get(&target, "");
        for (accept, coding) in [
            ("gzip, deflate, br, zstd", Some("br")),
            ("gzip, deflate, zstd", Some("zstd")),
            ("br;q=0.5, gzip;q=0.6", Some("gzip")),
            ("gzip", Some("gzip")),
            ("zstd;q=0.5, gzip", Some("gzip")),
            ("gzip;q=0.5, *;q=0", Some("gzip")),
            ("identity;q=0, gzip;q=0.1", Some("gzip")),
            ("*", Some("br")),
            ("identity, gzip;q=0.5", None),
            ("gzip;q=0, br;q=0, zstd;q=0", None),
            ("deflate", None),
        ] {
            let coding = coding.filter(|_| !options.blocks_on_loops());
            let lines = format!("Accept-Encoding: {accept}\r\n");
            let answer = client.get(&target, &lines);
            assert_eq!(answer.status, 200);
            assert_eq!(answer.field("content-encoding"), coding, "{accept}");
            assert!(decoded(coding, &answer.body) == *content, "{accept}");
            let vary = (!options.blocks_on_loops()).then_some("Accept-Encoding");
            assert_eq!(answer.field("vary"), vary, "{accept}");
            let tag = answer.field("etag").unwrap();
            // A large file's tag is weak for two seconds.
            let opaque = |tag: &str| tag.trim_start_matches("W/").to_owned();
            let plain_tag = plain.field("etag").map(opaque).unwrap();
            assert_eq!(opaque(tag) == plain_tag, coding.is_none(), "{accept}");
            let head = client.head(&target, &lines);
            assert_eq!(head.field("etag").map(opaque).unwrap(), opaque(tag));
            for name in ["content-encoding", "content-length", "vary"] {
                assert_eq!(head.field(name), answer.field(name), "{name} of {accept}");
            }
            let known = client.get(&target, &format!("{lines}If-None-Match: {tag}\r\n"));
            assert_eq!((known.status, known.field("vary")), (304, vary), "{accept}");
            let ranged = format!("{lines}Range: bytes=5-14\r\nIf-Range: {tag}\r\n");
            let part = client.get(&target, &ranged);
            if tag.starts_with("W/") {
                continue; // no range goes by that
            }
            assert_eq!(part.status, 206, "{accept}: {tag}");
            assert_eq!(part.field("content-encoding"), coding);
            assert!(part.body == answer.body[5..15], "{accept}");
        }
    }
    let total = server.control.snapshot().total;
    if !options.blocks_on_loops() {
        assert_eq!(total.blocked_in_place, 0, "no loop compresses");
    }
}

/// In a program of its author's own, who has not turned it off.
#[test]
fn no_loop_compresses() {
    for model in [Model::Reactor1x0, Model::Proactor1x0] {
        if !model.is_offered() {
            continue;
        }
        let (root, content) = (tempfile::tempdir().unwrap(), text(20_000));
        std::fs::write(root.path().join("page.html"), &content).unwrap();
        let files = StaticFiles::new(root.path(), StaticOptions::default()).unwrap();
        let server = loadline_server::Server::new(files).options(model.options());
        let server = server.listen(([127, 0, 0, 1], 0)).start().unwrap();
        let mut client = Client::connect(server.tcp_address().unwrap());
        for _ in 0..2 {
            let answer = client.get("/page.html", "Accept-Encoding: gzip\r\n");
            assert_eq!(answer.status, 200, "{model:?}");
            assert_eq!(answer.field("content-encoding"), None, "{model:?}");
            assert!(answer.body == content);
        }
        drop(client);
        server.drain();
        assert!(server.wait().unwrap().is_clean());
    }
}

/// It used to get a 503, though the file was at hand.
#[test]
fn where_the_queue_is_full_a_file_leaves_as_it_is() {
    for model in [Model::Reactor1xM, Model::Proactor1xM] {
        if !model.is_offered() {
            continue;
        }
        let options = ServerOptions {
            workers: 1,
            queue_max: 1,
            ..model.options()
        };
        let server = Server::start_with(options, limits());
        let content = text(20_000);
        std::fs::write(server.path().join("page.html"), &content).unwrap();
        let mut client = server.connect();
        assert!(client.get("/page.html", "").body == content);
        // One request has the worker, another one the place in the queue.
        let mut busy = [server.connect(), server.connect()];
        for (depth, client) in (0..).zip(&mut busy) {
            client.send("GET /-/gate HTTP/1.1\r\nHost: h\r\n\r\n");
            server.site.gate.await_waiting(1);
            let queued = || server.control.snapshot().total.queue_depth;
            eventually("it waits", || queued() == depth);
        }
        let answer = client.get("/page.html", "Accept-Encoding: gzip\r\n");
        assert_eq!(answer.status, 200, "{model:?}");
        assert_eq!(answer.field("content-encoding"), None);
        assert_eq!(answer.field("vary"), Some("Accept-Encoding"));
        assert!(answer.body == content);
        assert_eq!(server.control.snapshot().total.queue_full, 1);
        server.site.gate.open();
        for client in &mut busy {
            assert_eq!(client.answer().status, 200);
        }
        // Another one asks a worker after a second.
        eventually("it is compressed", || {
            let answer = server
                .connect()
                .get("/page.html", "Accept-Encoding: gzip\r\n");
            let coding = answer.field("content-encoding");
            assert!(decoded(coding, &answer.body) == content);
            coding.is_some()
        });
    }
}
