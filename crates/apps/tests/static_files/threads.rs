//! Many threads on one handler while files are being replaced.

use std::cell::Cell;
use std::fs;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, SystemTime};

use loadline_apps::{StaticFiles, StaticOptions};
use loadline_base::Millis;
use loadline_proto::Handler;

use crate::site::{Answer, Site, answer_of, set_ahead, settled, wall_clock};

const VERSIONS: u64 = 150;
const READERS: usize = 4;

/// The content of a version: its number, as often as makes the length. Different versions have
/// different lengths.
fn content(version: u64, length: usize) -> String {
    format!("{version:08}").repeat(length / 8 + version as usize % 5)
}

/// The content, which may be compressed.
fn decoded_text(answer: &Answer) -> String {
    let mut text = String::new();
    match answer.field("Content-Encoding") {
        "" => text.push_str(answer.text()),
        _ => {
            let mut decoder = flate2::read::GzDecoder::new(&answer.content[..]);
            decoder.read_to_string(&mut text).unwrap();
        }
    }
    text
}

/// Asks until all versions were there, and checks that each answer is of one version, and that
/// none is older than a second.
fn read(
    handler: &StaticFiles,
    clock_ms: &AtomicU64,
    published: &[AtomicU64],
    done: &AtomicBool,
    length: usize,
) -> u64 {
    let mut local = handler.local();
    let mut answers = 0;
    while !done.load(Ordering::SeqCst) {
        let now = Millis(clock_ms.load(Ordering::SeqCst));
        // A millisecond or two may pass while another thread is just looking.
        let due = published
            .iter()
            .rposition(|at_ms| at_ms.load(Ordering::SeqCst) + 1100 <= now.0);
        let codings = ["", "Accept-Encoding: gzip\r\n"][answers as usize % 2];
        let head = format!("GET /f.txt HTTP/1.1\r\nHost: h\r\n{codings}\r\n").into_bytes();
        let answer = answer_of(handler, &mut local, now, head).0;
        let text = decoded_text(&answer);
        let version: u64 = text[..8].parse().unwrap();
        assert!(text == content(version, length), "mixed: version {version}");
        let due = due.unwrap_or_default() as u64;
        assert!(version >= due, "{version} where {due} was due");
        answers += 1;
    }
    answers
}

#[test]
fn answers_are_whole_and_not_out_of_date() {
    for memory_bytes_max in [256 << 10, 0] {
        let length = 20_000;
        let options = StaticOptions {
            memory_bytes_max,
            ..StaticOptions::default()
        };
        let site = Site::new(&[("f.txt", &content(0, length))], options);
        let clock_ms = AtomicU64::new(10_000);
        let published: Vec<AtomicU64> = (0..VERSIONS)
            .map(|_| AtomicU64::new(u64::MAX / 2))
            .collect();
        published[0].store(0, Ordering::SeqCst);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS)
                .map(|_| scope.spawn(|| read(&site.handler, &clock_ms, &published, &done, length)))
                .collect();
            for version in 1..VERSIONS {
                site.write("next.txt", content(version, length));
                fs::rename(site.path("next.txt"), site.path("f.txt")).unwrap();
                let now_ms = clock_ms.fetch_add(10, Ordering::SeqCst);
                published[version as usize].store(now_ms, Ordering::SeqCst);
                std::thread::yield_now();
            }
            done.store(true, Ordering::SeqCst);
            for reader in readers {
                assert!(reader.join().unwrap() > 0);
            }
        });
    }
}

#[test]
fn a_crowd_has_a_file_compressed_once() {
    let content = content(0, 200_000);
    let mut site = Site::new(&[("f.txt", &content)], settled());
    site.get("/f.txt");
    let (handler, now) = (&site.handler, site.now);
    let head = b"GET /f.txt HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n";
    let blocked: usize = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                scope.spawn(|| {
                    let (mut local, mut blocked) = (handler.local(), 0);
                    loop {
                        let (answer, more) = answer_of(handler, &mut local, now, head.to_vec());
                        assert!(decoded_text(&answer) == content);
                        blocked += more;
                        if answer.field("Content-Encoding") == "gzip" {
                            return blocked;
                        }
                    }
                })
            })
            .collect();
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .sum()
    });
    assert_eq!(blocked, 1, "the others got it as it is meanwhile");
}

/// A place where one thread waits until the test has looked at something.
struct Gate {
    step: Mutex<Step>,
    changed: Condvar,
}

#[derive(PartialEq, Eq)]
enum Step {
    Begun,
    Held,
    GoesOn,
}

impl Gate {
    const fn new() -> Self {
        Self {
            step: Mutex::new(Step::Begun),
            changed: Condvar::new(),
        }
    }

    /// Holds the first thread that comes.
    fn hold(&self) {
        let mut step = self.step.lock().unwrap();
        if *step == Step::Begun {
            *step = Step::Held;
            self.changed.notify_all();
            let is_held = |step: &mut Step| *step == Step::Held;
            drop(self.changed.wait_while(step, is_held).unwrap());
        }
    }

    fn wait_until_held(&self) {
        let step = self.step.lock().unwrap();
        let limit = Duration::from_secs(60);
        let has_not_come = |step: &mut Step| *step == Step::Begun;
        let waited = self.changed.wait_timeout_while(step, limit, has_not_come);
        assert!(!waited.unwrap().1.timed_out(), "nobody comes");
    }

    fn open(&self) {
        *self.step.lock().unwrap() = Step::GoesOn;
        self.changed.notify_all();
    }
}

static MAKING: Gate = Gate::new();

thread_local! {
    /// Where the maker of a variant waits.
    static WAITS_AT: Cell<Option<&'static Gate>> = const { Cell::new(None) };
}

/// The time of day, for which the maker of a variant asks once it has compressed.
fn held_clock() -> SystemTime {
    if let Some(gate) = WAITS_AT.get() {
        gate.hold();
    }
    wall_clock()
}

/// While one coding was being made, a browser's next request had another one made, and so on.
#[test]
fn a_browser_has_no_other_coding_made_while_one_is_being_made() {
    let options = StaticOptions {
        wall_clock: held_clock,
        ..settled()
    };
    let mut site = Site::new(&[("f.txt", &content(0, 200_000))], options);
    site.get("/f.txt");
    let (handler, now) = (&site.handler, site.now);
    let head = b"GET /f.txt HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip, br, zstd\r\n\r\n";
    let ask = || {
        set_ahead(60);
        let (answer, blocked) = answer_of(handler, &mut handler.local(), now, head.to_vec());
        (answer.field("Content-Encoding").to_owned(), blocked)
    };
    let (meanwhile, made) = std::thread::scope(|scope| {
        let maker = scope.spawn(|| {
            WAITS_AT.set(Some(&MAKING));
            ask()
        });
        MAKING.wait_until_held();
        let meanwhile = [ask(), ask()];
        MAKING.open();
        (meanwhile, maker.join().unwrap())
    });
    assert_eq!(made, ("br".to_owned(), 1));
    for answer in meanwhile {
        assert_eq!(answer, (String::new(), 0));
    }
    assert_eq!(ask(), ("br".to_owned(), 0));
}

static MAKING_LATE: Gate = Gate::new();

/// It did, and was sent in place of the owner's until the file changed.
#[test]
fn what_is_made_does_not_replace_a_neighbour_that_came_meanwhile() {
    let options = StaticOptions {
        wall_clock: held_clock,
        ..settled()
    };
    let mut site = Site::new(&[("f.txt", &content(0, 20_000))], options);
    site.get("/f.txt");
    let handler = &site.handler;
    let ask = |at: Millis| {
        set_ahead(60);
        let head = b"GET /f.txt HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n".to_vec();
        let (answer, _) = answer_of(handler, &mut handler.local(), at, head);
        answer.content
    };
    let (now, later) = (site.now, Millis(site.now.0 + 1000));
    let (meanwhile, late) = std::thread::scope(|scope| {
        let maker = scope.spawn(|| {
            WAITS_AT.set(Some(&MAKING_LATE));
            ask(now)
        });
        MAKING_LATE.wait_until_held();
        site.write("f.txt.gz", "of its owner");
        let meanwhile = ask(later);
        MAKING_LATE.open();
        (meanwhile, maker.join().unwrap())
    });
    for content in [meanwhile, late, ask(later)] {
        assert_eq!(String::from_utf8_lossy(&content), "of its owner");
    }
}

/// Of two loads of `twice.txt`: the one that begins first, and the other one.
static TWO_LOADS: [Gate; 2] = [Gate::new(), Gate::new()];

fn hold_each_load(path: &[u8]) {
    if path == b"twice.txt.gz"
        && let Some(gate) = WAITS_AT.get()
    {
        gate.hold();
    }
}

/// The second entry took the place of the first one, so that each of many requests for a file that was not known could
/// have it compressed.
#[test]
fn loads_at_the_same_time_share_what_is_compressed() {
    let options = StaticOptions {
        before_looking: hold_each_load,
        ..settled()
    };
    let mut site = Site::new(&[("twice.txt", &content(0, 20_000))], options);
    // With it the loop would find the file by itself, where nothing waits.
    site.handler = site.handler.without_openat2();
    let (handler, now) = (&site.handler, site.now);
    let ask = |coding: &str, gate: Option<&'static Gate>| {
        set_ahead(60);
        WAITS_AT.set(gate);
        let line = format!("Accept-Encoding: {coding}\r\n");
        let head = format!("GET /twice.txt HTTP/1.1\r\nHost: h\r\n{line}\r\n");
        let (answer, blocked) = answer_of(handler, &mut handler.local(), now, head.into());
        (answer.field("Content-Encoding").to_owned(), blocked)
    };
    let [gate_1, gate_2] = &TWO_LOADS;
    let answers = std::thread::scope(|scope| {
        let first = scope.spawn(|| ask("br", Some(gate_1)));
        gate_1.wait_until_held();
        let second = scope.spawn(|| ask("gzip", Some(gate_2)));
        gate_2.wait_until_held();
        gate_1.open();
        let first = first.join();
        gate_2.open();
        [first.unwrap(), second.join().unwrap()]
    });
    for (answer, coding) in answers.into_iter().zip(["br", "gzip"]) {
        assert_eq!(answer, (coding.to_owned(), 1));
        assert_eq!(ask(coding, None), (coding.to_owned(), 0), "it is there");
    }
}

/// Of `slow.txt`: it has read the file, and waits before it looks for the neighbour.
static FIRST_LOAD: Gate = Gate::new();

fn hold_the_first(path: &[u8]) {
    if path == b"slow.txt.gz" {
        FIRST_LOAD.hold();
    }
}

/// The older state was kept, and sent for up to a second after the newer one.
#[test]
fn a_load_that_ends_late_does_not_replace_a_newer_one() {
    let options = StaticOptions {
        before_looking: hold_the_first,
        ..settled()
    };
    let mut site = Site::new(&[("slow.txt", "old")], options);
    // With it the loop would find the file by itself, where nothing waits.
    site.handler = site.handler.without_openat2();
    let handler = &site.handler;
    let get = |at_ms: u64| {
        set_ahead(60);
        let head = b"GET /slow.txt HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
        let (answer, _) = answer_of(handler, &mut handler.local(), Millis(at_ms), head);
        answer.text().to_owned()
    };
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| get(5_000));
        FIRST_LOAD.wait_until_held();
        site.write("next.txt", "new");
        fs::rename(site.path("next.txt"), site.path("slow.txt")).unwrap();
        let meanwhile = get(5_001);
        FIRST_LOAD.open();
        let late = slow.join().unwrap();
        assert_eq!(meanwhile, "new");
        assert_eq!(late, "new", "what is known by then");
        assert_eq!(get(5_002), "new");
    });
}
