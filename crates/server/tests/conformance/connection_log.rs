//! The connection log: exactly one line when one is accepted, one when it is closed, with what
//! it came to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use loadline_proto::Limits;
use loadline_server::{
    AccessSink, Architecture, ConnectionFormat, ConnectionLogging, ListenAddr, ServerOptions,
};
use tempfile::TempDir;

use crate::client::Client;
use crate::fixture::{Model, Server, eventually, impatient, limits};

const ECHO: &str = "GET /-/echo HTTP/1.1\r\nHost: h\r\n\r\n";
const LAST: &str = "GET /-/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

every_model! {
    what_a_client_ends,
    what_an_http_1_client_ends,
    what_the_server_ends,
    who_is_too_slow,
    what_a_drain_ends,
    who_makes_room_and_who_gets_none,
    who_is_closed_at_capacity,
    who_is_cut,
    many_at_once_have_a_line_each,
}

/// Lines that were handed on.
#[derive(Default)]
struct Lines(Mutex<Vec<u8>>);

impl AccessSink for Lines {
    fn offer(&self, lines: &mut Vec<u8>) {
        assert!(lines.ends_with(b"\n"), "only whole lines");
        self.0.lock().unwrap().append(lines);
    }
}

/// What the lines of one connection say.
#[derive(Clone, Debug)]
struct Entry {
    peer: SocketAddr,
    accepted: String,
    closed: Option<Closed>,
}

#[derive(Clone, Debug)]
struct Closed {
    time: String,
    reason: String,
    requests: u64,
    bytes_in: u64,
    bytes_out: u64,
    us: u64,
}

/// A server with a connection log.
struct LoggedServer {
    server: Server,
    lines: Arc<Lines>,
}

impl LoggedServer {
    fn start(options: ServerOptions, limits: Limits) -> Self {
        let lines = Arc::<Lines>::default();
        let logging = ConnectionLogging {
            format: ConnectionFormat::Text,
            sink: lines.clone(),
        };
        let any_port = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
        let root = TempDir::new().unwrap();
        let server = Server::start_logging(root, options, limits, any_port, Some(logging));
        Self { server, lines }
    }

    /// By their numbers. Fails if one has two lines of a kind, or its end comes first.
    fn entries(&self) -> BTreeMap<u64, Entry> {
        let text = String::from_utf8(self.lines.0.lock().unwrap().clone()).unwrap();
        let mut entries = BTreeMap::<u64, Entry>::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (time, id, peer) = (words[0], words[2].parse().unwrap(), words[3].parse());
            let peer: SocketAddr = peer.unwrap();
            assert!(time.len() == 27 && time.ends_with('Z'), "{line}");
            if words[1] == "accepted" {
                assert_eq!(words.len(), 4, "{line}");
                let entry = Entry {
                    peer,
                    accepted: time.to_owned(),
                    closed: None,
                };
                assert!(entries.insert(id, entry).is_none(), "twice: {line}");
                continue;
            }
            assert_eq!((words[1], words.len()), ("closed", 9), "{line}");
            let entry = entries.get_mut(&id).expect(line);
            assert_eq!(entry.peer, peer, "{line}");
            let number = |index: usize, name: &str| {
                let value = words[index].strip_prefix(name).expect(line);
                value.strip_prefix('=').expect(line).parse().unwrap()
            };
            let closed = Closed {
                time: time.to_owned(),
                reason: words[4].to_owned(),
                requests: number(5, "requests"),
                bytes_in: number(6, "in"),
                bytes_out: number(7, "out"),
                us: number(8, "us"),
            };
            assert!(entry.closed.replace(closed).is_none(), "twice: {line}");
        }
        entries
    }

    /// The last connection of this client: a port may be used again.
    fn last_of(&self, client: SocketAddr) -> Option<(u64, Entry)> {
        let mut entries = self.entries().into_iter().rev();
        entries.find(|(_, entry)| entry.peer == client)
    }

    /// The end of this connection, once it is in the log.
    fn end_of(&self, client: SocketAddr) -> Closed {
        eventually("the line of its end", || {
            let last = self.last_of(client);
            last.is_some_and(|(_, entry)| entry.closed.is_some())
        });
        let (_, entry) = self.last_of(client).unwrap();
        let closed = entry.closed.unwrap();
        assert!(
            entry.accepted <= closed.time,
            "{} {closed:?}",
            entry.accepted
        );
        closed
    }

    fn connect(&self) -> (Client, SocketAddr) {
        let client = self.server.connect();
        let address = client.stream.local_addr().unwrap();
        (client, address)
    }

    fn expect(&self, client: &Client, address: SocketAddr, reason: &str, requests: u64) {
        let closed = self.end_of(address);
        let seen = (closed.reason.as_str(), closed.requests);
        assert_eq!(seen, (reason, requests), "{closed:?}");
        let bytes = (closed.bytes_in, closed.bytes_out);
        assert_eq!(bytes, (client.bytes_out, client.bytes_in), "{closed:?}");
    }
}

pub fn what_a_client_ends(model: Model) {
    let logged = LoggedServer::start(model.options(), limits());
    // Three requests, then its end.
    let (mut client, address) = logged.connect();
    for _ in 0..3 {
        client.send(ECHO).answer();
    }
    client.half_close().end();
    logged.expect(&client, address, "client", 3);
    assert_eq!(logged.last_of(address).unwrap().0, 1);
    // Nothing at all.
    let (mut client, address) = logged.connect();
    client.half_close().end();
    logged.expect(&client, address, "client", 0);
    assert_eq!(logged.last_of(address).unwrap().0, 2);
    // A blocking step, on a connection that is to end with it.
    let (mut client, address) = logged.connect();
    client.send_last("/-/echo-blocking").answer();
    client.end();
    let reason = if client.is_http2 {
        "client"
    } else {
        "finished"
    };
    logged.expect(&client, address, reason, 1);
}

fn what_an_http_1_client_ends(model: Model) {
    let logged = LoggedServer::start(model.options(), limits());
    // An answer that says close.
    let (mut client, address) = logged.connect();
    client.send(ECHO).answer();
    client.send(LAST).answer();
    client.end();
    logged.expect(&client, address, "finished", 2);
    // In the middle of a head.
    let (mut client, address) = logged.connect();
    client.send(&ECHO[..9]).half_close().end();
    logged.expect(&client, address, "vanished", 0);
    // Something else than HTTP.
    let (mut client, address) = logged.connect();
    client.send("G@T / HTTP/1.1\r\n\r\n").answer();
    client.half_close().end();
    logged.expect(&client, address, "bad_request", 1);
}

pub fn what_the_server_ends(model: Model) {
    let limits = Limits {
        idle_timeout_ms: 1_000,
        ..impatient()
    };
    let logged = LoggedServer::start(model.options(), limits);
    let (mut client, address) = logged.connect();
    client.send(ECHO).answer();
    client.end();
    client.half_close();
    logged.expect(&client, address, "idle", 1);
    // Loops read the clock once a turn, and whoever accepts has a clock of its own: on a busy machine
    // the two lie apart by as long as a turn was held up.
    let us = logged.end_of(address).us;
    assert!(us >= 500_000, "after {us} us");
}

fn who_is_too_slow(model: Model) {
    let logged = LoggedServer::start(model.options(), impatient());
    let (mut client, address) = logged.connect();
    client.send(&ECHO[..9]).answer();
    client.half_close().end();
    logged.expect(&client, address, "slow", 1);
}

pub fn what_a_drain_ends(model: Model) {
    let logged = LoggedServer::start(model.options(), limits());
    let (mut client, address) = logged.connect();
    client.send(ECHO).answer();
    logged.server.control.drain();
    client.end();
    client.half_close();
    logged.expect(&client, address, "drained", 1);
}

fn who_makes_room_and_who_gets_none(model: Model) {
    let options = ServerOptions {
        connections_max: 1,
        ..model.options()
    };
    let has_bound = match options.architecture {
        Architecture::Sequential => false,
        Architecture::ThreadPool => options.latency_goal.is_some(),
        _ => true,
    };
    if !has_bound {
        return; // nobody is refused, nobody makes room
    }
    let logged = LoggedServer::start(options, limits());
    let (mut idle, idle_address) = logged.connect();
    idle.send(ECHO).answer();
    let mut refused = 0;
    let (mut busy, busy_address) = loop {
        let (mut client, address) = logged.connect();
        client.send(&ECHO[..9]);
        // Its lines are handed on at the end of a turn, which may come after its answer.
        let is_evicted = || {
            let last = logged.last_of(idle_address);
            last.is_some_and(|(_, entry)| entry.closed.is_some())
        };
        client.stream.set_nonblocking(true).unwrap();
        eventually("somebody makes room or is refused", || {
            is_evicted() || client.stream.peek(&mut [0]).is_ok()
        });
        client.stream.set_nonblocking(false).unwrap();
        if is_evicted() {
            break (client, address);
        }
        // It is not seen yet that the other one is idle.
        refuse(&logged, client, address);
        refused += 1;
    };
    idle.end();
    logged.expect(&idle, idle_address, "evicted", 1);
    eventually("it is seen that nobody is idle", || {
        let entries = logged.entries();
        let closed = entries.values().filter_map(|entry| entry.closed.as_ref());
        let read: u64 = closed.map(|closed| closed.bytes_in).sum();
        logged.server.control.snapshot().total.bytes_in == read + 9
    });
    let (client, address) = logged.connect();
    refuse(&logged, client, address);
    busy.send(&LAST[9..]).answer();
    busy.end();
    logged.expect(&busy, busy_address, "finished", 1);
    assert_eq!(logged.entries().len(), 3 + refused);
}

/// This one has been refused.
fn refuse(logged: &LoggedServer, mut client: Client, address: SocketAddr) {
    assert_eq!(client.answer().status, 503);
    client.half_close().rest();
    let closed = logged.end_of(address);
    let seen = (closed.reason.as_str(), closed.requests, closed.bytes_out);
    assert_eq!(seen, ("refused", 0, client.bytes_in), "{closed:?}");
}

pub fn who_is_closed_at_capacity(model: Model) {
    let options = ServerOptions {
        capacity_per_loop: Some(1),
        loops: 1,
        ..model.options()
    };
    if !options.architecture.has_loops() {
        return;
    }
    let logged = LoggedServer::start(options, limits());
    let (mut first, first_address) = logged.connect();
    first.send(ECHO).answer();
    let (mut second, second_address) = logged.connect();
    second.send(ECHO).rest();
    let closed = logged.end_of(second_address);
    let seen = (closed.reason.as_str(), closed.requests, closed.bytes_out);
    assert_eq!(seen, ("over_capacity", 0, 0), "{closed:?}");
    first.half_close().end();
    logged.expect(&first, first_address, "client", 1);
}

pub fn who_is_cut(model: Model) {
    let logged = LoggedServer::start(model.options(), limits());
    let (mut client, address) = logged.connect();
    client.send(ECHO).answer();
    client.send(match client.is_http2 {
        true => "POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe",
        false => &ECHO[..9],
    });
    eventually("the begin of a request has been read", || {
        logged.server.control.snapshot().total.bytes_in == client.bytes_out
    });
    logged.server.control.stop_now();
    client.rest();
    let closed = logged.end_of(address);
    assert_eq!((closed.reason.as_str(), closed.requests), ("drained", 1));
    assert_eq!(logged.server.end(), 1);
}

pub fn many_at_once_have_a_line_each(model: Model) {
    const CLIENTS: usize = 24;
    const EACH: usize = 8;
    let logged = LoggedServer::start(model.options(), limits());
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let mut client = logged.server.connect();
                    client.send(ECHO).answer();
                    client.send_last("/-/echo").answer();
                    client.end();
                }
            });
        }
    });
    let has_ended = |entry: &Entry| entry.closed.as_ref().is_some_and(|it| it.requests == 2);
    eventually("all ends are in the log", || {
        let entries = logged.entries();
        entries.len() == CLIENTS * EACH && entries.values().all(has_ended)
    });
    let ids: Vec<u64> = logged.entries().into_keys().collect();
    assert_eq!(ids, (1..=(CLIENTS * EACH) as u64).collect::<Vec<_>>());
}
