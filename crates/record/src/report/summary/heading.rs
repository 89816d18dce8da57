//! The first lines: what was run against what, by whom and how.

use crate::report::Page;
use crate::report::number::{count, rate, span_s, time_us};
use crate::report::parts::threads;
use crate::report::table::wrapped;
use crate::report::words::interrupted;
use crate::{LoadRecord, PhaseRecord, SegmentRecord, TrialRecord};

pub(super) fn text(record: &TrialRecord, page: Page) -> String {
    let run = &record.run;
    let urls = match run.urls.as_slice() {
        [] => "-".to_owned(),
        [url] => url.clone(),
        [url, rest @ ..] => format!("{url} and {} more", rest.len()),
    };
    let length = match (run.planned_s, run.requests_max) {
        (_, Some(requests)) => format!("{} requests", count(requests)),
        (Some(seconds), None) => span_s(seconds),
        (None, None) => span_s(run.ran_s),
    };
    let round = match run.rounds > 1 {
        true => format!(", round {} of {}", run.round, run.rounds),
        false => String::new(),
    };
    let uncounted = record.phases.iter().filter(|phase| !phase.counted);
    let warm_up_s: f64 = uncounted.map(PhaseRecord::len_s).sum();
    let warm_up = match warm_up_s > 0.0 {
        true => format!(", the first {} not counted", span_s(warm_up_s)),
        false => String::new(),
    };
    let mut out = format!("Running {length} test @ {urls}{warm_up}{round}\n");
    let thread_count = threads(record);
    let plural = if thread_count == 1 { "" } else { "s" };
    let processes = match run.processes {
        0 | 1 => String::new(),
        processes => format!(" in {processes} processes"),
    };
    let clients = clients(record);
    let line = format!("{thread_count} thread{plural}{processes} and {clients}");
    out += &wrapped("  ", &line, page.width);
    if let Some(interrupted) = interrupted(record) {
        out += &wrapped("  ", &interrupted, page.width);
    }
    out
}

/// Who sends, and when. Without plain clients the figures are those of the first user group.
fn clients(record: &TrialRecord) -> String {
    let user_group = record.headline().filter(|group| {
        let first = record.groups.first();
        record.run.connections == 0 || first.is_some_and(|plain| !std::ptr::eq(plain, *group))
    });
    match user_group {
        Some(user_group) => {
            let connections = count(user_group.total.tally.connections);
            format!("{connections} connections of {}", user_group.name)
        }
        None => {
            let connections = count(u64::from(record.run.connections));
            let (http2, load) = (http2(record.run.streams), load(&record.run.load));
            let own = match record.run.own_schedules {
                true => ", a schedule for each connection",
                false => "",
            };
            format!("{connections} connections{http2}, {load}{own}")
        }
    }
}

/// What connections speak, if it is not HTTP/1.
fn http2(streams: Option<u32>) -> String {
    match streams {
        None => String::new(),
        Some(0 | 1) => " of HTTP/2".to_owned(),
        Some(streams) => format!(
            " of HTTP/2 with up to {} streams each",
            count(u64::from(streams))
        ),
    }
}

fn load(load: &LoadRecord) -> String {
    match load {
        LoadRecord::Closed { think_s, .. } if *think_s > 0.0 => {
            format!("closed loop, {} of thought", time_us(think_s * 1e6))
        }
        LoadRecord::Closed { .. } => "closed loop".to_owned(),
        LoadRecord::Open {
            arrivals,
            overflow,
            segments,
        } => {
            let drop = if overflow == "drop" { ", dropping" } else { "" };
            let rates = offered(segments);
            let arrivals = match arrivals.as_str() {
                "poisson" => "Poisson",
                other => other,
            };
            format!("open loop: {rates}, {arrivals} arrivals{drop}")
        }
        LoadRecord::Timed { requests, .. } => {
            let requests = count(*requests);
            format!("open loop: {requests} requests at the times of a log")
        }
    }
}

fn offered(segments: &[SegmentRecord]) -> String {
    let ends = segments
        .iter()
        .flat_map(|one| [one.begin_per_s, one.end_per_s]);
    let (low, high) = ends.fold((f64::INFINITY, 0.0_f64), |(low, high), end| {
        (low.min(end), high.max(end))
    });
    match segments {
        [] => "no rate".to_owned(),
        _ if low == high => format!("{}/s", rate(high)),
        _ => format!("{}/s to {}/s", rate(low), rate(high)),
    }
}
