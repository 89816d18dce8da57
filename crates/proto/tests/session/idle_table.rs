//! How long an idle connection stays, and which clients read how long that is.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::drive::{Driver, echo};
use loadline_proto::{
    CloseReason, Fields, ForwardedField, Limits, Outcome, SessionConfig, Status, TrustedProxies,
};

const PROXY: &str = "192.0.2.1:4000";
const STRANGER: &str = "203.0.113.9:4000";
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const OLD_GET: &[u8] = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";

fn config(idle_timeout_ms: u64, proxy_idle_timeout_ms: u64) -> Arc<SessionConfig> {
    let proxies = ["192.0.2.0/24".parse().expect("a network")];
    Arc::new(SessionConfig {
        limits: Limits {
            idle_timeout_ms,
            proxy_idle_timeout_ms,
            ..Limits::default()
        },
        trusted_proxies: TrustedProxies::new(&proxies, ForwardedField::XForwardedFor),
        ..SessionConfig::default()
    })
}

fn peer(text: &str) -> Option<SocketAddr> {
    Some(text.parse().expect("an address"))
}

fn head_of(config: &Arc<SessionConfig>, from: &str, request: &[u8]) -> String {
    let mut driver = Driver::from_peer(config, peer(from), echo);
    driver.feed(request);
    let output = String::from_utf8(driver.output.clone()).expect("text");
    let (head, _) = output.split_once("\r\n\r\n").expect("a head");
    head.to_owned()
}

fn connection_lines(head: &str) -> Vec<&str> {
    let is_one = |line: &&str| line.starts_with("Connection:") || line.starts_with("Keep-Alive:");
    head.split("\r\n").filter(is_one).collect()
}

#[test]
fn connections_of_trusted_proxies_stay_longer() {
    let defaults = Limits::default();
    assert!(
        defaults.proxy_idle_timeout_ms > 600_000,
        "Google's balancer"
    );
    for (idle, proxy_idle, of_strangers, of_proxies) in [
        (15_000, 620_000, Some(15_000), Some(620_000)),
        (15_000, 1_000, Some(15_000), Some(15_000)),
        (15_000, u64::MAX, Some(15_000), None),
        (u64::MAX, 620_000, None, None),
        (u64::MAX - 1, 1_000, Some(u64::MAX), Some(u64::MAX)),
    ] {
        for (from, stays) in [(STRANGER, of_strangers), (PROXY, of_proxies)] {
            let mut driver = Driver::from_peer(&config(idle, proxy_idle), peer(from), echo);
            for _ in 0..2 {
                let began = driver.now.0;
                let deadline = stays.map(|ms: u64| began.saturating_add(ms));
                assert_eq!(driver.deadline().map(|at| at.0), deadline, "{from} {idle}");
                driver.feed(GET);
            }
            let Some(stays) = stays.filter(|ms| *ms < u64::MAX) else {
                driver.pass(1 << 40);
                assert!(!driver.is_closed() && driver.is_idle(), "{from} {idle}");
                driver.feed(GET);
                assert_eq!(driver.statuses(), [200, 200, 200]);
                continue;
            };
            driver.pass(stays - 1);
            assert!(!driver.is_closed(), "{from} {idle}");
            driver.pass(1);
            assert_eq!(driver.closes(CloseReason::Idle), 1, "{from} {idle}");
        }
    }
}

#[test]
fn one_that_stays_for_ever_is_evicted_and_drained_like_any_other() {
    let mut driver = Driver::from_peer(&config(u64::MAX, u64::MAX), peer(STRANGER), echo);
    driver.feed(GET).abort(CloseReason::Evicted);
    assert_eq!(driver.closes(CloseReason::Evicted), 1);
    let mut driver = Driver::from_peer(&config(u64::MAX, u64::MAX), peer(STRANGER), echo);
    driver.feed(GET).draining();
    assert_eq!(driver.closes(CloseReason::Drained), 1);
    // Only being idle is without end.
    let mut driver = Driver::from_peer(&config(u64::MAX, u64::MAX), peer(STRANGER), echo);
    driver.feed(&GET[..5]).pass(60_000);
    assert_eq!(driver.statuses(), [408]);
}

#[test]
fn clients_that_keep_connections_read_for_how_long() {
    let fields = |idle, proxy_idle, from, request: &[u8]| {
        let head = head_of(&config(idle, proxy_idle), from, request);
        connection_lines(&head).join(", ")
    };
    let (proxy, stranger) = (PROXY, STRANGER);
    for (idle, proxy_idle, from, request, expected) in [
        (
            15_000,
            620_000,
            proxy,
            GET,
            "Connection: keep-alive, Keep-Alive: timeout=615",
        ),
        (
            15_000,
            620_000,
            proxy,
            OLD_GET,
            "Connection: keep-alive, Keep-Alive: timeout=615",
        ),
        (
            15_000,
            620_000,
            stranger,
            OLD_GET,
            "Connection: keep-alive, Keep-Alive: timeout=13",
        ),
        (
            15_000,
            20_000,
            proxy,
            GET,
            "Connection: keep-alive, Keep-Alive: timeout=18",
        ),
        (
            1_000,
            3_000,
            proxy,
            GET,
            "Connection: keep-alive, Keep-Alive: timeout=2",
        ),
        // Nothing that could be promised, or nothing that needs to be.
        (1_000, 1_999, proxy, GET, ""),
        (1_000, 1_999, proxy, OLD_GET, "Connection: keep-alive"),
        (15_000, u64::MAX, proxy, GET, ""),
        (
            u64::MAX,
            620_000,
            stranger,
            OLD_GET,
            "Connection: keep-alive",
        ),
        // Not a byte more for others.
        (15_000, 620_000, stranger, GET, ""),
    ] {
        assert_eq!(
            fields(idle, proxy_idle, from, request),
            expected,
            "{from} {idle} {proxy_idle}"
        );
    }
    // An answer that ends the connection promises nothing.
    let close = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    assert_eq!(fields(15_000, 620_000, proxy, close), "Connection: close");
    assert_eq!(
        fields(15_000, 620_000, proxy, b"G@T / HTTP/1.1\r\n\r\n"),
        "Connection: close"
    );
}

/// The answer was made before the drain began.
#[test]
fn a_promise_is_taken_back_by_a_drain() {
    for (from, request) in [(PROXY, GET), (STRANGER, OLD_GET)] {
        let mut driver = Driver::from_peer(&config(15_000, 620_000), peer(from), |exchange, cx| {
            let fields = Fields::default()
                .with("Connection", "keep-alive")
                .with("Keep-Alive", "timeout=7");
            exchange.answer_as_data = true;
            exchange.answer_borrowed(Status::OK, &fields, b"content", cx);
            Outcome::Blocking
        });
        driver.handle_blocking = Box::new(|_| {});
        driver.hold_blocking = true;
        driver.feed(request).draining().complete();
        let output = String::from_utf8(driver.output.clone()).expect("text");
        let (head, content) = output.split_once("\r\n\r\n").expect("a head");
        let lines = connection_lines(head);
        // The second pair is the handler's own.
        let expected = [
            "Connection: close",
            "Connection: keep-alive",
            "Keep-Alive: timeout=7",
        ];
        assert_eq!((&lines[..], content), (&expected[..], "content"), "{from}");
    }
}
