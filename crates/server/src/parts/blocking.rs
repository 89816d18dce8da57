//! One connection on one blocking thread, from its first byte to its last.
//!
//! The thread waits in `ppoll` for the socket and the next stage of a shutdown, until the session's
//! deadline; then it reads or writes without waiting. So a deadline holds to the millisecond, and a
//! drain reaches every thread at once, without signals or time limits on the socket.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loadline_base::{LogLimit, Millis, Transmit};
use loadline_proto::{
    Action, CloseReason, ConnectionRecord, Exchange, Handler, RECEIVE_BYTES, ServerSession, Status,
};
use loadline_sys::write::{Files, Progress, WriteError, write};
use loadline_sys::{Accepted, Waker, socket, wait_socket};

use crate::kit::{Kit, Lent};
use crate::parts::errand::{Bell, Held, Told};
use crate::parts::local_address::Arrived;
use crate::parts::log;
use crate::parts::shutdown::Stage;
use crate::site::Site;

/// Read buffer of a blocking thread: 16 KiB, since there may be thousands of them. A request with
/// less than that costs one call.
pub(crate) const SCRATCH_BYTES: usize = 16 << 10;

const _: () = assert!(SCRATCH_BYTES.is_multiple_of(RECEIVE_BYTES));

/// Bytes written between two looks at the clock and the shutdown: 4 MiB take some milliseconds.
const WRITE_BYTES: u64 = 4 << 20;

/// A connection's right to its thread, which somebody may take away while it is idle.
pub(crate) trait Tenure {
    /// The connection begins to wait for a request.
    fn rest(&self, now: Millis);

    /// It goes on; `false` if it was taken away meanwhile.
    fn resume(&self) -> bool;
}

/// Nobody takes it away.
pub(crate) struct Permanent;

impl Tenure for Permanent {
    fn rest(&self, _now: Millis) {}

    fn resume(&self) -> bool {
        true
    }
}

/// What a newcomer meets with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Welcome {
    /// It is served.
    Serve,
    /// It gets a 503.
    Refuse,
}

/// Serves a connection until its end. The caller has noted it in the journal, and closes the socket.
pub(crate) fn serve<H: Handler, T: Tenure>(
    socket: BorrowedFd<'_>,
    peer: Option<SocketAddr>,
    site: &Site<H>,
    kit: &mut Kit<H>,
    tenure: &T,
    welcome: Welcome,
    record: Option<Box<ConnectionRecord>>,
) {
    kit.tick();
    kit.row.connections.add(1);
    let mut session = ServerSession::new(&site.session, peer, &mut kit.turn());
    session.keep_record(record);
    if welcome == Welcome::Refuse {
        session.refuse(Status::SERVICE_UNAVAILABLE, &mut kit.turn());
    }
    let mut conversation = Conversation {
        socket,
        site,
        kit,
        tenure,
        session,
        seen: Stage::Up,
        errand: None,
        out: None,
        arrived: Arrived::default(),
    };
    // Whatever panics ends this connection, and no thread: what is left half done goes with it.
    let run = catch_unwind(AssertUnwindSafe(|| conversation.run()));
    let Conversation {
        kit,
        mut session,
        out,
        errand,
        ..
    } = conversation;
    drop(errand);
    if let Err(panic) = run {
        give_up(&mut session, log::panic_text(panic.as_ref()));
    }
    if let Some(transmit) = out {
        kit.turn().pool.give_segments(transmit.into_segments());
    }
    // Before the close is counted: whoever sees all closed sees nobody connected.
    kit.row.connections.sub(1);
    let record = session.ended(&mut kit.turn());
    kit.journal_closed(record);
    kit.offer_log();
}

#[cold]
fn give_up(session: &mut ServerSession, text: &str) {
    static LIMIT: LogLimit = LogLimit::new(log::LINES_MAX);
    log::say_within(&LIMIT, |more| {
        tracing::error!("a connection's thread panicked: {text}{more}");
    });
    session.abort(CloseReason::Failed);
}

/// Tells a newcomer that there is no room, as far as that takes no waiting, and closes it. A client
/// that is still sending may see a reset instead of the answer.
pub(crate) fn refuse_at_once<H: Handler>(accepted: &Accepted, site: &Site<H>, kit: &mut Kit<H>) {
    kit.tick();
    let socket = accepted.socket.as_fd();
    let record = kit.journal_accepted(accepted.peer);
    let mut turn = kit.turn();
    let mut session = ServerSession::new(&site.session, accepted.peer, &mut turn);
    session.keep_record(record);
    session.refuse(Status::SERVICE_UNAVAILABLE, &mut turn);
    loop {
        match session.next_action(&mut turn) {
            Action::Send(mut transmit) => {
                match write(socket, &mut transmit, WRITE_BYTES, Files::Trust, None) {
                    Ok(_) if transmit.is_done() => session.sent(transmit, &mut turn),
                    _ => session.abort(CloseReason::Refused),
                }
            }
            Action::Finish => _ = socket::finish(socket), // gone already: closed either way
            Action::Close => break,
            // Nobody runs anything for it, and nobody waits.
            _ => session.abort(CloseReason::Refused),
        }
    }
    let record = session.ended(&mut turn);
    kit.journal_closed(record);
}

struct Conversation<'c, H: Handler, T> {
    socket: BorrowedFd<'c>,
    site: &'c Site<H>,
    kit: &'c mut Kit<H>,
    tenure: &'c T,
    session: ServerSession,
    /// The stage of the shutdown that the session has been told.
    seen: Stage,
    /// The app's task that has the request: polled by this thread, while it waits for the socket.
    errand: Option<Errand>,
    /// What the socket has not taken yet, while a task is to be polled beside it.
    out: Option<Transmit>,
    arrived: Arrived,
}

/// An app's task and what wakes the thread for it.
struct Errand {
    held: Box<Held>,
    bell: Arc<Waker>,
}

impl<H: Handler, T: Tenure> Conversation<'_, H, T> {
    /// The whole of a connection: each order, carried out on the spot.
    fn run(&mut self) {
        loop {
            if self.site.shutdown.stage() > self.seen {
                self.shutdown_moved();
            }
            let Lent {
                local, mut turn, ..
            } = self.kit.lend();
            match self.session.next_action(&mut turn) {
                Action::Run(mut exchange) => {
                    let outcome = self.site.handle(local, &mut exchange, &mut turn);
                    self.session.ran(exchange, outcome, &mut turn);
                }
                Action::Block(mut exchange) => {
                    self.site.handle_blocking(&mut exchange);
                    self.kit.tick();
                    self.announce_drain();
                    self.session.completed(exchange, &mut self.kit.turn());
                }
                Action::Start(exchange) => self.start(exchange),
                Action::Offer(_, piece) => {
                    if let Some(errand) = &self.errand {
                        errand.held.offer(piece);
                    }
                }
                Action::Pull(_, room) => {
                    if let Some(errand) = &self.errand {
                        errand.held.pull(room);
                    }
                }
                Action::Cancel(_) => self.errand = None,
                Action::Send(transmit) => self.send(transmit),
                Action::Finish => {
                    if socket::finish(self.socket).is_err() {
                        self.session.peer_gone(&mut turn);
                    }
                }
                Action::Wait { read } => self.wait(read),
                Action::Close => return,
            }
        }
    }

    /// Begins an app's task.
    fn start(&mut self, mut exchange: Box<Exchange>) {
        exchange.local = self.site.local_addresses.of(&mut self.arrived, self.socket);
        match self.kit.bell() {
            Ok(bell) => {
                let ring = Bell::Thread(Arc::clone(&bell));
                let held = self.kit.errands.here(exchange, ring, self.site);
                self.errand = Some(Errand { held, bell });
            }
            Err(error) => {
                static LIMIT: LogLimit = LogLimit::new(log::LINES_MAX);
                log::say_within(&LIMIT, |more| {
                    tracing::warn!("no descriptor to wait for an app with: {error}{more}");
                });
                exchange.response.error(Status::SERVICE_UNAVAILABLE);
                exchange.response.field("Retry-After", "1");
                self.session.answered(exchange, &mut self.kit.turn());
            }
        }
    }

    /// Polls the task if that is due, and tells the session what it has said; `false`: nothing.
    fn go_on(&mut self) -> bool {
        let Some(errand) = &mut self.errand else {
            return false;
        };
        let mut turn = self.kit.turn();
        if self.site.shutdown.is_draining() {
            self.session.draining(&mut turn); // shows in a head that is still to come
        }
        let told = errand.held.go_on(&mut self.session, &mut turn);
        if told == Told::Last
            && let Some(errand) = self.errand.take()
        {
            self.kit.errands.end(errand.held);
        }
        self.kit.tick(); // the task may have taken its time
        told != Told::Nothing
    }

    /// Waits for bytes, the deadline, a task or the shutdown, and tells the session.
    fn wait(&mut self, read: bool) {
        if self.errand.is_some() && self.go_on() {
            return;
        }
        let idle = self.session.is_idle();
        if idle {
            self.tenure.rest(self.kit.now());
        }
        self.kit.offer_log();
        let stage_fd = self.site.shutdown.next_fd(self.seen);
        let bell = self.errand.as_ref().map(|errand| errand.bell.as_fd());
        let timeout_ms = self.timeout_ms();
        let write = self.out.is_some();
        let result = wait_socket(self.socket, read, write, stage_fd, bell, timeout_ms);
        if let Some(errand) = &self.errand
            && result.as_ref().is_ok_and(|ready| ready.rung)
        {
            errand.bell.clear();
        }
        self.kit.tick();
        if idle && !self.tenure.resume() {
            self.session.abort(CloseReason::Evicted);
            return;
        }
        let Ok(ready) = result else {
            self.session.abort(CloseReason::Failed);
            return;
        };
        if self.is_cut() {
            self.cut();
        } else if ready.readable {
            self.receive();
        } else if ready.gone {
            self.session.peer_gone(&mut self.kit.turn());
        } else {
            self.session.expired(&mut self.kit.turn());
        }
        if ready.writable
            && let Some(transmit) = self.out.take()
        {
            self.send(transmit);
        }
    }

    /// Reads what is there, without waiting.
    fn receive(&mut self) {
        let Lent {
            scratch, mut turn, ..
        } = self.kit.lend();
        match socket::receive(self.socket, scratch) {
            Ok(Some(0)) => self.session.received_eof(&mut turn),
            Ok(Some(count)) => self.session.received(&mut scratch[..count], &mut turn),
            Ok(None) => {}
            Err(_) => self.session.peer_gone(&mut turn),
        }
    }

    /// Delivers a batch, or gives it up together with the connection.
    fn send(&mut self, mut transmit: Transmit) {
        let mut took_long = false;
        loop {
            // By `sendfile`: a buffer for each of many threads would be too much.
            let written = write(self.socket, &mut transmit, WRITE_BYTES, Files::Trust, None);
            let written = match written {
                Ok(written) => written,
                Err(error) => return self.send_failed(transmit, &error),
            };
            if matches!(written.progress, Progress::Done) {
                // Before the session closes for want of more, it learns what has come meanwhile.
                if took_long && self.session.is_ending() {
                    self.receive();
                }
                return self.session.sent(transmit, &mut self.kit.turn());
            }
            took_long = true;
            let mut turn = self.kit.turn();
            match written.progress {
                Progress::Blocked => {
                    self.session.progressed(written.bytes, &mut turn);
                    if self.errand.is_some() {
                        self.out = Some(transmit);
                        return; // `wait` comes back to it
                    }
                    // A drain that begins meanwhile moves the time until which to wait.
                    let stage_fd = self.site.shutdown.next_fd(self.site.shutdown.stage());
                    let timeout_ms = self.timeout_ms();
                    if wait_socket(self.socket, false, true, stage_fd, None, timeout_ms).is_err() {
                        self.session.abort(CloseReason::Failed);
                        break;
                    }
                }
                Progress::Done | Progress::Budget | Progress::Cold { .. } => {
                    self.session.progressed(written.bytes, &mut turn);
                }
            }
            let now = self.kit.tick();
            if self.is_cut() {
                self.cut();
                break;
            }
            if self.session.deadline().is_some_and(|at| now >= at) {
                self.session.expired(&mut self.kit.turn());
                break;
            }
        }
        self.give_back(transmit);
    }

    fn send_failed(&mut self, transmit: Transmit, error: &WriteError) {
        match error {
            WriteError::Peer(_) => self.session.peer_gone(&mut self.kit.turn()),
            WriteError::File(_) => {
                static LIMIT: LogLimit = LogLimit::new(log::LINES_MAX);
                log::say_within(&LIMIT, |more| {
                    tracing::warn!("an answer was broken off: {error}{more}");
                });
                self.session.abort(CloseReason::Failed);
            }
        }
        self.give_back(transmit);
    }

    fn give_back(&mut self, transmit: Transmit) {
        let turn = self.kit.turn();
        turn.pool.give_segments(transmit.into_segments());
    }

    /// Tells the session of the shutdown. What has arrived on an idle connection was accepted, so
    /// it is read before.
    fn shutdown_moved(&mut self) {
        match self.site.shutdown.stage() {
            _ if self.is_cut() => self.cut(),
            stage => {
                if self.session.is_idle() {
                    self.receive();
                }
                self.session.draining(&mut self.kit.turn());
                self.seen = stage;
            }
        }
    }

    /// A drain that began while the handler worked shows in its answer. What has arrived behind
    /// the request was accepted, so it is read before, unless there is enough to answer.
    fn announce_drain(&mut self) {
        if self.site.shutdown.is_draining() {
            if !self.session.has_carry() {
                self.receive();
            }
            self.session.draining(&mut self.kit.turn());
        }
    }

    fn is_cut(&self) -> bool {
        self.site.shutdown.is_cut(self.kit.now())
    }

    fn cut(&mut self) {
        self.seen = Stage::Stopping;
        self.site.registry.cut.add(1);
        self.session.abort(CloseReason::Drained);
    }

    /// Time until the session's deadline or the end of the grace; `None`: neither.
    fn timeout_ms(&self) -> Option<u64> {
        let deadlines = [self.session.deadline(), self.site.shutdown.cut_at()];
        let first = deadlines.into_iter().flatten().min()?;
        Some(first.since(self.kit.now()))
    }
}
