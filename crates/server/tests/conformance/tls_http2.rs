//! HTTP/2 over TLS, under every model: sessions are resumed, a response that was cut does not end as a whole one
//! does, and a drain awaits the rest of a record.

use std::io::{self, ErrorKind, Read, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use loadline_base::Buffer;
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, WINDOW_BYTES_MAX, flags, number};
use loadline_proto::{Layer as _, Limits};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::client::TIMEOUT;
use crate::failures::LARGE;
use crate::fixture::{Model, Server, eventually, limits, over_http2, pattern};
use crate::tls;
use crate::tls_drain::{Begun, ends};
use crate::translated::Translated;

every_model! {
    sessions_are_resumed,
    a_cut_response_has_no_end,
    a_response_of_an_app_that_was_cut_has_no_end,
    a_drain_awaits_the_rest_of_a_record,
}

fn sessions_are_resumed(model: Model) {
    over_http2(tls::sessions_are_resumed, model);
}

fn a_cut_response_has_no_end(model: Model) {
    let server = tls::start(model, limits());
    let path = server.path().join("victim.bin");
    std::fs::write(&path, pattern(*LARGE)).unwrap();
    let victim = ask(&server, "/victim.bin");
    eventually("the response has begun", || {
        server.control.snapshot().total.bytes_out > 100_000
    });
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(1000).unwrap();
    assert!(!is_whole(victim));
    assert!(is_whole(ask(&server, "/middle.bin")));
}

fn a_response_of_an_app_that_was_cut_has_no_end(model: Model) {
    let limits = Limits {
        app_silence_timeout_ms: 300,
        ..limits()
    };
    let server = tls::start(model, limits);
    for (target, whole) in [("begun", false), ("slowly", true)] {
        let response = ask(&server, &format!("/-/later/{target}"));
        assert_eq!(is_whole(response), whole, "{target}");
    }
}

fn a_drain_awaits_the_rest_of_a_record(model: Model) {
    let (tls, client) = ends();
    let mut client = ClientConfig::clone(&client);
    client.alpn_protocols = vec![b"h2".to_vec()];
    let client = Arc::new(client);
    let is_go_away = |head: FrameHead| head.kind == Kind::GoAway;
    // Cut in the middle, and within the record's head.
    for parts in [2, 20] {
        let server = Server::start_speaking(model.options(), tls.protocol());
        let mut begun = Begun::new(&server, &client);
        begun.shake_hands();
        let (mut streams, first) = begin("/-/echo");
        let mut last = Buffer::default();
        request(&mut streams, "/-/echo", &mut last);
        let (first, last) = (begun.sealed(&first), begun.sealed(&last));
        let (part, rest) = last.split_at(last.len() / parts);
        // In one piece: the response to the first says that the part of the second has arrived, too.
        let sent = [&first[..], part].concat();
        begun.socket.write_all(&sent).unwrap();
        let (head, _) = next_frame(&mut begun.stream(), ends_response).unwrap();
        assert_eq!(head.stream, 1);
        server.control.drain();
        let (_, payload) = next_frame(&mut begun.stream(), is_go_away).unwrap();
        assert_eq!(number(&payload), WINDOW_BYTES_MAX, "the drain has begun");
        begun.socket.write_all(rest).unwrap();
        let (head, content) = next_frame(&mut begun.stream(), ends_response).unwrap();
        assert_eq!(head.stream, 3);
        assert_eq!(content, b"GET /-/echo");
        let (_, payload) = next_frame(&mut begun.stream(), is_go_away).unwrap();
        let (last_stream, error) = (number(&payload), number(&payload[4..]));
        assert_eq!((last_stream, error), (3, 0));
        assert_eq!(begun.rest(), "");
        assert_eq!(server.end(), 0);
    }
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Asks for this over a connection of its own, whose socket takes little before it is read.
fn ask(server: &Server, target: &str) -> TlsStream {
    let (_, client) = server.tls.as_ref().unwrap();
    let socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1 << 16).unwrap();
    let client = client.asking_for(&[&b"h2"[..]]);
    let mut stream = client.stream("localhost", socket).unwrap();
    let (_, frames) = begin(target);
    stream.write_all(&frames).unwrap();
    stream
}

/// What a client begins with whose windows are as large as any response, and its first request.
fn begin(target: &str) -> (Translated, Buffer) {
    let mut opening = Vec::new();
    let mut streams = Translated::new("https", &mut opening);
    let mut out = Buffer::from(opening);
    request(&mut streams, target, &mut out);
    (streams, out)
}

fn request(streams: &mut Translated, target: &str, out: &mut Buffer) {
    let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    streams.send(head.as_bytes(), out);
}

/// Whether a response ends by END_STREAM, and not by a reset of its stream or the end of the connection.
fn is_whole(mut stream: TlsStream) -> bool {
    let is_last = |head: FrameHead| head.kind == Kind::RstStream || ends_response(head);
    match next_frame(&mut stream, is_last) {
        Ok((head, _)) => head.kind != Kind::RstStream,
        Err(error) => {
            let kinds = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
            assert!(kinds.contains(&error.kind()), "{error}");
            false
        }
    }
}

fn ends_response(head: FrameHead) -> bool {
    matches!(head.kind, Kind::Headers | Kind::Data) && head.has(flags::END_STREAM)
}

/// The next frame that is one of these, and its payload.
fn next_frame(
    stream: &mut impl Read,
    is_one: impl Fn(FrameHead) -> bool,
) -> io::Result<(FrameHead, Vec<u8>)> {
    loop {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head)?;
        let head = FrameHead::parse(&head);
        let mut payload = vec![0; head.len];
        stream.read_exact(&mut payload)?;
        if is_one(head) {
            return Ok((head, payload));
        }
    }
}
