//! The form of weighttp, from its source (github.com/lighttpd/weighttp, `weighttp.c`), without the
//! lines of its progress.
//!
//! `succeeded` were good; `failed` had a complete answer that was not; `errored` had none. `total`
//! is what `--requests` asked for, or else what became due.

use super::Block;
use super::parts::{Fates, in_time, over, threads, unconnected};

pub(super) fn text(block: &Block<'_>) -> String {
    let run = &block.record.run;
    let seconds = block.results.seconds;
    let tally = in_time(block.results);
    let fates = Fates::of(&tally);
    let total = run.requests_max.unwrap_or(tally.offered);
    let mut out = String::from(
        "weighttp - a lightweight and simple webserver benchmarking tool\n\nstarting benchmark...\n",
    );
    let threads = threads(block.record) as u64;
    for index in 0..threads {
        let share = |count: u64| count / threads + u64::from(index < count % threads);
        out += &format!(
            "spawning thread #{}: {} concurrent requests, {} total requests\n",
            index + 1,
            share(u64::from(run.connections)),
            share(total)
        );
    }
    let whole_us = (seconds * 1e6).round() as u64;
    out += &format!(
        "\nfinished in {} sec, {} millisec and {} microsec, {} req/s, {} kbyte/s\n",
        whole_us / 1_000_000,
        whole_us / 1000 % 1000,
        whole_us % 1000,
        over(fates.done() as f64, seconds) as u64,
        over(tally.bytes_received as f64 / 1024.0, seconds) as u64
    );
    // To weighttp, a connection that failed is a request that was started.
    out += &format!(
        "requests: {total} total, {} started, {} done, {} succeeded, {} failed, {} errored\n",
        tally.sent + unconnected(&tally),
        fates.done(),
        fates.good,
        fates.failed,
        fates.errored
    );
    let [_, ok, moved, client, server] = tally.statuses;
    out += &format!("status codes: {ok} 2xx, {moved} 3xx, {client} 4xx, {server} 5xx\n");
    out += &format!(
        "traffic: {} bytes total, {} bytes http, {} bytes data\n",
        tally.bytes_received,
        tally.bytes_received.saturating_sub(tally.content_bytes),
        tally.content_bytes
    );
    out
}
