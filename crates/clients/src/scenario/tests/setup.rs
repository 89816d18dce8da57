//! What users do before the start.

use super::*;

/// A visitor gets a token, and logs in with it; then looks at a page again and again.
const LOGGED_IN: &str = r#"
[[setup]]
path = "/form"
capture.csrf = { header = "X-Token" }
[[setup]]
name = "login"
path = "/login"
form = { token = "{{csrf}}", name = "user{{user}}" }
expect.status = 303
[[step]]
path = "/page?{{csrf}}"
"#;

fn serve(request: &Request) -> Reaction {
    match request.line().as_str() {
        "GET /form" => answer(200, "X-Token: t7\r\nSet-Cookie: guest=1\r\n", ""),
        "POST /login" => {
            assert_eq!(request.body, "name=user3&token=t7");
            assert_eq!(request.header("cookie"), "guest=1");
            answer(303, "Set-Cookie: session=s\r\nLocation: /page\r\n", "")
        }
        "GET /page?t7" => {
            assert_eq!(request.header("cookie"), "guest=1; session=s");
            answer(200, "Set-Cookie: session=other\r\n", "")
        }
        line => panic!("{line}"),
    }
}

#[test]
fn a_setup_is_taken_once_and_counted_nowhere() {
    let scenario = scenario(LOGGED_IN);
    let mut play = Play::new(&scenario, 2, 1);
    assert!(play.user.prepares());
    while play.starts == 0 {
        play.run(1, |request| serve(&request));
    }
    assert_eq!(play.lines, ["GET /form", "POST /login"]);
    assert_eq!(play.user.requests_out(), 0);
    assert_eq!(play.tally(), Tally::default());
    // Each time, the user begins with what the setup left, not with what the page has set.
    play.run(7, |request| serve(&request));
    assert_eq!(play.lines[2..], ["GET /page?t7"; 4]);
    assert_eq!((play.starts, play.connects), (1, 1));
    let tally = play.tally();
    assert_eq!((tally.offered, tally.good, tally.sent), (4, 3, 4));
    assert_eq!(tally.status_codes, [(200, 3)]);
    let steps = scenario.steps();
    let counted: Vec<(&str, u64)> = steps
        .iter()
        .map(|step| (step.name.as_str(), step.requests))
        .collect();
    assert_eq!(counted, [("setup 1", 1), ("login", 1), ("step 1", 4)]);
}

#[test]
fn a_link_of_the_setup_leads_to_the_same_place_each_time() {
    let text = "[[setup]]\npath = \"/shop/list/\"\ncapture.item = { header = \"X-Item\" }\n\
                [[step]]\npath = \"{{item}}\"\n[[step]]\npath = \"/cart/view\"\n";
    let mut play = Play::new(&scenario(text), 0, 1);
    play.run(12, |_| answer(200, "X-Item: item/3\r\n", ""));
    let visit = ["GET /shop/list/item/3", "GET /cart/view"];
    assert_eq!(play.lines[0], "GET /shop/list/");
    assert_eq!(play.lines[1..3], visit);
    assert_eq!(play.lines[3..5], visit);
}

#[test]
fn a_step_that_fails_begins_anew_with_what_the_setup_left() {
    let mut play = Play::new(&scenario(LOGGED_IN), 2, 1);
    let mut left = 5;
    play.run(30, |request| {
        left -= 1;
        match left {
            0 => Reaction::Reset,
            _ => serve(&request),
        }
    });
    assert_eq!(play.tally().errors_total(), 1);
    assert_eq!((play.starts, play.connects), (1, 2));
}

#[test]
fn a_setup_that_fails_says_why_and_counts_nothing() {
    for (reaction, words) in [
        (
            answer(429, "", ""),
            "login: user 3: the status 429, not 303",
        ),
        (Reaction::Reset, "login: user 3: the connection: reset"),
        (Reaction::Silence, "login: user 3: no response within"),
    ] {
        let mut play = Play::new(&scenario(LOGGED_IN), 2, 1);
        let mut reaction = Some(reaction);
        play.run(30, |request| match request.method.as_str() {
            "POST" => reaction.take().unwrap(),
            _ => serve(&request),
        });
        let why = play.gave_up.take().unwrap();
        assert!(why.starts_with(words), "{why}");
        assert_eq!((play.starts, play.tally()), (0, Tally::default()));
    }
    let mut play = Play::new(&scenario(LOGGED_IN), 0, 1);
    play.refuses = true;
    play.run(30, |_| unreachable!());
    let why = play.gave_up.unwrap();
    assert_eq!(why, "setup 1: user 1: the connection: refused");
}

#[test]
fn a_setup_that_the_end_cuts_short_counts_nothing() {
    for orders in 0..8 {
        let mut play = Play::new(&scenario(LOGGED_IN), 2, 1);
        play.run(orders, |request| serve(&request));
        play.is_ending = true;
        let at_start = play.starts;
        play.run(10, |_| unreachable!("nothing more is sent"));
        assert!(play.is_done, "after {orders} orders");
        if at_start == 0 {
            assert_eq!(play.tally(), Tally::default(), "after {orders} orders");
        }
    }
}
