//! Requests that have waited to be read, and wait for a worker once more.

use super::*;

/// Of what the app does not answer.
const QUICK: &[u8] = b"GET /quick HTTP/1.1\r\nHost: test\r\n\r\n";

/// An app, which takes 10 ms by a clock that it moves, beside what is answered at once.
struct App(&'static AtomicU64);

impl Handler for App {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), exchange: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        match exchange.request.path() {
            b"/quick" => Outcome::Ready,
            _ => Outcome::Later(TaskOptions::default()),
        }
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        let now_us = self.0;
        Box::pin(async move {
            now_us.fetch_add(10_000, Relaxed);
            port.answer(exchange);
        })
    }
}

/// Whose threads serve connections, or whose workers do.
fn servers() -> [ServerOptions; 2] {
    let workers = ServerOptions {
        workers: 1,
        socket_io: SocketIo::Worker,
        ..ServerOptions::default()
    };
    [one_thread(), workers]
}

/// What a client gets whose connection has waited for 600 ms until it was read, and its request for the app for so long
/// after that. Others wait behind it.
fn answer_after(options: ServerOptions, requests: &[u8], waited_us: u64) -> Vec<u8> {
    let now_us = clock();
    let mut server = Server::at(now_us, config_of(App(now_us)), options);
    server.give_back_connections();
    let mut first = connect(&mut server.event_loop);
    first.write_all(GET).unwrap();
    assert_eq!(answers(&server.answer(&mut first)), 1); // shows that the app is slow
    let mut clients = [requests, GET, GET].map(|requests| {
        let mut client = connect(&mut server.event_loop);
        client.write_all(requests).unwrap();
        turn(&mut server.event_loop);
        client
    });
    now_us.fetch_add(600_000, Relaxed);
    server.work();
    turn(&mut server.event_loop);
    now_us.fetch_add(waited_us, Relaxed);
    server.answer(&mut clients[0])
}

fn assert_status(answer: &[u8], status: &str) {
    let expected = format!("HTTP/1.1 {status} ");
    let answer = String::from_utf8_lossy(answer);
    assert!(answer.starts_with(&expected), "not {status}: {answer}");
}

/// It began to wait anew, so that each of both waits could be nearly as long as the goal.
#[test]
fn an_apps_request_has_waited_since_its_connection_was_queued() {
    for options in servers() {
        for (waited_us, status) in [(300_000, "200"), (500_000, "503")] {
            let answer = answer_after(options.clone(), GET, waited_us);
            assert_status(&answer, status);
        }
    }
}

/// Its client may have sent it once it had the response before.
#[test]
fn a_request_behind_another_one_has_waited_since_it_was_read() {
    for options in servers() {
        let answer = answer_after(options, &[QUICK, GET].concat(), 500_000);
        assert_eq!(answers(&answer), 2);
    }
}

/// It began to wait anew once its loop had come to it.
#[test]
fn a_request_that_its_loop_has_left_unread_has_waited_meanwhile() {
    for (waited_us, status) in [(300_000, "200"), (500_000, "503")] {
        let now_us = clock();
        let options = ServerOptions {
            workers: 1,
            ..ServerOptions::default()
        };
        let mut server = Server::at(now_us, config_of(Blocks), options);
        let mut clients = [(); 2].map(|()| connect(&mut server.event_loop));
        turn(&mut server.event_loop);
        let began_us = server.event_loop.begin_turn();
        for client in &mut clients {
            client.write_all(GET).unwrap();
        }
        now_us.fetch_add(1_200_000, Relaxed);
        server.event_loop.end_turn(began_us);
        server.event_loop.has_waited = false;
        turn(&mut server.event_loop); // they came in the middle of the last one, on average
        now_us.fetch_add(waited_us, Relaxed);
        assert_status(&server.answer(&mut clients[0]), status);
    }
}
