//! The mount over HTTP/2: cases of other files, as streams, and what an app sees of such a request.

use std::path::Path;

use crate::fixture::Running;
use crate::model::Model;

/// Cases of other files, over HTTP/2. What differs between models is tested in the server's own suite.
macro_rules! some_models_over_http2 {
    ($($file:ident::$case:ident,)*) => {
        $(mod $case {
            fn over_http2(model: crate::model::Model) {
                crate::fixture::over_http2(crate::$file::$case, model);
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
}

some_models_over_http2! {
    seen::content_in_every_framing,
    seen::trailers_behind_content,
    seen::content_that_nobody_reads,
    seen::content_beyond_the_apps_limit,
    seen::what_the_http_types_cannot_hold,
    given::statuses_and_empty_answers,
    given::fields_as_given,
    given::content_of_known_and_unknown_length,
    given::to_head,
    given::trailers,
    given::lengths_that_do_not_hold,
    given::timers_sockets_and_tasks,
    given::a_panic_is_a_500,
    streams::events_arrive_as_they_are_written,
    streams::an_echo_of_more_than_all_buffers,
    streams::an_upload_is_read_as_the_app_reads_it,
    ends::a_client_that_leaves_drops_the_future_of_an_app_that_is_notified,
    ends::a_client_that_resets_drops_the_future,
    ends::a_client_that_half_closes_gets_its_answer,
    ends::an_app_that_takes_too_long,
    ends::requests_that_wait_hold_no_worker,
    compression::codings_are_negotiated,
    compression::what_must_not_be_changed_stays_as_it_is,
    compression::entity_tags_become_weak,
    compression::what_may_be_secret_stays_as_it_is,
    compression::content_of_any_length_comes_out_as_it_was,
    compression::trailers_follow_the_content,
    compression::events_leave_in_chunks_as_they_are_written,
    compression::no_loop_compresses,
    axum_examples::todos,
    axum_examples::sse,
    axum_examples::multipart_form,
    axum_examples::stream_to_file,
    axum_examples::key_value_store,
    overload::an_app_with_a_queue_of_its_own_gets_what_it_can_answer_in_time,
    proxies::a_client_behind_a_proxy,
    secured::the_subject_of_a_clients_certificate,
    secured::transport_security_is_said_once,
    secured::early_data_is_marked_and_never_changes_anything,
    secured::an_early_data_field_of_the_clients_own,
    secured::an_echo_in_records_of_odd_sizes,
    secured::a_slow_reader_of_much_content,
    http2::a_request_as_it_was_sent_by_streams,
}

/// Cases that stay out, and why.
const STAY_OUT: &[(&str, &[&str])] = &[
    (
        "they are about the version of HTTP/1, and have a twin here",
        &[
            "seen::a_request_as_it_was_sent",
            "compression::events_leave_as_they_are_written",
        ],
    ),
    (
        "they are about the bytes of HTTP/1: versions, what follows a length, what sockets hold. \
         Windows: crates/proto/tests/http2/windows.rs",
        &[
            "given::to_http_1_0",
            "given::trailers_behind_a_length_of_http_1",
            "streams::a_reader_that_stops_stops_the_app",
        ],
    ),
    (
        "over HTTP/2 no response is the last of its connection",
        &["compression::lengths_that_do_not_hold_end_the_response"],
    ),
];

/// How the list of a file's cases begins.
const CASES: &str = "\nevery_model! {";

/// The lines of a macro's invocation.
fn lines_of<'t>(text: &'t str, invocation: &str) -> Vec<&'t str> {
    let (_, rest) = text.split_once(invocation).expect(invocation);
    let (lines, _) = rest.split_once("\n}").expect(invocation);
    let lines = lines.lines().map(str::trim);
    lines.filter_map(|line| line.strip_suffix(',')).collect()
}

/// All cases of the suite, by file and name.
fn cases() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let paths = std::fs::read_dir(folder).unwrap();
    let paths = paths.map(|entry| entry.unwrap().path());
    let mut cases = Vec::new();
    for path in paths.filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(&path).unwrap();
        if text.contains(CASES) {
            let file = path.file_stem().unwrap().to_str().unwrap();
            let names = lines_of(&text, CASES);
            cases.extend(names.iter().map(|name| format!("{file}::{name}")));
        }
    }
    cases
}

#[test]
fn every_case_runs_over_http2_or_there_is_a_reason() {
    let mut here = lines_of(include_str!("http2.rs"), "\nsome_models_over_http2! {");
    here.retain(|case| !case.starts_with("http2::"));
    let out: Vec<&str> = STAY_OUT
        .iter()
        .flat_map(|(_, cases)| *cases)
        .copied()
        .collect();
    let cases = cases();
    for name in &cases {
        let counts = [&here, &out].map(|list| list.iter().filter(|it| *it == name).count());
        assert_eq!(counts[0] + counts[1], 1, "{name}: {counts:?}");
    }
    assert_eq!(
        here.len() + out.len(),
        cases.len(),
        "one is no case any more"
    );
}

pub fn a_request_as_it_was_sent_by_streams(model: Model) {
    let server = Running::start(model);
    let mut client = server.connect();
    client.send(
        b"OPTIONS /saw/a%20b//c?x=%C3%A4&y&=z HTTP/1.1\r\nHost: Example.org:80\r\nX-Twice: 1\r\n\
          X-Opaque: \xff\x80\ttab\r\nX-Twice: 2\r\nX-Empty:\r\nTE: trailers\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!(answer.status, 200);
    let said = String::from_utf8(answer.body).unwrap();
    let mut lines: Vec<_> = said.lines().collect();
    let mine = client.stream.local_addr().unwrap();
    let wanted = [
        "OPTIONS /saw/a%20b//c?x=%C3%A4&y&=z HTTP/2.0",
        &format!("client Some({}) secure false", mine.ip()),
        "content ",
        "host: Example.org:80",
        "length Some(0)",
        &format!("local Some({})", server.address),
        &format!("peer Some({mine})"),
        "te: trailers",
        "x-empty: ",
        "x-opaque: \\xff\\x80\\ttab",
        "x-twice: 1",
        "x-twice: 2",
    ];
    lines[1..].sort_by_key(|line| line.split(' ').next());
    assert_eq!(lines, wanted);
}
