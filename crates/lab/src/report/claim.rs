//! What somebody claimed, and whether it holds here.

use loadline_base::choice;
use serde::{Deserialize, Serialize};

use loadline_capacity::stats::Interval;

/// A claim of a paper, judged by a test of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Whose: "P1".
    pub paper: String,
    /// The claim, in our words.
    pub text: String,
    /// Where it stands in the paper: "Fig. 20"; may be empty.
    #[serde(default)]
    pub source: String,
    /// The paper's own number; empty: it has none.
    #[serde(default)]
    pub published: String,
    /// What came of it.
    pub verdict: Verdict,
    /// Why: what was compared, or the measured limit that prevents the test.
    pub why: String,
    /// Of the quantity that decided, where there is one.
    pub interval: Option<Interval>,
    /// Every quantity that it was judged by; none, if it was judged by a trend, or by optima that lie apart, or
    /// not at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measures: Vec<ClaimMeasure>,
    /// Why it is undecided, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecided: Option<Undecided>,
}

/// A quantity that a claim is judged by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimMeasure {
    /// What was measured.
    pub what: String,
    /// The estimate.
    pub value: f64,
    /// What holds the true value; `None`: there is a single block.
    pub interval: Option<Interval>,
    /// Of how many blocks it is; `None`: the interval is of no simple mean over blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<usize>,
    /// What the claim asks for at least.
    pub least: Option<f64>,
    /// What it allows at most; without both, it is not judged.
    pub most: Option<f64>,
    /// The paper's own value, or the ends of its range; empty: it has none.
    pub published: Vec<f64>,
}

choice! {
    /// What came of a claim.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Verdict {
        /// It holds here.
        Reproduced "reproduced",
        /// It does not hold here.
        NotReproduced "not_reproduced",
        /// This machine, or this run, cannot tell.
        NotTestable "not_testable",
        /// It is about a number that no other machine has to have: what was measured stands beside it.
        NotComparable "not_comparable",
    }
}

choice! {
    /// What keeps a claim from being decided.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Undecided {
        /// The run lacks trials of it.
        NoTrials "no_trials",
        /// Trials of it are discarded.
        Discarded "discarded",
        /// Its trials are shorter than the claim asks for.
        TooShort "too_short",
        /// The client was the limit, and the server may carry more.
        ClientLimited "client_limited",
        /// Nothing bends up to the highest rate.
        RateTooLow "rate_too_low",
        /// What bends does so between two rates, which leave it open how it compares.
        RatesApart "rates_apart",
        /// There is no gain, of which it says how it changes.
        NoGain "no_gain",
        /// The server's CPUs were the limit, and not the one thread that the claim is about.
        FewCpus "few_cpus",
        /// In some trials there is 0 of what is compared, of which there is no ratio.
        NothingDone "nothing_done",
        /// The interval holds the bound, or there is none.
        FewBlocks "few_blocks",
    }
}

impl Verdict {
    /// In words.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Reproduced => "Reproduced",
            Self::NotReproduced => "Not reproduced",
            Self::NotTestable => "Not testable here",
            Self::NotComparable => "Not comparable",
        }
    }

    /// A mark beside the word: colour alone says nothing to some.
    #[must_use]
    pub fn mark(self) -> &'static str {
        match self {
            Self::Reproduced => "✓",
            Self::NotReproduced => "✗",
            Self::NotTestable => "–",
            Self::NotComparable => "≠",
        }
    }
}
