//! Job queues between real threads.

use std::sync::mpsc;
use std::thread;

use super::job_queue::JobQueue;
use super::job_queue::source::JobSource;
use crate::fairness::lanes::{FlowKey, Lane};
use crate::options::Queue;

#[test]
fn a_full_queue_gives_the_job_back() {
    for kind in Queue::ALL {
        let (queue, sources) = JobQueue::with_workers(*kind, 2, 3);
        assert_eq!(
            (0..5)
                .map(|n| queue.push(FlowKey::default(), n))
                .collect::<Vec<_>>(),
            [Ok(()), Ok(()), Ok(()), Err(3), Err(4)]
        );
        assert_eq!(queue.depth(), 3);
        assert_eq!(sources[0].take(|| 0).map(|taken| taken.job), Some(0));
        assert_eq!(
            (queue.depth(), queue.push(FlowKey::default(), 5)),
            (2, Ok(()))
        );
    }
}

#[test]
fn a_closed_queue_is_emptied_first() {
    for kind in Queue::ALL {
        let (queue, sources) = JobQueue::with_workers(*kind, 2, 9);
        queue.push(FlowKey::default(), 1).unwrap();
        queue.close();
        assert_eq!(queue.push(FlowKey::default(), 2), Err(2));
        assert_eq!(sources[1].take(|| 0).map(|taken| taken.job), Some(1));
        assert_eq!(sources[0].take(|| 0), None);
        assert_eq!(sources[1].take(|| 0), None);
    }
}

#[test]
fn every_job_is_done_once_and_no_worker_sleeps_through_one() {
    for kind in Queue::ALL {
        let (queue, sources) = JobQueue::with_workers(*kind, 4, 64);
        let (done, results) = mpsc::channel();
        let workers: Vec<_> = sources
            .into_iter()
            .map(|source| {
                let done = done.clone();
                thread::spawn(move || {
                    while let Some(taken) = source.take(|| 0) {
                        done.send(taken.job).unwrap();
                    }
                })
            })
            .collect();
        // Bursts, so that workers fall asleep in between: each job of the next burst waits for
        // all of the last one.
        for burst in 0..500u32 {
            let jobs = burst % 7 + 1;
            (0..jobs).for_each(|job| queue.push(FlowKey::default(), burst * 10 + job).unwrap());
            let mut came: Vec<_> = (0..jobs).map(|_| results.recv().unwrap()).collect();
            came.sort_unstable();
            assert_eq!(came, (burst * 10..burst * 10 + jobs).collect::<Vec<_>>());
        }
        queue.close();
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        assert_eq!(queue.depth(), 0);
    }
}

#[test]
fn idle_workers_steal_what_a_busy_one_has_hoarded() {
    const JOBS: usize = 32;
    let (queue, mut sources) = JobQueue::with_workers(Queue::WorkStealing, 2, JOBS);
    (0..JOBS).for_each(|job| queue.push(FlowKey::default(), job).unwrap());
    // The first worker fetches a batch and is busy with its first job for ever.
    let (thief, busy) = (sources.pop().unwrap(), sources.pop().unwrap());
    assert_eq!(busy.take(|| 0).map(|taken| taken.job), Some(0));
    queue.close();
    let rest: Vec<_> = std::iter::from_fn(|| thief.take(|| 0)).collect();
    assert_eq!(rest.len(), JOBS - 1);
    assert!(rest.iter().filter(|taken| taken.stolen).count() > 0);
}

#[test]
fn a_lane_that_is_full_of_slow_jobs_does_not_hold_the_other_up() {
    for kind in Queue::ALL {
        let (queue, sources) = JobQueue::with_workers(*kind, 1, 1000);
        let flow = |lane| FlowKey {
            lane,
            ..FlowKey::default()
        };
        (0..100).for_each(|_| queue.push(flow(Lane::Apps), Lane::Apps).unwrap());
        let take = || {
            let taken = sources[0].take(|| 0).unwrap();
            let took_us = match taken.job {
                Lane::Files | Lane::Handshakes => 100,
                Lane::Apps => 10_000,
            };
            sources[0].done(taken.charge, took_us);
            taken.job
        };
        (0..10).for_each(|_| assert_eq!(take(), Lane::Apps));
        (0..20).for_each(|_| queue.push(flow(Lane::Files), Lane::Files).unwrap());
        let ahead = queue.ahead(flow(Lane::Files));
        assert_eq!((ahead.jobs, ahead.beside), (20, [0, 90, 0]), "{kind:?}");
        let next: Vec<_> = (0..23).map(|_| take()).collect();
        let files = next.iter().filter(|lane| **lane == Lane::Files).count();
        assert_eq!(files, 20, "{kind:?}: {next:?}");
    }
}

fn push(queue: &JobQueue<Lane>, lane: Lane, jobs: usize) {
    let flow = FlowKey {
        lane,
        ..FlowKey::default()
    };
    (0..jobs).for_each(|_| queue.push(flow, lane).unwrap());
}

/// Jobs of a slow app filled the deques, and files found no room.
#[test]
fn a_lane_of_deques_that_is_full_leaves_room_in_the_others() {
    let (queue, sources) = JobQueue::with_workers(Queue::WorkStealing, 1, 3);
    let flow = |lane| FlowKey {
        lane,
        ..FlowKey::default()
    };
    for lane in [Lane::Apps, Lane::Files] {
        push(&queue, lane, 3);
        assert_eq!(queue.push(flow(lane), lane), Err(lane));
    }
    assert_eq!(queue.depth(), 6);
    let taken = sources[0].take(|| 0).unwrap().job;
    for lane in [Lane::Apps, Lane::Files] {
        let has_room = queue.push(flow(lane), lane).is_ok();
        assert_eq!(has_room, lane == taken, "{lane:?}, {taken:?}");
    }
    assert_eq!(queue.ahead(flow(Lane::Files)).jobs, 3);
}

/// Does the next jobs, each in 10 ms. How many of them are of this lane.
fn count_done(source: &JobSource<Lane>, jobs: usize, lane: Lane) -> usize {
    let next = || {
        let taken = source.take(|| 0).unwrap();
        source.done(taken.charge, 10_000);
        taken.job
    };
    let done = std::iter::repeat_with(next).take(jobs);
    done.filter(|job| *job == lane).count()
}

/// Two lanes of a deque that were idle at the same time saved up what the third one had.
#[test]
fn a_lane_that_was_idle_with_another_saves_no_time_up() {
    for kind in Queue::ALL {
        let (queue, sources) = JobQueue::with_workers(*kind, 1, 1000);
        push(&queue, Lane::Apps, 150);
        assert_eq!(count_done(&sources[0], 100, Lane::Apps), 100);
        push(&queue, Lane::Files, 50);
        let files = count_done(&sources[0], 50, Lane::Files);
        assert!((20..=30).contains(&files), "{kind:?}: {files}");
    }
}

/// A lane whose last jobs were long had no worker until the others had had as much, however long after.
#[test]
fn what_a_lane_had_before_nothing_waited_is_not_held_against_it() {
    for kind in Queue::ALL {
        let (queue, sources) = JobQueue::with_workers(*kind, 1, 1000);
        push(&queue, Lane::Apps, 1);
        let long = sources[0].take(|| 0).unwrap();
        sources[0].done(long.charge, 60_000_000);
        assert_eq!(sources[0].try_take(0), None);
        push(&queue, Lane::Files, 50);
        push(&queue, Lane::Apps, 50);
        let apps = count_done(&sources[0], 50, Lane::Apps);
        assert!((20..=30).contains(&apps), "{kind:?}: {apps}");
    }
}

/// A connection that a worker keeps counts as a job that runs: while there was one, lanes never began equal.
#[test]
fn what_a_lane_had_before_its_worker_rested_is_not_held_against_it() {
    for kind in Queue::ALL {
        let (queue, sources) = JobQueue::with_workers(*kind, 2, 1000);
        let take = |worker: usize| {
            push(&queue, Lane::Apps, 1);
            sources[worker].take(|| 0).unwrap()
        };
        let _kept = take(1);
        let long = take(0);
        sources[0].done(long.charge, 60_000_000);
        sources[0].rested();
        push(&queue, Lane::Files, 50);
        push(&queue, Lane::Apps, 50);
        let apps = count_done(&sources[0], 50, Lane::Apps);
        assert!((20..=30).contains(&apps), "{kind:?}: {apps}");
    }
}

/// Each of them made lanes begin equal, so that all took of the first lane.
#[test]
fn workers_that_rested_until_a_burst_take_its_lanes_in_turn() {
    let (queue, sources) = JobQueue::with_workers(Queue::Shared, 4, 1000);
    for lane in [Lane::Files, Lane::Apps] {
        push(&queue, lane, 4);
        assert_eq!(count_done(&sources[0], 4, lane), 4); // now it is known what they take
    }
    push(&queue, Lane::Files, 4);
    push(&queue, Lane::Apps, 4);
    let take = |source: &JobSource<Lane>| {
        source.rested();
        source.take(|| 0).unwrap().job
    };
    let taken: Vec<_> = sources.iter().map(take).collect();
    assert_eq!(taken, [Lane::Files, Lane::Apps, Lane::Files, Lane::Apps]);
}

/// One worker that was busy all the time kept them from that, though another had nothing to do.
#[test]
fn lanes_begin_equal_while_a_worker_is_free() {
    let (queue, mut sources) = JobQueue::with_workers(Queue::Shared, 3, 1000);
    let (free, busy) = (sources.pop().unwrap(), sources.pop().unwrap());
    push(&queue, Lane::Apps, 2);
    let _never_done = busy.take(|| 0).unwrap();
    let long = sources[0].take(|| 0).unwrap();
    sources[0].done(long.charge, 60_000_000);
    assert_eq!(sources[0].try_take(0), None);
    let free = thread::spawn(move || (free.take(|| 0).map(|taken| taken.job), free));
    while !queue.has_more_free_workers() {
        thread::yield_now();
    }
    push(&queue, Lane::Files, 1);
    let (job, _free) = free.join().unwrap();
    assert_eq!(job, Some(Lane::Files));
    push(&queue, Lane::Files, 50);
    push(&queue, Lane::Apps, 50);
    let apps = count_done(&sources[0], 50, Lane::Apps);
    assert!((20..=30).contains(&apps), "{apps}");
}
