//! Much at once on a lone loop without workers: event streams, 1 GiB up and 1 GiB down, files that
//! keep answering, and memory within its bound. One test, alone in its process: it measures.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may")]

use std::convert::Infallible;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
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

const GIB: u64 = 1 << 30;
const STREAMS: usize = 100;
/// What all of it may take: some windows for each stream, some buffers of the loop and of clients.
const GROWTH_KIB_MAX: u64 = 32 << 10;

#[test]
fn a_lone_loop_carries_streams_uploads_downloads_and_files() {
    for architecture in [Architecture::Reactor, Architecture::Proactor] {
        if loadline_server::check_offered(architecture).is_ok() {
            carry(architecture);
        }
    }
}

fn app(events: &watch::Sender<u64>) -> Router {
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
            get(|| async {
                let piece = Bytes::from(vec![b'x'; 256 << 10]);
                let pieces = stream::iter(0..GIB >> 18);
                Body::from_stream(pieces.map(move |_| Ok::<_, Infallible>(piece.clone())))
            }),
        )
}

fn carry(architecture: Architecture) {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file.txt"), [b'f'; 600]).unwrap();
    let (events, _) = watch::channel(0);
    let files = StaticFiles::new(root.path(), StaticOptions::default()).unwrap();
    let site = Mounts::new(files).mount("/app", Tower::new(app(&events)).unwrap());
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
        thread::spawn(move || upload(address)),
        thread::spawn(move || download(address)),
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

fn upload(address: SocketAddr) {
    let mut stream = connect(address);
    write!(
        stream,
        "POST /app/upload HTTP/1.1\r\nHost: h\r\nContent-Length: {GIB}\r\n\r\n"
    )
    .unwrap();
    let piece = vec![b'u'; 256 << 10];
    for _ in 0..GIB >> 18 {
        stream.write_all(&piece).unwrap();
    }
    read_until(&mut stream, GIB.to_string().as_bytes());
}

fn download(address: SocketAddr) {
    let mut stream = connect(address);
    let head = b"GET /app/download HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    stream.write_all(head).unwrap();
    let mut piece = vec![0; 256 << 10];
    let mut content = 0;
    loop {
        let count = stream.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        content += piece[..count].iter().filter(|byte| **byte == b'x').count() as u64;
    }
    assert_eq!(content, GIB, "each byte once, and none in head or framing");
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
