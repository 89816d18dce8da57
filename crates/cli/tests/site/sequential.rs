//! Under `sequential` clients come one at a time (P3).

use std::io::Read;
use std::time::Duration;

use crate::util::{Client, GRACE, Server, options, small_site};

#[test]
fn a_second_client_waits_until_the_first_is_gone() {
    let root = small_site();
    let server = Server::start(root.path(), &options("sequential"));
    let mut first = Client::connect(server.addr);
    assert_eq!(first.get("/file.html").status, 200);

    let mut second = Client::connect(server.addr);
    second.send("/file.html").unwrap();
    let stream = second.stream.get_mut();
    stream
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let silence = stream
        .read(&mut [0])
        .expect_err("no answer while the first client stays");
    assert_eq!(silence.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(
        first.get("/file.html").status,
        200,
        "the first goes on being served"
    );

    drop(first);
    second
        .stream
        .get_mut()
        .set_read_timeout(Some(GRACE))
        .unwrap();
    assert_eq!(second.answer().expect("an answer").status, 200);
}
