//! The form of Webbench 1.5, from its source: `webbench.c`, both what it says on standard error and
//! on standard output, without the line of its copyright, which is of another program.
//!
//! `susceed` (as it spells it) are complete answers of any status, since Webbench looks at none;
//! `failed` had no complete answer. Numbers are cut to whole ones, as Webbench does.

use super::Block;
use super::parts::{Fates, in_time, over};

pub(super) fn text(block: &Block<'_>) -> String {
    let run = &block.record.run;
    let seconds = block.results.seconds;
    let tally = in_time(block.results);
    let failed = Fates::of(&tally).errored;
    let url = run.urls.first().map_or("-", String::as_str);
    let clients = match run.connections {
        1 => "1 client".to_owned(),
        count => format!("{count} clients"),
    };
    let pages = over((tally.completed + failed) as f64, seconds) * 60.0;
    let bytes = over(tally.bytes_received as f64, seconds);
    let method = run.method.as_deref().unwrap_or("several methods:");
    // HTTP/1.0 is Webbench's default.
    let version = match run.http.as_deref() {
        Some("1.1") => " (using HTTP/1.1)",
        _ => "",
    };
    format!(
        "Webbench - Simple Web Benchmark 1.5\n\
         \nBenchmarking: {method} {url}{version}\n\
         {clients}, running {seconds:.0} sec.\n\
         \nSpeed={} pages/min, {} bytes/sec.\n\
         Requests: {} susceed, {failed} failed.\n",
        pages as u64, bytes as u64, tally.completed
    )
}
