//! The papers' models: loops and workers in every combination, every way of accepting.

use loadline_server::{
    Accept, Architecture, Parsing, Queue, Role, ServerOptions, SocketIo, WorkerPools,
};

use super::util::*;

on_loops! {
    every_combination_serves,
    every_kind_of_pool_serves,
    fifty_loops_with_fifty_workers,
    without_workers_the_loop_blocks_and_counts_it,
    with_socket_io_worker_everything_runs_on_workers,
    with_parse_worker_loops_only_receive_and_send,
    pipelined_requests_are_answered_in_order_whoever_runs_them,
}

/// Several clients, several requests each; everything answered in order.
fn serves(options: ServerOptions) -> Server {
    let what = format!("{options:?}");
    let has_workers = options.workers > 0;
    let server = start(options);
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for _ in 0..3 {
        for client in &mut clients {
            client.ask("/blocking");
        }
        for client in &mut clients {
            let answer = client.answer().unwrap();
            assert_eq!(answer.status, 200, "{what}");
            let on_worker = answer.text().starts_with("worker");
            assert_eq!(on_worker, has_workers, "{what}: {}", answer.text());
        }
        for client in &mut clients {
            assert_eq!(client.get("/").status, 200, "{what}");
        }
    }
    assert_eq!(server.total().requests(), 8 * 6, "{what}");
    assert_eq!(server.total().connections, 8, "{what}");
    server
}

fn every_combination_serves(architecture: Architecture) {
    for loops in [1, 3] {
        for workers in [0, 1, 4] {
            for accept in Accept::ALL {
                let base = options(architecture, loops, workers);
                let server = serves(ServerOptions {
                    accept: *accept,
                    ..base
                });
                assert!(server.end().is_clean());
            }
        }
    }
}

fn every_kind_of_pool_serves(architecture: Architecture) {
    for queue in Queue::ALL {
        for worker_pools in WorkerPools::ALL {
            for socket_io in socket_ios(architecture) {
                let server = serves(ServerOptions {
                    queue: *queue,
                    worker_pools: *worker_pools,
                    socket_io: *socket_io,
                    ..options(architecture, 2, 2)
                });
                assert!(server.end().is_clean());
            }
            let server = serves(ServerOptions {
                queue: *queue,
                worker_pools: *worker_pools,
                parse: Parsing::Worker,
                ..options(architecture, 2, 2)
            });
            assert!(server.end().is_clean());
        }
    }
}

fn fifty_loops_with_fifty_workers(architecture: Architecture) {
    for worker_pools in WorkerPools::ALL {
        for accept in [Accept::Handoff, Accept::ReusePort] {
            let server = serves(ServerOptions {
                worker_pools: *worker_pools,
                accept,
                ..options(architecture, 50, 50)
            });
            assert!(server.end().is_clean());
        }
    }
}

fn without_workers_the_loop_blocks_and_counts_it(architecture: Architecture) {
    let server = serves(options(architecture, 1, 0));
    assert_eq!(server.total().blocked_in_place, 24);
    assert_eq!(server.total().jobs, 0);
}

/// A large answer, which cannot be written at once, and pipelined requests.
fn workers_answer_large_and_pipelined(server: Server, mut client: Client) {
    assert_eq!(client.get("/shared").content.len(), SHARED_BYTES);
    for _ in 0..100 {
        client.ask("/");
    }
    for _ in 0..100 {
        assert!(client.answer().unwrap().text().starts_with("worker"));
    }
    drop(client);
    eventually(|| server.total().connections == 0);
    assert!(server.end().is_clean());
}

fn with_socket_io_worker_everything_runs_on_workers(architecture: Architecture) {
    if !offers(architecture, SocketIo::Worker) {
        return;
    }
    let server = start(ServerOptions {
        socket_io: SocketIo::Worker,
        ..options(architecture, 1, 2)
    });
    let mut client = server.connect();
    for _ in 0..5 {
        assert!(client.get("/").text().starts_with("worker"));
    }
    workers_answer_large_and_pipelined(server, client);
}

fn with_parse_worker_loops_only_receive_and_send(architecture: Architecture) {
    let server = start(ServerOptions {
        parse: Parsing::Worker,
        ..options(architecture, 1, 2)
    });
    let mut client = server.connect();
    for path in ["/", "/blocking", "/"] {
        assert!(client.get(path).text().starts_with("worker"), "{path}");
    }
    let threads = server.handle.snapshot().per_thread;
    let of_loops = threads.iter().filter(|thread| thread.role == Role::Loop);
    let answered_by_loops: u64 = of_loops.map(|thread| thread.counts.requests()).sum();
    assert_eq!(answered_by_loops, 0);
    workers_answer_large_and_pipelined(server, client);
}

fn pipelined_requests_are_answered_in_order_whoever_runs_them(architecture: Architecture) {
    for workers in [0, 2] {
        let server = start(options(architecture, 1, workers));
        let mut client = server.connect();
        let paths = [
            "/",
            "/blocking",
            "/panic",
            "/",
            "/panic-blocking",
            "/blocking",
        ];
        paths.iter().for_each(|path| client.ask(path));
        let answers = paths.map(|_| client.answer().unwrap().status);
        assert_eq!(answers, [200, 200, 500, 200, 500, 200]);
    }
}
