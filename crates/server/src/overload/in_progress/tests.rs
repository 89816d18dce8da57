//! Which requests begin, wait and are refused.

use super::*;

const CLIENT: ClientKey = ClientKey::NOBODY;
const GOAL: Duration = Duration::from_secs(1);

fn flow(client: ClientKey) -> FlowKey {
    let lane = Lane::Files;
    FlowKey { lane, client }
}

fn begin(
    in_progress: &InProgress,
    client: ClientKey,
    waited_us: u64,
    now_us: u64,
) -> Result<Permit, u32> {
    in_progress.begin(flow(client), Waited::for_cpu(waited_us), || now_us)
}

/// Requests begin until one is refused; how many.
fn fill(in_progress: &InProgress, now_us: u64) -> usize {
    let begun: Vec<_> = (0..10_000)
        .map_while(|_| begin(in_progress, CLIENT, 0, now_us).ok())
        .collect();
    begun.len()
}

#[test]
fn work_that_computes_is_bounded_by_what_its_cpus_do_within_the_goal() {
    let in_progress = InProgress::new(GOAL, None);
    for index in 0..50 {
        let permits: Vec<_> = (0..4)
            .map(|_| begin(&in_progress, CLIENT, 0, index).unwrap())
            .collect();
        for permit in permits {
            // four of 10 ms each on one CPU; the later ones end among fewer
            in_progress.end(index + 40_000, &permit);
        }
    }
    let begun = fill(&in_progress, 100_000);
    assert!((50..=100).contains(&begun), "{begun}");
}

/// They counted as ones that take no time, so that more began than could be answered in time.
#[test]
fn requests_whose_clients_have_left_say_nothing_of_others() {
    let in_progress = InProgress::new(GOAL, None);
    let permit = begin(&in_progress, CLIENT, 0, 0).unwrap();
    in_progress.end(10_000, &permit);
    for _ in 0..100 {
        let permit = begin(&in_progress, CLIENT, 0, 20_000).unwrap();
        in_progress.give_back(20_000, &permit);
    }
    assert_eq!(in_progress.each_us(Lane::Files), 10_000);
    let begun = fill(&in_progress, 20_000);
    assert!((90..=110).contains(&begun), "{begun}");
}

/// They counted as carried out, so that fewer seemed to be refused than were.
#[test]
fn requests_whose_clients_have_left_make_an_overload_no_smaller() {
    let in_progress = InProgress::new(GOAL, None);
    for now_us in (0..=250_000).step_by(10_000) {
        for _ in 0..4 {
            let permit = begin(&in_progress, CLIENT, 0, now_us).unwrap();
            in_progress.give_back(now_us, &permit);
        }
        assert!(begin(&in_progress, CLIENT, 1_000_001, now_us).is_err());
    }
    assert!(in_progress.lock().of(Lane::Files).all.delay.is_lasting());
}

#[test]
fn handshakes_that_take_half_of_the_cpus_leave_room_for_half_of_the_requests() {
    let begun = |took_us| {
        let in_progress = InProgress::new(GOAL, None);
        let permit = begin(&in_progress, CLIENT, 0, 0).unwrap();
        in_progress.end(took_us, &permit);
        fill(&in_progress, 100_000)
    };
    let (alone, beside_handshakes) = (begun(10_000), begun(20_000));
    assert!(alone >= 50, "{alone}");
    let difference = (alone / 2).abs_diff(beside_handshakes);
    assert!(difference <= 2, "{alone}, {beside_handshakes}");
}

#[test]
fn work_that_sleeps_is_bounded_by_connections_alone() {
    let in_progress = InProgress::new(GOAL, None);
    for index in 0..50 {
        let permits: Vec<_> = (0..90)
            .map(|_| begin(&in_progress, CLIENT, 0, index).unwrap())
            .collect();
        for permit in permits {
            in_progress.end(index + 10_000, &permit);
        }
    }
    assert!(fill(&in_progress, 100_000) > 3_000);
}

#[test]
fn a_client_with_few_begins_though_another_has_all_that_can_be_done() {
    let in_progress = InProgress::new(GOAL, None);
    let permit = begin(&in_progress, CLIENT, 0, 0).unwrap();
    in_progress.end(10_000, &permit);
    let begun = fill(&in_progress, 20_000);
    assert!(begin(&in_progress, CLIENT, 0, 20_000).is_err());
    let other = ClientKey::of([192, 0, 2, 2].into());
    let permits: Vec<_> = (0..10)
        .map(|_| begin(&in_progress, other, 0, 20_000).unwrap())
        .collect();
    assert!(begin(&in_progress, CLIENT, 0, 20_000).is_err(), "{begun}");
    permits
        .iter()
        .for_each(|permit| in_progress.end(30_000, permit));
    assert_eq!(in_progress.lock().clients(), 1);
}

/// One client's long requests, of which it is refused more for a while, are nothing to clients with one.
#[test]
fn a_client_with_one_request_is_judged_by_its_like() {
    let in_progress = InProgress::new(GOAL, None);
    let begin = |client, now_us| begin(&in_progress, client, 0, now_us);
    let long = [0, 0].map(|now_us| begin(CLIENT, now_us).unwrap());
    long.iter().for_each(|one| in_progress.end(500_000, one));
    let other = ClientKey::of([192, 0, 2, 2].into());
    let first = begin(CLIENT, 600_000).unwrap();
    let short = begin(other, 600_000).unwrap();
    in_progress.end(610_000, &short);
    let others = std::iter::from_fn(|| begin(CLIENT, 620_000).ok());
    let held: Vec<_> = others.chain([first]).collect();
    for now_us in (620_000..920_000).step_by(10_000) {
        assert!(begin(CLIENT, now_us).is_err(), "lasting overload");
    }
    let short = begin(other, 920_000).unwrap();
    in_progress.end(930_000, &short);
    held.iter().for_each(|one| in_progress.end(940_000, one));
}

/// Each of them refused because one was slow, none would show that they no longer are.
#[test]
fn clients_with_one_request_are_let_in_again_after_a_slow_one() {
    let in_progress = InProgress::new(GOAL, None);
    let begin = |client, now_us| begin(&in_progress, client, 0, now_us);
    let other = ClientKey::of([192, 0, 2, 2].into());
    let both = [CLIENT, other].map(|client| begin(client, 0).unwrap());
    both.iter().for_each(|one| in_progress.end(2_000_000, one));
    let mut is_let_in = false;
    for now_us in (2_100_000..4_100_000).step_by(10_000) {
        let greedy = [0, 0].map(|_| begin(CLIENT, now_us).unwrap());
        let single = begin(other, now_us).ok();
        is_let_in = single.is_some();
        let all = greedy.iter().chain(&single);
        all.for_each(|one| in_progress.end(now_us + 1_000, one));
    }
    assert!(is_let_in);
    assert_eq!(in_progress.lock().singles(), 0);
}

#[test]
fn two_begin_however_slow_they_are() {
    let in_progress = InProgress::new(GOAL, None);
    let permit = begin(&in_progress, CLIENT, 0, 0).unwrap();
    in_progress.end(30_000_000, &permit);
    assert_eq!(fill(&in_progress, 40_000_000), 2);
}

/// Many threads wait for a CPU, each of which has its request to itself once it has one.
#[test]
fn what_has_waited_for_a_cpu_is_refused_though_nothing_is_in_progress() {
    let in_progress = InProgress::new(GOAL, None);
    let serve = |waited_us, now_us| {
        let begun = begin(&in_progress, CLIENT, waited_us, now_us);
        let permit = begun.inspect(|permit| in_progress.end(now_us + 200, permit));
        permit.is_ok()
    };
    assert!(in_progress.wants_waits(0), "the first one");
    assert!(!in_progress.wants_waits(0));
    assert!(serve(900_000, 1_000_000));
    assert!(
        in_progress.wants_waits(1_900_000),
        "for as long as the goal"
    );
    assert!(!serve(1_000_001, 2_000_000));
    assert!(!serve(1_000_001, 2_250_000));
    // From now on a tenth of the goal is enough, until something has hardly waited.
    assert!(!serve(100_001, 2_300_000));
    assert!(serve(99_000, 2_300_000));
    assert!(serve(10_000, 2_500_000));
    assert!(!serve(100_001, 2_550_000), "they do not begin in order");
    assert!(serve(10_000, 2_800_001));
    assert!(serve(900_000, 2_900_000));
    let asked = (0..320).filter(|_| in_progress.wants_waits(9_000_000));
    assert_eq!(asked.count(), 10);
}

/// It was computed, and the request behind it came as if it had not waited.
#[test]
fn a_handshake_that_has_waited_too_long_for_a_cpu_is_refused() {
    let in_progress = InProgress::new(GOAL, None);
    let offer = |waited_us, now_us| in_progress.offer_handshake(CLIENT, waited_us, now_us);
    assert!(in_progress.wants_waits(0), "the first one");
    assert!(offer(0, 1_000_000), "it is not known");
    assert!(!in_progress.wants_waits(1_000_000));
    assert!(offer(900_000, 1_000_000));
    assert!(in_progress.wants_waits(1_900_000), "others may wait, too");
    assert!(!offer(984_376, 1_700_000), "1/64 is in reserve");
    assert!(offer(900_000, 1_960_000), "that is no overload");
    assert!(!offer(1_000_001, 2_000_000));
    assert!(!offer(1_000_001, 2_250_000));
    assert!(!offer(100_001, 2_300_000), "it lasts");
    assert!(offer(99_000, 2_300_000));
}

/// It was computed, and the request behind it was refused.
#[test]
fn a_handshake_is_refused_whose_request_would_find_too_many_in_progress() {
    let in_progress = InProgress::new(GOAL, None);
    let now_us = 20_000;
    let begin = || begin(&in_progress, CLIENT, 0, now_us).unwrap();
    let offer = |client, waited_us| in_progress.offer_handshake(client, waited_us, now_us);
    in_progress.end(now_us + 10_000, &begin());
    let mut held: Vec<_> = (0..97).map(|_| begin()).collect();
    assert!(offer(CLIENT, 4_000), "the 98th of 10 ms");
    assert!(!offer(CLIENT, 5_000));
    held.push(begin());
    assert!(!offer(CLIENT, 0));
    let other = ClientKey::of([192, 0, 2, 2].into());
    assert!(offer(other, 8_000), "a client with none in progress");
    held.iter().for_each(|one| in_progress.end(40_000, one));
}

#[test]
fn a_request_has_waited_for_as_long_as_its_handshake_was_kept() {
    let in_progress = InProgress::new(GOAL, None);
    let begin = |handshake_us| {
        let waited = Waited::for_cpu(500_000).behind_handshake(handshake_us);
        in_progress.begin(flow(CLIENT), waited, || 2_000_000)
    };
    let permit = begin(490_000).unwrap();
    in_progress.end(2_000_000, &permit);
    assert!(begin(510_000).is_err());
}

#[test]
fn what_its_connection_has_kept_too_long_is_refused_and_is_no_overload() {
    let in_progress = InProgress::new(GOAL, None);
    let begin = |in_all_us, now_us| {
        let waited = Waited {
            in_all_us,
            ..Waited::default()
        };
        in_progress.begin(flow(CLIENT), waited, || now_us)
    };
    let first = begin(0, 0).unwrap();
    in_progress.end(10_000, &first);
    let held = [0, 0].map(|in_all_us| begin(in_all_us, 20_000).unwrap());
    for now_us in (30_000..430_000).step_by(10_000) {
        assert!(begin(971_000, now_us).is_err(), "three of 10 ms");
    }
    assert!(!in_progress.lock().of(Lane::Files).all.delay.is_lasting());
    let third = begin(970_000, 430_000).unwrap();
    held.iter()
        .chain([&third])
        .for_each(|permit| in_progress.end(440_000, permit));
    let alone = begin(1_100_000, 450_000).unwrap();
    in_progress.end(460_000, &alone);
}

/// A burst over some connections of HTTP/2 left a server in lasting overload that had none.
#[test]
fn what_its_connection_had_kept_is_no_overload_when_its_turn_comes_too_late_either() {
    let mut state = State::new(GOAL, Some(1.0));
    let begin = |state: &mut State, in_all_us, now_us| {
        let waited = Waited {
            in_all_us,
            ..Waited::default()
        };
        state.begin(FlowKey::default(), waited, now_us)
    };
    let now = |begun| match begun {
        Begin::Now(permit) => permit,
        _ => panic!("it begins"),
    };
    let later = |begun| match begun {
        Begin::Later(ticket) => ticket,
        _ => panic!("it waits"),
    };
    let one = now(begin(&mut state, 0, 0));
    state.end(&one, None, 10_000);
    let first = now(begin(&mut state, 0, 20_000));
    let mut held = now(begin(&mut state, 0, 20_000));
    for now_us in (30_000..630_000).step_by(60_000) {
        let both = [0, 1].map(|_| later(begin(&mut state, 950_000, now_us)));
        state.give_back(&held, now_us + 60_000);
        let [late, last] = both.map(|it| it.wait(Duration::ZERO).unwrap());
        assert!(late.is_err());
        held = last.unwrap();
    }
    let ticket = later(begin(&mut state, 970_000, 630_000));
    state.give_up(FlowKey::default(), &ticket, 661_000);
    assert!(!state.of(Lane::Files).all.delay.is_lasting());
    [first, held]
        .iter()
        .for_each(|permit| state.give_back(permit, 670_000));
    assert_eq!((state.clients(), state.waiting()), (0, 0));
}

/// It did not while one was always in progress, as where requests sleep.
#[test]
fn overload_ends_when_one_begins_at_once_though_others_are_in_progress() {
    let mut state = State::new(GOAL, Some(1.0));
    let begin = |state: &mut State, waited_us, now_us| {
        let begun = state.begin(FlowKey::default(), Waited::for_cpu(waited_us), now_us);
        match begun {
            Begin::Now(permit) => Some(permit),
            Begin::Never(_) => None,
            Begin::Later(_) => panic!("it waits"),
        }
    };
    let held = begin(&mut state, 0, 0).unwrap();
    for now_us in [10_000, 260_000] {
        assert!(begin(&mut state, 1_000_001, now_us).is_none());
    }
    for (waited_us, now_us, is_over) in [
        (0, 500_000, false),
        (13_000, 520_000, false),
        (0, 520_000, true),
    ] {
        let permit = begin(&mut state, waited_us, now_us).unwrap();
        let is_lasting = state.of(Lane::Files).all.delay.is_lasting();
        assert_eq!(is_lasting, !is_over, "{waited_us}, {now_us}");
        state.give_back(&permit, now_us);
    }
    state.give_back(&held, 530_000);
}

/// While nothing is known, two begin for each CPU. The others wait instead of being refused.
#[test]
fn who_waits_begins_when_one_has_ended() {
    let in_progress = InProgress::new(GOAL, Some(1.0));
    let first = [0, 1].map(|_| begin(&in_progress, CLIENT, 0, 0).unwrap());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| begin(&in_progress, CLIENT, 0, 1_000));
        while in_progress.lock().waiting() == 0 {
            std::thread::yield_now();
        }
        in_progress.end(10_000, &first[0]);
        let permit = waiting.join().unwrap().unwrap();
        in_progress.end(20_000, &permit);
    });
    in_progress.end(20_000, &first[1]);
    assert_eq!(in_progress.lock().clients(), 0);
}

#[test]
fn who_gives_up_is_refused_and_leaves_nothing() {
    let mut state = State::new(GOAL, Some(1.0));
    let mut begin = |now_us| state.begin(FlowKey::default(), Waited::default(), now_us);
    let (Begin::Now(first), Begin::Now(second)) = (begin(0), begin(0)) else {
        panic!("two begin");
    };
    let (Begin::Later(one), Begin::Later(other)) = (begin(0), begin(0)) else {
        panic!("more wait");
    };
    assert!(state.give_up(FlowKey::default(), &one, 1_000_001) > 0);
    state.end(&first, None, 1_000_002);
    assert!(one.wait(Duration::ZERO).is_none());
    // Too late as well, but nothing else waits.
    let permit = other.wait(Duration::ZERO).unwrap().unwrap();
    state.end(&permit, None, 1_010_000);
    state.end(&second, None, 1_010_000);
    assert_eq!((state.clients(), state.waiting()), (0, 0));
}

/// It counted as if it had waited for others of its connection.
#[test]
fn what_comes_too_late_for_its_handshake_is_overload() {
    let behind_handshake = Waited::for_cpu(100_000).behind_handshake(800_000);
    let behind_others = Waited {
        in_all_us: 900_000,
        for_cpu_us: 100_000,
        ..Waited::default()
    };
    for (waited, gives_up, is_overload) in [
        (behind_handshake, false, true),
        (behind_handshake, true, true),
        (behind_others, false, false),
        (behind_others, true, false),
    ] {
        let mut state = State::new(Duration::from_secs(1), Some(1.0));
        let begin =
            |state: &mut State, waited, now_us| state.begin(FlowKey::default(), waited, now_us);
        let later = |begun| match begun {
            Begin::Later(ticket) => ticket,
            _ => panic!("it waits"),
        };
        let (Begin::Now(_other), Begin::Now(mut held)) = (
            begin(&mut state, Waited::default(), 0),
            begin(&mut state, Waited::default(), 0),
        ) else {
            panic!("two begin");
        };
        for now_us in (200_000..800_000).step_by(120_000) {
            let end_us = now_us + 100_001;
            let first = later(begin(&mut state, waited, now_us));
            if gives_up {
                state.give_up(FlowKey::default(), &first, end_us);
                continue;
            }
            let last = later(begin(&mut state, waited, now_us));
            state.give_back(&held, end_us);
            assert!(first.wait(Duration::ZERO).unwrap().is_err());
            held = last.wait(Duration::ZERO).unwrap().unwrap();
        }
        let delay = &state.of(Lane::Files).all.delay;
        assert_eq!(delay.is_lasting(), is_overload, "{waited:?}");
    }
}

/// With requests of 500 ms in one lane. Two are in progress, and no more are taken.
fn with_a_slow_lane(slow: Lane) -> (InProgress, [Permit; 2]) {
    let in_progress = InProgress::new(GOAL, None);
    let begin = |now_us| begin_in(&in_progress, slow, now_us).unwrap();
    in_progress.end(500_000, &begin(0));
    let held = [0, 0].map(|_| begin(600_000));
    (in_progress, held)
}

fn begin_in(in_progress: &InProgress, lane: Lane, now_us: u64) -> Result<Permit, u32> {
    let client = CLIENT;
    in_progress.begin(FlowKey { lane, client }, Waited::default(), || now_us)
}

/// They were counted together, and refused together.
#[test]
fn while_a_slow_lane_is_refused_the_other_one_is_not() {
    for (slow, quick) in [(Lane::Apps, Lane::Files), (Lane::Files, Lane::Apps)] {
        let (in_progress, held) = with_a_slow_lane(slow);
        for now_us in (600_000..1_000_000).step_by(10_000) {
            assert!(begin_in(&in_progress, slow, now_us).is_err());
            let three = [0; 3].map(|_| begin_in(&in_progress, quick, now_us).unwrap());
            three
                .iter()
                .for_each(|one| in_progress.end(now_us + 3_000, one));
        }
        let is_lasting = |lane| in_progress.lock().of(lane).all.delay.is_lasting();
        assert_eq!((is_lasting(slow), is_lasting(quick)), (true, false));
        held.iter().for_each(|one| in_progress.end(1_000_000, one));
        assert_eq!(in_progress.lock().clients(), 0);
    }
}

/// Those in progress share the CPUs with it; those that wait have turns.
#[test]
fn what_a_request_is_expected_to_take_beside_another_lane() {
    let mut state = State::new(GOAL, Some(1.0));
    let flow = |lane| FlowKey {
        lane,
        client: CLIENT,
    };
    let begin = |state: &mut State, lane| state.begin(flow(lane), Waited::default(), 0);
    let now = |begun| match begun {
        Begin::Now(permit) => permit,
        _ => panic!("it begins"),
    };
    for (lane, took_us) in [(Lane::Files, 10_000), (Lane::Apps, 2_000)] {
        let one = now(begin(&mut state, lane));
        state.end(&one, None, took_us);
    }
    let held = [0, 0].map(|_| now(begin(&mut state, Lane::Apps)));
    let wait = |state: &mut State, lane| assert!(matches!(begin(state, lane), Begin::Later(_)));
    (0..3).for_each(|_| wait(&mut state, Lane::Apps));
    (0..2).for_each(|_| wait(&mut state, Lane::Files));
    let takes_us = |state: &State, lane| state.expected(flow(lane)).takes_us;
    // Three of 10 ms, and the apps of 2 ms: two in progress, and three that wait.
    assert_eq!(takes_us(&state, Lane::Files), 30_000 + 4_000 + 6_000);
    // Six of 2 ms, and the files that wait, for as long at most.
    assert_eq!(takes_us(&state, Lane::Apps), 12_000 + 12_000);
    for now_us in [0, 250_000] {
        let begun = state.begin(flow(Lane::Apps), Waited::for_cpu(2_000_000), now_us);
        assert!(matches!(begun, Begin::Never(_)), "lasting overload");
    }
    // More apps come when these have ended.
    assert_eq!(takes_us(&state, Lane::Files), 30_000 + 20_000 + 30_000);
    held.iter().for_each(|one| state.give_back(one, 0));
}

/// Each of them was taken to need as much as one of the long ones.
#[test]
fn a_burst_of_short_requests_in_one_lane_leaves_room_for_long_ones_in_another() {
    let in_progress = InProgress::new(GOAL, None);
    for (lane, took_us) in [(Lane::Files, 1_000), (Lane::Apps, 100_000)] {
        let one = begin_in(&in_progress, lane, 0).unwrap();
        in_progress.end(took_us, &one);
    }
    let begin = |lane| begin_in(&in_progress, lane, 200_000).unwrap();
    let files: Vec<_> = (0..300).map(|_| begin(Lane::Files)).collect();
    // 300 ms of their own, and as much for the files.
    let apps = [0; 3].map(|_| begin(Lane::Apps));
    let all = files.iter().chain(&apps);
    all.for_each(|one| in_progress.end(800_000, one));
    assert_eq!(in_progress.lock().clients(), 0);
}

/// What a handshake brings is not known.
#[test]
fn a_handshake_is_computed_while_requests_of_one_lane_would_be_in_time() {
    let (in_progress, held) = with_a_slow_lane(Lane::Apps);
    let offer = |now_us| in_progress.offer_handshake(CLIENT, 0, now_us);
    assert!(!offer(610_000), "apps are all that was asked for");
    let file = begin_in(&in_progress, Lane::Files, 620_000).unwrap();
    in_progress.end(621_000, &file);
    assert!(offer(630_000));
    assert!(begin_in(&in_progress, Lane::Apps, 10_600_000).is_err());
    assert!(offer(10_620_000));
    assert!(!offer(10_620_001), "no file has come for so long");
    held.iter().for_each(|one| in_progress.end(10_620_001, one));
}
