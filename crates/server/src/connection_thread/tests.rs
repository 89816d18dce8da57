//! A new connection: what it had waited, and a drain that begins before its first bytes have come.

mod handshake;
mod streams;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use loadline_proto::Handler;
use loadline_sys::Accepted;

use super::{READ_BUFFER_BYTES, serve_accepted};
use crate::ServerOptions;
use crate::connection::tests::GET;
use crate::shutdown::FIRST_REQUEST_GRACE_MS;
use crate::site::Site;
use crate::site::tests::{Quiet, clock, site_at};
use crate::telemetry::counters::Role;
use crate::thread::context::ThreadContext;

/// A client, and its connection.
fn connect() -> (UnixStream, Accepted) {
    let (client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let accepted = Accepted {
        socket: server.into(),
        peer: None,
        listener: 0,
    };
    (client, accepted)
}

/// What a thread of this site has.
fn context<H: Handler>(site: &Arc<Site<H>>) -> ThreadContext<H> {
    ThreadContext::with_read_buffer(site, Role::Thread, READ_BUFFER_BYTES)
}

/// A new connection of a server that goes down, and its thread. The test moves the clock.
fn begin(now_us: &'static AtomicU64) -> (UnixStream, JoinHandle<()>) {
    let site = Arc::new(site_at(now_us, Quiet, ServerOptions::default()));
    (site.shutdown).begin_drain(site.clock.now(), Duration::from_secs(10));
    let (client, accepted) = connect();
    let serve = move || serve_accepted(&accepted, None, &mut context(&site));
    (client, std::thread::spawn(serve))
}

/// It was closed at once. Its request is as good as on its way.
#[test]
fn a_new_connection_has_time_for_its_first_request_in_a_drain() {
    let (mut client, thread) = begin(clock());
    let some = Some(Duration::from_millis(20));
    client.set_read_timeout(some).unwrap();
    let nothing = client.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(nothing, Err(ErrorKind::WouldBlock), "it is open");
    client.set_read_timeout(None).unwrap();
    client.write_all(GET).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let answer = answer.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    drop(client);
    thread.join().unwrap();
}

#[test]
fn a_new_silent_connection_does_not_hold_up_the_end() {
    let now_us = clock();
    let (mut client, thread) = begin(now_us);
    now_us.store(1000 * FIRST_REQUEST_GRACE_MS, Relaxed);
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "it is closed");
    thread.join().unwrap();
}
