//! Who the client is, by what its proxies say: tables of fields and what they come to.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::drive::{Driver, echo};
use crate::http2_bytes::Http2Bytes;
use loadline_proto::{
    ClientKey, Context, Exchange, ForwardedField, Outcome, SessionConfig, TrustedProxies,
    TrustedProxy,
};

use ForwardedField::{Forwarded, XForwardedFor};

/// What a handler sees of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// Address and port; `?` where nothing is known.
    client: String,
    is_secure: bool,
    unnamed_proxy: Option<ForwardedField>,
}

fn trusting(proxies: &[&str], field: ForwardedField) -> Arc<SessionConfig> {
    let proxies: Vec<TrustedProxy> = proxies
        .iter()
        .map(|proxy| proxy.parse().expect(proxy))
        .collect();
    Arc::new(SessionConfig {
        trusted_proxies: TrustedProxies::new(&proxies, field),
        ..SessionConfig::default()
    })
}

/// What a handler is seen of the requests of a connection, each given by its fields.
fn seen_from(config: &Arc<SessionConfig>, peer: &str, requests: &[&str]) -> Vec<Seen> {
    let mut seen = Vec::new();
    let note = |exchange: &mut Exchange, _: &mut Context<'_>| {
        let client = exchange.client().map(|client| {
            let port = client.port.map_or(String::new(), |port| format!(" {port}"));
            format!("{}{port}", client.address)
        });
        seen.push(Seen {
            client: client.unwrap_or_else(|| "?".to_owned()),
            is_secure: exchange.is_secure(),
            unnamed_proxy: exchange.unnamed_proxy(),
        });
        Outcome::Ready
    };
    let peer: Option<SocketAddr> = match peer {
        "unix" => None,
        peer => Some(peer.parse().expect(peer)),
    };
    let mut driver = Driver::from_peer(config, peer, note);
    for fields in requests {
        driver.feed(format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n").as_bytes());
    }
    drop(driver);
    seen
}

/// Who the client is to a server that trusts 192.0.2.0/24 and is asked by 192.0.2.1.
fn seen(field: ForwardedField, lines: &[&str]) -> (String, bool) {
    let config = trusting(&["192.0.2.0/24"], field);
    let fields: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let seen = seen_from(&config, "192.0.2.1:4000", &[&fields]);
    let [seen] = &seen[..] else {
        panic!("{lines:?}: {seen:?}");
    };
    (seen.client.clone(), seen.is_secure)
}

const ITSELF: &str = "192.0.2.1 4000";

#[test]
fn addresses_in_every_form() {
    for (node, expected) in [
        ("203.0.113.9", "203.0.113.9"),
        ("203.0.113.9:5678", "203.0.113.9 5678"),
        ("203.0.113.9:0", "203.0.113.9 0"),
        ("203.0.113.9:_p", "203.0.113.9"),
        ("2001:db8::9", "2001:db8::9"),
        ("[2001:db8::9]", "2001:db8::9"),
        ("[2001:db8::9]:5678", "2001:db8::9 5678"),
        ("[2001:db8::9]:_p", "2001:db8::9"),
        // Without brackets nothing in it is a port.
        ("2001:db8::9:5678", "2001:db8::9:5678"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("[::ffff:203.0.113.9]:5678", "203.0.113.9 5678"),
        ("fe80::1%eth0", "fe80::1"),
        ("[fe80::1%25eth0]:5678", "fe80::1 5678"),
    ] {
        let x_forwarded_for = format!("X-Forwarded-For: {node}");
        let (client, _) = seen(XForwardedFor, &[&x_forwarded_for]);
        assert_eq!(client, expected, "{node}");
        let forwarded = format!("Forwarded: for=\"{node}\"");
        let (client, _) = seen(Forwarded, &[&forwarded]);
        assert_eq!(client, expected, "{node}");
    }
}

#[test]
fn what_is_no_address_leaves_the_one_who_wrote_it() {
    for node in [
        "unknown",
        "_hidden",
        "_SEVKISEK",
        "-",
        "localhost",
        "203.0.113",
        "203.0.113.9.1",
        "203.0.113.256",
        "0203.0.113.9",
        "203.0.113.9:",
        "203.0.113.9:65536",
        "203.0.113.9:+80",
        "203.0.113.9:_",
        "203.0.113.9:80:80",
        "203.0.113.9%eth0",
        "203.0.113.9 203.0.113.8",
        "[203.0.113.9]",
        "[2001:db8::9",
        "2001:db8::9]",
        "[2001:db8::9]80",
        "[2001:db8::9]:",
        "[[2001:db8::9]]",
        "[]",
        ":",
        "%",
        "unix:",
        "\u{e4}",
        &"1".repeat(4000),
    ] {
        let x_forwarded_for = format!("X-Forwarded-For: 6.6.6.6, {node}");
        let (client, _) = seen(XForwardedFor, &[&x_forwarded_for]);
        assert_eq!(client, ITSELF, "{node}");
        let forwarded = format!("Forwarded: for=6.6.6.6, for=\"{node}\"");
        let (client, _) = seen(Forwarded, &[&forwarded]);
        assert_eq!(client, ITSELF, "{node}");
    }
}

#[test]
fn the_client_is_the_last_that_is_no_proxy_of_ours() {
    for (chain, expected) in [
        (&["198.51.100.7, 203.0.113.9"][..], "203.0.113.9"),
        (&["198.51.100.7, 203.0.113.9, 192.0.2.8"], "203.0.113.9"),
        (&["198.51.100.7,203.0.113.9 ,\t192.0.2.8:80"], "203.0.113.9"),
        (
            &["198.51.100.7, 203.0.113.9, ::ffff:192.0.2.8"],
            "203.0.113.9",
        ),
        // What stands in front of who is no proxy of ours is what that one has sent.
        (&["192.0.2.7, 203.0.113.9, 192.0.2.8"], "203.0.113.9"),
        (&["6.6.6.6, nonsense, 192.0.2.8"], "192.0.2.8"),
        (&["nonsense"], ITSELF),
        // All are ours: the first of them has asked.
        (&["192.0.2.7, 192.0.2.8"], "192.0.2.7"),
        // Lines are one list; empty members are none.
        (&["6.6.6.6", "203.0.113.9"], "203.0.113.9"),
        (&["203.0.113.9", "192.0.2.8", "192.0.2.7"], "203.0.113.9"),
        (
            &["6.6.6.6, 203.0.113.9", "", " , ,, 192.0.2.8 ,"],
            "203.0.113.9",
        ),
        (&[""], ITSELF),
        (&[",,,"], ITSELF),
    ] {
        let lines: Vec<String> = chain
            .iter()
            .map(|line| format!("X-Forwarded-For: {line}"))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(seen(XForwardedFor, &lines).0, expected, "{chain:?}");
    }
    let many = vec!["192.0.2.8"; 98].join(", ");
    let line = format!("X-Forwarded-For: 6.6.6.6, 203.0.113.9, {many}");
    assert_eq!(seen(XForwardedFor, &[&line]).0, "203.0.113.9");
}

#[test]
fn elements_of_forwarded() {
    for (lines, expected, is_secure) in [
        (&["for=203.0.113.9"][..], "203.0.113.9", false),
        (&["For=203.0.113.9;Proto=HTTPS"], "203.0.113.9", true),
        (
            &["proto=\"https\";for=203.0.113.9;by=192.0.2.1"],
            "203.0.113.9",
            true,
        ),
        (
            &["for=203.0.113.9;host=\"a,b;for=6.6.6.6\";proto=https"],
            "203.0.113.9",
            true,
        ),
        (&["for=\"203.\\0.113.9\""], "203.0.113.9", false),
        (&["for=\"\\[2001:db8::9\\]:\\80\""], "2001:db8::9 80", false),
        // Not as the standard has it, but as proxies write it.
        (&["for=[2001:db8::9]:80"], "2001:db8::9 80", false),
        (&["for=203.0.113.9 ; proto=https"], "203.0.113.9", true),
        (&[";;for=203.0.113.9;;proto=https;"], "203.0.113.9", true),
        // Who says nothing of its client, or nothing that can be read, stands for it.
        (&["for=6.6.6.6, proto=https"], ITSELF, true),
        (&["for=6.6.6.6, for=_hidden;proto=https"], ITSELF, true),
        (
            &["for=6.6.6.6, for=203.0.113.9;for=203.0.113.8"],
            ITSELF,
            false,
        ),
        (&["for=6.6.6.6, for"], ITSELF, false),
        (&["for=6.6.6.6, for="], ITSELF, false),
        (&["for=6.6.6.6, =203.0.113.9"], ITSELF, false),
        (&["for=6.6.6.6, for =203.0.113.9"], ITSELF, false),
        (
            &["for=6.6.6.6, for=203.0.113.9 for=203.0.113.8"],
            ITSELF,
            false,
        ),
        (&["for=6.6.6.6, for=\"203.0.113.9\"x"], ITSELF, false),
        (&["203.0.113.9"], ITSELF, false),
        // The client's own way to the first proxy counts, not that between proxies.
        (
            &["for=203.0.113.9;proto=https, for=192.0.2.8;proto=http"],
            "203.0.113.9",
            true,
        ),
        (
            &["for=203.0.113.9;proto=http, for=192.0.2.8;proto=https"],
            "203.0.113.9",
            false,
        ),
        (
            &["for=6.6.6.6;proto=https, for=203.0.113.9, for=192.0.2.8"],
            "203.0.113.9",
            false,
        ),
        (
            &["for=6.6.6.6;proto=https", "for=203.0.113.9"],
            "203.0.113.9",
            false,
        ),
        // Whatever a client opens, it cannot swallow what is written behind it.
        (&["for=6.6.6.6;x=\", for=203.0.113.9"], "203.0.113.9", false),
        (
            &["for=\"6.6.6.6, for=\"203.0.113.9\""],
            "203.0.113.9",
            false,
        ),
        (
            &["for=6.6.6.6;x=\"\\, for=203.0.113.9;host=\"a,\\\"b\\\\\""],
            "203.0.113.9",
            false,
        ),
        (&["for=\"6.6.6.6", "for=203.0.113.9"], "203.0.113.9", false),
        (&["for=\"6.6.6.6", "for=192.0.2.8"], "192.0.2.8", false),
    ] {
        let lines: Vec<String> = lines
            .iter()
            .map(|line| format!("Forwarded: {line}"))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let expected = (expected.to_owned(), is_secure);
        assert_eq!(seen(Forwarded, &lines), expected, "{lines:?}");
    }
}

#[test]
fn x_forwarded_proto_counts_beside_x_forwarded_for() {
    for (proto, is_secure) in [
        (&["https"][..], true),
        (&["HTTPS"], true),
        (&["http, https"], true),
        (&["http", "https"], true),
        (&["https, "], true),
        (&["https, http"], false),
        (&["https", "http"], false),
        (&["http"], false),
        (&["httpss"], false),
        (&[""], false),
        (&[], false),
    ] {
        let mut lines: Vec<String> = proto
            .iter()
            .map(|line| format!("X-Forwarded-Proto: {line}"))
            .collect();
        lines.push("X-Forwarded-For: 203.0.113.9".to_owned());
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let expected = ("203.0.113.9".to_owned(), is_secure);
        assert_eq!(seen(XForwardedFor, &lines), expected, "{proto:?}");
    }
}

/// A proxy that writes one of them passes the other on as its client has sent it.
#[test]
fn the_field_that_is_not_named_changes_nothing() {
    let lines = [
        "X-Forwarded-For: 203.0.113.9",
        "Forwarded: for=6.6.6.6;proto=https",
    ];
    let expected = ("203.0.113.9".to_owned(), false);
    assert_eq!(seen(XForwardedFor, &lines), expected);
    let lines = [
        "X-Forwarded-For: 6.6.6.6",
        "X-Forwarded-Proto: https",
        "Forwarded: for=203.0.113.9",
    ];
    assert_eq!(seen(Forwarded, &lines), expected);
    assert_eq!(seen(Forwarded, &lines[..2]).0, ITSELF);
}

#[test]
fn only_those_who_are_named_are_believed() {
    const FIELDS: &str = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n";
    for (proxies, peer, is_believed) in [
        (&[][..], "192.0.2.1:80", false),
        (&["198.51.100.0/24"], "192.0.2.1:80", false),
        (&["unix"], "192.0.2.1:80", false),
        (&["unix"], "127.0.0.1:80", false),
        (&["127.0.0.1"], "unix", false),
        (&["192.0.2.0/24"], "unix", false),
        (&["192.0.2.1"], "192.0.2.2:80", false),
        (&["192.0.2.1"], "192.0.2.1:80", true),
        (&["192.0.2.1"], "[::ffff:192.0.2.1]:80", true),
        (&["192.0.2.77/24"], "192.0.2.1:80", true),
        (&["::ffff:192.0.2.1"], "192.0.2.1:80", true),
        (&["::ffff:192.0.2.0/120"], "192.0.2.1:80", true),
        (&["198.51.100.0/24", "192.0.2.0/24"], "192.0.2.1:80", true),
        (&["2001:db8::/32"], "[2001:db8:1::2]:80", true),
        (&["::1"], "[::1]:80", true),
        (&["0.0.0.0/0"], "192.0.2.1:80", true),
        (&["192.0.2.0/24", "unix"], "unix", true),
    ] {
        let config = trusting(proxies, XForwardedFor);
        let seen = seen_from(&config, peer, &[FIELDS, "", FIELDS]);
        let believed = Seen {
            client: "203.0.113.9".to_owned(),
            is_secure: true,
            unnamed_proxy: None,
        };
        for index in [0, 2] {
            assert_eq!(seen[index] == believed, is_believed, "{proxies:?} {peer}");
        }
        assert_ne!(
            seen[1], believed,
            "nothing of one request is the next one's"
        );
        assert_eq!((seen[1].is_secure, seen.len()), (false, 3));
    }
}

#[test]
fn what_no_proxy_can_be_called() {
    for text in [
        "",
        "localhost",
        "10.0.0.0/33",
        "10.0.0/8",
        "10.0.0.1:80",
        "[::1]",
        "unix:",
        "unix:/run/x",
        "10.0.0.1-10.0.0.9",
    ] {
        let refused = text.parse::<TrustedProxy>().unwrap_err();
        assert!(refused.contains("10.0.0.0/8"), "{text}: {refused}");
    }
}

#[test]
fn a_proxy_on_this_machine_that_is_not_named_is_reported_once() {
    const VIA: &str = "X-Forwarded-For: 203.0.113.9\r\n";
    const STANDARD: &str = "forwarded: for=203.0.113.9\r\n";
    const BOTH: &str = "Forwarded: for=203.0.113.9\r\nx-forwarded-for: 203.0.113.9\r\n";
    let seen = [Some(XForwardedFor)];
    for (proxies, peer, requests, expected) in [
        (&[][..], "127.0.0.1:80", &[VIA][..], &seen[..]),
        (&[], "127.0.0.1:80", &[VIA, VIA], &[seen[0], None]),
        (&[], "127.0.0.1:80", &[STANDARD], &[Some(Forwarded)]),
        (&[], "127.0.0.1:80", &[BOTH], &seen),
        (&[], "[::1]:80", &[VIA], &seen),
        (&[], "[::ffff:127.0.0.1]:80", &[VIA], &seen),
        (&[], "unix", &[VIA], &seen),
        // A client on this machine, or one whose first request had no such field.
        (&[], "127.0.0.1:80", &["", VIA], &[None, None]),
        (
            &[],
            "127.0.0.1:80",
            &["X-Forwarded-Proto: https\r\n"],
            &[None],
        ),
        // From elsewhere it is more likely made up.
        (&[], "192.0.2.1:80", &[VIA], &[None]),
        // Another one is named, or the same one by another address.
        (&["192.0.2.1"], "127.0.0.1:80", &[VIA], &seen),
        (&["127.0.0.1"], "[::1]:80", &[VIA], &seen),
        (&["127.0.0.1"], "unix", &[VIA], &seen),
        (&["192.0.2.1"], "192.0.2.7:80", &[VIA], &[None]),
        (&["127.0.0.1"], "127.0.0.1:80", &[VIA], &[None]),
        (&["unix"], "unix", &[VIA], &[None]),
    ] {
        let seen = seen_from(&trusting(proxies, XForwardedFor), peer, requests);
        let seen: Vec<_> = seen.iter().map(|it| it.unnamed_proxy).collect();
        assert_eq!(seen, expected, "{proxies:?} {peer} {requests:?}");
    }
}

/// Whatever a client sends, what its proxy adds behind it counts.
#[test]
fn nothing_in_front_changes_who_was_added_last() {
    const BYTES: &[u8] = b"for=FOR;,\"\\ \t[]:.%_1269proto=https";
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    for _ in 0..20_000 {
        let len = random(40);
        let front: String = (0..len)
            .map(|_| char::from(BYTES[random(BYTES.len())]))
            .collect();
        let lines: [Vec<String>; 2] =
            [("X-Forwarded-For", ""), ("Forwarded", "for=")].map(|(name, prefix)| {
                match random(3) {
                    0 => vec![format!("{name}: {front}, {prefix}203.0.113.9")],
                    1 => vec![format!(
                        "{name}: {front},{prefix}203.0.113.9,{prefix}192.0.2.8"
                    )],
                    _ => vec![
                        format!("{name}: {front}"),
                        format!("{name}: {prefix}203.0.113.9"),
                    ],
                }
            });
        for (field, lines) in [XForwardedFor, Forwarded].into_iter().zip(lines) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let expected = ("203.0.113.9".to_owned(), false);
            assert_eq!(seen(field, &lines), expected, "{lines:?}");
        }
    }
}

/// For whom a connection holds what it holds, if that is said of it.
fn held_for(driver: &Driver<'_>) -> Option<ClientKey> {
    let session = driver.session.as_ref().expect("an open connection");
    session.proxied_client()
}

fn key(client: &str) -> ClientKey {
    ClientKey::of(client.parse().expect(client))
}

#[test]
fn a_proxys_connection_is_held_for_the_client_of_its_request() {
    const NOBODY: ClientKey = ClientKey::NOBODY;
    let config = trusting(&["192.0.2.0/24"], XForwardedFor);
    let post = "POST / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: ";
    let steps = [
        ("", NOBODY),
        (post, NOBODY),
        (
            "203.0.113.9\r\nContent-Length: 4\r\n\r\n12",
            key("203.0.113.9"),
        ),
        ("34", NOBODY),
        (post, NOBODY),
        (
            "2001:db8::7\r\nContent-Length: 2\r\n\r\n1",
            key("2001:db8::"),
        ),
        ("2", NOBODY),
    ];
    let from = |peer: &str| Driver::from_peer(&config, peer.parse().ok(), echo);
    let (mut proxied, mut direct) = (from("192.0.2.1:4000"), from("203.0.113.1:4000"));
    for (bytes, client) in steps {
        proxied.feed(bytes.as_bytes());
        assert_eq!(held_for(&proxied), Some(client), "{bytes:?}");
        direct.feed(bytes.as_bytes());
        assert_eq!(held_for(&direct), None, "{bytes:?}");
    }
    // Until the response has left, and not for what was no request.
    for (lines, client) in [
        (
            "Host: h\r\nX-Forwarded-For: 203.0.113.9",
            key("203.0.113.9"),
        ),
        ("X-Forwarded-For: 203.0.113.9", NOBODY),
    ] {
        let mut driver = from("192.0.2.1:4000");
        driver.hold_output = true;
        driver.feed(format!("GET / HTTP/1.1\r\n{lines}\r\n\r\n").as_bytes());
        assert_eq!(held_for(&driver), Some(client), "{lines:?}");
        driver.release_output();
        assert_eq!(held_for(&driver), Some(NOBODY));
    }
}

#[test]
fn of_several_clients_on_one_connection_it_is_held_for_the_one_whose_request_holds_most() {
    let config = trusting(&["192.0.2.0/24"], XForwardedFor);
    let mut driver = Driver::from_peer(&config, "192.0.2.1:4000".parse().ok(), echo);
    let (mut client, bytes) = Http2Bytes::begin();
    driver.feed(&bytes);
    assert_eq!(held_for(&driver), Some(ClientKey::NOBODY));
    let padding = "x".repeat(12_000);
    for (stream, from, padding, most) in [
        (1, "203.0.113.1", "", "203.0.113.1"),
        (3, "203.0.113.3", "", "203.0.113.1"),
        (5, "203.0.113.5", &padding[..], "203.0.113.5"),
    ] {
        let fields = [("x-forwarded-for", from), ("x-padding", padding)];
        driver.feed(&client.request(stream, ("POST", "/"), &fields, false));
        assert_eq!(held_for(&driver), Some(key(most)), "{stream}");
    }
    for (stream, most) in [(5, "203.0.113.1"), (1, "203.0.113.3")] {
        driver.feed(&Http2Bytes::last_content(stream, b"all"));
        assert_eq!(held_for(&driver), Some(key(most)), "{stream}");
    }
    driver.feed(&Http2Bytes::last_content(3, b"all"));
    assert_eq!(held_for(&driver), Some(ClientKey::NOBODY));
}
