//! What a connection does with the tasks of its apps.

use loadline_proto::{Exchange, Handler, StreamId};

use super::{Connection, TaskStart};
use crate::config::Steps;
use crate::task::{Polled, TaskPool, Tasks};
use crate::thread::context::ThreadContext;

/// Tasks are polled in a row for so long. Then what they have answered is sent, and after `BLOCKS_MAX` such
/// rows others have their turn. Some hundred tasks that hardly compute leave together in one. Tasks that begin
/// at once are a row, too, and so are blocking steps of streams on a loop: then output is sent, input is received, and
/// others have their turn before the next begins.
pub(crate) const POLLS_US: u64 = 500;

impl<T> Connection<T> {
    /// A task was started for the exchange of `Step::Start`, or refused.
    pub(crate) fn started<H: Handler>(&mut self, start: TaskStart, thread: &mut ThreadContext<H>) {
        match start {
            TaskStart::Started(task) => self.tasks.insert(task),
            TaskStart::Now(task, exchange, steps) => {
                self.tasks.insert(task);
                let began_us = thread.site.clock.now_us();
                self.begin_task(exchange, &*steps, thread);
                let took_us = thread.now_us().saturating_sub(began_us);
                thread.app_took(took_us);
                thread.in_place_us += took_us;
            }
            TaskStart::Refused(exchange) | TaskStart::Elsewhere(exchange, _) => {
                self.session.answered(exchange, &mut thread.cx());
            }
        }
    }

    /// The turn of a request has come whose task was prepared: it begins, is polled once, and its events are
    /// reported to the session.
    pub(crate) fn begin_task<H: Handler>(
        &mut self,
        exchange: Box<Exchange>,
        steps: &dyn Steps,
        thread: &mut ThreadContext<H>,
    ) {
        let stream = exchange.stream;
        let begun = self.tasks.begin(exchange, steps);
        thread.tick(); // what it took is its request's
        let mut borrowed = thread.borrow();
        if borrowed.site.shutdown.is_draining() {
            self.session.draining(&mut borrowed.cx);
        }
        let (pool, session) = (borrowed.tasks, &mut self.session);
        match begun {
            Ok(is_over) => (self.tasks).report(stream, is_over, pool, session, &mut borrowed.cx),
            Err(exchange) => borrowed.cx.pool.give_exchange(exchange),
        }
    }

    /// A request whose task was prepared was refused at its turn: the exchange has the answer.
    pub(crate) fn task_refused<H: Handler>(
        &mut self,
        exchange: Box<Exchange>,
        thread: &mut ThreadContext<H>,
    ) {
        if let Some(task) = self.tasks.remove(exchange.stream) {
            thread.tasks.end(task);
        }
        self.session.answered(exchange, &mut thread.cx());
    }

    /// A task of this stream has events, or is to be polled; `None`: some task.
    pub(crate) fn notified(&mut self, stream: Option<StreamId>) {
        self.tasks.notified(stream);
    }

    /// Looks which tasks have events or are to be polled, for an owner that has not waited for that.
    pub(crate) fn look_at_tasks(&mut self) {
        self.tasks.look();
    }

    pub(crate) fn has_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Leaves its tasks to the loop that they were begun for, and to the workers there.
    pub(crate) fn pass_tasks_on(&mut self) {
        self.tasks.pass_on();
    }

    /// The loop has it again, with the tasks that were left to it.
    pub(crate) fn adopt_tasks(&mut self, pool: &TaskPool) {
        pool.adopt(&mut self.tasks);
    }

    /// Cancels what apps still do for it.
    pub(crate) fn drop_tasks(&mut self) {
        self.tasks = Tasks::default();
    }

    /// Polls tasks that are due, until that has taken long, and reports their events to the session.
    pub(crate) fn poll_tasks<H: Handler>(&mut self, thread: &mut ThreadContext<H>) -> Polled {
        if self.tasks.is_empty() {
            return Polled::Nothing;
        }
        let (clock, mut until_us) = (thread.site.clock, None);
        let is_time_up = || {
            let now_us = clock.now_us();
            now_us >= *until_us.get_or_insert(now_us + POLLS_US)
        };
        let mut borrowed = thread.borrow();
        if borrowed.site.shutdown.is_draining() {
            self.session.draining(&mut borrowed.cx); // shows in a head that is still to come
        }
        let (pool, session) = (borrowed.tasks, &mut self.session);
        let polled = (self.tasks).poll(pool, session, &mut borrowed.cx, is_time_up);
        // In a pool it decides where the next one begins. That of a stream was timed when it began, and counts for the
        // connection: how slow it may be for that depends on the latency goal.
        if let Some(until_us) = until_us
            && thread.site.options.threads_share()
            && !self.is_multiplexed()
        {
            let began_us = until_us - POLLS_US;
            thread.app_took_in_place(clock.now_us().saturating_sub(began_us));
        }
        thread.tick_in_long_turn();
        polled
    }
}
