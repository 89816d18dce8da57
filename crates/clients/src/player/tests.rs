//! A player on a simulated link, with a clock that the test moves.

use std::collections::VecDeque;
use std::sync::Arc;

use loadline_load::Prepared;
use loadline_record::Tally;

use super::*;
use crate::caller::Calling;
use crate::harness::Harness;

const NS_PER_S: u64 = 1_000_000_000;
/// Pieces in which the link delivers.
const PIECE_BYTES: usize = 10_000;

/// A link of limited bandwidth, and a server behind it.
#[derive(Default)]
struct Link {
    bytes_per_second: u64,
    /// Bytes of the file; `None`: the server knows no ranges.
    length: Option<u64>,
    ranges: Vec<(u64, u64)>,
    coming: VecDeque<u8>,
}

impl Link {
    fn new(bytes_per_second: u64, length: Option<u64>) -> Self {
        Self {
            bytes_per_second,
            length,
            ..Self::default()
        }
    }

    fn answer(&mut self, request: &[u8]) {
        let text = String::from_utf8(request.to_vec()).unwrap();
        let (_, range) = text.split_once("Range: bytes=").unwrap();
        let (first, last) = range.trim_end().split_once('-').unwrap();
        let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
        self.ranges.push((first, last));
        let Some(length) = self.length else {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
            self.coming.extend(head.bytes());
            self.coming.extend(std::iter::repeat_n(0, 1_000_000));
            return;
        };
        let last = last.min(length - 1);
        let bytes = last - first + 1;
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {bytes}\r\n\
             Content-Range: bytes {first}-{last}/{length}\r\n\r\n"
        );
        self.coming.extend(head.bytes());
        self.coming.extend(std::iter::repeat_n(0, bytes as usize));
    }
}

/// A player that has done nothing yet.
fn player() -> Harness<Calling<Player>> {
    let spec = RequestSpec {
        request: Prepared::get("here", "/film"),
        expectation: Expectation {
            statuses: vec![206],
            ..Expectation::default()
        },
        timeout_ns: 5 * NS_PER_S,
    };
    Harness::new(Box::new(Calling {
        caller: Caller::new(Arc::new(spec), 0),
        behaviour: Player::new(RATE),
    }))
}

/// Plays for some seconds; returns the player as well, and when it has sent requests.
fn play(link: &mut Link, seconds: u64) -> (Tally, Player, Vec<u64>) {
    let mut client = player();
    let (end_ns, mut sent_ns) = (client.now_ns + seconds * NS_PER_S, Vec::new());
    loop {
        client.is_ending = client.now_ns >= end_ns;
        match client.order() {
            Order::Connect => client.on_event(Event::Connected),
            Order::Close { .. } => link.coming.clear(),
            Order::Done => break,
            Order::Send(bytes) => {
                sent_ns.push(client.now_ns);
                link.answer(&bytes);
                client.on_event(Event::Sent);
            }
            Order::SleepUntil { ns } => client.wakes_at(ns.min(end_ns)),
            Order::ReceiveUntil { bytes_max, ns } => {
                let count = link.coming.len().min(bytes_max).min(PIECE_BYTES);
                let come_ns = client.now_ns + count as u64 * NS_PER_S / link.bytes_per_second;
                if count == 0 || come_ns > ns {
                    // What is on its way begins anew: the link loses a little by it.
                    client.wakes_at(ns);
                } else {
                    client.now_ns = come_ns;
                    let bytes: Vec<u8> = link.coming.drain(..count).collect();
                    client.on_event(Event::Received(&bytes));
                }
            }
            order @ (Order::Receive { .. } | Order::AwaitStart | Order::GiveUp(_)) => {
                panic!("{order:?}")
            }
        }
    }
    (client.tally(), client.user.behaviour, sent_ns)
}

/// A second of video is 100,000 bytes.
const RATE: u64 = 800_000;

#[test]
fn a_fast_link_never_stalls_and_a_segment_is_asked_for_every_two_seconds() {
    let mut link = Link::new(10_000_000, Some(1 << 40));
    let (tally, player, sent_ns) = play(&mut link, 60);
    assert_eq!((tally.stalls, tally.stalled_ns), (0, 0));
    assert_eq!(tally.good, tally.sent);
    assert_eq!(tally.errors_total(), 0);
    // Ten seconds ahead as soon as possible, then as much as is played.
    let fetched = tally.content_bytes / 100_000;
    assert!((66..=70).contains(&fetched), "{fetched} s of video");
    for pair in sent_ns[6..].windows(2) {
        let gap_ns = pair[1] - pair[0];
        assert!(gap_ns.abs_diff(2 * NS_PER_S) < 100_000_000, "{gap_ns}");
    }
    for (number, range) in (0..).zip(&link.ranges) {
        assert_eq!(*range, (number * 200_000, number * 200_000 + 199_999));
    }
    let buffer = player.buffer.unwrap();
    let played_ns = buffer.played_ns;
    assert!(played_ns <= 60 * NS_PER_S && played_ns > 57 * NS_PER_S);
}

#[test]
fn half_the_rate_that_is_needed_plays_half_of_the_time() {
    let mut link = Link::new(50_000, Some(1 << 40));
    let (tally, player, _) = play(&mut link, 120);
    let buffer = player.buffer.unwrap();
    assert!(tally.stalls > 10, "{tally:?}");
    assert_eq!(tally.stalls, buffer.stalls);
    assert_eq!(tally.stalled_ns, buffer.stalled_ns);
    let share = buffer.played_ns as f64 / (120 * NS_PER_S) as f64;
    assert!((0.42..0.52).contains(&share), "{share}");
    assert_eq!(
        tally.errors_total(),
        0,
        "a slow link is no error: {tally:?}"
    );
    assert_eq!(tally.sent, tally.completed);
}

#[test]
fn a_stall_counts_up_to_the_end_of_the_run() {
    let (mut client, mut link) = (player(), Link::new(1, Some(1 << 40)));
    let ask = |client: &mut Harness<Calling<Player>>| match client.order() {
        Order::Send(bytes) => {
            client.on_event(Event::Sent);
            bytes
        }
        order => panic!("{order:?}"),
    };
    assert_eq!(client.order(), Order::Connect);
    client.on_event(Event::Connected);
    link.answer(&ask(&mut client));
    let video: Vec<u8> = link.coming.drain(..).collect();
    client.on_event(Event::Received(&video));
    // There are 2 s of video, and the next answer does not come.
    let _ = ask(&mut client);
    client.now_ns += 2 * NS_PER_S + NS_PER_S / 2;
    client.is_ending = true;
    let _ = client.order();
    let tally = client.tally();
    assert_eq!((tally.stalls, tally.stalled_ns), (1, NS_PER_S / 2));
    client.now_ns += NS_PER_S;
    let _ = client.order();
    assert_eq!(client.tally().stalled_ns, 0);
}

#[test]
fn after_the_end_of_the_file_it_begins_again() {
    let length = 500_000; // two and a half segments
    let mut link = Link::new(10_000_000, Some(length));
    let (tally, _, _) = play(&mut link, 30);
    assert_eq!(tally.stalls, 0);
    let expected = [(0, 199_999), (200_000, 399_999), (400_000, 499_999)];
    for (range, expected) in link.ranges.iter().zip(expected.iter().cycle()) {
        assert_eq!(range, expected);
    }
    assert!(link.ranges.len() > 12);
}

#[test]
fn a_server_that_sends_the_whole_file_is_cut_off_and_asked_again_after_a_pause() {
    let mut link = Link::new(10_000_000, None);
    let (tally, player, _) = play(&mut link, 10);
    assert_eq!(
        tally.errors_of(ErrorKind::OtherStatus),
        tally.errors_total()
    );
    assert_eq!(tally.sent, tally.errors_total());
    assert!((9..=11).contains(&tally.sent), "{tally:?}");
    assert_eq!(player.buffer.unwrap().played_ns, 0);
}

#[test]
fn a_range_up_to_the_largest_number_is_another_one() {
    let mut look = Look {
        last_byte: 9,
        ..Look::default()
    };
    let range = format!("Content-Range: bytes 0-{}/*", u64::MAX);
    look.head(format!("HTTP/1.1 206 Partial Content\r\n{range}\r\n\r\n").as_bytes());
    assert_eq!(look.fault, Some(ErrorKind::WrongContent));
    assert!(!look.is_video);
}
