//! One connection: the session's orders, carried out. The only place that does so, for every
//! architecture and every transport.
//!
//! Whoever owns a connection drives it: a loop, a blocking thread, or a worker to which the whole of
//! it was handed. Driving never waits for the socket. Where steps run that may block, and who polls
//! an app's task, is the owner's choice (`Placement`).

mod ending;
pub(crate) mod offload;
mod placement;
mod tasks;

use std::any::Any;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use loadline_base::Millis;
use loadline_proto::{
    Action, CloseReason, Computation, ConnectionRecord, Context, Exchange, Fill, Handler, Offload,
    Outcome, ServerSession,
};
use loadline_sys::Accepted;
use loadline_sys::file::{self, Filled};

use crate::config::{Config, Steps};
use crate::fairness::ClientKey;
use crate::task::{Polled, Tasks};
use crate::thread::context::ThreadContext;
use crate::transport::sending::cut_short;
use crate::transport::{Io, Pause, Range, Transport};

pub(crate) use placement::{Blocked, Placement, TaskStart};
pub(crate) use tasks::POLLS_US;

/// The most orders carried out each time a connection is driven. A pipelining client has some 16 requests answered, then
/// others have their turn: below 100 us with small files.
const ACTIONS_MAX: u32 = 48;

/// The same while memory is used up: enough for all requests that a client may have at once. A connection is closed
/// for its memory once it waits for its client, and while requests are to be answered it does not.
const ACTIONS_MAX_SHORT: u32 = 512;

/// Steps in a row for one connection on the thread that drives it, if they may block: one for each
/// client that waits for its answer, and no more than one more for a client that pipelines.
const BLOCKS_MAX: u32 = 2;

/// Orders for tasks in a row: some pieces of 64 KiB in either direction, then others.
const TASK_ORDERS_MAX: u32 = 16;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection<T> {
    session: ServerSession,
    transport: T,
    tasks: Tasks,
}

/// Where a connection has come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) listener: u32,
}

impl From<&Accepted> for Origin {
    fn from(accepted: &Accepted) -> Self {
        Self {
            peer: accepted.peer,
            listener: accepted.listener,
        }
    }
}

/// Why driving a connection has come to a stop.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing to do before an event or the deadline.
    Wait,
    /// Others first: no event will come.
    Again,
    /// An app's task is to be started elsewhere, by the handler whose quick step came before.
    Start(Box<Exchange>, Arc<dyn Steps>),
    /// A blocking step is to be done elsewhere, by the same.
    Block(Box<Exchange>, Arc<dyn Steps>),
    /// To be closed: `end`.
    Close,
}

/// What one call of `Connection::drive` has, and has used up.
struct DriveBudget<'d, H: Handler, D> {
    thread: &'d mut ThreadContext<H>,
    driver: &'d mut D,
    bytes_left: u64,
    /// Steps that may have blocked this thread, and tasks that have kept it for long.
    blocked: u32,
    task_orders: u32,
    /// Tasks have had their turn.
    has_polled: bool,
    /// What it has done has taken long: the answer leaves, and input is received, then others have their turn.
    is_last: bool,
}

impl<H: Handler, D> DriveBudget<'_, H, D> {
    fn is_over(&self) -> bool {
        (self.blocked >= BLOCKS_MAX && !self.is_last) || self.task_orders == TASK_ORDERS_MAX
    }
}

impl<T> Connection<T> {
    pub(crate) fn new<H: Handler>(
        transport: T,
        origin: Origin,
        record: Option<Box<ConnectionRecord>>,
        thread: &mut ThreadContext<H>,
    ) -> Self {
        let Origin { peer, listener } = origin;
        let mut borrowed = thread.borrow();
        let mut session = borrowed.config.session(listener, peer, &mut borrowed.cx);
        session.keep_record(record);
        Self {
            session,
            transport,
            tasks: Tasks::default(),
        }
    }

    pub(crate) fn transport(&self) -> &T {
        &self.transport
    }

    pub(crate) fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Both, for what events report.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut T, &mut ServerSession) {
        (&mut self.transport, &mut self.session)
    }

    /// The same connection over another transport; `Err`: it stays with its own.
    pub(crate) fn over<U>(
        self,
        change: impl FnOnce(T) -> Result<U, T>,
    ) -> Result<Connection<U>, Self> {
        let Self {
            session,
            transport,
            tasks,
        } = self;
        match change(transport) {
            Ok(transport) => Ok(Connection {
                session,
                transport,
                tasks,
            }),
            Err(transport) => Err(Self {
                session,
                transport,
                tasks,
            }),
        }
    }

    /// Carries out orders until there is nothing to do before an event, or until the connection has
    /// had its share.
    #[inline]
    pub(crate) fn drive<H: Handler, D>(
        &mut self,
        thread: &mut ThreadContext<H>,
        driver: &mut D,
        placement: &mut impl Placement<H>,
    ) -> Step
    where
        T: Transport<D>,
    {
        let bytes_max = self.transport.write_bytes_max();
        let mut drive = DriveBudget {
            thread,
            driver,
            bytes_left: bytes_max,
            blocked: 0,
            task_orders: 0,
            has_polled: false,
            is_last: false,
        };
        let step = self.drive_within(&mut drive, placement);
        let has_sent = drive.bytes_left < bytes_max;
        // Behind a large response that its client takes at full speed, and between requests that take long, it does not
        // come to wait.
        let does_not_wait = has_sent || drive.is_last;
        if matches!(step, Step::Again) && does_not_wait && !drive.has_polled {
            self.poll_tasks(drive.thread);
        }
        step
    }

    /// The same, but for tasks that are still to be polled.
    #[inline]
    fn drive_within<H: Handler, D>(
        &mut self,
        drive: &mut DriveBudget<'_, H, D>,
        placement: &mut impl Placement<H>,
    ) -> Step
    where
        T: Transport<D>,
    {
        let mut flow = self.resume(drive);
        for count in 0..ACTIONS_MAX_SHORT {
            if count >= ACTIONS_MAX && !drive.thread.memory.budget().is_used_up() {
                break;
            }
            match flow {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(Pause::Again) => return Step::Again,
                ControlFlow::Break(Pause::Prefetch(range)) => {
                    if placement.prefetch(range, self.holder(), drive.thread) {
                        drive.blocked += 1;
                        self.prefetched(&mut drive.thread.cx());
                        flow = self.resume(drive);
                        if drive.blocked >= BLOCKS_MAX || drive.is_over() {
                            return Step::Again;
                        }
                        continue;
                    }
                }
            }
            flow = match self.carry_out(drive, placement) {
                Ok(flow) => flow,
                Err(step) => return step,
            };
            if drive.is_over() {
                return Step::Again;
            }
        }
        Step::Again
    }

    /// Carries out one order. `Err`: there is no more to do.
    #[inline]
    fn carry_out<H: Handler, D>(
        &mut self,
        drive: &mut DriveBudget<'_, H, D>,
        placement: &mut impl Placement<H>,
    ) -> Result<ControlFlow<Pause>, Step>
    where
        T: Transport<D>,
    {
        let mut borrowed = drive.thread.borrow();
        let io = &mut Io {
            session: &mut self.session,
            driver: &mut *drive.driver,
            read_buffer: borrowed.read_buffer,
            files: borrowed.files,
            bytes_left: &mut drive.bytes_left,
            cx: &mut borrowed.cx,
        };
        match io.session.next_action(io.cx) {
            Action::Run(mut exchange) => {
                borrowed.site.check_proxy(&exchange);
                let (config, local) = (borrowed.config, borrowed.local);
                let outcome = borrowed.late.handle(config, local, &mut exchange, io.cx);
                if matches!(outcome, Outcome::Blocking | Outcome::Later(_)) {
                    exchange.handler = Some(Arc::clone(config) as Arc<dyn Any + Send + Sync>);
                }
                io.session.ran(exchange, outcome, io.cx);
            }
            Action::Block(exchange) => self.block(exchange, drive, placement)?,
            Action::Start(mut exchange) => {
                let addresses = &borrowed.site.local_addresses;
                exchange.local = self.transport.local_address(addresses, io.driver);
                self.start(exchange, drive, placement)?;
            }
            Action::Offer(stream, piece) => {
                self.tasks.offer(stream, piece);
                drive.task_orders += 1;
            }
            Action::Pull(stream, room) => {
                self.tasks.pull(stream, room);
                drive.task_orders += 1;
            }
            Action::Cancel(stream) => {
                let task = self.tasks.remove(stream).into_iter();
                task.for_each(|task| drive.thread.tasks.end(task));
                placement.cancelled(stream, drive.thread);
            }
            Action::Send { transmit, then } => {
                return Ok(self.transport.send(transmit, then, io));
            }
            Action::ReceivePending { certain } => {
                return Ok(self.transport.receive_pending(certain, io));
            }
            Action::Fill(fill) => return Ok(self.fill(fill, &mut borrowed.cx)),
            Action::Compute(computation) => self.compute(computation, drive, placement),
            Action::Finish => self.transport.finish(io),
            Action::Wait { read, hang_up } => {
                let has_received = self.transport.wait(read, hang_up, io);
                let were_held = self.session.hold_requests(false);
                drive.thread.in_place_us = 0;
                if drive.is_last {
                    return Err(Step::Again);
                }
                if !has_received {
                    self.poll_before_wait(were_held, drive)?;
                }
            }
            Action::Close => return Err(Step::Close),
        }
        Ok(ControlFlow::Continue(()))
    }

    #[inline]
    fn resume<H: Handler, D>(&mut self, drive: &mut DriveBudget<'_, H, D>) -> ControlFlow<Pause>
    where
        T: Transport<D>,
    {
        let mut borrowed = drive.thread.borrow();
        let io = &mut Io {
            session: &mut self.session,
            driver: &mut *drive.driver,
            read_buffer: borrowed.read_buffer,
            files: borrowed.files,
            bytes_left: &mut drive.bytes_left,
            cx: &mut borrowed.cx,
        };
        self.transport.resume(io)
    }

    /// Nothing was received: tasks have their turn. `Err`: there is nothing to do for them, either, and no
    /// request was held.
    #[inline]
    fn poll_before_wait<H: Handler, D>(
        &mut self,
        were_held: bool,
        drive: &mut DriveBudget<'_, H, D>,
    ) -> Result<(), Step> {
        drive.has_polled = true;
        match self.poll_tasks(drive.thread) {
            Polled::Nothing if !were_held => return Err(Step::Wait),
            Polled::Nothing | Polled::Some => {}
            Polled::NotAll => drive.blocked += 1,
        }
        drive.task_orders += 1;
        Ok(())
    }

    /// The blocking step is done, or was refused.
    pub(crate) fn completed<H: Handler>(
        &mut self,
        exchange: Box<Exchange>,
        thread: &mut ThreadContext<H>,
    ) {
        let is_draining = thread.site.shutdown.is_draining();
        let cx = &mut thread.cx();
        if is_draining {
            self.session.draining(cx);
        }
        self.session.completed(exchange, cx);
    }

    /// The range of a file that `Placement::prefetch` has passed on is in the page cache.
    pub(crate) fn prefetched<D>(&mut self, cx: &mut Context<'_>)
    where
        T: Transport<D>,
    {
        self.transport.prefetched();
        self.session.cached(cx);
    }

    /// `Action::Block`. `Err`: not on this thread.
    fn block<H: Handler, D>(
        &mut self,
        mut exchange: Box<Exchange>,
        drive: &mut DriveBudget<'_, H, D>,
        placement: &mut impl Placement<H>,
    ) -> Result<(), Step> {
        let steps = steps_of(&mut exchange, drive.thread);
        match placement.block(exchange, steps, drive.thread) {
            Blocked::Done(exchange) => {
                self.completed(exchange, drive.thread);
                drive.blocked += 1;
                self.end_row(drive);
            }
            Blocked::Refused(exchange) => self.completed(exchange, drive.thread),
            Blocked::Queued => {}
            Blocked::Elsewhere(exchange, steps) => return Err(Step::Block(exchange, steps)),
        }
        Ok(())
    }

    /// `Action::Start`. `Err`: not on this thread.
    fn start<H: Handler, D>(
        &mut self,
        mut exchange: Box<Exchange>,
        drive: &mut DriveBudget<'_, H, D>,
        placement: &mut impl Placement<H>,
    ) -> Result<(), Step> {
        let steps = steps_of(&mut exchange, drive.thread);
        match placement.start(exchange, steps, drive.thread) {
            TaskStart::Elsewhere(exchange, steps) => return Err(Step::Start(exchange, steps)),
            start => self.started(start, drive.thread),
        }
        self.end_row(drive);
        Ok(())
    }

    /// Of requests that are in progress at the same time no other begins before the answers of those have left that
    /// have taken long, and others have had their turn.
    fn end_row<H: Handler, D>(&mut self, drive: &mut DriveBudget<'_, H, D>) {
        if drive.thread.in_place_us < POLLS_US || !self.is_multiplexed() {
            return;
        }
        drive.thread.in_place_us = 0;
        self.session.hold_requests(true);
        drive.is_last = true;
    }

    /// `Action::Compute`.
    #[cold]
    fn compute<H: Handler, D>(
        &mut self,
        mut computation: Box<dyn Computation>,
        drive: &mut DriveBudget<'_, H, D>,
        placement: &mut impl Placement<H>,
    ) {
        let client = self.holder();
        let done = if Offload::of(&mut *computation).is_some() {
            placement.offload(computation, client, drive.thread)
        } else {
            self.session.delayed(drive.thread.handshake_waited_us());
            let before_us = self.session.handshake_us(drive.thread.now());
            placement.compute(computation, client, before_us, drive.thread)
        };
        if let Some(computation) = done {
            self.computed(computation, &mut drive.thread.cx());
            drive.blocked += 1;
        }
    }

    /// The work that `Placement::compute` has passed on is done, or was refused.
    pub(crate) fn computed(&mut self, computation: Box<dyn Computation>, cx: &mut Context<'_>) {
        self.session.computed(computation, cx);
    }

    /// `Action::Fill`.
    #[cold]
    fn fill(&mut self, mut fill: Box<Fill>, cx: &mut Context<'_>) -> ControlFlow<Pause> {
        let (file, have) = (&fill.file, &mut fill.buffer);
        match file::fill(file, fill.offset, fill.len, have, fill.is_cached) {
            Ok(Filled::Whole) => self.session.filled(fill, cx),
            Ok(Filled::NotCached) => {
                let range = Range {
                    file: Arc::clone(file),
                    offset: fill.offset + have.len() as u64,
                    len: (fill.len - have.len()) as u64,
                };
                self.session.not_cached(fill, cx);
                return ControlFlow::Break(Pause::Prefetch(range));
            }
            Err(error) => {
                cut_short(&error);
                self.session.abort(CloseReason::Failed);
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether many requests of it may be in progress.
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.session.is_multiplexed()
    }

    /// Whether blocking steps of it are queued, or are carried out elsewhere.
    pub(crate) fn has_steps(&self) -> bool {
        self.session.has_steps()
    }

    /// Whether a file is read for it, or something is computed: its owner reports what comes of that.
    pub(crate) fn has_work_out<D>(&self) -> bool
    where
        T: Transport<D>,
    {
        self.transport.is_prefetching() || self.session.has_work_out()
    }

    /// The deadline may have passed.
    pub(crate) fn expired(&mut self, cx: &mut Context<'_>) {
        self.session.expired(cx);
    }

    /// The server is going down. A connection of which nothing has come yet may be given a moment:
    /// then `false`.
    pub(crate) fn drain<D>(&mut self, may_wait: bool, driver: &mut D, cx: &mut Context<'_>) -> bool
    where
        T: Transport<D>,
    {
        if may_wait && !self.transport.has_begun(driver) {
            return false;
        }
        self.session.draining(cx);
        true
    }

    /// Memory that it holds beside itself, in bytes.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.session.held_bytes()
    }

    /// When `expired` is due; `None` while only the server itself is awaited.
    pub(crate) fn deadline<D>(&self) -> Option<Millis>
    where
        T: Transport<D>,
    {
        match self.has_work_out::<D>() {
            true => None,
            false => self.session.deadline(),
        }
    }

    /// Whose it is, as far as shares are concerned.
    pub(crate) fn client(&self) -> ClientKey {
        let address = self.session.client_address();
        address.map_or(ClientKey::NOBODY, ClientKey::of)
    }

    /// For whose request it holds what it holds: behind a trusted proxy the client that the proxy names,
    /// nobody between two requests; otherwise whose it is.
    pub(crate) fn holder(&self) -> ClientKey {
        let proxied = self.session.proxied_client();
        proxied.unwrap_or_else(|| self.client())
    }

    /// The same behind a trusted proxy: with it the holder may be another at each request.
    pub(crate) fn proxied_client(&self) -> Option<ClientKey> {
        self.session.proxied_client()
    }

    /// Whether a handshake comes before its requests, of which nothing was understood yet.
    pub(crate) fn is_before_handshake(&self) -> bool {
        self.session.is_before_handshake()
    }

    /// What it receives next has waited for its thread for so long, in microseconds.
    pub(crate) fn delayed(&mut self, us: u64) {
        self.session.delayed(us);
    }

    /// How long its handshake was kept, in microseconds, while its first request is awaited; otherwise 0. It is less for
    /// a client that has let time pass since.
    pub(crate) fn handshake_us(&self, now: Millis) -> u64 {
        self.session.handshake_us(now)
    }

    /// Since when it waits for its client in the middle of a request or a response.
    pub(crate) fn awaits_client_since<D>(&self) -> Option<Millis>
    where
        T: Transport<D>,
    {
        match self.has_work_out::<D>() {
            true => None,
            false => self.session.awaits_client_since(),
        }
    }

    /// Between two requests, as far as is known.
    pub(crate) fn is_idle<D>(&self) -> bool
    where
        T: Transport<D>,
    {
        self.session.is_idle() || self.transport.is_resting()
    }

    /// Whether closing it now loses nothing: no unsent output and no unread input. May be `false`
    /// until the next turn while a completion is pending.
    pub(crate) fn is_certainly_idle<D>(&self, driver: &mut D) -> bool
    where
        T: Transport<D>,
    {
        self.session.is_idle() && !self.transport.has_input(driver)
    }
}

/// The steps of the handler that took a request's quick step, also if there is another configuration by now.
fn steps_of<H: Handler>(exchange: &mut Exchange, thread: &ThreadContext<H>) -> Arc<dyn Steps> {
    let config = exchange.handler.take();
    let config = config.and_then(|config| config.downcast::<Config<H>>().ok());
    config.unwrap_or_else(|| Arc::clone(thread.config()))
}

#[cfg(test)]
pub(crate) mod tests;
