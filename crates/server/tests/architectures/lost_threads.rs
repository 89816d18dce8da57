//! A panic that nothing around a request holds: no server goes on as if it still had the thread.

use std::io;
use std::sync::mpsc::channel;

use loadline_proto::Limits;
use loadline_server::Ending;

use crate::model::Model;
use crate::shared::{Server, TIMEOUT, TestHandler};

every_model! {
    a_server_that_has_lost_a_thread_ends_and_says_why,
}

/// Which thread a request takes with it; `None`: one of its connection, which nobody else needs.
fn lost(model: Model, is_blocking: bool) -> Option<&'static str> {
    match model {
        Model::Sequential => Some("the main thread"),
        Model::ThreadPerConnection => None,
        Model::ThreadPoolWithoutGoal => Some("a serving thread"),
        Model::ThreadPool
        | Model::ReactorSocketIoWorker
        | Model::ReactorParseWorker
        | Model::ProactorParseWorker => Some("a worker"),
        _ if is_blocking && model.options().workers > 0 => Some("a worker"),
        _ => Some("a loop"),
    }
}

fn a_server_that_has_lost_a_thread_ends_and_says_why(model: Model) {
    for (path, is_blocking) in [("/lost", false), ("/lost-blocking", true)] {
        let server = Server::start(model.options(), TestHandler::default(), Limits::default());
        let mut client = server.connect();
        client.ask(path);
        let Some(thread) = lost(model, is_blocking) else {
            assert!(client.is_closed());
            assert_eq!(server.connect().get("/").status, 200);
            server.end();
            continue;
        };
        let why = ending(server).unwrap_err().to_string();
        let expected = format!("{thread} panicked: ");
        assert!(why.starts_with(&expected), "{path}: {why}");
    }
}

fn ending(server: Server) -> io::Result<Ending> {
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(server.handle.wait()));
    let ending = ended.recv_timeout(TIMEOUT);
    ending.expect("it ends")
}
