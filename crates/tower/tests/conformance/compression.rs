//! An app that compresses by tower-http's layer, as the manual has it.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{Extensions, HeaderMap, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

use crate::app::{self, Shared};
use crate::client::Client;
use crate::fixture::Running;
use crate::model::Model;

every_model! {
    what_may_be_changed_is_compressed,
    events_leave_as_they_are_written,
    events_leave_in_chunks_as_they_are_written,
}

/// Neither what must not be changed, nor what a strong entity tag stands for byte by byte.
fn may_be_changed(status: StatusCode, _: Version, fields: &HeaderMap, _: &Extensions) -> bool {
    let says = |name, part: &str| {
        let mut values = fields
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok());
        values.any(|value| value.to_ascii_lowercase().contains(part))
    };
    status != StatusCode::PARTIAL_CONTENT
        && !says(header::CACHE_CONTROL, "no-transform")
        && (!fields.contains_key(header::ETAG) || says(header::ETAG, "w/"))
}

fn decoded(coding: &str, mut bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    match coding {
        "gzip" => {
            let mut decoder = flate2::read::GzDecoder::new(bytes);
            decoder.read_to_end(&mut content).unwrap();
        }
        "zstd" => {
            let mut decoder = zstd::stream::read::Decoder::new(bytes).unwrap();
            decoder.read_to_end(&mut content).unwrap();
        }
        _ => brotli_decompressor::BrotliDecompress(&mut bytes, &mut content).unwrap(),
    }
    content
}

fn text() -> String {
    "some text, again and again\n".repeat(1000)
}

fn router(shared: Arc<Shared>) -> Router {
    let with = |name: &'static str, value: &'static str| {
        move |State(_): State<Arc<Shared>>| async move { ([(name, value)], text()) }
    };
    async fn part() -> Response {
        let fields = [("content-range", "bytes 0-26999/90000")];
        (StatusCode::PARTIAL_CONTENT, fields, text()).into_response()
    }
    let fits = SizeAbove::new(256)
        .and(NotForContentType::GRPC)
        .and(NotForContentType::IMAGES)
        .and(may_be_changed);
    Router::new()
        .route("/page", get(with("x-page", "1")))
        .route("/weak", get(with("etag", "W/\"1\"")))
        .route("/strong", get(with("etag", "\"1\"")))
        .route(
            "/fixed",
            get(with("cache-control", "no-store, no-transform")),
        )
        .route("/picture", get(with("content-type", "image/png")))
        .route("/packed", get(with("content-encoding", "br")))
        .route("/part", get(part))
        .route("/short", get(|| async { "short" }))
        .route("/none", get(|| async { StatusCode::NO_CONTENT }))
        .with_state(Arc::clone(&shared))
        .merge(app::router(shared))
        .layer(CompressionLayer::new().compress_when(fits))
}

pub fn what_may_be_changed_is_compressed(model: Model) {
    let server = Running::start_router(model, router);
    let mut client = server.connect();
    for (target, is_compressed) in [
        ("/page", true),
        ("/weak", true),
        ("/unknown/100000", true),
        ("/strong", false),
        ("/fixed", false),
        ("/picture", false),
        ("/part", false),
        ("/short", false),
        ("/none", false),
    ] {
        let plain = client.get(target, "");
        for (codings, coding) in [
            ("gzip", Some("gzip")),
            ("zstd", Some("zstd")),
            ("br", Some("br")),
            ("gzip;q=0", None),
            ("identity", None),
        ] {
            let answer = client.get(target, &format!("Accept-Encoding: {codings}\r\n"));
            let coding = coding.filter(|_| is_compressed);
            assert_eq!(answer.status, plain.status);
            assert_eq!(
                answer.field("content-encoding"),
                coding,
                "{target}: {codings}"
            );
            let Some(coding) = coding else {
                assert!(answer.body == plain.body, "{target}: {codings}");
                continue;
            };
            assert_eq!(answer.field("content-length"), None, "{target}");
            assert!(
                answer
                    .field("vary")
                    .unwrap()
                    .eq_ignore_ascii_case("accept-encoding")
            );
            assert!(decoded(coding, &answer.body) == plain.body, "{target}");
            let head = client.head(target, "Accept-Encoding: gzip\r\n");
            assert!(head.body.is_empty());
        }
    }
    let packed = client.get("/packed", "Accept-Encoding: gzip\r\n");
    assert_eq!(packed.field("content-encoding"), Some("br"));
    assert!(packed.body == text().as_bytes());
}

fn events_leave_as_they_are_written(model: Model) {
    let server = Running::start_router(model, router);
    let mut client = server.connect();
    // Without chunks between them, by HTTP/1.0.
    client.send("GET /events HTTP/1.0\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let mut more = || {
        let count = client.stream.read(&mut piece).unwrap();
        assert!(count > 0, "the end instead of an event");
        piece[..count].to_vec()
    };
    let mut decoder = flate2::write::GzDecoder::new(Vec::new());
    for n in 0..20 {
        server.shared.events.send(n.to_string()).unwrap();
        if n == 0 {
            let end = loop {
                bytes.extend_from_slice(&more());
                if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
                    break end;
                }
            };
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            assert!(head.contains("content-encoding: gzip"), "{head}");
            decoder.write_all(&bytes[end + 4..]).unwrap();
            decoder.flush().unwrap();
        }
        let event = format!("data: {n}\n\n");
        while !decoder.get_ref().ends_with(event.as_bytes()) {
            decoder.write_all(&more()).unwrap();
            decoder.flush().unwrap();
        }
    }
    drop(client);
    server.await_hanging(0);
}

/// The same by HTTP/1.1; over HTTP/2, in frames, each of which the client gives back as a chunk.
pub fn events_leave_in_chunks_as_they_are_written(model: Model) {
    let server = Running::start_router(model, router);
    let mut client = server.connect();
    client.send("GET /events HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
    let mut decoder = flate2::write::GzDecoder::new(Vec::new());
    for n in 0..20 {
        server.shared.events.send(n.to_string()).unwrap();
        if n == 0 {
            let head = head(&mut client);
            assert!(head.contains("content-encoding: gzip"), "{head}");
        }
        let event = format!("data: {n}\n\n");
        while !decoder.get_ref().ends_with(event.as_bytes()) {
            decoder.write_all(&chunk(&mut client)).unwrap();
            decoder.flush().unwrap();
        }
    }
    drop(client);
    server.await_hanging(0);
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
