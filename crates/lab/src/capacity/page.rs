//! The result as text: the answer first, then what it rests on.

use loadline_base::sorting::sort_by;
use loadline_capacity::search::{Basis, Bound, Confirmed, TrialOutcome};
use loadline_record::report::number::{maybe_us, percent, rate, span_s, time_us};

use super::{Capacity, Evidence};

/// The answer, the limiter, the evidence.
#[must_use]
pub fn page(capacity: &Capacity) -> String {
    let finding = &capacity.finding;
    let mut text = format!("{}\n\n", capacity.headline());
    let mut line = |name: &str, value: String| text += &format!("  {name:<10} {value}\n");
    line("SLO", capacity.slo.clone());
    line("server", capacity.target.clone());
    if finding.capacity_per_s.is_some() {
        line("capacity", meaning(finding.basis).to_owned());
    }
    if let Some(one) = &finding.confirmed {
        line("confirmed", confirmed(one));
    }
    if let Some(spread) = finding.spread {
        let spread = percent(spread, 1.0);
        line("spread", format!("{spread} from trial to trial"));
    }
    let limiter = &capacity.limiter;
    let kind = limiter.kind.name();
    line("limiter", format!("{kind}. {}", limiter.why));
    if let Some(saturation) = &capacity.saturation {
        let beyond = saturation.beyond_per_s.map_or_else(
            || "not reached".to_owned(),
            |beyond| format!("to {}/s", rate(beyond)),
        );
        let at = rate(saturation.at_per_s);
        let what = "saturation (completed/offered under 0.99)";
        line("knee", format!("{what}: {at}/s {beyond}"));
    }
    for dip in &finding.dips {
        let (low, high) = (rate(dip.low_per_s), rate(dip.high_per_s));
        let failed = format!("{} of {} trials failed", dip.failed, dip.of);
        line("dip", format!("{low}/s to {high}/s is not held ({failed})"));
    }
    line("searches", searches(capacity));
    let trials = format!("{}, {}", finding.trials, span_s(finding.spent_s.round()));
    line("trials", trials);
    for note in &finding.notes {
        text += &format!("  {note}\n");
    }
    if capacity.interrupted {
        text += "  It was interrupted: this is what was found so far.\n";
    }
    text + "\n" + &table(&capacity.evidence)
}

fn confirmed(confirmed: &Confirmed) -> String {
    let of = match (confirmed.failed, confirmed.failed_of) {
        (1, 1) => String::new(),
        (failed, of) => format!(" in {failed} of {of}"),
    };
    let minute = confirmed.minute_s.map_or_else(String::new, |seconds| {
        format!(" and in one of {}", span_s(seconds))
    });
    format!(
        "{}/s held in {} of {} trials{minute}, {}/s failed{of}; the next trial holds with {}",
        rate(confirmed.holds_per_s),
        confirmed.held,
        confirmed.held,
        rate(confirmed.fails_per_s),
        percent(confirmed.holds_next, 1.0)
    )
}

/// How much the capacity differs from one search to another.
fn searches(capacity: &Capacity) -> String {
    let Some(runs) = &capacity.runs else {
        return "this one: the interval knows nothing of other times; --again adds earlier results"
            .to_owned();
    };
    let all: Vec<String> = runs.capacities_per_s.iter().map(|one| rate(*one)).collect();
    let interval = runs.interval.map_or_else(String::new, |interval| {
        format!(
            " ({} to {}/s with 95 % confidence)",
            rate(interval.low),
            rate(interval.high)
        )
    });
    format!(
        "{}/s; on average {}/s{interval}, {} from one to another beyond their intervals",
        all.join(", "),
        rate(runs.capacity_per_s),
        percent(runs.between, 1.0)
    )
}

/// What the capacity is.
fn meaning(basis: Basis) -> &'static str {
    match basis {
        Basis::Shares => {
            "there, as many requests are beyond the bound in the long run as the SLO allows"
        }
        Basis::Outcomes => "there, a trial is as likely to hold as not",
    }
}

impl Capacity {
    /// The answer in one line.
    #[must_use]
    pub fn headline(&self) -> String {
        let (finding, slo) = (&self.finding, &self.slo);
        match (finding.bound, finding.capacity_per_s, &finding.interval) {
            (Bound::Found, Some(value), Some(interval)) => format!(
                "Capacity {}/s, {} to {}/s with 95 % confidence, under {slo}",
                rate(value),
                rate(interval.low),
                rate(interval.high)
            ),
            (Bound::AtLeast, _, Some(interval)) => {
                format!("Capacity at least {}/s under {slo}", rate(interval.low))
            }
            (Bound::BudgetTooSmall, Some(value), Some(interval)) => format!(
                "Budget too small: capacity about {}/s, only known to be {} to {}/s, under {slo}",
                rate(value),
                rate(interval.low),
                rate(interval.high)
            ),
            (Bound::NoneHolds, ..) => format!("No rate holds {slo}"),
            _ => format!("Budget too small: the capacity under {slo} is not known"),
        }
    }
}

/// Every trial that counts, by rate; those of one rate in their order; then the discarded ones.
fn table(evidence: &[Evidence]) -> String {
    let header = [
        "rate/s",
        "why",
        "length",
        "held",
        "completed/s",
        "p50",
        "p99",
        "errors",
        "client",
    ];
    let mut rows: Vec<[String; 9]> = vec![header.map(str::to_owned)];
    let mut sorted: Vec<&Evidence> = evidence.iter().collect();
    sort_by(&mut sorted, |one, other| {
        one.tried
            .trial
            .rate_per_s
            .total_cmp(&other.tried.trial.rate_per_s)
    });
    rows.extend(sorted.iter().map(|one| row(one)));
    let widths: [usize; 9] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    });
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        text += &format!("  {}\n", cells.join("  "));
    }
    let discarded = sorted.iter().filter(|one| one.tried.holds().is_none());
    for one in discarded {
        let rate = rate(one.tried.trial.rate_per_s);
        text += &format!("  discarded at {rate}/s: {}\n", one.reasons.join(" "));
    }
    text
}

fn row(evidence: &Evidence) -> [String; 9] {
    let trial = &evidence.tried.trial;
    let held = match evidence.tried.outcome {
        TrialOutcome::Holds => "yes",
        TrialOutcome::Fails => "no",
        TrialOutcome::Discarded => "discarded",
        TrialOutcome::ClientLimited => "client",
    };
    let measured = evidence.measured.as_ref();
    let of = |pick: fn(&super::Measured) -> String| measured.map_or_else(|| "-".to_owned(), pick);
    [
        rate(trial.rate_per_s),
        trial.stage.to_string(),
        span_s(trial.seconds),
        held.to_owned(),
        of(|measured| rate(measured.completed_per_s)),
        of(|measured| maybe_us(measured.latency_p50_us)),
        of(|measured| maybe_us(measured.latency_p99_us)),
        of(|measured| percent(measured.errors_share, 1.0)),
        of(|measured| {
            let lag = measured.lag_p99_us.map(|lag| time_us(lag as f64));
            lag.map_or_else(|| "-".to_owned(), |lag| format!("lag {lag}"))
        }),
    ]
}
