//! A responder of known behaviour: what it responds, and when, is programmed.
//!
//! Load generators are tested against it, so it shares no code with them. It records what really
//! happened: when each request had arrived, when its response was due, and when that was given to the
//! kernel. If a load generator and the record differ, the generator is wrong; if the record and the
//! program differ, the machine was late.
//!
//! ```text
//!   request n ──► faults: what is wrong with its answer     every n-th, counted
//!            └──► timing: when is it due                    service time, servers, stalls
//!                   │
//!                   ▼  one thread, epoll, the last stretch before an answer is spun away
//!                 answer, and a line in the record
//! ```
//!
//! ```
//! use std::io::{Read, Write};
//!
//! let stub = loadline_stub::Stub::start(loadline_stub::StubOptions::default())?;
//! let mut client = std::net::TcpStream::connect(stub.address())?;
//! client.write_all(b"GET / HTTP/1.1\r\nHost: stub\r\nConnection: close\r\n\r\n")?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
//! assert_eq!(stub.stop()?.counts.requests, 1);
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

mod answer;
mod clock;
mod connection;
mod fault;
mod http2;
mod inbox;
mod latency;
mod listener;
mod options;
mod record;
mod request;
mod responder;
mod secure;
mod stub;
mod text;
mod timing;

pub use fault::{ConnectionFault, Every, Fault, Malformed};
pub use latency::{Draw, Latency};
pub use listener::Listening;
pub use options::{Closing, Framing, StubOptions};
pub use record::{Counts, Report, Times};
pub use secure::TlsIdentity;
pub use stub::Stub;
pub use timing::Stall;
