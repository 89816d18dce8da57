//! The states of a stream: what each frame does in each, on the wire and in `docs/supported-http.md`.

use std::fmt::Write as _;

use loadline_proto::http2::frame::{ErrorCode, Kind, flags, frame};
use loadline_proto::http2::state::{Effect, Received, Sent, State};
use loadline_proto::{Http2Count, StreamId};

use crate::connection::Connection;

const STREAM: StreamId = StreamId(1);

/// A connection whose first stream is in a state. Workers keep what they are given.
fn in_state(state: State) -> Connection {
    let mut connection = Connection::new();
    connection.hold_blocking = true;
    match state {
        State::Idle => &mut connection,
        State::Open => connection.post(1, "/block", &[]),
        State::HalfClosedLocal => connection.post(1, "/deaf", &[]),
        State::HalfClosedRemote => connection.get(1, "/block"),
        State::Reset => connection.post(1, "/block", &[]).window(1, 0),
        State::Closed => connection.get(1, "/"),
    };
    assert_eq!(connection.session().stream_state(STREAM), state);
    connection.take();
    connection
}

fn bytes_of(received: Received, connection: &mut Connection) -> Vec<u8> {
    let request = connection.request("POST", "/block", &[]);
    let trailers = connection.block(&[("x-sum", "1")]);
    let block = match connection.session().stream_state(STREAM) {
        State::Idle => request,
        _ => trailers,
    };
    let end = flags::END_STREAM;
    match received {
        Received::Headers => frame(Kind::Headers, flags::END_HEADERS, 1, &block),
        Received::HeadersEnd => frame(Kind::Headers, flags::END_HEADERS | end, 1, &block),
        Received::Data => frame(Kind::Data, 0, 1, b"x"),
        Received::DataEnd => frame(Kind::Data, end, 1, b"x"),
        Received::RstStream => frame(Kind::RstStream, 0, 1, &8_u32.to_be_bytes()),
        Received::WindowUpdate => frame(Kind::WindowUpdate, 0, 1, &1_u32.to_be_bytes()),
    }
}

#[test]
fn each_frame_has_the_effect_that_the_tables_say() {
    for state in State::ALL {
        for received in Received::ALL {
            let what = format!("{} in {}", received.name(), state.name());
            let mut connection = in_state(state);
            let bytes = bytes_of(received, &mut connection);
            connection.feed(&bytes);
            let errors = Connection::errors(&connection.take());
            let effect = state.receive(received).effect;
            let expected = match effect {
                Effect::Enter(_) | Effect::Ignored => vec![],
                Effect::StreamError(code) => vec![(1, code as u32)],
                Effect::ConnectionError(code) => vec![(0, code as u32)],
            };
            assert_eq!(errors, expected, "{what}");
            let after = connection.session().stream_state(STREAM);
            match (effect, received) {
                // A worker has the request of a client that has reset it.
                (Effect::Enter(_), Received::RstStream) if state == State::HalfClosedRemote => {
                    assert_eq!(after, State::Reset, "{what}");
                }
                (Effect::Enter(next), _) => assert_eq!(after, next, "{what}"),
                (Effect::Ignored, _) => assert_eq!(after, state, "{what}"),
                (Effect::StreamError(_), _) => assert_eq!(after, State::Reset, "{what}"),
                (Effect::ConnectionError(_), _) => assert!(connection.has_finished, "{what}"),
            }
        }
    }
}

#[test]
fn what_is_sent_leads_where_the_tables_say() {
    for (state, sent, next) in [
        (State::Open, Sent::EndStream, State::HalfClosedLocal),
        (State::HalfClosedRemote, Sent::EndStream, State::Closed),
        (State::Open, Sent::RstStream, State::Reset),
        (State::HalfClosedLocal, Sent::RstStream, State::Reset),
        (State::HalfClosedRemote, Sent::RstStream, State::Reset),
        (State::Closed, Sent::RstStream, State::Reset),
    ] {
        let what = format!("{} in {}", sent.name(), state.name());
        assert_eq!(state.send(sent).map(|(next, _)| next), Some(next), "{what}");
        let mut connection = in_state(state);
        match (sent, state) {
            (Sent::EndStream, State::Open) => connection.post(3, "/deaf", &[]),
            (Sent::EndStream, _) => connection.complete(1),
            (Sent::RstStream, State::Closed) => connection.frame(Kind::Data, 0, 1, b"x"),
            (Sent::RstStream, _) => connection.window(1, 0),
        };
        let id = match sent {
            Sent::EndStream if state == State::Open => StreamId(3),
            _ => STREAM,
        };
        assert_eq!(connection.session().stream_state(id), next, "{what}");
    }
    for (state, sent) in [
        (State::Idle, Sent::EndStream),
        (State::Idle, Sent::RstStream),
        (State::HalfClosedLocal, Sent::EndStream),
        (State::Reset, Sent::EndStream),
        (State::Reset, Sent::RstStream),
        (State::Closed, Sent::EndStream),
    ] {
        assert_eq!(state.send(sent), None);
    }
}

/// Streams that only a server begins stay idle, whatever number a client has reached.
#[test]
fn a_frame_for_a_stream_of_the_server_s_ends_the_connection() {
    let mut connection = Connection::new();
    connection.get(5, "/");
    connection.take();
    connection.frame(Kind::Data, 0, 2, b"x");
    let errors = Connection::errors(&connection.take());
    assert_eq!(errors, [(0, ErrorCode::Protocol as u32)]);
    assert_eq!(connection.counted(Http2Count::Errors), 1);
}

#[test]
fn the_page_has_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/supported-http.md");
    let (begin, end) = ("<!-- states: begin -->\n", "<!-- states: end -->\n");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(begin).unwrap();
    let (tables, after) = rest.split_once(end).unwrap();
    let right = tables_of_the_page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(path, format!("{before}{begin}{right}{end}{after}")).unwrap();
    }
    assert_eq!(
        tables, right,
        "run it again with UPDATE_DOCS=1 in the environment"
    );
}

fn tables_of_the_page() -> String {
    let mut text =
        "\n| A frame comes | idle | open | half-closed (local) | half-closed (remote) | \
                    closed by RST_STREAM | closed |\n|---|---|---|---|---|---|---|\n"
            .to_owned();
    for received in Received::ALL {
        write!(text, "| {} |", received.name()).unwrap();
        for state in State::ALL {
            let transition = state.receive(received);
            let effect = match transition.effect {
                Effect::Enter(next) if next == state => "taken".to_owned(),
                Effect::Enter(next) => format!("→ {}", next.name()),
                Effect::Ignored => "ignored".to_owned(),
                Effect::StreamError(code) => format!("stream error {}", name(code)),
                Effect::ConnectionError(code) => format!("connection error {}", name(code)),
            };
            write!(text, " {effect} ({}) |", transition.section).unwrap();
        }
        text.push('\n');
    }
    text.push_str(
        "\n| The server sends | open | half-closed (local) | half-closed (remote) | closed |\n\
         |---|---|---|---|---|\n",
    );
    for sent in Sent::ALL {
        write!(text, "| {} |", sent.name()).unwrap();
        for state in [
            State::Open,
            State::HalfClosedLocal,
            State::HalfClosedRemote,
            State::Closed,
        ] {
            match state.send(sent) {
                Some((next, section)) => write!(text, " → {} ({section}) |", next.name()),
                None => write!(text, " |"),
            }
            .unwrap();
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

fn name(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Protocol => "PROTOCOL_ERROR",
        ErrorCode::StreamClosed => "STREAM_CLOSED",
        _ => unreachable!("no state has it"),
    }
}
