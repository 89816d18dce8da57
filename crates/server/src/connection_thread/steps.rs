//! What requests of streams wait for, and when they have the thread of their connection: blocking steps, and
//! apps' tasks that begin. When the socket has its turn beside long work.

use std::ops::ControlFlow;
use std::os::fd::AsFd;

use loadline_proto::{Exchange, Handler};

use super::on_thread::{Refused, Work};
use super::stream_queue::Next;
use super::{Hold, Left, Thread};
use crate::connection::POLLS_US;
use crate::fairness::lanes::Lane;
use crate::overload::Waited;
use crate::transport::socket::Readiness;

/// Shares of the thread that a connection uses up before the next of its steps is carried out: apps that
/// always have more to send leave it no other time.
const ROUNDS_MAX: u32 = 4;

impl<H: Handler, T: Hold, F: AsFd> Thread<'_, H, T, F> {
    /// The connection has used up its share of the thread. Whether a step is next all the same.
    pub(super) fn is_steps_turn(&mut self) -> bool {
        self.rounds += u32::from(!self.streams.is_empty());
        self.rounds == ROUNDS_MAX
    }

    /// Carries out a blocking step that waits, or begins tasks until that has taken long. Then the socket has
    /// its turn: responses leave one by one, and a client that has reset the next streams is noticed before
    /// they begin. So have tasks that were woken meanwhile, which are noticed otherwise only when the thread
    /// waits.
    pub(super) fn run_next(&mut self) -> Option<Left> {
        self.rounds = 0;
        if let ControlFlow::Break(left) = self.go_on() {
            return left;
        }
        // It counts when it waits, too, which may be long off. Not at each step: that looks at all streams. The
        // loop of a pool has others to close.
        let is_due = self.thread.now() > self.counted_at;
        if is_due && self.is_short() && !T::GIVES_BACK && !self.relieve() {
            return None;
        }
        let row_us = self.thread.now_us();
        let mut was_long = false;
        while !was_long {
            let began_us = self.thread.now_us(); // each that has taken some time ends with a tick
            let Some(next) = self.streams.next(began_us) else {
                break;
            };
            match next {
                Next::Run {
                    exchange,
                    work,
                    waited,
                } => {
                    let is_step = matches!(work, Work::Step(_));
                    let has_run = self.carry_out(exchange, &work, waited, began_us);
                    // What was refused may have waited for that.
                    let is_time_up = self.thread.now_us() >= row_us + POLLS_US;
                    was_long = is_time_up || (is_step && has_run);
                }
                Next::Late(exchange, work) => {
                    self.thread.stats.refused_late.add(1);
                    self.refused(exchange, &work);
                }
                Next::Abandoned(exchange, work) => {
                    self.thread.stats.abandoned.add(1);
                    self.refused(exchange, &work);
                }
            }
        }
        self.connection.look_at_tasks();
        // What comes after short work alone is reported when the thread waits, since nothing is left to do.
        if was_long {
            self.look_at_socket(self.looked_us);
        }
        None
    }

    /// The connection goes on without a wait: tasks that were woken compute, or the client takes large responses
    /// at full speed. What it holds counts meanwhile, and its socket has its turn, if it may have many requests.
    pub(super) fn look_beside_work(&mut self) {
        if self.thread.now() > self.counted_at {
            self.is_short(); // who is closed for that is decided when it waits
        }
        let is_due = self.thread.now_us() >= self.looked_us + POLLS_US;
        if is_due && self.connection.is_multiplexed() {
            self.look_at_socket(self.looked_us);
        }
    }

    /// The socket has its turn, after work that has begun then.
    fn look_at_socket(&mut self, since_us: u64) {
        self.looked_us = self.thread.now_us();
        self.streams.was_busy(since_us, self.looked_us);
        self.connection.transport_mut().note(Readiness {
            readable: true,
            writable: true,
            ..Readiness::default()
        });
    }

    /// Does what a request has waited for. `false`: it was refused.
    fn carry_out(
        &mut self,
        mut exchange: Box<Exchange>,
        work: &Work,
        waited: Waited,
        began_us: u64,
    ) -> bool {
        let (mut placement, connection, thread) = self.parts();
        let has_run = match work {
            Work::Step(steps) => {
                let has_run = placement.run(&mut exchange, &**steps, waited, thread);
                connection.completed(exchange, thread);
                has_run
            }
            Work::Task(steps) => match placement.begin(waited, thread, &mut exchange, Lane::Apps) {
                Ok(()) => {
                    connection.begin_task(exchange, &**steps, thread);
                    true
                }
                Err(Refused) => {
                    connection.task_refused(exchange, thread);
                    false
                }
            },
        };
        if has_run {
            let now_us = self.thread.now_us();
            (self.streams).done(now_us, now_us.saturating_sub(began_us));
        }
        has_run
    }

    /// A request has its 503 in place of what it has waited for.
    fn refused(&mut self, exchange: Box<Exchange>, work: &Work) {
        match work {
            Work::Step(_) => self.connection.completed(exchange, self.thread),
            Work::Task(_) => self.connection.task_refused(exchange, self.thread),
        }
    }
}
