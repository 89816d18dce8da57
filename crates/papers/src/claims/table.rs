//! The claims as data: `lab/papers/claims.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use loadline_lab::report::{Undecided, Verdict};
use loadline_record::from_json;
use serde::Deserialize;

use super::evidence::{Evidence, Untestable};
use super::finding::{Bound, ClaimFinding, JudgedClaim, UNCLEAR, number};
use super::late;
use super::limit;
use super::select::Select;
use super::shape::Shape;
use super::taken::Taken;
use super::value::Value;
use crate::packed::packed;

/// By paper. A test sees to it that the file can be read.
static CLAIMS: LazyLock<BTreeMap<String, Vec<ClaimRow>>> =
    LazyLock::new(|| from_json(packed!("claims.json").text().as_bytes()).unwrap_or_default());

/// A claim, or a part of one: it has a value with a bound, a shape, or parts.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ClaimRow {
    /// In our words, with its place in the paper in parentheses at the end. Parts have none.
    text: String,
    /// What is measured; of a shape, under which conditions. A name in braces stands for something that the
    /// measuring finds.
    what: String,
    value: Option<Value>,
    /// Of the value; `None`: it is not judged.
    bound: Option<Bound>,
    /// The paper's own number, or empty.
    published: String,
    /// The same as a value, or as the ends of a range, in the unit of what is measured.
    ticks: Vec<f64>,
    /// Why a value without a bound is not compared; empty: it is an absolute rate.
    not_comparable: String,
    shape: Option<Shape>,
    /// All have to hold; if one cannot be tested, the claim cannot.
    all: Vec<Self>,
    /// All have to hold; one that cannot be tested says so beside the others.
    each: Vec<Self>,
    long: Option<Long>,
    /// Cells in which a single thread has to be the limit, and not the server's CPUs.
    limited_by_a_thread: Option<Select>,
    /// What it is about, in a word or some: the paragraph on the paper puts these together.
    pub(crate) theme: String,
    /// It is the claim before it under another condition, and says so.
    pub(crate) same: bool,
    /// Why it does not hold, if it does not.
    pub(crate) because: String,
    /// What would decide it, if it is undecided: known from how the experiment is made. Empty: what came of it says so.
    pub(crate) decides: String,
}

/// Trials that are shorter say nothing about a claim.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Long {
    series: String,
    least_s: f64,
}

/// The claims of a paper.
pub(crate) fn of_paper(paper: &str) -> &'static [ClaimRow] {
    CLAIMS.get(paper).map(Vec::as_slice).unwrap_or_default()
}

/// What each claim of a paper takes: its text, and cells.
pub(crate) fn taken(paper: &str) -> Vec<(&'static str, Vec<Taken>)> {
    let claims = of_paper(paper).iter();
    claims
        .map(|claim| (claim.text.as_str(), claim.taken()))
        .collect()
}

/// The claims of a paper, judged by what a run says.
pub(super) fn judged(paper: &str, evidence: &Evidence<'_>) -> Vec<JudgedClaim> {
    let claims = of_paper(paper).iter();
    claims
        .map(|claim| JudgedClaim::new(&claim.text, claim.judged(evidence)))
        .collect()
}

impl ClaimRow {
    fn judged(&self, evidence: &Evidence<'_>) -> Result<ClaimFinding, Untestable> {
        if let Some(cells) = &self.limited_by_a_thread {
            limit::is_a_thread(evidence, cells)?;
        }
        let finding = match (&self.value, &self.shape) {
            (Some(value), _) => self.compared(value, evidence),
            (None, Some(shape)) => {
                let finding = shape.judged(evidence);
                finding.map(|finding| finding.under(&self.what))
            }
            (None, None) => self.parts(evidence),
        }?;
        let Some(long) = &self.long else {
            return Ok(finding);
        };
        let mut series = evidence.series(&long.series);
        let duration_s = series.next().map_or(0.0, |one| one.duration_s);
        if duration_s >= long.least_s {
            return Ok(finding);
        }
        let why = format!(
            "These runs are of {} s, and long ones of {} s are run under --full. {}",
            number(duration_s),
            number(long.least_s),
            finding.why
        );
        Err(Untestable(why, Undecided::TooShort))
    }

    /// The conditions of a claim about a shape, which no number of it names; else empty.
    pub(crate) fn conditions(&self) -> &str {
        self.shape.as_ref().map_or("", |_| self.what.as_str())
    }

    fn taken(&self) -> Vec<Taken> {
        let parts = self.all.iter().chain(&self.each);
        let mut taken: Vec<Taken> = parts.flat_map(Self::taken).collect();
        taken.extend(self.value.iter().flat_map(Value::taken));
        taken.extend(self.shape.iter().map(Shape::taken));
        taken.extend(self.limited_by_a_thread.iter().map(Taken::all));
        taken
    }

    /// Each part is judged as one of their number.
    fn parts(&self, evidence: &Evidence<'_>) -> Result<ClaimFinding, Untestable> {
        let one_of = evidence.among(self.all.len() + self.each.len());
        let all: Result<Vec<_>, _> = self.all.iter().map(|part| part.judged(&one_of)).collect();
        let each = self.each.iter().map(|part| {
            let finding = part.judged(&one_of);
            finding.unwrap_or_else(ClaimFinding::missing)
        });
        let findings = all?.into_iter().chain(each);
        let nothing = || Untestable("Nothing was compared.".to_owned(), Undecided::NoTrials);
        findings.reduce(ClaimFinding::and).ok_or_else(nothing)
    }

    /// The value against its bound; if too few times count, with those of late clients.
    fn compared(&self, value: &Value, evidence: &Evidence<'_>) -> Result<ClaimFinding, Untestable> {
        let counted = self.counted(value, evidence);
        let is_discarded = match &counted {
            Ok(finding) => finding.undecided == Some(Undecided::Discarded),
            Err(Untestable(_, undecided)) => *undecided == Undecided::Discarded,
        };
        let bound = self.bound.filter(|_| is_discarded);
        let late = bound.and_then(|bound| late::bounded(value, (&self.what, bound), evidence));
        let mut finding = late.map_or(counted, Ok)?;
        finding.published.clone_from(&self.published);
        for measure in &mut finding.measures {
            measure.published.clone_from(&self.ticks);
        }
        Ok(finding)
    }

    /// The value against its bound, by the trials that count.
    fn counted(&self, value: &Value, evidence: &Evidence<'_>) -> Result<ClaimFinding, Untestable> {
        let mut what = self.what.clone();
        let measured = value.measured(evidence, &mut what)?;
        let is_largest = matches!(value, Value::Largest { .. });
        let mut finding = match self.bound {
            Some(bound) if is_largest && !bound.holds(measured.value) => {
                ClaimFinding::failed(&what, &measured, bound)
            }
            Some(bound) => {
                value.has_enough(evidence)?;
                ClaimFinding::of(&what, &measured, bound)
            }
            None => {
                let reason = match self.not_comparable.as_str() {
                    "" => "An absolute rate speaks of the machine",
                    reason => reason,
                };
                ClaimFinding::not_comparable(&what, &measured, (&self.published, reason))
            }
        };
        if let (Value::Bends(bends), Verdict::NotTestable) = (value, finding.verdict) {
            if let Some(why) = bends.unseen(evidence) {
                (finding.why, finding.interval) = (why, None);
                finding.measures.clear();
                finding.undecided = Some(Undecided::RateTooLow);
            } else if let Some(bound) = self.bound
                && let Some(Untestable(why, cause)) = bends.open_step(evidence, bound)
            {
                finding.why = format!("{} {why}", finding.why.trim_end_matches(UNCLEAR));
                finding.undecided = Some(cause);
            }
        }
        if finding.undecided == Some(Undecided::FewBlocks)
            && let Some(count) = measured.blocks
            && let Some(why) = evidence.lost_blocks(&value.taken(), count)
        {
            finding.why = format!("{} {why}", finding.why.trim_end_matches(UNCLEAR));
            finding.undecided = Some(Undecided::Discarded);
        }
        Ok(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_is_read() {
        let claims: BTreeMap<String, Vec<ClaimRow>> =
            from_json(packed!("claims.json").text().as_bytes()).unwrap();
        assert_eq!(claims.len(), crate::PAPERS.len());
        for claim in claims.values().flatten() {
            let tests = [
                claim.value.is_some(),
                claim.shape.is_some(),
                !claim.all.is_empty(),
                !claim.each.is_empty(),
            ];
            assert_eq!(tests.iter().filter(|it| **it).count(), 1, "{claim:?}");
            assert!(!claim.theme.is_empty(), "{claim:?}");
            let says_same = claim.text.starts_with("The same");
            assert!(claim.same || !says_same, "{claim:?}");
            let parts = claim.all.iter().chain(&claim.each);
            for one in parts.chain([claim]) {
                assert!(
                    one.bound.is_none() || one.not_comparable.is_empty(),
                    "{one:?}"
                );
                let text = one.published.replace(',', "");
                let words: Vec<f64> = text
                    .split([' ', '(', '/'])
                    .filter_map(|word| word.parse().ok())
                    .collect();
                let mut ticks = one.ticks.iter();
                assert!(ticks.all(|tick| words.contains(tick)), "{one:?}");
            }
        }
    }
    /// What is called stable is what the table has: the largest over the smallest, as a slope from end to end.
    #[test]
    fn the_bound_of_stable_cpu_use_is_the_papers_table() {
        let mut of_connections: BTreeMap<u32, f64> = BTreeMap::new();
        for row in crate::published::ROWS.iter() {
            let is_cpu = ["cpu_user", "cpu_kernel"].contains(&row.metric.as_str());
            if let (true, true, Some(connections)) =
                (is_cpu, row.server.starts_with("Statix"), row.connections)
            {
                *of_connections.entry(connections as u32).or_default() += row.value;
            }
        }
        assert_eq!(of_connections.len(), 10);
        let most = of_connections.values().copied().fold(0.0, f64::max);
        let least = of_connections
            .values()
            .copied()
            .fold(f64::INFINITY, f64::min);
        assert_eq!((most, least), (319.0, 297.0));
        let slope = (most / least).ln() / 10.0_f64.ln();
        let claims = CLAIMS["P4"].iter();
        let mut stable = claims.filter(|claim| claim.text.starts_with("Its use of CPUs"));
        let stable = stable.next().unwrap();
        let Some(Bound::Within(low, high)) = stable.bound else {
            panic!("{stable:?}");
        };
        assert!(
            (low + slope).abs() < 1e-9 && (high - slope).abs() < 1e-9,
            "{slope}"
        );
        let published = format!("{:.2} times (Table I)", most / least);
        assert_eq!(stable.published, published);
    }
}
