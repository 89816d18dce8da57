//! The form of wrk2 with `--latency`, from its source (github.com/giltene/wrk2, `wrk.c`,
//! `hdr_histogram.c`): the same lines with the same widths.
//!
//! Not there: the lines `Thread calibration`, because nothing is calibrated. wrk2 counts connect,
//! read, write and timeout errors separately; failed writes are seen as resets here, and stand under
//! read. The seconds of `Req/Sec` are those of the run, divided evenly between the threads.

use hdrhistogram::Histogram;

use super::Block;
use super::family::{wrk_binary, wrk_metric, wrk_padded, wrk_time_s, wrk_time_us};
use super::parts::{Moments, threads, unconnected};
use crate::distribution::value_at_percent;
use crate::{ErrorKind, Tally};

pub(super) fn text(block: &Block<'_>) -> String {
    let run = &block.record.run;
    let results = block.results;
    let threads = threads(block.record);
    let url = run.urls.first().map_or("-", String::as_str);
    let mut out = format!("Running {} test @ {url}\n", wrk_time_s(results.seconds));
    out += &format!("  {threads} threads and {} connections\n", run.connections);
    out += &format!(
        "  Thread Stats{:>6}{:>11}{:>8}{:>12}\n",
        "Avg", "Stdev", "Max", "+/- Stdev"
    );
    let latency = results.latency.histogram();
    out += &stats("Latency", Moments::of(latency), wrk_time_us);
    let of_thread = |&count: &u64| count as f64 / threads.max(1) as f64;
    let per_thread: Vec<f64> = block.completed.iter().map(of_thread).collect();
    out += &stats("Req/Sec", Moments::of_values(&per_thread), wrk_metric);
    out += &distribution(latency);
    out += &"-".repeat(58);
    out.push('\n');
    let completed = results.rates.completed_per_s * results.seconds;
    let received = results.rates.bytes_received_per_s * results.seconds;
    out += &format!(
        "  {completed:.0} requests in {}, {}B read\n",
        wrk_time_us(results.seconds * 1e6),
        wrk_binary(received)
    );
    out += &errors(&results.tally);
    out += &format!("Requests/sec: {:>9.2}\n", results.rates.completed_per_s);
    let per_s = wrk_binary(results.rates.bytes_received_per_s);
    out += &format!("Transfer/sec: {per_s:>10}B\n");
    out
}

fn stats(name: &str, moments: Moments, shown: fn(f64) -> String) -> String {
    format!(
        "    {name:<10}{}{}{}{:>8.2}%\n",
        wrk_padded(&shown(moments.mean), 8),
        wrk_padded(&shown(moments.stdev), 10),
        wrk_padded(&shown(moments.max), 9),
        moments.within_percent
    )
}

fn errors(tally: &Tally) -> String {
    let connect = unconnected(tally);
    let read = [
        ErrorKind::Reset,
        ErrorKind::ClosedEarly,
        ErrorKind::StreamReset,
        ErrorKind::ShortBody,
        ErrorKind::LongBody,
        ErrorKind::Malformed,
    ];
    let read: u64 = read.map(|kind| tally.errors_of(kind)).iter().sum();
    let timeout = tally.errors_of(ErrorKind::Timeout);
    let mut out = String::new();
    if connect + read + timeout > 0 {
        out += &format!(
            "  Socket errors: connect {connect}, read {read}, write 0, timeout {timeout}\n"
        );
    }
    let statuses = tally.statuses[3] + tally.statuses[4];
    if statuses > 0 {
        out += &format!("  Non-2xx or 3xx responses: {statuses}\n");
    }
    out
}

fn distribution(histogram: &Histogram<u64>) -> String {
    const PERCENTS: [f64; 8] = [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0];
    let mut out = String::from("  Latency Distribution (HdrHistogram - Recorded Latency)\n");
    for percent in PERCENTS {
        let us = value_at_percent(histogram, percent) as f64;
        out += &format!("{percent:>7.3}%{}\n", wrk_padded(&wrk_time_us(us), 10));
    }
    out += "\n  Detailed Percentile spectrum:\n";
    out += &format!(
        "{:>12} {:>12} {:>12} {:>12}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    percentile_steps(histogram, |value_us, percent, count| {
        out += &format!(
            "{:>12.3} {:>12.6} {count:>12} {:>12.2}\n",
            value_us as f64 / 1000.0,
            percent / 100.0,
            1.0 / (1.0 - percent / 100.0)
        );
    });
    let scaled = |us: f64| us / 1000.0;
    let max_us = histogram.lowest_equivalent(histogram.max());
    let moments = Moments::of(histogram);
    out += &format!(
        "#[Mean    = {:>12.3}, StdDeviation   = {:>12.3}]\n",
        scaled(moments.mean),
        scaled(moments.stdev)
    );
    out += &format!(
        "#[Max     = {:>12.3}, Total count    = {:>12}]\n",
        scaled(max_us as f64),
        histogram.len()
    );
    // The smallest power of two that resolves the significant digits.
    let sub_buckets = (2 * 10_u64.pow(u32::from(histogram.sigfig()))).next_power_of_two();
    out += &format!(
        "#[Buckets = {:>12}, SubBuckets     = {sub_buckets:>12}]\n",
        histogram.buckets()
    );
    out
}

/// Steps of the spectrum for each halving of what is left to 100 %.
const TICKS: f64 = 5.0;

/// The steps of `hdr_percentile_iter`: value, percentage and samples up to it. A bucket stands for
/// every step that it reaches, but the last bucket only for one, and then for 100 %.
fn percentile_steps(histogram: &Histogram<u64>, mut step: impl FnMut(u64, f64, u64)) {
    let total = histogram.len();
    let mut next_percent = 0.0;
    let mut count = 0;
    let mut last_us = 0;
    for bucket in histogram.iter_recorded() {
        count += bucket.count_at_value();
        last_us = histogram.highest_equivalent(bucket.value_iterated_to());
        let reached = 100.0 * count as f64 / total as f64;
        while next_percent <= reached {
            step(last_us, next_percent, count);
            let halvings = (100.0 / (100.0 - next_percent)).log2().floor();
            next_percent += 100.0 / (TICKS * 2_f64.powf(halvings + 1.0));
            if count == total {
                break;
            }
        }
    }
    step(last_us, 100.0, count);
}
