//! The live view, drawn from a snapshot: several lines for a terminal, one line for anything else.
//! Printing it, at most ten times a second, is the program's business.

use loadline_base::sorting::sort_by_key;

use super::Page;
use super::number::{count, maybe_us, rate, short, span_s, time_us};
use super::parts::Fates;
use crate::{ErrorKind, SecondRecord, Snapshot, Tally};

/// Widest progress bar, in columns.
const BAR_MAX: usize = 40;

/// The view for a terminal, one element for each line, none wider than the page. It has the same
/// number of lines from the start to the end of a run.
#[must_use]
pub fn lines(snapshot: &Snapshot, page: Page) -> Vec<String> {
    let mut lines = vec![
        progress(snapshot, page),
        now(snapshot),
        latency(snapshot.last.as_ref()),
        total(&snapshot.total),
        history(snapshot, page),
    ];
    lines.extend(snapshot.others.iter().map(other));
    for line in &mut lines {
        cut(line, page.width);
    }
    lines
}

/// The same in one line, where lines cannot be redrawn.
#[must_use]
pub fn line(snapshot: &Snapshot) -> String {
    let elapsed = span_s((snapshot.elapsed_ns as f64 / 1e9).round());
    let planned = snapshot
        .planned_ns
        .filter(|_| snapshot.requests_max.is_none());
    let planned = planned.map(|ns| format!(" of {}", span_s((ns as f64 / 1e9).round())));
    let mut line = format!("[{elapsed}{}] ", planned.unwrap_or_default());
    if !snapshot.phase.is_empty() {
        line += &format!("{}: ", snapshot.phase);
    }
    let Some(last) = &snapshot.last else {
        return line + "no full second yet";
    };
    line += &format!("{}/s", rate(last.completed as f64));
    let percentiles = [
        ("p50", last.p50_us),
        ("p99", last.p99_us),
        ("max", last.max_us),
    ];
    for (name, us) in percentiles {
        if let Some(us) = us {
            line += &format!(", {name} {}", time_us(us as f64));
        }
    }
    line += &format!(
        "; so far {} good, {} errors",
        count(snapshot.total.good),
        count(snapshot.total.errors_total())
    );
    line
}

/// How much is done, from 0 to 1, and an estimate of the seconds that are left.
fn done(snapshot: &Snapshot) -> (f64, Option<f64>) {
    let elapsed_s = snapshot.elapsed_ns as f64 / 1e9;
    let by_time = snapshot.planned_ns.map(|planned_ns| {
        let part = snapshot.elapsed_ns as f64 / planned_ns.max(1) as f64;
        let left_s = (planned_ns as f64 / 1e9 - elapsed_s).max(0.0);
        (part.clamp(0.0, 1.0), Some(left_s))
    });
    let by_requests = snapshot.requests_max.map(|requests| {
        let ended = Fates::of(&snapshot.total).done();
        let part = (ended as f64 / requests.max(1) as f64).clamp(0.0, 1.0);
        let left_s = (part > 0.0).then(|| elapsed_s / part - elapsed_s);
        (part, left_s)
    });
    // Whichever comes first ends the run.
    let ways = [by_requests, by_time].into_iter().flatten();
    let first = ways.max_by(|one, other| one.0.total_cmp(&other.0));
    first.unwrap_or((0.0, None))
}

fn progress(snapshot: &Snapshot, page: Page) -> String {
    let (part, left_s) = done(snapshot);
    let width = page.width.saturating_sub(45).min(BAR_MAX);
    let filled = (part * width as f64).floor() as usize;
    let (full, empty) = match page.is_utf8 {
        true => ("█", "░"),
        false => ("#", "."),
    };
    let bar = full.repeat(filled) + &empty.repeat(width - filled);
    let elapsed_s = snapshot.elapsed_ns as f64 / 1e9;
    let elapsed = match elapsed_s < 59.95 {
        true => format!("{elapsed_s:.1} s"),
        false => span_s(elapsed_s),
    };
    let left = match left_s {
        Some(left_s) if part < 1.0 => format!("{} left", span_s(left_s.ceil())),
        Some(_) => "waiting for the last responses".to_owned(),
        None => String::new(),
    };
    let percent = (part * 100.0).floor();
    let line = format!(
        "{elapsed:>9} {bar} {percent:>3} %  {left:<15} {}",
        snapshot.phase
    );
    line.trim_end().to_owned()
}

fn now(snapshot: &Snapshot) -> String {
    let Some(last) = &snapshot.last else {
        let connections = count(snapshot.connections);
        return format!("{:>9} {connections} connections, no full second yet", "now");
    };
    let completed = rate(last.completed as f64);
    let mut line = format!("{:>9} {completed:>9}/s", "now");
    if let Some(planned) = snapshot.planned_per_s {
        line += &format!(" of {}/s planned", rate(planned));
    }
    if let Some(in_flight) = last.in_flight {
        line += &format!("   in flight {}", short(in_flight));
    }
    line += &format!("   errors {}/s", rate(last.errors as f64));
    line
}

fn latency(last: Option<&SecondRecord>) -> String {
    let last = last.cloned().unwrap_or_default();
    format!(
        "{:>9} p50 {:>8}  p90 {:>8}  p99 {:>8}  max {:>8}  lag {:>8}",
        "latency",
        maybe_us(last.p50_us),
        maybe_us(last.p90_us),
        maybe_us(last.p99_us),
        maybe_us(last.max_us),
        time_us(last.lag_max_us as f64)
    )
}

fn total(tally: &Tally) -> String {
    let mut line = format!("{:>9} {:>9} good", "so far", count(tally.good));
    let errors = tally.errors_total();
    if errors == 0 {
        return line + ", no errors";
    }
    line += &format!(", {} errors", count(errors));
    let mut kinds: Vec<ErrorKind> = ErrorKind::ALL.to_vec();
    kinds.retain(|&kind| tally.errors_of(kind) > 0);
    sort_by_key(&mut kinds, |&kind| std::cmp::Reverse(tally.errors_of(kind)));
    let named = kinds.into_iter().map(|kind| {
        let errors = count(tally.errors_of(kind));
        format!("{errors} {}", kind.name().replace('_', " "))
    });
    let named: Vec<String> = named.collect();
    line + ": " + &named.join(", ")
}

/// The rate of the last seconds as a line of bars, the newest to the right.
fn history(snapshot: &Snapshot, page: Page) -> String {
    let bars: &[char] = match page.is_utf8 {
        true => &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        false => &['_', '.', '-', '=', '#'],
    };
    let recent = &snapshot.recent_completed;
    let room = page.width.saturating_sub(34).min(60);
    let shown = &recent[recent.len().saturating_sub(room)..];
    let most = shown.iter().copied().max().unwrap_or(0);
    let height = |completed: u64| {
        let part = completed as f64 / most.max(1) as f64;
        bars[(part * (bars.len() - 1) as f64).round() as usize]
    };
    let drawn: String = shown.iter().map(|&completed| height(completed)).collect();
    match shown.is_empty() {
        true => format!("{:>9}", "rate"),
        false => format!("{:>9} {drawn} 0 to {}/s", "rate", rate(most as f64)),
    }
}

fn other((name, tally): &(String, Tally)) -> String {
    format!(
        "{name:>9} {} connections, {} good, {} errors",
        count(tally.connections),
        count(tally.good),
        count(tally.errors_total())
    )
}

fn cut(line: &mut String, width: usize) {
    if let Some((end, _)) = line.char_indices().nth(width) {
        line.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let mut total = Tally {
            offered: 24_000,
            completed: 23_988,
            good: 23_981,
            ..Tally::default()
        };
        total.errors[ErrorKind::Timeout as usize] = 12;
        total.errors[ErrorKind::Status5xx as usize] = 7;
        Snapshot {
            elapsed_ns: 12_040_000_000,
            planned_ns: Some(30_000_000_000),
            phase: "500/s".to_owned(),
            planned_per_s: Some(2000.0),
            connections: 100,
            last: Some(SecondRecord {
                completed: 1998,
                errors: 2,
                p50_us: Some(2300),
                p90_us: Some(3590),
                p99_us: Some(10_540),
                max_us: Some(20_400),
                lag_max_us: 38,
                in_flight: Some(5.13),
                ..SecondRecord::default()
            }),
            recent_completed: vec![0, 500, 1000, 1998],
            total,
            others: vec![("idle".to_owned(), Tally::default())],
            ..Snapshot::default()
        }
    }

    /// The rest of both forms stands in tests/record/golden.
    #[test]
    fn the_phase_is_named_and_a_run_may_have_no_full_second() {
        let first = &lines(&snapshot(), Page::default())[0];
        assert!(first.ends_with(" 40 %  18 s left       500/s"), "{first}");
        let plain = line(&snapshot());
        assert!(
            plain.starts_with("[12 s of 30 s] 500/s: 1,998/s, p50 "),
            "{plain}"
        );
        assert_eq!(line(&Snapshot::default()), "[0 s] no full second yet");
    }

    #[test]
    fn lines_never_exceed_the_page_nor_change_in_number() {
        for width in [0, 1, 20, 45, 80, 200] {
            for is_utf8 in [false, true] {
                let page = Page { width, is_utf8 };
                for elapsed_ns in [0, 1, 29_999_999_999, 31_000_000_000, u64::MAX] {
                    let mut snapshot = snapshot();
                    snapshot.elapsed_ns = elapsed_ns;
                    snapshot.recent_completed = (0..60).collect();
                    let drawn = lines(&snapshot, page);
                    assert_eq!(drawn.len(), 6);
                    let widest = drawn.iter().map(|line| line.chars().count()).max();
                    assert!(widest <= Some(width));
                    assert!(is_utf8 || drawn.iter().all(|line| line.is_ascii()));
                }
            }
        }
        assert_eq!(lines(&Snapshot::default(), Page::default()).len(), 5);
    }

    #[test]
    fn requests_end_a_run_too() {
        let mut snapshot = snapshot();
        snapshot.planned_ns = None;
        snapshot.requests_max = Some(48_000);
        let (part, left_s) = done(&snapshot);
        assert!((part - 0.5).abs() < 1e-9);
        assert!(left_s.is_some_and(|left_s| (left_s - 12.04).abs() < 1e-6));
        snapshot.planned_ns = Some(13_000_000_000);
        assert!(done(&snapshot).0 > 0.9);
        // Answers that are tried again end no request.
        snapshot.planned_ns = None;
        snapshot.total.completed += 9_000;
        snapshot.total.retried[ErrorKind::Status5xx as usize] = 9_000;
        assert!((done(&snapshot).0 - 0.5).abs() < 1e-9);
    }
}
