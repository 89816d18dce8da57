//! The options of `loadline load` as they are typed. What they mean is in `load/plan.rs`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use loadline_load::run::PROCESSES_MAX;
use loadline_load::schedule::Steps;
use loadline_load::{Arrivals, Overflow};
use loadline_record::report::Style;

use super::load_values::{
    Burst, CLIENTS_MAX, Part, Ramp, SlowGroup, Watched, bit_rate, burst, cpus, part, pid, ramp,
    rate, run_time, seed, slow_group, some_time, sources, steps, time_scale, timeout, watched,
};
use super::values::one_of;
use super::values::{Auto, auto_count_in, count_in};

pub(crate) const LOAD_EXIT_CODES: &str = "\
Exit codes:
  0    measured
  1    something failed while running, or not one answer came
  2    bad usage: an option, a value, a file, or options that do not fit together
  3    an --assert does not hold (also where the client was the limit)
  5    the client was the limit: the figures say more about it than about the server
  6    answers came and none was good, or a step of the scenario never succeeded
  130  interrupted: what was measured so far is printed, --assert is not judged
  Where several apply: 130 before 1 before 3 before 6 before 5.";

pub(crate) const LOAD_MORE: &str = "\
Examples:
  loadline load http://127.0.0.1:8080/
      64 connections, each sending when its last answer has come, for 10 s
  loadline load http://127.0.0.1:8080/ -c 10000 -d 5s --new-connection --style webbench
      a new connection for each request, in the form that Webbench prints
  loadline load http://127.0.0.1:8080/ --rate 20000 -c 2000 -d 30s
      20,000 requests a second whatever the server does, over 2000 connections
  loadline load http://127.0.0.1:8080/ --steps 100..2500/100 --assert 'p99 < 50ms'
      stairs of 10 s each; fails if the 99th percentile is too high
  loadline load http://127.0.0.1:8080/ --idle-connections 10000 --slow-readers 200@10KB/s
      healthy clients among others, reported apart
  loadline load http://127.0.0.1:8080/ --replay access.log --rate 500
      the requests of a log in their order, 500 a second

Signals:
  SIGINT, SIGTERM  stop and print what was measured so far; a second one ends at once";

/// The options of `loadline load`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadFlags {
    /// Where requests go: http://HOST[:PORT]/PATH; of several, each is as likely
    /// as the others.
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<String>,

    #[command(flatten)]
    pub(crate) clients: ClientFlags,
    #[command(flatten)]
    pub(crate) pace: PaceFlags,
    #[command(flatten)]
    pub(crate) requests: LoadRequestFlags,
    #[command(flatten)]
    pub(crate) expect: ExpectFlags,
    #[command(flatten)]
    pub(crate) users: UserFlags,
    #[command(flatten)]
    pub(crate) hostile: HostileFlags,
    #[command(flatten)]
    pub(crate) machine: MachineFlags,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// How many clients, and for how long.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Clients")]
pub(crate) struct ClientFlags {
    /// Connections: clients of a closed loop, the bound of requests in flight of an open one
    /// [default: 64].
    #[arg(short, long, value_name = "N", value_parser = count_in(0..=CLIENTS_MAX))]
    pub(crate) connections: Option<usize>,

    /// How long it takes, without the warm-up [default: 10s].
    #[arg(short, long, value_name = "TIME", value_parser = run_time)]
    pub(crate) duration: Option<Duration>,

    /// End after so many requests in all.
    #[arg(short = 'n', long, value_name = "N", value_parser = count_in(1..=1 << 40))]
    pub(crate) requests: Option<usize>,

    /// Close a connection after so many requests and open another.
    #[arg(long, value_name = "K", value_parser = count_in(1..=1 << 31))]
    pub(crate) requests_per_connection: Option<usize>,

    /// A new connection for each request, whatever the server offers.
    #[arg(long)]
    pub(crate) new_connection: bool,

    /// Time that a client lets pass between an answer and its next request.
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    pub(crate) think: Option<Duration>,

    /// Closed loop: wake up for each answer. Otherwise, where answers come thick, the client reads a
    /// few at a time: cheaper for both sides, and up to 50 us or 1 % of an answer's time late.
    #[arg(long)]
    pub(crate) no_coalescing: bool,

    /// Load before the measurement, not counted.
    #[arg(long, value_name = "TIME", value_parser = run_time)]
    pub(crate) warm_up: Option<Duration>,

    /// Measure so many times, one after the other; the result has least, mean and most.
    #[arg(long, value_name = "N", default_value = "1", value_parser = count_in(1..=1000))]
    pub(crate) rounds: usize,

    /// A request has failed when its answer is not complete after so long; also the time to connect.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = timeout)]
    pub(crate) timeout: Duration,

    /// An answer is not good when it comes so long after its request was due.
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    pub(crate) deadline: Option<Duration>,
}

/// Requests by the clock.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Open loop")]
pub(crate) struct PaceFlags {
    /// Requests a second, whatever the server does: 5000, 20k or 0.5.
    #[arg(short = 'R', long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<f64>,

    /// How arrivals are spread around the rate [default: poisson].
    #[arg(long, value_name = "HOW",
        value_parser = one_of(ARRIVALS, arrivals_name))]
    pub(crate) arrivals: Option<Arrivals>,

    /// Rates one after the other, told apart in the result: 100..2500/100.
    #[arg(long, value_name = "FROM..TO/STEP", value_parser = steps)]
    pub(crate) steps: Option<Steps>,

    /// How long each step takes [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = run_time)]
    pub(crate) step_duration: Option<Duration>,

    /// A rate that moves in a straight line over the duration: 100..2500.
    #[arg(long, value_name = "FROM..TO", value_parser = ramp)]
    pub(crate) ramp: Option<Ramp>,

    /// The rate for ON, nothing for OFF, and again: 1s/4s (with --rate).
    #[arg(long, value_name = "ON/OFF", value_parser = burst)]
    pub(crate) burst: Option<Burst>,

    /// What becomes of a request that is due while every connection is busy: it waits, which counts
    /// in its latency, or is dropped, which is counted [default: queue].
    #[arg(long, value_name = "WHAT",
        value_parser = one_of(OVERFLOWS, overflow_name))]
    pub(crate) overflow: Option<Overflow>,
}

/// What is sent.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Requests")]
pub(crate) struct LoadRequestFlags {
    /// A file of URLs, one a line, with weights and methods (docs/load-inputs.md).
    #[arg(long = "urls", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) urls_file: Option<PathBuf>,

    /// The method [default: GET, or POST with a body].
    #[arg(short = 'X', long, value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// A field for every request; may be given several times.
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,

    /// The content of every request.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) body: Option<String>,

    /// The content of every request, from a file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) body_file: Option<PathBuf>,

    /// Name and password for Basic authentication.
    #[arg(long, value_name = "NAME:PASSWORD")]
    pub(crate) user: Option<String>,

    /// The version of HTTP.
    #[arg(long, value_name = "VERSION", default_value = "1.1",
        value_parser = one_of(VERSIONS, version_name))]
    pub(crate) http: HttpVersion,

    /// The requests of an access log in their order, of GET and HEAD: common, combined or JSON
    /// (docs/load-inputs.md).
    #[arg(long, value_name = "LOG", value_hint = ValueHint::FilePath)]
    pub(crate) replay: Option<PathBuf>,

    /// At the log's own times, multiplied: 1 as they are, 0.1 ten times as fast (with --replay).
    #[arg(long, value_name = "SCALE", value_parser = time_scale)]
    pub(crate) replay_timing: Option<f64>,

    /// Requests of all methods, though a log says nothing of their content (with --replay).
    #[arg(long)]
    pub(crate) replay_all_methods: bool,
}

/// What answers have to be.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Expected answers")]
pub(crate) struct ExpectFlags {
    /// Statuses that are good, on every answer: 200,304 or 2xx [default: 2xx].
    #[arg(long, value_name = "LIST")]
    pub(crate) expect_status: Option<String>,

    /// The length of the content, on every answer.
    #[arg(long, value_name = "SIZE", value_parser = super::values::size)]
    pub(crate) expect_length: Option<u64>,

    /// SHA-256 of the content in hexadecimal, on a sample.
    #[arg(long, value_name = "HASH")]
    pub(crate) expect_sha256: Option<String>,

    /// Hash the content of every n-th answer (with --expect-sha256) [default: 100].
    #[arg(long, value_name = "N", value_parser = count_in(1..=1 << 31))]
    pub(crate) content_sample: Option<usize>,
}

/// Clients that do more than send the same again.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Users and players")]
pub(crate) struct UserFlags {
    /// Users that go through the steps of a scenario (docs/scenarios.md), in place of plain
    /// connections.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) scenario: Option<PathBuf>,

    /// How many users (with --scenario) [default: as --connections].
    #[arg(long, value_name = "N", value_parser = count_in(1..=CLIENTS_MAX))]
    pub(crate) users: Option<usize>,

    /// A source address of its own for each client, on loopback.
    #[arg(long)]
    pub(crate) source_per_client: bool,

    /// Clients that play the URL as a video of this bit rate, in place of plain connections: 5Mbps.
    #[arg(long, value_name = "RATE", value_parser = bit_rate)]
    pub(crate) player: Option<u64>,

    /// How many players (with --player) [default: as --connections].
    #[arg(long, value_name = "N", value_parser = count_in(1..=CLIENTS_MAX))]
    pub(crate) players: Option<usize>,
}

/// Clients that no server wishes for, beside the others and reported apart.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Slow and hostile clients")]
pub(crate) struct HostileFlags {
    /// Connections that only stay.
    #[arg(long, value_name = "N", value_parser = count_in(1..=CLIENTS_MAX))]
    pub(crate) idle_connections: Option<usize>,

    /// Each of them asks once before it stays, as a browser does.
    #[arg(long)]
    pub(crate) idle_request: bool,

    /// Clients that read their answers slowly: 200@10KB/s.
    #[arg(long, value_name = "N@SPEED", value_parser = slow_group)]
    pub(crate) slow_readers: Option<SlowGroup>,

    /// Clients whose request heads drip: 100@1B/s.
    #[arg(long, value_name = "N@SPEED", value_parser = slow_group)]
    pub(crate) slow_heads: Option<SlowGroup>,

    /// Clients whose request content drips: 100@10B/s.
    #[arg(long, value_name = "N@SPEED", value_parser = slow_group)]
    pub(crate) slow_bodies: Option<SlowGroup>,

    /// Clients that vanish in the middle, again and again.
    #[arg(long, value_name = "N", value_parser = count_in(1..=CLIENTS_MAX))]
    pub(crate) vanishing: Option<usize>,
}

/// What this machine gives for it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "This machine")]
pub(crate) struct MachineFlags {
    /// Threads that send, in each process; auto is half of the CPUs, or as many as --cpus names.
    #[arg(short, long, value_name = "N", default_value = "auto",
        value_parser = auto_count_in(1..=1024))]
    pub(crate) threads: Auto<usize>,

    /// Processes that share the load; auto is as many as the descriptor limit asks for.
    #[arg(long, value_name = "N", default_value = "auto",
        value_parser = auto_count_in(1..=PROCESSES_MAX))]
    pub(crate) processes: Auto<usize>,

    /// CPUs that the threads are pinned to, in turn: 1 or 0,2-3.
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub(crate) cpus: Option<CpuList>,

    /// Never sleep: threads look for answers, and for what is due, without a pause. Requests leave and
    /// answers are read within microseconds, and the server wakes nobody; each thread takes a whole
    /// CPU, which nothing else may need.
    #[arg(long)]
    pub(crate) spin: bool,

    /// Addresses that connections come from, in turn: 127.0.0.2-127.0.0.9 [default: as many of
    /// loopback as ports ask for].
    #[arg(long, value_name = "RANGE", value_parser = source_list)]
    pub(crate) sources: Option<SourceList>,

    /// Repeats every choice made at random [default: another each time; the result names it].
    #[arg(long, value_name = "NUMBER", value_parser = seed)]
    pub(crate) seed: Option<u64>,

    /// Watch the server's process and its children: CPU, memory, descriptors.
    #[arg(long, value_name = "PID", value_parser = pid)]
    pub(crate) server_pid: Option<u32>,

    /// Watch a process under a name: database=1234; may be given several times.
    #[arg(long, value_name = "NAME=PID", value_parser = watched)]
    pub(crate) watch: Vec<Watched>,

    /// The part of a run that this process has; given by the process that started it.
    #[arg(long, value_name = "I/N", value_parser = part, hide = true)]
    pub(crate) part: Option<Part>,

    /// The seed of the whole run; given by the process that started this one.
    #[arg(long, value_name = "NUMBER", hide = true)]
    pub(crate) part_seed: Option<u64>,
}

/// What is told.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputFlags {
    /// The form of the result: Loadline's own, or that of another tool (docs/load-output.md).
    #[arg(long, value_name = "FORM", default_value = "summary",
        value_parser = one_of(&Style::ALL, Style::name))]
    pub(crate) style: Style,

    /// Write the result as JSON (docs/load-json.md).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,

    /// Write a time series as CSV, a row a second.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) csv: Option<PathBuf>,

    /// Write a histogram log in HdrHistogram's format, an interval a second.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) hdr: Option<PathBuf>,

    /// What the result has to be: 'p99 < 50ms', 'errors < 0.1%', 'rate >= 5000'; may be given
    /// several times.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) assert: Vec<String>,

    /// Exit with 0 also where the client was the limit; the result says it all the same.
    #[arg(long)]
    pub(crate) allow_client_limited: bool,

    /// Nothing but the result, and what failed.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// CPUs by number; clap takes a bare vector for an option that is given several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuList(pub(crate) Vec<usize>);

pub(crate) fn cpu_list(text: &str) -> Result<CpuList, String> {
    cpus(text).map(CpuList)
}

/// Source addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceList(pub(crate) Vec<IpAddr>);

fn source_list(text: &str) -> Result<SourceList, String> {
    sources(text).map(SourceList)
}

/// Versions of HTTP that the clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

const VERSIONS: &[HttpVersion] = &[HttpVersion::Http10, HttpVersion::Http11];

fn version_name(version: HttpVersion) -> &'static str {
    match version {
        HttpVersion::Http10 => "1.0",
        HttpVersion::Http11 => "1.1",
    }
}

const ARRIVALS: &[Arrivals] = &[Arrivals::Poisson, Arrivals::Constant];

pub(crate) fn arrivals_name(arrivals: Arrivals) -> &'static str {
    match arrivals {
        Arrivals::Poisson => "poisson",
        Arrivals::Constant => "constant",
    }
}

const OVERFLOWS: &[Overflow] = &[Overflow::Queue, Overflow::Drop];

pub(crate) fn overflow_name(overflow: Overflow) -> &'static str {
    match overflow {
        Overflow::Queue => "queue",
        Overflow::Drop => "drop",
    }
}
