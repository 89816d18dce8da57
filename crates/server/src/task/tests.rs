//! Tasks without a connection.

use std::any::Any;
use std::sync::Arc;
use std::thread;

use loadline_proto::{Exchange, StreamId};

use super::{Notify, TaskPool, Tasks};
use crate::config::Steps;
use crate::site::tests::quiet_site;
use crate::sync::Waker;
use crate::telemetry::counters::Role;
use crate::thread::context::ThreadContext;

/// They were dropped one within the other. Thousands of them on a connection (`--streams-max`) could use up the stack
/// of its thread, which ends the process.
#[test]
fn dropping_many_tasks_takes_little_stack() {
    const TASKS: u32 = 4_000;
    let stats = quiet_site().registry.thread_stats(Role::Loop);
    let (mut pool, mut tasks) = (TaskPool::new(Arc::clone(&stats)), Tasks::default());
    let waker = Arc::new(Waker::new().unwrap());
    let mut exchange = Exchange::default();
    for number in 0..TASKS {
        exchange.stream = StreamId(2 * number + 1);
        let notify = Notify::Thread(Arc::clone(&waker));
        tasks.insert(pool.prepare(&exchange, None, notify));
    }
    assert_eq!(stats.app_requests_in_progress.value(), u64::from(TASKS));
    let dropped = thread::Builder::new()
        .stack_size(64 << 10)
        .spawn(move || drop(tasks));
    dropped.unwrap().join().unwrap();
    assert_eq!(stats.app_requests_in_progress.value(), 0);
}

/// It was kept until a worker came to its task, and did not count any more: with as many as the queue takes, and heads
/// of 32 KiB, that was hundreds of MiB.
#[test]
fn a_request_that_is_cancelled_before_a_worker_has_it_is_dropped_at_once() {
    let thread = &mut ThreadContext::new(&quiet_site(), Role::Loop);
    let steps = Arc::clone(thread.config()) as Arc<dyn Steps>;
    let part: Arc<dyn Any + Send + Sync> = Arc::new(());
    let mut exchange = Box::<Exchange>::default();
    exchange.handler = Some(Arc::clone(&part));
    let notify = Notify::Thread(Arc::new(Waker::new().unwrap()));
    let (handle, mut task) = thread.tasks.for_worker(exchange, None, notify, steps);
    assert!(task.is_new() && !task.is_abandoned(false));
    assert_eq!(Arc::strong_count(&part), 2);
    thread.tasks.end(handle);
    assert_eq!(Arc::strong_count(&part), 1);
    assert!(task.is_new() && task.is_abandoned(false));
    assert!(task.take_exchange().is_none() && task.poll().is_ready());
}
