//! What a connection has received is a worker's to parse (`--parse worker`). The worker also carries its requests out,
//! and encodes their responses. The loop keeps the socket.

use std::any::Any;
use std::sync::Arc;

use loadline_proto::{Action, Computation, Exchange, Handler, Offload, Outcome};

use super::{ACTIONS_MAX, steps_of};
use crate::admission::Refusing;
use crate::thread::context::ThreadContext;

/// Does what a worker can do for it, unless its client has left. `may_block`: this thread is one.
pub(crate) fn carry_out<H: Handler>(
    computation: &mut dyn Computation,
    may_block: bool,
    thread: &mut ThreadContext<H>,
) {
    if computation.is_abandoned() {
        return;
    }
    let Some(offload) = Offload::of(computation) else {
        return;
    };
    let is_draining = thread.site.shutdown.is_draining();
    offload.parse(is_draining, &mut thread.cx());
    for _ in 0..ACTIONS_MAX {
        match offload.next_step(may_block, &mut thread.cx()) {
            Some(Action::Run(exchange)) => run(offload, exchange, thread),
            Some(Action::Block(mut exchange)) => {
                steps_of(&mut exchange, thread).handle_blocking(&mut exchange);
                thread.tick();
                let is_draining = thread.site.shutdown.is_draining();
                offload.completed(exchange, is_draining, &mut thread.cx());
            }
            _ => return,
        }
    }
}

/// No worker will do it: its requests get a 503, on the loop.
#[cold]
pub(crate) fn refuse<H: Handler>(
    computation: &mut dyn Computation,
    refusing: Refusing,
    thread: &mut ThreadContext<H>,
) {
    thread.refusing = Some(refusing);
    carry_out(computation, false, thread);
    thread.refusing = None;
}

/// `Action::Run`, as `Connection::drive` has it.
fn run<H: Handler>(
    offload: &mut Offload,
    mut exchange: Box<Exchange>,
    thread: &mut ThreadContext<H>,
) {
    let mut borrowed = thread.borrow();
    borrowed.site.check_proxy(&exchange);
    let (config, local) = (borrowed.config, borrowed.local);
    let outcome = (borrowed.late).handle(config, local, &mut exchange, &mut borrowed.cx);
    if matches!(outcome, Outcome::Blocking | Outcome::Later(_)) {
        exchange.handler = Some(Arc::clone(config) as Arc<dyn Any + Send + Sync>);
    }
    offload.ran(exchange, outcome, &mut borrowed.cx);
}
