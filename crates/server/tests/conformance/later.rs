//! Apps' tasks, without any runtime: futures that read and write through their port. What apps of
//! tower see is tested where they are mounted.

use std::future::{pending, poll_fn};
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use loadline_base::Buffer;
use loadline_proto::{Body, Exchange, Limits, Piece, Port, Task};

use crate::answers::parse_answers;
use crate::fixture::{Model, Server, eventually, impatient, pattern};

every_model! {
    an_answer_of_a_task,
    content_in_both_directions_at_once,
    a_task_woken_by_another_thread,
    a_task_that_panics_or_says_nothing_costs_nothing,
    a_client_that_leaves_cancels_its_task,
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
            b"echo" => {
                exchange.response.body = Body::Stream { len: None };
                port.answer(exchange);
                while let Ok(Some(content)) = port.content().await {
                    if write(&port, &content).await.is_none() {
                        return;
                    }
                }
                port.produce(Piece::End);
            }
            b"elsewhere" => {
                for _ in 0..3 {
                    elsewhere().await;
                }
                port.answer(exchange);
            }
            b"panic" => panic!("on purpose"),
            b"panic-late" => {
                exchange.response.body = Body::Stream { len: Some(10) };
                port.answer(exchange);
                write(&port, b"half").await;
                panic!("on purpose");
            }
            b"nothing" => {}
            b"begun" => {
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

fn an_answer_of_a_task(model: Model) {
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

fn content_in_both_directions_at_once(model: Model) {
    const LEN: usize = 5_000_000; // more than all socket buffers and windows
    let server = Server::start(model);
    let content = pattern(LEN);
    let client = server.connect();
    let (mut reader, mut writer) = (client.stream.try_clone().unwrap(), client.stream);
    let reading = thread::spawn(move || {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let head = format!(
        "POST /-/later/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {LEN}\r\n\r\n"
    );
    writer.write_all(head.as_bytes()).unwrap();
    writer.write_all(&content).unwrap();
    let answers = parse_answers(&reading.join().unwrap(), |_| false);
    assert_eq!(answers[0].body.len(), LEN);
    assert!(answers[0].body == content);
}

fn a_task_woken_by_another_thread(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    for _ in 0..5 {
        assert_eq!(client.get("/-/later/elsewhere", "").status, 200);
    }
}

fn a_task_that_panics_or_says_nothing_costs_nothing(model: Model) {
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

fn a_client_that_leaves_cancels_its_task(model: Model) {
    let server = Server::start(model);
    let at_work = Arc::clone(&server.site.at_work);
    for target in ["begun", "never"] {
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

fn a_task_that_takes_too_long_is_dropped(model: Model) {
    let limits = Limits {
        app_answer_timeout_ms: 300,
        ..impatient()
    };
    let server = Server::start_with(model.options(), limits);
    let at_work = Arc::clone(&server.site.at_work);
    for _ in 0..2 {
        let mut client = server.connect();
        let answer = client.get("/-/later/never", "");
        assert_eq!((answer.status, answer.closes()), (503, true));
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

fn a_task_goes_down_with_the_server(model: Model) {
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
