//! However the same bytes are cut into pieces, the answers are the same, to the byte.

use crate::drive::{Driver, config, echo, echo_blocking};
use loadline_proto::{Body, Context, Exchange, Limits, Outcome, RequestBody, Status};

/// Some requests that use every path through the session, each distinguishable from the others.
pub(crate) fn conversation() -> Vec<u8> {
    [
        "GET /first?q HTTP/1.1\r\nHost: h\r\n\r\n",
        "POST /length HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        "\r\nHEAD /head HTTP/1.1\r\nHost:h\r\n\r\n",
        "PUT /chunked HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
        "3;x=y\r\nabc\r\n0a\r\n0123456789\r\n0\r\nX-Sum: t\r\n\r\n",
        "POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n\r\nGET / H",
        "GET /missing HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET http://other/absolute HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /blocking HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /big HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /last HTTP/1.0\r\n\r\n",
    ]
    .concat()
    .into_bytes()
}

pub(crate) fn handle(exchange: &mut Exchange, cx: &mut Context<'_>) -> Outcome {
    match exchange.request.path() {
        b"/missing" => exchange.response.error(Status::NOT_FOUND),
        b"/blocking" => return Outcome::Blocking,
        b"/big" => exchange.response.body = Body::Bytes(vec![b'b'; 20_000]),
        b"/unread" => {
            assert!(matches!(
                exchange.request.body,
                RequestBody::Pending { len: Some(7) }
            ));
            echo_blocking(exchange);
        }
        _ => return echo(exchange, cx),
    }
    Outcome::Ready
}

pub(crate) fn output_of<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> Vec<u8> {
    let mut driver = Driver::new(&config(Limits::default()), handle);
    for piece in pieces {
        driver.feed(piece);
    }
    if !driver.is_closed() {
        driver.eof();
    }
    assert!(driver.is_closed(), "it ends");
    driver.output.clone()
}

#[test]
fn the_conversation_is_answered_in_full() {
    let output = output_of([&conversation()[..]]);
    let answers = crate::drive::parse_answers(&output, |n| n == 2);
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 404, 200, 200, 200, 200]);
    assert_eq!(answers[3].body, b"PUT /chunked abc0123456789");
    assert_eq!(answers[9].body, b"GET /last");
}

#[test]
fn every_single_cut() {
    let bytes = conversation();
    let whole = output_of([&bytes[..]]);
    for cut in 1..bytes.len() {
        let (left, right) = bytes.split_at(cut);
        assert_eq!(output_of([left, right]), whole, "cut at {cut}");
    }
}

#[test]
fn byte_by_byte_and_in_pieces_of_every_size() {
    let bytes = conversation();
    let whole = output_of([&bytes[..]]);
    for size in 1..bytes.len() {
        assert_eq!(output_of(bytes.chunks(size)), whole, "pieces of {size}");
    }
}

#[test]
fn all_pairs_of_cuts_of_short_inputs() {
    let inputs: [&[u8]; 6] = [
        b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.0\r\n\r\n",
        b"PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nBAD\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n",
        b"PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbcX0\r\n\r\n",
        b"\r\nGET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
    ];
    for bytes in inputs {
        let whole = output_of([bytes]);
        for first in 1..bytes.len() {
            for second in first + 1..bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                let shown = String::from_utf8_lossy(bytes);
                assert_eq!(
                    output_of(pieces),
                    whole,
                    "cuts at {first} and {second} of {shown:?}"
                );
            }
        }
    }
}

#[test]
fn answers_do_not_depend_on_how_fast_they_are_taken() {
    let bytes = conversation();
    let whole = output_of([&bytes[..]]);
    for piece in [1, 2, 3, 7, 100, 1001, 4096] {
        let mut driver = Driver::new(&config(Limits::default()), handle);
        driver.hold_output = true;
        driver.hold_blocking = true;
        driver.feed(&bytes);
        while !driver.is_closed() {
            if driver.held.is_some() {
                driver.progress(piece);
            } else if driver.parked.is_some() {
                driver.complete();
            } else {
                driver.eof();
            }
        }
        assert_eq!(driver.output, whole, "taken {piece} bytes at a time");
    }
}

#[test]
fn a_head_that_drips_in_costs_linear_work() {
    // 30 KiB byte by byte: looking at everything again for each byte would be half a thousand
    // million steps, seconds even in an optimised build. The bound is generous.
    let head = format!(
        "GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n",
        "a".repeat(30_000)
    );
    let short = format!(
        "GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n",
        "a".repeat(3_000)
    );
    let cost = |head: &str| {
        let before = cpu_time();
        for _ in 0..20 {
            let mut driver = Driver::new(&config(Limits::default()), handle);
            driver.drip(head.as_bytes());
            assert_eq!(driver.statuses(), [200]);
        }
        cpu_time() - before
    };
    let (dripped, tenth) = (cost(&head), cost(&short));
    assert!(
        dripped < tenth * 40 + std::time::Duration::from_millis(50),
        "ten times the length took {dripped:?} instead of {tenth:?}"
    );
}

/// Of this thread alone: what else runs on the machine does not count.
fn cpu_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::try_from(time).expect("not before the thread began")
}
