//! What a request through the core costs in numbers that do not depend on the machine's mood.
//!
//! `counts REQUEST N` does N requests, for callgrind to count their instructions: what N + M take
//! more than N is what M take. Without arguments it prints allocations and sizes. `./x bench core`
//! does both.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

#[path = "core/request.rs"]
mod request;

use loadline_proto::{ClientSession, ServerSession};

use request::{BROWSER, Sent, WRK, with_session};

const CASES: [(&str, Sent); 4] = [
    ("wrk", Sent::Http1(WRK)),
    ("browser", Sent::Http1(BROWSER)),
    ("http2", Sent::Http2(1)),
    ("http2_32", Sent::Http2(32)),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [name, count] = &arguments[..] {
        let case = CASES.iter().find(|(case, _)| case == name);
        let (_, sent) = case.expect("one of the cases");
        let count: u32 = count.parse().expect("a number");
        return with_session(sent, |exchange| (0..count).for_each(|_| exchange()));
    }
    for (name, sent) in &CASES {
        with_session(sent, |exchange| {
            (0..100).for_each(|_| exchange());
            let seen = allocation_counter::measure(|| (0..100).for_each(|_| exchange()));
            println!("allocations of 100 {name} requests: {}", seen.count_total);
        });
    }
    println!("bytes of a server session: {}", size_of::<ServerSession>());
    println!("bytes of a client session: {}", size_of::<ClientSession>());
}
