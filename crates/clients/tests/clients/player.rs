use std::io::Write;
use std::sync::mpsc;

use loadline_clients::player;

use crate::server;
use crate::user_groups::{AGES, TestRun, get, plan};

/// A file of 500,000 bytes; a second of video is 100,000.
const LENGTH: u64 = 500_000;
const BITS_PER_SECOND: u64 = 800_000;

#[test]
fn players_ask_for_ranges_until_they_are_ten_seconds_ahead() {
    let (notify, notified) = mpsc::channel();
    let address = server::each(move |_, mut stream| {
        while let Some(head) = server::read_head(&mut stream) {
            let text = String::from_utf8(head).unwrap();
            let (_, range) = text.split_once("Range: bytes=").unwrap();
            let (first, last) = range.trim_end().split_once('-').unwrap();
            let first: u64 = first.parse().unwrap();
            let last = last.parse::<u64>().unwrap().min(LENGTH - 1);
            let bytes = last - first + 1;
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Length: {bytes}\r\n\
                 Content-Range: bytes {first}-{last}/{LENGTH}\r\n\r\n"
            );
            let answer = [head.as_bytes(), &vec![b'x'; bytes as usize]].concat();
            if stream.write_all(&answer).is_err() {
                return;
            }
            let _ = notify.send((first, last));
        }
    });
    let user_group = player::user_group(BITS_PER_SECOND, get()).of(1, 1);
    let run = TestRun::begin(plan(address, user_group, AGES));
    let spec: Vec<(u64, u64)> = (0..6).map(|_| notified.recv().unwrap()).collect();
    let tally = run.stop().tally;
    let file = [(0, 199_999), (200_000, 399_999), (400_000, 499_999)];
    assert_eq!(spec, [file, file].concat());
    assert_eq!(tally.errors_total(), 0, "{tally:?}");
    assert_eq!(tally.offered, tally.good + tally.unfinished);
    assert!(
        tally.good >= 5 && tally.content_bytes >= LENGTH,
        "{tally:?}"
    );
    assert_eq!(tally.statuses[1], tally.good);
}
