//! What takes long, and is run by `./x test --all`: the program under a mix of everything for half a
//! minute, beside other servers, in front of Firefox, of other clients of HTTP/2, of sslyze and of
//! testssl.sh, and with each database under each architecture.
//! One test after the other: each has the machine.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod acme;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../lab/bench.rs"]
mod bench;
mod client;
mod databases;
#[path = "../browser/program.rs"]
mod demo;
#[allow(unreachable_pub, reason = "other tests use it, too")]
#[path = "../../../acme/tests/acme/dns.rs"]
mod dns;
mod firefox;
#[path = "../../../accounts/tests/accounts/form_content.rs"]
mod form_content;
#[allow(dead_code, unreachable_pub, reason = "other tests use the rest of it")]
#[path = "../../../acme/tests/acme/front.rs"]
mod front;
#[path = "../../../acme/tests/acme/go_program.rs"]
mod go_program;
mod h2spec;
mod http2_clients;
mod others;
mod pages;
mod pairs;
#[allow(dead_code, unreachable_pub, reason = "other tests use the rest of it")]
#[path = "../../../acme/tests/acme/pebble.rs"]
mod pebble;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../program/util.rs"]
mod program;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../../../accounts/tests/accounts/servers.rs"]
mod servers;
mod soak;
mod sslyze;
mod testssl;
mod visitor;

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use loadline_server::Architecture;

/// What differs in who does what; the numbers of loops are those of a machine with two CPUs.
pub(crate) const ARCHITECTURES: [(&str, &str); 8] = [
    ("sequential", "--architecture sequential"),
    (
        "thread-per-connection",
        "--architecture thread-per-connection",
    ),
    ("thread-pool", "--architecture thread-pool --threads 32"),
    (
        "reactor",
        "--architecture reactor --loops 2 --workers 0 --file-io copy",
    ),
    (
        "reactor with workers",
        "--architecture reactor --loops 2 --workers 2 --file-io sendfile",
    ),
    (
        "reactor whose workers do socket I/O",
        "--architecture reactor --loops 1 --workers 2 --socket-io worker",
    ),
    (
        "proactor",
        "--architecture proactor --loops 2 --workers 0 --file-io copy",
    ),
    (
        "proactor with workers",
        "--architecture proactor --loops 2 --workers 2 --file-io sendfile",
    ),
];

/// Held by the test that has the machine.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The options of one of [`ARCHITECTURES`], unless this machine does not offer it, which is said.
pub(crate) fn options(name: &str) -> Option<Vec<&'static str>> {
    let (_, options) = ARCHITECTURES.iter().find(|(it, _)| *it == name).unwrap();
    let offered = match name.starts_with("proactor") {
        true => loadline_server::check_offered(Architecture::Proactor),
        false => Ok(()),
    };
    if let Err(error) = &offered {
        let _ = writeln!(std::io::stderr(), "\nskipped, {name}: {error}");
    }
    offered.is_ok().then(|| options.split(' ').collect())
}
