//! What is programmed.

use std::io;
use std::net::SocketAddr;

use clap::{Args, Parser, ValueEnum};

use crate::{ConnectionFault, Draw, Every, Fault, Latency, Listening, Stall, TlsIdentity, text};

/// How the end of the content is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Framing {
    /// By `Content-Length`.
    Length,
    /// In chunks, two of about the same size.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// When the responder closes a connection after a complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Closing {
    /// When the request asks for it, and says so in the answer.
    AsAsked,
    /// After every answer, and says so in it.
    Announced,
    /// After every answer, without saying so.
    Silent,
    /// Never, though the answer says so where the request asked for it: the client has to close.
    Ignored,
}

/// Bytes of an answer. By this name they are one value of an option, not a list of values.
type Content = Vec<u8>;

/// The program of a responder. The default answers 13 bytes at once and makes no mistakes.
#[derive(Args, Clone, Debug)]
pub struct StubOptions {
    /// Where it listens; port 0: the kernel chooses.
    #[arg(long = "listen", default_value = "127.0.0.1:0")]
    pub address: SocketAddr,
    /// TLS for connections; `None`: plain HTTP.
    #[arg(skip)]
    pub tls: Option<TlsIdentity>,
    /// What becomes of connections.
    #[arg(long, default_value = "answering")]
    pub listening: Listening,
    /// How long an answer takes: 5ms, exp:5ms, bimodal:1ms,10ms,5%.
    #[arg(long, default_value = "0", value_parser = text::latency)]
    pub latency: Latency,
    /// Of each COUNT answers in a row, one from each of COUNT equal parts of the distribution; or
    /// `independent`.
    #[arg(long = "strata", value_name = "COUNT", default_value = "independent", value_parser = text::draw)]
    pub draw: Draw,
    /// Requests that are served at once, the others wait in one queue; without it, all are.
    #[arg(long, alias = "capacity", value_name = "COUNT")]
    pub servers: Option<u32>,
    /// A pause of the whole responder, again and again: 1s/10s for one second every ten.
    #[arg(long, value_parser = text::stall)]
    pub stall: Option<Stall>,
    /// The first answers of connections are later by times spread over this.
    ///
    /// Clients that begin together and ask again at once stay in step as long as answers take the same
    /// time, and each waits for the answers to the others; spread, they stay so.
    #[arg(long = "spread", value_name = "TIME", default_value = "0", value_parser = text::duration_ns)]
    pub spread_ns: u64,
    /// Bytes of content of an answer.
    #[arg(long, value_name = "BYTES", default_value = "13", value_parser = text::body)]
    pub body: Content,
    /// How the end of the content is marked.
    #[arg(long, default_value = "length")]
    pub framing: Framing,
    /// When connections close.
    #[arg(long, default_value = "as-asked")]
    pub closing: Closing,
    /// What is wrong with every Nth answer: cut-body@10, status:503@7, late:2s@100. The first rule
    /// that concerns a request decides.
    #[arg(long = "fault", value_name = "FAULT@N", value_parser = text::fault)]
    pub faults: Vec<Every<Fault>>,
    /// What happens to every Nth connection: close@10, reset@10. The first rule decides.
    #[arg(long = "connection-fault", value_name = "FAULT@N", value_parser = text::connection_fault)]
    pub connection_faults: Vec<Every<ConnectionFault>>,
    /// Repeats what is drawn.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Time before an answer in which the clock is read all the time, since timers are late: by as
    /// much on a machine that has something else to do, too. It costs as much of a CPU as there are
    /// such times.
    #[arg(long = "spin", value_name = "TIME", default_value = "50us", value_parser = text::duration_ns)]
    pub spin_ns: u64,
    /// The CPU that it runs on, by its number. Without it the kernel chooses, which may well be the
    /// client's CPU though another one is idle.
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Requests of which the times are kept, 32 bytes each, used as they are filled; later ones are
    /// only counted.
    #[arg(long = "times", value_name = "COUNT", default_value_t = 1_000_000)]
    pub times_max: usize,
}

#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    options: StubOptions,
}

impl Default for StubOptions {
    fn default() -> Self {
        Defaults::parse_from([""]).options
    }
}

impl StubOptions {
    /// # Errors
    /// What does not make sense, as a sentence.
    pub(crate) fn check(&self) -> io::Result<()> {
        let wrong = if self.servers == Some(0) {
            "a responder without servers answers nothing: the capacity has to be at least 1"
        } else if self.draw == (Draw::Stratified { strata: 0 }) {
            "at least one stratum is needed"
        } else if (self.stall).is_some_and(|stall| stall.length_ns >= stall.every_ns) {
            "a stall has to be shorter than the time from one to the next"
        } else if self.faults.iter().any(|rule| rule.every == 0)
            || self.connection_faults.iter().any(|rule| rule.every == 0)
        {
            "'every 0th' is no number of a request: it has to be at least 1"
        } else if !is_sound(&self.latency) {
            "a latency has to be a time of at least 0, and a share from 0 to 1"
        } else if (self.faults.iter()).any(
            |rule| matches!(rule.fault, Fault::Status(status) if !(200..600).contains(&status)),
        ) {
            "the status of a response is from 200 to 599"
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, wrong))
    }
}

fn is_sound(latency: &Latency) -> bool {
    match *latency {
        Latency::Constant { .. } => true,
        Latency::Exponential { mean_ns } => mean_ns.is_finite() && mean_ns >= 0.0,
        Latency::Bimodal { second_share, .. } => (0.0..=1.0).contains(&second_share),
    }
}
