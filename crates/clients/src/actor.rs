//! What a client with behaviour is: a pure state machine that is asked for orders after every event.

use loadline_load::recorder::GroupRecorder;
use loadline_record::ErrorKind;

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
