//! Much at once on a lone loop without workers: event streams, uploads and downloads that are many times
//! what memory may grow by, files that keep answering. Alone in its process, one at a time: it measures.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may")]

use std::convert::Infallible;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use futures_util::stream::{self, StreamExt as _};
use loadline_apps::{Mounts, StaticFiles, StaticOptions};
use loadline_proto::Handler;
use loadline_proto::hpack::{Encoder, Indexing};
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE, flags, write_frame};
use loadline_server::{Architecture, Server, ServerHandle};
use loadline_tower::Tower;
use tokio::sync::watch;

/// Four times what memory may grow by.
const SOME: u64 = 128 << 20;
const GIB: u64 = 1 << 30;
const PIECE_BYTES: usize = 256 << 10;
const STREAMS: usize = 100;
/// What all of it may take: some windows for each stream, some buffers of the loop and of clients.
const GROWTH_KIB_MAX: u64 = 32 << 10;

#[test]
fn a_lone_loop_carries_streams_uploads_downloads_and_files() {
    carry_under_each(SOME);
}

#[test]
#[ignore = "long: a GiB up and a GiB down under each architecture"]
fn a_lone_loop_carries_a_gib_each_way() {
    carry_under_each(GIB);
}

#[test]
fn content_that_many_responses_share_is_not_copied_for_each() {
    let _alone = alone();
    offered().for_each(share);
}

fn carry_under_each(bytes: u64) {
    let _alone = alone();
    offered().for_each(|architecture| carry(architecture, bytes));
}

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn offered() -> impl Iterator<Item = Architecture> {
    let both = [Architecture::Reactor, Architecture::Proactor].into_iter();
    both.filter(|architecture| loadline_server::check_offered(*architecture).is_ok())
}

fn app(events: &watch::Sender<u64>, bytes: u64) -> Router {
    let subscribed = events.subscribe();
    Router::new()
        .route(
            "/app/events",
            get(async move || {
                let events = stream::unfold(subscribed.clone(), |mut receiver| async {
                    receiver.changed().await.ok()?;
                    let event = format!("data: {}\n\n", *receiver.borrow_and_update());
                    Some((Ok::<_, Infallible>(event), receiver))
                });
                Body::from_stream(events)
            }),
        )
        .route(
            "/app/upload",
            post(|body: Body| async {
                let mut content = body.into_data_stream();
                let mut sum = 0;
                while let Some(bytes) = content.next().await {
                    sum += bytes.map_or(0, |bytes| bytes.len());
                }
                sum.to_string()
            }),
        )
        .route(
            "/app/download",
            get(move || async move {
                let piece = Bytes::from(vec![b'x'; PIECE_BYTES]);
                let pieces = stream::iter(0..bytes / PIECE_BYTES as u64);
                Body::from_stream(pieces.map(move |_| Ok::<_, Infallible>(piece.clone())))
            }),
        )
}

/// On one loop.
fn start(architecture: Architecture, site: impl Handler) -> ServerHandle {
    Server::new(site)
        .architecture(architecture)
        .loops(1)
        .workers(0)
        .listen(([127, 0, 0, 1], 0))
        .start()
        .unwrap()
}

fn carry(architecture: Architecture, bytes: u64) {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file.txt"), [b'f'; 600]).unwrap();
    let (events, _) = watch::channel(0);
    let files = StaticFiles::new(root.path(), StaticOptions::default()).unwrap();
    let site = Mounts::new(files).mount("/app", Tower::new(app(&events, bytes)).unwrap());
    let server = start(architecture, site);
    let address = server.tcp_address().unwrap();
    let mut listeners: Vec<_> = (0..STREAMS).map(|_| connect(address)).collect();
    for stream in &mut listeners {
        stream
            .write_all(b"GET /app/events HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
        read_until(stream, b"\r\n\r\n");
    }
    let before_kib = resident_kib("VmRSS");
    let done = Arc::new(AtomicBool::new(false));
    let busy = [
        thread::spawn(move || upload(address, bytes)),
        thread::spawn(move || download(address, bytes)),
    ];
    let watching = thread::spawn({
        let done = Arc::clone(&done);
        move || {
            let mut most_kib = 0;
            while !done.load(SeqCst) {
                most_kib = resident_kib("VmRSS").max(most_kib);
                thread::sleep(Duration::from_millis(5));
            }
            most_kib
        }
    });
    let mut file = connect(address);
    let mut event = 0;
    while !busy.iter().all(thread::JoinHandle::is_finished) || event < 3 {
        event += 1;
        events.send(event).unwrap();
        for stream in &mut listeners {
            read_until(stream, format!("data: {event}\n\n\r\n").as_bytes());
        }
        file.write_all(b"GET /file.txt HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
        read_until(&mut file, &[b'f'; 600]);
    }
    busy.into_iter().for_each(|busy| busy.join().unwrap());
    done.store(true, SeqCst);
    let growth_kib = watching.join().unwrap().saturating_sub(before_kib);
    println!(
        "{}: {growth_kib} KiB more, {event} events",
        architecture.name()
    );
    assert!(growth_kib < GROWTH_KIB_MAX, "{growth_kib} KiB");
    drop(events); // they end, so that no stream waits for clients that have left
    drop(listeners);
    drop(file);
    server.drain();
    assert!(server.wait().unwrap().is_clean());
}

/// 70 requests for the same 16 MiB, of clients that read no content.
fn share(architecture: Architecture) {
    let content = Bytes::from(vec![b'x'; 16 << 20]);
    let app: Router = Router::new().route("/", get(async move || content.clone()));
    let server = start(architecture, Tower::new(app).unwrap());
    let address = server.tcp_address().unwrap();
    let before_kib = resident_kib("VmRSS");
    let mut clients: Vec<_> = (0..20).map(|_| connect(address)).collect();
    for client in &mut clients {
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
        let head = read_head(client);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("16777216\r\n"), "its length is known: {head}");
    }
    clients.push(ask_by_streams(address, 50));
    let growth_kib = resident_kib("VmRSS").saturating_sub(before_kib);
    println!("{}: {growth_kib} KiB more", architecture.name());
    assert!(growth_kib < GROWTH_KIB_MAX, "{growth_kib} KiB");
    drop(clients);
    server.drain();
    assert!(server.wait().unwrap().is_clean());
}

/// So many requests over one connection of HTTP/2, each of which has the head of its response.
fn ask_by_streams(address: SocketAddr, count: u32) -> TcpStream {
    let mut stream = connect(address);
    let mut out = PREFACE.to_vec();
    write_frame(Kind::Settings, 0, 0, &[], &mut out);
    let mut encoder = Encoder::default();
    for number in 0..count {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value) in [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "h"),
            (":path", "/"),
        ] {
            encoder.field(
                name.as_bytes(),
                value.as_bytes(),
                Indexing::Kept,
                &mut block,
            );
        }
        let flags = flags::END_HEADERS | flags::END_STREAM;
        write_frame(Kind::Headers, flags, 2 * number + 1, &block, &mut out);
    }
    stream.write_all(&out).unwrap();
    let mut heads = 0;
    while heads < count {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).unwrap();
        let head = FrameHead::parse(&head);
        stream.read_exact(&mut vec![0; head.len]).unwrap();
        heads += u32::from(head.kind == Kind::Headers);
    }
    stream
}

/// The head of a response, and nothing behind it.
fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    String::from_utf8(head).unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
        .set_write_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

fn upload(address: SocketAddr, bytes: u64) {
    let mut stream = connect(address);
    write!(
        stream,
        "POST /app/upload HTTP/1.1\r\nHost: h\r\nContent-Length: {bytes}\r\n\r\n"
    )
    .unwrap();
    let piece = vec![b'u'; PIECE_BYTES];
    for _ in 0..bytes / PIECE_BYTES as u64 {
        stream.write_all(&piece).unwrap();
    }
    read_until(&mut stream, bytes.to_string().as_bytes());
}

fn download(address: SocketAddr, bytes: u64) {
    let mut stream = connect(address);
    let head = b"GET /app/download HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    stream.write_all(head).unwrap();
    let mut piece = vec![0; PIECE_BYTES];
    let mut content = 0;
    loop {
        let count = stream.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        content += count_of_content(&piece[..count]);
    }
    assert_eq!(
        content, bytes,
        "each byte once, and none in head or framing"
    );
}

/// How often an `x` is there. Most blocks hold nothing else, which is seen at once: to count each byte takes long
/// without optimising.
fn count_of_content(bytes: &[u8]) -> u64 {
    static BLOCK: [u8; 4096] = [b'x'; 4096];
    let blocks = bytes.chunks(BLOCK.len()).map(|block| {
        if *block == BLOCK[..block.len()] {
            return block.len();
        }
        block.iter().filter(|byte| **byte == b'x').count()
    });
    blocks.sum::<usize>() as u64
}

/// Reads until what has come ends in `end`.
fn read_until(stream: &mut TcpStream, end: &[u8]) {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while !bytes.ends_with(end) {
        let count = stream.read(&mut chunk).unwrap();
        assert!(
            count > 0,
            "the end instead of {:?}",
            end.escape_ascii().to_string()
        );
        bytes.extend_from_slice(&chunk[..count]);
    }
}

fn resident_kib(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
