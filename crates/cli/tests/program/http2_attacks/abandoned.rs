//! Requests that are reset while their blocking steps are carried out, or wait for that: each counts until whoever
//! has its step is done with it.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};

use loadline_proto::http2::frame::{ErrorCode, Kind, WINDOW_BYTES, write_frame};

use super::Target;
use super::attacks::{Attack, Count, Ends, WHOLE, WORK, head, opening, ping};
use super::client::Client;
use crate::admin::{admin_address, ask};
use crate::util::{Server, site, until};

/// Each request sleeps, for longer than it takes to reset those behind it.
const OPTIONS: &str = "--admin-listen 127.0.0.1:0 --latency-goal 10m --service-time 2s \
    --trust-proxy 127.0.0.2";
const PROXY: [u8; 4] = [127, 0, 0, 2];

/// By default as many as there may be.
const STREAMS: u32 = 128;
/// Behind a proxy one client may hold a quarter of them: these are more, though some are carried out meanwhile.
const STREAMS_OF_CLIENT: u32 = 40;
/// Requests behind those that were reset, and how many of them are refused at least: steps may end meanwhile.
const MORE: u32 = 72;
const REFUSED_MIN: usize = 60;
const MORE_OF_CLIENT: u32 = 8;

/// An attack in two parts: its frames are carried out before the others are sent.
pub(super) struct InTwo {
    pub(super) attack: Attack,
    then: Vec<u8>,
    source: [u8; 4],
}

pub(super) fn attacks() -> [InTwo; 2] {
    [by_a_client(), by_a_client_of_a_proxy()]
}

fn by_a_client() -> InTwo {
    let get = |number, out: &mut Vec<u8>| request(number, "/", None, out);
    let mut frames = opening(WINDOW_BYTES);
    (0..STREAMS).for_each(|number| get(number, &mut frames));
    let mut then = Vec::new();
    (0..STREAMS).for_each(|number| reset(number, &mut then));
    (STREAMS..STREAMS + MORE).for_each(|number| get(number, &mut then));
    InTwo {
        attack: Attack {
            name: "requests that are reset while workers have them",
            row: WORK,
            frames,
            ends: Ends::StreamsAtLeast(ErrorCode::RefusedStream, REFUSED_MIN),
            counts: vec![
                Count::at_least("http2", "refused_streams", REFUSED_MIN as u64),
                Count::exactly("http2", "client_resets", u64::from(STREAMS)),
            ],
        },
        then,
        source: [127, 0, 0, 1],
    }
}

fn by_a_client_of_a_proxy() -> InTwo {
    let get = |number, out: &mut Vec<u8>| request(number, "/", Some("203.0.113.7"), out);
    let mut frames = opening(WINDOW_BYTES);
    (0..STREAMS_OF_CLIENT).for_each(|number| get(number, &mut frames));
    let mut then = Vec::new();
    (0..STREAMS_OF_CLIENT).for_each(|number| reset(number, &mut then));
    let end = STREAMS_OF_CLIENT + MORE_OF_CLIENT;
    (STREAMS_OF_CLIENT..end).for_each(|number| get(number, &mut then));
    request(end, "/missing", Some("203.0.113.8"), &mut then);
    InTwo {
        attack: Attack {
            name: "the same by one client of a proxy",
            row: WORK,
            frames,
            ends: Ends::RequestsBeside(429, MORE_OF_CLIENT as usize, 404),
            counts: vec![
                Count::exactly("http2", "floods", u64::from(MORE_OF_CLIENT)),
                Count::exactly("http2", "client_resets", u64::from(STREAMS_OF_CLIENT)),
            ],
        },
        then,
        source: PROXY,
    }
}

/// The attacks by what is reset while it is carried out, one after the other.
pub(super) fn withstand(architecture: &str) {
    let site = site();
    let own = ["--architecture", architecture];
    let words: Vec<&str> = OPTIONS.split_whitespace().chain(own).collect();
    let server = Server::start(site.path(), &words);
    let target = Target {
        address: server.address(),
        pages: admin_address(&server),
        is_sequential: architecture == "sequential",
    };
    for InTwo {
        attack,
        then,
        source,
    } in attacks()
    {
        let name = format!("{architecture}, {}", attack.name);
        let before = target.at_rest();
        let stream = server.connect_from(source);
        let mut client = Client::new(&stream);
        carry_out(attack.frames.clone(), &stream, &mut client);
        carry_out(then, &stream, &mut client);
        while !attack.ends.can_stop(&client.seen) && client.take() {}
        assert!(
            attack.ends.have_come(&client.seen),
            "{name}: {:?}, {:?}",
            attack.ends,
            client.seen
        );
        let _ = stream.shutdown(Shutdown::Both);
        let grown = until(&name, || attack.grown(&before, &target.at_rest()));
        for (count, grown) in attack.counts.iter().zip(grown) {
            assert!(grown <= count.most, "{name}: {count:?}, {grown}");
        }
        let page = (200, "<p>hello</p>".to_owned());
        assert_eq!(ask(target.address, "/"), page, "{name}");
    }
}

/// Sends these frames, and reads until the ping behind them is answered: by then the server has begun all of their
/// requests that it begins, or waits for its only thread.
fn carry_out(mut frames: Vec<u8>, mut stream: &TcpStream, client: &mut Client<'_>) {
    ping(&mut frames);
    stream.write_all(&frames).unwrap();
    let pongs = client.seen.pongs;
    while client.seen.pongs == pongs {
        assert!(client.take(), "it has ended: {:?}", client.seen);
    }
}

fn request(number: u32, path: &str, client: Option<&str>, out: &mut Vec<u8>) {
    let of_client = client.map(|client| ("x-forwarded-for", client));
    let block = head("GET", path, of_client.as_slice());
    write_frame(Kind::Headers, WHOLE, 2 * number + 1, &block, out);
}

fn reset(number: u32, out: &mut Vec<u8>) {
    let cancel = (ErrorCode::Cancel as u32).to_be_bytes();
    write_frame(Kind::RstStream, 0, 2 * number + 1, &cancel, out);
}
