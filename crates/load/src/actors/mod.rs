//! Clients with a mind of their own: users with a scenario, video players, slow and hostile ones.
//!
//! Each is an [`Actor`], a pure state machine: it is told what happened and says what to do next.
//! The stage (`stage.rs`) carries the orders out, for thousands of actors on one thread.

use std::io;
use std::net::IpAddr;

mod caller;
mod exchange;
pub mod idle;
mod pace;
pub mod slow_body;
pub mod slow_head;
pub mod slow_reader;
mod slow_sender;
mod stage;
#[cfg(test)]
mod tests;
mod timers;
pub mod vanishing;

pub(crate) use caller::Caller;
pub use exchange::Asked;
pub(crate) use exchange::{Progress, Watch};

use loadline_record::ErrorKind;

use crate::client_loop;
use crate::recorder::GroupRecorder;
use crate::{Control, Message, Plan, Share};

/// What an actor does next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Order {
    /// Open a connection; answered by `connected` or `failed`.
    Connect,
    /// Send these bytes, as fast as the socket takes them; answered by `sent`, or by `failed` with
    /// a timeout when the peer has taken nothing for the plan's.
    Send(Vec<u8>),
    /// Take at most so many bytes from the socket when there are some; answered by `received` or
    /// `closed`.
    Receive {
        /// At most.
        bytes_max: usize,
    },
    /// Nothing until this moment, not even reading; answered by `woken`. The end of the connection
    /// is told all the same.
    SleepUntil {
        /// Nanoseconds of the monotonic clock.
        ns: u64,
    },
    /// Like `Receive`, but at the latest until this moment, and then answered by `woken`.
    ReceiveUntil {
        /// At most.
        bytes_max: usize,
        /// Nanoseconds of the monotonic clock.
        ns: u64,
    },
    /// Close the connection; `reset`: without a word, by RST. Answered by the next `next_order`.
    Close {
        /// By RST instead of FIN.
        reset: bool,
    },
    /// What had to be done before the start is done; answered by the next `next_order`, after the
    /// start. Only for an actor that [prepares](Actor::prepares).
    AwaitStart,
    /// What had to be done before the start cannot be done, for this reason: there will be no start.
    /// Only for an actor that [prepares](Actor::prepares).
    GiveUp(String),
    /// This client does nothing any more.
    Done,
}

/// What the stage lends for one call.
#[derive(Debug)]
pub struct Scene<'s> {
    /// Nanoseconds of the monotonic clock.
    pub now_ns: u64,
    /// The phase at this moment.
    pub phase: u16,
    /// Where the actor's group is recorded.
    pub recorder: &'s mut GroupRecorder,
    /// The run is over: send nothing more, finish with `Close` and `Done`.
    pub is_ending: bool,
}

/// A client as a pure state machine. It is asked for an order after every fact, and carries on by
/// itself after `Close`. It counts for itself (sent, completed, errors of its requests) in the
/// scene's recorder; connections that come to be, and bytes, are counted by the stage.
///
/// - Its first order is asked for before the start. If that is `Connect`, it is carried out then,
///   and its outcome told at the start; any other order waits for the start. An actor that
///   [prepares](Actor::prepares) is on stage before: its orders are carried out up to `AwaitStart`.
/// - At the end it is asked anew, whatever it waits for: the order takes the place of the last one.
///   Only bytes that are being sent are sent first. Who wants to wait for an answer says so again.
/// - A peer that takes no more bytes but has said something counts as having taken them: what it
///   said comes with the next `Receive`.
pub trait Actor: Send {
    /// Whether its orders are carried out before the start, until it gives [`Order::AwaitStart`] or
    /// [`Order::GiveUp`]. Bytes of that time are not counted.
    fn prepares(&self) -> bool {
        false
    }
    /// What to do next.
    fn next_order(&mut self, scene: &mut Scene<'_>) -> Order;
    /// The connection is open.
    fn connected(&mut self, scene: &mut Scene<'_>);
    /// What was given to be sent has been taken by the kernel.
    fn sent(&mut self, scene: &mut Scene<'_>);
    /// Bytes came.
    fn received(&mut self, bytes: &[u8], scene: &mut Scene<'_>);
    /// The moment that was waited for has come.
    fn woken(&mut self, scene: &mut Scene<'_>);
    /// The peer has closed its side in good order; the stage has closed the connection.
    fn closed(&mut self, scene: &mut Scene<'_>);
    /// The connection did not come to be, or broke; the stage has closed it.
    fn failed(&mut self, kind: ErrorKind, scene: &mut Scene<'_>);
    /// It is taken off the stage before it was `Done`: a stop was asked for, or the time to wait for
    /// answers after the end is up. A request that is out is unfinished.
    fn abandoned(&mut self, _scene: &mut Scene<'_>) {}
    /// Requests that are out at this moment: summed over time by the stage, for Little's law.
    fn requests_out(&self) -> u32 {
        0
    }
}

/// How a member of a crowd is made: by its number in the whole crowd and the plan's seed.
pub type Casting = std::sync::Arc<dyn Fn(u64, u64) -> Box<dyn Actor> + Send + Sync>;

/// Actors of one kind.
#[derive(Clone)]
pub struct Crowd {
    /// Index into `Plan::groups`.
    pub group: u16,
    /// How many, in the whole run.
    pub count: u64,
    /// Index into `Plan::servers`.
    pub server: u16,
    /// Where member `i` comes from: `sources[i % len]`; empty: as the plan's.
    pub sources: Vec<IpAddr>,
    /// What the kernel may take in before it is read, in bytes; `None`: as the system has it.
    pub receive_buffer_bytes: Option<usize>,
    /// Makes one.
    pub cast: Casting,
}

impl Crowd {
    /// So many actors with the plan's sources and the system's buffers.
    #[must_use]
    pub fn new(group: u16, server: u16, count: u64, cast: Casting) -> Self {
        Self {
            group,
            count,
            server,
            sources: Vec::new(),
            receive_buffer_bytes: None,
            cast,
        }
    }
}

impl std::fmt::Debug for Crowd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crowd")
            .field("group", &self.group)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Runs the members of all crowds of the plan that belong to `share`, on the calling thread, as
/// `engine::run` does with plain clients.
///
/// # Errors
/// The kernel refuses what every run needs (an epoll instance, say).
pub fn run(
    plan: &Plan,
    share: Share,
    control: &Control,
    out: &mut dyn FnMut(Message),
) -> io::Result<()> {
    let mut stage = stage::Stage::new(plan, share)?;
    stage.ask_all_beforehand();
    client_loop::run(stage, share, control, out)
}
