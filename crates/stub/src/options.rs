//! What is programmed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::{ConnectionFault, Draw, Every, Fault, Latency, Listening, Stall};

/// How the end of the content is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By `Content-Length`.
    Length,
    /// In chunks, two of about the same size.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// When the responder closes a connection after a complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// When the request asks for it, and says so in the answer.
    AsAsked,
    /// After every answer, and says so in it.
    Announced,
    /// After every answer, without a word.
    Silent,
    /// Never, though the answer says so where the request asked for it: the client has to close.
    Ignored,
}

/// The program of a responder. The default answers 13 bytes at once and makes no mistakes.
#[derive(Clone, Debug)]
pub struct StubOptions {
    /// Where it listens; port 0: the kernel chooses.
    pub address: SocketAddr,
    /// Whether there is anybody.
    pub listening: Listening,
    /// How long an answer takes.
    pub latency: Latency,
    /// How that is drawn.
    pub draw: Draw,
    /// Requests that are served at once, the others wait in one queue; `None`: all are.
    pub servers: Option<u32>,
    /// A pause of the whole responder, again and again.
    pub stall: Option<Stall>,
    /// The first answers of connections are later by times spread over this, in nanoseconds. Clients
    /// that begin together and ask again at once stay in step as long as answers take the same
    /// time, and each waits for the answers to the others; spread, they stay so.
    pub spread_ns: u64,
    /// The content of an answer.
    pub body: Vec<u8>,
    /// How its end is marked.
    pub framing: Framing,
    /// When connections close.
    pub closing: Closing,
    /// What is wrong with which answers; the first rule that concerns a request decides.
    pub faults: Vec<Every<Fault>>,
    /// What happens to which connections; the first rule decides.
    pub connection_faults: Vec<Every<ConnectionFault>>,
    /// Repeats what is drawn.
    pub seed: u64,
    /// Nanoseconds before an answer is due in which its moment is awaited by looking at the clock,
    /// since timers are late. It costs as much of a CPU as there are such times.
    pub spin_ns: u64,
    /// The CPU that it runs on, by its number; `None`: the kernel's choice, which may well be the
    /// client's, of two that have an idle one beside them.
    pub cpu: Option<usize>,
    /// Requests of which the times are kept, 32 bytes each; later ones are only counted.
    pub times_max: usize,
}

/// Timers are late by as much on a machine that has something else to do, too.
const SPIN_NS: u64 = 50_000;
/// The times of a million requests: 32 MB, used as they are filled.
const TIMES_MAX: usize = 1_000_000;

impl Default for StubOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            listening: Listening::Answering,
            latency: Latency::NONE,
            draw: Draw::Independent,
            servers: None,
            stall: None,
            spread_ns: 0,
            body: b"Hello, world!".to_vec(),
            framing: Framing::Length,
            closing: Closing::AsAsked,
            faults: Vec::new(),
            connection_faults: Vec::new(),
            seed: 1,
            spin_ns: SPIN_NS,
            cpu: None,
            times_max: TIMES_MAX,
        }
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
            "a status of an answer is from 200 to 599"
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
