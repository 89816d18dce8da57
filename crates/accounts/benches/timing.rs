//! Whether the time of an answer shows if there is such a user: logins with a wrong
//! password, and of nobody, in turn; medians of 200 each, which must agree within 5 %.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::process::ExitCode;
use std::time::Instant;

#[path = "../tests/accounts/client.rs"]
#[expect(dead_code, reason = "a part of it is used here")]
mod client;

use client::{Client, PASSWORD};
use loadline_accounts::{Accounts, Options};

const TRIES: usize = 200;
const DIFFERENCE_MAX: f64 = 0.05;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let folder = tempfile::tempdir().expect("a directory");
    let database = format!("sqlite:{}/accounts.db", folder.path().display());
    let mut options = Options::new(database.parse().expect("a database"));
    options.tries_by_network.free = u32::MAX;
    options.turns_by_account.free = u32::MAX;
    options.tries_by_address.free = u32::MAX;
    println!("{}, one after the other, in turn", options.hash_cost);
    let accounts = Accounts::open(options).await.expect("a database");
    let router = accounts.router();
    Client::new(&router).register("ada", PASSWORD).await.is(303);
    let mut client = Client::new(&router);
    let token = client.get("/accounts/login").await.token();
    let mut times = [Vec::new(), Vec::new()];
    // The first two are not counted: they warm up.
    for try_number in 0..2 * (TRIES + 1) {
        let which = try_number % 2;
        let name = ["ada", "abe"][which];
        let fields = [
            ("token", token.as_str()),
            ("name", name),
            ("password", "wrong wrong"),
        ];
        let began = Instant::now();
        client.post("/accounts/login", &fields).await.is(403);
        let time = began.elapsed();
        if try_number >= 2 {
            times[which].push(time.as_secs_f64() * 1e3);
        }
    }
    accounts.close().await;
    let [wrong, unknown] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        [times.len() / 4, times.len() / 2, times.len() * 3 / 4].map(|at| times[at])
    });
    let difference = (unknown[1] - wrong[1]).abs() / wrong[1];
    for (what, [low, median, high]) in [("wrong password", wrong), ("unknown user", unknown)] {
        println!(
            "{what:16} median {median:.2} ms (middle half {low:.2} to {high:.2}), {TRIES} tries"
        );
    }
    println!(
        "difference of the medians {:.2} % (5 % at most)",
        difference * 100.0
    );
    match difference <= DIFFERENCE_MAX {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
