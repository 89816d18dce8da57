//! Samples as the live page takes them: one JSON object a second, as a server-sent event.

use std::sync::Arc;

use loadline_capacity::load_ratio::LoadRatio;
use loadline_server::ServerOptions;
use serde_json::{Map, Value, json};

use crate::exposition::Exposition;
use crate::latency::escaped;
use crate::object::object;
use crate::sampler::Sample;
use crate::stations::Stations;

/// Powers of two in a heat map, from 16 us on: what is shorter is in the first row.
const HEAT_POWER_MIN: u32 = 4;

/// A sample as an event. It is written once, for whoever watches.
pub(crate) fn event(sample: &Sample, stations: &Stations, options: &ServerOptions) -> Arc<str> {
    let write = || {
        let json = sample_json(sample, stations, options);
        format!("id: {}\ndata: {json}\n\n", sample.number).into()
    };
    Arc::clone(sample.event.get_or_init(write))
}

fn sample_json(sample: &Sample, stations: &Stations, options: &ServerOptions) -> Value {
    let counts = &sample.counts;
    let per_s = |count: u64| Value::from(round(count as f64 / sample.span_s));
    let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"];
    let rates = classes.into_iter().zip(counts.answers).skip(1);
    let refused = (sample.refusals.named()).map(|(reason, count)| (reason, per_s(count)));
    let uses = sample.use_of.iter();
    let uses = uses.map(|(name, share)| (*name, round(*share).into()));
    let sizes = sample.threads.iter();
    let mut sizes = object(sizes.map(|(role, count)| (format!("{role}s"), (*count).into())));
    sizes.insert("connections".into(), counts.connections.into());
    sizes.insert("connections at most".into(), options.connections_max.into());
    let with_apps = counts.app_requests_in_progress;
    sizes.insert("requests with apps".into(), with_apps.into());
    let others = sample.sizes.iter();
    sizes.extend(others.map(|(name, size)| ((*name).to_owned(), Value::from(*size))));
    let quantile = |share| sample.latencies.quantile_us(share);
    json!({
        "at_ms": sample.at_ms,
        "span_s": round(sample.span_s),
        "rates": object(rates.map(|(name, n)| (name, per_s(n)))),
        "latency": {
            "p50": quantile(0.5),
            "p99": quantile(0.99),
            "p999": quantile(0.999),
            "heat": heat(sample),
        },
        "refused": object(refused),
        "queue": { "depth": counts.queue_depth, "age_us": sample.queue_age_us },
        "use": object(uses),
        "sizes": sizes,
        "memory": {
            "resident_bytes": sample.resident_bytes,
            "budget_bytes": sample.memory_budget_bytes,
            "used_bytes": sample.memory_used_bytes,
            "socket_buffers_estimated_bytes": sample.socket_buffers_estimated_bytes,
        },
        "load": load_json(sample, stations),
    })
}

/// What limits a server if no station does: mostly waits within an app that was not known to be a queue.
const WAITS: &str = "waits";

/// The load ratio; `null` without one.
pub(crate) fn load_json(sample: &Sample, stations: &Stations) -> Value {
    let Some(load) = &sample.load else {
        return Value::Null;
    };
    let of = |values: &[(String, f64)]| -> Map<String, Value> {
        let pairs = values.iter();
        object(pairs.map(|(name, value)| (name.as_str(), (*value).into())))
    };
    let limit = load.limit.map(|index| stations.name(index));
    let limit = limit.unwrap_or_else(|| WAITS.to_owned());
    let [demands_s, utilisations] = by_station(load, stations);
    json!({
        "ratio": load.ratio,
        "low": load.interval.map(|interval| interval.low),
        "high": load.interval.map(|interval| interval.high),
        "capacity_per_s": load.capacity_per_s,
        "limit": limit,
        "demand_s": of(&demands_s),
        "utilisation": of(&utilisations),
    })
}

/// Demands and utilisations with the names of stations, and those of apps behind them.
fn by_station(load: &LoadRatio, stations: &Stations) -> [Vec<(String, f64)>; 2] {
    let values = load.demands_s.iter().zip(&load.utilisations).enumerate();
    let values = values.map(|(index, (demand_s, used))| (stations.name(index), *demand_s, *used));
    let apps = load.apps.iter();
    let apps = apps.map(|app| {
        let name = stations.app_name(app.index);
        (name, app.demand_s, app.utilisation)
    });
    let both = values.chain(apps);
    let both = both.map(|(name, demand_s, used)| ((name.clone(), demand_s), (name, used)));
    let (demands_s, utilisations) = both.unzip();
    [demands_s, utilisations]
}

/// What the status page says of the time since the last look.
pub(crate) fn last_json(sample: &Sample) -> Value {
    let quantile = |share| sample.latencies.quantile_us(share);
    json!({
        "seconds": sample.span_s,
        "requests_per_s": sample.counts.requests() as f64 / sample.span_s,
        "p50_us": quantile(0.5),
        "p99_us": quantile(0.99),
        "p999_us": quantile(0.999),
    })
}

/// The load ratio as metrics.
pub(crate) fn show_load(text: &mut Exposition, sample: &Sample, stations: &Stations) {
    let Some(load) = &sample.load else { return };
    let help = "Present load by the load that the server can carry at its latency goal, estimated";
    text.single("load_ratio", "gauge", help, load.ratio);
    if let Some(interval) = load.interval {
        let help = "Lower bound of load_ratio at 95 %";
        text.single("load_ratio_low", "gauge", help, interval.low);
        let help = "Upper bound of load_ratio at 95 %";
        text.single("load_ratio_high", "gauge", help, interval.high);
    }
    let help = "Requests a second that the server can carry, estimated";
    let per_s = load.capacity_per_s;
    text.single("capacity_requests_per_second", "gauge", help, per_s);
    let [demands_s, utilisations] = by_station(load, stations);
    let mut show = |name: &str, help: &str, values: &[(String, f64)]| {
        text.family(name, "gauge", help);
        for (station, value) in values {
            let labels = format!("{{station=\"{}\"}}", escaped(station));
            text.sample(name, &labels, *value);
        }
    };
    let help = "Time that a request takes of a station";
    show("station_demand_seconds", help, &demands_s);
    let help = "Share of a station that is busy";
    show("station_utilisation", help, &utilisations);
}

/// Requests by the power of two of their microseconds.
fn heat(sample: &Sample) -> Vec<(u32, u64)> {
    let mut before = 0;
    let ends = sample.latencies.below_powers(HEAT_POWER_MIN + 1, 1);
    let mut cells: Vec<(u32, u64)> = ends
        .map(|(end, below)| {
            let own = below - before;
            before = below;
            (end.ilog2() - 1, own)
        })
        .collect();
    let beyond = sample.latencies.count() - before;
    if let Some(last) = cells.last_mut() {
        last.1 += beyond;
    }
    cells.retain(|(_, count)| *count > 0);
    cells
}

/// Three digits are enough for a picture.
fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10_f64.powi(2 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}
