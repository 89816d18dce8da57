//! Failures on the server's side: panics, and files that change while they are sent.

use std::os::unix::fs::FileExt as _;
use std::sync::LazyLock;

use loadline_server::ServerOptions;

use crate::fixture::{Model, Server, limits, pattern};

every_model! {
    a_panic_is_a_500_and_costs_nothing,
    a_file_truncated_while_it_is_sent_ends_the_connection,
    a_file_rewritten_while_it_is_sent_never_completes_mixed,
}

pub fn a_panic_is_a_500_and_costs_nothing(model: Model) {
    let server = Server::start(model);
    for _ in 0..5 {
        for target in ["/-/panic", "/-/panic-blocking"] {
            let mut client = server.connect();
            let answer = client.get(target, "");
            assert_eq!(answer.status, 500, "{target}");
            if answer.closes() {
                client.end();
            } else {
                assert_eq!(client.get("/-/echo", "").status, 200);
            }
        }
    }
    // More than there are threads of any kind, and all still there.
    for _ in 0..30 {
        server.connect().get("/-/panic-blocking", "");
    }
    assert_eq!(server.connect().get("/-/echo-blocking", "").status, 200);
    let mut client = server.connect();
    client.send("GET /-/echo HTTP/1.1\r\nHost: h\r\n\r\nGET /-/panic HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!([client.answer().status, client.answer().status], [200, 500]);
}

/// The length of a file that sockets cannot hold, if its client receives little: more than the kernel
/// keeps of what is sent (`tcp_wmem`).
pub static LARGE: LazyLock<usize> = LazyLock::new(|| {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap();
    let max: usize = text.split_whitespace().last().unwrap().parse().unwrap();
    max + 4_000_000
});

/// Begins to read a file, changes it, reads on: what came, and what was there before.
pub fn disturb(options: ServerOptions, change: impl Fn(&std::path::Path)) -> (Vec<u8>, Vec<u8>) {
    let server = Server::start_with(options, limits());
    let path = server.path().join("victim.bin");
    let content = pattern(*LARGE);
    std::fs::write(&path, &content).unwrap();
    let mut client = server.connect();
    client.receive_little();
    client.send_last("/victim.bin").await_bytes(b"");
    change(&path);
    let mut bytes = client.rest();
    let head_len = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8_lossy(&bytes[..head_len]).to_ascii_lowercase();
    assert!(
        head.contains(&format!("content-length: {}\r\n", *LARGE)),
        "{head}"
    );
    bytes.drain(..head_len);
    (bytes, content)
}

pub fn a_file_truncated_while_it_is_sent_ends_the_connection(model: Model) {
    let (got, _) = disturb(model.options(), |path| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(1000).unwrap();
    });
    // What is on its way may show zeros: sendfile lends the pages that the kernel clears.
    assert!(got.len() < *LARGE, "it cannot be whole");
}

pub fn a_file_rewritten_while_it_is_sent_never_completes_mixed(model: Model) {
    let (got, content) = disturb(model.options(), |path| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&[b'n'; 100_000], *LARGE as u64 - 100_000)
            .unwrap();
    });
    assert!(
        got.len() < *LARGE || got == content,
        "a mixed body completed"
    );
}
