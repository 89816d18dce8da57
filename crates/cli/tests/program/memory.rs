//! The budget of memory, under clients that make a server hold as much as they can.

mod group;

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use loadline_proto::hpack::{Encoder, Indexing};
use loadline_proto::http2::frame::{Kind, PREFACE, Setting, flags, write_frame};
use tempfile::TempDir;

use crate::util::{GRACE, Server, site};

/// What the program itself, the allocator and what is not counted come to beside the budget. Hundreds of
/// threads use all of the allocator's arenas, each of which keeps what is free in it; and what workers have
/// received for connections is counted when their loop has them back.
fn beside_bytes(architecture: &str) -> u64 {
    match architecture {
        it if it.contains("thread-") => 128 << 20,
        it if it.contains("--socket-io worker") || it.contains("--parse worker") => 64 << 20,
        _ => 48 << 20,
    }
}

/// A request of others is refused so often at most, on average. It is repeated every 10 ms: half a second, until
/// connections are closed for it.
const REFUSALS_MAX: usize = 50;
/// And none of them more often: five seconds.
const REFUSALS_OF_ONE_MAX: usize = 500;

/// With a thread for each connection, since a pool of fewer threads waits for slow clients.
const ARCHITECTURES: [(&str, u64); 5] = [
    ("--architecture reactor --loops 2 --workers 2", 16 << 20),
    (
        "--architecture reactor --loops 2 --workers 2 --socket-io worker",
        16 << 20,
    ),
    ("--architecture proactor --loops 2 --workers 2", 16 << 20),
    ("--architecture thread-pool --threads 450", 48 << 20),
    ("--architecture thread-per-connection", 16 << 20),
];

/// Where those come from. The others are another client.
const ATTACKER: [u8; 4] = [127, 0, 0, 2];

/// What a client sends who then neither sends nor receives any more.
struct Attack {
    name: &'static str,
    bytes: Vec<u8>,
}

fn attacks() -> [Attack; 7] {
    let head = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "a".repeat(31 << 10));
    let form = format!(
        "POST /accounts/login HTTP/1.1\r\nHost: x\r\nContent-Length: 16000\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\nname={}",
        "a".repeat(15_000)
    );
    [
        Attack {
            name: "heads",
            bytes: head.into_bytes(),
        },
        Attack {
            name: "pipelining",
            bytes: b"GET /page.html HTTP/1.1\r\nHost: x\r\n\r\n".repeat(4000),
        },
        Attack {
            name: "forms",
            bytes: form.into_bytes(),
        },
        Attack {
            name: "streams that are not read",
            bytes: streams(b"", 120),
        },
        Attack {
            name: "forms on streams",
            bytes: streams(&[b'a'; 8_000], 16),
        },
        Attack {
            name: "field blocks without an end",
            bytes: unfinished_block(),
        },
        Attack {
            name: "HPACK bombs",
            bytes: bombs(120),
        },
    ]
}

impl Attack {
    fn is_over_http2(&self) -> bool {
        self.bytes.starts_with(PREFACE)
    }
}

/// How a client begins over HTTP/2 whose windows are closed.
fn opening() -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    let mut setting = Vec::new();
    let window = Setting {
        id: Setting::INITIAL_WINDOW_SIZE,
        value: 0,
    };
    window.write(&mut setting);
    write_frame(Kind::Settings, 0, 0, &setting, &mut bytes);
    bytes
}

/// Nearly all that a head may have, in CONTINUATION frames of which the last does not come.
fn unfinished_block() -> Vec<u8> {
    let mut bytes = opening();
    write_frame(Kind::Headers, 0, 1, &[0; 1_000], &mut bytes);
    for _ in 0..10 {
        write_frame(Kind::Continuation, 0, 1, &[0; 3_000], &mut bytes);
    }
    bytes
}

/// So many requests with heads of 27 KB, just within what is allowed: a field that the table keeps comes nine times,
/// in a byte each. Responses are not read.
fn bombs(count: u32) -> Vec<u8> {
    let mut bytes = opening();
    let mut encoder = Encoder::default();
    let value = [b'x'; 3_000];
    for stream in (0..count).map(|index| 2 * index + 1) {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value) in [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "x"),
            (":path", "/page.html"),
        ] {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            encoder.field(name, value, Indexing::Not, &mut block);
        }
        for _ in 0..9 {
            encoder.field(b"a", &value, Indexing::Kept, &mut block);
        }
        let flag = flags::END_HEADERS | flags::END_STREAM;
        write_frame(Kind::Headers, flag, stream, &block, &mut bytes);
    }
    bytes
}

/// So many requests over HTTP/2, whose windows are closed: a GET each, or a form of which this has come.
fn streams(content: &[u8], count: u32) -> Vec<u8> {
    let mut bytes = opening();
    let (method, path, len, end) = match content {
        [] => ("GET", "/page.html", "0", flags::END_STREAM),
        _ => ("POST", "/accounts/login", "16000", 0),
    };
    let mut encoder = Encoder::default();
    for stream in (0..count).map(|index| 2 * index + 1) {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value) in [
            (":method", method),
            (":scheme", "http"),
            (":authority", "x"),
            (":path", path),
            ("content-type", "application/x-www-form-urlencoded"),
            ("content-length", len),
        ] {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            encoder.field(name, value, Indexing::Kept, &mut block);
        }
        write_frame(
            Kind::Headers,
            flags::END_HEADERS | end,
            stream,
            &block,
            &mut bytes,
        );
        if !content.is_empty() {
            write_frame(Kind::Data, 0, stream, content, &mut bytes);
        }
    }
    bytes
}

/// A figure of the kernel's about a process, in bytes.
fn figure(process: u32, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| {
        line.trim_matches(|it: char| !it.is_ascii_digit())
            .parse::<u64>()
            .ok()
    });
    kib.unwrap() << 10
}

/// Sends what the socket takes without waiting; `false`: the server has closed the connection.
fn send(stream: &mut TcpStream, bytes: &[u8], sent: &mut usize) -> bool {
    while *sent < bytes.len() {
        match stream.write(&bytes[*sent..]) {
            Ok(count) => *sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(_) => return false,
        }
    }
    true
}

/// Another client's request: the content of its response, and how often it was refused before.
fn get(server: &Server, target: &str) -> (String, usize) {
    let until = Instant::now() + GRACE;
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut refusals = 0;
    while Instant::now() < until {
        let mut stream = server.connect();
        let mut text = String::new();
        let _ =
            (stream.write_all(request.as_bytes())).and_then(|()| stream.read_to_string(&mut text));
        if let Some((head, content)) = text.split_once("\r\n\r\n")
            && head.starts_with("HTTP/1.1 200 ")
        {
            return (content.to_owned(), refusals);
        }
        refusals += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no other client is served: {refusals} refusals");
}

/// How requests of others fared.
#[derive(Default)]
struct Others {
    requests: usize,
    /// Those that were refused before they were answered.
    refused: usize,
    /// Of all of them together, and of the one that was refused most often.
    refusals: usize,
    refusals_of_one: usize,
    /// Until a request was answered, refusals included.
    longest: Duration,
}

impl Others {
    fn ask(&mut self, server: &Server) {
        let began = Instant::now();
        let (_, refusals) = get(server, "/");
        self.requests += 1;
        self.refused += usize::from(refusals > 0);
        self.refusals += refusals;
        self.refusals_of_one = self.refusals_of_one.max(refusals);
        self.longest = self.longest.max(began.elapsed());
    }
}

/// What a server came to under an attack.
struct Outcome {
    attack: &'static str,
    /// In memory before it, and at most.
    own_bytes: u64,
    peak_bytes: u64,
    /// Counted, and what may be.
    used_bytes: u64,
    budget_bytes: u64,
    others: Others,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} KiB at the start, {} KiB at most, {} KiB counted of {}; of others {} of {} \
             requests refused at first, {} times in all, one {} times; the longest took {:.2?}",
            self.attack,
            self.own_bytes >> 10,
            self.peak_bytes >> 10,
            self.used_bytes >> 10,
            self.budget_bytes >> 10,
            self.others.refused,
            self.others.requests,
            self.others.refusals,
            self.others.refusals_of_one,
            self.others.longest,
        )
    }
}

impl Outcome {
    /// As a row of the table in decision 68.
    fn row(&self, architecture: &str) -> String {
        let others = &self.others;
        format!(
            "| `{}` | {} | {} | {} | {} of {} | {} of {} | {} | {:.2} s |\n",
            architecture.replace("--architecture ", ""),
            self.attack,
            self.own_bytes >> 20,
            self.peak_bytes >> 20,
            self.used_bytes >> 20,
            self.budget_bytes >> 20,
            others.refused,
            others.requests,
            others.refusals_of_one,
            others.longest.as_secs_f64(),
        )
    }

    /// By what the server and the kernel say now.
    fn of(server: &Server, attack: &Attack, own_bytes: u64, others: Others) -> Self {
        // Not as JSON, which has an entry for each of many threads.
        let page = get(server, "/-/status?format=prometheus").0;
        let of_page = |name: &str| {
            let mut lines = page.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.unwrap().parse::<u64>().unwrap()
        };
        let outcome = Self {
            attack: attack.name,
            own_bytes,
            peak_bytes: figure(server.id(), "VmHWM:"),
            used_bytes: of_page("loadline_memory_used_bytes"),
            budget_bytes: of_page("loadline_memory_budget_bytes"),
            others,
        };
        let counted_max = outcome.budget_bytes + (1 << 20);
        assert!(outcome.used_bytes <= counted_max, "{outcome}");
        outcome
    }

    /// The server has taken no more than this budget and what is beside it.
    fn assert_within(&self, budget_bytes: u64, architecture: &str) {
        let _ = writeln!(io::stderr(), "{architecture}, {self}");
        assert_eq!(self.budget_bytes, budget_bytes, "{self}");
        let most = self.own_bytes + budget_bytes + beside_bytes(architecture);
        assert!(self.peak_bytes <= most, "{architecture}, {self}");
    }
}

/// So many connections of one kind of attack: the server keeps to its budget and serves others, meanwhile and
/// afterwards.
fn besiege(server: &Server, attack: &Attack, connections: usize) -> Outcome {
    // What starting up has read of the program was given back before the server said that it serves. What it
    // needs to serve is in memory again after this.
    get(server, "/");
    let own_bytes = figure(server.id(), "VmRSS:");
    let mut clients: Vec<(TcpStream, usize)> = Vec::new();
    let mut others = Others::default();
    for number in 0..connections {
        let mut stream = server.connect_from(ATTACKER);
        stream.set_nonblocking(true).unwrap();
        let mut sent = 0;
        send(&mut stream, &attack.bytes, &mut sent);
        clients.push((stream, sent));
        if number.is_multiple_of(40) {
            others.ask(server);
        }
    }
    for _ in 0..3 {
        for (stream, sent) in &mut clients {
            let _ = send(stream, &attack.bytes, sent); // or it is closed
        }
        others.ask(server);
    }
    let outcome = Outcome::of(server, attack, own_bytes, others);
    drop(clients);
    get(server, "/");
    let others = &outcome.others;
    let refusals_max = others.requests * REFUSALS_MAX;
    assert!(others.refusals <= refusals_max, "{outcome}");
    assert!(others.refusals_of_one <= REFUSALS_OF_ONE_MAX, "{outcome}");
    outcome
}

/// The site that is attacked, and what else the server is to have: pages, and forms that are gathered.
fn site_and_options() -> ([TempDir; 2], Vec<String>) {
    let site = site();
    std::fs::write(site.path().join("page.html"), "x".repeat(10 << 10)).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", elsewhere.path().join("accounts").display());
    let options = ["--status-path", "/-/status", "--accounts", &database];
    ([site, elsewhere], options.map(str::to_owned).into())
}

fn start(site: &Path, options: &[String], architecture: &str, budget_bytes: u64) -> Server {
    let budget = budget_bytes.to_string();
    let options = options.iter().map(String::as_str);
    let words = ["--memory-max", &budget].into_iter().chain(options);
    let words: Vec<&str> = words.chain(architecture.split(' ')).collect();
    Server::start(site, &words)
}

/// So many connections of each kind of attack: the server takes no more than its budget and what is beside it.
/// Gives a row for each.
fn withstand(architecture: &str, budget_bytes: u64, connections: usize) -> String {
    let (folders, options) = site_and_options();
    let mut rows = String::new();
    for attack in attacks() {
        let server = start(folders[0].path(), &options, architecture, budget_bytes);
        let outcome = besiege(&server, &attack, connections);
        outcome.assert_within(budget_bytes, architecture);
        rows += &outcome.row(architecture);
    }
    rows
}

#[test]
fn slow_clients_cannot_take_more_than_the_budget() {
    for (architecture, budget_bytes) in ARCHITECTURES {
        withstand(architecture, budget_bytes, 400);
    }
}

/// A sequential server has one connection at a time, and the others of an attack wait in the backlog: each has its
/// turn here, and leaves nothing behind.
#[test]
fn connections_in_turn_take_no_more_than_the_budget() {
    let (architecture, budget_bytes) = ("--architecture sequential", 16 << 20);
    let (folders, options) = site_and_options();
    for attack in attacks().iter().filter(|it| it.is_over_http2()) {
        let server = start(folders[0].path(), &options, architecture, budget_bytes);
        get(&server, "/");
        let own_bytes = figure(server.id(), "VmRSS:");
        for _ in 0..100 {
            let mut stream = server.connect_from(ATTACKER);
            stream.write_all(&attack.bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            // The server ends it once it has received all.
            if let Err(error) = io::copy(&mut stream, &mut io::sink()) {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{}", attack.name);
            }
        }
        let outcome = Outcome::of(&server, attack, own_bytes, Others::default());
        outcome.assert_within(budget_bytes, architecture);
    }
}

/// `UPDATE_DOCS=1` in its environment has the figures written into decision 68.
#[test]
#[ignore = "long: ten thousand connections of each kind under each architecture"]
fn ten_thousand_slow_clients_cannot_take_more_than_the_budget() {
    loadline_sys::usage::raise_descriptor_limit();
    let mut rows = String::new();
    for (architecture, budget_bytes) in ARCHITECTURES {
        let (architecture, budget_bytes) = match architecture.replace("450", "10000") {
            more if more.contains("10000") => (more, 1 << 30),
            same => (same, budget_bytes << 3),
        };
        rows += &withstand(&architecture, budget_bytes, 10_000);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        write_figures(&rows);
    }
}

/// Between two marks of the decision.
fn write_figures(rows: &str) {
    const PAGE: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/decisions/0068-one-memory-budget.md"
    );
    const HEAD: &str = "| architecture | attack | MiB at the start | MiB at most \
                        | MiB counted, of the budget | requests of others refused at first \
                        | most refusals of one | the longest took |\n\
                        |---|---|---:|---:|---:|---:|---:|---:|\n";
    const BEGIN: &str = "<!-- ten_thousand -->\n";
    const END: &str = "<!-- end of what it writes -->\n";
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let page = format!("{before}{BEGIN}\n{HEAD}{rows}\n{END}{after}");
    std::fs::write(PAGE, page).unwrap();
}
