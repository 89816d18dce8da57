//! Requests over one connection of HTTP/2: their turns, and what is counted of them.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

use loadline_base::MemoryBudget;
use loadline_proto::http2::frame::{ErrorCode, Kind, PREFACE, Setting, flags, write_frame};
use loadline_proto::{
    Body, Context, Exchange, Handler, Outcome, Port, StreamId, Task, TaskOptions,
};
use loadline_sys::{Accepted, ListenAddr};

use super::{connect, context};
use crate::ServerOptions;
use crate::config::{Config, SharedConfig};
use crate::connection::{Connection, POLLS_US};
use crate::connection_thread::{Hold, Left, Resting, serve_accepted, serve_while_held};
use crate::fairness::lanes::{FlowKey, Lane};
use crate::overload::{InProgress, Waited};
use crate::site::Site;
use crate::site::tests::{clock, site_at};
use crate::transport::socket::Socket;

const TAKES_US: u64 = 10_000;
const GOAL: Duration = Duration::from_secs(1);

/// The most content that the app takes, in bytes.
const CONTENT_MAX: usize = 10;

/// What a task does, by its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Begun(u32),
    Computed(u32),
}

/// An app that computes for so long, by a clock that it moves.
struct Computing {
    now_us: &'static AtomicU64,
    takes_us: u64,
    /// Its tasks wait once before that.
    waits: bool,
    /// The length of its responses.
    content_bytes: usize,
    events: Arc<Mutex<Vec<Event>>>,
    /// What happens then, by the stream.
    then: Arc<dyn Fn(u32) + Send + Sync>,
}

impl Computing {
    fn new(now_us: &'static AtomicU64) -> Self {
        Self {
            now_us,
            takes_us: TAKES_US,
            waits: false,
            content_bytes: 4,
            events: Arc::default(),
            then: Arc::new(|_| {}),
        }
    }
}

impl Handler for Computing {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        Outcome::Later(TaskOptions {
            body_bytes_max: CONTENT_MAX as u64,
            ..TaskOptions::default()
        })
    }

    fn start(&self, mut exchange: Box<Exchange>, port: Port) -> Task {
        let stream = exchange.stream.0;
        let (now_us, takes_us, mut is_to_wait) = (self.now_us, self.takes_us, self.waits);
        let content_bytes = self.content_bytes;
        let (events, then) = (Arc::clone(&self.events), Arc::clone(&self.then));
        events.lock().unwrap().push(Event::Begun(stream));
        Box::pin(async move {
            poll_fn(|context| {
                if !std::mem::take(&mut is_to_wait) {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            now_us.fetch_add(takes_us, Relaxed);
            events.lock().unwrap().push(Event::Computed(stream));
            exchange.response.body = Body::Bytes(vec![b'x'; content_bytes]);
            port.answer(exchange);
            then(stream);
        })
    }
}

/// A client's first frames: it asks over these streams at once.
fn requests(streams: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    write_frame(Kind::Settings, 0, 0, &[], &mut bytes);
    bytes.extend(streams.into_iter().flat_map(request));
    bytes
}

/// The same of a client that takes no content, over so many streams.
fn without_windows(streams: u32) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    let mut no_window = Vec::new();
    Setting {
        id: Setting::INITIAL_WINDOW_SIZE,
        value: 0,
    }
    .write(&mut no_window);
    write_frame(Kind::Settings, 0, 0, &no_window, &mut bytes);
    bytes.extend((0..streams).flat_map(|index| request(2 * index + 1)));
    bytes
}

fn request(stream: u32) -> Vec<u8> {
    // Indexed fields, and one literal (RFC 7541 section 6 and appendix A): GET, http, /, authority.
    let block = [0x82, 0x86, 0x84, 0x01, 1, b'h'];
    let mut bytes = Vec::new();
    let whole = flags::END_HEADERS | flags::END_STREAM;
    write_frame(Kind::Headers, whole, stream, &block, &mut bytes);
    bytes
}

/// The head of a request whose content comes later.
fn announced(stream: u32) -> Vec<u8> {
    let block = [0x83, 0x86, 0x84, 0x01, 1, b'h']; // POST
    let mut bytes = Vec::new();
    let flags = flags::END_HEADERS;
    write_frame(Kind::Headers, flags, stream, &block, &mut bytes);
    bytes
}

/// All but the last took no time, and that one the time of all.
#[test]
fn each_request_of_an_app_takes_the_time_of_its_own_task() {
    let now_us = clock();
    let site = Arc::new(Site {
        in_progress: Some(InProgress::new(GOAL, None)),
        ..site_at(now_us, Computing::new(now_us), ServerOptions::default())
    });
    let (mut client, accepted) = connect();
    client.write_all(&requests([1, 3, 5])).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    serve_accepted(&accepted, None, &mut context(&site));
    assert_eq!(now_us.load(Relaxed), 3 * TAKES_US);
    let in_progress = site.in_progress.as_ref().unwrap();
    assert_eq!(in_progress.each_us(Lane::Apps), TAKES_US);
    // They have come at once: the first one took 10 ms, and the last one 30.
    let [(_, _, counts)] = &site.registry.timings().requests[..] else {
        panic!("all are of one mount");
    };
    assert_eq!((counts.count(), counts.sum_us), (3, 6 * TAKES_US));
}

/// The live page said that nothing waits.
#[test]
fn how_long_requests_have_waited_for_their_thread_is_counted() {
    let now_us = clock();
    let site = Arc::new(Site {
        in_progress: Some(InProgress::new(GOAL, None)),
        ..site_at(now_us, Computing::new(now_us), ServerOptions::default())
    });
    let (mut client, accepted) = connect();
    client.write_all(&requests([1, 3, 5])).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    serve_accepted(&accepted, None, &mut context(&site));
    let total = site.registry.snapshot(0).total;
    let counted = (total.queue_depth, total.queue_taken, total.queue_wait_us);
    assert_eq!(counted, (0, 3, 3 * TAKES_US));
}

/// Their clients were taken to wait for them however long they had closed their end before. And all that came
/// were counted as the app's.
#[test]
fn apps_of_a_client_that_has_closed_its_end_are_not_begun_after_a_long_wait() {
    let now_us = clock();
    let app = Computing::new(now_us);
    let events = Arc::clone(&app.events);
    let site = Arc::new(site_at(now_us, app, ServerOptions::default()));
    let (mut client, accepted) = connect();
    client.write_all(&requests((1..40).step_by(2))).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    serve_accepted(&accepted, None, &mut context(&site));
    // Ten have waited for less than a tenth of the goal.
    let begun = events.lock().unwrap().len() / 2;
    let total = site.registry.snapshot(now_us.load(Relaxed)).total;
    assert_eq!((begun, total.app_requests, total.abandoned), (10, 10, 10));
}

/// Both were: the one whose client has sent too much, and the one whose client has reset it.
#[test]
fn what_the_session_ends_before_its_turn_is_not_counted_as_abandoned() {
    let now_us = clock();
    let (mut client, accepted) = connect();
    let mut later = Vec::new();
    write_frame(Kind::Data, 0, 3, &[b'x'; CONTENT_MAX + 1], &mut later);
    let cancel = (ErrorCode::Cancel as u32).to_be_bytes();
    write_frame(Kind::RstStream, 0, 5, &cancel, &mut later);
    let peer = client.try_clone().unwrap();
    let app = Computing {
        then: Arc::new(move |_| {
            (&peer).write_all(&later).unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
        }),
        ..Computing::new(now_us)
    };
    let events = Arc::clone(&app.events);
    let site = Arc::new(site_at(now_us, app, ServerOptions::default()));
    let bytes = [requests([1]), announced(3), request(5)].concat();
    client.write_all(&bytes).unwrap();
    serve_accepted(&accepted, None, &mut context(&site));
    let events = events.lock().unwrap();
    assert_eq!(*events, [Event::Begun(1), Event::Computed(1)]);
    let total = site.registry.snapshot(now_us.load(Relaxed)).total;
    assert_eq!((total.app_requests, total.abandoned), (1, 1));
}

/// The socket was not read before all of them had computed.
#[test]
fn requests_are_received_while_apps_compute_that_have_waited_before() {
    const STREAMS: u32 = 50;
    const LATE: u32 = 201;
    let now_us = clock();
    let (mut client, accepted) = connect();
    let peer = client.try_clone().unwrap();
    let app = Computing {
        waits: true,
        then: Arc::new(move |stream| match stream {
            1 => (&peer).write_all(&request(LATE)).unwrap(),
            LATE => peer.shutdown(Shutdown::Write).unwrap(),
            _ => {}
        }),
        ..Computing::new(now_us)
    };
    let events = Arc::clone(&app.events);
    let site = Arc::new(site_at(now_us, app, ServerOptions::default()));
    let streams = (0..STREAMS).map(|index| 2 * index + 1);
    client.write_all(&requests(streams)).unwrap();
    serve_accepted(&accepted, None, &mut context(&site));
    let events = events.lock().unwrap();
    let mut before = events
        .iter()
        .take_while(|event| **event != Event::Begun(LATE));
    let first_computed = before.position(|event| *event == Event::Computed(1));
    assert!(first_computed.is_some(), "it is sent by the first one");
    let meanwhile = before.count();
    assert!(meanwhile < STREAMS as usize / 2, "{meanwhile}");
}

/// The thread took it for a moment in which it had waited for its client.
#[test]
fn what_comes_while_a_request_waits_in_vain_for_its_turn_is_as_old_as_that() {
    let now_us = clock();
    let in_progress = InProgress::new(GOAL, Some(1.0));
    let begin = || in_progress.begin(FlowKey::default(), Waited::default(), || 0);
    let first = begin().unwrap();
    // One is measured. The others are taken to compute then, however long they do nothing.
    in_progress.end(0, &begin().unwrap());
    let second = begin().unwrap();
    let site = Arc::new(Site {
        in_progress: Some(in_progress),
        ..site_at(now_us, Computing::new(now_us), ServerOptions::default())
    });
    let in_progress = site.in_progress.as_ref().unwrap();
    let refused = || site.registry.snapshot(0).total.refused_late;
    let (mut client, accepted) = connect();
    client.write_all(&requests([1])).unwrap();
    let of_thread = Arc::clone(&site);
    let serve = move || serve_accepted(&accepted, None, &mut context(&of_thread));
    let thread = std::thread::spawn(serve);
    while in_progress.waiting() == 0 {
        std::thread::yield_now();
    }
    let others = [3, 5, 7, 9].map(request).concat();
    client.write_all(&others).unwrap();
    now_us.store(2_000_000, Relaxed);
    // It gives up, and the next one comes to its turn.
    while refused() == 0 || in_progress.waiting() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(refused(), 3, "two of the others are 1.5 s and 1 s old");
    for permit in [&first, &second] {
        in_progress.end(2_000_000, permit);
    }
    client.shutdown(Shutdown::Write).unwrap();
    thread.join().unwrap();
}

#[test]
fn how_long_a_request_has_waited_for_its_turn_is_counted() {
    let now_us = clock();
    let in_progress = InProgress::new(GOAL, Some(1.0));
    let begin = || in_progress.begin(FlowKey::default(), Waited::default(), || 0);
    let first = begin().unwrap();
    in_progress.end(0, &begin().unwrap()); // the one that is measured, as above
    let second = begin().unwrap();
    let site = Arc::new(Site {
        in_progress: Some(in_progress),
        ..site_at(now_us, Computing::new(now_us), ServerOptions::default())
    });
    let in_progress = site.in_progress.as_ref().unwrap();
    let total = || site.registry.snapshot(0).total;
    let (mut client, accepted) = connect();
    client.write_all(&requests([1])).unwrap();
    let of_thread = Arc::clone(&site);
    let serve = move || serve_accepted(&accepted, None, &mut context(&of_thread));
    let thread = std::thread::spawn(serve);
    while in_progress.waiting() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(total().queue_depth, 1);
    now_us.store(50_000, Relaxed);
    for permit in [&first, &second] {
        in_progress.end(50_000, permit);
    }
    client.shutdown(Shutdown::Write).unwrap();
    thread.join().unwrap();
    let total = total();
    let counted = (total.queue_depth, total.queue_taken, total.queue_wait_us);
    assert_eq!(counted, (0, 1, 50_000));
}

/// Steps of 10 ms each whose responses nobody takes.
struct Keeping {
    now_us: &'static AtomicU64,
    memory: Arc<MemoryBudget>,
    /// What was counted before each of them.
    counted: Arc<Mutex<Vec<u64>>>,
    client: UnixStream,
}

impl Keeping {
    const STEPS: u32 = 30;
    const BYTES: usize = 64 << 10;
}

impl Handler for Keeping {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        Outcome::Blocking
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        let mut counted = self.counted.lock().unwrap();
        counted.push(self.memory.used_bytes());
        self.now_us.fetch_add(TAKES_US, Relaxed);
        exchange.response.body = Body::Bytes(vec![0; Self::BYTES]);
        if counted.len() == Self::STEPS as usize {
            self.client.shutdown(Shutdown::Write).unwrap();
        }
    }
}

/// It was counted when the thread waited, which it did not as long as steps were queued.
#[test]
fn what_a_connection_holds_is_counted_between_its_steps() {
    let now_us = clock();
    let (mut client, accepted) = connect();
    let memory = MemoryBudget::new(None);
    let counted = Arc::<Mutex<Vec<u64>>>::default();
    let handler = Keeping {
        now_us,
        memory: Arc::clone(&memory),
        counted: Arc::clone(&counted),
        client: client.try_clone().unwrap(),
    };
    let site = Arc::new(Site {
        memory,
        ..site_at(now_us, handler, ServerOptions::default())
    });
    client.write_all(&without_windows(Keeping::STEPS)).unwrap();
    serve_accepted(&accepted, None, &mut context(&site));
    let counted = counted.lock().unwrap();
    assert_eq!(counted.len(), Keeping::STEPS as usize);
    let grown = counted[counted.len() - 1] - counted[0];
    let kept = (counted.len() - 2) * Keeping::BYTES;
    assert!(grown >= kept as u64, "{grown} of {kept}");
}

/// Nor did it as long as apps computed.
#[test]
fn what_a_connection_holds_is_counted_while_its_apps_compute() {
    const STREAMS: u32 = 30;
    const BYTES: usize = 64 << 10;
    let now_us = clock();
    let (mut client, accepted) = connect();
    let peer = client.try_clone().unwrap();
    let memory = MemoryBudget::new(None);
    let counted = Arc::<Mutex<Vec<u64>>>::default();
    let (used, of_app) = (Arc::clone(&memory), Arc::clone(&counted));
    let app = Computing {
        waits: true,
        content_bytes: BYTES,
        then: Arc::new(move |_| {
            let mut counted = of_app.lock().unwrap();
            counted.push(used.used_bytes());
            if counted.len() == STREAMS as usize {
                peer.shutdown(Shutdown::Write).unwrap();
            }
        }),
        ..Computing::new(now_us)
    };
    let site = Arc::new(Site {
        memory,
        ..site_at(now_us, app, ServerOptions::default())
    });
    client.write_all(&without_windows(STREAMS)).unwrap();
    serve_accepted(&accepted, None, &mut context(&site));
    let counted = counted.lock().unwrap();
    assert_eq!(counted.len(), STREAMS as usize);
    let grown = counted[counted.len() - 1] - counted[0];
    let kept = (counted.len() - 4) * BYTES; // the last ones are counted afterwards
    assert!(grown >= kept as u64, "{grown} of {kept}");
}

/// A pool's hold on a connection that makes room for no other.
struct OfPool;

impl Hold for OfPool {
    const GIVES_BACK: bool = true;

    fn rest(&self, _resting: &Resting) -> bool {
        true
    }

    fn resume(&self) -> bool {
        true
    }
}

/// A thread of a pool has a connection with three requests of an app that takes so long. How it leaves that,
/// and what it has begun.
fn serve_of_pool(takes_us: u64) -> (Left, Vec<Event>) {
    let now_us = clock();
    let app = Computing {
        takes_us,
        ..Computing::new(now_us)
    };
    let events = Arc::clone(&app.events);
    let site = Arc::new(site_at(now_us, app, ServerOptions::default()));
    let (mut client, accepted) = connect();
    client.write_all(&requests([1, 3, 5])).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let left = serve_for_pool(&accepted, &site);
    let begun = events.lock().unwrap().clone();
    (left, begun)
}

/// A thread of a pool has this connection. How it leaves that.
fn serve_for_pool<H: Handler>(accepted: &Accepted, site: &Arc<Site<H>>) -> Left {
    let thread = &mut context(site);
    thread.begin_busy();
    let transport = Socket::of_thread(accepted.socket.as_fd());
    let mut connection = Connection::new(transport, accepted.into(), None, thread);
    let (left, _) = serve_while_held(&mut connection, thread, &OfPool);
    thread.end_busy();
    connection.end(&mut (), &mut thread.cx());
    left
}

/// All were begun where they had come, one after the other, and none was refused however late it was.
#[test]
fn a_thread_of_a_pool_leaves_apps_that_compute_to_the_queue() {
    let (left, events) = serve_of_pool(TAKES_US);
    let Left::AtStart(exchange, _) = left else {
        panic!("{left:?}");
    };
    assert_eq!(exchange.stream, StreamId(3));
    assert_eq!(events, [Event::Begun(1), Event::Computed(1)]);
}

#[test]
fn a_thread_of_a_pool_begins_quick_apps_itself() {
    let (left, events) = serve_of_pool(TAKES_US / 100);
    assert!(matches!(left, Left::AtEnd), "{left:?}");
    let all = [1, 3, 5].map(|stream| [Event::Begun(stream), Event::Computed(stream)]);
    assert_eq!(events, all.concat());
}

/// The new one was given requests that another one had looked at.
#[test]
fn requests_that_have_run_before_a_reload_are_begun_by_their_own_handler() {
    let now_us = clock();
    let new = Arc::new(Computing::new(now_us));
    let of_new = Arc::clone(&new.events);
    let served = Arc::<OnceLock<Arc<SharedConfig<Computing>>>>::default();
    let reloaded = Arc::clone(&served);
    let app = Computing {
        takes_us: TAKES_US / 100,
        then: Arc::new(move |stream| {
            if stream == 1 {
                let nowhere = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
                let config = Config::new(Arc::clone(&new), Arc::default(), [nowhere]);
                reloaded.get().unwrap().replace(config).unwrap();
            }
        }),
        ..Computing::new(now_us)
    };
    let of_old = Arc::clone(&app.events);
    let site = Arc::new(site_at(now_us, app, ServerOptions::default()));
    assert!(served.set(Arc::clone(&site.config)).is_ok());
    let (mut client, accepted) = connect();
    client.write_all(&requests([1, 3, 5])).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let left = serve_for_pool(&accepted, &site);
    assert!(matches!(left, Left::AtEnd), "{left:?}");
    let begun = |events: &Mutex<Vec<Event>>| events.lock().unwrap().len() / 2;
    assert_eq!((begun(&of_old), begun(&of_new)), (3, 0));
}

/// All of them had begun before the first response left, and those that were reset meanwhile, too.
#[test]
fn between_apps_that_a_thread_of_a_pool_begins_it_sends_and_receives() {
    const LAST: u32 = 39;
    let now_us = clock();
    let (mut client, accepted) = connect();
    let peer = client.try_clone().unwrap();
    let cancel = (ErrorCode::Cancel as u32).to_be_bytes();
    let mut reset = Vec::new();
    write_frame(Kind::RstStream, 0, LAST - 2, &cancel, &mut reset);
    let come = Arc::<AtomicU64>::default();
    let has_come = Arc::clone(&come);
    let app = Computing {
        takes_us: POLLS_US / 2,
        then: Arc::new(move |stream| match stream {
            1 => (&peer).write_all(&reset).unwrap(),
            9 => {
                peer.set_nonblocking(true).unwrap();
                let count = (&peer).read(&mut [0; 64]).unwrap_or(0);
                has_come.store(count as u64, Relaxed);
            }
            LAST => peer.shutdown(Shutdown::Write).unwrap(),
            _ => {}
        }),
        ..Computing::new(now_us)
    };
    let events = Arc::clone(&app.events);
    let site = Arc::new(site_at(now_us, app, ServerOptions::default()));
    client.write_all(&requests((1..=LAST).step_by(2))).unwrap();
    let left = serve_for_pool(&accepted, &site);
    assert!(matches!(left, Left::AtEnd), "{left:?}");
    assert!(come.load(Relaxed) > 0, "the first responses have left");
    let events = events.lock().unwrap();
    assert!(events.contains(&Event::Computed(LAST)));
    assert!(!events.contains(&Event::Begun(LAST - 2)), "it was reset");
}

/// They were dropped with their connection, and not counted.
#[test]
fn requests_that_wait_when_their_client_leaves_are_counted_as_abandoned() {
    let now_us = clock();
    let (mut client, accepted) = connect();
    client.write_all(&requests([1, 3, 5])).unwrap();
    let client = Mutex::new(Some(client));
    let app = Computing {
        then: Arc::new(move |_| drop(client.lock().unwrap().take())),
        ..Computing::new(now_us)
    };
    let site = Arc::new(site_at(now_us, app, ServerOptions::default()));
    serve_accepted(&accepted, None, &mut context(&site));
    let total = site.registry.snapshot(now_us.load(Relaxed)).total;
    assert_eq!((total.app_requests, total.abandoned), (1, 2));
}
