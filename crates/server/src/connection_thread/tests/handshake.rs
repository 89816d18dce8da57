//! How long a handshake has waited for a CPU.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use loadline_base::Buffer;
use loadline_proto::{Fault, Http1Session, Layer, Layered, Protocol};
use loadline_sys::ListenAddr;

use super::{connect, context};
use crate::ServerOptions;
use crate::clock::Clock;
use crate::config::Config;
use crate::connection::tests::GET;
use crate::connection::tests::computed::{Computed, HELLO};
use crate::connection_thread::serve_accepted;
use crate::fairness::ClientKey;
use crate::overload::InProgress;
use crate::site::Site;
use crate::site::tests::{Blocks, clock, site_of};

const GOAL_US: u64 = 1_000_000;

/// Changes nothing, and opens when the first message is complete. Confirms each part of that.
#[derive(Debug, Default)]
struct Greeting {
    bytes: usize,
}

impl Layer for Greeting {
    fn received(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Buffer,
        out: &mut Buffer,
    ) -> Result<(), Fault> {
        match self.is_open() {
            true => plain.extend_from_slice(bytes),
            false => {
                self.bytes += bytes.len();
                out.extend_from_slice(b".");
            }
        }
        Ok(())
    }

    fn send(&mut self, plain: &[u8], out: &mut Buffer) {
        out.extend_from_slice(plain);
    }

    fn finish(&mut self, _out: &mut Buffer) {}

    fn is_open(&self) -> bool {
        self.has_begun()
    }

    fn has_begun(&self) -> bool {
        self.bytes >= HELLO.len()
    }

    fn has_ended(&self) -> bool {
        false
    }
}

/// Each part was taken to have come with the first one: no bytes of a handshake count as received.
#[test]
fn what_a_client_takes_between_parts_of_its_first_message_is_no_wait_for_a_cpu() {
    let now_us = clock();
    let nowhere = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
    let mut config = Config::new(Arc::new(Blocks), Arc::default(), [nowhere]);
    config.listeners[0].protocol = Protocol::Other(|config, peer, cx| {
        let http = Http1Session::new(config, peer, cx);
        Box::new(Layered::new(Greeting::default(), http, config, cx))
    });
    let in_progress = InProgress::new(Duration::from_micros(GOAL_US), None);
    // One has waited for long. It is found out for each of the next ones then.
    assert!(in_progress.offer_handshake(ClientKey::NOBODY, GOAL_US * 9 / 10, 2 * GOAL_US));
    let site = Arc::new(Site {
        clock: Clock::simulated(now_us),
        in_progress: Some(in_progress),
        ..Arc::into_inner(site_of(config.into(), ServerOptions::default())).unwrap()
    });
    let (mut client, accepted) = connect();
    let serve = move || serve_accepted(&accepted, None, &mut context(&site));
    let thread = std::thread::spawn(serve);
    for (at, byte) in HELLO.iter().enumerate() {
        if at + 1 == HELLO.len() {
            now_us.store(2 * GOAL_US, Relaxed);
        }
        client.write_all(&[*byte]).unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
    client.write_all(GET).unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"HTTP/1.1 200");
    drop(client);
    thread.join().unwrap();
}

/// The clock of connections whose handshake is computed.
static NOW_US: AtomicU64 = AtomicU64::new(0);

/// What its handshake took counted as time in which the request had waited.
#[test]
fn a_handshake_is_no_wait_of_the_request_behind_it() {
    let nowhere = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
    let mut config = Config::new(Arc::new(Blocks), Arc::default(), [nowhere]);
    config.listeners[0].protocol = Protocol::Other(|config, peer, cx| {
        let http = Http1Session::new(config, peer, cx);
        let ten_ms = || {
            NOW_US.fetch_add(10_000, Relaxed);
        };
        Box::new(Layered::new(Computed::by(ten_ms), http, config, cx))
    });
    let goal = Duration::from_micros(GOAL_US);
    let site = Arc::new(Site {
        clock: Clock::simulated(&NOW_US),
        in_progress: Some(InProgress::new(goal, None)),
        ..Arc::into_inner(site_of(config.into(), ServerOptions::default())).unwrap()
    });
    let (mut client, accepted) = connect();
    let of_thread = Arc::clone(&site);
    let serve = move || serve_accepted(&accepted, None, &mut context(&of_thread));
    let thread = std::thread::spawn(serve);
    client.write_all(GET).unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"HTTP/1.1 200");
    drop(client);
    thread.join().unwrap();
    assert_eq!(NOW_US.load(Relaxed), 10_000, "it was computed");
    let total = site.registry.snapshot(0).total;
    let counted = (total.queue_depth, total.queue_taken, total.queue_wait_us);
    assert_eq!(counted, (0, 1, 0));
}
