use loadline_proto::StreamId;

use super::*;

const NONE: HandshakeTime = HandshakeTime {
    kept_us: 0,
    computed_ago_us: 0,
    done_ago_us: 0,
};

impl TurnControl {
    /// A request that is refused if it is too old.
    fn check(&mut self, now_us: u64, exchange: &Exchange) -> Result<(), u32> {
        let judged = self.judge(now_us, exchange);
        judged.map_err(|too_old| self.refuse_too_old(now_us, too_old))
    }

    /// The same of one that was read in this turn, behind this handshake.
    fn check_read(&mut self, now_us: u64, handshake: HandshakeTime) -> Result<(), u32> {
        let judged = self.judge_read(now_us, handshake);
        judged.map_err(|too_old| self.refuse_too_old(now_us, too_old))
    }
}

/// A handshake that was computed before its request came.
fn kept(kept_us: u64) -> HandshakeTime {
    HandshakeTime {
        kept_us,
        computed_ago_us: u64::MAX,
        done_ago_us: 0,
    }
}

/// A stream's request that came then.
fn read(ready_ms: u64) -> Exchange {
    let mut exchange = Exchange::default();
    exchange.ready = Millis(ready_ms);
    exchange.stream = StreamId(1);
    exchange
}

/// A turn of a loop with many connections.
fn at(now_us: u64, has_waited: bool, is_full: bool) -> TurnBegin {
    TurnBegin {
        now_us,
        ended_us: now_us,
        has_waited,
        is_full,
        events: 512,
        connections: 1_000_000,
        has_mark: false,
        is_rest: false,
    }
}

#[test]
fn what_waited_for_longer_than_the_goal_is_refused() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    turn.begin(at(5_000_000, true, false));
    assert_eq!(turn.check_read(5_000_000, NONE), Ok(()));
    assert_eq!(turn.check_read(6_000_000, NONE), Ok(()));
    assert!(turn.check_read(6_000_001, NONE).is_err());
    // Events of the next turn came while that one lasted.
    turn.begin(at(6_200_000, false, false));
    assert_eq!(turn.check_read(6_600_000, NONE), Ok(()));
    assert!(turn.check_read(6_700_000, NONE).is_err());
    turn.begin(at(6_700_000, true, false));
    assert_eq!(turn.check_read(7_000_000, NONE), Ok(()));
}

#[test]
fn what_begins_has_waited_since_it_came() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    turn.begin(at(5_000_000, true, false));
    assert_eq!(turn.check_read(5_000_000, NONE), Ok(()));
    assert_eq!(turn.check_read(5_010_000, NONE), Ok(()));
    turn.judge_by(Some(4_990_000));
    assert_eq!(turn.check_read(5_020_000, NONE), Ok(()));
    turn.judge_by(None);
    assert!(turn.check_read(7_000_000, NONE).is_err());
    assert_eq!(turn.take_waits(), (3, 40_000));
    assert_eq!(turn.take_waits(), (0, 0));
}

/// Each new connection had just come, however long it had waited to be accepted: at twice the capacity of a
/// loop that computes all answers were late, and none was refused.
#[test]
fn what_waited_in_the_backlog_is_judged_by_when_it_came() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    let few = |now_us| TurnBegin {
        connections: 2,
        events: 1,
        ..at(now_us, false, false)
    };
    turn.begin(few(4_000_000));
    turn.begin(few(4_900_000));
    for now_us in (5_000_000..5_300_000).step_by(10_000) {
        turn.begin(few(now_us));
        turn.has_left_some();
        turn.judge_by(Some(now_us - 1_500_000));
        assert!(turn.check_read(now_us, NONE).is_err());
        turn.judge_by(None);
        assert_eq!(turn.check_read(now_us, NONE), Ok(()));
    }
    // Overload lasts, though it has few connections at one time.
    turn.begin(few(5_300_000));
    turn.judge_by(Some(5_190_000));
    assert!(turn.check_read(5_300_000, NONE).is_err());
    turn.judge_by(Some(5_250_000));
    assert_eq!(turn.check_read(5_300_000, NONE), Ok(()));
    // Until hardly any waits, and none was refused for some time.
    turn.judge_by(Some(5_599_000));
    assert_eq!(turn.check_read(5_600_000, NONE), Ok(()));
    turn.judge_by(Some(5_100_000));
    assert_eq!(turn.check_read(5_600_000, NONE), Ok(()));
}

/// A handshake and its request each waited for a goal: at twice the capacity of a loop without workers no
/// response of a new connection over TLS was in time.
#[test]
fn what_a_handshake_has_waited_counts_for_its_request() {
    let began = |counts_handshakes| {
        let turn = TurnControl::new(Duration::from_secs(1));
        let mut turn = turn.counting_handshakes(counts_handshakes);
        turn.begin(at(5_000_000, true, false));
        turn
    };
    let mut turn = began(true);
    assert_eq!(turn.handshake_waited_us(5_600_000), 600_000);
    assert!(!turn.refuses_handshake(5_600_000, 600_000));
    assert_eq!(turn.check_read(5_300_000, kept(600_000)), Ok(()));
    assert_eq!(turn.take_waits(), (1, 300_000)); // the handshake's wait is not the request's
    assert!(turn.check_read(5_500_000, kept(600_000)).is_err());
    turn.judge_by(Some(4_500_000));
    assert_eq!(turn.handshake_waited_us(5_600_000), 1_100_000);
    assert!(turn.refuses_handshake(5_600_000, 1_100_000));
    // Where workers compute them, their queue is where that is judged.
    let mut turn = began(false);
    assert_eq!(turn.handshake_waited_us(5_600_000), 0);
    assert!(!turn.refuses_handshake(5_600_000, 2_000_000));
    assert_eq!(turn.check_read(5_500_000, kept(600_000)), Ok(()));
}

/// Until the handshake was computed it had counted for that. It counted for the request, too.
#[test]
fn what_came_along_with_its_handshake_has_waited_once() {
    let turn = TurnControl::new(Duration::from_secs(1));
    let mut turn = turn.counting_handshakes(true);
    turn.begin(at(5_000_000, true, false));
    let handshake = HandshakeTime {
        kept_us: turn.handshake_waited_us(5_600_000),
        ..NONE
    };
    assert_eq!(turn.check_read(5_600_000, handshake), Ok(()));
    assert_eq!(turn.take_waits(), (1, 0));
    turn.judge_by(Some(5_000_000));
    let later = |computed_ago_us| HandshakeTime {
        computed_ago_us,
        done_ago_us: computed_ago_us,
        ..handshake
    };
    assert_eq!(turn.check_read(5_900_000, later(300_000)), Ok(()));
    assert!(turn.check_read(6_000_000, later(400_000)).is_err());
}

/// The loop's own turn counted as time that the client had let pass.
#[test]
fn what_a_request_has_waited_for_its_loop_its_client_has_not_rested() {
    let turn = TurnControl::new(Duration::from_secs(1));
    let mut turn = turn.counting_handshakes(true);
    turn.begin(at(5_000_000, true, false));
    let handshake = HandshakeTime {
        done_ago_us: 700_000,
        ..kept(400_000)
    };
    turn.judge_by(Some(5_600_000));
    assert_eq!(
        turn.check_read(5_700_000, handshake),
        Ok(()),
        "it has rested"
    );
    turn.judge_by(None);
    assert!(turn.check_read(5_700_000, handshake).is_err());
}

/// A turn that refused none ended the overload: clients whose handshakes have a turn of their own waited for the
/// whole goal then.
#[test]
fn overload_lasts_while_new_connections_are_refused_though_not_in_each_turn() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    let few = |now_us| TurnBegin {
        connections: 2,
        ..at(now_us, false, false)
    };
    turn.begin(few(4_990_000));
    for now_us in (5_000_000..5_400_000).step_by(20_000) {
        turn.begin(few(now_us));
        turn.judge_by(Some(now_us - 1_500_000));
        assert!(turn.check_read(now_us, NONE).is_err());
        turn.judge_by(None);
        turn.begin(few(now_us + 10_000));
    }
    turn.begin(few(5_400_000));
    turn.judge_by(Some(5_280_000));
    assert!(turn.check_read(5_400_000, NONE).is_err());
}

/// A new connection in each turn kept a loop in lasting overload for good.
#[test]
fn new_connections_that_are_in_time_change_nothing_for_others() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    let begin = |now_us| TurnBegin {
        connections: 500,
        ..at(now_us, false, false)
    };
    turn.begin(begin(0));
    turn.begin(begin(1_000));
    for _ in 0..64 {
        assert_eq!(turn.check_read(1_000, NONE), Ok(()));
    }
    turn.begin(begin(13_800)); // 0.2 ms each
    turn.begin(begin(1_500_000));
    for now_us in (2_600_000..2_900_000).step_by(20_000) {
        assert!(turn.check_read(now_us, NONE).is_err());
    }
    turn.begin(begin(2_900_000));
    turn.judge_by(Some(2_880_000));
    assert_eq!(turn.check_read(2_900_000, NONE), Ok(()));
    turn.judge_by(None);
    turn.begin(begin(2_967_000));
    assert_eq!(
        turn.check_read(3_060_000, NONE),
        Ok(()),
        "160 ms are no overload"
    );
}

/// After a burst that was a little too large, all was refused that had waited for longer than a tenth of the goal.
#[test]
fn a_few_refusals_leave_a_loop_most_of_its_goal() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    let is_answered = |turn: &mut TurnControl, now_us: u64, age_us: u64| {
        turn.judge_by(Some(now_us - age_us));
        turn.check_read(now_us, NONE).is_ok()
    };
    for now_us in (5_000_000..=5_250_000).step_by(10_000) {
        assert!(!is_answered(&mut turn, now_us, 1_500_000));
        (0..4).for_each(|_| assert!(is_answered(&mut turn, now_us, 900_000)));
    }
    // A tenth of 250 ms less, and the reserve.
    assert!(is_answered(&mut turn, 5_300_000, 966_000));
    assert!(!is_answered(&mut turn, 5_300_000, 968_000));
}

#[test]
fn under_lasting_overload_turns_become_short() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    turn.begin(at(0, true, false));
    turn.begin(at(1, false, false));
    for now_us in (1_000_100..1_300_000).step_by(50_000) {
        assert!(turn.check_read(now_us, NONE).is_err());
    }
    turn.begin(at(1_300_000, false, false));
    assert!(
        turn.check_read(1_300_000, NONE).is_err(),
        "from a turn of 1.3 s"
    );
    turn.begin(at(1_301_000, false, false));
    assert_eq!(turn.check_read(1_380_000, NONE), Ok(()));
    assert!(turn.check_read(1_402_000, NONE).is_err());
    // Nothing waits any more.
    turn.begin(at(1_410_000, true, false));
    assert_eq!(turn.check_read(2_400_000, NONE), Ok(()));
}

#[test]
fn events_that_did_not_fit_into_a_turn_are_as_old_as_the_first_of_them() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    turn.begin(at(0, true, true));
    turn.begin(at(900_000, false, true));
    assert_eq!(turn.check_read(1_000_000, NONE), Ok(()));
    assert!(turn.check_read(1_000_001, NONE).is_err());
    turn.begin(at(1_100_000, false, false));
    assert_eq!(turn.check_read(1_500_000, NONE), Ok(()), "the last of them");
    turn.begin(at(1_600_000, false, false));
    assert_eq!(turn.check_read(2_300_000, NONE), Ok(()));
}

#[test]
fn what_came_while_a_batch_was_worked_off_is_as_old_as_the_batch() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    turn.begin(at(0, true, false));
    turn.begin(TurnBegin {
        is_rest: true,
        ..at(500_000, false, false)
    });
    assert_eq!(turn.lasts_us(600_000), 600_000);
    assert_eq!(turn.check_read(900_000, NONE), Ok(()));
    turn.begin(at(1_000_000, false, false));
    assert_eq!(
        turn.check_read(1_500_000, NONE),
        Ok(()),
        "half a second old when it was taken"
    );
    assert!(turn.check_read(1_500_001, NONE).is_err());
}

/// Clients that ask again as soon as they are answered, more of them than a turn takes events.
fn closed_loop(turn: &mut TurnControl, from_us: u64, turns: u64, answer_us: u64) -> (u64, u64) {
    let (mut now_us, mut refused) = (from_us, 0);
    for _ in 0..turns {
        turn.begin(TurnBegin {
            connections: 10_000,
            ..at(now_us, false, true)
        });
        for _ in 0..512 {
            match turn.check_read(now_us, NONE) {
                Ok(()) => now_us += answer_us,
                Err(_) => {
                    refused += 1;
                    now_us += 5;
                }
            }
        }
    }
    (now_us, refused)
}

#[test]
fn turns_that_are_full_for_long_do_not_make_what_they_bring_older() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    turn.begin(at(0, true, true));
    let (ended_us, refused) = closed_loop(&mut turn, 10, 2_000, 10);
    assert!(ended_us > 10_000_000);
    assert_eq!(refused, 0, "each waits for 100 ms");
    // What takes so long that 10,000 of them cannot be answered in a second is refused.
    let (_, refused) = closed_loop(&mut turn, ended_us, 2_000, 200);
    assert!(refused > 0);
}

/// As many events as there are connections say that all have had their turn; where most are idle, or only send, that
/// takes long.
#[test]
fn what_is_left_came_after_a_mark_that_has_come_back() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    let full = |now_us, has_mark| TurnBegin {
        events: 1,
        has_mark,
        ..at(now_us, false, true)
    };
    turn.begin(at(0, true, true));
    let mut marked_us: Option<u64> = None;
    let mut marks = 0;
    for now_us in (200..3_000_000).step_by(200) {
        let has_mark = marked_us.is_some_and(|us| now_us >= us + 100_000);
        if has_mark {
            marked_us = None;
        }
        turn.begin(full(now_us, has_mark));
        if turn.marks() {
            assert_eq!(marked_us, None, "one at a time");
            marked_us = Some(now_us);
            marks += 1;
        }
    }
    assert!((25..=30).contains(&marks), "{marks}");
    assert!(turn.age_us(3_000_000) <= 201_000, "100 ms, or up to twice");
    assert_eq!(turn.check_read(3_000_000, NONE), Ok(()));
    for now_us in (3_000_000..4_200_000).step_by(200) {
        turn.begin(full(now_us, false));
    }
    assert!(turn.check_read(4_200_000, NONE).is_err());
}

/// It costs something, and where little waits it says nothing.
#[test]
fn no_mark_is_put_where_nothing_is_old() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    for round in 0..100 {
        let began_us = 10_000_000 + round * 20_000;
        turn.begin(at(began_us, true, true));
        assert!(!turn.marks());
        turn.begin(at(began_us + 15_000, false, true));
        assert!(!turn.marks());
    }
    turn.begin(at(12_000_000, true, false));
    turn.begin(at(12_020_000, false, false));
    assert!(!turn.marks(), "all was taken");
}

#[test]
fn a_pause_does_not_make_an_overload_of_many_cheap_requests() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    turn.begin(at(0, true, true));
    let (mut now_us, _) = closed_loop(&mut turn, 10, 100, 10);
    for _ in 0..20 {
        now_us += 1_100_000; // the machine stands still
        now_us = closed_loop(&mut turn, now_us, 40, 10).0;
    }
    let (now_us, _) = closed_loop(&mut turn, now_us, 40, 10);
    let (_, refused) = closed_loop(&mut turn, now_us, 2_000, 10);
    assert_eq!(refused, 0);
}

/// Requests of one connection waited for each other over many turns, and each was as young as the turn: at twice the
/// capacity of a loop without workers hardly any response by HTTP/2 was in time.
#[test]
fn what_was_read_in_an_earlier_turn_has_waited_since() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    let few = |now_us| TurnBegin {
        connections: 2,
        events: 1,
        ..at(now_us, false, false)
    };
    turn.begin(few(4_800_000));
    turn.begin(few(5_000_000));
    assert_eq!(turn.came(), Millis(4_900));
    // Of this turn: as other events.
    assert_eq!(turn.check(5_010_000, &read(4_900)), Ok(()));
    // Of an earlier one.
    assert_eq!(turn.check(5_010_000, &read(4_100)), Ok(()));
    assert_eq!(turn.check_again(5_010_000, &read(4_100)), Ok(()));
    assert!(turn.check(5_010_000, &read(4_010)).is_err());
    assert!(turn.check_again(5_010_000, &read(4_000)).is_err());
    // Overload lasts, though its connections are few.
    for now_us in (5_020_000..5_280_000).step_by(20_000) {
        turn.begin(few(now_us));
        assert!(turn.check_again(now_us, &read(4_000)).is_err());
    }
    assert!(turn.check_again(5_280_000, &read(5_150)).is_err());
    assert_eq!(turn.check_again(5_280_000, &read(5_230)), Ok(()));
}

/// It counted twice: the waits were those of twice as many requests, and an answer seemed to cost half of what it did.
#[test]
fn a_stream_that_is_checked_again_counts_once() {
    let at_first = |works_itself| {
        let turn = TurnControl::new(Duration::from_secs(1));
        let mut turn = turn.counting_handshakes(works_itself);
        turn.begin(at(5_000_000, true, false));
        assert_eq!(turn.check(5_010_000, &read(5_000)), Ok(()));
        turn.put_off();
        turn
    };
    let mut turn = at_first(true);
    turn.put_off(); // nothing is left of it
    assert_eq!(turn.check_again(5_200_000, &read(5_000)), Ok(()));
    assert_eq!(turn.answered, 1);
    assert_eq!(turn.take_waits(), (1, 200_000));
    // Where workers carry it out, it is not checked again.
    let turn = at_first(false);
    assert_eq!(turn.answered, 1);
}

/// Streams of a connection that was accepted in a long turn were as old as the events of that turn.
#[test]
fn what_is_received_while_the_kernel_says_when_it_came_has_come_then() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    turn.begin(at(4_000_000, false, false));
    turn.begin(at(5_000_000, false, false));
    assert_eq!(turn.came(), Millis(4_500));
    turn.judge_by(Some(5_499_500));
    assert_eq!(turn.came(), Millis(5_499));
    let stream = read(5_499);
    assert_eq!(turn.check(5_600_000, &stream), Ok(()));
    turn.judge_by(None);
    assert_eq!(turn.came(), Millis(4_500));
    assert_eq!(turn.check_again(6_400_000, &stream), Ok(()));
    assert!(turn.check_again(6_500_000, &stream).is_err());
}

/// Once an answer had taken as long as the goal all streams were refused, for good; under lasting overload, once it had
/// taken a tenth of it.
#[test]
fn streams_are_answered_also_if_an_answer_takes_as_long_as_the_goal() {
    let after_one_of = |answer_us: u64| {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        turn.begin(at(1_000_000, true, false));
        assert_eq!(turn.check(1_000_000, &read(1_000)), Ok(()));
        turn.begin(at(1_000_000 + answer_us, true, false));
        turn
    };
    let mut turn = after_one_of(2_000_000);
    assert_eq!(turn.check(3_000_000, &read(3_000)), Ok(()));
    assert_eq!(turn.check(3_500_000, &read(3_000)), Ok(()));
    assert!(turn.check(3_500_001, &read(3_000)).is_err());

    let mut turn = after_one_of(150_000);
    for now_ms in (1_150..=1_450).step_by(50) {
        assert!(turn.check(now_ms * 1000, &read(now_ms - 900)).is_err());
    }
    assert_eq!(turn.check(1_450_000, &read(1_450)), Ok(()));
    assert_eq!(turn.check(1_450_000, &read(1_150)), Ok(()));
    assert!(turn.check(1_450_000, &read(1_149)).is_err(), "two answers");
}

/// In the queue of the workers it counted from the begin of the turn in which it was handed on.
#[test]
fn what_a_request_has_waited_counts_from_the_turn_in_which_it_was_read() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    turn.begin(at(5_000_000, true, false));
    turn.begin(at(5_020_000, false, false));
    turn.begin(at(5_040_000, false, false));
    assert_eq!(turn.came(), Millis(5_030));
    assert_eq!(turn.request_age_us(5_041_500, &read(5_030)), 11_500);
    assert_eq!(turn.request_age_us(5_041_500, &read(5_000)), 41_500);
    turn.judge_by(Some(4_900_000));
    assert_eq!(turn.request_age_us(5_041_500, &read(5_000)), 141_500);
}

/// What ten answers took would seem to be what one takes.
#[test]
fn what_is_too_old_and_answered_all_the_same_counts_for_what_an_answer_takes() {
    let mut turn = TurnControl::new(Duration::from_secs(1));
    turn.begin(at(1_000_000, true, false));
    assert_eq!(turn.check_read(1_000_000, NONE), Ok(()));
    for _ in 0..9 {
        assert!(turn.judge(1_000_000, &read(0)).is_err());
        turn.answers_exempt();
    }
    assert_eq!(turn.take_waits(), (1, 0));
    turn.begin(at(1_010_000, true, false));
    assert_eq!(turn.answer_us, 1_000.0);
}
