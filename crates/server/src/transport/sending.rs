//! Output that a socket did not take at once, or that holds files: how much has left, and what is next.

use std::os::fd::BorrowedFd;

use loadline_base::{LogLimit, Millis, Transmit};
use loadline_proto::{CloseReason, Context, ServerSession};
use loadline_sys::write::{self, FileBuffer, Files, WriteError, WriteProgress, Written};

use super::Range;
use crate::telemetry::log;

/// For so long what was prefetched counts as in the page cache. 5 s: less than the kernel keeps what was
/// read last, unless memory is very short, and enough for a client that takes a range of 512 KiB at 1 Mbit/s.
const PREFETCHED_MS: u64 = 5_000;

/// A batch on its way.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) transmit: Transmit,
    /// Whether files are sent without asking whether they are in the page cache.
    files: Files,
    /// Bytes of a file that were just prefetched: to be sent without asking.
    prefetched_bytes: u64,
    /// When the first of them could be sent.
    prefetched_at: Option<Millis>,
    /// A range is being prefetched: nothing is sent before.
    is_prefetching: bool,
}

/// What came of a write.
#[derive(Debug)]
pub(crate) enum SendOutcome {
    /// All of it is in the socket.
    Whole,
    /// The socket is full.
    Full,
    /// The budget of bytes is used up.
    Budget,
    /// This range has to be prefetched first.
    NotCached(Range),
    /// Nothing: a range is being prefetched, or writing failed and the session knows.
    Nothing,
}

impl Sending {
    pub(crate) fn new(transmit: Transmit, files: Files) -> Self {
        Self {
            transmit,
            files,
            prefetched_bytes: 0,
            prefetched_at: None,
            is_prefetching: false,
        }
    }

    /// Its thread is not to wait for the disk from now on.
    pub(crate) fn probe(&mut self) {
        self.files = Files::Probe;
    }

    /// The range is in the page cache.
    pub(crate) fn prefetched(&mut self) {
        self.is_prefetching = false;
    }

    /// The same for `bytes` of it; what could not be read is met again when it is sent.
    pub(crate) fn read_ahead(&mut self, bytes: u64) {
        self.is_prefetching = false;
        if bytes > 0 {
            self.prefetched_bytes = self.prefetched_bytes.min(bytes);
        }
    }

    pub(crate) fn is_prefetching(&self) -> bool {
        self.is_prefetching
    }

    /// Writes what the socket takes and the budget allows.
    pub(crate) fn go_on(
        &mut self,
        socket: BorrowedFd<'_>,
        files: Option<&mut FileBuffer>,
        bytes_left: &mut u64,
        session: &mut ServerSession,
        cx: &mut Context<'_>,
    ) -> SendOutcome {
        if self.is_prefetching {
            return SendOutcome::Nothing;
        }
        let prefetched_at = *self.prefetched_at.get_or_insert(cx.now);
        if cx.now.since(prefetched_at) > PREFETCHED_MS {
            self.prefetched_bytes = 0; // it may no longer be in the page cache
        }
        let (budget, trust) = match self.prefetched_bytes {
            0 => (*bytes_left, self.files),
            bytes => (bytes, Files::Trust),
        };
        let result = write::write(socket, &mut self.transmit, budget, trust, files);
        self.after(result, bytes_left, session, cx)
    }

    /// After a write: reports progress and failures to the session.
    pub(crate) fn after(
        &mut self,
        result: Result<Written, WriteError>,
        bytes_left: &mut u64,
        session: &mut ServerSession,
        cx: &mut Context<'_>,
    ) -> SendOutcome {
        let written = match result {
            Ok(written) => written,
            Err(WriteError::Peer(_)) => {
                session.peer_gone(cx);
                return SendOutcome::Nothing;
            }
            Err(WriteError::File(error)) => {
                cut_short(&error);
                session.abort(CloseReason::Failed);
                return SendOutcome::Nothing;
            }
        };
        *bytes_left = bytes_left.saturating_sub(written.bytes);
        self.prefetched_bytes = self.prefetched_bytes.saturating_sub(written.bytes);
        if written.bytes > 0 {
            session.progressed(written.bytes, cx);
        }
        match written.progress {
            WriteProgress::Done => SendOutcome::Whole,
            WriteProgress::Blocked => SendOutcome::Full,
            WriteProgress::Budget => SendOutcome::Budget,
            WriteProgress::NotCached { file, offset, len } => {
                self.is_prefetching = true;
                self.prefetched_bytes = len;
                self.prefetched_at = None;
                SendOutcome::NotCached(Range { file, offset, len })
            }
        }
    }
}

/// A file could not be read to the end that its answer has promised.
#[cold]
pub(crate) fn cut_short(error: &std::io::Error) {
    static LIMIT: LogLimit = LogLimit::new(log::LINES_MAX);
    log::say_within(&LIMIT, |more| {
        tracing::warn!("an answer was cut short: {error}{more}");
    });
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use loadline_base::Segment;

    use super::*;
    use crate::connection::tests::{Distant, fill};
    use crate::site::tests::quiet_site;
    use crate::telemetry::counters::Role;
    use crate::thread::context::{Borrowed, ThreadContext};

    /// A slow client makes room after minutes, and the loop waited for the disk then. For a client that
    /// makes room soon, the same range is not read again.
    #[test]
    fn a_prefetched_range_is_asked_for_again_after_some_seconds() {
        let distant = Distant::new();
        let file = Segment::File {
            file: Arc::clone(&distant.file),
            offset: 0,
            len: distant.content.len() as u64,
        };
        let mut sending = Sending::new(Transmit::new(vec![file]), Files::Probe);
        let (_client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        fill(&server);
        let thread = &mut ThreadContext::new(&quiet_site(), Role::Loop);
        let Borrowed {
            config,
            files,
            mut cx,
            ..
        } = thread.borrow();
        let start = cx.now;
        let (mut session, mut bytes_left) = (config.session(0, None, &mut cx), 1 << 20);
        let mut go_on = |sending: &mut Sending, after_ms: u64| {
            cx.now = Millis(start.0 + after_ms);
            let socket = server.as_fd();
            sending.go_on(
                socket,
                Some(&mut *files),
                &mut bytes_left,
                &mut session,
                &mut cx,
            )
        };
        // The range is read for a minute, which takes nothing of its time.
        for read_at in [0, 60_000] {
            let outcome = go_on(&mut sending, read_at);
            assert!(matches!(outcome, SendOutcome::NotCached(_)), "{outcome:?}");
            let read_at = read_at + 60_000 - PREFETCHED_MS - 1;
            let outcome = go_on(&mut sending, read_at);
            assert!(matches!(outcome, SendOutcome::Nothing), "{outcome:?}");
            sending.prefetched();
            for after_ms in [0, PREFETCHED_MS] {
                let outcome = go_on(&mut sending, read_at + after_ms);
                assert!(matches!(outcome, SendOutcome::Full), "{outcome:?}");
            }
        }
    }
}
