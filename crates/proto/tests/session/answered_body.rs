//! What is wrong with content that nobody asked for ends the connection, but is not answered where
//! its request has its answer already: either the handler answers or the fault, never both.

use crate::drive::{Driver, config};
use loadline_proto::{Limits, Outcome, Status};

#[test]
fn a_request_with_malformed_content_gets_one_answer() {
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    // The second one is malformed by what comes behind it alone.
    for (content, at_once) in [
        (&b"x\r\n"[..], 400),
        (b"5\r\nhello", 405),
        (b"1\r\nab", 400),
    ] {
        for together in [true, false] {
            let mut driver = Driver::new(&config(Limits::default()), |exchange, _| {
                exchange.response.error(Status::METHOD_NOT_ALLOWED);
                Outcome::Ready
            });
            match together {
                true => driver.feed(&[&head[..], content].concat()),
                false => driver.feed(head).feed(content),
            };
            // Never a chunk, or not one that ends: what comes next cannot be a request either.
            driver.feed(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
            let expected = if together { at_once } else { 405 };
            assert_eq!(driver.statuses(), [expected]);
        }
    }
}
