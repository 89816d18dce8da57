//! Servers made for these tests: blocking, a thread for each connection, and counting.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// Listens on loopback, and hands each connection to `serve` on a thread of its own. The threads end
/// with the test.
pub(crate) fn each(serve: impl Fn(u64, TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for (number, accepted) in (0..).zip(listener.incoming()) {
            let Ok(accepted) = accepted else {
                return;
            };
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(number, accepted));
        }
    });
    address
}

/// Keeps what it accepts, up to `count` connections; then sends all of them to the receiver.
///
/// A connection that finds no room in the listener's queue is open for its client alone until the
/// client sends something: a test that needs `count` has to send requests.
pub(crate) fn keeper(count: usize) -> (SocketAddr, Receiver<Vec<TcpStream>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (notify, notified) = channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((accepted, _)) = listener.accept() {
            kept.push(accepted);
            if kept.len() == count && notify.send(std::mem::take(&mut kept)).is_err() {
                return;
            }
        }
    });
    (address, notified)
}

/// Reads a head, to its empty line; `None`: the client has gone. What lies behind it comes too.
pub(crate) fn read_head(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(count) => head.extend_from_slice(&buffer[..count]),
        }
    }
    Some(head)
}

pub(crate) fn answer(body_bytes: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {body_bytes}\r\n\r\n");
    let mut answer = head.into_bytes();
    answer.resize(answer.len() + body_bytes, b'x');
    answer
}

/// What several threads note.
pub(crate) type Notes<T> = Arc<Mutex<Vec<T>>>;
