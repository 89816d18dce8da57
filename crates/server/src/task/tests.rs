//! Tasks without a connection.

use std::sync::Arc;
use std::thread;

use loadline_proto::{Exchange, StreamId};

use super::{Notify, TaskPool, Tasks};
use crate::site::tests::quiet_site;
use crate::sync::Waker;
use crate::telemetry::counters::Role;

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
