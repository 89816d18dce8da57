//! A configuration that is replaced between two steps of a request: one handler takes them all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use loadline_base::Buffer;
use loadline_proto::{Body, Context, Exchange, Handler, Outcome, Piece, Port, Task, TaskOptions};
use loadline_server::{Config, ListenAddr, ServerConfig, ServerHandle, SharedConfig, serve};

use crate::answers::Answer;
use crate::fixture::{Connector, Model, eventually};

every_model! {
    blocking_steps_keep_their_handler,
    an_app_keeps_its_handler_while_content_is_gathered,
}

/// What all generations have in common.
#[derive(Default)]
struct Common {
    served: OnceLock<Arc<SharedConfig<Reloading>>>,
    /// Which generation has taken the quick step, by target.
    quick: Mutex<BTreeMap<Vec<u8>, u64>>,
}

impl Common {
    fn quick_step_of(&self, target: &str) -> Option<u64> {
        self.quick.lock().unwrap().get(target.as_bytes()).copied()
    }

    /// The step behind the quick one was of the same generation.
    fn check(&self, target: &str, answer: &Answer) {
        assert_eq!(answer.status, 200, "{target}");
        let number = self.quick_step_of(target).unwrap().to_string();
        let said = String::from_utf8_lossy(&answer.body);
        assert_eq!(said, number, "{target}");
    }
}

/// Is replaced in each quick step. Its other steps say which generation it is.
struct Reloading {
    number: u64,
    common: Arc<Common>,
}

impl Handler for Reloading {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), exchange: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        let target = exchange.request.target().to_vec();
        let mut quick = self.common.quick.lock().unwrap();
        let served = self.common.served.get().unwrap();
        served
            .replace(config(self.number + 1, &self.common))
            .unwrap();
        quick.insert(target, self.number);
        match exchange.request.path() {
            b"/blocking" => Outcome::Blocking,
            _ => Outcome::Later(TaskOptions::default()),
        }
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        exchange.response.body = Body::Bytes(self.number.to_string().into_bytes());
    }

    fn start(&self, mut exchange: Box<Exchange>, port: Port) -> Task {
        let said = self.number.to_string().into_bytes();
        Box::pin(async move {
            while let Ok(Some(_)) = port.content().await {}
            exchange.response.body = Body::Stream { len: None };
            port.answer(exchange);
            port.produce(Piece::Data(Buffer::from(said)));
            port.produce(Piece::End);
        })
    }
}

fn config(number: u64, common: &Arc<Common>) -> Config<Reloading> {
    let any_port = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
    let handler = Reloading {
        number,
        common: Arc::clone(common),
    };
    Config::new(Arc::new(handler), Arc::default(), [any_port])
}

fn start(model: Model) -> (ServerHandle, Arc<Common>) {
    let common = Arc::<Common>::default();
    let served: Arc<SharedConfig<Reloading>> = config(0, &common).into();
    assert!(common.served.set(Arc::clone(&served)).is_ok());
    let server = ServerConfig {
        options: model.options(),
        ..ServerConfig::default()
    };
    (serve(served, server).unwrap(), common)
}

fn end(handle: ServerHandle) {
    handle.drain();
    assert!(handle.wait().unwrap().is_clean());
}

pub fn blocking_steps_keep_their_handler(model: Model) {
    let (handle, common) = start(model);
    let targets: Vec<String> = (0..20)
        .map(|number| format!("/blocking?{number}"))
        .collect();
    let mut client = Connector::new(handle.tcp_address().unwrap()).connect();
    let request = |target: &String| format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    client.send(targets.iter().map(request).collect::<String>());
    for target in &targets {
        common.check(target, &client.answer());
    }
    drop(client);
    end(handle);
}

/// The next one was given the request whose quick step another one had taken.
pub fn an_app_keeps_its_handler_while_content_is_gathered(model: Model) {
    let (handle, common) = start(model);
    let connector = Connector::new(handle.tcp_address().unwrap());
    for number in 0..3 {
        let target = format!("/app?{number}");
        let mut client = connector.connect();
        let head = format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n");
        client.send(head + "12345");
        eventually("its quick step is taken", || {
            common.quick_step_of(&target).is_some()
        });
        client.send("67890");
        common.check(&target, &client.answer());
    }
    end(handle);
}
