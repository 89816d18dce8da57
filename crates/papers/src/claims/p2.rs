//! P2: reactor against proactor.

use loadline_lab::analysis::Metric;
use loadline_lab::report::Verdict;

use super::evidence::Evidence;
use super::finding::{Bound, ClaimFinding, Row, number};
use super::select::Select;

/// The paper's clients.
const CLIENTS: f64 = 10_000.0;
const FEW_CLIENTS: f64 = 10.0;
const PUBLISHED_RATIO: f64 = 1.27;
const MATTERS: f64 = 0.02;
/// Where accounts are kept.
const DATABASES: [&str; 3] = ["SQLite", "MariaDB", "PostgreSQL"];
/// What the hash of a password bounds is the same under each arm, but for what else there is to do.
const SAME: Bound = Bound::Within(0.9, 1.1);

fn arm(name: &'static str) -> Select {
    Select::series("arms").is("arm", name)
}

fn at(clients: f64, name: &'static str) -> Select {
    arm(name).is("connections", clients)
}

fn worked(work: &'static str, name: &'static str) -> Select {
    Select::series("work")
        .is("work", work)
        .is("arm", name)
        .is("connections", CLIENTS)
}

pub(super) fn rows(evidence: &Evidence<'_>) -> Vec<Row> {
    let same_timer = |name, bound| {
        let ratio = evidence.ratio(
            Metric::GoodPerS,
            &at(CLIENTS, name),
            &at(CLIENTS, "workers"),
        )?;
        let what = format!("{name} over workers at 10,000 clients, with and without timer");
        Ok(ClaimFinding::of_ratio(
            &what,
            &ratio,
            bound,
            "1.27 for both changes at once",
        ))
    };
    vec![
        Row::new(
            "The proactor with its timer serves 27 % more than the reactor (section 6.3).",
            as_published(evidence),
        ),
        Row::new(
            "It is so because the loop reads and writes instead of the workers (section 4.2).",
            same_timer("loop", Bound::AtLeast(1.0 + MATTERS)),
        ),
        Row::new(
            "It is so if the kernel reads and writes, as in a proactor that is none by name only.",
            same_timer("kernel", Bound::AtLeast(1.0 + MATTERS)),
        ),
        Row::new(
            "No request fails at 10,000 clients, under either (Figs. 5 and 6).",
            no_failures(evidence),
        ),
        Row::new(
            "The reactor suits few clients: with 10 it is as good as the proactor (appendix 1).",
            few_clients(evidence),
        ),
        Row::new(
            "The reactor suffers as clients grow in number (appendix 1).",
            suffers(evidence),
        ),
        Row::new(
            "The proactor's gain shrinks under heavy computation (section 4.3).",
            shrinks(evidence),
        ),
        Row::new(
            "Behind the login, too, the loop serves more than the workers, on each database.",
            behind_login(evidence, "loop"),
        ),
        Row::new(
            "Behind the login, too, the kernel serves more than the workers, on each database.",
            behind_login(evidence, "kernel"),
        ),
        Row::new(
            "Registering and logging in are as fast under each arm: hashing the password bounds them.",
            as_fast(evidence),
        ),
    ]
}

fn as_published(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let (this, other) = (
        at(CLIENTS, "loop").is("timer", "with"),
        at(CLIENTS, "workers").is("timer", "without"),
    );
    let ratio = evidence.ratio(Metric::GoodPerS, &this, &other)?;
    let what = "Loop with timer over workers without, at 10,000 clients";
    let bound = Bound::AtLeast(PUBLISHED_RATIO);
    Ok(ClaimFinding::of_ratio(
        what,
        &ratio,
        bound,
        "1.27 (3131/s over 2451/s)",
    ))
}

fn no_failures(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let mut finding: Option<ClaimFinding> = None;
    let one_of = evidence.among(2);
    for name in ["workers", "loop"] {
        let select = at(CLIENTS, name);
        let trials = evidence.trials(&select);
        let shares: Vec<f64> = trials
            .iter()
            .filter_map(|trial| trial.value(Metric::ErrorShare))
            .collect();
        let most = shares.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if !most.is_finite() {
            return Err(evidence.missing(&select));
        }
        let interval = one_of
            .mean(&|trial| trial.value(Metric::ErrorShare), &select)?
            .1;
        let what = format!(
            "{name}: largest share of failed requests in {} trials",
            shares.len()
        );
        // None may fail in any trial: the largest decides, not the usual one.
        let interval = interval.map(|it| loadline_capacity::stats::Interval { high: most, ..it });
        let one = ClaimFinding::of_quantity(&what, most, interval, Bound::AtMost(0.0), "0");
        let one = settled(one, most);
        finding = Some(match finding {
            None => one,
            Some(before) => before.and(one),
        });
    }
    finding.ok_or_else(|| evidence.missing(&Select::series("arms")))
}

/// A failure that was seen is one, however usual it is.
fn settled(mut finding: ClaimFinding, most: f64) -> ClaimFinding {
    if most > 0.0 {
        finding.verdict = Verdict::NotReproduced;
        finding.why = finding
            .why
            .replace(". Not distinguishable with these trials.", ".");
    }
    finding
}

fn few_clients(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let (this, other) = (at(FEW_CLIENTS, "workers"), at(FEW_CLIENTS, "loop"));
    let ratio = evidence.ratio(Metric::GoodPerS, &this, &other)?;
    let what = "Workers over loop at 10 clients, with and without timer";
    Ok(ClaimFinding::of_ratio(
        what,
        &ratio,
        Bound::AtLeast(1.0 - MATTERS),
        "",
    ))
}

/// 10,000 clients over the number that suits it best.
fn suffers(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let workers = arm("workers");
    let pool = (&workers, "connections");
    let is_all = |clients| clients >= CLIENTS;
    let ([_, best], ratio) =
        evidence.best_over(Metric::GoodPerS, pool, &is_all, &|clients| !is_all(clients))?;
    let what = format!(
        "Workers: 10,000 clients over {} (the best of fewer)",
        number(best)
    );
    let bound = Bound::AtMost(1.0 - MATTERS);
    Ok(ClaimFinding::of_ratio(&what, &ratio, bound, ""))
}

fn shrinks(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let plain = |name| at(CLIENTS, name).is("timer", "with");
    let ratio = evidence.ratio_of_ratios(
        Metric::GoodPerS,
        [&worked("spin", "loop"), &worked("spin", "workers")],
        [&plain("loop"), &plain("workers")],
    )?;
    let what = "Gain of the loop over workers with 500 us of computing, over the gain without";
    Ok(ClaimFinding::of_ratio(
        what,
        &ratio,
        Bound::AtMost(1.0 - MATTERS),
        "",
    ))
}

/// Page and picture of users who are logged in, whatever their number.
fn behind_login(evidence: &Evidence<'_>, name: &'static str) -> Result<ClaimFinding, String> {
    let one_of = evidence.among(DATABASES.len());
    let of_database = |database: &'static str| {
        let page = |arm: &'static str| {
            Select::series("page")
                .is("database", database)
                .is("arm", arm)
        };
        let ratio = one_of.ratio(Metric::GoodPerS, &page(name), &page("workers"))?;
        let what = format!("{database}: {name} over workers");
        let bound = Bound::AtLeast(1.0 + MATTERS);
        Ok(ClaimFinding::of_ratio(&what, &ratio, bound, ""))
    };
    together(DATABASES.map(of_database))
}

fn as_fast(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let mut findings = Vec::new();
    let (actions, arms) = (["register", "log in"], ["loop", "kernel"]);
    let one_of = evidence.among(actions.len() * arms.len());
    for action in actions {
        let of = || Select::series("accounts").is("action", action);
        let per_s = evidence.mean(&|trial| trial.value(Metric::GoodPerS), &of());
        for name in arms {
            let (this, other) = (of().is("arm", name), of().is("arm", "workers"));
            let ratio = one_of.ratio(Metric::GoodPerS, &this, &other);
            findings.push(ratio.and_then(|ratio| {
                let per_s = per_s.clone()?.0;
                let what = format!("{action} ({per_s:.0} a second): {name} over workers");
                Ok(ClaimFinding::of_ratio(&what, &ratio, SAME, ""))
            }));
        }
    }
    together(findings)
}

/// A claim about several things, each judged as one of them. Of those that cannot be tested, it is said why, and what the others
/// came to.
fn together(
    findings: impl IntoIterator<Item = Result<ClaimFinding, String>>,
) -> Result<ClaimFinding, String> {
    let findings = findings.into_iter();
    let said = findings.map(|finding| finding.unwrap_or_else(ClaimFinding::missing));
    said.reduce(ClaimFinding::and)
        .ok_or_else(|| "Nothing was compared.".to_owned())
}
