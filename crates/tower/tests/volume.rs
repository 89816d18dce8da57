//! Much at once on a lone loop without workers: event streams, uploads and downloads that are many times
//! what memory may grow by, files that keep answering. Alone in its process, one at a time: it measures.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may")]

use std::convert::Infallible;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use futures_util::stream::{self, StreamExt as _};
use loadline_apps::{Mounts, StaticFiles, StaticOptions};
use loadline_server::{Architecture, Server};
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

fn carry_under_each(bytes: u64) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for architecture in [Architecture::Reactor, Architecture::Proactor] {
        if loadline_server::check_offered(architecture).is_ok() {
            carry(architecture, bytes);
        }
    }
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

fn carry(architecture: Architecture, bytes: u64) {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file.txt"), [b'f'; 600]).unwrap();
    let (events, _) = watch::channel(0);
    let files = StaticFiles::new(root.path(), StaticOptions::default()).unwrap();
    let site = Mounts::new(files).mount("/app", Tower::new(app(&events, bytes)).unwrap());
    let server = Server::new(site)
        .architecture(architecture)
        .loops(1)
        .workers(0)
        .listen(([127, 0, 0, 1], 0))
        .start()
        .unwrap();
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
        content += piece[..count].iter().filter(|byte| **byte == b'x').count() as u64;
    }
    assert_eq!(
        content, bytes,
        "each byte once, and none in head or framing"
    );
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
