//! What a client with behaviour is: a pure state machine that is asked for an order after every event.

use loadline_load::calendar::Calendar;
use loadline_load::recorder::GroupRecorder;
use loadline_record::ErrorKind;

/// What a virtual user does next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Order {
    /// Open a connection; answered by `Connected` or `Failed`.
    Connect,
    /// Send these bytes, as fast as the socket takes them; answered by `Sent`, or by `Failed` with
    /// a timeout when the peer has taken nothing for the plan's.
    Send(Vec<u8>),
    /// Take bytes from the socket when there are some; answered by `Received` or
    /// `Closed`.
    Receive {
        /// At most.
        bytes_max: usize,
    },
    /// Nothing until this moment, not even reading; answered by `Woken`. The end of the connection
    /// is reported all the same.
    SleepUntil {
        /// Nanoseconds of the monotonic clock.
        ns: u64,
    },
    /// Like `Receive`, but at the latest until this moment, and then answered by `Woken`.
    ReceiveUntil {
        /// At most.
        bytes_max: usize,
        /// Nanoseconds of the monotonic clock.
        ns: u64,
    },
    /// Close the connection; `reset`: by RST. Answered by the next `next_order`.
    Close {
        /// By RST instead of FIN.
        reset: bool,
    },
    /// What had to be done before the start is done; answered by the next `next_order`, after the
    /// start. Only for a virtual user that [prepares](VirtualUser::prepares).
    AwaitStart,
    /// What had to be done before the start cannot be done, for this reason: there will be no start.
    /// Only for a virtual user that [prepares](VirtualUser::prepares).
    GiveUp(String),
    /// This client does nothing any more.
    Done,
}

/// What has happened to a virtual user: mostly the outcome of its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'b> {
    /// The connection is open.
    Connected,
    /// The kernel has taken all that was to be sent.
    Sent,
    /// These bytes were received.
    Received(&'b [u8]),
    /// The moment of the order has come.
    Woken,
    /// The peer has closed its side in good order; the executor has closed the connection.
    Closed,
    /// The same over TLS without its own end: anybody could have cut the connection, so no content ends
    /// there.
    Cut,
    /// The connection could not be opened, or broke; the executor has closed it.
    Failed(ErrorKind),
    /// It is removed before it was `Done`: a stop was asked for, or the time to wait for
    /// answers after the end is up. A request that is out is unfinished.
    Abandoned,
}

/// What a user sees and writes to in one call.
#[derive(Debug)]
pub struct UserContext<'s> {
    /// Nanoseconds of the monotonic clock.
    pub now_ns: u64,
    /// The phase at this moment.
    pub phase: u16,
    /// The phases of the run; `None`: there is only this one.
    pub calendar: Option<&'s Calendar<'s>>,
    /// Where the virtual user's group is recorded; while it prepares, where nobody reads it.
    pub recorder: &'s mut GroupRecorder,
    /// The run is over: send nothing more, finish with `Close` and `Done`.
    pub is_ending: bool,
}

impl UserContext<'_> {
    /// The phase of a request that was due at `due_ns`, which may have been before this one.
    #[must_use]
    pub fn phase_of(&self, due_ns: u64) -> u16 {
        self.calendar
            .map_or(self.phase, |calendar| calendar.phase_of(due_ns))
    }
}

/// A client as a pure state machine. It is asked for an order after every event, and after `Close`.
/// It counts its requests (sent, completed, errors) in the context's recorder; the executor counts
/// open connections and bytes.
///
/// - Its first order is asked for before the start. If that is `Connect`, it is carried out then,
///   and its outcome reported at the start; any other order waits for the start. A virtual user that
///   [prepares](VirtualUser::prepares) runs before: its orders are carried out up to `AwaitStart`.
/// - At the end it is asked again, whatever it waits for: the new order replaces the last one. Only
///   bytes that are being sent are sent first. To wait for an answer, it orders that again.
/// - A peer that takes no more bytes but has sent some counts as having taken them: what it
///   has sent comes with the next `Receive`.
pub trait VirtualUser: Send {
    /// Whether its orders are carried out before the start, until it gives [`Order::AwaitStart`] or
    /// [`Order::GiveUp`]. Of that time, neither bytes are counted nor what it records.
    fn prepares(&self) -> bool {
        false
    }
    /// What to do next.
    fn next_order(&mut self, context: &mut UserContext<'_>) -> Order;
    /// Something has happened.
    fn on_event(&mut self, event: Event<'_>, context: &mut UserContext<'_>);
    /// Requests that are out at this moment: summed over time by the executor, for Little's law.
    fn requests_out(&self) -> u32 {
        0
    }
}
