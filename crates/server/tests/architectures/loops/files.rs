//! Large files: shares, files that are not in the page cache, files that change.

use std::io::{Read, Write};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use loadline_proto::CloseReason;
use loadline_server::{Architecture, ServerOptions, SocketIo};

use super::util::*;

on_loops! {
    a_large_file_arrives_whole_under_every_model,
    an_uncached_file_arrives_whole,
    a_fast_reader_of_big_files_does_not_starve_others,
    a_file_that_is_cut_while_it_is_sent_ends_the_connection,
    a_client_that_does_not_read_holds_nobody_up,
}

const FILE_BYTES: usize = 12 << 20;

fn content() -> &'static [u8] {
    static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
        (0..FILE_BYTES)
            .map(|at| (at / 1000 * 31 + at % 251) as u8)
            .collect()
    });
    &CONTENT
}

fn with_file(options: ServerOptions) -> (Server, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content()).unwrap();
    file.as_file().sync_all().unwrap();
    let handler = TestHandler {
        file: Some(open_file(file.path())),
        ..TestHandler::default()
    };
    (start_with(options, handler, Default::default()), file)
}

fn a_large_file_arrives_whole_under_every_model(architecture: Architecture) {
    for (workers, socket_io) in [
        (0, SocketIo::Loop),
        (2, SocketIo::Loop),
        (2, SocketIo::Worker),
    ] {
        if !offers(architecture, socket_io) {
            continue;
        }
        let (server, _file) = with_file(ServerOptions {
            socket_io,
            ..options(architecture, 1, workers)
        });
        let expected = content();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut client = server.connect();
                    for _ in 0..2 {
                        assert!(client.get("/file").content == expected);
                    }
                });
            }
        });
        // Counted after the client has them.
        eventually(|| server.total().bytes_out > 6 * FILE_BYTES as u64);
        assert!(server.end().is_clean());
    }
}

/// The pages are dropped before each request, so that workers have to read them ahead (where the
/// file system can tell).
fn an_uncached_file_arrives_whole(architecture: Architecture) {
    for workers in [0, 1] {
        let (server, file) = with_file(options(architecture, 1, workers));
        let expected = content();
        let mut client = server.connect();
        for _ in 0..3 {
            let advice = rustix::fs::Advice::DontNeed;
            rustix::fs::fadvise(file.as_file(), 0, None, advice).unwrap();
            assert!(client.get("/file").content == expected);
        }
    }
}

fn a_fast_reader_of_big_files_does_not_starve_others(architecture: Architecture) {
    let (server, _file) = with_file(options(architecture, 1, 0));
    let stop = AtomicBool::new(false);
    let bytes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.connect();
            let mut buffer = vec![0; 1 << 20];
            while !stop.load(Ordering::Relaxed) {
                // Always more to come: the socket is never without an answer to fill it.
                (0..4).for_each(|_| client.ask("/file"));
                let mut left = 4 * FILE_BYTES;
                while left > 0 {
                    let count = client.stream.read(&mut buffer).unwrap();
                    assert!(count > 0);
                    left = left.saturating_sub(count);
                    bytes.fetch_add(count as u64, Ordering::Relaxed);
                }
            }
        });
        eventually(|| bytes.load(Ordering::Relaxed) > FILE_BYTES as u64);
        let mut client = server.connect();
        let mut latencies = Vec::new();
        let before = bytes.load(Ordering::Relaxed);
        for _ in 0..200 {
            let began = Instant::now();
            assert_eq!(client.get("/").status, 200);
            latencies.push(began.elapsed());
        }
        let during = bytes.load(Ordering::Relaxed) - before;
        stop.store(true, Ordering::Relaxed);
        // A whole file takes some ms; 500 ms, and a few that are later, leave room for a busy machine.
        latencies.retain(|latency| *latency > Duration::from_millis(500));
        assert!(
            latencies.len() <= 10,
            "of 200 {latencies:?} while {during} bytes were read"
        );
    });
}

fn a_file_that_is_cut_while_it_is_sent_ends_the_connection(architecture: Architecture) {
    let (server, file) = with_file(options(architecture, 1, 1));
    let mut client = server.connect();
    client.ask("/file");
    let mut first = [0; 1000];
    client.stream.read_exact(&mut first).unwrap();
    file.as_file().set_len(FILE_BYTES as u64 / 2).unwrap();
    let mut rest = Vec::new();
    let _ = client.stream.read_to_end(&mut rest); // a reset is as good as an end
    assert!(rest.len() < FILE_BYTES, "it must not look complete");
    eventually(|| server.total().closed_for(CloseReason::Failed) == 1);
    assert_eq!(server.connect().get("/").status, 200);
}

fn a_client_that_does_not_read_holds_nobody_up(architecture: Architecture) {
    let (server, _file) = with_file(options(architecture, 1, 0));
    let mut lazy = server.connect();
    lazy.ask("/file");
    for _ in 0..50 {
        assert_eq!(server.connect().get("/").status, 200);
    }
    assert!(lazy.answer().unwrap().content == content());
}
