//! Tasks that a worker carries out while the owner of the connection feeds, drains or cancels them.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use loadline_base::Buffer;
use loadline_proto::{Body, Exchange, Gone, Piece, Port};
use loom::thread;

use crate::checker::check;
use crate::config::App;
use crate::options::Queue;
use crate::owner::{Owner, WINDOW_BYTES};
use crate::task::{Sleeper, WorkerTask};
use crate::worker::job::Message;
use crate::worker::job_queue::JobQueue;

use super::local_task::counting_app;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";

fn answer(mut exchange: Box<Exchange>, port: &Port, content: &[u8]) {
    exchange.response.body = Body::Bytes(content.into());
    port.answer(exchange);
}

async fn echo(exchange: Box<Exchange>, port: Port) {
    let mut content = Vec::new();
    loop {
        match port.content().await {
            Ok(Some(bytes)) => content.extend_from_slice(&bytes),
            Ok(None) => return answer(exchange, &port, &content),
            Err(Gone) => {
                assert_eq!(port.content().await.err(), Some(Gone), "for good");
                return;
            }
        }
    }
}

async fn produce(exchange: Box<Exchange>, port: Port, content: &str) {
    let mut exchange = exchange;
    let len = content.len() as u64;
    exchange.response.body = Body::Stream { len: Some(len) };
    port.answer(exchange);
    let mut rest = content.as_bytes();
    while !rest.is_empty() {
        let Ok(room) = port.room().await else { return };
        assert!((1..=WINDOW_BYTES).contains(&room), "room for {room}");
        let (piece, after) = rest.split_at(rest.len().min(room));
        port.produce(Piece::Data(Buffer::from(piece.to_vec())));
        rest = after;
    }
    port.produce(Piece::End);
}

/// A notification that is lost leaves the owner asleep: a deadlock. The end of the task, behind its
/// answer, is none.
#[test]
fn an_answer_reaches_its_owner() {
    check(|| {
        let mut owner = Owner::with_worker(App::new(echo));
        owner.receive(GET);
        let worker = owner.spawn_worker();
        owner.serve_until("\r\n\r\n");
        assert_eq!(owner.answers(), 1);
        worker.join().unwrap();
        assert!(!owner.mailbox.has_mail(), "notified of nothing");
        owner.end();
    });
}

/// A wake-up that is lost leaves the worker asleep: a deadlock.
#[test]
fn a_worker_polls_what_another_thread_wakes() {
    check(|| {
        let mut owner = Owner::with_worker(counting_app(2));
        owner.receive(GET);
        let worker = owner.spawn_worker();
        owner.serve_until("done");
        assert_eq!(owner.answers(), 1);
        owner.end();
        worker.join().unwrap();
    });
}

/// A reader that waits is woken by the content, and by its end.
#[test]
fn content_reaches_a_reader_that_waits() {
    check(|| {
        let mut owner = Owner::with_worker(App::new(echo));
        owner.receive(POST);
        let worker = owner.spawn_worker();
        owner.receive("a");
        owner.receive("b");
        owner.serve_until("ab");
        assert_eq!(owner.answers(), 1);
        owner.end();
        worker.join().unwrap();
    });
}

/// A writer that waits is woken by room, and never gets more than a window.
#[test]
fn room_reaches_a_writer_that_waits() {
    check(|| {
        let app = App::new(|exchange, port| produce(exchange, port, "abcd"));
        let mut owner = Owner::with_worker(app);
        owner.receive(GET);
        let worker = owner.spawn_worker();
        owner.serve_until("abcd");
        assert_eq!(owner.answers(), 1);
        owner.end();
        worker.join().unwrap();
    });
}

/// A task that is not woken when its client leaves keeps its worker for ever: a deadlock.
fn ends_with_its_client(request: &'static str, app: fn() -> App) {
    check(move || {
        let mut owner = Owner::with_worker(app());
        owner.receive(request);
        let worker = owner.spawn_worker();
        owner.lose_client();
        assert_eq!(owner.answers(), 0);
        owner.end();
        worker.join().unwrap();
    });
}

#[test]
fn a_client_leaves_a_reader() {
    ends_with_its_client(POST, || App::new(echo));
}

#[test]
fn a_client_leaves_a_writer() {
    ends_with_its_client(GET, || {
        App::new(|exchange, port| produce(exchange, port, "abcd"))
    });
}

/// It waits for something that never comes.
#[test]
fn a_client_leaves_a_task_that_waits_elsewhere() {
    ends_with_its_client(GET, || App::new(|_, _| pending()));
}

/// The end of a task without an answer reaches its owner.
#[test]
fn a_task_without_an_answer_is_an_error() {
    check(|| {
        let mut owner = Owner::with_worker(App::new(|_, _| async {}));
        owner.receive(GET);
        let worker = owner.spawn_worker();
        while owner.answers() == 0 {
            owner.turn();
        }
        assert!(owner.text().starts_with("HTTP/1.1 500 "));
        owner.end();
        worker.join().unwrap();
    });
}

/// The end of a task that has promised more cuts the connection.
#[test]
fn a_task_that_breaks_its_promise_ends_the_connection() {
    check(|| {
        let mut owner = Owner::with_worker(App::new(|mut exchange, port: Port| async move {
            exchange.response.body = Body::Stream { len: Some(1) };
            port.answer(exchange);
        }));
        owner.receive(GET);
        let worker = owner.spawn_worker();
        while !owner.is_closed {
            owner.turn();
        }
        owner.end();
        worker.join().unwrap();
    });
}

/// A loop's task goes to a worker by the queue, and its events come back by the mailbox.
fn through_the_queue(kind: Queue) {
    check(move || {
        let mut owner = Owner::with_worker(App::new(echo));
        let (queue, mut sources) = JobQueue::<WorkerTask>::new(kind, 1, 1);
        let mailbox = Arc::clone(&owner.mailbox);
        let source = sources.pop().unwrap();
        let worker = thread::spawn(move || {
            let sleeper = Sleeper::new();
            while let Some(mut taken) = source.take() {
                taken.job.run(&sleeper);
                mailbox.post(Message::Done);
            }
        });
        owner.receive(GET);
        assert!(queue.push(owner.take_started()).is_ok());
        owner.serve_until("\r\n\r\n");
        assert_eq!(owner.answers(), 1);
        queue.close();
        worker.join().unwrap();
        owner.end();
    });
}

#[test]
fn a_task_goes_through_the_shared_queue() {
    through_the_queue(Queue::Shared);
}

#[test]
fn a_task_goes_through_the_stealing_queue() {
    through_the_queue(Queue::WorkStealing);
}

/// A task that is cancelled before a worker takes it never starts; one that has started ends.
#[test]
fn a_client_leaves_before_a_worker_begins() {
    check(|| {
        let started = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&started);
        let mut owner = Owner::with_worker(App::new(move |_, _| {
            count.fetch_add(1, Relaxed);
            pending()
        }));
        owner.receive(GET);
        let mut task = owner.take_started();
        let worker = thread::spawn(move || {
            task.run(&Sleeper::new());
            task.exchange.is_none()
        });
        owner.lose_client();
        owner.end();
        let has_begun = worker.join().unwrap();
        assert_eq!(usize::from(has_begun), started.load(Relaxed));
    });
}
