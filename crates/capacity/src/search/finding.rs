//! What a search comes to: an interval, or why there is none; never a bare number.

use serde::{Deserialize, Serialize};

use super::line::Shape;
use super::{Search, TrialOutcome, WIDTH_MAX};
use crate::stats::{Interval, LEVEL};

/// What a search comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchFinding {
    /// What kind of answer this is.
    pub bound: Bound,
    /// The rate that it is about: what that means says `basis`.
    pub capacity_per_s: Option<f64>,
    /// What it was learned from.
    #[serde(default)]
    pub basis: Basis,
    /// Where that lies. With [`Bound::AtLeast`], only its lower end is known.
    pub interval: Option<Interval>,
    /// A rate that held five times of five, and one above that failed.
    pub confirmed: Option<Confirmed>,
    /// By how much the capacity differs from trial to trial: standard deviation, as a part of it.
    pub spread: Option<f64>,
    /// Rates far below the capacity that are not held all the same.
    pub dips: Vec<Dip>,
    /// The evidence, by rate.
    pub rows: Vec<RateRow>,
    /// What is worth knowing, in sentences.
    pub notes: Vec<String>,
    /// Trials, discarded ones included.
    pub trials: u32,
    /// Time that they took.
    pub spent_s: f64,
}

/// What a capacity was learned from, and so what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// From whether trials held: the rate at which one is as likely to hold as not.
    #[default]
    Outcomes,
    /// From the shares of requests beyond a bound: the rate at which, in the long run, the share is
    /// what the SLO allows.
    Shares,
}

/// What kind of answer a search has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// An interval that is as narrow as wanted.
    Found,
    /// The time did not suffice for such an interval.
    BudgetTooSmall,
    /// Higher rates could not be tried: the client was the limit, or the bound of rates.
    AtLeast,
    /// No rate was held.
    NoneHolds,
}

/// Two rates, one that always held and one that did not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confirmed {
    /// The rate that held in every one of `held` trials in a row.
    pub holds_per_s: f64,
    /// How many those are.
    pub held: u32,
    /// The rate one step above.
    pub fails_per_s: f64,
    /// How often it failed.
    pub failed: u32,
    /// Number of trials at that rate.
    pub failed_of: u32,
    /// How likely the next trial at the rate that held is to hold, by all that is known of this
    /// search, trials that something else decides included.
    #[serde(default)]
    pub holds_next: f64,
    /// The rate held for so long in one trial, too; `None`: there was no time for that.
    #[serde(default)]
    pub minute_s: Option<f64>,
}

/// A rate that is not held though higher ones are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dip {
    /// The lowest such rate in a row.
    pub low_per_s: f64,
    /// The highest one.
    pub high_per_s: f64,
    /// Trials there that failed.
    pub failed: u32,
    /// Trials there in all.
    pub of: u32,
}

/// The trials of one rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RateRow {
    /// The rate.
    pub rate_per_s: f64,
    /// Trials that held.
    pub held: u32,
    /// Trials that failed.
    pub failed: u32,
    /// Trials that count for nothing.
    #[serde(alias = "void")]
    pub discarded: u32,
    /// Time for which it was measured, all of them together.
    pub seconds: f64,
}

impl RateRow {
    /// That of a rate, among rows in the order of the rates; a new one, if there is none.
    pub(super) fn of_rate(rows: &mut Vec<Self>, rate_per_s: f64) -> &mut Self {
        let place = rows.partition_point(|row| row.rate_per_s < rate_per_s);
        let found_per_s = rows.get(place).map(|row| row.rate_per_s);
        if found_per_s != Some(rate_per_s) {
            let row = Self {
                rate_per_s,
                ..Self::default()
            };
            rows.insert(place, row);
        }
        &mut rows[place]
    }
}

/// A dip is so far below the interval that noise does not reach there.
const DIP_SHARE_MAX: f64 = 0.9;
/// One failure is no dip.
const DIP_FAILS_MIN: u32 = 2;

pub(super) fn of(search: &Search) -> SearchFinding {
    let mut finding = SearchFinding {
        bound: Bound::BudgetTooSmall,
        capacity_per_s: None,
        basis: Basis::Outcomes,
        interval: None,
        confirmed: confirmed(search),
        spread: None,
        dips: Vec::new(),
        rows: rows(search),
        notes: search.gave_up.iter().cloned().collect(),
        trials: u32::try_from(search.tried.len()).unwrap_or(u32::MAX),
        spent_s: search.spent_s(),
    };
    match &search.belief {
        Some(belief) => {
            let (low, high) = search.interval(belief);
            let is_beyond = high > search.top_per_s() && search.has_held_at_top(belief);
            finding.bound = match high / low - 1.0 <= WIDTH_MAX {
                _ if is_beyond => Bound::AtLeast,
                true => Bound::Found,
                false => Bound::BudgetTooSmall,
            };
            finding.interval = Some(Interval {
                // What was not tried is not claimed.
                low: if is_beyond {
                    low.min(search.highest_held_per_s())
                } else {
                    low
                },
                high,
                level: LEVEL,
            });
            let capacity_per_s = match &search.shape {
                Shape::Line(crossing) => {
                    finding.basis = Basis::Shares;
                    crossing.capacity_per_s
                }
                _ => belief.median(),
            };
            finding.capacity_per_s = (!is_beyond).then_some(capacity_per_s);
            finding.spread = Some(belief.spread());
            finding.dips = dips(&finding.rows, low * DIP_SHARE_MAX);
        }
        None if search.gave_up.is_none() && search.sweep.has_given_up() => {
            finding.bound = Bound::NoneHolds;
        }
        None => {}
    }
    explain(search, &mut finding);
    finding
}

fn confirmed(search: &Search) -> Option<Confirmed> {
    let candidate = search.confirm.proven()?;
    Some(Confirmed {
        holds_per_s: candidate.per_s,
        held: candidate.held,
        fails_per_s: candidate.above_per_s,
        failed: candidate.above_failed,
        failed_of: candidate.above_failed + candidate.above_held,
        holds_next: search.belief.as_ref()?.holds_next(candidate.per_s),
        minute_s: candidate.minute_s,
    })
}

fn rows(search: &Search) -> Vec<RateRow> {
    let mut rows: Vec<RateRow> = Vec::new();
    for tried in &search.tried {
        let row = RateRow::of_rate(&mut rows, tried.trial.rate_per_s);
        match tried.outcome {
            TrialOutcome::Holds => row.held += 1,
            TrialOutcome::Fails => row.failed += 1,
            TrialOutcome::Discarded | TrialOutcome::ClientLimited => row.discarded += 1,
        }
        row.seconds += tried.trial.seconds;
    }
    rows
}

/// Rates below `below_per_s` that fail more often than they hold; neighbours are one dip.
fn dips(rows: &[RateRow], below_per_s: f64) -> Vec<Dip> {
    let is_dip = |row: &RateRow| row.failed > row.held && row.failed >= DIP_FAILS_MIN;
    let below = rows.iter().filter(|row| row.held + row.failed > 0);
    let below: Vec<&RateRow> = below
        .take_while(|row| row.rate_per_s < below_per_s)
        .collect();
    let groups = below.chunk_by(|one, other| is_dip(one) == is_dip(other));
    let dips = groups.filter(|group| is_dip(group[0]));
    dips.map(|group| Dip {
        low_per_s: group[0].rate_per_s,
        high_per_s: group[group.len() - 1].rate_per_s,
        failed: group.iter().map(|row| row.failed).sum(),
        of: group.iter().map(|row| row.failed + row.held).sum(),
    })
    .collect()
}

fn explain(search: &Search, finding: &mut SearchFinding) {
    let mut note = |text: String| finding.notes.push(text);
    if !finding.dips.is_empty() {
        note("The server is not monotone: rates below the capacity are not held.".to_owned());
    }
    match finding.bound {
        Bound::BudgetTooSmall if search.gave_up.is_none() => note(match finding.interval {
            Some(interval) => format!(
                "The budget is too small: after {:.0} s the interval is still {:.0} % wide, and \
                 {:.0} % was asked for.",
                finding.spent_s,
                (interval.high / interval.low - 1.0) * 100.0,
                WIDTH_MAX * 100.0
            ),
            None => format!(
                "The budget is too small: {:.0} s did not suffice to find the range of the \
                 capacity.",
                finding.spent_s
            ),
        }),
        Bound::AtLeast if search.is_capped() => note(format!(
            "The client was the limit from {:.0}/s on: the server may hold more.",
            search.ceiling_per_s
        )),
        Bound::AtLeast => note(format!(
            "Rates beyond {:.0}/s were not to be tried: the server may hold more.",
            search.limits.rate_max_per_s
        )),
        _ => {}
    }
    match &finding.confirmed {
        None if finding.bound == Bound::Found => {
            note("The budget did not suffice to confirm it by five trials in a row.".to_owned());
        }
        Some(confirmed) if confirmed.minute_s.is_none() => {
            note("The budget did not suffice for a minute at the confirmed rate.".to_owned());
        }
        _ => {}
    }
}
