//! What a connection over HTTP/2 does in one turn, whose client takes whatever it is sent.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::Poll;

use loadline_base::Transmit;
use loadline_proto::http2::frame::{Kind, PREFACE, WINDOW_BYTES_MAX, flags, write_frame};
use loadline_proto::{Body, Outcome, Port, StreamId, Task, TaskOptions, Then};

use super::super::*;
use crate::ServerOptions;
use crate::config;
use crate::site::tests::{config_of, site_of};
use crate::task::Notify;
use crate::telemetry::counters::Role;
use crate::transport::local_address::LocalAddresses;

/// So much that the large response is not sent within the test; all of it is less than `waiting_bytes_max`.
const WRITE_BYTES: u64 = 128 << 10;

/// A socket that always has room.
struct Greedy {
    input: Vec<u8>,
}

impl Transport<()> for Greedy {
    fn write_bytes_max(&self) -> u64 {
        WRITE_BYTES
    }

    fn resume(&mut self, _: &mut Io<'_, '_, ()>) -> ControlFlow<Pause> {
        ControlFlow::Continue(())
    }

    fn wait(&mut self, _read: bool, _hang_up: bool, io: &mut Io<'_, '_, ()>) -> bool {
        let mut input = std::mem::take(&mut self.input);
        io.session.received(&mut input, io.cx);
        !input.is_empty()
    }

    fn receive_pending(&mut self, _: bool, io: &mut Io<'_, '_, ()>) -> ControlFlow<Pause> {
        io.session.nothing_pending(io.cx);
        ControlFlow::Continue(())
    }

    fn send(
        &mut self,
        mut transmit: Transmit,
        _then: Then,
        io: &mut Io<'_, '_, ()>,
    ) -> ControlFlow<Pause> {
        let bytes = transmit.remaining();
        transmit.advance(bytes);
        *io.bytes_left = io.bytes_left.saturating_sub(bytes);
        io.session.sent(transmit, io.cx);
        match *io.bytes_left {
            0 => ControlFlow::Break(Pause::Again),
            _ => ControlFlow::Continue(()),
        }
    }

    fn finish(&mut self, _: &mut Io<'_, '_, ()>) {}

    fn local_address(&mut self, _: &LocalAddresses, (): &()) -> Option<SocketAddr> {
        None
    }

    fn prefetched(&mut self) {}

    fn is_prefetching(&self) -> bool {
        false
    }

    fn has_begun(&self, (): &mut ()) -> bool {
        true
    }

    fn has_input(&self, (): &mut ()) -> bool {
        !self.input.is_empty()
    }

    fn close(self, (): &mut (), _: &mut Context<'_>) {}
}

/// The first stream has a task, which is due again whenever it was polled, the second one large content.
struct Mixed {
    polls: Arc<AtomicU32>,
}

impl Handler for Mixed {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), exchange: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        if exchange.stream == StreamId(1) {
            return Outcome::Later(TaskOptions::default());
        }
        exchange.response.body = Body::Bytes(vec![0; 7 * WRITE_BYTES as usize]);
        Outcome::Ready
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        let polls = Arc::clone(&self.polls);
        Box::pin(async move {
            poll_fn(|context| {
                polls.fetch_add(1, Relaxed);
                context.waker().wake_by_ref();
                Poll::<()>::Pending
            })
            .await;
            port.answer(exchange);
        })
    }
}

/// Polls tasks itself.
struct OnItsOwn;

impl<H: Handler> Placement<H> for OnItsOwn {
    fn block(
        &mut self,
        exchange: Box<Exchange>,
        _steps: Arc<dyn config::Steps>,
        _thread: &mut ThreadContext<H>,
    ) -> Blocked {
        Blocked::Done(exchange)
    }

    fn start(
        &mut self,
        exchange: Box<Exchange>,
        steps: Arc<dyn config::Steps>,
        thread: &mut ThreadContext<H>,
    ) -> TaskStart {
        let notify = Notify::Thread(thread.task_waker().unwrap());
        TaskStart::Started(thread.tasks.spawn_local(exchange, None, notify, &*steps))
    }
}

/// A client with large windows that asks over these streams.
fn requests(streams: impl Iterator<Item = u32>) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    let [a, b, c, d] = WINDOW_BYTES_MAX.to_be_bytes();
    write_frame(Kind::Settings, 0, 0, &[0, 4, a, b, c, d], &mut bytes); // INITIAL_WINDOW_SIZE
    let more = WINDOW_BYTES_MAX - u32::from(u16::MAX);
    write_frame(Kind::WindowUpdate, 0, 0, &more.to_be_bytes(), &mut bytes);
    for stream in streams {
        // Indexed fields, and one literal (RFC 7541 section 6 and appendix A): GET, http, /, authority.
        let block = [0x82, 0x86, 0x84, 0x01, 1, b'h'];
        let whole = flags::END_HEADERS | flags::END_STREAM;
        write_frame(Kind::Headers, whole, stream, &block, &mut bytes);
    }
    bytes
}

/// A thread, and a connection over which a client asks for these streams.
fn connect<H: Handler>(
    handler: H,
    streams: impl Iterator<Item = u32>,
) -> (ThreadContext<H>, Connection<Greedy>) {
    let site = site_of(config_of(handler), ServerOptions::default());
    let mut thread = ThreadContext::new(&site, Role::Loop);
    let origin = Origin {
        peer: None,
        listener: 0,
    };
    let transport = Greedy {
        input: requests(streams),
    };
    let connection = Connection::new(transport, origin, None, &mut thread);
    (thread, connection)
}

#[test]
fn a_task_has_its_turn_beside_a_response_that_is_taken_at_full_speed() {
    let polls = Arc::<AtomicU32>::default();
    let handler = Mixed {
        polls: Arc::clone(&polls),
    };
    let (mut thread, mut connection) = connect(handler, [1, 3].into_iter());
    for turn in 1..=3 {
        let step = connection.drive(&mut thread, &mut (), &mut OnItsOwn);
        assert!(matches!(step, Step::Again), "{step:?}");
        assert_eq!(polls.load(Relaxed), turn);
        connection.look_at_tasks();
    }
}

/// All of its responses come from steps that may block.
struct Steps;

impl Handler for Steps {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        Outcome::Blocking
    }
}

/// Has no room for any of them.
#[derive(Default)]
struct Full {
    refused: u32,
}

impl<H: Handler> Placement<H> for Full {
    fn block(
        &mut self,
        mut exchange: Box<Exchange>,
        _steps: Arc<dyn config::Steps>,
        _thread: &mut ThreadContext<H>,
    ) -> Blocked {
        self.refused += 1;
        exchange.refuse(1);
        Blocked::Refused(exchange)
    }

    fn start(
        &mut self,
        exchange: Box<Exchange>,
        _steps: Arc<dyn config::Steps>,
        _thread: &mut ThreadContext<H>,
    ) -> TaskStart {
        TaskStart::Refused(exchange)
    }
}

/// Under overload more come than a thread can do: those that it refuses must not wait for its steps.
#[test]
fn refused_requests_are_no_blocking_steps() {
    let (mut thread, mut connection) = connect(Steps, (1..=21).step_by(2));
    let mut full = Full::default();
    let step = connection.drive(&mut thread, &mut (), &mut full);
    assert_eq!(full.refused, 11, "{step:?}");
}
