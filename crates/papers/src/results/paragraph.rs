//! What came of a paper, in a paragraph that is made of the verdicts on its claims: what holds, what does
//! not, what is undecided, and what would decide it.

use loadline_lab::report::words::{capital, digits, list};
use loadline_lab::report::{Claim, ClaimMeasure, Undecided, Verdict};

/// The paragraph; empty, if there are no claims.
pub(super) fn of(claims: &[Claim]) -> String {
    let all = named(claims);
    let with = |verdict: Verdict| -> Vec<&Named<'_>> {
        all.iter()
            .filter(|one| one.claim.verdict == verdict)
            .collect()
    };
    let mut sentences = Vec::new();
    for (verdict, one, several) in [
        (Verdict::Reproduced, "claims holds here", "claims hold here"),
        (Verdict::NotReproduced, "does not hold", "do not hold"),
    ] {
        let found = with(verdict);
        if !found.is_empty() {
            let what = if found.len() == 1 { one } else { several };
            let texts: Vec<String> = found.iter().map(|one| one.with_numbers()).collect();
            let count = found.len();
            sentences.push(format!(
                "**{count} of {} {what}**: {}.",
                all.len(),
                texts.join("; ")
            ));
        }
    }
    let open = with(Verdict::NotTestable);
    if !open.is_empty() {
        let count = open.len();
        let is = if count == 1 { "is" } else { "are" };
        let causes = causes(&open);
        sentences.push(format!(
            "**{count} {is} undecided**: {}.",
            causes.join("; ")
        ));
    }
    let rates = with(Verdict::NotComparable).len();
    if rates > 0 {
        let what = match rates {
            1 => "1 is an absolute rate or time, which speaks",
            _ => &format!("{rates} are absolute rates or times, which speak"),
        };
        sentences.push(format!(
            "{} of the machine and cannot be compared.",
            capital(what)
        ));
    }
    sentences.join(" ")
}

/// A claim with a text that can be read alone.
struct Named<'c> {
    claim: &'c Claim,
    /// The claim that it is the same as, in other conditions.
    same_as: Option<&'c str>,
    text: &'c str,
}

/// "The same" is the same as the claim before it.
fn named(claims: &[Claim]) -> Vec<Named<'_>> {
    let mut named: Vec<Named<'_>> = Vec::new();
    let mut last = "";
    for claim in claims {
        let text = claim.text.trim_end_matches('.');
        let rest = text.strip_prefix("The same");
        named.push(Named {
            claim,
            same_as: rest.map(|_| last),
            text: rest.unwrap_or(text),
        });
        if rest.is_none() {
            last = text;
        }
    }
    named
}

impl Named<'_> {
    fn plain(&self) -> String {
        match self.same_as {
            Some(_) => self.quoted(),
            None => self.text.to_owned(),
        }
    }

    fn quoted(&self) -> String {
        match self.same_as {
            Some(other) => format!("“{other}”, the same{}", self.text),
            None => format!("“{}”", self.text),
        }
    }

    /// "It falls (0.56; at least 1.02)": numbers of a claim with a single measure.
    fn with_numbers(&self) -> String {
        let [measure] = &self.claim.measures[..] else {
            return self.plain();
        };
        let value = digits(measure.value, 3);
        let bound = match (measure.least, measure.most) {
            (Some(least), Some(most)) => {
                format!("between {} and {}", digits(least, 3), digits(most, 3))
            }
            (Some(least), None) => format!("at least {}", digits(least, 3)),
            (None, Some(most)) => format!("at most {}", digits(most, 3)),
            (None, None) => return self.plain(),
        };
        format!("{} (measured {value}, bound: {bound})", self.plain())
    }
}

/// Undecided claims by what keeps them so, with what would decide them.
fn causes(open: &[&Named<'_>]) -> Vec<String> {
    let of_cause = |cause: &Undecided| {
        let found: Vec<&&Named<'_>> = open
            .iter()
            .filter(|one| one.claim.undecided.unwrap_or(Undecided::FewBlocks) == *cause)
            .collect();
        if found.is_empty() {
            return None;
        }
        let texts: Vec<String> = found.iter().map(|one| one.quoted()).collect();
        let (why, decides) = match cause {
            Undecided::NoTrials => ("this run lacks trials", "a run of the whole plan"),
            Undecided::Discarded => (
                "trials are discarded",
                "a machine that disturbs them less or a client that is not late",
            ),
            Undecided::TooShort => ("the trials are too short", "a run under `--full`"),
            Undecided::ClientLimited => (
                "the client was the limit",
                "a client with more CPUs or a server with a part of one",
            ),
            Undecided::RateTooLow => (
                "nothing bends up to the highest rate",
                "higher rates or a server with a part of a CPU",
            ),
            Undecided::FewBlocks => ("these trials cannot tell", &*more_blocks(&found)),
        };
        Some(format!(
            "{why}, and {decides} would decide: {}",
            list(&texts)
        ))
    };
    Undecided::ALL.iter().filter_map(of_cause).collect()
}

/// How many times as many blocks would do, if values and noise stay as they are: an interval narrows with
/// the root of their number.
fn more_blocks(open: &[&&Named<'_>]) -> String {
    let measures = open.iter().flat_map(|one| &one.claim.measures);
    let times: Vec<f64> = measures.filter_map(times).collect();
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    // What lies at its bound needs more blocks than anyone runs.
    const MANY: f64 = 100.0;
    let number = |times: f64| digits((times.min(MANY) - 1e-6).ceil(), 3);
    match times.len() {
        0 => "more blocks".to_owned(),
        _ if least >= MANY => "only more than 100 times as many blocks".to_owned(),
        _ if number(least) == number(most) => format!("{} times as many blocks", number(least)),
        _ => {
            let or_more = if most > MANY { " or more" } else { "" };
            format!(
                "{} to {}{or_more} times as many blocks",
                number(least),
                number(most)
            )
        }
    }
}

/// `None`: its interval does not hold its bound, or has no logarithm.
fn times(measure: &ClaimMeasure) -> Option<f64> {
    let interval = measure
        .interval
        .filter(|it| it.low > 0.0 && it.high.is_finite())?;
    let bounds = [measure.least, measure.most].into_iter().flatten();
    let held = bounds.filter(|bound| (interval.low..=interval.high).contains(bound));
    let times = held.map(|bound| {
        let distance = (measure.value / bound).ln().abs();
        let half = (interval.high / interval.low).ln() / 2.0;
        (half / distance.max(f64::MIN_POSITIVE)).powi(2)
    });
    times.reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadline_capacity::stats::Interval;

    fn claim(text: &str, verdict: Verdict, undecided: Option<Undecided>) -> Claim {
        Claim {
            paper: "P1".to_owned(),
            text: text.to_owned(),
            source: String::new(),
            published: String::new(),
            verdict,
            why: String::new(),
            interval: None,
            measures: Vec::new(),
            undecided,
        }
    }

    fn measured(value: f64, low: f64, high: f64, least: f64) -> ClaimMeasure {
        ClaimMeasure {
            value,
            interval: Some(Interval {
                low,
                high,
                level: 0.95,
            }),
            least: Some(least),
            ..ClaimMeasure::default()
        }
    }

    #[test]
    fn it_says_what_holds_what_does_not_and_what_would_decide_the_rest() {
        use Undecided::{ClientLimited, NoTrials};
        use Verdict::{NotComparable, NotReproduced, NotTestable, Reproduced};
        let mut claims = [
            claim("It falls.", Reproduced, None),
            claim("Several reach 3 times one.", NotReproduced, None),
            claim("The same on all CPUs.", NotTestable, Some(NoTrials)),
            claim("More help.", NotTestable, Some(ClientLimited)),
            claim("It bends at 1500/s.", NotComparable, None),
        ];
        claims[1].measures = vec![measured(2.0, 1.8, 2.2, 3.0)];
        assert_eq!(
            of(&claims),
            "**1 of 5 claims holds here**: It falls. **1 of 5 does not hold**: Several reach 3 times one \
             (measured 2, bound: at least 3). **2 are undecided**: this run lacks trials, and a run \
             of the whole plan would decide: “Several reach 3 times one”, the same on all CPUs; \
             the client was the limit, and a client with more CPUs or a server with a part of one would \
             decide: “More help”. 1 is an absolute rate or time, which speaks of the machine and \
             cannot be compared."
        );
        assert_eq!(of(&[]), "");
    }

    #[test]
    fn blocks_that_are_missing_follow_from_the_interval() {
        // As far from the bound as a third of the interval's half: nine times as many.
        let near = measured(1.1, 1.1 / 1.1_f64.powi(3), 1.1 * 1.1_f64.powi(3), 1.0);
        assert!((times(&near).unwrap() - 9.0).abs() < 1e-9);
        assert_eq!(times(&measured(2.0, 1.5, 2.5, 1.0)), None);
        let mut open = claim(
            "More help.",
            Verdict::NotTestable,
            Some(Undecided::FewBlocks),
        );
        open.measures = vec![near];
        let said = of(&[open.clone()]);
        assert!(
            said.contains("and 9 times as many blocks would decide: “More help”"),
            "{said}"
        );
        open.measures = vec![measured(1.0, 0.5, 2.0, 1.0)];
        assert!(of(&[open]).contains("only more than 100 times as many blocks"));
    }
}
