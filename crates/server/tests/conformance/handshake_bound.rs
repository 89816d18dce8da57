//! How many TLS handshakes may be computed or wait for that (`handshakes_max`). A handshake counts from the
//! receipt of a message until its answer is computed, and not while it waits for its client.
//!
//! | models | where a second handshake is while one is computed |
//! |---|---|
//! | `sequential`; one loop without workers | in the socket, unread: the bound cannot be reached |
//! | loops with workers | it waits for a worker |
//! | threads; several loops without workers; workers that serve sockets | on another thread |
//!
//! And how long a handshake may wait before it is computed: no longer than the latency goal allows. And that no loop
//! waits for one that workers compute.

use std::any::Any;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loadline_base::Buffer;
use loadline_proto::{
    ClientKey, Computation, Context, Fault, Layer, Layered, Protocol, Security, ServerSession,
    Session, SessionConfig, SharedProtocol,
};
use loadline_server::ServerOptions;
use loadline_tls::{
    Authorities, Certificates, Profile, TlsClient, TlsLayer, TlsOptions, TlsServer, self_signed,
};
use rustls::pki_types::ServerName;
use rustls::version::TLS12;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::client::{Client, TIMEOUT};
use crate::fixture::{Gate, Model, Server, connect_by, eventually, limits, tls_ends};
use crate::tls::{client_of, has_loops_for_sockets};

every_model! {
    handshakes_beyond_their_bound_end_at_once,
    loops_serve_others_while_handshakes_are_computed,
}

fn handshakes_beyond_their_bound_end_at_once(model: Model) {
    let (ends, options) = (Ends::new(), model.options());
    let is_by_loops = has_loops_for_sockets(&options);
    if is_by_loops && options.workers > 0 {
        while_workers_are_taken(&ends, options);
    } else if !model.is_concurrent() || (is_by_loops && options.loops == 1) {
        one_after_the_other(&ends, options, model.is_concurrent());
    } else {
        while_one_is_computed(&ends, options, is_by_loops);
    }
}

/// While every worker is taken, one waits, and those behind it find no room.
fn while_workers_are_taken(ends: &Ends, options: ServerOptions) {
    let workers = options.workers as u64;
    let server = ends.start(options);
    let at_gate: Vec<_> = (1..=workers)
        .map(|count| {
            let mut client = server.connect();
            client.send("GET /-/gate HTTP/1.1\r\nHost: h\r\n\r\n");
            server.site.gate.await_waiting(count);
            client
        })
        .collect();
    let begun = ends.begin_some(3, server.address);
    eventually("two are refused", || ends.refused() == 2);
    server.site.gate.open();
    assert_eq!(count_served(begun), 1);
    assert_eq!(ends.refused(), 2);
    for mut client in at_gate {
        assert_eq!(client.answer().status, 200);
    }
}

/// While one is computed, those on other threads find no room. Those whose loop computes it wait: nothing of
/// them is read.
fn while_one_is_computed(ends: &Ends, options: ServerOptions, is_by_loops: bool) {
    /// The kernel spreads them over the loops: fewer than two for the others would be one case in a hundred
    /// million.
    const OTHERS: usize = 32;
    let gate = Arc::new(Gate::default());
    let held = HeldTls {
        tls: ends.tls.clone(),
        gate: Arc::clone(&gate),
    };
    let server = Server::start_speaking(options, Protocol::Shared(Arc::new(held)));
    let gate = OpenAtTheEnd(gate);
    let first = ends.begin(server.address);
    gate.0.await_waiting(1);
    let others = ends.begin_some(OTHERS, server.address);
    let refused_min = if is_by_loops { 2 } else { OTHERS as u64 };
    eventually("others are refused", || ends.refused() >= refused_min);
    eventually("their connections are closed", || {
        let total = server.control.snapshot().total;
        total.closed.iter().sum::<u64>() == ends.refused()
    });
    gate.0.open();
    // With loops there may be others still, one of which has the permit when the first one's next message comes.
    let is_first_served = is_served(first);
    assert!(is_first_served || is_by_loops, "the one that was computed");
    let served = count_served(others) + u64::from(is_first_served);
    assert_eq!(served + ends.refused(), OTHERS as u64 + 1);
    let next = ends.begin(server.address);
    assert!(is_served(next), "there is room again");
}

/// A thread that serves alone computes what it has received before it receives more: none is refused.
fn one_after_the_other(ends: &Ends, options: ServerOptions, is_concurrent: bool) {
    let server = ends.start(options);
    let mut silent = ends.begin(server.address);
    let begun = ends.begin_some(3, server.address);
    let answered = silent.sock.read(&mut [0; 1]).unwrap();
    assert_eq!(answered, 1, "its first message is answered");
    // It says nothing more. Others are served meanwhile, or at its end if it has the only thread.
    let silent = Some(silent).filter(|_| is_concurrent);
    assert_eq!(count_served(begun), 3);
    let counts = ends.tls.counts();
    assert_eq!((counts.full + counts.resumed, counts.refused), (3, 0));
    drop(silent);
}

/// However long they take: here each worker has one until the others have been served.
fn loops_serve_others_while_handshakes_are_computed(model: Model) {
    const GET: &str = "GET /-/echo HTTP/1.1\r\nHost: h\r\n\r\n";
    let options = model.options();
    if !has_loops_for_sockets(&options) || options.workers == 0 {
        return; // whoever serves a connection there computes its handshake
    }
    let workers = options.workers as u64;
    let (tls, client) = tls_ends(&TlsOptions::default());
    let gate = Arc::new(Gate::default());
    let held = HeldTls {
        tls,
        gate: Arc::clone(&gate),
    };
    let server = Server::start_speaking(options, Protocol::Shared(Arc::new(held)));
    let gate = OpenAtTheEnd(gate);
    gate.0.open();
    let connect = || connect_by(&client, server.address);
    let ask = |client: &mut Client| assert_eq!(client.send(GET).answer().status, 200);
    let mut others = [(); 8].map(|()| connect());
    others.iter_mut().for_each(ask);
    let before = gate.0.close();
    let mut begun = Vec::new();
    for count in 1..=workers {
        begun.push(connect());
        gate.0.await_waiting(before + count);
    }
    others.iter_mut().for_each(ask);
    gate.0.open();
    begun.iter_mut().for_each(ask);
}

/// It was computed, and the request behind it was served as if it had not waited.
#[test]
fn a_handshake_that_has_waited_beyond_the_latency_goal_is_not_computed() {
    // Of a pool's threads the last one that waits is served: it keeps nobody waiting.
    for (model, served) in [(Model::ThreadPool, 1), (Model::Sequential, 0)] {
        // On a busy machine it may take too long until the next look at how long it has waited.
        let is_as_expected = |_| serve_late_handshakes(model) == served;
        assert!((0..5).any(is_as_expected), "{model:?}");
    }
}

/// Two handshakes come while the only thread has a request. How many of them are served.
fn serve_late_handshakes(model: Model) -> u64 {
    const GOAL: Duration = Duration::from_secs(1);
    let ends = Ends::new();
    let server = ends.start(ServerOptions {
        threads: 1,
        latency_goal: Some(GOAL),
        ..model.options()
    });
    let mut first = server.connect();
    first.send("GET /-/gate HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    server.site.gate.await_waiting(1);
    let late = ends.begin_some(2, server.address);
    let begun = Instant::now();
    eventually("they have waited", || {
        let queued = server.control.snapshot().total.queue_depth;
        let is_queued = queued == 2 || model == Model::Sequential;
        is_queued && begun.elapsed() > GOAL + GOAL / 2
    });
    server.site.gate.open();
    assert_eq!(first.answer().status, 200);
    // A thread that serves alone would wait for its end; elsewhere its end would be another job.
    let _first = (model != Model::Sequential).then_some(first);
    let served = count_served(late);
    assert_eq!(served + ends.refused(), 2);
    assert!(
        is_served(ends.begin(server.address)),
        "one that has not waited"
    );
    served
}

/// A server with room for one handshake, and its clients.
struct Ends {
    tls: TlsServer,
    client: TlsClient,
    /// Of rustls alone, whose handshakes the test carries on.
    begins: Arc<ClientConfig>,
}

/// A connection whose first message is sent, and no more.
type Begun = StreamOwned<ClientConnection, TcpStream>;

impl Ends {
    fn new() -> Self {
        let bound = TlsOptions {
            handshakes_max: 1,
            ..TlsOptions::default()
        };
        let own = self_signed(&["localhost".to_owned()]).unwrap();
        let trusted = Authorities::one(own.der()).unwrap();
        let begins = Arc::new(client_of(&own, &[&TLS12]));
        let certificates = Arc::new(Certificates::new(vec![own]));
        Self {
            tls: TlsServer::new(&certificates, &bound).unwrap(),
            client: TlsClient::new(&trusted, Profile::Intermediate).unwrap(),
            begins,
        }
    }

    fn start(&self, options: ServerOptions) -> Server {
        Server::start_tls(options, limits(), (self.tls.clone(), self.client.clone()))
    }

    fn begin(&self, address: SocketAddr) -> Begun {
        let name = ServerName::try_from("localhost").unwrap();
        let mut connection = ClientConnection::new(Arc::clone(&self.begins), name).unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        connection.write_tls(&mut socket).unwrap();
        StreamOwned::new(connection, socket)
    }

    fn begin_some(&self, count: usize, address: SocketAddr) -> Vec<Begun> {
        (0..count).map(|_| self.begin(address)).collect()
    }

    fn refused(&self) -> u64 {
        self.tls.counts().refused
    }
}

/// Carries the handshake on and asks for a page; `false`: the connection has ended.
fn is_served(mut stream: Begun) -> bool {
    const GET: &str = "GET /-/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let mut response = String::new();
    let outcome = stream
        .write_all(GET.as_bytes())
        .and_then(|()| stream.read_to_string(&mut response));
    outcome.is_ok() && response.starts_with("HTTP/1.1 200 ")
}

fn count_served(all: Vec<Begun>) -> u64 {
    all.into_iter().map(|it| u64::from(is_served(it))).sum()
}

/// TLS whose handshakes are computed once the gate is open.
#[derive(Debug)]
pub struct HeldTls {
    pub tls: TlsServer,
    pub gate: Arc<Gate>,
}

/// The gate is opened whatever happens: threads stand before it.
pub struct OpenAtTheEnd(pub Arc<Gate>);

impl Drop for OpenAtTheEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl SharedProtocol for HeldTls {
    fn session(
        &self,
        config: &Arc<SessionConfig>,
        peer: Option<SocketAddr>,
        cx: &mut Context<'_>,
    ) -> Box<dyn Session> {
        let http = ServerSession::over_layer(config, peer, cx);
        let layer = HeldLayer {
            layer: self.tls.accept(ClientKey::NOBODY),
            gate: Arc::clone(&self.gate),
        };
        Box::new(Layered::new(layer, http, config, cx))
    }
}

#[derive(Debug)]
struct HeldLayer {
    layer: TlsLayer,
    gate: Arc<Gate>,
}

impl Layer for HeldLayer {
    fn received(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Buffer,
        out: &mut Buffer,
    ) -> Result<(), Fault> {
        self.layer.received(bytes, plain, out)
    }

    fn send(&mut self, plain: &[u8], out: &mut Buffer) {
        self.layer.send(plain, out);
    }

    fn finish(&mut self, out: &mut Buffer) {
        self.layer.finish(out);
    }

    fn is_open(&self) -> bool {
        self.layer.is_open()
    }

    fn has_begun(&self) -> bool {
        self.layer.has_begun()
    }

    fn partial_bytes(&self) -> usize {
        self.layer.partial_bytes()
    }

    fn has_ended(&self) -> bool {
        self.layer.has_ended()
    }

    fn take_computation(&mut self) -> Option<Box<dyn Computation>> {
        Some(Box::new(HeldComputation {
            computation: self.layer.take_computation()?,
            gate: Arc::clone(&self.gate),
        }))
    }

    fn computed(
        &mut self,
        computation: Box<dyn Computation>,
        plain: &mut Buffer,
        out: &mut Buffer,
    ) -> Result<(), Fault> {
        let computation: Box<dyn Any> = computation;
        let held = computation.downcast::<HeldComputation>().unwrap();
        self.layer.computed(held.computation, plain, out)
    }

    fn truncated(&mut self) {
        self.layer.truncated();
    }

    fn security(&self) -> Option<&Arc<Security>> {
        self.layer.security()
    }

    fn held_bytes(&self) -> usize {
        self.layer.held_bytes()
    }
}

#[derive(Debug)]
struct HeldComputation {
    computation: Box<dyn Computation>,
    gate: Arc<Gate>,
}

impl Computation for HeldComputation {
    fn carry_out(&mut self) {
        self.gate.pass();
        self.computation.carry_out();
    }

    fn is_abandoned(&self) -> bool {
        self.computation.is_abandoned()
    }
}
