//! Tasks that workers poll while the owner of the connection feeds, drains or cancels them, and others
//! wake them.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Poll;

use loadline_base::Buffer;
use loadline_proto::{Body, Exchange, Gone, Piece, Port};
use loom::thread;

use crate::checker::{check, check_within};
use crate::config::App;
use crate::options::Queue;
use crate::owner::{Owner, WINDOW_BYTES};
use crate::worker::job::Message;

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

/// Waits for something that never comes, and keeps its end of the channel.
async fn wait_elsewhere(exchange: Box<Exchange>, port: Port) {
    pending::<()>().await;
    answer(exchange, &port, b"never");
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
        owner.close_queue();
        worker.join().unwrap();
        assert!(!owner.mailbox.has_mail(), "notified of nothing");
        owner.end();
    });
}

/// A wake-up that is lost leaves the task waiting: a deadlock.
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

/// It wakes the task while the thread that has polled it leaves it to the worker: a wake-up that is lost
/// leaves it waiting, a deadlock.
fn woken_while_left_to_a_worker(preemptions_max: usize) {
    check_within(preemptions_max, || {
        let mut owner = Owner::on_thread_of_pool(counting_app(2));
        let worker = owner.spawn_worker();
        owner.receive(GET);
        owner.serve_until("done");
        assert_eq!(owner.answers(), 1);
        owner.end();
        worker.join().unwrap();
    });
}

/// With two preemptions. Three take a minute, in a run of everything.
#[test]
fn a_task_is_woken_while_a_thread_leaves_it_to_a_worker() {
    woken_while_left_to_a_worker(2);
}

#[test]
#[ignore = "long: a minute"]
fn a_task_is_woken_while_a_thread_leaves_it_to_a_worker_with_three_preemptions() {
    woken_while_left_to_a_worker(3);
}

/// The client leaves at the same time.
#[test]
fn a_client_leaves_while_a_thread_leaves_its_task_to_a_worker() {
    check(|| {
        let mut owner = Owner::on_thread_of_pool(counting_app(1));
        let worker = owner.spawn_worker();
        owner.receive(GET);
        if !owner.is_closed {
            owner.lose_client();
        }
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

/// Futures that are there.
#[derive(Clone, Default)]
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn one(&self) -> impl Drop + Send + use<> {
        self.0.fetch_add(1, Relaxed);
        One(self.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Relaxed)
    }
}

struct One(Alive);

impl Drop for One {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// The same app, whose futures are counted.
fn counted<F>(alive: &Alive, app: impl Fn(Box<Exchange>, Port) -> F + Send + Sync + 'static) -> App
where
    F: Future<Output = ()> + Send + 'static,
{
    let alive = alive.clone();
    App::new(move |exchange, port| {
        let (one, run) = (alive.one(), app(exchange, port));
        async move {
            run.await;
            drop(one);
        }
    })
}

/// A task that is queued, polled or waits when its client leaves is dropped by a worker before that ends.
fn ends_with_its_client(request: &'static str, app: fn(&Alive) -> App) {
    check(move || {
        let alive = Alive::default();
        let mut owner = Owner::with_worker(app(&alive));
        owner.receive(request);
        let worker = owner.spawn_worker();
        owner.lose_client();
        assert_eq!(owner.answers(), 0);
        owner.end();
        worker.join().unwrap();
        assert_eq!(alive.count(), 0, "a future is left");
    });
}

#[test]
fn a_client_leaves_a_reader() {
    ends_with_its_client(POST, |alive| counted(alive, echo));
}

#[test]
fn a_client_leaves_a_writer() {
    ends_with_its_client(GET, |alive| {
        counted(alive, |exchange, port| produce(exchange, port, "abcd"))
    });
}

#[test]
fn a_client_leaves_a_task_that_waits_elsewhere() {
    ends_with_its_client(GET, |alive| counted(alive, wait_elsewhere));
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
        let mut owner = Owner::with_workers(App::new(echo), kind, 1);
        let mailbox = Arc::clone(&owner.mailbox);
        let source = owner.take_source();
        let worker = thread::spawn(move || {
            while let Some(mut taken) = source.take(|| 0) {
                if taken.job.poll().is_ready() {
                    mailbox.post(Message::Done);
                }
            }
        });
        owner.receive(GET);
        owner.serve_until("\r\n\r\n");
        assert_eq!(owner.answers(), 1);
        owner.end();
        worker.join().unwrap();
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

/// Whoever is free polls it. It is woken by another thread, by itself, and by content.
fn by_two_workers(kind: Queue) {
    check_within(2, move || {
        let alive = Alive::default();
        let app = counted(&alive, |exchange, port| async move {
            let mut is_second = false;
            let wake_elsewhere = |cx: &mut std::task::Context<'_>| {
                if std::mem::replace(&mut is_second, true) {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            };
            poll_fn(wake_elsewhere).await;
            answer(exchange, &port, b"done");
        });
        let mut owner = Owner::with_workers(app, kind, 2);
        owner.receive(GET);
        let workers = [owner.spawn_worker(), owner.spawn_worker()];
        owner.serve_until("done");
        assert_eq!(owner.answers(), 1);
        owner.end();
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        assert_eq!(alive.count(), 0, "a future is left");
    });
}

#[test]
fn two_workers_share_a_task_by_the_shared_queue() {
    by_two_workers(Queue::Shared);
}

#[test]
fn two_workers_share_a_task_by_the_stealing_queue() {
    by_two_workers(Queue::WorkStealing);
}

/// Two that wake it at once queue it once, and it is polled behind the later one.
#[test]
fn however_often_it_is_woken_it_is_queued_once() {
    check(|| {
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&polls);
        let wakes = Arc::new(loom::sync::atomic::AtomicUsize::new(0));
        let mut owner = Owner::with_worker(App::new(move |exchange, port| {
            let (polls, wakes) = (Arc::clone(&counted), Arc::clone(&wakes));
            async move {
                let woken_twice = |cx: &mut std::task::Context<'_>| {
                    if polls.fetch_add(1, Relaxed) == 0 {
                        for _ in 0..2 {
                            let (waker, wakes) = (cx.waker().clone(), Arc::clone(&wakes));
                            thread::spawn(move || {
                                wakes.fetch_add(1, Relaxed);
                                waker.wake();
                            });
                        }
                    }
                    match wakes.load(Relaxed) {
                        2 => Poll::Ready(()),
                        _ => Poll::Pending,
                    }
                };
                poll_fn(woken_twice).await;
                answer(exchange, &port, b"done");
            }
        }));
        owner.receive(GET);
        let worker = owner.spawn_worker();
        owner.serve_until("done");
        owner.end();
        worker.join().unwrap();
        let polls = polls.load(Relaxed);
        assert!((1..=3).contains(&polls), "{polls} polls");
    });
}

/// A task that is cancelled before a worker takes it never starts; one that has started ends.
#[test]
fn a_client_leaves_before_a_worker_begins() {
    check(|| {
        let started = Arc::new(AtomicUsize::new(0));
        let (count, alive) = (Arc::clone(&started), Alive::default());
        let mut owner = Owner::with_worker(counted(&alive, move |exchange, port| {
            count.fetch_add(1, Relaxed);
            wait_elsewhere(exchange, port)
        }));
        owner.receive(GET);
        owner.lose_client();
        owner.close_queue();
        owner.spawn_worker().join().unwrap();
        assert_eq!(started.load(Relaxed), 0);
        owner.end();
        assert_eq!(alive.count(), 0, "a future is left");
    });
}

/// What is woken in a queue that is closed ends, and nobody waits for it.
#[test]
fn a_task_that_is_woken_too_late_ends() {
    check(|| {
        let alive = Alive::default();
        let mut owner = Owner::with_worker(counted(&alive, wait_elsewhere));
        owner.receive(GET);
        let worker = owner.spawn_worker();
        owner.close_queue();
        owner.lose_client();
        worker.join().unwrap();
        owner.end();
        assert_eq!(alive.count(), 0, "a future is left");
    });
}
