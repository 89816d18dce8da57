//! An architecture that is no part of the product: what a new one takes. (Schmidt and others, *Leader/
//! Followers*, 2000.)
//!
//! A fixed number of threads takes turns at the listeners: the leader waits for a connection, passes
//! the lead on, and serves what it has got. No queue, and no thread that only accepts.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use loadline_proto::Handler;

use crate::Listener;
use crate::accept::acceptor::{Acceptor, AtLimit};
use crate::connection_thread::{next_accepted, serve_accepted};
use crate::site::{Site, Started};
use crate::telemetry::counters::Role;
use crate::thread::context::ThreadContext;
use crate::thread::group::{STACK_BYTES, ThreadGroup};

fn run<H: Handler>(
    site: &Arc<Site<H>>,
    listeners: Vec<Listener>,
    started: Started,
) -> io::Result<()> {
    let acceptor = Acceptor::new(listeners, AtLimit::Wait, &site.descriptor_log_after)?;
    let lead = Arc::new(Mutex::new(acceptor));
    let threads = ThreadGroup::new()?;
    for index in 0..site.options.threads {
        let (site, lead, guard) = (Arc::clone(site), Arc::clone(&lead), threads.enter());
        let name = format!("follower {index}");
        let builder = thread::Builder::new().name(name).stack_size(STACK_BYTES);
        builder.spawn(move || {
            let _guard = guard;
            site.guarded_alone("a follower", || follow(&site, &lead));
        })?;
    }
    started.notify();
    threads.wait_empty(site)
}

fn follow<H: Handler>(site: &Arc<Site<H>>, lead: &Mutex<Acceptor>) -> io::Result<()> {
    let mut thread = ThreadContext::new(site, Role::Thread);
    thread.stats.runs_here();
    loop {
        let next = {
            let mut acceptor = lead.lock().unwrap_or_else(PoisonError::into_inner);
            next_accepted(&mut acceptor, &mut thread)
        };
        let Some(accepted) = next? else { return Ok(()) };
        let record = thread.log_accepted(accepted.peer);
        serve_accepted(&accepted, record, &mut thread);
    }
}

mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::Barrier;

    use loadline_proto::{Body, Context, Exchange, Outcome};
    use loadline_sys::ListenAddr;

    use super::*;
    use crate::{Config, ServerConfig, ServerOptions, start};

    /// Answers once as many requests as threads have come: all of them are served at once.
    struct Together(Barrier);

    impl Handler for Together {
        type Local = ();

        fn local(&self) {}

        fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
            Outcome::Blocking
        }

        fn handle_blocking(&self, exchange: &mut Exchange) {
            self.0.wait();
            exchange.response.body = Body::Bytes(b"together".to_vec());
        }
    }

    fn get(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn an_architecture_is_its_threads_and_nothing_else() {
        const THREADS: usize = 4;
        let config = ServerConfig {
            options: ServerOptions {
                threads: THREADS,
                ..ServerOptions::default()
            },
            ..ServerConfig::default()
        };
        let any_port = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
        let handler = Arc::new(Together(Barrier::new(THREADS)));
        let served = Config::new(handler, Arc::default(), [any_port]);
        let server = start(served, config, run).unwrap();
        let address = server.tcp_address().unwrap();
        for _ in 0..20 {
            let clients: Vec<_> = (0..THREADS)
                .map(|_| thread::spawn(move || get(address)))
                .collect();
            for client in clients {
                let response = client.join().unwrap();
                assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
                assert!(response.ends_with("together"), "{response}");
            }
        }
        let control = server.control();
        server.drain();
        assert!(server.wait().unwrap().is_clean());
        assert_eq!(control.snapshot().total.requests(), 20 * THREADS as u64);
    }
}
