//! The configuration is a snapshot that may be replaced under load, and listeners have limits of their
//! own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use loadline_base::Buffer;
use loadline_proto::{
    Body, Context, Exchange, Handler, Outcome, Piece, Port, Protocol, SessionConfig, Task,
    TaskOptions,
};
use loadline_server::{
    Config, ListenAddr, ListenerConfig, ServerConfig, ServerHandle, SharedConfig, serve,
};

use crate::fixture::{Connector, Model, eventually};

every_model! {
    a_new_configuration_under_load_loses_no_request,
    listeners_have_limits_of_their_own,
}

/// Says which generation it is: at once, in a blocking step, in a task, by the path.
struct Version {
    number: u64,
    /// Of this generation, how many are alive.
    alive: Arc<AtomicU64>,
}

impl Version {
    fn new(number: u64, alive: &Arc<AtomicU64>) -> Self {
        alive.fetch_add(1, SeqCst);
        Self {
            number,
            alive: Arc::clone(alive),
        }
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

impl Handler for Version {
    /// The generation for which it was made.
    type Local = u64;

    fn local(&self) -> u64 {
        self.number
    }

    fn handle(&self, local: &mut u64, exchange: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        assert_eq!(*local, self.number, "another generation's local state");
        // The steps behind this one see it in the response.
        let said = format!("{} {}", self.number, exchange.listener);
        exchange.response.body = Body::Bytes(said.into_bytes());
        match exchange.request.path() {
            b"/blocking" => Outcome::Blocking,
            b"/later" => Outcome::Later(TaskOptions::default()),
            _ => Outcome::Ready,
        }
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        let Body::Bytes(said) = &exchange.response.body else {
            panic!("no quick step came before");
        };
        let said = String::from_utf8(said.clone()).unwrap();
        let number = said.split(' ').next().unwrap();
        assert_eq!(number, self.number.to_string(), "another generation's step");
    }

    fn start(&self, mut exchange: Box<Exchange>, port: Port) -> Task {
        let said = format!("{} {}", self.number, exchange.listener).into_bytes();
        Box::pin(async move {
            exchange.response.body = Body::Stream { len: None };
            port.answer(exchange);
            port.produce(Piece::Data(Buffer::from(said)));
            port.produce(Piece::End);
        })
    }
}

fn any_port() -> ListenAddr {
    ListenAddr::Tcp(([127, 0, 0, 1], 0).into())
}

fn start(model: Model, config: Config<Version>) -> (ServerHandle, Arc<SharedConfig<Version>>) {
    let shared: Arc<SharedConfig<Version>> = config.into();
    let server = ServerConfig {
        options: model.options(),
        ..ServerConfig::default()
    };
    (serve(Arc::clone(&shared), server).unwrap(), shared)
}

/// The generation and the listener that an answer names.
fn numbers(body: &[u8]) -> (u64, u32) {
    let text = std::str::from_utf8(body).unwrap();
    let (generation, listener) = text.split_once(' ').unwrap();
    (generation.parse().unwrap(), listener.parse().unwrap())
}

pub fn a_new_configuration_under_load_loses_no_request(model: Model) {
    const LAST: u64 = 60;
    let alive = Arc::new(AtomicU64::new(0));
    let config = |number| {
        let session = SessionConfig {
            keep_alive: number % 3 != 0,
            ..SessionConfig::default()
        };
        let handler = Arc::new(Version::new(number, &alive));
        Config::new(handler, Arc::new(session), [any_port()])
    };
    let (handle, shared) = start(model, config(0));
    let connector = Connector::new(handle.tcp_address().unwrap());
    let (answered, over) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let clients = if model.is_concurrent() { 4 } else { 1 };
    let ask = |client: usize| {
        let mut newest = 0;
        while !over.load(SeqCst) {
            let mut connection = connector.connect();
            for path in ["/", "/blocking", "/later"]
                .iter()
                .cycle()
                .skip(client)
                .take(7)
            {
                let answer = connection.get(path, "");
                assert_eq!(answer.status, 200);
                let (generation, listener) = numbers(&answer.body);
                assert!(generation >= newest || clients > 1, "back to an older one");
                assert_eq!(listener, 0);
                newest = generation;
                answered.fetch_add(1, SeqCst);
                if answer.closes() {
                    break;
                }
            }
        }
    };
    thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || ask(client));
        }
        for number in 1..=LAST {
            let seen = answered.load(SeqCst);
            eventually("some are answered", || answered.load(SeqCst) > seen + 5);
            shared.replace(config(number)).unwrap();
        }
        over.store(true, SeqCst);
    });
    assert_eq!(numbers(&connector.connect().get("/", "").body).0, LAST);
    handle.drain();
    assert!(handle.wait().unwrap().is_clean());
    assert_eq!(alive.load(SeqCst), 1, "no older one is kept");
}

pub fn listeners_have_limits_of_their_own(model: Model) {
    let alive = Arc::new(AtomicU64::new(0));
    let listener = |keep_alive| ListenerConfig {
        address: any_port(),
        session: Arc::new(SessionConfig {
            keep_alive,
            ..SessionConfig::default()
        }),
        protocol: Protocol::Http,
    };
    let config = |listeners| Config {
        handler: Arc::new(Version::new(7, &alive)),
        listeners,
    };
    let (handle, shared) = start(model, config(vec![listener(true), listener(false)]));
    for (number, address) in (0..).zip(handle.addresses()) {
        let ListenAddr::Tcp(address) = address else {
            panic!("{address:?}");
        };
        for path in ["/", "/blocking", "/later"] {
            let mut client = Connector::new(*address).connect();
            let answer = client.get(path, "");
            assert_eq!(numbers(&answer.body), (7, number));
            assert_eq!(answer.closes(), number == 1 && !client.is_http2);
        }
    }
    let refused = shared.replace(config(vec![listener(true)])).unwrap_err();
    assert!(
        refused.to_string().contains("listeners cannot change"),
        "{refused}"
    );
    handle.drain();
    assert!(handle.wait().unwrap().is_clean());
}
