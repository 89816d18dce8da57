//! What a thread of a pool does with a connection, and what of that counts.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use loadline_proto::latency::HistogramCounts;
use loadline_proto::{Computation, Context, Outcome, Port, Task, TaskOptions};

use super::*;
use crate::ServerOptions;
use crate::admission::Refusing;
use crate::connection::tests::GET;
use crate::connection::{Connection, Origin};
use crate::fairness::ClientKey;
use crate::options::Architecture;
use crate::site::tests::{clock, site_at};
use crate::task::TaskHome;
use crate::transport::socket::Socket;
use crate::worker::dispatcher::LoopTasks;

const TAKES_US: u64 = 10_000;

/// Takes some time by a clock that it moves: for what is refused, and more for other requests.
struct Takes(&'static AtomicU64);

impl Handler for Takes {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        Outcome::Blocking
    }

    fn is_exempt(&self, _: &Exchange) -> bool {
        self.0.fetch_add(1_000, Relaxed);
        false
    }

    fn handle_blocking(&self, _: &mut Exchange) {
        self.0.fetch_add(TAKES_US, Relaxed);
    }
}

/// An app that takes so long before it responds, by a clock that it moves.
struct App {
    now_us: &'static AtomicU64,
    takes_us: u64,
}

impl Handler for App {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        Outcome::Later(TaskOptions::default())
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        let (now_us, takes_us) = (self.now_us, self.takes_us);
        Box::pin(async move {
            now_us.fetch_add(takes_us, Relaxed);
            port.answer(exchange);
        })
    }
}

/// Reads until there is such a response.
fn await_response(mut client: &UnixStream, status: &str) {
    let mut text = String::new();
    while !text.contains(status) {
        let mut some = [0; 4096];
        let count = client.read(&mut some).unwrap();
        assert!(count > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&some[..count]));
    }
}

const TOKEN: Token = Token {
    index: 0,
    generation: 0,
};

/// A pool of one thread.
fn one_thread() -> (Arc<Workers>, WorkerThread<Takes>) {
    one_thread_with(Takes, ServerOptions::default())
}

/// The same with another handler.
fn one_thread_with<H: Handler>(
    handler: impl FnOnce(&'static AtomicU64) -> H,
    options: ServerOptions,
) -> (Arc<Workers>, WorkerThread<H>) {
    let now_us = clock();
    let options = ServerOptions {
        architecture: Architecture::ThreadPool,
        threads: 1,
        ..options
    };
    let site = Arc::new(site_at(now_us, handler(now_us), options.with_parts()));
    let (workers, mut threads) = Workers::new(&site, 1, 0).unwrap();
    (workers, threads.pop().unwrap())
}

/// A connection for it, whose client has sent a request.
fn asking<H: Handler>(worker: &mut WorkerThread<H>) -> (UnixStream, Served) {
    sending(worker, GET)
}

/// The same, whose client has sent these bytes.
fn sending<H: Handler>(worker: &mut WorkerThread<H>, bytes: &[u8]) -> (UnixStream, Served) {
    let (mut client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let origin = Origin {
        peer: None,
        listener: 0,
    };
    let thread = worker.thread.as_mut().unwrap();
    let socket: Socket = Socket::of_loop(server.into(), true);
    let served = Served {
        connection: Some(Connection::new(socket, origin, None, thread)),
        ..Served::default()
    };
    client.write_all(bytes).unwrap();
    (client, served)
}

/// A job that waits for the thread.
fn submit_one(workers: &Workers, mailbox: &Arc<Mailbox<Message>>) {
    let work = Work::Serve(Box::default());
    let job = Job::of(ClientKey::NOBODY, work, mailbox);
    assert!(workers.submit(job).is_ok());
}

/// None of it was counted, however long its thread kept it.
#[test]
fn a_connection_whose_first_request_was_refused_counts_when_it_goes_on() {
    let (_workers, mut worker) = one_thread();
    let (mut client, mut served) = asking(&mut worker);
    served.refusing = Some(Refusing::late(1));
    let client = std::thread::spawn(move || {
        await_response(&client, "HTTP/1.1 503");
        client.write_all(GET).unwrap();
        await_response(&client, "HTTP/1.1 200");
    });
    let holders = worker.holders.clone().unwrap();
    let mailbox = Mailbox::new().unwrap();
    let busy = worker.keep(&mut served, TOKEN, &holders, &mailbox);
    client.join().unwrap();
    assert!(matches!(served.after, After::Close), "{served:?}");
    assert_eq!(busy.us, TAKES_US);
    let mut times = HistogramCounts::default();
    worker.stats.job_times().add_to(&mut times);
    assert_eq!((times.count(), times.sum_us), (1, TAKES_US));
}

#[test]
fn a_thread_rests_with_a_connection_only_while_no_job_waits() {
    for has_job in [false, true] {
        let (workers, mut worker) = one_thread();
        let (client, mut served) = asking(&mut worker);
        let mailbox = Arc::new(Mailbox::new().unwrap());
        if has_job {
            submit_one(&workers, &mailbox);
        }
        let holders = worker.holders.clone().unwrap();
        let others = Arc::clone(&holders);
        let client = std::thread::spawn(move || {
            await_response(&client, "HTTP/1.1 200");
            while !has_job && !others.free_one() {
                std::thread::yield_now(); // it does not rest yet
            }
            client
        });
        let busy = worker.keep(&mut served, TOKEN, &holders, &mailbox);
        let _client = client.join().unwrap();
        assert!(matches!(served.after, After::Wait), "{served:?}");
        assert_eq!(busy.has_rested, !has_job);
    }
}

/// Its client was slow: what is left of the request has not waited with the connection.
#[test]
fn what_comes_once_its_thread_has_rested_has_not_waited_since_the_connection_was_queued() {
    let (_workers, mut worker) = one_thread();
    let (_client, mut served) = sending(&mut worker, &GET[..GET.len() / 2]);
    served.ready_us = Some(0);
    let holders = worker.holders.clone().unwrap();
    let others = Arc::clone(&holders);
    let freeing = std::thread::spawn(move || {
        while !others.free_one() {
            std::thread::yield_now(); // it does not rest yet
        }
    });
    let mailbox = Mailbox::new().unwrap();
    worker.keep(&mut served, TOKEN, &holders, &mailbox);
    freeing.join().unwrap();
    assert!(matches!(served.after, After::Wait), "{served:?}");
    assert_eq!(served.ready_us, None);
}

/// What it has waited elsewhere says nothing of this queue.
#[test]
fn a_job_counts_in_a_queue_by_what_it_has_waited_there() {
    let mut now_us = None;
    let takes = |us: &'static AtomicU64| Takes(now_us.insert(us));
    let (workers, mut worker) = one_thread_with(takes, ServerOptions::default());
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let work = Work::Serve(Box::default());
    let job = Job {
        already_waited_us: 900_000,
        ..Job::of(ClientKey::NOBODY, work, &mailbox)
    };
    assert!(workers.submit(job).is_ok());
    now_us.unwrap().store(1_000, Relaxed);
    let taken = worker.try_take(1_000).unwrap();
    let site = Arc::clone(&worker.thread.as_ref().unwrap().site);
    worker.carry_out(taken, &site);
    assert_eq!(worker.stats.queue_wait_us.value(), 1_000);
}

/// A pool at twice its capacity looked as if requests took no longer than the work for them. What comes behind a request
/// has not waited.
#[test]
fn what_a_connection_has_waited_for_a_thread_is_in_the_latency_of_its_request() {
    let mut now_us = None;
    let takes = |us: &'static AtomicU64| Takes(now_us.insert(us));
    let (workers, mut worker) = one_thread_with(takes, ServerOptions::default());
    let (_client, served) = sending(&mut worker, &[GET, GET].concat());
    let mailbox = Arc::new(Mailbox::new().unwrap());
    // The second one is there so that the thread does not wait for the client.
    for served in [served, Served::default()] {
        let work = Work::Serve(Box::new(served));
        let job = Job {
            queued_us: 200_000,
            already_waited_us: 50_000,
            ..Job::of(ClientKey::NOBODY, work, &mailbox)
        };
        assert!(workers.submit(job).is_ok());
    }
    now_us.unwrap().store(700_000, Relaxed);
    let taken = worker.try_take(700_000).unwrap();
    let site = Arc::clone(&worker.thread.as_ref().unwrap().site);
    worker.carry_out(taken, &site);
    let [(_, _, counts)] = &site.registry.timings().requests[..] else {
        panic!("all are of one mount");
    };
    let sum_us = (550_000 + TAKES_US) + TAKES_US;
    assert_eq!((counts.count(), counts.sum_us), (2, sum_us));
}

/// Computes nothing, for a client that may have left.
#[derive(Debug)]
struct For {
    has_left: bool,
}

impl Computation for For {
    fn carry_out(&mut self) {}

    fn is_abandoned(&self) -> bool {
        self.has_left
    }
}

/// They counted as begun: overload looked smaller than it was where clients leave.
#[test]
fn jobs_of_clients_that_have_left_have_not_begun() {
    let (workers, worker) = one_thread();
    let mailbox = Arc::new(Mailbox::new().unwrap());
    submit_one(&workers, &mailbox); // waits behind them
    let charge = Charge::of(Lane::Handshakes);
    let is_in_vain = |has_left, now_us, here_us| {
        let mut work = Work::Compute(Box::new(For { has_left }), 0);
        let waited = JobWait {
            here_us,
            before_us: 0,
        };
        worker.is_in_vain(&mut work, &charge, now_us, waited)
    };
    for now_us in (0..=250_000).step_by(10_000) {
        assert!(!is_in_vain(false, now_us, 20_000));
        (0..3).for_each(|_| assert!(is_in_vain(true, now_us, 20_000)));
        assert!(is_in_vain(false, now_us, 990_000));
    }
    let mut control = lock(worker.control.as_ref().unwrap());
    assert!(control.of(Lane::Handshakes).is_lasting());
}

/// All of them were to come back in the same second.
#[test]
fn clients_that_seem_to_have_left_come_back_at_different_times() {
    let (_workers, mut worker) = one_thread();
    let charge = Charge::of(Lane::Files);
    let waited = JobWait {
        here_us: 500_000,
        before_us: 0,
    };
    let seen = (1..=5).map(|now_us| {
        let (client, served) = asking(&mut worker);
        client.shutdown(Shutdown::Write).unwrap();
        let mut work = Work::Serve(Box::new(served));
        assert!(!worker.is_in_vain(&mut work, &charge, now_us, waited));
        match work {
            Work::Serve(served) => served.refusing.unwrap().retry_after_s,
            other => panic!("{other:?}"),
        }
    });
    let mut seen: Vec<u32> = seen.collect();
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3, 4, 5]);
}

/// A thread serves two requests for this app, each over a connection of its own; behind the second one a job waits.
/// How long the first one has kept it busy, and whether the second one is to wait for a thread by itself.
fn serve_two(takes_us: u64, options: ServerOptions) -> (u64, bool) {
    let app = |now_us| App { now_us, takes_us };
    let (workers, mut worker) = one_thread_with(app, options);
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let home: Arc<dyn TaskHome> = Arc::new(LoopTasks {
        mailbox: Arc::clone(&mailbox),
        workers: Some(Arc::clone(&workers)),
    });
    let holders = worker.holders.clone().unwrap();
    let mut serve = || {
        let (client, mut served) = asking(&mut worker);
        client.shutdown(Shutdown::Write).unwrap();
        served.home = Some(Arc::clone(&home));
        let busy = worker.keep(&mut served, TOKEN, &holders, &mailbox);
        (served.after, busy)
    };
    let (after, first) = serve();
    assert!(matches!(after, After::Close), "{after:?}");
    submit_one(&workers, &mailbox);
    let (after, _) = serve();
    (first.us, matches!(after, After::Start(..)))
}

/// It kept its thread from the files in the queue, and made these look as slow as itself.
#[test]
fn a_slow_app_over_http1_waits_in_its_own_lane_while_jobs_wait() {
    assert_eq!(serve_two(TAKES_US, ServerOptions::default()), (0, true));
}

/// The way over the loop to another thread would take longer.
#[test]
fn a_quick_app_over_http1_begins_where_its_connection_is_served() {
    let takes_us = TAKES_US / 100;
    let seen = serve_two(takes_us, ServerOptions::default());
    assert_eq!(seen, (takes_us, false));
}

#[test]
fn without_fairness_an_app_over_http1_begins_where_its_connection_is_served() {
    let options = ServerOptions {
        fairness: false,
        ..ServerOptions::default()
    };
    assert_eq!(serve_two(TAKES_US, options), (TAKES_US, false));
}
