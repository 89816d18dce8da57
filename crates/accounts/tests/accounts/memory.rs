//! What a process holds after many logins, in processes of their own: others would be counted with it.

use std::env;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use loadline_accounts::HashCost;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client::{Client, PASSWORD};
use super::site::Site;

/// What one hash takes: the real amount.
const HASH_BYTES: u64 = 19 << 20;
/// Hashes at the same time.
const HASHES_MAX: usize = 3;
/// What may be held when no hash is: less than a single one that stayed. SQLite's caches, stacks of
/// threads and pieces that an allocator keeps are about 5 MiB.
const REST_BYTES_MAX: u64 = 12 << 20;
/// How long memory may take to be given back.
const TIMEOUT: Duration = Duration::from_secs(60);
const LOGINS: &str = "LOADLINE_TEST_LOGINS";

#[test]
fn eighty_logins_leave_no_more_memory_in_use_than_ten() {
    log_in_elsewhere(80);
}

#[test]
#[ignore = "long: a thousand hashes with 19 MiB each"]
fn a_thousand_logins_leave_no_more_memory_in_use_than_ten() {
    log_in_elsewhere(1000);
}

#[expect(clippy::print_stdout, reason = "figures for who wants to see them")]
fn log_in_elsewhere(logins: u32) {
    let program = env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--exact", "memory::child", "--ignored", "--nocapture"]);
    let output = command.env(LOGINS, logins.to_string()).output();
    let output = output.expect("this program, once more");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("1 passed"), "{said}");
    println!("{said}");
}

#[test]
#[ignore = "a child of the others"]
fn child() {
    let Some(logins) = env::var(LOGINS).ok().and_then(|text| text.parse().ok()) else {
        return; // with all that are ignored
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(hold(logins));
}

#[expect(clippy::print_stdout, reason = "figures for who wants to see them")]
async fn hold(logins: u32) {
    let site = Site::on_sqlite_with(|options| {
        options.hash_cost = HashCost {
            memory_kib: 19 * 1024,
            passes: 1,
            lanes: 1,
        };
        options.hashes_max = HASHES_MAX;
        options.hash_memory_kept = Duration::from_millis(100);
    })
    .await;
    let mut first = Client::new(&site.router);
    first.register("ada", PASSWORD).await.is(303);
    log_in(&site, 10).await;
    let busy = used_bytes();
    let ten = at_rest(REST_BYTES_MAX).await;
    log_in(&site, logins).await;
    let most = HASHES_MAX as u64 * HASH_BYTES + REST_BYTES_MAX;
    assert!(used_bytes() <= most, "{} > {most}", used_bytes());
    let many = at_rest(REST_BYTES_MAX).await;
    let shown = [busy, ten, many].map(|bytes| bytes >> 10);
    println!("KiB after ten logins, at rest, and at rest after {logins} more: {shown:?}");
}

/// Logs a user in so often, by one browser more at a time than there are hashes: one always waits.
async fn log_in(site: &Site, logins: u32) {
    let at_once = Arc::new(Semaphore::new(HASHES_MAX + 1));
    let mut users = JoinSet::new();
    for _ in 0..logins {
        let mut client = Client::new(&site.router);
        let at_once = Arc::clone(&at_once);
        users.spawn(async move {
            let _one = at_once.acquire().await;
            client.log_in("ada", PASSWORD).await.is(303);
        });
    }
    while let Some(user) = users.join_next().await {
        user.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Waits until so little is in use.
async fn at_rest(bytes_max: u64) -> u64 {
    let began = Instant::now();
    loop {
        let used = used_bytes();
        if used <= bytes_max {
            return used;
        }
        assert!(began.elapsed() < TIMEOUT, "{used} bytes, not {bytes_max}");
        tokio::time::sleep(Duration::from_millis(20)).await; // the kernel says nothing when it takes memory back
    }
}

/// Memory that is this process's own, not of any file.
fn used_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/smaps_rollup").expect("of this kernel");
    let line = text.lines().find(|line| line.starts_with("Anonymous:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().nth(1));
    let kib: u64 = kib.and_then(|kib| kib.parse().ok()).expect("a number");
    kib << 10
}
