//! Responses that are kept somewhere and encoded straight into the output: whoever reads them sees no
//! difference to others.

use loadline_proto::http2::frame::{ErrorCode, Kind, Setting, flags};
use loadline_proto::{HttpDate, Limits};

use crate::connection::{Connection, Frame};

/// The fields of a response, in order.
fn fields(frames: &[Frame], stream: u32) -> Vec<String> {
    let mut heads = frames.iter().filter(|frame| frame.kind == Kind::Headers);
    let head = heads.find(|frame| frame.stream == stream).unwrap();
    let text = String::from_utf8(head.payload.clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// What this one comes to.
fn expected(status: u16, date: &str, len: Option<usize>) -> Vec<String> {
    let mut all = vec![
        format!(":status: {status}"),
        "server: Loadline".to_owned(),
        format!("date: {date}"),
        "content-type: text/plain".to_owned(),
        "etag: \"1\"".to_owned(),
        "set-cookie: a=b".to_owned(),
        "x-own: y".to_owned(),
    ];
    all.extend(len.map(|len| format!("content-length: {len}")));
    all
}

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

#[test]
fn they_say_the_same_the_first_time_and_later() {
    let mut connection = Connection::new();
    let mut stream = 1;
    for (date, unix_s) in [(DATE, 784_111_777), (LATER, 784_111_778)] {
        connection.date = HttpDate::at(unix_s);
        for _ in 0..3 {
            for (target, status, len) in [
                ("/kept/600", 200, 600),
                ("/kept/0", 200, 0),
                ("/kept/9000", 200, 9000),
                ("/kept/16384", 200, 16_384),
                ("/kept/7/404", 404, 7),
            ] {
                let frames = connection.get(stream, target).take();
                let head = fields(&frames, stream);
                assert_eq!(head, expected(status, date, Some(len)), "{target}");
                let content = (vec![b'k'; len], true);
                assert_eq!(Connection::content(&frames, stream), content, "{target}");
                let more = u32::try_from(len).unwrap();
                if more > 0 {
                    connection.window(0, more);
                }
                stream += 2;
            }
            let frames = connection.get(stream, "/kept/5/304").take();
            assert_eq!(fields(&frames, stream), expected(304, date, None));
            assert_eq!(Connection::content(&frames, stream), (vec![], true));
            stream += 2;
        }
    }
    let _ = connection.take();
}

#[test]
fn head_has_their_length() {
    let mut connection = Connection::new();
    for stream in [1, 3, 5] {
        let block = connection.request("HEAD", "/kept/600", &[]);
        let flag = flags::END_STREAM | flags::END_HEADERS;
        let frames = connection.frame(Kind::Headers, flag, stream, &block).take();
        assert_eq!(fields(&frames, stream), expected(200, DATE, Some(600)));
        assert_eq!(Connection::content(&frames, stream), (vec![], true));
    }
}

#[test]
fn what_the_handler_takes_back_was_never_there() {
    let mut connection = Connection::new();
    connection.get(1, "/kept/600").get(3, "/kept/600/block");
    connection.get(5, "/kept/600/error").get(7, "/kept/600");
    let frames = connection.take();
    let contents = [1, 3, 7].map(|stream| Connection::content(&frames, stream).0.len());
    assert_eq!(contents, [600, 7, 600]);
    let statuses: Vec<_> = Connection::statuses(&frames);
    let statuses: Vec<_> = statuses.iter().map(|(_, status)| &**status).collect();
    assert_eq!(statuses, ["200", "200", "500", "200"]);
    assert_eq!(fields(&frames, 7), expected(200, DATE, Some(600)));
}

#[test]
fn windows_hold_for_them() {
    let mut connection = Connection::new();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 1000);
    connection.get(1, "/kept/600").get(3, "/kept/1000");
    connection.get(5, "/kept/1001");
    let frames = connection.take();
    let contents = [1, 3, 5].map(|stream| {
        let (content, is_end) = Connection::content(&frames, stream);
        (content.len(), is_end)
    });
    assert_eq!(contents, [(600, true), (1000, true), (1000, false)]);
    let frames = connection.window(5, 1).take();
    assert_eq!(Connection::content(&frames, 5), (vec![b'k'], true));
    // The connection's window is one for all.
    let taken = 65_535 - 600 - 1000 - 1001;
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 60_000);
    connection.get(7, "/kept/16384").get(9, "/kept/16384");
    connection.get(11, "/kept/16384").get(13, "/kept/16384");
    let frames = connection.take();
    let (content, is_end) = Connection::content(&frames, 13);
    assert_eq!((content.len(), is_end), (taken - 3 * 16_384, false));
}

#[test]
fn a_client_without_a_table_has_them_too() {
    let mut connection = Connection::new();
    for (size, stream) in [(0, 1), (0, 3), (4096, 5), (4096, 7), (60, 9), (60, 11)] {
        connection.setting(Setting::HEADER_TABLE_SIZE, size);
        let frames = connection.get(stream, "/kept/600").take();
        assert_eq!(fields(&frames, stream), expected(200, DATE, Some(600)));
    }
}

#[test]
fn their_request_may_be_incomplete() {
    let mut connection = Connection::new();
    connection.get(1, "/kept/600");
    connection.post(3, "/kept/600", &[]);
    let frames = connection.take();
    assert!(Connection::content(&frames, 3).1);
    assert_eq!(Connection::errors(&frames), []);
    let limit = &[("content-length", "1048577")];
    connection.post(5, "/kept/600", limit);
    let frames = connection.take();
    assert_eq!(Connection::statuses(&frames), [(5, "413".to_owned())]);
    assert_eq!(Connection::errors(&frames), [], "the client may still send");
    let grace_ms = Limits::default().linger_pace.grace_ms;
    let errors = Connection::errors(&connection.pass(grace_ms).take());
    let code = ErrorCode::NoError as u32;
    assert_eq!(errors, [(3, code), (5, code)]);
}
