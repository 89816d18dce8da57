//! Twice and ten times what the server can carry, for 20 s, with slow uploads beside it: what it can carry
//! is good, second by second.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::alone;
use crate::program::{Server, site};
use crate::util::{both, load, number, record};

/// Two workers of 10 ms can do 200 a second.
const OPTIONS: [&str; 4] = ["--service-time", "10ms", "--workers", "2"];
const GOOD_PER_S_MIN: u64 = 180;
const SECONDS: usize = 20;
/// While the server learns how long its requests take, and its queue fills.
const FIRST_SECONDS: usize = 2;
const UPLOADS: usize = 2;
/// An upload of 1,000 bytes a second: the server asks for 500.
const PIECE: [u8; 100] = [b'x'; 100];
const PIECE_EVERY: Duration = Duration::from_millis(100);

#[test]
#[ignore = "long: 25 s, and a speed: it has the machine"]
fn twice_the_capacity_leaves_nine_tenths_of_it_in_each_second() {
    assert_goodput(400);
}

#[test]
#[ignore = "long: 25 s, and a speed: it has the machine"]
fn ten_times_the_capacity_leaves_nine_tenths_of_it_in_each_second() {
    assert_goodput(2000);
}

fn assert_goodput(rate_per_s: u32) {
    let _alone = alone();
    let site = site();
    let server = Server::start(site.path(), &OPTIONS);
    let to = server.address();
    let group = thread::scope(|scope| {
        let _uploads: Vec<_> = (0..UPLOADS)
            .map(|_| {
                let (lasts, over) = channel::<()>();
                scope.spawn(move || upload_slowly(to, &over));
                lasts
            })
            .collect();
        group(to, rate_per_s)
    });
    let seconds = group["series"].as_array().unwrap();
    let good: Vec<u64> = seconds
        .iter()
        .map(|second| number(&second["good"]))
        .collect();
    let counted = &good[FIRST_SECONDS..SECONDS];
    let tally = &group["total"]["tally"];
    assert!(
        counted.iter().all(|good| *good >= GOOD_PER_S_MIN),
        "{rate_per_s} requests a second, good ones by second: {good:?}; {tally}"
    );
}

/// What came of a load by the clock, whose clients give up after two seconds.
fn group(to: SocketAddr, rate_per_s: u32) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.json");
    let line = format!(
        "http://{to}/ -c 4096 --rate {rate_per_s} -d {SECONDS}s --timeout 2s \
         --latency-goal 1s --quiet --allow-client-limited --json {}",
        path.display()
    );
    let output = load(&line);
    assert_eq!(output.status.code(), Some(0), "{line}: {}", both(&output));
    record(&path)["groups"][0].take()
}

/// Sends content piece by piece until it is over; begins again when the server has closed.
fn upload_slowly(to: SocketAddr, over: &Receiver<()>) {
    let mut upload = None;
    while over.recv_timeout(PIECE_EVERY) == Err(RecvTimeoutError::Timeout) {
        upload = go_on(upload, to).ok();
    }
}

fn go_on(upload: Option<TcpStream>, to: SocketAddr) -> io::Result<TcpStream> {
    match upload {
        Some(mut stream) => {
            stream.write_all(&PIECE)?;
            Ok(stream)
        }
        None => {
            let mut stream = TcpStream::connect(to)?;
            stream.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n")?;
            Ok(stream)
        }
    }
}
