//! Random operations: whatever comes in whichever order and in whichever pieces, each request becomes what its
//! path says, unless it is given up.

use bytes::Bytes;
use fastrand::Rng;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use loadline_proto::{ClientEvent, Http2Fields};

use super::ends::{Ends, get, reply, request, reset};
use super::server::{send, serve};
use crate::app::pattern;

/// Runs, each with a seed of its own; and operations of each.
const RUNS: u64 = 200;
const OPERATIONS: usize = 600;
const SLOTS: u32 = 12;
/// Content of one request.
const CONTENT_MAX: usize = 100_000;
/// Paths of responses without regard to content; behind them those that have regard to it.
const PATHS: [&str; 6] = [
    "/bytes/0",
    "/bytes/1",
    "/bytes/20000",
    "/bytes/120000",
    "/early",
    "/break",
];
const METHODS_OF_ECHO: [&str; 2] = ["POST", "PUT"];

/// What is out in a slot.
#[derive(Clone, Copy)]
struct Asked {
    /// Which of the connection's requests.
    request: usize,
    /// Bytes of its content.
    len: usize,
    /// It was sent before the server had said how many it takes.
    is_early: bool,
}

struct Run {
    rng: Rng,
    ends: Ends,
    out: [Option<Asked>; SLOTS as usize],
    answered: usize,
}

#[test]
fn random_operations() {
    let seed = std::env::var("LOADLINE_SEED").ok();
    let seeds = match seed.and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..RUNS,
    };
    let mut answered = 0;
    for seed in seeds.clone() {
        println!("LOADLINE_SEED={seed}"); // shown if it fails
        let mut run = Run::new(seed);
        for _ in 0..OPERATIONS {
            run.operate();
        }
        answered += run.end();
    }
    let runs = (seeds.end - seeds.start) as usize;
    assert!(answered > 5 * runs, "{answered} in {runs}");
}

/// As in most tests; and responses that do not wait for content, and that are broken off.
async fn respond(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let path = request.uri().path().to_owned();
    let status: u16 = match &*path {
        "/early" => 413,
        "/break" => 200,
        _ => return serve(request, respond).await,
    };
    let head = Response::builder().status(status).body(()).unwrap();
    // Whoever gives a request up takes no response.
    let Ok(mut stream) = respond.send_response(head, path == "/early") else {
        return;
    };
    if path == "/break" && send(&mut stream, pattern(500).into()).await.is_some() {
        stream.send_reset(Reason::INTERNAL_ERROR);
    }
}

fn requests() -> Vec<Http2Fields> {
    let mut requests: Vec<_> = PATHS.map(get).into();
    let echoes = METHODS_OF_ECHO.map(|method| request(method, "/echo", &[("x-method", method)]));
    requests.extend(echoes);
    requests
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut builder = Builder::new();
        builder.initial_window_size(*rng.choice(&[0, 1, 1_000, 65_535, 1 << 20]).unwrap());
        builder.initial_connection_window_size(*rng.choice(&[65_535, 70_000, 1 << 20]).unwrap());
        builder.header_table_size(*rng.choice(&[0, 100, 4096, 65_536]).unwrap());
        builder.max_frame_size(*rng.choice(&[16_384, 100_000]).unwrap());
        builder.data_frame_budget(1 << 30); // small frames are what small windows make
        builder.max_pending_accept_reset_streams(1_000);
        if let Some(most) = rng.choice(&[None, Some(1), Some(5)]).unwrap() {
            builder.max_concurrent_streams(*most);
        }
        Self {
            rng,
            ends: Ends::new(&builder, SLOTS, &requests(), respond),
            out: [None; SLOTS as usize],
            answered: 0,
        }
    }

    fn operate(&mut self) {
        match self.rng.u8(..16) {
            0..5 => self.ask(),
            5 if self.rng.u8(..4) == 0 => self.give_up(),
            6 if self.rng.u8(..4) == 0 => self.change_windows(),
            _ => {
                self.ends.cut = *self.rng.choice(&[1, 9, 100, 5_000, 100_000]).unwrap();
                self.ends.step();
            }
        }
        self.judge();
    }

    fn ask(&mut self) {
        let slot = self.rng.u32(..SLOTS);
        if self.out[slot as usize].is_some() || !self.ends.client.has_room() {
            return;
        }
        let request = self.rng.usize(..PATHS.len() + METHODS_OF_ECHO.len());
        let len = match PATHS.get(request) {
            Some(&"/early") | None => self.rng.usize(..CONTENT_MAX),
            Some(_) => 0,
        };
        self.out[slot as usize] = Some(Asked {
            request,
            len,
            is_early: !self.ends.client.is_established(),
        });
        self.ends.request(slot, request, pattern(len));
    }

    fn give_up(&mut self) {
        let slot = self.rng.u32(..SLOTS);
        self.ends.client.cancel(slot);
        self.out[slot as usize] = None;
    }

    fn change_windows(&mut self) {
        if self.ends.server.is_open() {
            let size = *self.rng.choice(&[0, 10, 5_000, 100_000]).unwrap();
            let connection = self.ends.server.connection();
            // The last one may not be acknowledged yet.
            let _ = connection.set_initial_window_size(size);
            connection.set_target_window_size(self.rng.u32(65_535..1 << 20));
        }
    }

    /// What has happened is what had to.
    fn judge(&mut self) {
        assert!(self.ends.server.ended().is_none());
        while let Some(event) = self.ends.seen.events.pop_front() {
            let (ClientEvent::Reply { slot, .. } | ClientEvent::Failed { slot, .. }) = event else {
                panic!("{event:?}");
            };
            let at = slot as usize;
            let asked = self.out[at].take().expect("it is out");
            if event == reset(slot, Reason::REFUSED_STREAM) {
                assert!(asked.is_early, "{event:?}");
                continue;
            }
            let path = PATHS.get(asked.request).copied().unwrap_or("/echo");
            let content = &self.ends.seen.content[at];
            let (expected, len) = match path {
                "/early" => (reply(slot, 413, 0), 0),
                "/break" => (reset(slot, Reason::INTERNAL_ERROR), content.len()),
                _ => {
                    let known = path.strip_prefix("/bytes/");
                    let len = known.map_or(asked.len, |len| len.parse().unwrap());
                    (reply(slot, 200, len as u64), len)
                }
            };
            assert_eq!(event, expected, "{path}");
            assert!(*content == pattern(len), "{path} {len}");
            if path == "/echo" {
                let sum = format!("200 x-sum: {len}");
                assert_eq!(self.ends.seen.fields[at].last(), Some(&sum));
            }
            self.answered += 1;
        }
    }

    /// Everything comes to its end; returns how many responses were looked at.
    fn end(mut self) -> usize {
        self.ends.cut = usize::MAX;
        let is_widened = (0..100).any(|_| {
            self.ends.step();
            let connection = self.ends.server.connection();
            connection.set_target_window_size(1 << 20);
            connection.set_initial_window_size(100_000).is_ok()
        });
        assert!(is_widened);
        self.ends
            .until("all have ended", |it| it.client.open_count() == 0);
        self.judge();
        assert!(self.out.iter().all(Option::is_none));
        self.ends.end();
        self.answered
    }
}
