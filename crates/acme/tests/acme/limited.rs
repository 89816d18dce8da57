//! An authority that makes no orders for a while, since a limit is reached.

use loadline_acme::UnixTime;
use serde_json::json;

use crate::authority;
use crate::front::ReceivedRequest;
use crate::kept::open;
use crate::site::Site;

const NAMES: [&str; 3] = ["a.example.org", "b.example.org", "c.example.org"];

/// The limit may be one on the account: each name asked at once, and got a refusal of its own.
#[test]
fn a_new_order_that_is_refused_for_a_limit_holds_up_those_of_other_names() {
    let limited = json!({
        "type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many new orders",
    });
    let answer = move |request: &ReceivedRequest, _: &str| match request.path.as_str() {
        "/account" => Some((201, json!({ "status": "valid" }))),
        _ => Some((429, limited.clone())),
    };
    let front = authority::start(json!({}), answer);
    let (site, folder) = (Site::start(), tempfile::tempdir().unwrap());
    let mut automatic = open(&site, &front, &folder, &NAMES);
    let mut now = UnixTime::now();
    now = automatic.turn(now); // the account
    for pauses_s in [225..376, 450..751] {
        front.take_paths();
        now = automatic.turn(now);
        let next = automatic.turn(now);
        let paths = front.take_paths();
        let orders = paths.iter().filter(|path| *path == "/order");
        assert_eq!(orders.count(), 1, "{paths:?}");
        let pause_s = next.since(now).as_secs();
        assert!(pauses_s.contains(&pause_s), "{pause_s}");
        now = next;
    }
    let error = automatic.report().lock().unwrap().last_error.clone();
    assert!(error.contains("b.example.org: too many"), "{error}");
}
