//! Jobs for workers that go to sleep, and queues that close.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread::{self, JoinHandle};

use crate::checker::{check, check_within};
use crate::fairness::lanes::FlowKey;
use crate::options::Queue;
use crate::sync::Waker;
use crate::worker::job_queue::JobQueue;
use crate::worker::job_queue::source::JobSource;

/// What workers have done.
#[derive(Default)]
struct Done {
    /// How often each job was done.
    jobs: [AtomicUsize; 2],
    changed: Waker,
}

impl Done {
    fn count(&self) -> usize {
        let jobs = self.jobs.iter();
        jobs.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn wait(&self, count: usize) {
        while self.count() < count {
            self.changed.wait_edge();
        }
    }
}

/// A worker for each source.
fn workers(sources: Vec<JobSource<usize>>, done: &Arc<Done>) -> Vec<JoinHandle<()>> {
    let spawn = |source: JobSource<usize>| {
        let done = Arc::clone(done);
        thread::spawn(move || {
            while let Some(taken) = source.take(|| 0) {
                done.jobs[taken.job].fetch_add(1, Ordering::Relaxed);
                done.changed.wake();
            }
        })
    };
    sources.into_iter().map(spawn).collect()
}

fn join(workers: Vec<JoinHandle<()>>) {
    let joined = workers.into_iter().map(JoinHandle::join);
    joined.for_each(|joined| joined.unwrap());
}

/// A job that is slept through, or a worker that does not learn of the end, is a deadlock.
fn jobs_one_by_one(kind: Queue) {
    check(move || {
        let (queue, sources) = JobQueue::with_workers(kind, 1, 2);
        let done = Arc::default();
        let workers = workers(sources, &done);
        for job in 0..2 {
            queue.push(FlowKey::default(), job).unwrap();
            done.wait(job + 1);
        }
        queue.close();
        join(workers);
        assert_eq!((done.count(), queue.depth()), (2, 0));
    });
}

/// Jobs that wait when the queue closes are done, each once, by whoever takes it.
fn a_close_with_jobs(kind: Queue) {
    // A third preemption takes 300,000 executions.
    check_within(2, move || {
        let (queue, sources) = JobQueue::with_workers(kind, 2, 2);
        let done: Arc<Done> = Arc::default();
        let workers = workers(sources, &done);
        (0..2).for_each(|job| queue.push(FlowKey::default(), job).unwrap());
        queue.close();
        join(workers);
        let jobs = done.jobs.each_ref();
        assert_eq!(jobs.map(|count| count.load(Ordering::Relaxed)), [1, 1]);
        assert_eq!(queue.depth(), 0);
    });
}

/// What is pushed while the queue closes is done or given back.
fn a_close_beside_a_push(kind: Queue) {
    check(move || {
        let (queue, sources) = JobQueue::with_workers(kind, 1, 2);
        let done: Arc<Done> = Arc::default();
        let workers = workers(sources, &done);
        let pusher = thread::spawn({
            let queue = Arc::clone(&queue);
            move || usize::from(queue.push(FlowKey::default(), 0).is_ok())
        });
        queue.close();
        let accepted = pusher.join().unwrap();
        join(workers);
        assert_eq!(done.count(), accepted, "accepted, and not done");
    });
}

/// Two that push at once are not both taken in where there is room for one.
fn a_bound(kind: Queue) {
    check(move || {
        let (queue, sources) = JobQueue::with_workers(kind, 1, 1);
        let pusher = thread::spawn({
            let queue = Arc::clone(&queue);
            move || usize::from(queue.push(FlowKey::default(), 0).is_ok())
        });
        let accepted =
            usize::from(queue.push(FlowKey::default(), 1).is_ok()) + pusher.join().unwrap();
        assert_eq!((accepted, queue.depth()), (1, 1));
        assert!(sources[0].try_take(0).is_some() && sources[0].try_take(0).is_none());
    });
}

/// What was admitted before has a place in a full queue, and none in a closed one.
fn beyond_the_bound(kind: Queue) {
    check(move || {
        let (queue, sources) = JobQueue::with_workers(kind, 1, 1);
        let done: Arc<Done> = Arc::default();
        queue.push(FlowKey::default(), 0).unwrap();
        let workers = workers(sources, &done);
        let again = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.push_again(FlowKey::default(), 1).unwrap()
        });
        again.join().unwrap();
        queue.close();
        join(workers);
        let jobs = done.jobs.each_ref();
        assert_eq!(jobs.map(|count| count.load(Ordering::Relaxed)), [1, 1]);
        assert_eq!(
            (queue.depth(), queue.push_again(FlowKey::default(), 2)),
            (0, Err(2))
        );
    });
}

fn one_too_many(kind: Queue) {
    let preemptions_max = match kind {
        Queue::Shared => 2,
        Queue::WorkStealing => 1,
    };
    one_too_many_within(preemptions_max, kind);
}

/// A second preemption takes 200,000 executions, which are as much as all other cases have.
#[test]
#[ignore = "long: half of the time of all cases"]
fn one_too_many_for_stealing_queues() {
    one_too_many_within(2, Queue::WorkStealing);
}

/// One of two workers is too many: it leaves, and the job that waits is done by the other, whichever
/// of them was woken for it.
fn one_too_many_within(preemptions_max: usize, kind: Queue) {
    check_within(preemptions_max, move || {
        let (queue, sources) = JobQueue::with_workers(kind, 2, 2);
        let done: Arc<Done> = Arc::default();
        let workers = workers(sources, &done);
        let resizer = thread::spawn({
            let queue = Arc::clone(&queue);
            move || assert!(queue.resize(1).is_empty())
        });
        queue.push(FlowKey::default(), 0).unwrap();
        done.wait(1);
        resizer.join().unwrap();
        queue.close();
        join(workers);
        assert_eq!((done.count(), queue.depth()), (1, 0));
    });
}

macro_rules! both_kinds {
    ($($case:ident),*) => {
        mod shared {
            $(#[test] fn $case() { super::$case(crate::options::Queue::Shared) })*
        }
        mod stealing {
            $(#[test] fn $case() { super::$case(crate::options::Queue::WorkStealing) })*
        }
    };
}

both_kinds!(
    jobs_one_by_one,
    a_close_with_jobs,
    a_close_beside_a_push,
    a_bound,
    beyond_the_bound,
    one_too_many
);
