//! The mount over HTTP/2: cases of other files, as streams, and what an app sees of such a request.

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

// What stays out is about the bytes or the version of HTTP/1 (`to_http_1_0`, a reader that stops between
// socket buffers, events without chunks), or brings its own connections (TLS, Unix sockets).
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
    http2::a_request_as_it_was_sent_by_streams,
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
