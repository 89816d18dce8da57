//! Who the client is, to an app and to the log, when a trusted proxy says so.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use loadline_base::Buffer;
use loadline_proto::{AccessFormat, Layer as _};
use loadline_server::{
    AccessLogging, AccessSink, ForwardedField, ListenAddr, Server, TrustedProxies,
};
use loadline_tower::Tower;

use crate::app::{self, Shared};
use crate::client::TIMEOUT;
use crate::fixture::{is_over_http2, is_whole};
use crate::model::Model;
use crate::translated::Translated;

every_model! {
    a_client_behind_a_proxy,
}

/// Keeps the lines of the log.
#[derive(Default)]
struct Kept(Mutex<Vec<u8>>);

impl AccessSink for Kept {
    fn offer(&self, lines: &mut Vec<u8>) {
        self.0.lock().unwrap().append(lines);
    }
}

const REQUEST: &str = "GET /saw HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\
     X-Forwarded-For: 6.6.6.6, 2001:db8::9, 192.0.2.8\r\nX-Forwarded-Proto: https\r\n\r\n";

fn ask(mut stream: impl Read + Write) -> String {
    if is_over_http2() {
        return ask_by_streams(stream);
    }
    stream.write_all(REQUEST.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The response as HTTP/1.
fn ask_by_streams(mut stream: impl Read + Write) -> String {
    let mut preface = Vec::new();
    let mut layer = Translated::new("http", &mut preface);
    let mut out = Buffer::from(preface);
    layer.send(REQUEST.as_bytes(), &mut out);
    let (mut plain, mut piece) = (Buffer::default(), [0; 4096]);
    while !is_whole(&plain) {
        stream.write_all(&std::mem::take(&mut out)).unwrap();
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the end after {} bytes", plain.len());
        let bytes = &mut piece[..count];
        layer.received(bytes, &mut plain, &mut out).unwrap();
    }
    String::from_utf8(plain.to_vec()).unwrap()
}

pub fn a_client_behind_a_proxy(model: Model) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let ours = ["127.0.0.1", "unix", "192.0.2.0/24"].map(|proxy| proxy.parse().unwrap());
    for (proxies, expected) in [
        (&ours[..], ["2001:db8::9", "2001:db8::9"]),
        (&ours[..1], ["192.0.2.8", ""]),
        (&[], ["127.0.0.1", ""]),
    ] {
        let kept = Arc::<Kept>::default();
        let app = app::router(Arc::<Shared>::default());
        let server = Server::new(Tower::new(app).unwrap())
            .options(model.options())
            .trusted_proxies(TrustedProxies::new(proxies, ForwardedField::default()))
            .access_log(AccessLogging {
                format: AccessFormat::Common,
                sink: Arc::clone(&kept) as Arc<dyn AccessSink>,
            })
            .listen(([127, 0, 0, 1], 0))
            .listen(ListenAddr::Unix(socket.clone()))
            .start()
            .unwrap();
        // One after the other: a silent connection holds up a sequential server.
        let tcp = TcpStream::connect(server.tcp_address().unwrap()).unwrap();
        tcp.set_read_timeout(Some(TIMEOUT)).unwrap();
        let by_tcp = ask(tcp);
        let unix = UnixStream::connect(&socket).unwrap();
        unix.set_read_timeout(Some(TIMEOUT)).unwrap();
        let said = [by_tcp, ask(unix)];
        server.drain();
        assert!(server.wait().unwrap().is_clean());
        let lines = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        for (client, said) in expected.into_iter().zip(said) {
            let is_forwarded = !client.is_empty() && client != "127.0.0.1";
            let (client, logged) = match client {
                "" => ("None".to_owned(), "- - - [".to_owned()),
                client => (format!("Some({client})"), format!("{client} - - [")),
            };
            let line = format!("\nclient {client} secure {is_forwarded}\n");
            assert!(said.contains(&line), "{line} {said}");
            assert!(
                lines.iter().any(|line| line.starts_with(&logged)),
                "{logged} {lines:?}"
            );
        }
    }
}
