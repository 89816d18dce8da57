//! Whose use of CPUs can be read: that of threads that carry requests out, and of loops.

use loadline_proto::Limits;
use loadline_server::{Role, ThreadSnapshot};

use crate::model::Model;
use crate::shared::{Server, TestHandler};

every_model! {
    the_cpu_time_of_a_thread_that_has_carried_out_a_request_can_be_read,
}

fn the_cpu_time_of_a_thread_that_has_carried_out_a_request_can_be_read(model: Model) {
    let options = model.options();
    let has_such = !options.architecture.has_loops() || options.workers > 0;
    let server = Server::start(options, TestHandler::default(), Limits::default());
    let mut client = server.connect();
    assert_eq!(client.get("/blocking").status, 200);
    let threads = server.handle.snapshot().per_thread;
    let has_worked = |it: &&ThreadSnapshot| {
        let counts = &it.counts;
        let carries_out = matches!(it.role, Role::Worker | Role::Thread);
        carries_out && (counts.jobs > 0 || counts.requests() > 0)
    };
    let worked: Vec<_> = threads.iter().filter(has_worked).collect();
    assert_eq!(!worked.is_empty(), has_such);
    for thread in worked {
        let cpu = thread.usage.and_then(|usage| usage.cpu());
        assert!(cpu.is_some(), "{thread}");
    }
    let loops = threads.iter().filter(|it| it.role == Role::Loop);
    for thread in loops.filter(|it| it.counts.connections > 0) {
        assert!(thread.usage.is_some(), "{thread}");
    }
    drop(client);
    server.end();
}
