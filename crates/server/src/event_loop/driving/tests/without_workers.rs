//! What requests have waited for where the loop does the work itself.

use super::*;
use crate::event_loop::tests::http2::{heads, requests};
use crate::event_loop::tests::{accepted_over_tcp, send_and_wait, status_of_response};
use crate::transport::Driver;

/// Its blocking step takes so many microseconds, by a clock that it moves.
struct Computes(&'static AtomicU64, u64);

impl Handler for Computes {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        Outcome::Blocking
    }

    fn handle_blocking(&self, _: &mut Exchange) {
        self.0.fetch_add(self.1, Relaxed);
    }
}

/// Of a loop whose connections begin with a computation, and whose requests take so long.
fn computing_loop(goal_ms: u64, step_us: u64) -> EventLoop<Computes, Epoll> {
    let now_us = clock();
    let options = ServerOptions {
        latency_goal: Some(Duration::from_millis(goal_ms)),
        ..ServerOptions::default()
    };
    let site = Arc::new(Site {
        clock: Clock::simulated(now_us),
        ..Arc::into_inner(site_of(slow(Computes(now_us, step_us)), options)).unwrap()
    });
    let group = LoopGroup::new(&site.options, 1, &site.memory).unwrap();
    EventLoop::new(0, &site, &group, None, Vec::new()).unwrap()
}

/// The status of the second client's response, whose messages come one after the other. While each of them waits, a
/// request of the first client keeps the loop for `step_us`.
fn status_behind_another(goal_ms: u64, step_us: u64, messages: &[&[u8]]) -> String {
    let mut event_loop = computing_loop(goal_ms, step_us);
    let [mut first, mut second] = [0, 1].map(|_| connect(&mut event_loop));
    for message in messages {
        first.write_all(GET).unwrap();
        second.write_all(message).unwrap();
        (0..3).for_each(|_| turn(&mut event_loop));
    }
    second.set_nonblocking(true).unwrap();
    let mut answer = [0; 12];
    second.read_exact(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[9..]).into_owned()
}

/// Each of both could wait for nearly the goal there, too.
#[test]
fn without_workers_a_request_has_waited_for_as_long_as_its_handshake() {
    for (step_us, status) in [(150_000, "200"), (240_000, "503")] {
        assert_eq!(status_behind_another(500, step_us, &[HELLO, GET]), status);
    }
}

/// What it had waited counted twice: for the handshake and for the request.
#[test]
fn without_workers_a_request_that_comes_along_with_its_handshake_has_waited_once() {
    assert_eq!(status_behind_another(500, 300_000, &[GET]), "200");
}

/// What it had waited counted as time that its client had let pass, as far as it was more than 250 ms.
#[test]
fn without_workers_a_client_that_asks_at_once_has_not_rested_while_the_loop_was_busy() {
    for (goal_ms, status) in [(880, "503"), (950, "200")] {
        let messages = [HELLO, GET];
        assert_eq!(status_behind_another(goal_ms, 300_000, &messages), status);
    }
}

/// It was not asked if the turn had lasted for longer than the handshake had been kept.
#[test]
fn without_workers_the_kernel_is_asked_however_long_the_turn_has_lasted() {
    let mut event_loop = computing_loop(4000, 5_000_000);
    let mut first = connect(&mut event_loop);
    let (mut second, accepted) = accepted_over_tcp();
    event_loop.assign(accepted);
    second.write_all(HELLO).unwrap();
    assert!(!event_loop.turn().unwrap());
    first.write_all(GET).unwrap();
    send_and_wait(&mut second);
    (0..3).for_each(|_| turn(&mut event_loop));
    assert_eq!(status_of_response(&mut second), "HTTP/1.1 200");
}

/// The live page said that nothing waits.
#[test]
fn a_loop_without_workers_counts_how_long_requests_have_waited() {
    let now_us = clock();
    let goal = Some(Duration::from_secs(1));
    let mut event_loop = event_loop_at::<_, Epoll>(now_us, Computes(now_us, 10_000), goal);
    let clients = [0, 1].map(|_| connect(&mut event_loop));
    for mut client in &clients {
        client.write_all(GET).unwrap();
    }
    for _ in 0..3 {
        turn(&mut event_loop); // the second request may be left for the next one
    }
    let total = event_loop.site.registry.snapshot(0).total;
    assert_eq!((total.queue_taken, total.queue_wait_us), (2, 10_000));
}

/// How many requests a loop has answered, and how long they took in all.
fn count_and_sum_us<H: Handler>(event_loop: &EventLoop<H, Epoll>) -> (u64, u64) {
    let [(_, _, counts)] = &event_loop.site.registry.timings().requests[..] else {
        panic!("all are of one mount");
    };
    (counts.count(), counts.sum_us)
}

/// With a latency goal and without one.
const GOALS: [Option<Duration>; 2] = [Some(Duration::from_secs(1)), None];

/// The second one seemed to take as long as the first one, for which it waits.
#[test]
fn without_workers_what_a_request_has_waited_for_others_of_its_turn_is_in_its_latency() {
    for goal in GOALS {
        let now_us = clock();
        let mut event_loop = event_loop_at::<_, Epoll>(now_us, Computes(now_us, 10_000), goal);
        let clients = [0, 1].map(|_| connect(&mut event_loop));
        for mut client in &clients {
            client.write_all(GET).unwrap();
        }
        for _ in 0..3 {
            turn(&mut event_loop); // the second request may be left for the next one
        }
        let seen = count_and_sum_us(&event_loop);
        assert_eq!(seen, (2, 10_000 + 20_000), "{goal:?}");
    }
}

#[test]
fn what_has_come_during_a_turn_has_waited_for_half_of_it() {
    for goal in GOALS {
        for (bytes, count) in [(GET.to_vec(), 1), (requests(&[], 3), 3)] {
            let now_us = clock();
            let mut event_loop = event_loop_at::<_, Epoll>(now_us, Quiet, goal);
            let mut client = connect(&mut event_loop);
            turn(&mut event_loop);
            let began_us = event_loop.begin_turn();
            client.write_all(&bytes).unwrap();
            now_us.fetch_add(800_000, Relaxed);
            event_loop.end_turn(began_us);
            event_loop.has_waited = false;
            turn(&mut event_loop);
            let seen = count_and_sum_us(&event_loop);
            assert_eq!(seen, (count, count * 400_000), "{goal:?}");
        }
    }
}

/// It seemed to have come before the turn that has accepted it.
#[test]
fn without_a_goal_what_a_new_connection_asks_has_waited_for_half_of_the_turn() {
    let now_us = clock();
    let mut event_loop = event_loop_at::<_, Epoll>(now_us, Quiet, None);
    let began_us = event_loop.begin_turn();
    now_us.store(10_000, Relaxed);
    event_loop.thread.tick();
    let (mut client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    client.write_all(GET).unwrap();
    take_in(&mut event_loop, server);
    event_loop.end_turn(began_us);
    assert_eq!(count_and_sum_us(&event_loop), (1, 5_000));
}

/// As many as could be were computed, none of their responses left before the last one was computed, and none was
/// refused, however long it had waited.
fn streams_are_answered_one_by_one_and_refused_once_they_are_late<D: Driver>() {
    let now_us = clock();
    let goal = Some(Duration::from_millis(500));
    let mut event_loop = event_loop_at::<_, D>(now_us, Computes(now_us, 240_000), goal);
    let mut client = connect(&mut event_loop);
    client.write_all(&requests(&[], 6)).unwrap();
    client.set_nonblocking(true).unwrap();
    let mut received = Vec::new();
    while heads(&received) < 6 {
        let computed = now_us.load(Relaxed) / 240_000;
        event_loop.turn().unwrap();
        let _ = client.read_to_end(&mut received); // an error: there is no more yet
        // By a ring they leave when the next turn begins, and the next one once that is seen.
        assert!(
            heads(&received) as u64 + 1 >= computed,
            "responses wait for others"
        );
    }
    // At 0 and 240 ms; what begins at 480 ms could not be answered in time.
    assert_eq!(now_us.load(Relaxed), 480_000);
    let total = event_loop.site.registry.snapshot(0).total;
    assert_eq!((total.blocked_in_place, total.refused_late), (2, 4));
    assert_eq!((total.queue_taken, total.queue_wait_us), (2, 240_000));
}

#[test]
fn without_workers_streams_of_a_connection_are_answered_one_by_one_and_refused_once_they_are_late()
{
    streams_are_answered_one_by_one_and_refused_once_they_are_late::<Epoll>();
    if has_rings() {
        streams_are_answered_one_by_one_and_refused_once_they_are_late::<RingDriver>();
    }
}

/// An app that computes on a loop, for streams that have come at once.
struct App(&'static AtomicU64);

impl Handler for App {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        Outcome::Later(TaskOptions::default())
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        let now_us = self.0;
        Box::pin(async move {
            now_us.fetch_add(150_000, Relaxed);
            port.answer(exchange);
        })
    }
}

#[test]
fn without_workers_apps_of_streams_are_refused_once_they_are_late() {
    let now_us = clock();
    let goal = Some(Duration::from_millis(500));
    let mut event_loop = event_loop_at::<_, Epoll>(now_us, App(now_us), goal);
    let mut client = connect(&mut event_loop);
    client.write_all(&requests(&[], 6)).unwrap();
    client.set_nonblocking(true).unwrap();
    let mut received = Vec::new();
    for _ in 0..8 {
        turn(&mut event_loop);
        let _ = client.read_to_end(&mut received); // an error: there is no more yet
    }
    assert_eq!(heads(&received), 6);
    assert_eq!(now_us.load(Relaxed), 450_000);
    let total = event_loop.site.registry.snapshot(0).total;
    assert_eq!((total.app_requests, total.refused_late), (3, 3));
}

/// One of those that waited had its turn in each of the loop's, also to be refused: while other clients had requests
/// carried out, more came to wait than left.
#[test]
fn a_ring_without_workers_refuses_all_that_are_late_at_once() {
    if !has_rings() {
        return;
    }
    let now_us = clock();
    let goal = Some(Duration::from_millis(200));
    let mut event_loop = event_loop_at::<_, RingDriver>(now_us, Computes(now_us, 20_000), goal);
    let mut other = connect(&mut event_loop);
    let mut clients: Vec<_> = (0..40).map(|_| connect(&mut event_loop)).collect();
    for client in &mut clients {
        client.write_all(GET).unwrap();
    }
    for _ in 0..25 {
        other.write_all(GET).unwrap();
        event_loop.turn().unwrap();
    }
    assert!(
        event_loop.again.len() <= 1,
        "{} wait",
        event_loop.again.len()
    );
    let total = event_loop.site.registry.snapshot(0).total;
    assert!(total.refused_late > 0);
}
