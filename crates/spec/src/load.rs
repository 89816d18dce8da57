//! A load as typed data: which clients, when they send, what, and what responses have to be.
//!
//! Each option is declared once, here: its name, its type with its bounds, its default and its help. A
//! command line and a table of a plan are two ways to fill it; the load generator makes a plan of it on a
//! machine, or says what is wrong.

mod fit;
mod foreseen;
mod mask;
mod steps;
mod tls;
pub mod values;

pub use foreseen::{Address, Percent, Scheme};
pub use mask::{mask_table, mask_url, masked_words};
pub use steps::{RATE_MAX, STEPS_MAX, Steps, checked_rate};
pub use tls::TlsClientSpec;
pub use values::CLIENTS_MAX;

use clap::ValueHint;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::field::Preset;
use crate::values::{AnyTime, Auto, Count, FilePath, RunTime, Size, SomeTime, Timeout};
use crate::{one_of, spec, whole};
use values::{
    Arrivals, BitRate, Burst, Cpus, HttpVersion, Overflow, Pid, Ramp, Rate, ScheduleOf, Seed,
    SlowGroup, Sources, TimeScale, Watched,
};

/// The name of the process that `--server-pid` watches.
pub const SERVER: &str = "server";

/// Retries of a request, at most: pauses double, so more would take days.
pub const RETRIES_MAX: usize = 16;

/// Requests that a connection of HTTP/2 carries at one time, at most: servers take some hundreds.
pub const STREAMS_MAX: usize = 1 << 16;

/// Processes that share a load, at most.
pub const PROCESSES_MAX: usize = 256;

spec! {
    /// The options of `loadline load`.
    pub struct LoadSpec {
        /// Where requests go: http://HOST:PORT/PATH, or https. Of several, each is requested equally often.
        #[arg(value_name = "URL", value_hint = ValueHint::Url)]
        pub url: Vec<Address>,

        /// How many clients, and for how long.
        #[command(flatten)]
        pub clients: ClientSpec,
        /// When requests are due, if that is by the clock.
        #[command(flatten)]
        pub pace: PaceSpec,
        /// What is sent.
        #[command(flatten)]
        pub requests: RequestSpec,
        /// What responses have to be.
        #[command(flatten)]
        pub expect: ExpectSpec,
        /// How servers are reached by https.
        #[command(flatten)]
        pub tls: TlsClientSpec,
        /// Clients that do more than send the same again.
        #[command(flatten)]
        pub users: UserSpec,
        /// Slow and hostile clients beside the others.
        #[command(flatten)]
        pub hostile: HostileSpec,
        /// What the load uses of this machine.
        #[command(flatten)]
        pub machine: MachineSpec,
        /// The path to the server.
        #[command(flatten)]
        pub link: LinkSpec,
    }
}

spec! {
    /// How many clients, and for how long.
    #[command(next_help_heading = "Clients")]
    pub struct ClientSpec {
        /// Connections: in a closed loop, one for each client; in an open loop, the bound of requests in
        /// flight
        /// [default: 64, or what an --assert on a time needs at the --rate].
        #[arg(short, long, value_name = "N")]
        pub connections: Option<Count<0, CLIENTS_MAX>>,

        /// The most requests in flight on a connection; the server may allow fewer (with --http2)
        /// [default: 1; in an open loop 100].
        #[arg(long, value_name = "N")]
        pub streams: Option<Count<1, STREAMS_MAX>>,

        /// Length of the measurement, without the warm-up [default: 10s; a day with
        /// --requests].
        #[arg(short, long, value_name = "TIME")]
        pub duration: Option<RunTime>,

        /// End after this number of requests.
        #[arg(short = 'n', long, value_name = "N")]
        pub requests: Option<Count<1, { 1 << 40 }>>,

        /// Close a connection after this number of requests and open another.
        #[arg(long, value_name = "K")]
        pub requests_per_connection: Option<Count<1, { 1 << 31 }>>,

        /// A new connection for each request, whatever the server offers.
        #[arg(long)]
        pub new_connection: bool,

        /// Pause of a client between a response and its next request.
        #[arg(long, value_name = "TIME")]
        pub think: Option<SomeTime>,

        /// Read each response as soon as it arrives (closed loop). By default several are read per
        /// wake-up at high rates, which saves CPU on both sides and can add up to 50 us or 1 % to a
        /// latency.
        #[arg(long)]
        pub no_coalescing: bool,

        /// Load before the measurement, not counted.
        #[arg(long, value_name = "TIME")]
        pub warm_up: Option<RunTime>,

        /// Time allowed for a complete response, and to connect; then the request has failed.
        #[arg(long, value_name = "TIME", default_value = "2s")]
        pub timeout: Preset<Timeout>,

        /// When the --timeout is over, close the connection in good order (FIN) instead of resetting it
        /// (RST).
        #[arg(long)]
        pub close_on_timeout: bool,

        /// Time from when a request was due to the end of its response; a later response is not good.
        #[arg(long, value_name = "TIME")]
        pub deadline: Option<Timeout>,

        /// Also count the good responses that came within this time after their attempt was due.
        #[arg(long, value_name = "TIME")]
        pub latency_goal: Option<Timeout>,
    }
}

spec! {
    /// Requests by the clock.
    #[command(next_help_heading = "Open loop")]
    pub struct PaceSpec {
        /// Requests a second, whatever the server does: 5000, 20k or 0.5.
        #[arg(short = 'R', long, value_name = "RATE")]
        pub rate: Option<Rate>,

        /// How arrivals are spread around the rate [default: poisson].
        #[arg(long, value_name = "HOW",
            value_parser = one_of(Arrivals::ALL, Arrivals::name))]
        pub arrivals: Option<Arrivals>,

        /// Whether all connections have one schedule, so that a due request takes any free connection, or
        /// each has its own, with an equal part of the rate, so that a due request waits for its own
        /// connection, as with wrk2 (with --rate) [default: shared].
        #[arg(long, value_name = "HOW",
            value_parser = one_of(ScheduleOf::ALL, ScheduleOf::name))]
        pub schedule: Option<ScheduleOf>,

        /// Rates one after the other, each with its own result: 100..2500/100.
        #[arg(long, value_name = "FROM..TO/STEP")]
        pub steps: Option<Steps>,

        /// How long each step takes [default: 10s].
        #[arg(long, value_name = "TIME")]
        pub step_duration: Option<RunTime>,

        /// A rate that changes linearly over the duration: 100..2500.
        #[arg(long, value_name = "FROM..TO")]
        pub ramp: Option<Ramp>,

        /// Send at the rate for ON, then nothing for OFF, in turn: 1s/4s (with --rate).
        #[arg(long, value_name = "ON/OFF")]
        pub burst: Option<Burst>,

        /// The rate between bursts, instead of nothing (with --burst).
        #[arg(long, value_name = "RATE")]
        pub burst_base: Option<Rate>,

        /// What happens to a request that is due while every connection is busy: it waits, which
        /// counts in its latency, or is dropped, which is counted [default: queue].
        #[arg(long, value_name = "WHAT",
            value_parser = one_of(Overflow::ALL, Overflow::name))]
        pub overflow: Option<Overflow>,

        /// Try a request again up to N times after a connection failure, a timeout or status 408, 429,
        /// 500, 502, 503 or 504. Latency counts from when the first attempt was due [default: 0].
        #[arg(long, value_name = "N")]
        pub retries: Option<Count<0, RETRIES_MAX>>,

        /// Pause before the first retry, doubled for each further one; the actual pause is drawn
        /// between half of it and all of it (with --retries) [default: 100ms].
        #[arg(long, value_name = "TIME")]
        pub retry_pause: Option<SomeTime>,

        /// Longest pause that a Retry-After of a response can ask for; 0s: ignore it (with --retries)
        /// [default: 10s].
        #[arg(long, value_name = "TIME")]
        pub retry_after_max: Option<AnyTime>,
    }
}

spec! {
    /// What is sent.
    #[command(next_help_heading = "Requests")]
    pub struct RequestSpec {
        /// A file of URLs, one a line, with weights and methods (docs/load-inputs.md).
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub urls: Option<FilePath>,

        /// The method [default: GET, or POST with a body].
        #[arg(short = 'X', long, value_name = "METHOD")]
        pub method: Option<String>,

        /// A field for every request; may be given several times.
        #[arg(short = 'H', long, value_name = "NAME: VALUE")]
        pub header: Vec<String>,

        /// The content of every request.
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        pub body: Option<String>,

        /// The content of every request, from a file.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub body_file: Option<FilePath>,

        /// Name and password for Basic authentication.
        #[arg(long, value_name = "NAME:PASSWORD")]
        pub user: Option<String>,

        /// The version of HTTP.
        #[arg(long, value_name = "VERSION", default_value = "1.1",
            value_parser = http_version())]
        pub http: Preset<HttpVersion>,

        /// Speak HTTP/2: over https if the server agrees to it (ALPN), over http from the first byte on
        /// (prior knowledge). Plain clients only.
        #[arg(long)]
        pub http2: bool,

        /// HTTP/2 for this share of the connections, the requests and the rate, HTTP/1.1 for the rest;
        /// each has figures of its own: 50% (with --http2).
        #[arg(long, value_name = "SHARE")]
        pub http2_share: Option<Percent>,

        /// Replay the GET and HEAD requests of an access log in their order: common, combined or
        /// JSON (docs/load-inputs.md).
        #[arg(long, value_name = "LOG", value_hint = ValueHint::FilePath)]
        pub replay: Option<FilePath>,

        /// Send at the log's own times, multiplied: 1 is unchanged, 0.1 ten times as fast (with
        /// --replay).
        #[arg(long, value_name = "SCALE")]
        pub replay_timing: Option<TimeScale>,

        /// Replay requests of all methods, without the content that a log does not have (with
        /// --replay).
        #[arg(long)]
        pub replay_all_methods: bool,
    }
}

spec! {
    /// What responses have to be.
    #[command(next_help_heading = "Expected responses")]
    pub struct ExpectSpec {
        /// Statuses that are good: 200,304 or 2xx [default: 2xx].
        #[arg(long, value_name = "LIST")]
        pub expect_status: Option<String>,

        /// The length of every response's content.
        #[arg(long, value_name = "SIZE")]
        pub expect_length: Option<Size>,

        /// The SHA-256 of every response's content, in hexadecimal; checked on a sample.
        #[arg(long, value_name = "HASH")]
        pub expect_sha256: Option<String>,

        /// Hash the content of every n-th response (with --expect-sha256) [default: 100].
        #[arg(long, value_name = "N")]
        pub content_sample: Option<Count<1, { 1 << 31 }>>,
    }
}

spec! {
    /// Clients that do more than send the same again.
    #[command(next_help_heading = "Users and players")]
    pub struct UserSpec {
        /// Users who take the steps of a scenario (docs/scenarios.md), in place of plain
        /// connections.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub scenario: Option<FilePath>,

        /// How many users (with --scenario) [default: as --connections].
        #[arg(long, value_name = "N")]
        pub users: Option<Count<1, CLIENTS_MAX>>,

        /// Give each client its own source address, on loopback.
        #[arg(long)]
        pub source_per_client: bool,

        /// Clients that play the URL as a video of this bit rate, 5Mbps for instance, in place of plain
        /// connections.
        #[arg(long, value_name = "RATE")]
        pub player: Option<BitRate>,

        /// How many players (with --player) [default: as --connections].
        #[arg(long, value_name = "N")]
        pub players: Option<Count<1, CLIENTS_MAX>>,

        /// Latencies of each step of the scenario; foreseen.
        #[arg(long, hide = true)]
        pub step_figures: bool,
    }
}

spec! {
    /// The path between client and server; foreseen.
    pub struct LinkSpec {
        /// What it carries: 10Mbps.
        #[arg(long, hide = true, value_name = "RATE")]
        pub link_rate: Option<BitRate>,

        /// How long a packet takes in each direction.
        #[arg(long, hide = true, value_name = "TIME")]
        pub link_delay: Option<SomeTime>,

        /// The share of packets that are lost: 0.5%.
        #[arg(long, hide = true, value_name = "SHARE")]
        pub link_loss: Option<Percent>,
    }
}

spec! {
    /// Slow and hostile clients, beside the others and reported apart.
    #[command(next_help_heading = "Slow and hostile clients")]
    pub struct HostileSpec {
        /// Connections that stay open without a request.
        #[arg(long, value_name = "N")]
        pub idle_connections: Option<Count<1, CLIENTS_MAX>>,

        /// Send one request on each of them first, as a browser does (with --idle-connections).
        #[arg(long)]
        pub idle_request: bool,

        /// Clients that read responses slowly: 200@10KB/s.
        #[arg(long, value_name = "N@SPEED")]
        pub slow_readers: Option<SlowGroup>,

        /// Clients that send request heads slowly: 100@1B/s.
        #[arg(long, value_name = "N@SPEED")]
        pub slow_heads: Option<SlowGroup>,

        /// Clients that send request content slowly: 100@10B/s.
        #[arg(long, value_name = "N@SPEED")]
        pub slow_bodies: Option<SlowGroup>,

        /// Clients that close in the middle of a request or response, again and again.
        #[arg(long, value_name = "N")]
        pub vanishing: Option<Count<1, CLIENTS_MAX>>,
    }
}

spec! {
    /// What the load uses of this machine.
    #[command(next_help_heading = "This machine")]
    pub struct MachineSpec {
        /// Threads that send, in each process; auto is half of the CPUs, or one for each CPU of
        /// --cpus.
        #[arg(short, long, value_name = "N", default_value = "auto")]
        pub threads: Preset<Auto<Count<1, 1024>>>,

        /// Processes that share the load; auto is as many as the descriptor limit requires.
        #[arg(long, value_name = "N", default_value = "auto")]
        pub processes: Preset<Auto<Count<1, PROCESSES_MAX>>>,

        /// CPUs that the threads are pinned to, in turn: 1 or 0,2-3.
        #[arg(long, value_name = "LIST")]
        pub cpus: Option<Cpus>,

        /// Never sleep: threads poll for responses and due requests without a pause. Requests leave
        /// and responses are read within microseconds, and the server pays for no wake-up. Each
        /// thread uses a whole CPU, which nothing else may need.
        #[arg(long)]
        pub spin: bool,

        /// Source addresses of connections, in turn: 127.0.0.2-127.0.0.9 [default: as many loopback
        /// addresses as the number of connections needs].
        #[arg(long, value_name = "RANGE")]
        pub sources: Option<Sources>,

        /// Seed of all random choices; the same seed repeats them [default: a new one each time, which
        /// the result names].
        #[arg(long, value_name = "NUMBER")]
        pub seed: Option<Seed>,

        /// Watch the server's process and its children: CPU, memory, descriptors.
        #[arg(long, value_name = "PID")]
        pub server_pid: Option<Pid>,

        /// Watch a process under a name: database=1234; may be given several times.
        #[arg(long, value_name = "NAME=PID")]
        pub watch: Vec<Watched>,
    }
}

whole!(LoadSpec, positional: "url");

/// Versions by name; what is foreseen and not there yet says so.
fn http_version() -> impl TypedValueParser<Value = Preset<HttpVersion>> {
    let value = |version: &HttpVersion| {
        let is_foreseen = version.check_supported().is_err();
        PossibleValue::new(version.name()).hide(is_foreseen)
    };
    PossibleValuesParser::new(HttpVersion::ALL.iter().map(value))
        .try_map(|text| text.parse().map(Preset))
}

#[cfg(test)]
mod tests;
