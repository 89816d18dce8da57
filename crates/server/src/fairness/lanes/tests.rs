//! Jobs of clients and lanes by turns, on virtual time.

use super::*;

const FILES: Lane = Lane::Files;
const APPS: Lane = Lane::Apps;

fn of(lane: Lane, client: u8) -> FlowKey {
    let client = ClientKey::of([192, 0, 2, client].into());
    FlowKey { lane, client }
}

/// Takes so many, each of which takes `took_us` by lane and client; says of whom they were.
fn serve(
    lanes: &mut Lanes<FlowKey>,
    jobs: usize,
    took_us: impl Fn(FlowKey) -> u64,
) -> Vec<FlowKey> {
    let next = || {
        let (job, charge) = lanes.pop(0).unwrap();
        assert_eq!(charge.flow, job);
        lanes.done(charge, took_us(job));
        job
    };
    std::iter::repeat_with(next).take(jobs).collect()
}

fn count(served: &[FlowKey], flow: FlowKey) -> usize {
    served.iter().filter(|one| **one == flow).count()
}

#[test]
fn one_client_in_one_lane_is_served_in_order() {
    let mut lanes = Lanes::default();
    (0..100).for_each(|job| lanes.push(of(FILES, 1), job));
    let order = std::iter::from_fn(|| {
        let (job, charge) = lanes.pop(0)?;
        lanes.done(charge, job % 7);
        Some(job)
    });
    let order = order.collect::<Vec<_>>();
    assert_eq!(order, (0..100).collect::<Vec<_>>());
    assert_eq!(lanes.len(), 0);
}

#[test]
fn a_quiet_client_does_not_wait_for_one_with_many_jobs() {
    let mut lanes = Lanes::default();
    (0..1000).for_each(|_| lanes.push(of(FILES, 1), of(FILES, 1)));
    serve(&mut lanes, 50, |_| 10_000);
    (2..6).for_each(|client| lanes.push(of(FILES, client), of(FILES, client)));
    let served = serve(&mut lanes, 6, |_| 10_000);
    for client in 2..6 {
        assert_eq!(count(&served, of(FILES, client)), 1, "{served:?}");
    }
}

/// The long job advanced the time by the share that others had not had, and a new client waited for all of it.
#[test]
fn a_new_client_does_not_pay_for_what_a_long_job_kept_from_another() {
    let mut lanes = Lanes::default();
    let push =
        |lanes: &mut Lanes<FlowKey>, client| lanes.push(of(FILES, client), of(FILES, client));
    for client in 100..200 {
        // What clients of before needed counts no more, once all is done.
        push(&mut lanes, client);
        let (_, charge) = lanes.pop(0).unwrap();
        lanes.done(charge, 1_000_000);
    }
    push(&mut lanes, 100);
    for left in (0..1000).rev() {
        let (_, charge) = lanes.pop(0).unwrap();
        if left > 0 {
            push(&mut lanes, 100);
        }
        lanes.done(charge, 10_000);
    }
    push(&mut lanes, 1);
    let (_, long) = lanes.pop(0).unwrap();
    (0..1000).for_each(|_| push(&mut lanes, 2));
    lanes.done(long, 10_000_000);
    for new in [3, 4] {
        push(&mut lanes, new);
        let served = serve(&mut lanes, 50, |_| 10_000);
        assert_eq!(count(&served, of(FILES, new)), 1, "{served:?}");
    }
    // The client of the long job has had more than any of them.
    push(&mut lanes, 1);
    let served = serve(&mut lanes, 50, |_| 10_000);
    assert_eq!(count(&served, of(FILES, 1)), 0, "{served:?}");
}

/// So many jobs of one worker: a client always has two of 1 ms, and so many others have one that takes `took_us`,
/// in place of each of whom a new one comes. How many are of the first.
fn jobs_beside_new_clients(clients: u8, took_us: u64, jobs: u32) -> u32 {
    let mut lanes = Lanes::default();
    let job = |client| of(FILES, client);
    (0..2).for_each(|_| lanes.push(job(0), job(0)));
    (1..=clients).for_each(|client| lanes.push(job(client), job(client)));
    let mut own = 0;
    for next in u32::from(clients) + 1..jobs {
        let (flow, charge) = lanes.pop(0).unwrap();
        lanes.done(charge, if flow == job(0) { 1_000 } else { took_us });
        if flow == job(0) {
            own += 1;
            lanes.push(flow, flow);
        } else {
            // Numbers of clients that have left come again.
            let new = job(1 + (next % 250) as u8);
            lanes.push(new, new);
        }
    }
    own
}

/// New clients that begin where the last ones did would be the next ones for ever.
#[test]
fn a_client_with_many_jobs_has_its_share_beside_new_ones_that_come_all_the_time() {
    let own = jobs_beside_new_clients(10, 10_000, 3_000);
    // An equal share of the time is ten jobs for each ten of the others.
    assert!((1_000..2_000).contains(&own), "{own}");
}

/// Most jobs are short then: four of the mean were less than a new client takes, and it was soon the next one again.
#[test]
fn a_client_with_short_jobs_has_its_share_beside_new_ones_with_far_longer_jobs() {
    let jobs = 10_000;
    let own = jobs_beside_new_clients(2, 100_000, jobs);
    let others = jobs - 3 - own;
    let share = f64::from(own) / f64::from(own + 100 * others);
    assert!((0.25..0.4).contains(&share), "{share}");
}

#[test]
fn time_is_shared_and_not_the_number_of_jobs() {
    let mut lanes = Lanes::default();
    for _ in 0..1000 {
        lanes.push(of(FILES, 1), of(FILES, 1));
        lanes.push(of(FILES, 2), of(FILES, 2));
    }
    let took_us = |flow| if flow == of(FILES, 1) { 9_000 } else { 1_000 };
    let served = serve(&mut lanes, 500, took_us);
    let (slow, quick) = (count(&served, of(FILES, 1)), count(&served, of(FILES, 2)));
    assert!((40..60).contains(&slow), "{slow} and {quick}");
}

/// For a minute: eight workers, 50 clients that always have one job of 10 ms, and one that always has so many
/// of 900 ms. The share of the workers' time that this one has.
fn share_of_long_jobs(jobs: u32, is_time_known: bool) -> f64 {
    const LONG: u8 = 200;
    let took_us = |flow| {
        if flow == of(FILES, LONG) {
            900_000
        } else {
            10_000
        }
    };
    let mut lanes = Lanes::default();
    (0..50).for_each(|client| lanes.push(of(FILES, client), of(FILES, client)));
    (0..jobs).for_each(|_| lanes.push(of(FILES, LONG), of(FILES, LONG)));
    let (mut running, mut now_us, mut long_us) = (Vec::new(), 1, 0);
    while now_us < 60_000_000 {
        while running.len() < 8 {
            let (job, charge) = lanes.pop(if is_time_known { now_us } else { 0 }).unwrap();
            running.push((now_us + took_us(job), charge));
        }
        let first = (0..8).min_by_key(|worker| running[*worker].0).unwrap();
        let (ended_us, charge) = running.swap_remove(first);
        now_us = ended_us;
        long_us += if charge.flow == of(FILES, LONG) {
            900_000
        } else {
            0
        };
        lanes.done(charge, took_us(charge.flow));
        lanes.push(charge.flow, charge.flow);
    }
    long_us as f64 / (8.0 * now_us as f64)
}

#[test]
fn long_jobs_of_one_client_take_no_more_than_its_share() {
    // An equal share is 0.02. Also of a client without another job that waits while its only one runs.
    for jobs in [1, 8] {
        let share = share_of_long_jobs(jobs, true);
        assert!((0.01..0.03).contains(&share), "{jobs}: {share}");
        // Without the time of jobs that run, as many workers as it has jobs, and then none for long.
        let share = share_of_long_jobs(jobs, false);
        assert!((0.01..0.04).contains(&share), "{jobs}: {share}");
    }
}

#[test]
fn clients_that_have_left_are_forgotten_though_somebody_always_waits() {
    let mut lanes = Lanes::default();
    let push = |lanes: &mut Lanes<FlowKey>, client: u32| {
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + client);
        let client = ClientKey::of(std::net::IpAddr::from(address));
        let flow = FlowKey {
            lane: FILES,
            client,
        };
        lanes.push(flow, flow);
    };
    (0..10).for_each(|client| push(&mut lanes, client));
    for client in 10..10_000 {
        push(&mut lanes, client);
        serve(&mut lanes, 1, |_| 1_000 + u64::from(client % 7) * 1_000);
    }
    assert_eq!(lanes.len(), 10);
    let kept = lanes.lanes[FILES as usize].clients.len();
    assert!(kept < 100, "{kept}");
}

#[test]
fn a_slow_app_has_half_of_the_time_and_all_of_it_while_no_file_waits() {
    let mut lanes = Lanes::default();
    for _ in 0..1000 {
        lanes.push(of(FILES, 1), of(FILES, 1));
        lanes.push(of(APPS, 1), of(APPS, 1));
    }
    let took_us = |flow: FlowKey| if flow.lane == APPS { 10_000 } else { 100 };
    let served = serve(&mut lanes, 505, took_us);
    let apps = count(&served, of(APPS, 1));
    assert!((3..8).contains(&apps), "{apps}");
    let rest = 1000 - count(&served, of(FILES, 1));
    serve(&mut lanes, rest + 5, took_us);
    let alone = serve(&mut lanes, 100, took_us);
    assert_eq!(count(&alone, of(APPS, 1)), 100);
    // The time that it had alone is not held against it.
    for _ in 0..100 {
        lanes.push(of(FILES, 1), of(FILES, 1));
    }
    let served = serve(&mut lanes, 100, |_| 1_000);
    let apps = count(&served, of(APPS, 1));
    assert!((40..60).contains(&apps), "{apps}");
}

/// What they took stands in the account of their lane only when they are done.
#[test]
fn long_jobs_are_not_held_against_their_lane_once_nothing_waits_or_runs() {
    let mut lanes = Lanes::default();
    let push = |lanes: &mut Lanes<FlowKey>, lane| lanes.push(of(lane, 1), of(lane, 1));
    (0..2).for_each(|_| push(&mut lanes, APPS));
    let charges = [0; 2].map(|_| lanes.pop(0).unwrap().1);
    for charge in charges {
        lanes.done(charge, 60_000_000);
    }
    for _ in 0..100 {
        push(&mut lanes, FILES);
        push(&mut lanes, APPS);
    }
    let served = serve(&mut lanes, 100, |_| 10_000);
    let apps = count(&served, of(APPS, 1));
    assert!((40..60).contains(&apps), "{apps}");
}

#[test]
fn handshakes_do_not_wait_for_all_requests_before_them() {
    let mut lanes = Lanes::default();
    let took_us = |flow: FlowKey| if flow.lane == FILES { 10_000 } else { 200 };
    for client in 0..100 {
        lanes.push(of(FILES, client), of(FILES, client));
    }
    serve(&mut lanes, 10, took_us);
    let handshakes = 40;
    for client in 0..handshakes {
        lanes.push(of(Lane::Handshakes, client), of(Lane::Handshakes, client));
    }
    // 40 of 0.2 ms count as 128 ms: as much time as 13 of the requests take.
    let served = serve(&mut lanes, 55, took_us);
    let files = served.iter().filter(|flow| flow.lane == FILES).count();
    assert_eq!(served.len() - files, usize::from(handshakes), "{served:?}");
}

#[test]
fn a_job_finds_as_many_ahead_of_each_client_as_its_own_has() {
    let mut lanes = Lanes::default();
    (0..100).for_each(|_| lanes.push(of(FILES, 1), ()));
    (0..2).for_each(|_| lanes.push(of(FILES, 2), ()));
    (0..7).for_each(|_| lanes.push(of(APPS, 2), ()));
    let jobs = |client| lanes.ahead(of(FILES, client)).jobs;
    assert_eq!((jobs(1), jobs(2), jobs(3)), (102, 5, 2));
    let ahead = lanes.ahead(of(FILES, 1));
    assert_eq!((ahead.jobs_of_others, ahead.beside), (2, [0, 7, 0]));
    assert_eq!(lanes.ahead(of(APPS, 2)).jobs, 7);
    assert_eq!(Lanes::<()>::default().ahead(of(APPS, 2)), Ahead::default());
}

#[test]
fn the_client_with_most_jobs_makes_room_by_its_newest() {
    let mut lanes = Lanes::default();
    (0..10).for_each(|job| lanes.push(of(FILES, 1), job));
    (10..13).for_each(|job| lanes.push(of(FILES, 2), job));
    let mut take = |flow, may_go: fn(&u8) -> bool| lanes.take_of_heaviest(flow, may_go);
    assert_eq!(take(of(FILES, 3), |_| true), Some(9));
    assert_eq!(take(of(FILES, 2), |job| *job != 8), Some(7));
    assert_eq!(
        take(of(FILES, 1), |_| true),
        None,
        "it is the heaviest itself"
    );
    assert_eq!(
        take(of(APPS, 1), |_| true),
        Some(8),
        "a lane with more jobs"
    );
    assert_eq!(lanes.len(), 10);
    let rest: Vec<_> = std::iter::from_fn(|| lanes.pop(0).map(|(job, _)| job)).collect();
    assert_eq!(rest.iter().filter(|job| **job < 10).count(), 7);
}

/// No other client was looked at, and nobody made room.
#[test]
fn where_no_job_of_the_client_with_most_may_go_the_one_with_the_next_most_makes_room() {
    let may_go = |job: &u8| *job >= 10;
    let mut lanes = Lanes::default();
    (0..10).for_each(|job| lanes.push(of(APPS, 1), job));
    (10..15).for_each(|job| lanes.push(of(APPS, 2), job));
    (15..17).for_each(|job| lanes.push(of(APPS, 3), job));
    let mut take = |flow| lanes.take_of_heaviest(flow, may_go);
    assert_eq!(take(of(APPS, 4)), Some(14));
    assert_eq!(take(of(APPS, 3)), Some(13));
    assert_eq!(take(of(APPS, 3)), None, "one more than it has");
    assert_eq!(take(of(FILES, 4)), Some(12), "a lane with more jobs");
    let mut two_each = [0; 2].map(|_| take(of(FILES, 4)));
    two_each.sort_unstable();
    assert_eq!(two_each, [Some(11), Some(16)]);
    assert_eq!(take(of(FILES, 4)), None, "one each");
    assert_eq!(lanes.len(), 12);

    let mut lanes = Lanes::default();
    (0..10).for_each(|job| lanes.push(of(APPS, 1), job));
    (10..15).for_each(|job| lanes.push(of(Lane::Handshakes, 1), job));
    let mut take = |flow| lanes.take_of_heaviest(flow, may_go);
    assert_eq!(take(of(FILES, 2)), Some(14), "the next lane");
    assert_eq!(take(of(APPS, 2)), None, "a lane with fewer jobs");
}

#[test]
fn what_nobody_needs_is_taken_out_and_the_rest_keeps_its_order() {
    let mut lanes = Lanes::default();
    (0..10).for_each(|job| lanes.push(of(FILES, job % 2), job));
    lanes.push(of(APPS, 1), 100);
    let mut removed = lanes.remove_if(FILES, |job, _| job % 2 == 1 || *job < 4);
    removed.sort_unstable();
    assert_eq!(removed, [0, 1, 2, 3, 5, 7, 9]);
    assert_eq!(lanes.len(), 4);
    assert_eq!(lanes.ahead(of(FILES, 7)).jobs, 1);
    let rest: Vec<_> = std::iter::from_fn(|| lanes.pop(0).map(|(job, _)| job)).collect();
    assert_eq!(
        rest.iter().filter(|job| **job < 100).collect::<Vec<_>>(),
        [&4, &6, &8]
    );
    lanes.push(of(FILES, 1), 5);
    assert_eq!(lanes.pop(0).map(|(job, _)| job), Some(5));
}

/// They counted as jobs that take no time, so that one client had several workers before its jobs counted.
#[test]
fn jobs_that_are_not_done_say_nothing_of_how_long_others_take() {
    let mut lanes = Lanes::default();
    (0..200).for_each(|_| lanes.push(of(FILES, 1), of(FILES, 1)));
    serve(&mut lanes, 100, |_| 10_000);
    let charged_us = |lanes: &mut Lanes<FlowKey>| {
        let (_, charge) = lanes.pop(0).unwrap();
        lanes.not_done(charge);
        charge.us
    };
    let before_us = charged_us(&mut lanes);
    assert!(before_us >= 9_000, "{before_us}");
    for _ in 0..50 {
        assert_eq!(charged_us(&mut lanes), before_us);
    }
}

#[test]
fn a_job_that_runs_is_known_to_those_of_other_lanes() {
    let mut lanes = Lanes::default();
    (0..2).for_each(|job| lanes.push(of(APPS, 1), job));
    let runs = |lanes: &Lanes<u64>| lanes.ahead(of(FILES, 1)).runs[APPS as usize];
    for took_us in [Some(5), None] {
        let (_, charge) = lanes.pop(0).unwrap();
        assert!(runs(&lanes));
        match took_us {
            Some(took_us) => lanes.done(charge, took_us),
            None => lanes.not_done(charge),
        }
        assert!(!runs(&lanes));
    }
}

#[test]
fn a_job_that_waits_alone_is_known_as_such_where_needless_ones_are_taken_out() {
    let mut lanes = Lanes::default();
    for client in [1, 2, 2, 3] {
        lanes.push(of(FILES, client), client);
    }
    let mut removed = lanes.remove_if(FILES, |_, is_only| is_only);
    removed.sort_unstable();
    assert_eq!(removed, [1, 3]);
    assert_eq!(lanes.len(), 2);
}

/// What it was charged for was taken off from its lane alone, which then had all workers for as long.
#[test]
fn a_job_that_is_short_after_all_saves_nothing_up_once_lanes_have_begun_equal() {
    let mut lanes = Lanes::default();
    let push = |lanes: &mut Lanes<FlowKey>, flow| lanes.push(flow, flow);
    push(&mut lanes, of(APPS, 1));
    serve(&mut lanes, 1, |_| 80_000_000);
    push(&mut lanes, of(APPS, 1));
    let (_, short) = lanes.pop(0).unwrap();
    lanes.begin_equal();
    for flow in [of(APPS, 2), of(FILES, 2)] {
        (0..20).for_each(|_| push(&mut lanes, flow));
    }
    lanes.done(short, 1_000);
    let served = serve(&mut lanes, 20, |_| 10_000);
    let files = count(&served, of(FILES, 2));
    assert!((8..=12).contains(&files), "{served:?}");
}
