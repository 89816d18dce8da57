//! The orders of a session: what its owner has to do next.

use loadline_base::Transmit;

use crate::Exchange;

/// What the owner of a session has to do next.
#[derive(Debug)]
#[must_use]
pub enum Action {
    /// The handler's quick step, on the owner's thread; give back with `ran`.
    Run(Box<Exchange>),
    /// The handler's blocking step, where blocking is allowed; give back with `completed`.
    Block(Box<Exchange>),
    /// Deliver this; give back with `sent`. One at a time.
    Send(Transmit),
    /// Half-close: no more output will come. (`shutdown(SHUT_WR)`.)
    Finish,
    /// Nothing more until a fact; `read`: are bytes welcome?
    Wait {
        /// Whether bytes may be received now.
        read: bool,
    },
    /// Close the connection; then nothing follows but `ended`.
    Close,
}
