//! What came of a paper, made of the verdicts on its claims: what holds and what does not, theme by theme;
//! what is undecided, and what would decide it.

use loadline_capacity::stats::{Interval, runs_wanted};
use loadline_lab::report::words::{capital, digits, list};
use loadline_lab::report::{Claim, ClaimMeasure, Undecided, Verdict};

use super::decided::decided;
use crate::claims::ClaimRow;
use crate::distinct;

/// The text, in Markdown; empty, if there are no claims.
pub(super) fn of(claims: &[Claim], notes: &[ClaimRow]) -> String {
    let all = named(claims, notes);
    if all.is_empty() {
        return String::new();
    }
    let decided = decided(claims.iter().map(|claim| claim.verdict));
    let mut parts = vec![format!("{} {decided}", head(&all)).trim_end().to_owned()];
    let themes = themes(&all);
    if !themes.is_empty() {
        parts.push(themes.join("\n"));
    }
    let open = undecided(&all);
    if !open.is_empty() {
        parts.push(format!("**Undecided**: {}.", causes(&open).join("; ")));
    }
    parts.join("\n\n")
}

/// What is undecided, each claim with a text that can be read alone; empty: nothing is.
pub(super) fn open(claims: &[Claim], notes: &[ClaimRow]) -> Vec<String> {
    let all = named(claims, notes);
    undecided(&all).iter().map(|one| one.quoted()).collect()
}

fn undecided<'n, 'c>(all: &'n [Named<'c>]) -> Vec<&'n Named<'c>> {
    all.iter()
        .filter(|one| one.claim.verdict == Verdict::NotTestable)
        .collect()
}

/// How many came out how, of the paper's claims and of our own, which have no place in it.
fn head(all: &[Named<'_>]) -> String {
    let is_own = |one: &&Named<'_>| one.claim.source.is_empty();
    let (own, published): (Vec<&Named<'_>>, Vec<&Named<'_>>) = all.iter().partition(is_own);
    let mut parts = Vec::new();
    for (claims, whose) in [(published, ""), (own, " of our own")] {
        let noun = if claims.len() == 1 { "claim" } else { "claims" };
        if !claims.is_empty() {
            let counts = list(&counts(&claims));
            parts.push(format!("{} {noun}{whose} {counts}", claims.len()));
        }
    }
    format!("**Of {}.**", parts.join("; of "))
}

fn counts(all: &[&Named<'_>]) -> Vec<String> {
    let count = |verdict: Verdict| {
        all.iter()
            .filter(|one| one.claim.verdict == verdict)
            .count()
    };
    let mut counts = Vec::new();
    for (verdict, one, several) in [
        (Verdict::Reproduced, "holds here", "hold here"),
        (Verdict::NotReproduced, "does not", "do not"),
        (Verdict::NotTestable, "is undecided", "are undecided"),
        (
            Verdict::NotComparable,
            "is not comparable",
            "are not comparable",
        ),
    ] {
        match count(verdict) {
            0 if verdict != Verdict::Reproduced => {}
            0 => counts.push("none holds here".to_owned()),
            1 => counts.push(format!("1 {one}")),
            count => counts.push(format!("{count} {several}")),
        }
    }
    counts
}

/// What holds and what does not, a line for each theme, in the order of the first claim of each.
fn themes(all: &[Named<'_>]) -> Vec<String> {
    let themes = distinct(all.iter().map(|one| one.theme)).into_iter();
    let lines = themes.filter_map(|theme| {
        let of = |verdict: Verdict| {
            let found = all.iter().filter(move |one| {
                let claim = one.claim;
                one.theme == theme && claim.verdict == verdict
            });
            found.map(Named::with_numbers).collect::<Vec<_>>()
        };
        let sentences = [
            ("Holds", of(Verdict::Reproduced)),
            ("Does not hold", of(Verdict::NotReproduced)),
        ];
        let sentences: Vec<String> = sentences
            .into_iter()
            .filter(|(_, texts)| !texts.is_empty())
            .map(|(what, texts)| format!("{what}: {}.", texts.join("; ")))
            .collect();
        match (sentences.is_empty(), theme.is_empty()) {
            (true, _) => None,
            (false, true) => Some(sentences.join(" ")),
            (false, false) => Some(format!("- **{theme}.** {}", sentences.join(" "))),
        }
    });
    lines.collect()
}

/// A claim with a text that can be read alone.
struct Named<'c> {
    claim: &'c Claim,
    theme: &'c str,
    /// The claim that it is the same as, under other conditions.
    same_as: Option<&'c str>,
    text: &'c str,
    because: &'c str,
    /// What would decide it, if nothing of the run has to say so.
    decides: &'c str,
    /// What it was found under, where its numbers do not say it.
    conditions: &'c str,
}

/// Of each claim. `notes` may lack: of a run of no paper.
fn named<'c>(claims: &'c [Claim], notes: &'c [ClaimRow]) -> Vec<Named<'c>> {
    let mut named: Vec<Named<'c>> = Vec::new();
    let mut last = "";
    for (index, claim) in claims.iter().enumerate() {
        let text = claim.text.trim_end_matches('.');
        let note = notes.get(index);
        let is_same = note.is_some_and(|note| note.same);
        named.push(Named {
            claim,
            theme: note.map_or("", |note| &note.theme),
            same_as: is_same.then_some(last),
            text,
            because: note.map_or("", |note| &note.because),
            decides: note.map_or("", |note| &note.decides),
            conditions: note.map_or("", |note| note.conditions()),
        });
        if !is_same {
            last = text;
        }
    }
    named
}

impl Named<'_> {
    /// What keeps it undecided.
    fn cause(&self) -> Undecided {
        self.claim.undecided.unwrap_or(Undecided::FewBlocks)
    }

    fn plain(&self) -> String {
        match self.same_as {
            Some(_) => self.quoted(),
            None => self.text.to_owned(),
        }
    }

    fn quoted(&self) -> String {
        match self.same_as {
            Some(other) => {
                let mut characters = self.text.chars();
                let first = characters.next().map(char::to_lowercase);
                let text: String = first.into_iter().flatten().chain(characters).collect();
                format!("“{other}”, {text}")
            }
            None => format!("“{}”", self.text),
        }
    }

    /// "It falls (measured 0.56, bound: at least 1.02), because ...": its numbers, and why it does not hold.
    fn with_numbers(&self) -> String {
        let mut said = self.plain();
        let mut under = vec![numbers(&self.claim.measures)];
        if !self.conditions.is_empty() {
            under.push(format!("here: {}", self.conditions));
        }
        under.retain(|text| !text.is_empty());
        if !under.is_empty() {
            said += &format!(" ({})", under.join("; "));
        }
        if self.claim.verdict == Verdict::NotReproduced && !self.because.is_empty() {
            said += &format!(", because {}", self.because);
        }
        said
    }
}

/// "measured 0.56 and 0.9, bound: at least 1.02": values of the same bound together. Empty: none is judged.
fn numbers(measures: &[ClaimMeasure]) -> String {
    let bounds = distinct(measures.iter().filter_map(bound));
    let of_bound = |wanted: &String| {
        let of_it = measures
            .iter()
            .filter(|measure| bound(measure).as_ref() == Some(wanted));
        let values: Vec<String> = of_it.map(|measure| digits(measure.value, 3)).collect();
        format!("measured {}, bound: {wanted}", list(&values))
    };
    bounds.iter().map(of_bound).collect::<Vec<_>>().join("; ")
}

/// In words; `None`: it is not judged.
fn bound(measure: &ClaimMeasure) -> Option<String> {
    match (measure.least, measure.most) {
        (Some(least), Some(most)) => Some(format!(
            "between {} and {}",
            digits(least, 3),
            digits(most, 3)
        )),
        (Some(least), None) => Some(format!("at least {}", digits(least, 3))),
        (None, Some(most)) => Some(format!("at most {}", digits(most, 3))),
        (None, None) => None,
    }
}

/// Undecided claims by what keeps them so, with what would decide them.
fn causes(open: &[&Named<'_>]) -> Vec<String> {
    let of_cause = |cause: &Undecided| {
        let found = open.iter().copied().filter(|one| one.cause() == *cause);
        let (own, others): (Vec<&Named<'_>>, Vec<&Named<'_>>) =
            found.partition(|one| !one.decides.is_empty());
        let (why, decides) = why_open(*cause);
        let text_of = |one: &&Named<'_>| match (cause, more_blocks(one.claim)) {
            (Undecided::FewBlocks, Some(blocks)) => format!("{} ({blocks})", one.quoted()),
            _ => one.quoted(),
        };
        let texts: Vec<String> = others.iter().map(text_of).collect();
        let said = format!("{why}, and {decides} would decide: {}", list(&texts));
        let said = Some(said).filter(|_| !texts.is_empty());
        let own = own.iter().map(|one| {
            let (decides, text) = (one.decides, one.quoted());
            format!("{why}, and {decides} would decide: {text}")
        });
        said.into_iter().chain(own).collect::<Vec<String>>()
    };
    Undecided::ALL.iter().flat_map(of_cause).collect()
}

/// What keeps claims undecided, and what would decide them.
fn why_open(cause: Undecided) -> (&'static str, &'static str) {
    match cause {
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
        Undecided::RatesApart => ("the rates lie too far apart", "rates in smaller steps"),
        Undecided::NoGain => (
            "there is no gain that could shrink",
            "a load under which there is one",
        ),
        Undecided::FewCpus => (
            "the server's CPUs were the limit, and no single thread",
            "a machine with more CPUs",
        ),
        Undecided::NothingDone => (
            "a server did nothing in some trials",
            "a load under which each server does something",
        ),
        Undecided::FewBlocks => ("these trials cannot tell", "more blocks"),
    }
}

/// What would decide each claim that is undecided, in a sentence; empty: it is decided.
pub(super) fn decided_by(claims: &[Claim], notes: &[ClaimRow]) -> Vec<String> {
    let all = named(claims, notes);
    let of_cause = |one: &Named<'_>| {
        let (_, decides) = why_open(one.cause());
        let blocks = match one.cause() {
            Undecided::FewBlocks => more_blocks(one.claim),
            _ => None,
        };
        blocks.unwrap_or_else(|| decides.to_owned())
    };
    let sentence = |one: &Named<'_>| match (one.claim.verdict, one.decides) {
        (Verdict::NotTestable, "") => of_cause(one),
        (Verdict::NotTestable, decides) => decides.to_owned(),
        _ => String::new(),
    };
    let sentences = all
        .iter()
        .map(sentence)
        .map(|decides| match decides.is_empty() {
            true => decides,
            false => format!(" {} would decide.", capital(&decides)),
        });
    sentences.collect()
}

/// How many blocks would decide a claim, if values and noise stay as they are; `None`: nothing says it.
fn more_blocks(claim: &Claim) -> Option<String> {
    let measures = claim.measures.iter();
    let wanted = measures.filter_map(|measure| Some((times(measure)?, measure.blocks)));
    let (times, blocks) = wanted.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let is_too_many = times > MANY as f64;
    // At least one more, and none for what was lost in rounding.
    let more = |times: f64, now: usize| digits((times - 1e-6).ceil().max(now as f64 + 1.0), 9);
    Some(match blocks {
        Some(now) if is_too_many => {
            let most = digits((MANY * now) as f64, 9);
            format!("more than {most} blocks instead of {now}")
        }
        Some(now) => format!("{} blocks instead of {now}", more(times * now as f64, now)),
        None if is_too_many => format!("more than {MANY} times as many blocks"),
        None => format!("{} times as many blocks", more(times, 1)),
    })
}

/// What lies at its bound needs more times as many blocks than anyone runs.
const MANY: usize = 100;

/// An interval narrows with the root of the number of blocks, and with Student's t where it is of a simple
/// mean. `None`: it does not hold its bound, or has no end.
fn times(measure: &ClaimMeasure) -> Option<f64> {
    let is_finite = |it: &Interval| it.low.is_finite() && it.high.is_finite();
    let interval = measure.interval.filter(is_finite)?;
    let bounds = [measure.least, measure.most].into_iter().flatten();
    let held = bounds.filter(|bound| interval.contains(*bound));
    // Ratios and rates scatter by their logarithms; what may be 0 or below, by itself.
    let scaled = |value: f64| match interval.low > 0.0 {
        true => value.ln(),
        false => value,
    };
    let times = held.map(|bound| {
        // A share that is 0 in all trials, or 1, is bounded by the number of requests.
        if measure.value <= 0.0 && interval.low >= 0.0 {
            return interval.high / bound;
        }
        if is_always_one(measure, &interval) {
            return (1.0 - interval.low) / (1.0 - bound);
        }
        let distance = (scaled(measure.value) - scaled(bound)).abs();
        let Some(blocks) = measure.blocks else {
            // Intervals of the best of several reach farther to one side.
            let end = match bound > measure.value {
                true => interval.high,
                false => interval.low,
            };
            let reach = (scaled(end) - scaled(measure.value)).abs();
            return (reach / distance.max(f64::MIN_POSITIVE)).powi(2);
        };
        let half = (scaled(interval.high) - scaled(interval.low)) / 2.0;
        let wanted = runs_wanted((blocks, half), distance, interval.level, MANY * blocks);
        wanted.map_or(f64::INFINITY, |wanted| wanted as f64 / blocks as f64)
    });
    times.reduce(f64::max)
}

/// Whether it is a share that is 1 in all trials: intervals of other means reach as far to either side.
fn is_always_one(measure: &ClaimMeasure, interval: &Interval) -> bool {
    let is_end = measure.value >= 1.0 && interval.high <= 1.0;
    is_end && interval.low < 1.0 && measure.blocks.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(text: &str, verdict: Verdict, undecided: Option<Undecided>) -> Claim {
        Claim {
            paper: "P1".to_owned(),
            text: text.to_owned(),
            source: "section 1".to_owned(),
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

    fn note(theme: &str, same: bool, because: &str) -> ClaimRow {
        let mut note = ClaimRow::default();
        (note.theme, note.same) = (theme.to_owned(), same);
        because.clone_into(&mut note.because);
        note
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
            claim("It rises.", NotReproduced, None),
        ];
        claims[1].measures = vec![measured(2.0, 1.8, 2.2, 3.0), measured(1.5, 1.4, 1.6, 3.0)];
        claims[5].measures = vec![measured(0.5, 0.4, 0.6, 0.9), measured(1.2, 1.1, 1.3, 1.0)];
        let notes = [
            note("Time", false, "not said of what holds"),
            note("Models", false, "there is one CPU"),
            note("Models", true, ""),
            note("Threads", false, ""),
            note("Rates", false, ""),
            note("Time", false, ""),
        ];
        assert_eq!(
            of(&claims, &notes),
            "**Of 6 claims 1 holds here, 2 do not, 2 are undecided and 1 is not comparable.** Of the 5 comparable \
             claims 3 are decided (60 %); nine tenths are 5, 2 more.\n\n\
             - **Time.** Holds: It falls. Does not hold: It rises (measured 0.5, bound: at least 0.9; measured \
             1.2, bound: at least 1).\n\
             - **Models.** Does not hold: Several reach 3 times one (measured 2 and 1.5, bound: at least 3), \
             because there is one CPU.\n\n\
             **Undecided**: this run lacks trials, and a run \
             of the whole plan would decide: “Several reach 3 times one”, the same on all CPUs; \
             the client was the limit, and a client with more CPUs or a server with a part of one would \
             decide: “More help”."
        );
        let open = open(&claims, &notes);
        assert_eq!(
            open,
            [
                "“Several reach 3 times one”, the same on all CPUs",
                "“More help”"
            ]
        );
        // What a text begins with decides nothing.
        let said = of(&claims[..3], &[]);
        let expected = "Holds: It falls. Does not hold: Several reach 3 times one (measured 2 and 1.5, \
                        bound: at least 3).";
        assert!(said.contains(expected), "{said}");
        assert!(
            said.ends_with("would decide: “The same on all CPUs”."),
            "{said}"
        );
        assert_eq!(of(&[], &[]), "");
        let decided = decided_by(&claims, &notes);
        assert_eq!(decided[..2], ["", ""]);
        assert_eq!(decided[2], " A run of the whole plan would decide.");
        // What is known from how the experiment is made says more than what came of it.
        let mut of_machine = note("Threads", false, "");
        "a machine of four CPUs".clone_into(&mut of_machine.decides);
        let own = decided_by(&claims[3..4], std::slice::from_ref(&of_machine));
        assert_eq!(own, [" A machine of four CPUs would decide."]);
        let said = of(&claims[3..4], &[of_machine]);
        let expected = "**Undecided**: the client was the limit, and a machine of four CPUs would decide: “More help”.";
        assert!(said.ends_with(expected), "{said}");
        claims[5].source.clear();
        let said = of(&claims, &notes);
        let expected =
            "and 1 is not comparable; of 1 claim of our own none holds here and 1 does not.**";
        assert!(said.contains(expected), "{said}");
    }

    #[test]
    fn of_an_interval_the_side_of_the_bound_counts() {
        for (below, above, wanted) in [(3, 5, 9.0), (5, 3, 25.0)] {
            let (low, high) = (1.1 / 1.1_f64.powi(below), 1.1 * 1.1_f64.powi(above));
            let mirrored = measured(1.0 / 1.1, 1.0 / high, 1.0 / low, 1.0);
            for measure in [measured(1.1, low, high, 1.0), mirrored] {
                let found = times(&measure).unwrap();
                assert!((found - wanted).abs() < 1e-9, "{measure:?}: {found}");
            }
        }
    }

    #[test]
    fn blocks_that_are_missing_follow_from_the_interval() {
        // As far from the bound as a third of the interval's half: nine times as many.
        let near = measured(1.1, 1.1 / 1.1_f64.powi(3), 1.1 * 1.1_f64.powi(3), 1.0);
        assert!((times(&near).unwrap() - 9.0).abs() < 1e-9);
        // Of three blocks the same three times as many, since t falls from 4.3 to 2.3.
        let of_three = ClaimMeasure {
            blocks: Some(3),
            ..near.clone()
        };
        assert!((times(&of_three).unwrap() - 3.0).abs() < 1e-9);
        assert_eq!(times(&measured(2.0, 1.5, 2.5, 1.0)), None);
        let none_failed = measured(0.0, 0.0, 0.003, 0.001);
        assert!((times(&none_failed).unwrap() - 3.0).abs() < 1e-9);
        let all_failed = ClaimMeasure {
            blocks: Some(5),
            ..measured(1.0, 0.5, 1.0, 0.9)
        };
        assert!((times(&all_failed).unwrap() - 5.0).abs() < 1e-9);
        // A slope may be below 0, and has no logarithm.
        let slope = measured(0.02, -0.01, 0.05, 0.01);
        assert!((times(&slope).unwrap() - 9.0).abs() < 1e-9);
        let mut open = claim(
            "More help.",
            Verdict::NotTestable,
            Some(Undecided::FewBlocks),
        );
        open.measures = vec![near];
        let decided = decided_by(std::slice::from_ref(&open), &[]);
        assert_eq!(decided, [" 9 times as many blocks would decide."]);
        let shape = claim(
            "It falls.",
            Verdict::NotTestable,
            Some(Undecided::FewBlocks),
        );
        let said = of(&[open.clone(), shape], &[]);
        let expected = "these trials cannot tell, and more blocks would decide: “More help” (9 times as many \
                        blocks) and “It falls”.";
        assert!(said.ends_with(expected), "{said}");
        // The part that needs most has its say.
        open.measures.push(of_three);
        open.measures.push(all_failed);
        let decided = decided_by(std::slice::from_ref(&open), &[]);
        assert_eq!(decided, [" 9 times as many blocks would decide."]);
        open.measures.remove(0);
        let decided = decided_by(std::slice::from_ref(&open), &[]);
        assert_eq!(decided, [" 25 blocks instead of 5 would decide."]);
        open.measures = vec![measured(1.0, 0.5, 2.0, 1.0)];
        let decided = decided_by(std::slice::from_ref(&open), &[]);
        assert_eq!(
            decided,
            [" More than 100 times as many blocks would decide."]
        );
        open.measures[0].blocks = Some(36);
        let said = of(&[open], &[]);
        let expected = "would decide: “More help” (more than 3,600 blocks instead of 36).";
        assert!(said.ends_with(expected), "{said}");
    }
}
