//! One answer after the other, ends of connections, and content that nobody reads.

use loadline_proto::{ClientSession, Limits, Method, Received, Reply, ReplyFault};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn asked(method: Method) -> ClientSession {
    let mut session = ClientSession::new();
    session.requested(method);
    session
}

fn feed(session: &mut ClientSession, bytes: &[u8]) -> Received {
    session.received(bytes, &Limits::default(), &mut ())
}

#[test]
fn a_session_is_small() {
    assert!(
        size_of::<ClientSession>() <= 64,
        "{}",
        size_of::<ClientSession>()
    );
    println!("{} bytes", size_of::<ClientSession>());
}

#[test]
fn answers_follow_each_other() {
    let mut session = ClientSession::new();
    for round in 0..3 {
        for cut in 0..OK.len() {
            session.requested(Method::Get);
            let first = feed(&mut session, &OK[..cut]);
            assert_eq!(first, Received::More);
            let Received::Reply(reply) = feed(&mut session, &OK[cut..]) else {
                panic!("round {round}, cut at {cut}");
            };
            assert_eq!((reply.content_bytes, reply.keep_alive), (5, true));
            assert_eq!(session.content_left(), None);
        }
        session.requested(Method::Head);
        let head = &OK[..OK.len() - 5];
        assert!(matches!(feed(&mut session, head), Received::Reply(_)));
    }
}

#[test]
fn nobody_asked() {
    let mut session = ClientSession::new();
    assert_eq!(feed(&mut session, b""), Received::More);
    assert_eq!(
        feed(&mut session, OK),
        Received::Fault(ReplyFault::Unsolicited)
    );
    session.requested(Method::Get);
    assert!(
        matches!(feed(&mut session, OK), Received::Fault(_)),
        "it stays so"
    );
    let mut session = asked(Method::Get);
    assert!(matches!(feed(&mut session, OK), Received::Reply(_)));
    assert_eq!(
        feed(&mut session, b"H"),
        Received::Fault(ReplyFault::Unsolicited)
    );
}

#[test]
fn ends_in_the_middle() {
    let eof = |bytes: &[u8]| {
        let mut session = asked(Method::Get);
        assert_eq!(feed(&mut session, bytes), Received::More);
        session.received_eof()
    };
    assert_eq!(eof(b""), Received::Fault(ReplyFault::ClosedEarly));
    let head_len = OK.len() - 5;
    for cut in 1..head_len {
        assert_eq!(
            eof(&OK[..cut]),
            Received::Fault(ReplyFault::CutHead),
            "{cut}"
        );
    }
    for cut in head_len..OK.len() {
        let content_bytes = (cut - head_len) as u64;
        let fault = ReplyFault::CutContent { content_bytes };
        assert_eq!(eof(&OK[..cut]), Received::Fault(fault));
    }
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(eof(interim), Received::Fault(ReplyFault::CutHead));
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r";
    let fault = ReplyFault::CutContent { content_bytes: 5 };
    assert_eq!(eof(chunked), Received::Fault(fault));
    assert_eq!(
        eof(b"HTTP/1.1 200 OK\r\n\r\nhello"),
        Received::Reply(Reply {
            status: 200,
            content_bytes: 5,
            keep_alive: false,
            excess_bytes: 0
        })
    );
}

#[test]
fn a_connection_that_was_cut_completes_nothing() {
    let cut = |bytes: &[u8]| {
        let mut session = asked(Method::Get);
        assert_eq!(feed(&mut session, bytes), Received::More);
        session.received_cut()
    };
    let fault = ReplyFault::CutContent { content_bytes: 5 };
    let without_length = b"HTTP/1.1 200 OK\r\n\r\nhello";
    assert_eq!(cut(without_length), Received::Fault(fault));
    assert_eq!(cut(b""), Received::Fault(ReplyFault::ClosedEarly));
    assert_eq!(cut(&OK[..10]), Received::Fault(ReplyFault::CutHead));
}

#[test]
fn nothing_follows_the_end_of_a_connection() {
    let mut session = asked(Method::Get);
    assert_eq!(
        feed(&mut session, b"HTTP/1.1 200 OK\r\n\r\nhello"),
        Received::More
    );
    assert!(matches!(session.received_eof(), Received::Reply(_)));
    session.requested(Method::Get);
    assert!(matches!(feed(&mut session, OK), Received::Fault(_)));
}

#[test]
fn content_may_be_thrown_away_unread() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhello";
    let mut session = asked(Method::Get);
    assert_eq!(session.content_left(), None);
    assert_eq!(feed(&mut session, head), Received::More);
    assert_eq!(session.content_left(), Some(999_995));
    assert_eq!(session.skipped(0), Received::More);
    assert_eq!(session.skipped(900_000), Received::More);
    assert_eq!(feed(&mut session, &[b'x'; 995]), Received::More);
    let left = session.content_left().unwrap();
    let Received::Reply(reply) = session.skipped(left) else {
        panic!("not complete");
    };
    assert_eq!((reply.content_bytes, reply.excess_bytes), (1_000_000, 0));
    assert_eq!(session.content_left(), None);

    let mut session = asked(Method::Get);
    let _ = feed(&mut session, head);
    let Received::Reply(reply) = session.skipped(1_000_000) else {
        panic!("not complete");
    };
    assert_eq!((reply.content_bytes, reply.excess_bytes), (1_000_000, 5));
    assert!(!reply.keep_alive);

    let mut session = asked(Method::Get);
    let _ = feed(&mut session, b"HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(
        (session.content_left(), session.skipped(7)),
        (None, Received::More)
    );
    assert!(matches!(session.received_eof(), Received::Reply(reply) if reply.content_bytes == 7));
}

#[test]
fn what_is_not_content_may_not_be_thrown_away() {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for begun in [&b""[..], &OK[..10], chunked] {
        let mut session = asked(Method::Get);
        assert_eq!(feed(&mut session, begun), Received::More);
        assert!(matches!(session.skipped(1), Received::Fault(_)));
    }
    let mut session = ClientSession::new();
    assert_eq!(session.skipped(1), Received::Fault(ReplyFault::Unsolicited));
}
