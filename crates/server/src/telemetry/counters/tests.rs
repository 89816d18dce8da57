//! What is counted, and how it is shown.

use super::*;

#[test]
fn a_snapshot_sums_and_shows_the_threads() {
    let registry = Registry::default();
    let (one, two) = (
        registry.thread_stats(Role::Loop),
        registry.thread_stats(Role::Loop),
    );
    let worker = registry.thread_stats(Role::Worker);
    one.core.answers[1].add(3);
    two.core.answers[3].add(4);
    two.core.close(CloseReason::Idle);
    two.connections.add(2);
    two.connections.sub(1);
    worker.steals.add(7);
    worker.queue_depth.add(9);
    worker.queue_depth.sub(4);
    let snapshot = registry.snapshot(0);
    assert_eq!(snapshot.total.requests(), 7);
    assert_eq!(registry.answers_and_connections(), (7, 1));
    assert_eq!(snapshot.total.closed_for(CloseReason::Idle), 1);
    assert_eq!(snapshot.total.connections, 1);
    let numbers = (snapshot.total.steals, snapshot.total.queue_depth);
    assert_eq!(numbers, (7, 5));
    let names: Vec<_> = snapshot
        .per_thread
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["loop-0", "loop-1", "worker-0"]);
    assert!(snapshot.total.named().contains(&("steals", 7)));
}

#[test]
fn counts_that_a_thread_left_are_continued_by_one_of_its_kind() {
    let registry = Registry::default();
    let stats = registry.thread_stats(Role::Thread);
    stats.core.answers[1].add(1);
    registry.release(Role::Thread, stats);
    assert_eq!(registry.snapshot(0).threads(Role::Thread), 0);
    registry.thread_stats(Role::Loop).core.answers[1].add(1);
    registry.thread_stats(Role::Thread).core.answers[1].add(1);
    let snapshot = registry.snapshot(0);
    let all = snapshot.per_thread.iter();
    let requests: Vec<_> = all.map(|thread| thread.counts.requests()).collect();
    assert_eq!(requests, [2, 1]);
    assert_eq!(snapshot.threads(Role::Thread), 1);
}

#[test]
fn a_thread_s_use_of_cpus_is_its_own_until_it_ends() {
    let registry = Registry::default();
    let usage = || registry.snapshot(0).per_thread[0].usage;
    let stats = registry.thread_stats(Role::Worker);
    assert_eq!(usage(), None);
    stats.runs_here();
    assert_eq!(usage(), Some(ThreadUsage::of_this_thread()));
    registry.release(Role::Worker, stats);
    assert_eq!(usage(), None);
}

/// Those of connections that had ended, up to 256 of them, were shown as threads.
#[test]
fn a_context_that_is_kept_for_another_thread_is_none() {
    let registry = Registry::default();
    let stats = registry.thread_stats(Role::Thread);
    let threads = || registry.snapshot(0).threads(Role::Thread);
    stats.runs_here();
    assert_eq!(threads(), 1);
    stats.set_aside();
    assert_eq!(threads(), 0);
    assert_eq!(registry.snapshot(0).per_thread[0].usage, None);
    stats.runs_here();
    assert_eq!(threads(), 1);
}

#[test]
fn a_job_counts_as_busy_while_it_runs() {
    let registry = Registry::default();
    let worker = registry.thread_stats(Role::Worker);
    let busy_us = |now_us| registry.snapshot(now_us).total.busy_us;
    worker.busy_us.add(500);
    worker.job_began_us.set(1_000);
    assert_eq!((busy_us(2_000), busy_us(3_000)), (1_500, 2_500));
    // As it ends: it is no longer under way, and not yet counted.
    worker.job_began_us.set(0);
    assert_eq!(busy_us(3_500), 2_500);
    worker.busy_us.add(2_400);
    assert_eq!(busy_us(9_000), 2_900);
}

#[test]
fn threads_share_no_cache_line() {
    assert_eq!(align_of::<ThreadStats>(), 128);
    assert_eq!(size_of::<ThreadStats>() % 128, 0);
}
