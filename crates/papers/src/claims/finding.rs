//! What a test comes to, and how it is said.

use loadline_capacity::stats::Interval;
use loadline_lab::report::words::capital;
use loadline_lab::report::{Claim, ClaimMeasure, Undecided, Verdict};
use serde::Deserialize;

use super::evidence::{Estimate, Untestable};

/// A claim and what came of it.
pub(super) struct JudgedClaim {
    /// In our words, with its place in the paper in parentheses at the end.
    pub(super) text: &'static str,
    pub(super) finding: ClaimFinding,
}

/// Of an interval that holds the bound.
pub(super) const UNCLEAR: &str = " Not distinguishable with these trials.";

/// What a test comes to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClaimFinding {
    pub(super) verdict: Verdict,
    pub(super) why: String,
    pub(super) interval: Option<Interval>,
    /// The quantities that were compared with a bound.
    pub(super) measures: Vec<ClaimMeasure>,
    /// What keeps it from being decided; it says nothing if it is.
    pub(super) undecided: Option<Undecided>,
    /// The paper's own number, or empty.
    pub(super) published: String,
    /// Whether trials could decide it: only then is it one of the claims that are corrected for their
    /// number.
    pub(super) can_be_judged: bool,
}

/// What is asked of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// Between the two.
    Within(f64, f64),
}

impl JudgedClaim {
    pub(super) fn new(text: &'static str, finding: Result<ClaimFinding, Untestable>) -> Self {
        let finding = finding.unwrap_or_else(ClaimFinding::missing);
        Self { text, finding }
    }

    /// The same, unless it came out otherwise for what servers may have had room for.
    pub(super) fn unless(self, roomy: Self) -> Self {
        let is_same = self.finding.verdict == roomy.finding.verdict;
        if is_same || self.finding.verdict == Verdict::NotTestable {
            return self;
        }
        let finding = ClaimFinding {
            verdict: Verdict::NotTestable,
            why: format!(
                "Client-limited. As measured: {} With what the servers' CPU time left room for: {}",
                self.finding.why, roomy.finding.why
            ),
            interval: None,
            measures: Vec::new(),
            undecided: Some(Undecided::ClientLimited),
            ..self.finding
        };
        Self { finding, ..self }
    }

    pub(super) fn into_claim(self, paper: &str) -> Claim {
        let (text, source) = parted(self.text);
        Claim {
            paper: paper.to_owned(),
            text,
            source,
            published: self.finding.published,
            verdict: self.finding.verdict,
            why: self.finding.why,
            interval: self.finding.interval,
            measures: self.finding.measures,
            undecided: self
                .finding
                .undecided
                .filter(|_| self.finding.verdict == Verdict::NotTestable),
        }
    }
}

/// "It falls (Fig. 20)." as what is claimed and where.
fn parted(text: &str) -> (String, String) {
    let parts = text
        .strip_suffix(").")
        .and_then(|text| text.rsplit_once(" ("));
    match parts {
        Some((claim, source)) => (format!("{claim}."), source.to_owned()),
        None => (text.to_owned(), String::new()),
    }
}

impl Bound {
    fn ends(self) -> (f64, f64) {
        match self {
            Self::AtLeast(least) => (least, f64::INFINITY),
            Self::AtMost(most) => (f64::NEG_INFINITY, most),
            Self::Within(least, most) => (least, most),
        }
    }

    pub(super) fn holds(self, value: f64) -> bool {
        let (least, most) = self.ends();
        (least..=most).contains(&value)
    }

    /// Judges an interval against it.
    pub(super) fn verdict(self, interval: &Interval) -> Verdict {
        let (least, most) = self.ends();
        if interval.low >= least && interval.high <= most {
            Verdict::Reproduced
        } else if interval.high < least || interval.low > most {
            Verdict::NotReproduced
        } else {
            Verdict::NotTestable
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("at least {}", number(least)),
            Self::AtMost(most) => format!("at most {}", number(most)),
            Self::Within(least, most) => format!("{} to {}", number(least), number(most)),
        }
    }
}

impl ClaimFinding {
    /// Of a claim for which there is nothing to judge, and why.
    pub(super) fn missing(Untestable(why, undecided): Untestable) -> Self {
        Self {
            can_be_judged: false,
            undecided: Some(undecided),
            ..Self::new(Verdict::NotTestable, why)
        }
    }

    /// Of a test that is no interval against a bound.
    pub(super) fn new(verdict: Verdict, why: String) -> Self {
        Self {
            verdict,
            why,
            interval: None,
            measures: Vec::new(),
            undecided: (verdict == Verdict::NotTestable).then_some(Undecided::FewBlocks),
            published: String::new(),
            can_be_judged: true,
        }
    }

    /// Of a claim that is not judged, with the reason: an absolute rate says more of the two machines than of
    /// the servers. What was measured stands beside what was published.
    pub(super) fn not_comparable(
        what: &str,
        measured: &Estimate,
        (published, reason): (&str, &str),
    ) -> Self {
        let within = within(measured);
        Self {
            interval: measured.interval,
            measures: measure(what, measured, None).into_iter().collect(),
            can_be_judged: false,
            ..Self::new(
                Verdict::NotComparable,
                format!(
                    "{what}: {}{within}; published: {published}. {}.",
                    number(measured.value),
                    capital(reason)
                ),
            )
        }
    }

    /// A quantity with its interval, against what the claim asks of it.
    pub(super) fn of(what: &str, measured: &Estimate, bound: Bound) -> Self {
        let verdict = match &measured.interval {
            Some(interval) => bound.verdict(interval),
            None => Verdict::NotTestable,
        };
        Self::judged(what, measured, bound, verdict)
    }

    /// Of a claim that no trial may fail: one that was seen to fail is enough.
    pub(super) fn failed(what: &str, measured: &Estimate, bound: Bound) -> Self {
        Self::judged(what, measured, bound, Verdict::NotReproduced)
    }

    fn judged(what: &str, measured: &Estimate, bound: Bound, verdict: Verdict) -> Self {
        let mut why = format!("{what}: {}", number(measured.value));
        why += &match &measured.interval {
            Some(_) => within(measured),
            None => " (a single block: no interval)".to_owned(),
        };
        why += &format!("; the claim asks for {}.", bound.text());
        if verdict == Verdict::NotTestable && measured.interval.is_some() {
            why += UNCLEAR;
        }
        if measured.is_widened {
            why += match verdict {
                Verdict::NotTestable => {
                    " Client-limited: the interval reaches as far as the servers' CPU time left room."
                }
                _ => {
                    " The client was the limit in some trials; the interval reaches as far as the \
                     servers' CPU time left room."
                }
            };
        }
        Self {
            interval: measured.interval,
            measures: measure(what, measured, Some(bound)).into_iter().collect(),
            undecided: (verdict == Verdict::NotTestable).then_some(match measured.is_widened {
                true => Undecided::ClientLimited,
                false => Undecided::FewBlocks,
            }),
            can_be_judged: measured.interval.is_some(),
            ..Self::new(verdict, why)
        }
    }

    /// Of a claim that asks for two things: it fails where either does. Each has to be judged
    /// as one of two ([`Evidence::among`](super::evidence::Evidence::among)).
    pub(super) fn and(self, other: Self) -> Self {
        let verdict = match (self.verdict, other.verdict) {
            (Verdict::NotReproduced, _) | (_, Verdict::NotReproduced) => Verdict::NotReproduced,
            (Verdict::Reproduced, Verdict::Reproduced) => Verdict::Reproduced,
            _ => Verdict::NotTestable,
        };
        Self {
            verdict,
            why: format!("{} {}", self.why, other.why),
            interval: self.interval.or(other.interval),
            measures: [self.measures, other.measures].concat(),
            undecided: lasting(self.undecided, other.undecided),
            published: match (self.published.is_empty(), other.published.is_empty()) {
                (false, false) if self.published != other.published => {
                    format!("{}; {}", self.published, other.published)
                }
                (false, _) => self.published,
                (true, _) => other.published,
            },
            can_be_judged: self.can_be_judged || other.can_be_judged,
        }
    }

    /// Of a claim that one of several alternatives proves: it holds where any does, and fails where none
    /// can. The first is reported where no other decides. Each has to be judged as one of their number.
    pub(super) fn any(alternatives: Vec<Self>) -> Option<Self> {
        let holds = |one: &Self| one.verdict == Verdict::Reproduced;
        let is_open = |one: &Self| one.verdict == Verdict::NotTestable;
        let chosen = alternatives.iter().position(holds);
        let chosen = chosen.or_else(|| alternatives.iter().position(is_open));
        alternatives.into_iter().nth(chosen.unwrap_or(0))
    }

    /// The same, with the conditions that it was found under.
    pub(super) fn under(self, conditions: &str) -> Self {
        if conditions.is_empty() {
            return self;
        }
        Self {
            why: format!("{}: {}", capital(conditions), self.why),
            ..self
        }
    }

    /// Of a claim about several conditions: it holds where it does in all of them, and fails where it
    /// does in any. Each has to be judged as one of their number.
    pub(super) fn of_conditions(conditions: Vec<(String, Verdict)>, what: &str) -> Self {
        let of = |wanted: Verdict| {
            let found = conditions.iter().filter(|(_, verdict)| *verdict == wanted);
            found.map(|(text, _)| text.as_str()).collect::<Vec<_>>()
        };
        let fails = of(Verdict::NotReproduced);
        let holds = of(Verdict::Reproduced);
        let open = of(Verdict::NotTestable);
        let verdict = match (fails.is_empty(), open.is_empty(), holds.is_empty()) {
            (false, _, _) => Verdict::NotReproduced,
            (true, true, false) => Verdict::Reproduced,
            _ => Verdict::NotTestable,
        };
        let mut parts = Vec::new();
        for (word, texts) in [
            ("holds", holds),
            ("does not hold", fails),
            ("undecided", open),
        ] {
            if !texts.is_empty() {
                parts.push(format!("{word}: {}", texts.join(", ")));
            }
        }
        let why = format!("{what}. {}.", capital(&parts.join("; ")));
        Self::new(verdict, why)
    }
}

/// What keeps two parts undecided: the first cause that is left with more blocks, if there is one.
pub(super) fn lasting(one: Option<Undecided>, other: Option<Undecided>) -> Option<Undecided> {
    match (one, other) {
        (None | Some(Undecided::FewBlocks), Some(_)) => other,
        _ => one,
    }
}

/// For pictures; `None`: it is no number that has a place on an axis.
fn measure(what: &str, measured: &Estimate, bound: Option<Bound>) -> Option<ClaimMeasure> {
    let ends = bound.map(Bound::ends);
    let finite = |value: f64| Some(value).filter(|it| it.is_finite());
    Some(ClaimMeasure {
        what: what.to_owned(),
        value: finite(measured.value)?,
        interval: measured.interval,
        blocks: measured.blocks,
        least: ends.and_then(|(least, _)| finite(least)),
        most: ends.and_then(|(_, most)| finite(most)),
        published: Vec::new(),
    })
}

/// The interval in parentheses, and of how many blocks it is; empty: there is none.
pub(super) fn within(measured: &Estimate) -> String {
    let Some(interval) = &measured.interval else {
        return String::new();
    };
    let of_blocks = match measured.blocks {
        Some(count) => format!(" of {count} blocks"),
        None => String::new(),
    };
    format!(
        " ({} to {}, {} % interval{of_blocks})",
        number(interval.low),
        number(interval.high),
        percent(interval.level)
    )
}

/// A level with as many digits as distinguish it from 1: 95, 99.71.
fn percent(level: f64) -> String {
    let missing = 100.0 * (1.0 - level);
    if missing <= 0.0 || missing >= 100.0 {
        return format!("{:.0}", level * 100.0);
    }
    let digits = (1.0 - missing.log10().floor()).clamp(0.0, 8.0);
    let text = format!("{:.*}", digits as usize, level * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Three digits, without a tail of zeros.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    if digits <= 0 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.*}", digits.min(6) as usize);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(low: f64, high: f64) -> Interval {
        Interval {
            low,
            high,
            level: 0.95,
        }
    }

    #[test]
    fn an_interval_is_on_one_side_or_cannot_tell() {
        use Verdict::{NotReproduced, NotTestable, Reproduced};
        for (bound, low, high, verdict) in [
            (Bound::AtLeast(3.0), 3.0, 4.0, Reproduced),
            (Bound::AtLeast(3.0), 2.0, 2.9, NotReproduced),
            (Bound::AtLeast(3.0), 2.9, 3.1, NotTestable),
            (Bound::AtMost(1.34), 0.2, 1.0, Reproduced),
            (Bound::AtMost(1.34), 1.4, 1.5, NotReproduced),
            (Bound::Within(1.0, 2.0), 1.1, 1.9, Reproduced),
            (Bound::Within(1.0, 2.0), 0.9, 1.9, NotTestable),
            (Bound::Within(1.0, 2.0), 2.1, 2.9, NotReproduced),
        ] {
            assert_eq!(bound.verdict(&interval(low, high)), verdict, "{bound:?}");
        }
        let single = ClaimFinding::of("a", &(5.0, None).into(), Bound::AtLeast(3.0));
        assert_eq!(single.verdict, NotTestable);
    }

    #[test]
    fn one_of_several_proves_it_and_each_of_two_can_fail_it() {
        use Verdict::{NotReproduced, NotTestable, Reproduced};
        let of = |verdict| ClaimFinding::new(verdict, String::new());
        for (one, other, any, both) in [
            (Reproduced, NotReproduced, Reproduced, NotReproduced),
            (Reproduced, NotTestable, Reproduced, NotTestable),
            (NotTestable, NotReproduced, NotTestable, NotReproduced),
            (NotReproduced, NotReproduced, NotReproduced, NotReproduced),
            (Reproduced, Reproduced, Reproduced, Reproduced),
        ] {
            for (one, other) in [(one, other), (other, one)] {
                let found = ClaimFinding::any(vec![of(one), of(other)]).unwrap();
                assert_eq!(found.verdict, any, "any of {one:?}, {other:?}");
                let found = of(one).and(of(other));
                assert_eq!(found.verdict, both, "both of {one:?}, {other:?}");
            }
        }
        assert_eq!(ClaimFinding::any(Vec::new()), None);
        let mut late = of(NotTestable);
        late.undecided = Some(Undecided::ClientLimited);
        for (one, other) in [(late.clone(), of(NotTestable)), (of(NotTestable), late)] {
            let found = one.and(other).undecided;
            assert_eq!(found, Some(Undecided::ClientLimited));
        }
    }

    #[test]
    fn it_is_said_with_its_numbers() {
        let measured = Estimate::from((3.456, Some(interval(3.1, 3.9))));
        for (measured, of_blocks) in [(measured, ""), (measured.of_blocks(8), " of 8 blocks")] {
            let finding = ClaimFinding::of("several over one", &measured, Bound::AtLeast(3.0));
            let why = format!(
                "several over one: 3.46 (3.1 to 3.9, 95 % interval{of_blocks}); the claim asks for at least 3."
            );
            assert_eq!(finding.why, why);
        }
        let (claim, source) = parted("It falls (in all), too (abstract, Fig. 25).");
        assert_eq!(
            (claim.as_str(), source.as_str()),
            ("It falls (in all), too.", "abstract, Fig. 25")
        );
        assert_eq!(parted("The same."), ("The same.".to_owned(), String::new()));
        let texts = [0.95, 0.975, 1.0 - 0.05 / 17.0, 1.0 - 0.05 / 170.0, 1.0].map(percent);
        assert_eq!(texts, ["95", "97.5", "99.71", "99.971", "100"]);
        let texts = [0.0, 0.001_234, 99.96, 12_345.6, 1.0].map(number);
        assert_eq!(texts, ["0", "0.00123", "100", "12346", "1"]);
    }
}
