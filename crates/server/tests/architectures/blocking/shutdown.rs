//! How a server goes down.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use loadline_proto::{CloseReason, SessionConfig};
use loadline_server::{
    Architecture, Config, ListenAddr, ServerConfig, ServerOptions, SharedConfig, serve,
};

use super::util::{BLOCKING, Client, Gate, TestHandler, eventually, options, start};

#[test]
fn a_drain_closes_idle_connections_and_finishes_requests() {
    for architecture in [Architecture::ThreadPerConnection, Architecture::ThreadPool] {
        let server = start(options(architecture));
        let mut idle = server.connect();
        assert_eq!(idle.get("/").status, 200);
        let mut busy = server.connect();
        busy.ask("/gate");
        server.handler.gate.await_waiting(1);
        server.handle.drain();
        assert!(idle.is_closed());
        eventually(|| TcpStream::connect(server.address).is_err());
        assert!(!busy.is_answered_within(Duration::from_millis(20)));
        server.handler.gate.open();
        let answer = busy.answer().unwrap();
        assert_eq!(answer.content, b"passed");
        assert!(busy.is_closed());
        let handle = server.handle;
        let control = handle.control();
        assert!(handle.wait().unwrap().is_clean());
        let total = control.snapshot().total;
        assert_eq!(total.connections, 0);
        assert!(total.closed_for(CloseReason::Drained) >= 1, "{total:?}");
    }
}

#[test]
fn an_answer_that_a_drain_overtakes_says_close_and_so_does_what_came_behind_it() {
    for architecture in BLOCKING {
        let server = start(options(architecture));
        let mut alone = (architecture != Architecture::Sequential).then(|| server.connect());
        if let Some(alone) = &mut alone {
            alone.ask("/gate");
            server.handler.gate.await_waiting(1);
        }
        let mut client = server.connect();
        client.ask("/gate");
        let waiting = 1 + u64::from(alone.is_some());
        server.handler.gate.await_waiting(waiting);
        client.ask("/hello");
        server.handle.drain();
        server.handler.gate.open();
        if let Some(mut alone) = alone {
            assert!(alone.answer().unwrap().says_close(), "{architecture:?}");
            assert!(alone.is_closed());
        }
        let first = client.answer().unwrap();
        assert!(first.content == b"passed" && !first.says_close());
        let last = client.answer().unwrap();
        assert!(last.content == b"hello" && last.says_close());
        assert!(client.is_closed());
        assert!(server.handle.wait().unwrap().is_clean());
    }
}

#[test]
fn what_the_backlog_holds_when_the_drain_begins_is_served() {
    let pool = options(Architecture::ThreadPool);
    let all = [
        options(Architecture::Sequential),
        ServerOptions {
            queue_max: 1,
            latency_goal: None,
            ..pool.clone()
        },
        pool,
    ];
    for options in all {
        let architecture = options.architecture;
        let server = start(ServerOptions {
            threads: 1,
            ..options
        });
        let mut busy = server.connect();
        busy.ask("/gate");
        server.handler.gate.await_waiting(1);
        let mut waiting: Vec<Client> = (0..4).map(|_| server.connect()).collect();
        for client in &mut waiting {
            client.ask("/hello");
        }
        server.handle.drain();
        server.handler.gate.open();
        assert_eq!(busy.answer().unwrap().content, b"passed");
        for client in &mut waiting {
            let answer = client.answer().unwrap();
            assert_eq!(answer.content, b"hello", "{architecture:?}");
            assert!(answer.says_close() && client.is_closed());
        }
        assert!(server.handle.wait().unwrap().is_clean());
    }
}

/// It was refused. The accepting thread takes up another configuration meanwhile, which takes it long.
#[test]
fn threads_at_the_cap_serve_what_the_backlog_holds_when_the_drain_begins() {
    let config = |handler: &Arc<TestHandler>| {
        let any_port = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
        Config::new(Arc::clone(handler), Arc::default(), [any_port])
    };
    let handler = Arc::<TestHandler>::default();
    let shared: Arc<SharedConfig<TestHandler>> = config(&handler).into();
    let server = ServerConfig {
        options: ServerOptions {
            connections_max: 1,
            ..options(Architecture::ThreadPerConnection)
        },
        ..ServerConfig::default()
    };
    let handle = serve(Arc::clone(&shared), server).unwrap();
    let address = handle.tcp_address().unwrap();
    let mut busy = Client::connect(address);
    busy.ask("/gate");
    handler.gate.await_waiting(1);
    let next = Arc::new(TestHandler {
        local_gate: Some(Gate::default()),
        ..TestHandler::default()
    });
    shared.replace(config(&next)).unwrap();
    let mut waiting: Vec<Client> = (0..4).map(|_| Client::connect(address)).collect();
    for client in &mut waiting {
        client.ask("/hello");
    }
    let held_up = next.local_gate.as_ref().unwrap();
    held_up.await_waiting(1);
    handle.drain();
    held_up.open();
    for client in &mut waiting {
        let answer = client.answer().unwrap();
        assert_eq!(answer.content, b"hello");
        assert!(answer.says_close() && client.is_closed());
    }
    handler.gate.open();
    assert_eq!(busy.answer().unwrap().content, b"passed");
    assert!(handle.wait().unwrap().is_clean());
}

#[test]
fn a_request_that_has_arrived_is_answered_though_the_drain_came_first() {
    for architecture in BLOCKING {
        for _ in 0..50 {
            let server = start(options(architecture));
            let mut client = server.connect();
            assert_eq!(client.get("/").status, 200);
            client.ask("/hello");
            server.handle.drain();
            assert_eq!(client.answer().unwrap().content, b"hello");
            assert!(client.is_closed());
            assert!(server.handle.wait().unwrap().is_clean());
        }
    }
}

#[test]
fn the_grace_ends_what_does_not_end_by_itself() {
    for architecture in BLOCKING {
        let server = start(ServerOptions {
            grace: Duration::from_millis(100),
            ..options(architecture)
        });
        let mut half = server.connect();
        half.stream.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
        eventually(|| server.handle.snapshot().total.bytes_in > 0);
        server.handle.drain();
        assert!(half.is_closed(), "{architecture:?}");
        assert_eq!(server.handle.wait().unwrap().connections_cut, 1);
    }
}

#[test]
fn the_grace_ends_an_answer_that_nobody_takes() {
    for architecture in BLOCKING {
        let server = start(ServerOptions {
            grace: Duration::from_millis(100),
            ..options(architecture)
        });
        let mut client = server.connect();
        client.ask("/big");
        assert!(client.is_answered_within(super::util::TIMEOUT));
        eventually(|| server.handle.snapshot().total.bytes_out > 0);
        let ending = server.end();
        assert_eq!(ending.connections_cut, 1, "{architecture:?}");
    }
}

#[test]
fn the_second_stage_ends_at_once_even_past_a_handler_that_hangs() {
    for architecture in BLOCKING {
        let server = start(ServerOptions {
            grace: Duration::from_secs(3600),
            ..options(architecture)
        });
        let mut half = server.connect();
        half.stream.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
        eventually(|| server.handle.snapshot().total.bytes_in > 0);
        let mut hanging = (architecture != Architecture::Sequential).then(|| server.connect());
        if let Some(hanging) = &mut hanging {
            hanging.ask("/gate");
            server.handler.gate.await_waiting(1);
        }
        server.handle.drain();
        assert!(!half.is_answered_within(Duration::from_millis(50)));
        server.handle.stop_now();
        let ending = server.handle.wait().unwrap();
        let cut = 1 + u64::from(hanging.is_some());
        assert_eq!(ending.connections_cut, cut, "{architecture:?}");
        assert!(half.is_closed());
        server.handler.gate.open();
    }
}

#[test]
fn a_server_restarts_on_its_port_at_once() {
    for architecture in BLOCKING {
        let server = start(options(architecture));
        let address = server.address;
        let mut client = server.connect();
        assert_eq!(client.get("/").status, 200);
        assert!(server.end().is_clean()); // the server closes first: TIME_WAIT is on its side
        let config = ServerConfig {
            options: options(architecture),
            ..ServerConfig::default()
        };
        let handle = serve(
            Config::new(
                Arc::new(TestHandler::default()),
                Arc::new(SessionConfig::default()),
                vec![ListenAddr::Tcp(address)],
            ),
            config,
        )
        .unwrap();
        assert_eq!(Client::connect(address).get("/").status, 200);
        handle.drain();
        assert!(handle.wait().unwrap().is_clean());
    }
}

#[test]
fn several_addresses_and_a_unix_socket_with_its_mode() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    for architecture in BLOCKING {
        // A file that a predecessor left behind is no obstacle.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let tcp = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
        let config = ServerConfig {
            options: options(architecture),
            unix_mode: Some(0o600),
            ..ServerConfig::default()
        };
        let here = ListenAddr::Unix(path.clone());
        let served = || {
            let listen = [tcp.clone(), here.clone(), tcp.clone()];
            Config::new(Arc::<TestHandler>::default(), Arc::default(), listen)
        };
        let handle = serve(served(), config.clone()).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert_eq!(Client::connect_unix(&path).get("/").status, 200);
        for address in handle.addresses() {
            if let ListenAddr::Tcp(address) = address {
                assert_eq!(Client::connect(*address).get("/").status, 200);
            }
        }
        let taken = serve(served(), config).unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
        assert!(taken.to_string().contains("socket"), "{taken}");
        handle.drain();
        assert!(handle.wait().unwrap().is_clean());
        assert!(!path.exists(), "the socket's file is removed");
    }
}

#[test]
fn a_drain_ends_though_clients_keep_connecting() {
    for architecture in BLOCKING {
        let server = start(ServerOptions {
            grace: Duration::from_secs(3600),
            ..options(architecture)
        });
        let address = server.address;
        let clients: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(move || {
                    let request = b"GET /hello HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
                    let mut served = 0;
                    // Until nobody listens any more; a connection that was never accepted is reset.
                    while let Ok(mut stream) = TcpStream::connect(address) {
                        let mut answer = String::new();
                        let asked = stream.write_all(request);
                        if asked.is_ok() && stream.read_to_string(&mut answer).is_ok() {
                            served += usize::from(answer.ends_with("hello"));
                        }
                    }
                    served
                })
            })
            .collect();
        eventually(|| server.handle.snapshot().total.requests() >= 50);
        assert!(server.end().is_clean(), "{architecture:?}");
        let served: usize = clients.into_iter().map(|c| c.join().unwrap()).sum();
        assert!(served >= 46, "{architecture:?}: {served}");
    }
}
