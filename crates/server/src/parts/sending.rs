//! Output that a socket did not take at once, or that holds files: how far it got, and what next.

use std::os::fd::BorrowedFd;

use loadline_base::{LogLimit, Transmit};
use loadline_proto::{CloseReason, ServerSession, Turn};
use loadline_sys::write::{self, FileBuffer, Files, Progress, WriteError, Written};

use crate::parts::connection::Range;
use crate::parts::log;

/// A batch on its way.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) transmit: Transmit,
    /// Bytes of a file that were just read ahead: to be sent without looking again.
    warm_bytes: u64,
    /// A range is being read ahead: nothing to be sent before `warmed`.
    warming: bool,
}

/// Where a write has led.
#[derive(Debug)]
pub(crate) enum Went {
    /// All of it is in the socket.
    Out,
    /// The socket is full.
    Full,
    /// The share is used up.
    Budget,
    /// This range has to be read first.
    Cold(Range),
    /// Nothing to be done here: it waits for a range, or the session knows that it broke.
    Nowhere,
}

impl Sending {
    pub(crate) fn new(transmit: Transmit) -> Self {
        Self {
            transmit,
            warm_bytes: 0,
            warming: false,
        }
    }

    /// The range that was cold is in memory.
    pub(crate) fn warmed(&mut self) {
        self.warming = false;
    }

    /// The same for `bytes` of it; what could not be read is met again when it is sent.
    pub(crate) fn read_ahead(&mut self, bytes: u64) {
        self.warming = false;
        if bytes > 0 {
            self.warm_bytes = self.warm_bytes.min(bytes);
        }
    }

    /// Writes what the socket takes and the share allows.
    pub(crate) fn go_on(
        &mut self,
        socket: BorrowedFd<'_>,
        files: Option<&mut FileBuffer>,
        bytes_left: &mut u64,
        session: &mut ServerSession,
        turn: &mut Turn<'_>,
    ) -> Went {
        if self.warming {
            return Went::Nowhere;
        }
        let (budget, trust) = match self.warm_bytes {
            0 => (*bytes_left, Files::Probe),
            warm => (warm, Files::Trust),
        };
        let result = write::write(socket, &mut self.transmit, budget, trust, files);
        self.after(result, bytes_left, session, turn)
    }

    /// Follows a write; the session learns of progress and of what broke.
    pub(crate) fn after(
        &mut self,
        result: Result<Written, WriteError>,
        bytes_left: &mut u64,
        session: &mut ServerSession,
        turn: &mut Turn<'_>,
    ) -> Went {
        let written = match result {
            Ok(written) => written,
            Err(WriteError::Peer(_)) => {
                session.peer_gone(turn);
                return Went::Nowhere;
            }
            Err(WriteError::File(error)) => {
                static LIMIT: LogLimit = LogLimit::new(log::LINES_MAX);
                log::say_within(&LIMIT, |more| {
                    tracing::warn!("an answer was cut short: {error}{more}");
                });
                session.abort(CloseReason::Failed);
                return Went::Nowhere;
            }
        };
        *bytes_left = bytes_left.saturating_sub(written.bytes);
        self.warm_bytes = self.warm_bytes.saturating_sub(written.bytes);
        if written.bytes > 0 {
            session.progressed(written.bytes, turn);
        }
        match written.progress {
            Progress::Done => Went::Out,
            Progress::Blocked => Went::Full,
            Progress::Budget => Went::Budget,
            Progress::Cold { file, offset, len } => {
                self.warming = true;
                self.warm_bytes = len;
                Went::Cold(Range { file, offset, len })
            }
        }
    }
}
