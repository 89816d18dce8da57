//! Clients that send their content slowly: they hold their connections, and nobody else up.

use std::io::Write as _;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use loadline_proto::{Limits, Pace};
use loadline_server::ServerOptions;

use crate::client::Client;
use crate::fixture::{Model, Server, eventually, limits};

every_model! {
    slow_uploads_hold_no_worker,
    uploads_and_event_streams_leave_every_worker_to_others,
    as_many_tasks_wait_as_there_are_connections,
    a_chunked_upload_of_framing_is_too_slow,
}

const CHUNKED: &str = "POST /-/later/collect HTTP/1.1\r\nHost: h\r\n\
                       Transfer-Encoding: chunked\r\n\r\n";
const DECLARED: &str = "POST /-/later/collect HTTP/1.1\r\nHost: h\r\n\
                        Content-Length: 16000\r\n\r\nsix=by";

/// A byte of content, and much around it.
fn chunk() -> String {
    format!("1;{}\r\nx\r\n", "e".repeat(240))
}

/// Clients of this kind for every worker, and two at least.
fn for_every_worker(server: &Server, model: Model, request: &str) -> Vec<Client> {
    let count = model.options().workers.max(2);
    let begin = |_| {
        let mut client = server.connect();
        client.send(request);
        client
    };
    (0..count).map(begin).collect()
}

pub fn slow_uploads_hold_no_worker(model: Model) {
    if !model.is_concurrent() {
        return;
    }
    let server = Server::start(model);
    let at_work = || server.site.at_work.load(SeqCst);
    let mut declared = for_every_worker(&server, model, DECLARED);
    let mut chunked = for_every_worker(&server, model, CHUNKED);
    let tasks = chunked.len() as u64;
    eventually("every stream has its task", || at_work() == tasks);
    for _ in 0..3 {
        chunked.iter_mut().for_each(|client| {
            client.send(chunk());
        });
        let mut other = server.connect();
        assert_eq!(other.get("/-/later/elsewhere", "").status, 200);
        assert_eq!(other.get("/big.bin", "").body.len(), 3_000_001);
        assert_eq!(other.get("/-/echo-blocking", "").status, 200);
    }
    assert_eq!(
        at_work(),
        tasks,
        "content of a known length has no task yet"
    );
    for client in &mut declared {
        client.send([b'x'; 15_994]);
        assert_eq!(client.answer().body, b"16000");
    }
    for client in &mut chunked {
        client.send(chunk()).send("0\r\n\r\n");
        assert_eq!(client.answer().body, b"4");
    }
}

/// How many requests a server of this model can have in a blocking step at once, if that is a number that
/// others than its connections decide; and its options for two.
fn with_two_workers(model: Model) -> Option<ServerOptions> {
    let options = model.options();
    let shares_threads = model == Model::ThreadPool;
    (shares_threads || options.architecture.has_loops() && options.workers > 0).then_some(
        ServerOptions {
            threads: 2,
            workers: options.workers.min(2),
            threads_range: None,
            workers_range: None,
            ..options
        },
    )
}

pub fn uploads_and_event_streams_leave_every_worker_to_others(model: Model) {
    const WORKERS: u64 = 2;
    const LONG: &str = "POST /-/later/collect HTTP/1.1\r\nHost: h\r\n\
                        Content-Length: 100000\r\n\r\n";
    let Some(options) = with_two_workers(model) else {
        return;
    };
    let server = Server::start_with(options, limits());
    let at_work = || server.site.at_work.load(SeqCst);
    let begin = |request: &str| {
        let mut client = server.connect();
        client.send(request);
        client
    };
    let mut chunked: Vec<Client> = (0..WORKERS).map(|_| begin(CHUNKED)).collect();
    let mut long: Vec<Client> = (0..WORKERS).map(|_| begin(LONG)).collect();
    // Beyond what is gathered before the app has it.
    for client in &mut long {
        client.send([b'x'; 70_000]);
    }
    let stream = "GET /-/later/begun HTTP/1.1\r\nHost: h\r\n\r\n";
    let streams: Vec<Client> = (0..WORKERS).map(|_| begin(stream)).collect();
    eventually("each has its task", || at_work() == 3 * WORKERS);
    chunked.iter_mut().for_each(|client| {
        client.send("1\r\nx\r\n");
    });
    long.iter_mut().for_each(|client| {
        client.send("x");
    });
    let gated = "GET /-/gate HTTP/1.1\r\nHost: h\r\n\r\n";
    let at_gate: Vec<Client> = (0..WORKERS).map(|_| begin(gated)).collect();
    server.site.gate.await_waiting(WORKERS);
    assert_eq!(at_work(), 3 * WORKERS);
    server.site.gate.open();
    for mut client in at_gate {
        assert_eq!(client.answer().status, 200);
    }
    for client in &mut chunked {
        client.send("1\r\nx\r\n0\r\n\r\n");
        assert_eq!(client.answer().body, b"2");
    }
    for client in &mut long {
        client.send([b'x'; 29_999]);
        assert_eq!(client.answer().body, b"100000");
    }
    drop(streams);
    eventually("every task has ended", || at_work() == 0);
}

/// They are more than the queue takes of new jobs, and are woken while no worker is free.
pub fn as_many_tasks_wait_as_there_are_connections(model: Model) {
    if !model.is_concurrent() {
        return;
    }
    let mut options = model.options();
    options.queue_max = 3;
    let workers = options.workers;
    let server = Server::start_with(options, limits());
    let mut clients: Vec<Client> = Vec::new();
    for count in 1..=12 {
        let mut client = server.connect();
        client.send(CHUNKED);
        clients.push(client);
        let at_work = &server.site.at_work;
        eventually("its task has begun", || at_work.load(SeqCst) == count);
    }
    let gated = "GET /-/gate HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut at_gate: Vec<Client> = Vec::new();
    for count in 1..=workers {
        let mut client = server.connect();
        client.send(gated);
        at_gate.push(client);
        server.site.gate.await_waiting(count as u64);
    }
    clients.iter_mut().for_each(|client| {
        client.send(chunk()).send("0\r\n\r\n");
    });
    server.site.gate.open();
    for client in &mut clients {
        let answer = client.answer();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"1"[..]));
    }
    for mut client in at_gate {
        assert_eq!(client.answer().status, 200);
    }
}

fn a_chunked_upload_of_framing_is_too_slow(model: Model) {
    let limits = Limits {
        body_pace: Pace {
            grace_ms: 300,
            bytes_per_second_min: 5_000,
            total_max_ms: u64::MAX,
        },
        ..limits()
    };
    let server = Server::start_with(model.options(), limits);
    let begun = ["/-/later/collect", "/-/echo"].map(|path| {
        let mut client = server.connect();
        client.send(CHUNKED.replace("/-/later/collect", path));
        let mut other_end = client.stream.try_clone().unwrap();
        // Fifty times the content in framing, until the connection is closed: fast enough if that counted.
        let sending = thread::spawn(move || {
            while other_end.write_all(chunk().as_bytes()).is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        (path, client, sending)
    });
    let sending = begun.map(|(path, mut client, sending)| {
        assert_eq!(client.answer().status, 408, "{path}");
        sending
    });
    for sending in sending {
        sending.join().unwrap();
    }
}
