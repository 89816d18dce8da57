//! The program: from flags to an address, and counts at its end.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

#[test]
fn prints_where_it_listens_and_what_it_counted() {
    let mut stub = Command::new(env!("CARGO_BIN_EXE_loadline-stub"))
        .args(["--latency", "exp:100us", "--capacity", "1"])
        .args(["--fault", "status:503@2", "--until-eof"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(stub.stdout.take().unwrap());
    let mut address = String::new();
    out.read_line(&mut address).unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: stub\r\nConnection: close\r\n\r\n";
    for status in ["200", "503", "200"] {
        let mut client = TcpStream::connect(address.trim()).unwrap();
        client.write_all(request).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer.get(9..12), Some(status));
    }
    drop(stub.stdin.take());
    let mut counts = String::new();
    out.read_to_string(&mut counts).unwrap();
    assert!(stub.wait().unwrap().success());
    let expected = "connections 3\nrequests 3\nanswers 3\nmissed 0\nnot-understood 0\n\
                    fault Status(503)@2 1\ntrue-us p50 ";
    assert!(counts.starts_with(expected), "{counts}");
}

#[test]
fn what_it_does_not_understand_is_a_line_and_a_failure() {
    for (flag, value) in [
        ("--latency", "soon"),
        ("--fault", "cut-body"),
        ("--stall", "10s/1s"),
    ] {
        let stub = Command::new(env!("CARGO_BIN_EXE_loadline-stub"))
            .args([flag, value])
            .output()
            .unwrap();
        assert!(!stub.status.success());
        assert!(stub.stdout.is_empty());
        assert!(!stub.stderr.is_empty());
    }
}
