//! Loadline's own summary: what a wrk user looks for where wrk has it, and what wrk leaves out.

mod heading;

use loadline_base::sorting::sort_by;

use super::number::{bytes, count, maybe_us, percent, rate, significant, span_s, time_us};
use super::parts::{Fates, Moments};
use super::table::{Table, wrapped};
use super::words::{
    client, completed_only, errors as errors_of, little, loopback, remarks, surroundings,
};
use super::{Page, blocks, spectrum};
use crate::distribution::{PERCENTS as GIVEN, samples_min};
use crate::{
    Distribution, ErrorKind, GroupRecord, Results, Spread, Tally, ThreadRecord, TrialRecord,
    WatchedRecord, latencies,
};

/// Percentiles that are shown.
const PERCENTS: [f64; 6] = [50.0, 75.0, 90.0, 99.0, 99.9, 99.99];

pub(super) fn text(rounds: &[TrialRecord], page: Page) -> String {
    let mut out = String::new();
    for record in rounds {
        out += &one(record, page);
        if rounds.len() > 1 {
            out.push('\n');
        }
    }
    if rounds.len() > 1 {
        out += &spread(rounds);
    }
    out
}

fn one(record: &TrialRecord, page: Page) -> String {
    let Some(group) = record.headline() else {
        return heading::text(record, page);
    };
    let mut parts = vec![
        heading::text(record, page),
        requests(record, group),
        stats(record, group),
        distribution(&group.total, page),
        connections(record, group),
        picture(record, group, page),
        errors(&group.total),
        presence(group),
        stalls(group),
        others(record, group),
        steps(record, group),
    ];
    parts.extend(record.watched.iter().map(watched));
    parts.push(client_part(record, page));
    parts.push(foot(&group.total));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// Rounds are many: their figures are compared, their pictures left out.
fn picture(record: &TrialRecord, group: &GroupRecord, page: Page) -> String {
    if record.run.rounds > 1 {
        return String::new();
    }
    let (latency, service) = (&group.total.latency, &group.total.service);
    spectrum::picture(latency.histogram(), service.histogram(), page)
}

fn requests(record: &TrialRecord, group: &GroupRecord) -> String {
    let (rates, tally) = (&group.total.rates, &group.total.tally);
    let mut table = Table::new(2, 3);
    table.row("Requests|  per second|while it ran|    in all|of offered".split('|'));
    let rows = [
        ("  offered", rates.offered_per_s, tally.offered),
        ("  sent", rates.sent_per_s, tally.sent),
        ("  completed", rates.completed_per_s, tally.completed),
        ("  good", rates.good_per_s, tally.good),
    ];
    for (name, per_second, in_all) in rows {
        let share = percent(in_all as f64, tally.offered as f64);
        let meanwhile = (per_second * group.total.seconds).round() as u64;
        table.row([
            name.to_owned(),
            rate(per_second),
            count(meanwhile),
            count(in_all),
            share,
        ]);
    }
    let mut out = table.text();
    if let Some(goal_s) = record.run.latency_goal_s {
        let share = percent(tally.in_goal as f64, tally.good as f64);
        out += &format!(
            "    {} of the good ones ({share}) came within the latency goal of {}\n",
            count(tally.in_goal),
            time_us(goal_s * 1e6)
        );
    }
    if record.run.retries_max > 0 {
        out += &retries(tally);
    }
    let late = group.total.after_end.completed;
    if late > 0 {
        out += &format!("    {} of all completed after the end\n", count(late));
    }
    if tally.unfinished > 0 {
        let unfinished = count(tally.unfinished);
        out += &format!("    {unfinished} were given up because the run ended\n");
    }
    out
}

/// Failed attempts after which requests were tried again, by kind.
fn retries(tally: &Tally) -> String {
    let kinds = ErrorKind::ALL.iter().zip(tally.retried);
    let kinds = kinds.filter(|(_, failed)| *failed > 0);
    let kinds: Vec<String> = kinds
        .map(|(kind, failed)| format!("{} {}", kind.name(), count(failed)))
        .collect();
    let after = match kinds.as_slice() {
        [] => String::new(),
        kinds => format!(" after failures ({})", kinds.join(", ")),
    };
    format!("    {} further attempts{after}\n", count(tally.retries))
}

fn stats(record: &TrialRecord, group: &GroupRecord) -> String {
    let mut table = Table::new(2, 3);
    table.row("Stats|      Mean|     Stdev|       Max|+/- Stdev".split('|'));
    let times = [
        ("  Latency", &group.total.latency),
        ("  Service time", &group.total.service),
        ("  First byte", &group.total.first_byte),
    ];
    for (name, times) in times {
        if times.count() > 0 {
            let moments = Moments::of(times.histogram());
            table.row(moments_row(name, moments, time_us));
        }
    }
    let seconds = blocks(record).into_iter().flat_map(|block| block.completed);
    let seconds: Vec<f64> = seconds.map(|completed| completed as f64).collect();
    if seconds.len() > 1 {
        table.row(moments_row("  Req/Sec", Moments::of_values(&seconds), rate));
    }
    table.text()
}

fn moments_row(name: &str, moments: Moments, shown: fn(f64) -> String) -> [String; 5] {
    [
        name.to_owned(),
        shown(moments.mean),
        shown(moments.stdev),
        shown(moments.max),
        percent(moments.within_percent, 100.0),
    ]
}

fn distribution(results: &Results, page: Page) -> String {
    if results.latency.count() == 0 {
        return "  No response was complete: there is no latency.\n".to_owned();
    }
    let mut out = format!(
        "  {:<12}{:>16}{:>16}\n",
        "Latency", "from when due", "from when sent"
    );
    for percent in PERCENTS {
        let Some(due) = results.latency.percentile_us(percent) else {
            // Higher percentiles need even more.
            let needed = count(samples_min(percent));
            out += &format!("{percent:>10} %      not enough samples ({needed} needed)\n");
            break;
        };
        let sent = percentile(&results.service, percent);
        out += &format!("{percent:>10} %  {:>16}{sent:>16}\n", time_us(due as f64));
    }
    out += &format!(
        "{:>12}  {:>16}{:>16}\n",
        "max",
        maybe_us(results.latency.max_us()),
        maybe_us(results.service.max_us())
    );
    if let Some(note) = completed_only(results) {
        out += &wrapped("  ", &note, page.width);
    }
    out
}

/// What a connection's time consists of, where connections are more than there from the start: warm-up
/// included, in which most of them may have come to be.
fn connections(record: &TrialRecord, group: &GroupRecord) -> String {
    let (mut connect, mut handshake) = (latencies(), latencies());
    let (mut full, mut resumed) = (0, 0);
    for results in &group.phases {
        let _ = connect.add(results.connect.histogram()); // of one form all
        let _ = handshake.add(results.handshake.histogram());
        full += results.tally.handshakes_full;
        resumed += results.tally.handshakes_resumed;
    }
    let is_renewed = record.run.requests_per_connection.is_some();
    if connect.is_empty() || (handshake.is_empty() && !is_renewed) {
        return String::new();
    }
    let mut table = Table::new(2, 3);
    table.row("A connection's time|    count|      50 %|      99 %|       max".split('|'));
    let times = [
        ("  connect", Distribution::new(connect)),
        ("  handshake", Distribution::new(handshake)),
        ("  first byte", group.total.first_byte.clone()),
    ];
    for (name, times) in times.iter().filter(|(_, times)| times.count() > 0) {
        table.row([
            (*name).to_owned(),
            count(times.count()),
            percentile(times, 50.0),
            percentile(times, 99.0),
            maybe_us(times.max_us()),
        ]);
    }
    let mut out = table.text();
    if full + resumed > 0 {
        let (full, resumed) = (count(full), count(resumed));
        out += &format!("    handshakes: {full} full, {resumed} resumed\n");
    }
    out
}

fn errors(results: &Results) -> String {
    let tally = &results.tally;
    if tally.errors_total() == 0 {
        return String::new();
    }
    let mut table = Table::new(2, 3);
    table.row(["Errors", "     count", "of offered"]);
    for (name, errors) in errors_of(tally) {
        let share = percent(errors as f64, tally.offered as f64);
        table.row([format!("  {name}"), count(errors), share]);
    }
    table.text()
}

fn others(record: &TrialRecord, headline: &GroupRecord) -> String {
    let others: Vec<&GroupRecord> = record.others(headline).collect();
    if others.is_empty() {
        return String::new();
    }
    let mut table = Table::new(2, 2);
    let head = "connections|sent|good|errors|p50|p99|received";
    table.row(format!("Apart from {}|{head}", headline.name).split('|'));
    for group in &others {
        let (tally, latency) = (&group.total.tally, &group.total.latency);
        table.row([
            format!("  {}", group.name),
            count(tally.connections),
            count(tally.sent),
            count(tally.good),
            count(tally.errors_total()),
            percentile(latency, 50.0),
            percentile(latency, 99.0),
            bytes(tally.bytes_received as f64),
        ]);
    }
    let mut out = table.text();
    for group in others {
        let tally = &group.total.tally;
        for (name, errors) in errors_of(tally) {
            out += &format!("    {}: {} {name}\n", group.name, count(errors));
        }
        out += &missing(group);
        out += &presence(group);
        out += &stalls(group);
    }
    out
}

/// What was due and not sent, or given up.
fn missing(group: &GroupRecord) -> String {
    let tally = &group.total.tally;
    let (name, mut out) = (&group.name, String::new());
    if tally.sent < tally.offered {
        let (sent, offered) = (count(tally.sent), count(tally.offered));
        out += &format!("    {name}: {sent} of {offered} offered were sent\n");
    }
    if tally.unfinished > 0 {
        let unfinished = count(tally.unfinished);
        out += &format!("    {name}: {unfinished} were given up because the run ended\n");
    }
    out
}

/// What became of connections that were only to stay.
fn presence(group: &GroupRecord) -> String {
    let tally = &group.total.tally;
    if tally.held == 0 && tally.closes == 0 {
        return String::new();
    }
    format!(
        "    {}: {} held at the end, closed by the server {} times\n",
        group.name,
        count(tally.held),
        count(tally.closes)
    )
}

/// How often players stood still.
fn stalls(group: &GroupRecord) -> String {
    let tally = &group.total.tally;
    if tally.stalls == 0 {
        return String::new();
    }
    let stalled = time_us(tally.stalled_ns as f64 / 1000.0);
    let (name, stalls) = (&group.name, count(tally.stalls));
    format!("    {name}: {stalls} stalls, {stalled}\n")
}

/// A percentile where there is little room; `-`: not enough samples.
fn percentile(times: &Distribution, percent: f64) -> String {
    maybe_us(times.percentile_us(percent))
}

fn steps(record: &TrialRecord, group: &GroupRecord) -> String {
    if !record.has_steps() {
        return String::new();
    }
    let mut table = Table::new(2, 2);
    table.row("Steps|offered|sent|completed|good|p50|p99|max|errors".split('|'));
    let phases = record.phases.iter().zip(&group.phases);
    let begun = phases.filter(|(phase, _)| phase.counted && phase.len_s() > 0.0);
    for (phase, results) in begun {
        let (rates, latency) = (&results.rates, &results.latency);
        let errors = Fates::of(&results.tally);
        let errors = errors.failed + errors.errored + errors.dropped;
        table.row([
            format!("  {}", phase.label),
            rate(rates.offered_per_s),
            rate(rates.sent_per_s),
            rate(rates.completed_per_s),
            rate(rates.good_per_s),
            percentile(latency, 50.0),
            percentile(latency, 99.0),
            maybe_us(latency.max_us()),
            count(errors),
        ]);
    }
    table.text()
}

fn watched(watched: &WatchedRecord) -> String {
    let mut out = format!(
        "  {} (pid {}) over {}\n",
        watched.name,
        watched.pid,
        span_s(watched.seconds)
    );
    if let Some(ended_s) = watched.ended_s {
        out += &format!("    was gone {} after the start\n", span_s(ended_s));
    }
    let cpu_s = watched.cpu_user_s + watched.cpu_kernel_s;
    let share = percent(cpu_s, watched.seconds);
    out += &format!(
        "    CPU {share} of one: {} user, {} kernel; {} waiting for a CPU\n",
        span_s(watched.cpu_user_s),
        span_s(watched.cpu_kernel_s),
        span_s(watched.run_delay_s)
    );
    if let Some(per_cpu_s) = watched.completed_per_cpu_s {
        out += &format!("    {} requests per CPU second\n", rate(per_cpu_s));
    }
    let mut most = Vec::new();
    if let Some(pss) = watched.pss_bytes_max {
        most.push(format!("PSS {}", bytes(pss as f64)));
    }
    if watched.processes_max > 1 {
        most.push(format!("{} processes", count(watched.processes_max)));
    }
    most.push(format!("threads {}", count(watched.threads_max)));
    if let Some(descriptors) = watched.descriptors_max {
        most.push(format!("descriptors {}", count(descriptors)));
    }
    out += &format!("    at most: {}\n", most.join(", "));
    out += &format!(
        "    context switches: {} voluntary, {} involuntary\n",
        count(watched.switches_voluntary),
        count(watched.switches_involuntary)
    );
    out
}

fn client_part(record: &TrialRecord, page: Page) -> String {
    let verdict = &record.verdict;
    let mut out = String::from("  Client\n");
    let mut line = |sentence: &str| out += &wrapped("    ", sentence, page.width);
    line(&client(verdict));
    for remark in remarks(verdict) {
        line(remark);
    }
    for (whose, law) in verdict.laws() {
        little(&whose, law).iter().for_each(|law| line(law));
    }
    out += &client_threads(&record.threads);
    let mut line = |sentence: &str| out += &wrapped("    ", sentence, page.width);
    if let Some(loopback) = loopback(record) {
        line(loopback);
    }
    if let Some(surroundings) = surroundings(record) {
        line(&surroundings);
    }
    for limit in &record.limits {
        line(limit);
    }
    out
}

/// Threads of the client that are shown; all of them stand in the JSON.
const THREADS_SHOWN_MAX: usize = 8;

/// How busy the client's threads were, and how late.
fn client_threads(threads: &[ThreadRecord]) -> String {
    let mut busiest: Vec<&ThreadRecord> = threads.iter().collect();
    if busiest.len() > THREADS_SHOWN_MAX {
        sort_by(&mut busiest, |one, other| {
            other.busy_share.total_cmp(&one.busy_share)
        });
        busiest.truncate(THREADS_SHOWN_MAX);
    }
    let mut table = Table::new(4, 2);
    let title = match threads.len() - busiest.len() {
        0 => "thread".to_owned(),
        more => format!("busiest threads, {more} more"),
    };
    let head = "CPU|busy|events/turn|lag p50|p99|max|read p99";
    table.row(format!("{title}|{head}").split('|'));
    for thread in &busiest {
        table.row([
            format!("  {}", thread.name),
            percent(thread.cpu_share, 1.0),
            percent(thread.busy_share, 1.0),
            significant(thread.batch, 3),
            percentile(&thread.lag, 50.0),
            percentile(&thread.lag, 99.0),
            maybe_us(thread.lag.max_us()),
            percentile(&thread.read_lag, 99.0),
        ]);
    }
    match busiest.is_empty() {
        true => String::new(),
        false => table.text(),
    }
}

/// wrk's last lines: numbers without commas, since scripts read them.
fn foot(results: &Results) -> String {
    let completed = results.rates.completed_per_s * results.seconds;
    let received = results.rates.bytes_received_per_s;
    format!(
        "  {} requests in {}, {} read\nRequests/sec: {:>10}\nTransfer/sec: {:>14}\n",
        count(completed.round() as u64),
        span_s(results.seconds),
        bytes(received * results.seconds),
        significant(results.rates.completed_per_s, 4),
        bytes(received)
    )
}

/// What the rounds have in common.
fn spread(rounds: &[TrialRecord]) -> String {
    let mut table = Table::new(2, 3);
    let count = rounds.iter().filter_map(TrialRecord::headline).count();
    let title = format!("{count} rounds");
    table.row([title.as_str(), "       min", "      mean", "       max"]);
    let mut row = |name: &str, shown: fn(f64) -> String, of: &dyn Fn(&Results) -> Option<f64>| {
        let Some(spread) = Spread::of(rounds, of) else {
            table.row([format!("  {name}"), "not enough".to_owned()]);
            return;
        };
        let shown = [spread.min, spread.mean, spread.max].map(shown);
        table.row(std::iter::once(format!("  {name}")).chain(shown));
    };
    row("offered/s", rate, &|it| Some(it.rates.offered_per_s));
    row("sent/s", rate, &|it| Some(it.rates.sent_per_s));
    row("completed/s", rate, &|it| Some(it.rates.completed_per_s));
    row("good/s", rate, &|it| Some(it.rates.good_per_s));
    row("received/s", bytes, &|it| {
        Some(it.rates.bytes_received_per_s)
    });
    row("errors", |share| percent(share, 1.0), &|it| {
        let (errors, offered) = (it.tally.errors_total(), it.tally.offered);
        (offered > 0).then(|| errors as f64 / offered as f64)
    });
    row("latency mean", time_us, &|it| it.latency.mean_us());
    let at = |times: &Distribution, percent| times.percentile_us(percent).map(|us| us as f64);
    for percent in GIVEN {
        let name = format!("latency p{percent}");
        row(&name, time_us, &|it| at(&it.latency, percent));
    }
    for percent in GIVEN {
        let name = format!("service p{percent}");
        row(&name, time_us, &|it| at(&it.service, percent));
    }
    table.text()
}
