//! Refusing a connection that gets no thread of its own.

use std::os::fd::AsFd;

use loadline_proto::{CloseReason, Handler};
use loadline_sys::Accepted;

use super::busy_time::ServiceTime;
use super::on_thread::{OnThread, Received};
use crate::connection::{Connection, Step};
use crate::thread::context::ThreadContext;
use crate::transport::socket::Socket;

/// Answers a new connection with 503, as far as that takes no waiting, and closes it. A client that
/// is still sending may see a reset instead of the answer.
pub(crate) fn refuse_at_once<H: Handler>(
    accepted: &Accepted,
    reason: CloseReason,
    thread: &mut ThreadContext<H>,
) {
    thread.tick();
    let record = thread.log_accepted(accepted.peer);
    let transport = Socket::of_thread(accepted.socket.as_fd());
    let mut connection = Connection::new(transport, accepted.into(), record, thread);
    connection.refuse(reason, &mut thread.cx());
    let placement = &mut OnThread {
        waker: &mut None,
        permit: &mut None,
        service: &mut ServiceTime::default(),
        streams: None,
        socket: None,
        received: &mut Received::default(),
        home: None,
        driven_since_us: None,
    };
    while !matches!(connection.drive(thread, &mut (), placement), Step::Close) {
        connection.abort(reason); // no thread waits for it
    }
    let record = connection.end(&mut (), &mut thread.cx());
    thread.log_closed(record);
}
