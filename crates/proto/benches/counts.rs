//! What a request through the core costs in numbers that do not depend on the machine's mood.
//!
//! `counts REQUEST N` does N requests, for callgrind to count their instructions: what N + M take
//! more than N is what M take. Without arguments it prints allocations and sizes. `./x bench core`
//! does both.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

#[path = "core/request.rs"]
mod request;

use loadline_proto::{ClientSession, ServerSession};

use request::{BROWSER, WRK, with_session};

const CASES: [(&str, &[u8]); 2] = [("wrk", WRK), ("browser", BROWSER)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [name, count] = &arguments[..] {
        let case = CASES.iter().find(|(case, _)| case == name);
        let (_, request) = case.expect("one of the cases");
        let count: u32 = count.parse().expect("a number");
        return with_session(request, |exchange| (0..count).for_each(|_| exchange()));
    }
    for (name, request) in CASES {
        with_session(request, |exchange| {
            (0..100).for_each(|_| exchange());
            let seen = allocation_counter::measure(|| (0..100).for_each(|_| exchange()));
            println!("allocations of 100 {name} requests: {}", seen.count_total);
        });
    }
    println!("bytes of a server session: {}", size_of::<ServerSession>());
    println!("bytes of a client session: {}", size_of::<ClientSession>());
}
