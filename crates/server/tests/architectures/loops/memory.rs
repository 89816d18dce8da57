//! Memory that runs short while one client holds most of it, at no loop as much as others.

use std::io::Write;
use std::sync::Arc;

use loadline_base::{MemoryBudget, MemoryPressure};
use loadline_proto::{CloseReason, Limits, SessionConfig};
use loadline_server::{
    Accept, Architecture, Config, ListenAddr, ServerConfig, ServerOptions, serve,
};

use super::util::*;

on_loops! {
    who_holds_most_of_all_loops_gives_up_first,
}

const LOOPS: u8 = 4;
const BUDGET_BYTES: u64 = 64 << 20;

/// At each loop.
const HOLDERS_CONNECTIONS: usize = 18;
const OTHERS_CONNECTIONS: usize = 20;

const HOLDER: [u8; 4] = [127, 0, 0, 2];
const STRANGER: [u8; 4] = [127, 0, 0, 3];

/// Another client for each loop.
fn other(of_loop: u8) -> [u8; 4] {
    [127, 0, 1, of_loop + 1]
}

fn start_within(options: ServerOptions, limits: Limits, budget: &Arc<MemoryBudget>) -> Server {
    let handler = Arc::<TestHandler>::default();
    let session = Arc::new(SessionConfig {
        limits,
        ..SessionConfig::default()
    });
    let address = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
    let config = ServerConfig {
        options,
        memory: Some(Arc::clone(budget)),
        ..ServerConfig::default()
    };
    let handle = serve(
        Config::new(Arc::clone(&handler), session, vec![address]),
        config,
    )
    .unwrap();
    Server {
        address: handle.tcp_address().unwrap(),
        handle,
        handler,
    }
}

/// Memory runs short by a sixteenth: nobody but the holder has to give up anything for that.
fn who_holds_most_of_all_loops_gives_up_first(architecture: Architecture) {
    let limits = Limits {
        head_bytes_max: 256 << 10,
        ..Limits::default()
    };
    // Connections come to one loop after the other.
    let options = ServerOptions {
        accept: Accept::Handoff,
        ..options(architecture, LOOPS.into(), 0)
    };
    let budget = MemoryBudget::new(Some(BUDGET_BYTES));
    let server = start_within(options, limits, &budget);
    let half = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}", "x".repeat(100 << 10));
    let mut sent = 0;
    let mut hold = |source| {
        let mut client = server.connect_from(source);
        client.stream.write_all(half.as_bytes()).unwrap();
        sent += half.len() as u64;
        eventually(|| server.total().bytes_in == sent);
        client
    };
    let mut others = Vec::new();
    for _ in 0..OTHERS_CONNECTIONS {
        others.extend((0..LOOPS).map(|index| hold(other(index))));
    }
    let holders: Vec<_> = (0..HOLDERS_CONNECTIONS * usize::from(LOOPS))
        .map(|_| hold(HOLDER))
        .collect();
    let each = (OTHERS_CONNECTIONS + HOLDERS_CONNECTIONS) as u64;
    let connections = server.loops().into_iter().map(|counts| counts.connections);
    assert_eq!(connections.collect::<Vec<_>>(), [each; LOOPS as usize]);
    assert_eq!(budget.pressure(), MemoryPressure::None);

    let slow_bytes = BUDGET_BYTES / 32 * 30 + 1;
    budget.reserve(slow_bytes - budget.used_bytes());
    assert_eq!(budget.pressure(), MemoryPressure::Slow);
    assert_eq!(server.connect_from(STRANGER).get("/").status, 200);
    eventually(|| budget.pressure() < MemoryPressure::Slow);
    for client in &mut others {
        client.stream.write_all(b"\r\n\r\n").unwrap();
        assert_eq!(client.answer().unwrap().status, 200);
    }
    assert!(server.total().closed_for(CloseReason::Memory) > 0);
    drop(holders);
}
