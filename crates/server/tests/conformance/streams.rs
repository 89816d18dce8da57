//! Many streams of one connection in progress at once, on loops, workers and threads.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::thread;

use loadline_server::SocketIo;

use crate::answers::{Answer, parse_answers};
use crate::client::Client;
use crate::fixture::{Model, Server, eventually, pattern};
use crate::later::reset;
use crate::many_streams::{PROTOCOL, end, frames, next_frame};

every_model! {
    every_stream_has_its_own_answer,
    streams_overtake_one_that_blocks,
    tasks_of_one_connection_are_in_progress_at_once,
    a_drain_answers_every_stream,
}

fn server(model: Model) -> Server {
    Server::start_speaking(model.options(), PROTOCOL)
}

fn request(method: &str, target: &str, content: &[u8]) -> Vec<u8> {
    let len = content.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n"
    );
    [head.as_bytes(), content].concat()
}

fn get(target: &str) -> Vec<u8> {
    request("GET", target, b"")
}

/// What has come of each stream, and whether it has ended.
#[derive(Default)]
struct Streams {
    unread: Vec<u8>,
    came: BTreeMap<u16, (Vec<u8>, bool)>,
}

impl Streams {
    /// Reads until the condition holds.
    fn read_until(&mut self, client: &mut Client, condition: impl Fn(&Self) -> bool) {
        let mut chunk = [0; 65_536];
        while !condition(self) {
            let count = client.stream.read(&mut chunk).unwrap();
            assert!(count > 0, "the end of the connection");
            self.unread.extend_from_slice(&chunk[..count]);
            let mut at = 0;
            while let Some((stream, content)) = next_frame(&self.unread[at..]) {
                at += 4 + content.len();
                let (bytes, has_ended) = self.came.entry(stream).or_default();
                assert!(!*has_ended, "bytes behind the end of stream {stream}");
                bytes.extend_from_slice(content);
                *has_ended = content.is_empty();
            }
            self.unread.drain(..at);
        }
    }

    fn has_ended(&self, stream: u16) -> bool {
        self.came.get(&stream).is_some_and(|(_, ended)| *ended)
    }

    fn ended(&self) -> usize {
        self.came.values().filter(|(_, ended)| *ended).count()
    }

    /// The one answer of a stream.
    fn answer(&self, stream: u16, is_head: bool) -> Answer {
        let mut answers = parse_answers(&self.came[&stream].0, |_| is_head);
        assert_eq!(answers.len(), 1, "of stream {stream}");
        answers.remove(0)
    }
}

/// What stream `n` asks, and the content it is answered with.
fn exchange(n: u16) -> (Vec<u8>, Vec<u8>) {
    let target = |path: &str| format!("{path}?{n}");
    match n % 7 {
        0 => (get("/index.html"), pattern(600)),
        1 => (get("/big.bin"), pattern(3_000_001)),
        2 => {
            let target = target("/-/echo-blocking");
            (get(&target), format!("GET {target}").into_bytes())
        }
        3 => {
            let content = pattern(1000 * usize::from(n));
            (request("POST", "/-/later/echo", &content), content)
        }
        4 => (
            get(&target("/-/later/slowly")),
            b"piece by piece ".repeat(20),
        ),
        5 => (request("HEAD", "/middle.bin", b""), Vec::new()),
        _ => {
            let target = target("/-/later/whole");
            (get(&target), target.into_bytes())
        }
    }
}

fn every_stream_has_its_own_answer(model: Model) {
    const STREAMS: u16 = 42;
    let server = server(model);
    let mut client = server.connect();
    // The frames of all streams, mixed: a piece of each in turn.
    let mut pieces: Vec<Vec<Vec<u8>>> = (0..STREAMS)
        .map(|n| {
            let (request, _) = exchange(n);
            let len = 50 + 500 * usize::from(n % 5);
            request.chunks(len).map(|piece| frames(n, piece)).collect()
        })
        .collect();
    let mut input = Vec::new();
    while pieces.iter().any(|pieces| !pieces.is_empty()) {
        for pieces in &mut pieces {
            if !pieces.is_empty() {
                input.extend(pieces.remove(0));
            }
        }
    }
    let mut writer = client.stream.try_clone().unwrap();
    let writing = thread::spawn(move || {
        for piece in input.chunks(7_777) {
            writer.write_all(piece).unwrap();
        }
    });
    let mut streams = Streams::default();
    streams.read_until(&mut client, |streams| {
        streams.ended() == usize::from(STREAMS)
    });
    writing.join().unwrap();
    for n in 0..STREAMS {
        let answer = streams.answer(n, n % 7 == 5);
        assert_eq!(answer.status, 200, "of stream {n}");
        assert!(answer.body == exchange(n).1, "of stream {n}");
    }
}

/// Threads beside those that own the connections.
fn workers(model: Model) -> u16 {
    let options = model.options();
    match options.architecture.has_loops() {
        true => options.workers as u16,
        false => 0,
    }
}

/// As many blocking steps of one connection as there are workers, and then what needs none.
fn streams_overtake_one_that_blocks(model: Model) {
    let workers = workers(model);
    if workers == 0 || model.options().socket_io == SocketIo::Worker {
        return in_order_on_one_thread(model);
    }
    let server = server(model);
    let mut client = server.connect();
    for n in 0..workers {
        client.send(frames(n, &get("/-/gate")));
    }
    server.site.gate.await_waiting(u64::from(workers));
    client.send(frames(100, &get("/-/echo")));
    let mut streams = Streams::default();
    streams.read_until(&mut client, |streams| streams.has_ended(100));
    assert_eq!(streams.answer(100, false).body, b"GET /-/echo");
    server.site.gate.open();
    let all = usize::from(workers) + 1;
    streams.read_until(&mut client, |streams| streams.ended() == all);
}

/// Without workers a blocking step holds up its thread, and the other streams come after it.
fn in_order_on_one_thread(model: Model) {
    let server = server(model);
    server.site.gate.open();
    let mut client = server.connect();
    let all = 20;
    for n in 0..all {
        let target = if n % 2 == 0 { "/-/gate" } else { "/-/echo" };
        client.send(frames(n, &get(target)));
    }
    let mut streams = Streams::default();
    streams.read_until(&mut client, |streams| streams.ended() == usize::from(all));
}

fn tasks_of_one_connection_are_in_progress_at_once(model: Model) {
    let server = server(model);
    let mut client = server.connect();
    // A worker has one task at a time.
    let tasks = match workers(model) {
        0 => 20,
        workers => workers,
    };
    for n in 0..tasks {
        client.send(frames(n, &get("/-/later/begun")));
    }
    let at_work = std::sync::Arc::clone(&server.site.at_work);
    let in_progress = || at_work.load(std::sync::atomic::Ordering::SeqCst);
    eventually("all tasks are in progress", || {
        in_progress() == u64::from(tasks)
    });
    client.send(frames(100, &get("/-/echo")));
    let mut streams = Streams::default();
    streams.read_until(&mut client, |streams| {
        let begun = |n| {
            streams
                .came
                .get(&n)
                .is_some_and(|(bytes, _)| bytes.ends_with(b"begun\r\n"))
        };
        streams.has_ended(100) && (0..tasks).all(begun)
    });
    reset(client);
    eventually("all tasks are dropped", || in_progress() == 0);
}

fn a_drain_answers_every_stream(model: Model) {
    let server = server(model);
    let mut client = server.connect();
    let all = 12;
    for n in 0..all {
        client.send(frames(n, &get("/-/later/slowly")));
        client.send(end(n));
    }
    let mut streams = Streams::default();
    streams.read_until(&mut client, |streams| !streams.came.is_empty());
    server.control.drain();
    streams.read_until(&mut client, |streams| streams.ended() == usize::from(all));
    for n in 0..all {
        assert_eq!(streams.answer(n, false).body, b"piece by piece ".repeat(20));
    }
    client.end();
    assert_eq!(server.end(), 0);
}
