//! Blocking steps that wait for the thread of their connection, and when they have it.

use std::ops::ControlFlow;
use std::os::fd::AsFd;

use loadline_proto::Handler;

use super::stream_queue::Next;
use super::{Hold, Left, Thread};
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

    /// Carries out a blocking step that waits. Then the socket has its turn: responses leave one by one, and
    /// a client that has reset the next streams is noticed before they begin. So have tasks that were woken
    /// meanwhile, which are noticed otherwise only when the thread waits.
    pub(super) fn run_next(&mut self) -> Option<Left> {
        self.rounds = 0;
        if let ControlFlow::Break(left) = self.go_on() {
            return left;
        }
        loop {
            let began_us = self.thread.site.clock.now_us();
            let Some(next) = self.streams.next(began_us) else {
                break;
            };
            let (exchange, has_run) = match next {
                Next::Run {
                    mut exchange,
                    steps,
                    waited,
                } => {
                    let (mut placement, _, thread) = self.parts();
                    let has_run = placement.run(&mut exchange, Some(&*steps), waited, thread);
                    let now_us = self.thread.now_us();
                    if has_run {
                        (self.streams).done(now_us, now_us.saturating_sub(began_us));
                    }
                    (exchange, has_run)
                }
                Next::Late(exchange) => {
                    self.thread.stats.refused_late.add(1);
                    (exchange, false)
                }
                Next::Abandoned(exchange) => {
                    self.thread.stats.abandoned.add(1);
                    (exchange, false)
                }
            };
            (self.connection).completed(exchange, self.thread);
            if has_run {
                break;
            }
        }
        self.connection.look_at_tasks();
        self.connection.transport_mut().note(Readiness {
            readable: true,
            writable: true,
            ..Readiness::default()
        });
        None
    }
}
