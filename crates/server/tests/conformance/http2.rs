//! HTTP/2 over sockets, under every model: cases of other files, as streams of one connection, and how a
//! connection begins.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use loadline_base::Buffer;
use loadline_proto::hpack::{Encoder, Indexing};
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, Setting, flags, frame};
use loadline_proto::{Http2, Layer as _};
use loadline_tls::{
    Authorities, Certificate, Certificates, Profile, TlsClient, TlsOptions, TlsServer, self_signed,
};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::client::{Client, TIMEOUT};
use crate::fixture::{Model, Server, limits, pattern};
use crate::tls::client_of;
use crate::translated::Translated;

/// Cases of other files, over HTTP/2.
macro_rules! every_model_over_http2 {
    ($($(#[$attribute:meta])? $file:ident::$case:ident,)*) => {
        $(mod $case {
            fn over_http2(model: crate::model::Model) {
                crate::fixture::over_http2(crate::$file::$case, model);
            }
            every_model! { $(#[$attribute])? over_http2, }
        })*
    };
}

/// The same, for those that take longer: other models differ little from these.
macro_rules! some_models_over_http2 {
    (@by $by:ident: $($file:ident::$case:ident,)*) => {
        $(mod $case {
            fn over_http2(model: crate::model::Model) {
                crate::fixture::$by(crate::$file::$case, model);
            }
            mod over_http2 {
                use crate::model::Model;
                every_model!(@models over_http2 []: thread_per_connection ThreadPerConnection,
                    thread_pool ThreadPool, reactor_1xm Reactor1xM, proactor_nx0 ProactorNx0);
                every_model!(@models over_http2 [ignore = "long: with some models it always runs"]:
                    sequential Sequential, thread_pool_without_goal ThreadPoolWithoutGoal,
                    reactor_1x0 Reactor1x0, reactor_nx0 ReactorNx0, reactor_nxm ReactorNxM,
                    reactor_handoff ReactorHandoff, reactor_socket_io_worker ReactorSocketIoWorker,
                    proactor_1x0 Proactor1x0, proactor_1xm Proactor1xM, proactor_nxm ProactorNxM,
                    proactor_handoff ProactorHandoff);
            }
        })*
    };
    ($($file:ident::$case:ident,)*) => {
        some_models_over_http2! { @by over_http2: $($file::$case,)* }
    };
}

every_model_over_http2! {
    files::files_byte_for_byte,
    files::head_says_what_get_says,
    files::folders,
    files::nothing_escapes_the_root,
    #[ignore = "long: half a second for each model, or more"]
    files::a_changed_file_is_seen_within_a_second,
    selection::ranges,
    selection::several_ranges,
    selection::conditions,
    selection::conditions_on_ranges,
    selection::encoded_neighbours,
    compression::files_are_compressed_for_those_who_accept_it,
    framing::pipelined_requests_are_answered_in_order,
    framing::bodies_of_every_framing,
    framing::trailers_of_a_request,
    framing::a_body_is_waited_for_with_100_continue,
    framing::content_beyond_the_limit,
    framing::content_of_a_file_beyond_the_limit,
    framing::methods,
    connections::a_half_close_still_gets_its_answers,
    connections::clients_that_vanish_leave_nothing_behind,
    connections::many_clients_at_once,
    connections::the_counters_agree,
    failures::a_panic_is_a_500_and_costs_nothing,
    later::an_answer_of_a_task,
    later::a_task_woken_by_another_thread,
    later::a_task_that_panics_or_says_nothing_costs_nothing,
    later::a_client_that_resets_its_connection_cancels_its_task,
    later::a_client_that_half_closes_gets_its_answer,
    later::a_reset_behind_a_half_close_cancels,
    later::a_client_that_closed_is_found_out_by_writing,
    later::a_half_close_cancels_a_task_that_asked_for_it,
    later::content_within_a_tasks_own_limit,
    regression::pipelined_requests_were_dropped_by_a_drain,
    regression::a_task_that_was_woken_waited_for_idle_connections,
    reloads::blocking_steps_keep_their_handler,
    reloads::an_app_keeps_its_handler_while_content_is_gathered,
    slow_uploads::slow_uploads_hold_no_worker,
    slow_uploads::uploads_and_event_streams_leave_every_worker_to_others,
    slow_uploads::as_many_tasks_wait_as_there_are_connections,
    connection_log::what_a_client_ends,
    connection_log::what_a_drain_ends,
    connection_log::who_is_closed_at_capacity,
    connection_log::who_is_cut,
    connection_log::many_at_once_have_a_line_each,
    #[ignore = "long: half a second for each model, or more"]
    replaced::fifty_renames_under_load_cut_no_answer,
    shutdown::a_drain_closes_idle_connections_at_once,
    shutdown::a_drain_finishes_what_was_accepted,
    shutdown::a_drain_waits_for_a_request_that_has_begun,
    shutdown::a_drain_begins_when_its_delay_is_over,
    #[ignore = "long: half a second for each model, or more"]
    shutdown::before_a_drain_after_a_delay_all_is_as_ever,
}

some_models_over_http2! {
    later::content_in_both_directions_at_once,
    later::a_task_that_takes_too_long_is_dropped,
    later::a_task_goes_down_with_the_server,
    connections::a_slow_reader_gets_every_byte,
    connections::an_idle_connection_is_closed_without_an_answer,
    connections::a_slow_body_gets_408,
    connections::a_client_that_does_not_read_is_closed,
    failures::a_file_truncated_while_it_is_sent_ends_the_connection,
    failures::a_file_rewritten_while_it_is_sent_never_completes_mixed,
    replaced::a_rename_over_a_file_cut_those_who_were_downloading_it,
    replaced::permissions_and_links_cut_those_who_were_downloading_a_file,
    last_words::the_error_is_read_by_a_client_that_sends_10_mb_first,
    last_words::a_drain_answers_what_came_while_an_answer_was_on_its_way,
    shutdown::a_drain_answers_what_has_arrived_unread,
    shutdown::the_grace_ends,
    shutdown::the_second_stage_ends_at_once,
    config::a_new_configuration_under_load_loses_no_request,
    config::listeners_have_limits_of_their_own,
    elsewhere::a_file_system_that_hung_stopped_every_loop,
    connection_log::what_the_server_ends,
}

/// Over TLS, too, whose records begin and end anywhere in frames.
mod by_tls {
    some_models_over_http2! {
        @by over_http2_and_tls:
        files::files_byte_for_byte,
        files::head_says_what_get_says,
        selection::ranges,
        framing::pipelined_requests_are_answered_in_order,
        framing::bodies_of_every_framing,
        connections::a_half_close_still_gets_its_answers,
        connections::many_clients_at_once,
        later::an_answer_of_a_task,
        later::content_in_both_directions_at_once,
        shutdown::a_drain_closes_idle_connections_at_once,
        shutdown::a_drain_finishes_what_was_accepted,
    }
}

/// Cases that stay out, and why.
const STAY_OUT: &[(&str, &[&str])] = &[
    (
        "they are about the bytes of HTTP/1: lines, heads, chunks. Those of frames: crates/proto/tests/http2",
        &[
            "framing::well_formed_requests_on_one_connection",
            "framing::bad_requests_are_answered_and_end_the_connection",
            "framing::other_protocols_are_refused_at_once",
            "framing::how_much_content_is_judged_with_its_head",
            "framing::an_error_is_read_though_the_client_goes_on_sending",
            "framing::cuts_at_every_byte",
            "framing::heads_beyond_the_limits",
            "framing::http_1_0_closes_unless_asked",
            "connections::a_slow_head_gets_408",
            "slow_uploads::a_chunked_upload_of_framing_is_too_slow",
            "regression::content_over_its_limit_was_413_or_400_by_how_it_was_cut",
            "connection_log::what_an_http_1_client_ends",
            "connection_log::who_is_too_slow",
        ],
    ),
    (
        "over HTTP/2 no response is the last of its connection",
        &[
            "last_words::a_last_answer_is_whole_though_more_came_behind_its_request",
            "last_words::a_last_answer_is_read_though_more_came_while_it_was_made",
        ],
    ),
    (
        "a half-close leaves no windows for the rest of the content",
        &["later::a_client_that_half_closes_behind_its_content_gets_its_answer"],
    ),
    (
        "a new connection is refused before it is known what it speaks",
        &["connection_log::who_makes_room_and_who_gets_none"],
    ),
    (
        "nothing in it is of a version of HTTP",
        &["shutdown::a_server_restarts_on_its_port_at_once"],
    ),
    (
        "two hundred find the same",
        &["replaced::two_thousand_renames_under_load_cut_no_answer"],
    ),
];

/// Files whose cases speak a protocol of their own, or are about a version. Cases of all others are those of any.
const WITH_A_PROTOCOL: [&str; 7] = [
    "handshake_bound",
    "http2",
    "layered",
    "streams",
    "tls",
    "tls_drain",
    "tls_http2",
];

/// The other files that have cases, by name, and their texts.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let paths = std::fs::read_dir(folder).unwrap();
    let paths = paths.map(|entry| entry.unwrap().path());
    let named = paths.map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(path).unwrap())
    });
    let has_cases = |(name, text): &(String, String)| {
        text.contains(CASES) && !WITH_A_PROTOCOL.contains(&name.as_str())
    };
    named.filter(has_cases).collect()
}

/// How the list of a file's cases begins.
const CASES: &str = "\nevery_model! {";

/// The lines of a macro's invocation.
fn lines_of<'t>(text: &'t str, invocation: &str) -> Vec<&'t str> {
    let (_, rest) = text.split_once(invocation).expect(invocation);
    let (lines, _) = rest.split_once("\n}").expect(invocation);
    let lines = lines.lines().map(str::trim);
    let names = lines.filter_map(|line| line.strip_suffix(','));
    names.collect()
}

#[test]
fn every_case_runs_over_http2_or_there_is_a_reason() {
    let own = include_str!("http2.rs");
    let mut here = lines_of(own, "\nevery_model_over_http2! {");
    here.extend(lines_of(own, "\nsome_models_over_http2! {"));
    let out: Vec<&str> = STAY_OUT
        .iter()
        .flat_map(|(_, cases)| *cases)
        .copied()
        .collect();
    let mut known = 0;
    for (file, text) in files() {
        for case in lines_of(&text, CASES) {
            let name = format!("{file}::{case}");
            let counts = [&here, &out].map(|list| list.iter().filter(|it| **it == name).count());
            assert_eq!(counts[0] + counts[1], 1, "{name}: {counts:?}");
            known += 1;
        }
    }
    assert_eq!(here.len() + out.len(), known, "one is no case any more");
}

every_model! {
    a_connection_speaks_what_it_begins_with,
    a_server_of_one_version_alone,
    the_version_is_agreed_on_over_tls,
    a_request_for_another_host_is_misdirected,
    a_style_sheet_comes_before_the_pictures,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const GET: &str = "GET /-/echo HTTP/1.1\r\nHost: h\r\n\r\n";

/// Reads the server's first frame, which is SETTINGS.
fn first_frame(client: &mut Client) {
    let head = client.bytes(9);
    assert_eq!((head[3], &head[5..]), (4, &[0; 4][..]), "{head:?}");
}

fn a_connection_speaks_what_it_begins_with(model: Model) {
    let server = Server::start(model);
    // However the preface is cut.
    for cut in [1, 5, 13, 14, 15, 24, 30] {
        let mut client = server.connect();
        let (first, then) = PREFACE.split_at(cut);
        client.send(first).send(then);
        first_frame(&mut client);
        drop(client);
        server.await_no_connections();
    }
    // What only looks like it for a while.
    let mut client = server.connect();
    let answer = client
        .send("PR")
        .send("I /-/echo HTTP/1.1\r\nHost: h\r\n\r\n")
        .answer();
    assert_eq!(answer.status, 501);
    // Behind a request it is too late.
    assert_eq!(client.send(GET).answer().status, 200);
    assert_eq!(client.send(PREFACE).answer().status, 505);
    client.end();
}

fn a_server_of_one_version_alone(model: Model) {
    let server = Server::start_of(Http2::Off, model.options(), limits());
    let mut client = server.connect();
    assert_eq!(client.send(&PREFACE[..14]).answer().status, 505);
    client.half_close().end();
    drop(server);

    let server = Server::start_of(Http2::Only, model.options(), limits());
    let mut client = server.connect();
    client.send(PREFACE);
    first_frame(&mut client);
    drop(client);
    let mut client = server.connect();
    client.send(GET);
    first_frame(&mut client);
    let rest = client.half_close().rest();
    assert!(!rest.windows(4).any(|it| it == b"HTTP"), "HTTP/1");
    let go_away = rest.len() - 17;
    assert_eq!(
        (rest[go_away + 3], rest[rest.len() - 1]),
        (7, 1),
        "GOAWAY, PROTOCOL_ERROR"
    );
}

/// The response to a request of HTTP/2, as HTTP/1: its head and its content.
fn get_over(stream: &mut (impl Read + Write), host: &str, path: &str) -> (String, Vec<u8>) {
    let mut preface = Vec::new();
    let mut layer = Translated::new("https", &mut preface);
    let mut out = Buffer::from(preface);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    layer.send(request.as_bytes(), &mut out);
    let (mut plain, mut piece) = (Buffer::default(), [0; 16_384]);
    loop {
        let end = plain.windows(4).position(|it| it == b"\r\n\r\n");
        if let Some(head_len) = end.map(|end| end + 4) {
            let head = String::from_utf8(plain[..head_len].to_vec()).unwrap();
            let (_, len) = head.split_once("content-length: ").unwrap();
            let len: usize = len.split("\r\n").next().unwrap().parse().unwrap();
            if plain.len() == head_len + len {
                return (head, plain[head_len..].to_vec());
            }
        }
        stream.write_all(&std::mem::take(&mut out)).unwrap();
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the end after {} bytes", plain.len());
        let bytes = &mut piece[..count];
        layer.received(bytes, &mut plain, &mut out).unwrap();
    }
}

/// A server, and the first of its certificates. The other one is for `second.example`.
fn start(model: Model, http2: Http2) -> (Server, Certificate) {
    let own = self_signed(&["localhost".to_owned()]).unwrap();
    let trusted = Authorities::one(own.der()).unwrap();
    let client = TlsClient::new(&trusted, Profile::Intermediate).unwrap();
    let second = self_signed(&["second.example".to_owned()]).unwrap();
    let certificates = Arc::new(Certificates::new(vec![own.clone(), second]));
    let options = TlsOptions {
        http2,
        ..TlsOptions::default()
    };
    let tls = TlsServer::new(&certificates, &options).unwrap();
    (
        Server::start_tls(model.options(), limits(), (tls, client)),
        own,
    )
}

/// A connection to it, once its handshake is done.
fn connect(server: &Server, mut config: ClientConfig, offered: &[&str]) -> TlsStream {
    config.alpn_protocols = offered.iter().map(|it| it.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    stream
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

fn a_request_for_another_host_is_misdirected(model: Model) {
    let (server, own) = start(model, Http2::On);
    for (host, status) in [
        ("localhost", 200),
        ("LOCALHOST:8443", 200),
        ("second.example", 200),
        ("second.example:8443", 200),
        ("other.example", 421),
        ("www.second.example", 421),
    ] {
        let mut stream = connect(&server, client_of(&own, &[&TLS13]), &["h2"]);
        let (head, _) = get_over(&mut stream, host, "/-/echo");
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{host}: {head}"
        );
    }
}

fn the_version_is_agreed_on_over_tls(model: Model) {
    const LEN: usize = 1_000_000;
    for (http2, offered, agreed) in [
        (Http2::On, &["h2", "http/1.1"][..], Some("h2")),
        (Http2::On, &["http/1.1", "h2"], Some("h2")),
        (Http2::On, &["http/1.1"], Some("http/1.1")),
        (Http2::On, &[], None),
        (Http2::Off, &["h2", "http/1.1"], Some("http/1.1")),
        (Http2::Only, &["h2", "http/1.1"], Some("h2")),
    ] {
        let (server, own) = start(model, http2);
        let content = pattern(LEN);
        std::fs::write(server.path().join("large.bin"), &content).unwrap();
        for version in [&TLS12, &TLS13] {
            let mut stream = connect(&server, client_of(&own, &[version]), offered);
            let protocol = stream.conn.alpn_protocol().map(<[u8]>::to_vec);
            assert_eq!(protocol.as_deref(), agreed.map(str::as_bytes));
            if agreed == Some("h2") {
                let (head, got) = get_over(&mut stream, "localhost", "/large.bin");
                assert!(head.starts_with("HTTP/1.1 200 ") && got == content);
            } else {
                let get = "GET /large.bin HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
                stream.write_all(get.as_bytes()).unwrap();
                let mut response = Vec::new();
                stream.read_to_end(&mut response).unwrap();
                assert!(response.starts_with(b"HTTP/1.1 200 ") && response.ends_with(&content));
            }
        }
    }
}

/// The head of the next frame.
fn next_frame(client: &mut Client) -> FrameHead {
    let head: [u8; HEAD_BYTES] = client.bytes(HEAD_BYTES).try_into().unwrap();
    let head = FrameHead::parse(&head);
    client.bytes(head.len);
    head
}

fn get_with_priority(stream: u32, path: &str, priority: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "h"),
        (":path", path),
        ("priority", priority),
    ] {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        Encoder::default().field(name, value, Indexing::Not, &mut block);
    }
    let flag = flags::END_HEADERS | flags::END_STREAM;
    frame(Kind::Headers, flag, stream, &block)
}

fn initial_window(value: u32) -> Vec<u8> {
    let (id, mut setting) = (Setting::INITIAL_WINDOW_SIZE, Vec::new());
    Setting { id, value }.write(&mut setting);
    frame(Kind::Settings, 0, 0, &setting)
}

/// By the order of frames, whatever the time. The pictures are asked for first, and the style sheet is longer than
/// each of them. Windows open when all responses have begun.
fn a_style_sheet_comes_before_the_pictures(model: Model) {
    const PICTURES: u32 = 6;
    const SHEET: u32 = 2 * PICTURES + 1;
    let server = Server::start(model);
    std::fs::write(server.path().join("sheet.css"), pattern(120_000)).unwrap();
    let mut client = server.connect();
    client.send(PREFACE).send(initial_window(0));
    for stream in (1..SHEET).step_by(2) {
        client.send(get_with_priority(stream, "/middle.bin", "u=3, i"));
    }
    client.send(get_with_priority(SHEET, "/sheet.css", "u=0"));
    let mut begun = 0;
    while begun <= PICTURES {
        begun += u32::from(next_frame(&mut client).kind == Kind::Headers);
    }
    let more = 1_u32 << 20;
    let window = frame(Kind::WindowUpdate, 0, 0, &more.to_be_bytes());
    client.send([initial_window(more), window].concat());
    let (mut content, mut ended) = (Vec::new(), 0);
    while ended <= PICTURES {
        let head = next_frame(&mut client);
        if head.kind == Kind::Data {
            content.push(head.stream);
            ended += u32::from(head.has(flags::END_STREAM));
        }
    }
    let last = content.iter().rposition(|stream| *stream == SHEET).unwrap();
    let is_first = content[..last].iter().all(|stream| *stream == SHEET);
    assert!(is_first, "{content:?}");
}
