//! A compressed app: which responses, in which coding, when their pieces leave, and on which threads.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream::{self, StreamExt as _};
use http_body::Frame;
use http_body_util::StreamBody;
use loadline_server::Architecture;
use loadline_tower::Tower;

use crate::answers::Answer;
use crate::app::{self, Shared};
use crate::client::Client;
use crate::fixture::Running;
use crate::model::Model;

every_model! {
    codings_are_negotiated,
    what_must_not_be_changed_stays_as_it_is,
    entity_tags_become_weak,
    what_may_be_secret_stays_as_it_is,
    content_of_any_length_comes_out_as_it_was,
    trailers_follow_the_content,
    lengths_that_do_not_hold_end_the_response,
    events_leave_as_they_are_written,
    events_leave_in_chunks_as_they_are_written,
    no_loop_compresses,
}

/// Whether the app is compressed under this model.
fn is_on(model: Model) -> bool {
    !model.options().blocks_on_loops()
}

fn decoded(coding: Option<&str>, mut bytes: &[u8]) -> Vec<u8> {
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
            brotli_decompressor::BrotliDecompress(&mut bytes, &mut content).unwrap();
        }
        Some(other) => panic!("{other}"),
    }
    content
}

fn decoded_body(answer: &Answer) -> Vec<u8> {
    decoded(answer.field("content-encoding"), &answer.body)
}

/// Text in which little comes again as it was.
fn text(len: usize) -> String {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let words = (0_u64..).map(|n| format!("{:x} ", n.wrapping_mul(0x9e37_79b9) % 0xffff));
        words.take(LEN_MAX / 3).collect()
    });
    TEXT[..len].to_owned()
}

/// Too long for brotli.
const LEN_MAX: usize = 1_200_000;

const PLAIN: [(&str, &str); 1] = [("content-type", "text/plain")];

/// Content in frames, without a length.
async fn frames(Path(len): Path<usize>) -> Response {
    let bytes = Bytes::from(text(len));
    let pieces = (0..len)
        .step_by(9999)
        .map(move |at| bytes.slice(at..len.min(at + 9999)));
    let body = Body::from_stream(stream::iter(pieces.map(Ok::<_, Infallible>)));
    (PLAIN, body).into_response()
}

/// Content that is shorter than it says, or longer.
async fn wrong(Path(len): Path<usize>) -> Response {
    let fields = [("content-type", "text/plain"), ("content-length", "5000")];
    let pieces = stream::iter([Ok::<_, Infallible>(text(len))]);
    let pieces = stream::once(async { Ok(text(1)) }).chain(pieces);
    (fields, Body::from_stream(pieces)).into_response()
}

async fn with_trailers() -> Response {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("7"));
    let digest = HeaderValue::from_static("sha-256=:AAAA:"); // of the text as it is
    trailers.insert("content-digest", digest);
    let frames = [
        Ok::<_, Infallible>(Frame::data(Bytes::from(text(5000)))),
        Ok(Frame::trailers(trailers)),
    ];
    (PLAIN, Body::new(StreamBody::new(stream::iter(frames)))).into_response()
}

/// The names of the threads that poll the content.
async fn thread_names() -> Response {
    let names = stream::iter(0..50).then(|_| async {
        tokio::time::sleep(Duration::from_micros(100)).await;
        let thread = std::thread::current();
        Ok::<_, Infallible>(format!("{}\n", thread.name().unwrap_or_default()))
    });
    (PLAIN, Body::from_stream(names)).into_response()
}

/// Has a strong entity tag, or none, or is not modified.
async fn tagged(request: Request) -> Response {
    let tag = [("etag", "\"1\"")];
    match request.headers().contains_key("if-none-match") {
        true => (StatusCode::NOT_MODIFIED, tag).into_response(),
        false => (tag, text(5000)).into_response(),
    }
}

fn router(shared: Arc<Shared>) -> Router {
    let with = |name: &'static str, value: &'static str| {
        get(move || async move { ([(name, value)], text(5000)) })
    };
    async fn part() -> Response {
        let fields = [("content-range", "bytes 0-4999/9000")];
        (StatusCode::PARTIAL_CONTENT, fields, text(5000)).into_response()
    }
    Router::new()
        .route("/page", with("x-page", "1"))
        .route("/weak", with("etag", "W/\"1\""))
        .route("/tagged", get(tagged))
        .route("/fixed", with("cache-control", "no-store, no-transform"))
        .route("/picture", with("content-type", "image/png"))
        .route("/packed", with("content-encoding", "x-own"))
        .route("/ranges", with("accept-ranges", "bytes"))
        .route("/part", get(part))
        .route("/short", get(|| async { "short" }))
        .route("/none", get(|| async { StatusCode::NO_CONTENT }))
        .route(
            "/missing",
            get(|| async { (StatusCode::NOT_FOUND, text(5000)) }),
        )
        .route("/login", with("set-cookie", "id=1"))
        .route("/public", with("cache-control", "public, max-age=9"))
        .route("/private", with("cache-control", "private"))
        .route(
            "/page/{len}",
            get(|Path(len): Path<usize>| async move { text(len) }),
        )
        .route("/frames/{len}", get(frames))
        .route("/wrong/{len}", get(wrong))
        .route("/trailers", get(with_trailers))
        .route("/threads", get(thread_names))
        .merge(app::router(shared))
}

fn start(model: Model) -> Running {
    Running::start_tower(model, |shared| {
        let app = Tower::new(router(shared)).unwrap();
        app.compressed().cancel_on_half_close(true)
    })
}

pub fn codings_are_negotiated(model: Model) {
    let server = start(model);
    let mut client = server.connect();
    for (accept, known, unknown) in [
        ("gzip", Some("gzip"), Some("gzip")),
        ("zstd", Some("zstd"), Some("zstd")),
        ("br", Some("br"), None),
        ("gzip, deflate, br, zstd", Some("zstd"), Some("zstd")),
        ("gzip, br", Some("br"), Some("gzip")),
        ("br;q=0.5, gzip;q=0.8", Some("gzip"), Some("gzip")),
        ("zstd;q=0.7, br;q=0.8", Some("br"), Some("zstd")),
        ("identity;q=0, gzip;q=0.1", Some("gzip"), Some("gzip")),
        ("*", Some("zstd"), Some("zstd")),
        ("identity, gzip;q=0.5", None, None),
        ("gzip;q=0", None, None),
        ("identity;q=0", None, None),
        ("deflate", None, None),
        ("", None, None),
    ] {
        let lines = format!("Accept-Encoding: {accept}\r\n");
        for (target, coding) in [
            ("/page", known),
            ("/missing", known),
            ("/frames/5000", unknown),
        ] {
            let coding = coding.filter(|_| is_on(model));
            let answer = client.get(target, &lines);
            assert_eq!(
                answer.field("content-encoding"),
                coding,
                "{target}: {accept}"
            );
            let vary = is_on(model).then_some("Accept-Encoding");
            assert_eq!(answer.field("vary"), vary, "{target}: {accept}");
            let ranges = coding.map(|_| "none");
            assert_eq!(answer.field("accept-ranges"), ranges, "{target}: {accept}");
            assert!(
                decoded_body(&answer) == text(5000).as_bytes(),
                "{target}: {accept}"
            );
            let head = client.head(target, &lines);
            assert_eq!(head.status, answer.status);
            assert!(head.body.is_empty());
            for name in ["content-encoding", "content-type", "vary", "accept-ranges"] {
                assert_eq!(head.field(name), answer.field(name), "{name} of {target}");
            }
            // It is not known before the content is made.
            let len = (coding.is_none() && target != "/frames/5000").then_some("5000");
            assert_eq!(head.field("content-length"), len, "{target}: {accept}");
        }
    }
    let answer = client.get("/page", "");
    assert_eq!(answer.field("content-encoding"), None);
    assert_eq!(answer.field("content-length"), Some("5000"));
}

pub fn what_must_not_be_changed_stays_as_it_is(model: Model) {
    let server = start(model);
    let mut client = server.connect();
    for target in [
        "/fixed",
        "/picture",
        "/packed",
        "/ranges",
        "/part",
        "/short",
        "/none",
        "/known/5000",
        "/form/empty",
    ] {
        let plain = client.get(target, "");
        let answer = client.get(target, "Accept-Encoding: gzip, br, zstd\r\n");
        assert_eq!(
            (answer.status, &answer.body),
            (plain.status, &plain.body),
            "{target}"
        );
        for name in [
            "content-encoding",
            "content-length",
            "vary",
            "accept-ranges",
        ] {
            assert_eq!(answer.field(name), plain.field(name), "{name} of {target}");
        }
        assert_eq!(plain.field("vary"), None, "{target}");
    }
}

pub fn entity_tags_become_weak(model: Model) {
    let server = start(model);
    let mut client = server.connect();
    let gzip = "Accept-Encoding: gzip\r\n";
    let weak = if is_on(model) { "W/\"1\"" } else { "\"1\"" };
    let tag = |answer: &Answer| answer.field("etag").map(str::to_owned);
    assert_eq!(tag(&client.get("/tagged", gzip)).as_deref(), Some(weak));
    assert_eq!(tag(&client.head("/tagged", gzip)).as_deref(), Some(weak));
    assert_eq!(tag(&client.get("/tagged", "")).as_deref(), Some("\"1\""));
    assert_eq!(tag(&client.get("/weak", gzip)).as_deref(), Some("W/\"1\""));
    // A client that has it compressed learns that it still has it.
    let known = client.get("/tagged", &format!("{gzip}If-None-Match: {weak}\r\n"));
    assert_eq!((known.status, tag(&known).as_deref()), (304, Some(weak)));
    let vary = is_on(model).then_some("Accept-Encoding");
    assert_eq!(known.field("vary"), vary);
    let known = client.get("/tagged", &format!("{gzip}If-None-Match: \"1\"\r\n"));
    assert_eq!((known.status, tag(&known).as_deref()), (304, Some("\"1\"")));
    assert_eq!(known.field("vary"), vary);
}

pub fn what_may_be_secret_stays_as_it_is(model: Model) {
    let careful = start(model);
    let all = Running::start_tower(model, |shared| {
        let app = Tower::new(router(shared)).unwrap();
        app.compressed_with_credentials()
    });
    for (target, lines, is_compressed) in [
        ("/page", "", true),
        ("/page", "Cookie: id=1\r\n", false),
        ("/page", "Authorization: Basic YTpi\r\n", false),
        ("/login", "", false),
        ("/private", "", false),
        ("/public", "Cookie: id=1\r\n", true),
    ] {
        let lines = format!("Accept-Encoding: gzip\r\n{lines}");
        let answer = careful.connect().get(target, &lines);
        let is = answer.field("content-encoding").is_some();
        assert_eq!(is, is_compressed && is_on(model), "{target}: {lines}");
        assert_eq!(answer.field("vary").is_some(), is_on(model));
        let answer = all.connect().get(target, &lines);
        let is = answer.field("content-encoding").is_some();
        assert_eq!(is, is_on(model), "{target}: {lines}");
    }
}

pub fn content_of_any_length_comes_out_as_it_was(model: Model) {
    let server = start(model);
    let mut client = server.connect();
    for len in [1024, 70_000, 600_000, LEN_MAX] {
        let content = text(len);
        for target in [format!("/page/{len}"), format!("/frames/{len}")] {
            for coding in ["gzip", "zstd", "br"] {
                let answer = client.get(&target, &format!("Accept-Encoding: {coding}\r\n"));
                let is_long = target.starts_with("/frames") || len > 1 << 20;
                let is_made = is_on(model) && !(coding == "br" && is_long);
                let expected = is_made.then_some(coding);
                assert_eq!(answer.field("content-encoding"), expected, "{target}");
                assert!(
                    decoded_body(&answer) == content.as_bytes(),
                    "{target}: {coding}"
                );
                // What is made in one piece has its length.
                if target == "/page/1024" {
                    let stated = answer.field("content-length");
                    assert_eq!(stated, Some(&*answer.body.len().to_string()));
                }
            }
        }
    }
}

pub fn trailers_follow_the_content(model: Model) {
    let server = start(model);
    let lines = "Accept-Encoding: gzip\r\nTE: trailers\r\n";
    let answer = server.connect().get("/trailers", lines);
    let coding = is_on(model).then_some("gzip");
    assert_eq!(answer.field("content-encoding"), coding);
    assert!(decoded_body(&answer) == text(5000).as_bytes());
    let value = |name: &str| {
        let mut all = answer.trailers.iter();
        all.find_map(|(it, value)| (it == name).then_some(&**value))
    };
    assert_eq!(value("x-sum"), Some("7"));
    assert_eq!(value("content-digest").is_none(), is_on(model));
}

/// A client must not take them for whole.
fn lengths_that_do_not_hold_end_the_response(model: Model) {
    let server = start(model);
    for target in ["/wrong/4998", "/wrong/5000"] {
        let mut client = server.connect();
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n"
        ));
        let bytes = client.rest();
        let is_whole = bytes.ends_with(b"\r\n0\r\n\r\n");
        assert!(!bytes.starts_with(b"HTTP/1.1 200") || !is_whole, "{target}");
    }
}

fn events_leave_as_they_are_written(model: Model) {
    let server = start(model);
    let mut client = server.connect();
    // Without chunks between them, by HTTP/1.0.
    client.send("GET /events HTTP/1.0\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
    server.shared.events.send("0".to_owned()).unwrap();
    assert_eq!(says_gzip(&head(&mut client)), is_on(model));
    let mut decode = decoder(model);
    for n in 0..20 {
        if n > 0 {
            server.shared.events.send(n.to_string()).unwrap();
        }
        let event = format!("data: {n}\n\n");
        while !decode(&client.bytes(1)).ends_with(event.as_bytes()) {}
    }
    drop(client);
    server.await_hanging(0);
}

/// The same by HTTP/1.1; over HTTP/2, in frames, each of which the client gives back as a chunk.
pub fn events_leave_in_chunks_as_they_are_written(model: Model) {
    let server = start(model);
    let mut client = server.connect();
    client.send("GET /events HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
    server.shared.events.send("0".to_owned()).unwrap();
    assert_eq!(says_gzip(&head(&mut client)), is_on(model));
    let mut decode = decoder(model);
    for n in 0..20 {
        if n > 0 {
            server.shared.events.send(n.to_string()).unwrap();
        }
        let event = format!("data: {n}\n\n");
        while !decode(&chunk(&mut client)).ends_with(event.as_bytes()) {}
    }
    drop(client);
    server.await_hanging(0);
}

/// Content is compressed by the thread that polls it.
pub fn no_loop_compresses(model: Model) {
    let server = start(model);
    let answer = server
        .connect()
        .get("/threads", "Accept-Encoding: gzip\r\n");
    let content = decoded_body(&answer);
    let names = String::from_utf8(content).unwrap();
    assert_eq!(names.lines().count(), 50);
    let is_loop = |name: &str| name == "main loop" || name.starts_with("loop ");
    let is_compressed = answer.field("content-encoding").is_some();
    assert_eq!(is_compressed, is_on(model));
    let has_no_loop = model.options().architecture == Architecture::Sequential;
    if is_compressed && !has_no_loop {
        assert!(!names.lines().any(is_loop), "{names}");
    }
    // And where it is off, because loops poll it.
    assert!(is_compressed || names.lines().all(is_loop), "{names}");
}

/// Returns all that has been decoded so far of an event stream.
fn decoder(model: Model) -> impl FnMut(&[u8]) -> Vec<u8> {
    let mut decoder = flate2::write::GzDecoder::new(Vec::new());
    let mut plain = Vec::new();
    move |bytes: &[u8]| {
        if !is_on(model) {
            plain.extend_from_slice(bytes);
            return plain.clone();
        }
        decoder.write_all(bytes).unwrap();
        decoder.flush().unwrap();
        decoder.get_ref().clone()
    }
}

fn says_gzip(head: &str) -> bool {
    head.contains("content-encoding: gzip")
}

/// The head of a response, in lower case.
fn head(client: &mut Client) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head += &line(client);
    }
    head.to_lowercase()
}

/// The content of the next chunk.
fn chunk(client: &mut Client) -> Vec<u8> {
    let size = line(client);
    let len = usize::from_str_radix(size.trim_end(), 16).unwrap();
    assert!(len > 0, "the end instead of an event");
    let content = client.bytes(len);
    assert_eq!(client.bytes(2), b"\r\n");
    content
}

fn line(client: &mut Client) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(client.bytes(1));
    }
    String::from_utf8(line).unwrap()
}
