//! Apps' tasks, without any runtime: futures that read and write through their port. What apps of
//! tower see is tested where they are mounted.

use std::future::{pending, poll_fn};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use loadline_base::Buffer;
use loadline_proto::{Body, Exchange, Limits, Piece, Port, Task, TaskOptions};

use crate::client::Client;
use crate::fixture::{Model, Server, eventually, impatient, pattern, trailers_of};

every_model! {
    an_answer_of_a_task,
    content_in_both_directions_at_once,
    a_task_woken_by_another_thread,
    a_task_that_panics_or_says_nothing_costs_nothing,
    a_client_that_resets_its_connection_cancels_its_task,
    a_client_that_half_closes_gets_its_answer,
    a_client_that_half_closes_behind_its_content_gets_its_answer,
    a_reset_behind_a_half_close_cancels,
    a_client_that_closed_is_found_out_by_writing,
    a_half_close_cancels_a_task_that_asked_for_it,
    content_within_a_tasks_own_limit,
    a_task_that_takes_too_long_is_dropped,
    a_task_goes_down_with_the_server,
}

/// Counts a task from its first poll until it is dropped.
struct AtWork(Arc<AtomicU64>);

impl AtWork {
    fn begin(counter: &Arc<AtomicU64>) -> Self {
        counter.fetch_add(1, SeqCst);
        Self(Arc::clone(counter))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// What the task at this path asks of its connection.
pub fn options(path: &[u8]) -> TaskOptions {
    TaskOptions {
        body_bytes_max: if path.ends_with(b"-limited") {
            1000
        } else {
            u64::MAX
        },
        cancel_on_half_close: path.ends_with(b"-cancelled"),
    }
}

/// What `/-/later/…` does.
pub fn task(mut exchange: Box<Exchange>, port: Port, at_work: &Arc<AtomicU64>) -> Task {
    let at_work = Arc::clone(at_work);
    Box::pin(async move {
        let _at_work = AtWork::begin(&at_work);
        let path = exchange.request.path().to_vec();
        match &path[b"/-/later/".len()..] {
            b"whole" => {
                exchange.response.body = Body::Bytes(exchange.request.target().to_vec());
                port.answer(exchange);
            }
            b"echo" | b"echo-limited" => {
                exchange.response.body = Body::Stream { len: None };
                port.answer(exchange);
                while let Ok(Some(content)) = port.content().await {
                    if write(&port, &content).await.is_none() {
                        return;
                    }
                }
                if let Some(trailers) = port.take_trailers() {
                    write(&port, &trailers_of(&trailers)).await;
                }
                port.produce(Piece::End);
            }
            b"elsewhere" => {
                for _ in 0..3 {
                    elsewhere().await;
                }
                port.answer(exchange);
            }
            b"slowly" => {
                for _ in 0..20 {
                    elsewhere().await;
                }
                exchange.response.body = Body::Stream { len: None };
                port.answer(exchange);
                for _ in 0..20 {
                    write(&port, b"piece by piece ").await;
                    elsewhere().await;
                }
                port.produce(Piece::End);
            }
            b"collect" | b"collect-limited" => {
                let mut sum = 0;
                while let Ok(Some(content)) = port.content().await {
                    sum += content.len();
                }
                exchange.response.body = Body::Bytes(sum.to_string().into_bytes());
                port.answer(exchange);
            }
            b"ticks" => {
                exchange.response.body = Body::Stream { len: None };
                port.answer(exchange);
                while write(&port, b"tick").await.is_some() {
                    elsewhere().await;
                }
            }
            b"panic" => panic!("on purpose"),
            b"panic-late" => {
                exchange.response.body = Body::Stream { len: Some(10) };
                port.answer(exchange);
                write(&port, b"half").await;
                panic!("on purpose");
            }
            b"nothing" => {}
            b"begun" | b"begun-cancelled" => {
                exchange.response.body = Body::Stream { len: None };
                port.answer(exchange);
                write(&port, b"begun").await;
                pending().await
            }
            _ => pending().await,
        }
    })
}

async fn write(port: &Port, mut content: &[u8]) -> Option<()> {
    while !content.is_empty() {
        let room = port.room().await.ok()?.min(content.len());
        let (now, later) = content.split_at(room);
        port.produce(Piece::Data(Buffer::from(now.to_vec())));
        content = later;
    }
    Some(())
}

/// Wakes the task from a thread that knows nothing of the server.
async fn elsewhere() {
    let done = Arc::new(AtomicU64::new(0));
    poll_fn(|context| {
        if done.load(SeqCst) == 1 {
            return Poll::Ready(());
        }
        let (done, waker): (_, Waker) = (Arc::clone(&done), context.waker().clone());
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(1)); // so that the task has gone to sleep, mostly
            done.store(1, SeqCst);
            waker.wake();
        });
        Poll::Pending
    })
    .await;
}

pub fn an_answer_of_a_task(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    for n in 0..20 {
        let target = format!("/-/later/whole?{n}");
        assert_eq!(client.get(&target, "").body, target.as_bytes());
        assert_eq!(client.get("/index.html", "").body.len(), 600);
    }
    let get = |n| format!("GET /-/later/whole?{n} HTTP/1.1\r\nHost: h\r\n\r\n");
    client.send((0..20).map(get).collect::<String>());
    for n in 0..20 {
        let target = format!("/-/later/whole?{n}");
        assert_eq!(client.answer().body, target.as_bytes(), "pipelined");
    }
}

pub fn content_in_both_directions_at_once(model: Model) {
    const LEN: usize = 5_000_000; // more than all socket buffers and windows
    let server = Server::start(model);
    let content = pattern(LEN);
    let mut client = server.connect();
    client.send(format!(
        "POST /-/later/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {LEN}\r\n\r\n"
    ));
    let answer = client.send_much(content.clone()).answer();
    assert_eq!(answer.body.len(), LEN);
    assert!(answer.body == content);
    client.end_with_answer();
}

pub fn a_task_woken_by_another_thread(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    for _ in 0..5 {
        assert_eq!(client.get("/-/later/elsewhere", "").status, 200);
    }
}

pub fn a_task_that_panics_or_says_nothing_costs_nothing(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    for _ in 0..5 {
        assert_eq!(client.get("/-/later/panic", "").status, 500);
        assert_eq!(client.get("/-/later/nothing", "").status, 500);
    }
    drop(client);
    for _ in 0..5 {
        let mut client = server.connect();
        client.send("GET /-/later/panic-late HTTP/1.1\r\nHost: h\r\n\r\n");
        let bytes = client.rest();
        let cut = bytes.is_empty() || bytes.ends_with(b"\r\n\r\n") || bytes.ends_with(b"half");
        assert!(cut, "cut where it was, not completed");
    }
    assert_eq!(server.connect().get("/-/later/whole", "").status, 200);
}

/// Ends a connection by a reset.
pub fn reset(client: Client) {
    rustix::net::sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
}

pub fn a_client_that_resets_its_connection_cancels_its_task(model: Model) {
    let server = Server::start(model);
    let at_work = Arc::clone(&server.site.at_work);
    for target in ["begun", "never"] {
        let mut client = server.connect();
        client.send(format!("GET /-/later/{target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        eventually("the task has begun", || at_work.load(SeqCst) == 1);
        reset(client);
        eventually("it is dropped", || at_work.load(SeqCst) == 0);
    }
    assert_eq!(server.connect().get("/-/later/whole", "").status, 200);
}

pub fn a_client_that_half_closes_gets_its_answer(model: Model) {
    let server = Server::start(model);
    let slowly = "GET /-/later/slowly HTTP/1.1\r\nHost: h\r\n\r\n";
    // At once, when the task has begun, and with a next request behind it.
    let mut client = server.connect();
    client.send(slowly).half_close();
    assert_eq!(client.answer().body, b"piece by piece ".repeat(20));
    client.end();
    let at_work = Arc::clone(&server.site.at_work);
    let mut client = server.connect();
    client.send(slowly);
    eventually("the task has begun", || at_work.load(SeqCst) == 1);
    client.half_close();
    assert_eq!(client.answer().status, 200);
    client.end();
    let mut client = server.connect();
    let pipelined = [slowly, &slowly.replace("slowly", "whole"), slowly].concat();
    client.send(pipelined).half_close();
    for len in [300, 14, 300] {
        assert_eq!(client.answer().body.len(), len);
    }
    client.end();
    eventually("it is dropped", || at_work.load(SeqCst) == 0);
}

/// More of it than windows hold, or less than was announced.
fn a_client_that_half_closes_behind_its_content_gets_its_answer(model: Model) {
    let server = Server::start(model);
    let at_work = Arc::clone(&server.site.at_work);
    let mut client = server.connect();
    let content = pattern(300_000);
    let head = "POST /-/later/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n";
    client.send(head).send(&content).half_close();
    assert!(client.answer().body == content);
    client.end();
    // Cut short: nobody gets it for whole.
    let mut client = server.connect();
    client.send(
        head.replace("echo", "collect-limited")
            .replace("300000", "900"),
    );
    client.send(&content[..500]).half_close();
    assert_eq!(client.answer().status, 400);
    client.end();
    eventually("it is dropped", || at_work.load(SeqCst) == 0);
}

pub fn a_reset_behind_a_half_close_cancels(model: Model) {
    let server = Server::start(model);
    let at_work = Arc::clone(&server.site.at_work);
    for target in ["begun", "never"] {
        let mut client = server.connect();
        client.send(format!("GET /-/later/{target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        eventually("the task has begun", || at_work.load(SeqCst) == 1);
        client.half_close();
        // So that the end mostly arrives before the reset; either way the task goes.
        if model.is_concurrent() {
            assert_eq!(server.connect().get("/index.html", "").status, 200);
        }
        reset(client);
        eventually("it is dropped", || at_work.load(SeqCst) == 0);
    }
}

pub fn a_client_that_closed_is_found_out_by_writing(model: Model) {
    let server = Server::start(model);
    let at_work = Arc::clone(&server.site.at_work);
    for _ in 0..3 {
        let mut client = server.connect();
        client.send("GET /-/later/ticks HTTP/1.1\r\nHost: h\r\n\r\n");
        eventually("the task has begun", || at_work.load(SeqCst) == 1);
        drop(client);
        eventually("it is dropped", || at_work.load(SeqCst) == 0);
    }
}

pub fn a_half_close_cancels_a_task_that_asked_for_it(model: Model) {
    let server = Server::start(model);
    let at_work = Arc::clone(&server.site.at_work);
    for target in ["begun-cancelled", "never-cancelled"] {
        for how in [Shutdown::Write, Shutdown::Both] {
            let mut client = server.connect();
            client.send(format!("GET /-/later/{target} HTTP/1.1\r\nHost: h\r\n\r\n"));
            eventually("the task has begun", || at_work.load(SeqCst) == 1);
            client.stream.shutdown(how).unwrap();
            eventually("it is dropped", || at_work.load(SeqCst) == 0);
        }
    }
    assert_eq!(server.connect().get("/-/later/whole", "").status, 200);
}

pub fn content_within_a_tasks_own_limit(model: Model) {
    let server = Server::start(model);
    let at_work = Arc::clone(&server.site.at_work);
    let head = |path: &str, framing: &str| {
        format!("POST /-/later/{path} HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n")
    };
    let chunked = "Transfer-Encoding: chunked";
    let mut client = server.connect();
    client
        .send(head("collect-limited", "Content-Length: 1000"))
        .send([b'x'; 1000]);
    assert_eq!(client.answer().body, b"1000");
    client.send(head("collect-limited", chunked));
    client
        .send("3e8\r\n")
        .send([b'x'; 1000])
        .send("\r\n0\r\n\r\n");
    assert_eq!(client.answer().body, b"1000");
    eventually("all of them are over", || at_work.load(SeqCst) == 0);
    // Announced: refused without a word of the content, and without a task.
    client.send(head("collect-limited", "Content-Length: 1001"));
    assert_eq!(client.answer().status, 413);
    assert_eq!(at_work.load(SeqCst), 0);
    client.half_close().end();
    // Grown: in place of an answer, or by its end.
    let mut client = server.connect();
    client
        .send(head("collect-limited", chunked))
        .send("3e8\r\n")
        .send([b'x'; 1000]);
    eventually("the task has begun", || at_work.load(SeqCst) == 1);
    client.send("\r\n1\r\nx");
    assert_eq!(client.answer().status, 413);
    eventually("it is dropped", || at_work.load(SeqCst) == 0);
    client.half_close().end();
    drop(client);
    let mut client = server.connect();
    client
        .send(head("echo-limited", chunked))
        .send("3e8\r\n")
        .send([b'x'; 1000]);
    client.await_bytes(b""); // the answer has begun
    client.send_in_vain("\r\n1\r\nx");
    assert!(!client.rest().ends_with(b"0\r\n\r\n"), "cut, not completed");
    eventually("it is dropped", || at_work.load(SeqCst) == 0);
    drop(client);
    // No limit but that: far beyond the one for forms.
    let mut client = server.connect();
    client.send(head("echo", "Content-Length: 2000000"));
    client.send_much(pattern(2_000_000));
    assert!(client.answer().body == pattern(2_000_000));
}

pub fn a_task_that_takes_too_long_is_dropped(model: Model) {
    let limits = Limits {
        app_answer_timeout_ms: 300,
        ..impatient()
    };
    let server = Server::start_with(model.options(), limits);
    let at_work = Arc::clone(&server.site.at_work);
    for _ in 0..2 {
        let mut client = server.connect();
        let answer = client.get("/-/later/never", "");
        assert_eq!((answer.status, client.is_last(&answer)), (503, true));
        eventually("it is dropped", || at_work.load(SeqCst) == 0);
    }
    let limits = Limits {
        app_silence_timeout_ms: 300,
        ..impatient()
    };
    let server = Server::start_with(model.options(), limits);
    let at_work = Arc::clone(&server.site.at_work);
    let mut client = server.connect();
    client.send("GET /-/later/begun HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(
        client.rest().ends_with(b"5\r\nbegun\r\n"),
        "and then the end"
    );
    eventually("it is dropped", || at_work.load(SeqCst) == 0);
    assert_eq!(server.connect().get("/-/later/whole", "").status, 200);
}

pub fn a_task_goes_down_with_the_server(model: Model) {
    let mut options = model.options();
    options.grace = Duration::from_millis(200);
    let server = Server::start_with(options, crate::fixture::limits());
    let at_work = Arc::clone(&server.site.at_work);
    let mut client = server.connect();
    client.send("GET /-/later/begun HTTP/1.1\r\nHost: h\r\n\r\n");
    eventually("the task has begun", || at_work.load(SeqCst) == 1);
    assert_eq!(server.end(), 1, "an answer without end is cut");
    eventually("it is dropped", || at_work.load(SeqCst) == 0);
}
