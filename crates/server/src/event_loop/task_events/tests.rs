//! Apps' tasks that compute, on a loop that polls them itself.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use loadline_proto::{Context, Exchange, Handler, Outcome, Port, Task, TaskOptions};

use super::super::tests::http2::{heads, requests};
use super::super::tests::{connect, event_loop_at, has_rings};
use super::EventLoop;
use crate::site::tests::clock;
use crate::transport::Driver;
use crate::transport::ring::driver::RingDriver;
use crate::transport::socket::epoll::Epoll;

const STREAMS: u32 = 100;

/// Of both drives of a connection in one turn.
const POLLS_MAX: usize = 4;

#[derive(Default)]
struct Seen {
    is_open: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
    /// Streams whose tasks have computed, in order.
    computed: Mutex<Vec<u32>>,
}

impl Seen {
    fn computed_count(&self) -> usize {
        self.computed.lock().unwrap().len()
    }
}

/// Its tasks wait until they may compute, and then do so for 5 ms.
struct Computing {
    now_us: &'static AtomicU64,
    seen: Arc<Seen>,
}

impl Handler for Computing {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        Outcome::Later(TaskOptions::default())
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        let (now_us, seen) = (self.now_us, Arc::clone(&self.seen));
        Box::pin(async move {
            poll_fn(|context| {
                if seen.is_open.load(Relaxed) {
                    return Poll::Ready(());
                }
                seen.wakers.lock().unwrap().push(context.waker().clone());
                Poll::Pending
            })
            .await;
            now_us.fetch_add(5_000, Relaxed);
            seen.computed.lock().unwrap().push(exchange.stream.0);
            port.answer(exchange);
        })
    }
}

/// A loop with one connection, whose client asks over many streams at once.
fn begin() -> (EventLoop<Computing, Epoll>, UnixStream, Arc<Seen>) {
    let now_us = clock();
    let seen = Arc::<Seen>::default();
    let handler = Computing {
        now_us,
        seen: Arc::clone(&seen),
    };
    let mut event_loop = event_loop_at::<_, Epoll>(now_us, handler, None);
    let mut client = connect(&mut event_loop);
    client.write_all(&requests(&[], STREAMS)).unwrap();
    client.set_nonblocking(true).unwrap();
    (event_loop, client, seen)
}

/// Turns until all have computed: a few in each, the oldest first, and responses leave meanwhile.
fn compute_in_turns(
    event_loop: &mut EventLoop<Computing, Epoll>,
    client: &mut UnixStream,
    seen: &Seen,
) {
    let mut received = Vec::new();
    let mut before = 0;
    while before < STREAMS as usize {
        event_loop.turn().unwrap();
        let computed = seen.computed_count();
        assert!(computed - before <= POLLS_MAX, "{before} to {computed}");
        let _ = client.read_to_end(&mut received); // an error: there is no more yet
        assert!(
            heads(&received) + 1 >= computed,
            "responses wait for others"
        );
        before = computed;
    }
    let in_order: Vec<u32> = (0..STREAMS).map(|index| 2 * index + 1).collect();
    assert_eq!(*seen.computed.lock().unwrap(), in_order);
}

#[test]
fn new_tasks_that_compute_do_not_hold_the_loop_together() {
    let (mut event_loop, mut client, seen) = begin();
    seen.is_open.store(true, Relaxed);
    compute_in_turns(&mut event_loop, &mut client, &seen);
}

#[test]
fn tasks_that_are_woken_together_do_not_hold_the_loop_together() {
    let (mut event_loop, mut client, seen) = begin();
    while seen.wakers.lock().unwrap().len() < STREAMS as usize {
        event_loop.turn().unwrap();
    }
    seen.is_open.store(true, Relaxed);
    let wakers = std::mem::take(&mut *seen.wakers.lock().unwrap());
    wakers.into_iter().for_each(Waker::wake);
    compute_in_turns(&mut event_loop, &mut client, &seen);
}

/// Its tasks compute for 5 ms, wait for a moment, and respond.
struct Pausing {
    now_us: &'static AtomicU64,
    begun: Arc<AtomicUsize>,
    /// How many had begun when one went on.
    begun_before: Arc<AtomicUsize>,
}

impl Handler for Pausing {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        Outcome::Later(TaskOptions::default())
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        let now_us = self.now_us;
        let (begun, begun_before) = (Arc::clone(&self.begun), Arc::clone(&self.begun_before));
        Box::pin(async move {
            now_us.fetch_add(5_000, Relaxed);
            begun.fetch_add(1, Relaxed);
            let mut has_waited = false;
            poll_fn(|context| {
                if std::mem::replace(&mut has_waited, true) {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            begun_before.fetch_min(begun.load(Relaxed), Relaxed);
            port.answer(exchange);
        })
    }
}

fn a_task_goes_on_beside_others_that_begin<D: Driver>() {
    let now_us = clock();
    let begun_before = Arc::new(AtomicUsize::new(usize::MAX));
    let handler = Pausing {
        now_us,
        begun: Arc::default(),
        begun_before: Arc::clone(&begun_before),
    };
    let mut event_loop = event_loop_at::<_, D>(now_us, handler, None);
    let mut client = connect(&mut event_loop);
    client.write_all(&requests(&[], STREAMS)).unwrap();
    while begun_before.load(Relaxed) == usize::MAX {
        event_loop.turn().unwrap();
    }
    let begun = begun_before.load(Relaxed);
    assert!(begun <= STREAMS as usize / 10, "{begun} began before");
}

/// None went on before all had begun, as long as nothing was to be sent.
#[test]
fn tasks_that_were_woken_go_on_beside_others_that_begin() {
    a_task_goes_on_beside_others_that_begin::<Epoll>();
    if has_rings() {
        a_task_goes_on_beside_others_that_begin::<RingDriver>();
    }
}
