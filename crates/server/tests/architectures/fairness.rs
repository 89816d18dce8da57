//! One client that does its worst beside others that do not.
//!
//! `./x bench fairness` measures what that costs the others. The work of their requests is sleep, so that
//! capacity is a number of workers and not the CPU time that the greedy client's own threads leave. What the
//! greedy client asks for sleeps, too, or computes, so that CPUs run short as well.

#![allow(
    clippy::print_stdout,
    reason = "a measurement by hand shows its figures"
)]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use loadline_capacity::stats::{mean, mean_interval};
use loadline_proto::Limits;
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE, flags, write_frame};
use loadline_server::{Architecture, ServerOptions};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use crate::shared::{
    PROXY, Server, TestHandler, UPLOAD_BYTES, forwarded_for, is_offered, request_by_stream,
};

pub(super) fn start(options: ServerOptions) -> Server {
    Server::start(options, TestHandler::default(), Limits::default())
}

/// A server, and how its clients reach it.
#[derive(Clone, Copy)]
pub(super) struct To {
    address: SocketAddr,
    /// By connections of a proxy that the server trusts.
    through_proxy: bool,
}

impl To {
    pub(super) fn directly(server: &Server) -> Self {
        Self {
            address: server.address,
            through_proxy: false,
        }
    }
}

fn address_of(source: u8) -> [u8; 4] {
    [127, 0, 0, source]
}

fn connect(source: u8, to: To) -> io::Result<TcpStream> {
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    if source == GREEDY {
        net::sockopt::set_socket_recv_buffer_size(&socket, 4096)?; // reads slowly
    }
    let from = match to.through_proxy {
        true => PROXY,
        false => address_of(source),
    };
    net::bind(&socket, &SocketAddr::from((from, 0)))?;
    net::connect(&socket, &to.address)?;
    Ok(socket.into())
}

const GREEDY: u8 = 2;
const FIRST_QUIET: u8 = 3;

/// How the greedy client keeps a connection busy.
#[derive(Clone, Copy)]
enum Manner {
    SlowHead,
    SlowContent,
    SlowReader,
    /// Asks for this again and again.
    Expensive(&'static str),
    /// The same over HTTP/2, by [`STREAMS`] at once.
    Streams(&'static str),
}

const STREAMS: u32 = 100;
/// Room for all responses of a connection.
const WINDOW: u32 = 0x7fff_0000;

/// Fields of a request that this client sends.
fn fields(source: u8, to: To) -> String {
    let from = to.through_proxy.then(|| forwarded_for(address_of(source)));
    format!("Host: h\r\n{}", from.unwrap_or_default())
}

fn request(path: &str, source: u8, to: To) -> String {
    format!("GET {path} HTTP/1.1\r\n{}\r\n", fields(source, to))
}

/// The beginning of a connection of HTTP/2.
fn requests_by_streams(path: &str) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    write_frame(Kind::Settings, 0, 0, &[], &mut out);
    write_frame(Kind::WindowUpdate, 0, 0, &WINDOW.to_be_bytes(), &mut out);
    (0..STREAMS).for_each(|index| request_by_stream(2 * index + 1, path, &mut out));
    out
}

struct Held {
    manner: Manner,
    to: To,
    stream: TcpStream,
    /// Of HTTP/2: frames that came in part, and the next stream.
    unread: Vec<u8>,
    next_stream: u32,
}

impl Held {
    fn open(manner: Manner, to: To) -> io::Result<Self> {
        let mut stream = connect(GREEDY, to)?;
        let begin = match manner {
            Manner::SlowHead => b"GET / HTTP/1.1\r\nX: ".to_vec(),
            Manner::SlowContent => format!(
                "POST /upload HTTP/1.1\r\n{}Content-Length: {UPLOAD_BYTES}\r\n\r\n",
                fields(GREEDY, to)
            )
            .into_bytes(),
            Manner::SlowReader => request("/big", GREEDY, to).into_bytes(),
            Manner::Expensive(path) => request(path, GREEDY, to).into_bytes(),
            Manner::Streams(path) => requests_by_streams(path),
        };
        stream.set_nonblocking(true)?;
        stream.write_all(&begin)?;
        Ok(Self {
            manner,
            to,
            stream,
            unread: Vec::new(),
            next_stream: 2 * STREAMS + 1,
        })
    }

    /// Goes on as slowly as it may. `Err`: it has been closed.
    fn go_on(&mut self) -> io::Result<()> {
        match self.manner {
            Manner::SlowHead | Manner::SlowContent => self.stream.write_all(&[b'x'; 100]),
            Manner::SlowReader => match self.stream.read(&mut [0; 200]) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(()),
            },
            Manner::Expensive(path) => match self.stream.read(&mut [0; 4096]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    let next = request(path, GREEDY, self.to);
                    self.stream.write_all(next.as_bytes())
                }
                Err(error) => Err(error),
            },
            Manner::Streams(path) => self.ask_again(path),
        }
    }

    /// Opens a stream for each that has ended, or was refused.
    fn ask_again(&mut self, path: &str) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
            Err(error) => return Err(error),
        }
        let (mut used, mut frames) = (0, Vec::new());
        while let Some((head, rest)) = self.unread[used..].split_first_chunk::<HEAD_BYTES>() {
            let head = FrameHead::parse(head);
            if rest.len() < head.len {
                break;
            }
            used += HEAD_BYTES + head.len;
            match head.kind {
                Kind::Settings if !head.has(flags::ACK) => {
                    write_frame(Kind::Settings, flags::ACK, 0, &[], &mut frames);
                }
                Kind::Headers | Kind::Data | Kind::RstStream
                    if head.kind == Kind::RstStream || head.has(flags::END_STREAM) =>
                {
                    request_by_stream(self.next_stream, path, &mut frames);
                    self.next_stream += 2;
                }
                Kind::GoAway => return Err(io::ErrorKind::ConnectionAborted.into()),
                _ => {}
            }
        }
        self.unread.drain(..used);
        self.stream.write_all(&frames)
    }
}

/// What the greedy client does.
#[derive(Clone, Copy)]
struct Attack {
    name: &'static str,
    connections: usize,
    /// Of its connections, in turn.
    manners: &'static [Manner],
    /// Beside those, connections that ask for nothing and are closed again.
    new_a_second: u32,
    /// As the others do: the proxy names each request's client.
    through_proxy: bool,
}

/// Does its worst until it is to stop.
fn greedy(attack: Attack, to: To, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<()>> {
    let is_over = |stop: &AtomicBool| stop.load(Ordering::Relaxed);
    let (holds, opens) = (Arc::clone(stop), Arc::clone(stop));
    let holding = thread::spawn(move || {
        let mut held: Vec<Option<Held>> = (0..attack.connections).map(|_| None).collect();
        while !is_over(&holds) {
            for (one, manner) in held.iter_mut().zip(attack.manners.iter().cycle()) {
                let goes_on = one.as_mut().is_some_and(|held| held.go_on().is_ok());
                if !goes_on {
                    *one = Held::open(*manner, to).ok();
                }
            }
            thread::sleep(Duration::from_millis(100));
        }
    });
    let opening = thread::spawn(move || {
        let mut last = Vec::new();
        while !is_over(&opens) {
            let now: Vec<_> = (0..attack.new_a_second / 50)
                .map(|_| connect(GREEDY, to))
                .collect();
            last = now; // those of before are closed
            thread::sleep(Duration::from_millis(20));
        }
        drop(last);
    });
    vec![holding, opening]
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) good: usize,
    pub(super) refused: usize,
    /// Later than a second after it was due.
    pub(super) late: usize,
    /// Broken off.
    pub(super) failed: usize,
    /// Of those that were good, once they are of all clients in ascending order.
    pub(super) latencies_ms: Vec<f64>,
    by_second: Vec<usize>,
}

/// Every `interval` a request, every second one over a new connection.
fn quiet(path: &str, source: u8, to: To, interval: Duration, lasts: Duration) -> Seen {
    let began = Instant::now();
    let mut seen = Seen::default();
    let mut kept: Option<TcpStream> = None;
    for number in 0.. {
        let due = interval * number + interval * u32::from(source) / 50;
        if due >= lasts {
            break;
        }
        thread::sleep((began + due).saturating_duration_since(Instant::now()));
        let due = began + due;
        if number % 2 == 0 {
            kept = None;
        }
        match ask(kept.take(), path, source, to) {
            Ok((stream, true)) if due.elapsed() < Duration::from_secs(1) => {
                seen.good += 1;
                let second = began.elapsed().as_secs() as usize;
                seen.by_second
                    .resize(seen.by_second.len().max(second + 1), 0);
                seen.by_second[second] += 1;
                seen.latencies_ms.push(due.elapsed().as_secs_f64() * 1e3);
                kept = Some(stream);
            }
            Ok((_, true)) => seen.late += 1,
            Err(_) => seen.failed += 1,
            Ok((_, false)) => seen.refused += 1,
        }
    }
    seen
}

/// Over this connection or a new one; whether the status is 200.
pub(super) fn ask(
    kept: Option<TcpStream>,
    path: &str,
    source: u8,
    to: To,
) -> io::Result<(TcpStream, bool)> {
    let mut stream = match kept {
        Some(stream) => stream,
        None => connect(source, to)?,
    };
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(request(path, source, to).as_bytes())?;
    let mut answer = [0; 1024];
    let len = stream.read(&mut answer)?;
    match &answer[..len] {
        [] => Err(io::ErrorKind::UnexpectedEof.into()),
        answer => Ok((stream, answer.starts_with(b"HTTP/1.1 200"))),
    }
}

/// What others see together who ask for this.
pub(super) fn run(
    path: &'static str,
    to: To,
    clients: u8,
    interval: Duration,
    lasts: Duration,
) -> Seen {
    let client = |source| thread::spawn(move || quiet(path, source, to, interval, lasts));
    let clients: Vec<_> = (FIRST_QUIET..FIRST_QUIET + clients).map(client).collect();
    let mut all = Seen::default();
    for client in clients {
        let seen = client.join().unwrap();
        all.good += seen.good;
        all.refused += seen.refused;
        all.late += seen.late;
        all.failed += seen.failed;
        all.latencies_ms.extend(seen.latencies_ms);
        all.by_second
            .resize(all.by_second.len().max(seen.by_second.len()), 0);
        for (sum, count) in all.by_second.iter_mut().zip(seen.by_second) {
            *sum += count;
        }
    }
    all.latencies_ms.sort_by(f64::total_cmp);
    all
}

/// Those that can keep one client from taking everything.
pub(super) const ARCHITECTURES: [Architecture; 4] = [
    Architecture::Reactor,
    Architecture::Proactor,
    Architecture::ThreadPool,
    Architecture::ThreadPerConnection,
];

pub(super) fn options(architecture: Architecture) -> ServerOptions {
    ServerOptions {
        architecture,
        loops: 1,
        workers: 8,
        threads: 8,
        connections_max: 2048,
        ..ServerOptions::default()
    }
}

const SMALL: Attack = Attack {
    name: "of 64 connections",
    connections: 64,
    manners: &all_and(Manner::Expensive("/work")),
    new_a_second: 100,
    through_proxy: false,
};

#[test]
fn one_client_that_does_its_worst_keeps_no_other_out() {
    for architecture in ARCHITECTURES.into_iter().filter(|it| is_offered(*it)) {
        let server = start(ServerOptions {
            connections_max: 64,
            latency_goal: Some(Duration::from_secs(60)),
            ..options(architecture)
        });
        let to = To::directly(&server);
        let stop = Arc::new(AtomicBool::new(false));
        let threads = greedy(SMALL, to, &stop);
        while server.handle.snapshot().total.connections < 60 {
            thread::sleep(Duration::from_millis(1));
        }
        let (interval, lasts) = (Duration::from_millis(100), Duration::from_millis(1500));
        let seen = run("/work", to, 5, interval, lasts);
        stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(seen.refused, 0, "{architecture:?}: {seen:?}");
        assert_eq!(seen.failed, 0, "{architecture:?}: {seen:?}");
        assert_eq!(seen.good + seen.late, 5 * 15, "{architecture:?}: {seen:?}");
        assert!(server.handle.snapshot().total.connections <= 64 + 64);
    }
}

/// All that it can do at once. A quarter of its connections, a third through a proxy, asks for what takes long: some
/// 500 or 670 requests at a time, 2,000 where streams compute.
const TOGETHER: [Attack; 5] = [
    Attack {
        name: "HTTP/1.1",
        connections: 2000,
        manners: &all_and(Manner::Expensive("/long-work")),
        new_a_second: 2000,
        through_proxy: false,
    },
    Attack {
        name: "HTTP/2",
        connections: 20,
        manners: &all_and(Manner::Streams("/long-work")),
        new_a_second: 2000,
        through_proxy: false,
    },
    Attack {
        name: "HTTP/1.1, computing",
        connections: 2000,
        manners: &all_and(Manner::Expensive("/long-compute")),
        new_a_second: 2000,
        through_proxy: false,
    },
    Attack {
        name: "HTTP/2, computing",
        connections: 80,
        manners: &all_and(Manner::Streams("/long-compute")),
        new_a_second: 2000,
        through_proxy: false,
    },
    Attack {
        name: "HTTP/1.1, through a proxy",
        connections: 2000,
        // Until a head has come, the proxy's connection is nobody's: what is slow about that is the proxy.
        manners: &[
            Manner::SlowContent,
            Manner::SlowReader,
            Manner::Expensive("/long-work"),
        ],
        new_a_second: 0,
        through_proxy: true,
    },
];

/// Each by itself.
const ALONE: [Attack; 5] = [
    by_connections("slow heads", &[Manner::SlowHead]),
    by_connections("slow content", &[Manner::SlowContent]),
    by_connections("slow reads of 8 MiB", &[Manner::SlowReader]),
    by_connections("requests of 500 ms", &[Manner::Expensive("/long-work")]),
    Attack {
        name: "2,000 new connections a second",
        connections: 0,
        manners: &[],
        new_a_second: 2000,
        through_proxy: false,
    },
];

const fn all_and(expensive: Manner) -> [Manner; 4] {
    [
        Manner::SlowHead,
        Manner::SlowContent,
        Manner::SlowReader,
        expensive,
    ]
}

const fn by_connections(name: &'static str, manners: &'static [Manner]) -> Attack {
    Attack {
        name,
        connections: 2000,
        manners,
        new_a_second: 0,
        through_proxy: false,
    }
}

/// What is left to others in each run, as a share of their goodput without the greedy client.
pub(super) const GOODPUT_MIN: f64 = 0.95;

/// Without the greedy client and beside it by turns; ends with a table. Without fairness only beside all of it.
#[test]
#[ignore = "by hand: takes 65 minutes on a machine that is quiet"]
fn one_client_costs_fifty_others_a_twentieth_of_their_goodput_at_most_by_hand() {
    let limit = rustix::process::Resource::Nofile;
    let mut files = rustix::process::getrlimit(limit);
    files.current = files.maximum;
    rustix::process::setrlimit(limit, files).unwrap();
    let chosen = |name: &str| std::env::var(name).ok().filter(|value| value != "all");
    let (architecture, attack) = (chosen("LOADLINE_ARCHITECTURE"), chosen("LOADLINE_ATTACK"));
    let is_chosen = |it: &Architecture| {
        architecture.as_deref().is_none_or(|name| name == it.name()) && is_offered(*it)
    };
    let is_meant = |it: &Attack| attack.as_deref().is_none_or(|name| it.name.contains(name));
    let together = TOGETHER.map(|attack| (attack, true));
    let attacks = ALONE.map(|attack| (attack, false)).into_iter();
    let attacks: Vec<_> = (together.into_iter().chain(attacks))
        .filter(|(attack, _)| is_meant(attack))
        .collect();
    let mut table =
        "| greedy client | `--fairness on` | lowest | goal: 0.95 | `--fairness off` |\n\
                     |---|---|---:|---|---|\n"
            .to_owned();
    let (mut rows, mut missed) = (0, Vec::new());
    for architecture in ARCHITECTURES.into_iter().filter(is_chosen) {
        for (attack, is_compared) in &attacks {
            let on = compare(architecture, true, *attack);
            let off = is_compared.then(|| shares(&compare(architecture, false, *attack)));
            let name = format!("{}, {}", architecture.name(), attack.name);
            let lowest = on.iter().copied().fold(f64::INFINITY, f64::min);
            let goal = match lowest >= GOODPUT_MIN {
                true => "met",
                false => "**not met**",
            };
            table += &format!(
                "| {name} | {} | {lowest:.3} | {goal} | {} |\n",
                shares(&on),
                off.unwrap_or_default(),
            );
            rows += 1;
            if lowest < GOODPUT_MIN {
                missed.push((name, on));
            }
        }
    }
    println!("\n{table}");
    assert!(rows > 0, "no such architecture or attack");
    assert!(missed.is_empty(), "{missed:?}");
}

/// Their mean, its 95 % interval, and all of them.
fn shares(ratios: &[f64]) -> String {
    let all: Vec<_> = ratios.iter().map(|ratio| format!("{ratio:.3}")).collect();
    let interval = mean_interval(ratios, 0.95).unwrap();
    format!(
        "{:.3} ({:.3} to {:.3}; {})",
        mean(ratios),
        interval.low,
        interval.high,
        all.join(", ")
    )
}

/// Goodput of others beside the greedy client, as shares of theirs without it.
fn compare(architecture: Architecture, fairness: bool, attack: Attack) -> Vec<f64> {
    let (interval, lasts) = (Duration::from_millis(100), Duration::from_secs(6));
    let options = ServerOptions {
        fairness,
        ..options(architecture)
    };
    let server = match attack.through_proxy {
        true => Server::start_behind_proxy(options, Limits::default(), None),
        false => start(options),
    };
    let to = To {
        through_proxy: attack.through_proxy,
        ..To::directly(&server)
    };
    let show = |name, seen: &Seen| {
        let p99_ms = seen.latencies_ms.get(seen.latencies_ms.len() * 99 / 100);
        println!(
            "  {name}: good {} {:?}, late {}, refused {}, failed {}, p99 {:.0?} ms",
            seen.good, seen.by_second, seen.late, seen.refused, seen.failed, p99_ms,
        );
    };
    println!("{architecture:?}, {}, fairness {fairness}", attack.name);
    let mut ratios = Vec::new();
    for _ in 0..4 {
        let alone = run("/work", to, 50, interval, lasts);
        show("alone", &alone);
        let stop = Arc::new(AtomicBool::new(false));
        let threads = greedy(attack, to, &stop);
        thread::sleep(Duration::from_secs(3));
        let beside = run("/work", to, 50, interval, lasts);
        show("beside", &beside);
        stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        thread::sleep(Duration::from_secs(1));
        ratios.push(beside.good as f64 / alone.good as f64);
    }
    let total = server.handle.snapshot().total;
    println!("  {:?}\n  closed {:?}", total.named(), total.closed);
    ratios
}
