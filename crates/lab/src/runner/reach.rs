//! Reaching a server that has just been started: a port for it, whether it listens, and what it says
//! of itself.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use loadline_sys::network::port_range;
use serde_json::Value;

use super::launch_context::LaunchContext;
use super::namespaces::is_listened_on;
use super::network::Link;
use super::servers::STATUS_PATH;
use crate::journal::{ServerFacts, WorkerJobs};

/// Below it, ports want privileges, and well-known services have theirs.
const PORT_MIN: u16 = 10_000;
/// How long a server may take for its own counters.
const STATUS_WITHIN: Duration = Duration::from_secs(2);
/// They are a few kilobytes.
const STATUS_BYTES_MAX: u64 = 1 << 20;

/// A port of loopback that is free, and that the kernel does not take for outgoing connections: a
/// client of the trial before may still be known by such a one. `from` says where the search begins.
pub(super) fn free_port(from: u32) -> Option<u16> {
    let (low, high) = match port_range(Path::new("/")) {
        Some((first, _)) if first > PORT_MIN + 1000 => (PORT_MIN, first - 1),
        Some((_, last)) if last < u16::MAX - 1000 => (last + 1, u16::MAX),
        _ => (PORT_MIN, u16::MAX), // all are taken for outgoing ones
    };
    let count = u32::from(high - low) + 1;
    (0..count).find_map(|step| {
        let port = low + u16::try_from(from.wrapping_add(step) % count).ok()?;
        is_free(port).then_some(port)
    })
}

/// Whether a port is free at the moment.
pub(super) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Whether somebody listens: by a connection, or over a slow network by what the kernel says where the
/// server runs, a process of this number.
pub(super) fn listens(link: &Link, server_pid: u32, port: u16) -> bool {
    match link {
        Link::Relayed(_) => is_listened_on(server_pid, port),
        Link::Loopback | Link::Veth(_) => connected(link, port).is_some(),
    }
}

fn connected(link: &Link, port: u16) -> Option<TcpStream> {
    let address = SocketAddr::from((link.server_address(), port));
    let connect = || TcpStream::connect_timeout(&address, STATUS_WITHIN).ok();
    link.at_client(connect).ok()?
}

/// What a Loadline server has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// All responses.
    pub(super) responses: u64,
    /// Those of each event loop.
    pub(super) by_loop: Vec<u64>,
    /// What its workers did.
    pub(super) jobs: WorkerJobs,
}

impl Counted {
    /// Stands in the journal from now on.
    pub(super) fn record_in(self, server: &mut ServerFacts) {
        server.requests_counted = Some(self.responses);
        server.responses_by_loop = self.by_loop;
        server.jobs = Some(self.jobs).filter(|jobs| jobs.count > 0);
    }
}

/// What a Loadline server has counted; `None`: it does not say.
pub(super) fn counted(context: &LaunchContext<'_>) -> Option<Counted> {
    // A server of https, or behind a slow network, has a socket for this.
    let socket = context.status_socket();
    if let Some(stream) = socket.and_then(|path| UnixStream::connect(path).ok()) {
        stream.set_read_timeout(Some(STATUS_WITHIN)).ok()?;
        stream.set_write_timeout(Some(STATUS_WITHIN)).ok()?;
        return asked(stream);
    }
    let stream = connected(context.link, context.port)?;
    stream.set_read_timeout(Some(STATUS_WITHIN)).ok()?;
    stream.set_write_timeout(Some(STATUS_WITHIN)).ok()?;
    asked(stream)
}

fn asked(mut stream: impl Read + Write) -> Option<Counted> {
    let question = format!("GET {STATUS_PATH} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(question.as_bytes()).ok()?;
    let mut answer = String::new();
    stream
        .take(STATUS_BYTES_MAX)
        .read_to_string(&mut answer)
        .ok()?;
    counted_in(&answer)
}

fn counted_in(answer: &str) -> Option<Counted> {
    let (_, content) = answer.split_once("\r\n\r\n")?;
    let status: Value = serde_json::from_slice(content.as_bytes()).ok()?;
    let threads = status.get("threads").and_then(Value::as_array);
    let is_loop = |thread: &&Value| thread.get("role").is_some_and(|role| role == "loop");
    let loops = threads.into_iter().flatten().filter(is_loop);
    let total = status.get("total")?;
    let of_workers = |name: &str| total.get(name).and_then(Value::as_u64).unwrap_or(0);
    Some(Counted {
        responses: sum_of_answers(total)?,
        by_loop: loops.map(sum_of_answers).collect::<Option<_>>()?,
        jobs: WorkerJobs {
            count: of_workers("jobs"),
            waited_us: of_workers("queue_wait_us"),
        },
    })
}

fn sum_of_answers(counts: &Value) -> Option<u64> {
    let answers = counts.get("answers")?.as_object()?;
    answers.values().map(Value::as_u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_is_free_and_not_for_outgoing_connections() {
        let port = free_port(12_345).unwrap();
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        assert!(held.is_ok() && listens(&Link::Loopback, 0, port) && !is_free(port));
        let next = free_port(u32::from(port)).unwrap();
        assert_ne!(next, port);
        if let Some((first, last)) = port_range(Path::new("/")) {
            assert!(!(first..=last).contains(&port) || first <= PORT_MIN + 1000);
        }
    }

    #[test]
    fn responses_are_summed_in_all_and_by_loop() {
        let head = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n";
        let total = "\"total\":{\"answers\":{\"2xx\":5,\"4xx\":2},\"accepted\":9,\"jobs\":4,\
                     \"queue_wait_us\":10}";
        let threads = "{\"role\":\"acceptor\",\"answers\":{\"2xx\":1}},\
                       {\"role\":\"loop\",\"answers\":{\"2xx\":4}},\
                       {\"role\":\"loop\",\"answers\":{\"2xx\":0,\"4xx\":2}}";
        let all = counted_in(&format!("{head}{{{total}}}")).unwrap();
        assert!(all.responses == 7 && all.by_loop.is_empty(), "{all:?}");
        assert_eq!(all.jobs.mean_wait_us(), Some(2.5));
        let mut server = ServerFacts::default();
        all.record_in(&mut server);
        assert_eq!(server.requests_counted, Some(7));
        assert_eq!(server.jobs.map(|jobs| jobs.count), Some(4));
        let each = format!("{head}{{{total},\"threads\":[{threads}]}}");
        assert_eq!(counted_in(&each).unwrap().by_loop, [4, 2]);
        for broken in ["", "HTTP/1.1 404 x\r\n\r\nno", "a\r\n\r\n{\"total\":{}}"] {
            assert_eq!(counted_in(broken), None);
        }
    }
}
