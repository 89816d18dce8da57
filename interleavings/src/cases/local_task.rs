//! Tasks that the owner of the connection polls, and other threads wake.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use loadline_proto::{Body, Exchange, Port};
use loom::thread;

use crate::checker::check;
use crate::config::App;
use crate::owner::Owner;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn answer(mut exchange: Box<Exchange>, port: &Port, content: &str) {
    exchange.response.body = Body::Bytes(content.into());
    port.answer(exchange);
}

/// Counts to `count` in another thread, which wakes the task after each step. No order but that of
/// waking and polling.
struct Counting {
    counted: Option<Arc<loom::sync::atomic::AtomicUsize>>,
    count: usize,
}

impl Counting {
    fn to(count: usize) -> Self {
        Self {
            counted: None,
            count,
        }
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let Some(counted) = &self.counted else {
            let counted = Arc::new(loom::sync::atomic::AtomicUsize::new(0));
            self.counted = Some(Arc::clone(&counted));
            let (waker, count) = (cx.waker().clone(), self.count);
            thread::spawn(move || {
                for step in 1..=count {
                    counted.store(step, Relaxed);
                    waker.wake_by_ref();
                }
            });
            return Poll::Pending;
        };
        match counted.load(Relaxed) == self.count {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    async fn run(mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }
}

/// Answers when another thread has woken it that often.
pub(super) fn counting_app(count: usize) -> App {
    App::new(move |exchange, port| async move {
        Counting::to(count).run().await;
        answer(exchange, &port, "done");
    })
}

fn is_answered(owner: fn(App) -> Owner) {
    check(move || {
        let mut owner = owner(counting_app(2));
        owner.receive(GET);
        owner.serve_until("done");
        assert_eq!(owner.answers(), 1);
        owner.end();
    });
}

#[test]
fn a_loop_polls_what_another_thread_wakes() {
    is_answered(Owner::on_loop);
}

#[test]
fn a_blocking_thread_polls_what_another_thread_wakes() {
    is_answered(Owner::on_thread);
}

/// It wakes while the owner cancels the task, or later.
#[test]
fn a_client_leaves_while_another_thread_wakes() {
    check(|| {
        let mut owner = Owner::on_loop(counting_app(2));
        owner.receive(GET);
        owner.lose_client();
        assert_eq!(owner.answers(), 0);
        owner.end();
    });
}

/// The port is with another thread: what it answers reaches an owner that sleeps.
#[test]
fn another_thread_answers() {
    check(|| {
        let mut owner = Owner::on_loop(App::new(|exchange, port| async move {
            thread::spawn(move || answer(exchange, &port, "done"));
            pending().await
        }));
        owner.receive(GET);
        owner.serve_until("done");
        assert_eq!(owner.answers(), 1);
        owner.end();
    });
}

/// The task has ended without an answer while another thread gives one: the client has one of the two.
#[test]
fn an_answer_beside_the_end_of_its_task() {
    check(|| {
        let mut owner = Owner::on_loop(App::new(|exchange, port| async move {
            thread::spawn(move || answer(exchange, &port, "done"));
        }));
        owner.receive(GET);
        assert_eq!(owner.answers(), 1, "{}", owner.text());
        let is_done = owner.text().starts_with("HTTP/1.1 200 ") && owner.text().ends_with("done");
        assert!(is_done || owner.text().starts_with("HTTP/1.1 500 "));
        owner.end();
    });
}

/// The next task has the memory of the last one, or not: it is polled for its own wake-ups alone.
#[test]
fn a_waker_that_outlives_its_task() {
    check(|| {
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&polls);
        let requests = AtomicUsize::new(0);
        let mut owner = Owner::on_loop(App::new(move |exchange, port| {
            let is_first = requests.fetch_add(1, Relaxed) == 0;
            let polls = Arc::clone(&counted);
            async move {
                if is_first {
                    let wake = |cx: &mut Context<'_>| {
                        let waker = cx.waker().clone();
                        thread::spawn(move || waker.wake());
                        Poll::Ready(())
                    };
                    poll_fn(wake).await;
                    return answer(exchange, &port, "first");
                }
                let wake_twice = |cx: &mut Context<'_>| {
                    cx.waker().wake_by_ref();
                    match polls.fetch_add(1, Relaxed) {
                        0 | 1 => Poll::Pending,
                        _ => Poll::Ready(()),
                    }
                };
                poll_fn(wake_twice).await;
                answer(exchange, &port, "second");
            }
        }));
        owner.receive(GET);
        owner.serve_until("first");
        owner.receive(GET);
        owner.serve_until("second");
        assert_eq!((owner.answers(), polls.load(Relaxed)), (2, 3));
        owner.end();
    });
}
