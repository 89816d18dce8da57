//! What is measured of apps' requests over one connection.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use loadline_proto::http2::frame::{Kind, PREFACE, flags, write_frame};
use loadline_proto::{Body, Context, Exchange, Handler, Outcome, Port, Task, TaskOptions};
use loadline_sys::Accepted;

use super::clock;
use crate::ServerOptions;
use crate::connection_thread::{READ_BUFFER_BYTES, serve_accepted};
use crate::overload::InProgress;
use crate::site::tests::{config_of, site_of};
use crate::site::{Clock, Site};
use crate::telemetry::counters::Role;
use crate::thread::context::ThreadContext;

const TAKES_US: u64 = 10_000;

/// An app that computes for so long, by a clock that it moves.
struct Computing {
    now_us: &'static AtomicU64,
}

impl Handler for Computing {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        Outcome::Later(TaskOptions::default())
    }

    fn start(&self, mut exchange: Box<Exchange>, port: Port) -> Task {
        let now_us = self.now_us;
        Box::pin(async move {
            now_us.fetch_add(TAKES_US, Relaxed);
            exchange.response.body = Body::Bytes(b"done".to_vec());
            port.answer(exchange);
        })
    }
}

/// A client that asks over these streams at once.
fn requests(streams: &[u32]) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    write_frame(Kind::Settings, 0, 0, &[], &mut bytes);
    for stream in streams {
        // Indexed fields, and one literal (RFC 7541 section 6 and appendix A): GET, http, /, authority.
        let block = [0x82, 0x86, 0x84, 0x01, 1, b'h'];
        let whole = flags::END_HEADERS | flags::END_STREAM;
        write_frame(Kind::Headers, whole, *stream, &block, &mut bytes);
    }
    bytes
}

/// All but the last took no time, and that one the time of all.
#[test]
fn each_request_of_an_app_takes_the_time_of_its_own_task() {
    let now_us = clock();
    let site = site_of(config_of(Computing { now_us }), ServerOptions::default());
    let site = Arc::new(Site {
        clock: Clock::simulated(now_us),
        in_progress: Some(InProgress::new(Duration::from_secs(1), None)),
        ..Arc::into_inner(site).unwrap()
    });
    let (mut client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    client.write_all(&requests(&[1, 3, 5])).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut thread = ThreadContext::with_read_buffer(&site, Role::Thread, READ_BUFFER_BYTES);
    let accepted = Accepted {
        socket: server.into(),
        peer: None,
        listener: 0,
    };
    serve_accepted(&accepted, None, &mut thread);
    assert_eq!(now_us.load(Relaxed), 3 * TAKES_US);
    let each_us = site.in_progress.as_ref().map(InProgress::each_us);
    assert_eq!(each_us, Some(TAKES_US));
    // They have come at once: the first one took 10 ms, and the last one 30.
    let [(_, _, counts)] = &site.registry.timings().requests[..] else {
        panic!("all are of one mount");
    };
    assert_eq!((counts.count(), counts.sum_us), (3, 6 * TAKES_US));
}
