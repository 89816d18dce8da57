//! What requests of connections that have ended count for while workers have them.

use super::*;

/// With a request that a worker is to have, whose client leaves: it counted for nothing from then on, though the
/// worker's queue still had it.
fn counts_until_it_is_given_back(handler: impl Handler) {
    let options = ServerOptions {
        workers: 1,
        ..ServerOptions::default()
    };
    let site = Arc::new(Site {
        memory: MemoryBudget::new(Some(4 << 20)), // credit is taken in steps of 4 KiB
        ..Arc::into_inner(site_of(config_of(handler), options)).unwrap()
    });
    let mut server = Server::of_site(&site);
    let mut client = connect(&mut server.event_loop);
    let token = server.event_loop.slots.token_at(0).unwrap();
    let field = "a".repeat(20_000);
    let request = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {field}\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    turn(&mut server.event_loop);
    let used = site.memory.used_bytes();
    server.event_loop.abort(token, CloseReason::Failed);
    assert!(server.event_loop.slots.is_empty());
    assert_eq!(site.memory.used_bytes(), used, "it is in the queue");
    server.work();
    assert_eq!(site.memory.used_bytes(), used, "it is on its way back");
    turn(&mut server.event_loop);
    assert!(site.memory.used_bytes() < used);
    assert!(server.event_loop.jobs_out.is_empty());
}

#[test]
fn requests_that_wait_count_until_they_are_given_back_if_their_clients_have_left() {
    counts_until_it_is_given_back(Blocks);
    counts_until_it_is_given_back(Waiting::default());
}

/// It counted as one more job, which took no time: of the mean, by which others are charged and refused.
#[test]
fn an_apps_request_whose_client_leaves_after_it_has_begun_is_one_job() {
    let handler = Waiting::default();
    let app = Arc::clone(&handler.0);
    let options = ServerOptions {
        workers: 1,
        ..ServerOptions::default()
    };
    let mut server = Server::with_options(config_of(handler), options);
    let mut client = connect(&mut server.event_loop);
    let token = server.event_loop.slots.token_at(0).unwrap();
    client.write_all(GET).unwrap();
    turn(&mut server.event_loop);
    server.work();
    let jobs = |server: &Server<Waiting>| server.event_loop.site.registry.snapshot(0).total.jobs;
    assert_eq!((jobs(&server), Arc::strong_count(&app)), (1, 3), "it waits");
    server.event_loop.abort(token, CloseReason::Failed);
    server.work();
    assert_eq!(
        (jobs(&server), Arc::strong_count(&app)),
        (1, 2),
        "it is dropped"
    );
}
