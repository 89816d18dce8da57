//! What connections hold while workers serve them (`--socket-io worker`).

use loadline_proto::SessionConfig;

use super::*;

/// A server whose worker serves connections, and a connection of which its loop has counted the beginning of a large
/// head.
fn with_a_large_head() -> (Server<Quiet>, UnixStream) {
    let mut session = SessionConfig::default();
    session.limits.head_bytes_max = 1 << 20;
    let nowhere = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
    let config = Config::new(Arc::new(Quiet), Arc::new(session), [nowhere]);
    let options = ServerOptions {
        workers: 1,
        socket_io: SocketIo::Worker,
        ..ServerOptions::default()
    };
    let site = Arc::new(Site {
        memory: MemoryBudget::new(Some(BUDGET_BYTES)),
        ..Arc::into_inner(site_of::<Quiet>(config.into(), options)).unwrap()
    });
    let mut server = Server::of_site(&site);
    let mut client = connect(&mut server.event_loop);
    let idle = used(&server);
    client.write_all(GET.trim_ascii_end()).unwrap();
    client.write_all(b"\r\nX: ").unwrap();
    client.write_all(&[b'a'; 120_000]).unwrap();
    assert!(server.answer(&mut client).is_empty());
    assert!(used(&server) > idle && !are_near(used(&server), idle));
    (server, client)
}

/// Credit is taken in steps of 16 KiB.
const BUDGET_BYTES: u64 = 16 << 20;

fn used(server: &Server<Quiet>) -> u64 {
    server.event_loop.site.memory.used_bytes()
}

fn are_near(one: u64, other: u64) -> bool {
    one.abs_diff(other) < 64 << 10
}

/// What its loop knew of it counted there as well, until the loop had it back.
#[test]
fn what_a_connection_holds_counts_once_while_a_worker_has_it() {
    let (mut server, mut client) = with_a_large_head();
    let before = used(&server);
    client.write_all(b"a").unwrap();
    turn(&mut server.event_loop);
    assert!(are_near(used(&server), before), "it waits for a worker");
    server.work();
    let on_its_way = used(&server);
    turn(&mut server.event_loop);
    assert!(are_near(on_its_way, used(&server)), "its loop has it again");
}

#[test]
fn a_worker_ends_a_connection_that_waits_for_its_client_once_the_budget_is_used_up() {
    let (mut server, mut client) = with_a_large_head();
    let memory = Arc::clone(&server.event_loop.site.memory);
    client.write_all(b"a").unwrap();
    turn(&mut server.event_loop);
    memory.reserve(BUDGET_BYTES);
    let before = used(&server);
    server.work();
    assert!(used(&server) < before, "it is free before its loop has it");
    turn(&mut server.event_loop);
    assert!(server.event_loop.slots.is_empty());
    let total = server.event_loop.site.registry.snapshot(0).total;
    assert_eq!(total.closed_for(CloseReason::Memory), 1);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}
