//! Connections, times, redirects, and what stays from one visit to the next.

use loadline_load::calendar::Calendar;
use loadline_load::recorder::GroupRecorder;
use loadline_load::{Phase, Plan, Prepared};

use super::*;
use crate::UserContext;

const ONE: &str = "[[step]]\npath = \"/one\"\nthink = \"1s\"\n";

#[test]
fn latency_counts_from_the_end_of_the_think_time() {
    let mut play = Play::new(&scenario(ONE), 0, 1);
    // The first connection is there before anything is due; the second is opened when it is due.
    play.run(9, |_| answer(200, "Connection: close\r\n", ""));
    assert_eq!((play.connects, play.lines.len()), (2, 2));
    let first = 2_000 * MS + CONNECT_NS;
    let second = first + ANSWER_NS + 1_000 * MS + CONNECT_NS;
    assert_eq!(play.sent_ns, [first, second]);
    let interval = play.interval();
    let us = |ns: u64| ns / 1_000;
    let (least, most) = (interval.latency.min(), interval.latency.max());
    assert!(
        interval
            .latency
            .equivalent(most, us(CONNECT_NS + ANSWER_NS))
    );
    assert!(interval.latency.equivalent(least, us(ANSWER_NS)));
    assert!(
        interval
            .service
            .equivalent(interval.service.max(), us(ANSWER_NS))
    );
}

#[test]
fn think_times_are_spread_over_their_range() {
    let text = "[[step]]\npath = \"/\"\nthink = [\"10ms\", \"30ms\"]\n";
    let mut play = Play::new(&scenario(text), 0, 1);
    play.run(3 * 1000 + 1, |_| ok(""));
    let gaps = play
        .sent_ns
        .windows(2)
        .map(|pair| pair[1] - pair[0] - ANSWER_NS);
    let thinks: Vec<u64> = gaps.collect();
    assert!(thinks.iter().all(|ns| (10 * MS..=30 * MS).contains(ns)));
    let mean_ns = thinks.iter().sum::<u64>() / thinks.len() as u64;
    assert!((19 * MS..=21 * MS).contains(&mean_ns), "{mean_ns}");
}

#[test]
fn a_connection_that_is_closed_is_opened_again_without_an_error() {
    let mut play = Play::new(&scenario(ONE), 0, 1);
    play.idle_ns = 100 * MS;
    play.run(40, |_| ok(""));
    assert!(play.connects > 5 && play.connects - play.lines.len() <= 2);
    assert_eq!(play.tally().errors_total(), 0);

    let mut play = Play::new(&scenario(ONE), 0, 1);
    play.run(40, |_| answer(200, "Connection: close\r\n", ""));
    assert!(play.closes > 5 && play.connects - play.closes <= 1);
    assert_eq!(play.tally().errors_total(), 0);

    let mut play = Play::new(&scenario(ONE), 0, 1);
    play.run(40, |_| {
        Reaction::Close(b"HTTP/1.1 200 OK\r\n\r\nto the end".to_vec())
    });
    let tally = play.tally();
    assert!(tally.good > 5 && play.closes == 0, "the peer closes it");
    assert_eq!(
        (tally.errors_total(), tally.content_bytes),
        (0, 10 * tally.good)
    );
}

#[test]
fn a_server_that_is_gone_is_not_called_without_end() {
    let mut play = Play::new(&scenario("[[step]]\npath = \"/\"\n"), 0, 1);
    play.refuses = true;
    let began_ns = play.now_ns;
    play.run(100, |_| unreachable!());
    let tally = play.tally();
    let refused = tally.errors_of(ErrorKind::Refused);
    assert_eq!((tally.sent, tally.completed), (0, 0));
    assert_eq!(
        tally.offered + 1,
        refused,
        "the first was before anything was due"
    );
    assert!(play.now_ns - began_ns >= (refused - 1) * 100 * MS);
    play.refuses = false;
    play.run(4, |_| ok(""));
    assert!(play.tally().sent > 0, "it is seen when it comes back");
}

#[test]
fn the_end_waits_for_what_is_out() {
    let text = "[[step]]\npath = \"/one\"\n";
    for orders in 0..6 {
        let mut play = Play::new(&scenario(text), 0, 1);
        play.run(orders, |_| ok(""));
        play.is_ending = true;
        play.run(10, |_| unreachable!("nothing more is sent"));
        assert!(play.is_done, "after {orders} orders");
        let tally = play.tally();
        assert_eq!((tally.offered, tally.unfinished), (tally.good, 0));
    }
}

#[test]
fn redirects_are_followed_as_browsers_do() {
    let text = "follow = true\n[[step]]\npath = \"/a\"\nform = { x = \"1\" }\n";
    for (status, second) in [
        (301, "GET /b"),
        (302, "GET /b"),
        (303, "GET /b"),
        (307, "POST /b"),
        (308, "POST /b"),
    ] {
        let mut play = Play::new(&scenario(text), 0, 1);
        play.run(7, |request| match request.line().as_str() {
            "POST /a" => answer(status, "Location: http://shop:8080/b#top\r\n", ""),
            "POST /b" => {
                assert_eq!(request.body, "x=1");
                ok("")
            }
            "GET /b" => {
                assert_eq!(request.header("content-type"), "");
                ok("")
            }
            line => panic!("{line}"),
        });
        assert_eq!(play.lines[..3], ["POST /a", second, "POST /a"], "{status}");
        assert_eq!(play.tally().errors_total(), 0);
    }
}

#[test]
fn redirects_have_a_bound_and_stay_on_the_host() {
    let text = "[[step]]\npath = \"/\"\nfollow = 3\n";
    let elsewhere = "Location: http://other/\r\n";
    for (location, sent) in [("Location: /\r\n", 4), (elsewhere, 1), ("", 1)] {
        let mut play = Play::new(&scenario(text), 0, 1);
        play.run(1 + 2 * sent, |_| answer(302, location, ""));
        let tally = play.tally();
        assert_eq!(tally.errors_of(ErrorKind::OtherStatus), 1, "{location}");
        assert_eq!((tally.sent, tally.good), (sent as u64, sent as u64 - 1));
    }
}

#[test]
fn a_captured_link_may_lead_elsewhere() {
    let text = "[[step]]\npath = \"/\"\ncapture.next = { header = \"Link\" }\n\
                [[step]]\npath = \"{{next}}\"\n";
    let mut play = Play::new(&scenario(text), 0, 1);
    play.run(4, |_| answer(200, "Link: https://other/\r\n", ""));
    let tally = play.tally();
    assert_eq!((tally.offered, tally.sent), (2, 1));
    assert_eq!(tally.errors_of(ErrorKind::WrongContent), 1);
    let mut play = Play::new(&scenario(text), 0, 1);
    play.run(5, |_| answer(200, "Link: ../x y\r\n", ""));
    assert_eq!(play.lines[..2], ["GET /", "GET /x%20y"]);
}

#[test]
fn repeats_and_what_stays() {
    let steps = "[[step]]\npath = \"/{{iteration}}\"\n";
    for (text, cookies) in [
        ("repeat = 3\n", ["", "", ""]),
        ("repeat = 3\nkeep_state = true\n", ["", "a=1", "a=1"]),
    ] {
        let mut play = Play::new(&scenario(&format!("{text}{steps}")), 0, 1);
        let mut seen = Vec::new();
        play.run(100, |request| {
            seen.push(request.header("cookie").to_owned());
            answer(200, "Set-Cookie: a=1\r\n", "")
        });
        assert!(play.is_done && play.closes == 1);
        assert_eq!(play.lines, ["GET /1", "GET /2", "GET /3"]);
        assert_eq!(seen, cookies);
    }
}

#[test]
fn an_answer_may_be_late() {
    let scenario = scenario("repeat = 1\n[[step]]\npath = \"/\"\n[[step]]\npath = \"/2\"\n");
    let setting = Setting {
        deadline_ns: Some(ANSWER_NS),
        path_prefix: "/shop".to_owned(),
        ..setting()
    };
    let mut play = Play::new(&scenario, 0, 1);
    play.user = (scenario.factory(setting))(0, 1);
    play.run(100, |_| answer(200, "Connection: close\r\n", ""));
    assert_eq!(play.lines, ["GET /shop/", "GET /shop/2"]);
    let tally = play.tally();
    // The second one waited for its connection.
    assert_eq!((tally.errors_of(ErrorKind::Late), tally.good), (1, 1));
}

#[test]
fn a_path_that_begins_with_a_constant_is_a_link() {
    let scenario = scenario(
        "repeat = 1\n[variables]\napp = \"/app\"\n[[step]]\npath = \"{{app}}/wait\"\n\
         [[step]]\npath = \"/{{app}}\"\n",
    );
    let setting = Setting {
        path_prefix: "/small.html".to_owned(),
        ..setting()
    };
    let mut play = Play::new(&scenario, 0, 1);
    play.user = (scenario.factory(setting))(0, 1);
    play.run(100, |_| answer(200, "", ""));
    assert_eq!(play.lines, ["GET /app/wait", "GET /small.html//app"]);
}

#[test]
fn a_request_counts_in_the_phase_in_which_it_was_due() {
    let second_ns = 1_000 * MS;
    let phase = |begin_ns| Phase {
        begin_ns,
        end_ns: begin_ns + second_ns,
        ..Phase::default()
    };
    let phases = vec![phase(0), phase(second_ns)];
    let plan = Plan::new(([127, 0, 0, 1], 80).into(), Prepared::get("h", "/"), phases);
    let (mut calendar, start_ns) = (Calendar::new(&plan), 77 * second_ns);
    calendar.start(start_ns);
    let mut recorder = GroupRecorder::new(0);
    let mut user = scenario(&ONE.replace("1s", "999ms")).factory(setting())(0, 1);
    let mut context = UserContext {
        now_ns: start_ns,
        phase: 0,
        calendar: Some(&calendar),
        recorder: &mut recorder,
        is_ending: false,
    };
    assert_eq!(user.next_order(&mut context), Order::Connect);
    user.on_event(Event::Connected, &mut context);
    let due_ns = start_ns + 999 * MS;
    assert_eq!(
        user.next_order(&mut context),
        Order::SleepUntil { ns: due_ns }
    );
    // It wakes up in the next phase.
    let now_ns = start_ns + second_ns;
    while calendar.pass(now_ns).is_some() {}
    let mut context = UserContext {
        now_ns,
        phase: calendar.phase(),
        calendar: Some(&calendar),
        recorder: &mut recorder,
        is_ending: false,
    };
    assert_eq!(context.phase, 1);
    user.on_event(Event::Woken, &mut context);
    assert!(matches!(user.next_order(&mut context), Order::Send(_)));
    let counted = [0, 1].map(|phase| recorder.tally(phase).offered);
    assert_eq!(counted, [1, 0]);
}

#[test]
fn a_step_may_have_other_credentials_than_the_url() {
    let text = "[[step]]\npath = \"/\"\n[[step]]\npath = \"/2\"\n\
                headers = { authorization = \"Bearer x\" }\n";
    let scenario = scenario(text);
    let setting = Setting {
        authorization: Some("Basic YW5uOnB3".to_owned()),
        ..setting()
    };
    let mut play = Play::new(&scenario, 0, 1);
    play.user = (scenario.factory(setting))(0, 1);
    let mut seen = Vec::new();
    play.run(5, |request| {
        seen.push(request.header("authorization").to_owned());
        ok("")
    });
    assert_eq!(seen, ["Basic YW5uOnB3", "Bearer x"]);
}

#[test]
fn an_answer_before_the_request_has_gone_ends_the_connection() {
    let scenario = scenario("[[step]]\npath = \"/\"\nbody = \"x\"\n");
    let mut play = Play::new(&scenario, 0, 1);
    play.run(1, |_| unreachable!());
    assert!(matches!(play.order(), Order::Send(_)));
    let refused = b"HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n";
    play.on_event(Event::Received(refused));
    assert_eq!(play.order(), Order::Close { reset: false });
    assert_eq!(play.tally().errors_of(ErrorKind::Status4xx), 1);
}

#[test]
fn what_is_out_when_a_user_is_taken_away_is_unfinished() {
    let scenario = scenario("[[step]]\npath = \"/\"\n");
    for (orders, unfinished) in [(0, 0), (1, 0), (2, 1), (3, 0)] {
        let mut play = Play::new(&scenario, 0, 1);
        play.run(orders, |_| ok(""));
        assert_eq!(u64::from(play.user.requests_out()), unfinished, "{orders}");
        play.on_event(Event::Abandoned);
        assert_eq!(play.tally().unfinished, unfinished, "{orders}");
        assert_eq!(play.user.requests_out(), 0);
    }
}
