//! What exceptions, comparisons and goals of a plan name although no cell of it has that: they would do
//! nothing, and no message would say so.
//!
//! A part of a plan (one of its grids, some of its series) keeps those of the whole, so it is not checked.

use std::fmt;

use loadline_base::sorting::to_set;

use crate::cells::{Cell, Cells};
use crate::journal::{Level, Levels};
use crate::plan::{CellLevels, Plan, PlanError, Series, has_level, levels_of};

/// Levels that a message lists: a factor may have a thousand.
const LISTED_MAX: usize = 20;

/// Something that is named and is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// Which series of the plan names it, from 0; goals follow behind the series.
    pub place: usize,
    /// The series or the goal, and what is wrong with it.
    pub problem: String,
    /// What would be right.
    pub right: String,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; right would be {}", self.problem, self.right)
    }
}

/// What is wrong, and what would be right.
type Problem = (String, String);

/// All of it, in the order of the plan, on a machine with these CPUs.
///
/// # Errors
/// The plan makes no cells.
pub fn unmatched(plan: &Plan, cpus: &[usize]) -> Result<Vec<Unmatched>, PlanError> {
    let cells = Cells::of(plan, cpus, &[])?.cells;
    let mut found = Vec::new();
    let mut add = |place: usize, whose: String, problems: Vec<Problem>| {
        found.extend(problems.into_iter().map(|(problem, right)| Unmatched {
            place,
            problem: format!("{whose}: {problem}"),
            right,
        }));
    };
    for (place, series) in plan.series.iter().enumerate() {
        let own: Vec<&Cell> = cells.iter().filter(|cell| cell.series == place).collect();
        let mut problems = in_exceptions(plan, place)?;
        problems.extend(in_comparison(series, &own));
        add(place, format!("series {}", series.name), problems);
    }
    for (place, goal) in (plan.series.len()..).zip(&plan.goals) {
        let of = in_goal("of", &goal.of, plan, &cells);
        let over = goal.over.as_ref();
        let over = over.and_then(|over| in_goal("over", over, plan, &cells));
        let problems = of.into_iter().chain(over).collect();
        add(place, format!("goal {}", goal.name), problems);
    }
    Ok(found)
}

/// Exceptions of levels that a series does not have, or not together: each level of a factor stands with
/// each of the others, but one that names a server stands with that server alone.
fn in_exceptions(plan: &Plan, place: usize) -> Result<Vec<Problem>, PlanError> {
    let series = &plan.series[place];
    let mut problems = Vec::new();
    if series.except.is_empty() {
        return Ok(problems);
    }
    let combinations = Cells::combinations(plan, place)?;
    for named in &series.except {
        let missing = missing("except", series, named);
        let mut all = combinations.iter();
        if missing.is_empty() && !all.any(|levels| has_all(levels, named)) {
            let problem = format!("except: no combination has {}", levels_text(named));
            problems.push((problem, "levels that stand together".to_owned()));
        }
        problems.extend(missing);
    }
    Ok(problems)
}

/// Levels that a series does not have.
fn missing(key: &str, series: &Series, named: &Levels) -> Vec<Problem> {
    let missing = named.iter();
    let missing = missing.filter(|(factor, level)| !has_level(series, factor, level));
    let problem = |(factor, level): (&String, &Level)| {
        let problem = format!("{key}: {factor} has no level {}", level_text(level));
        (problem, one_of(&[series], factor))
    };
    missing.map(problem).collect()
}

/// A comparison of which there is no pair.
fn in_comparison(series: &Series, cells: &[&Cell]) -> Vec<Problem> {
    let Some(compared) = &series.compare else {
        return Vec::new();
    };
    let with = &compared.with;
    let missing = missing("compare", series, with);
    if !missing.is_empty() {
        return missing;
    }
    let all = cells.iter().copied();
    let beside: Vec<&Cell> = all.filter(|cell| has_all(&cell.levels, with)).collect();
    let is_compared = |cell: &&Cell| {
        let mut levels = cell.levels.clone();
        levels.extend(with.clone());
        levels != cell.levels && beside.iter().any(|other| other.levels == levels)
    };
    if cells.iter().any(is_compared) {
        return Vec::new();
    }
    let with = levels_text(with);
    let problem = format!("compare: no cell differs from one with {with} in that alone");
    vec![(problem, "levels of a cell that has others beside it".into())]
}

/// A goal is judged by a single cell.
fn in_goal(key: &str, wanted: &CellLevels, plan: &Plan, cells: &[Cell]) -> Option<Problem> {
    let name = &wanted.series;
    let all = plan.series.iter();
    let of_name: Vec<&Series> = all.filter(|series| series.name == *name).collect();
    let is_it = |cell: &&Cell| {
        plan.series[cell.series].name == *name && has_all(&cell.levels, &wanted.levels)
    };
    let found: Vec<&Cell> = cells.iter().filter(is_it).collect();
    let named = levels_text(&wanted.levels);
    match found.as_slice() {
        [_] => None,
        [] => {
            let has = |factor: &str, level: &Level| {
                let mut series = of_name.iter();
                series.any(|series| has_level(series, factor, level))
            };
            let mut levels = wanted.levels.iter();
            let right = match levels.find(|(factor, level)| !has(factor, level)) {
                Some((factor, _)) => format!("{} for {factor}", one_of(&of_name, factor)),
                None => "levels that a cell has together".to_owned(),
            };
            let problem = format!("{key}: no cell of series {name} has {named}");
            Some((problem, right))
        }
        several => {
            let is_varied = |(factor, level): &(&String, &Level)| {
                let mut cells = several.iter();
                cells.any(|cell| cell.levels.get(*factor) != Some(*level))
            };
            let levels = several.iter().flat_map(|cell| &cell.levels);
            let varied = levels.filter(is_varied);
            let varied = to_set(varied.map(|(factor, _)| factor.as_str()));
            let varied: Vec<&str> = varied.into_iter().collect();
            let problem = format!("{key}: several cells of series {name} have {named}");
            Some((
                problem,
                format!("a level of {}, too", varied.join(" and of ")),
            ))
        }
    }
}

fn has_all(levels: &Levels, named: &Levels) -> bool {
    let mut named = named.iter();
    named.all(|(factor, level)| levels.get(factor) == Some(level))
}

/// The levels of a factor in some series, each once.
fn one_of(series: &[&Series], factor: &str) -> String {
    let mut texts: Vec<String> = Vec::new();
    for level in series.iter().flat_map(|series| levels_of(series, factor)) {
        let text = level_text(&level);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let rest = texts.len().saturating_sub(LISTED_MAX);
    texts.truncate(LISTED_MAX);
    match rest {
        0 => format!("one of {}", texts.join(", ")),
        rest => format!("one of {}, and {rest} others", texts.join(", ")),
    }
}

/// As a plan has them: `{ connections = 64, server = "reactor" }`.
fn levels_text(levels: &Levels) -> String {
    let levels = levels.iter();
    let texts: Vec<String> = levels
        .map(|(factor, level)| format!("{factor} = {}", level_text(level)))
        .collect();
    match texts.is_empty() {
        true => "{}".to_owned(),
        false => format!("{{ {} }}", texts.join(", ")),
    }
}

/// The number 64 and the name "64" are different levels.
fn level_text(level: &Level) -> String {
    match level {
        Level::Number(number) => number.to_string(),
        Level::Text(text) => format!("\"{text}\""),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Of a series with two servers and two levels, and another one; more of the first, and what
    /// follows both.
    fn said(series: &str, rest: &str) -> Vec<String> {
        let text = format!(
            "name = \"t\"\n[servers.one]\nkind = \"loadline\"\n[servers.two]\nkind = \"loadline\"\n\
             [[series]]\nname = \"s\"\nfactors = {{ connections = [1, 2] }}\n{series}\n\
             [[series]]\nname = \"other\"\n{rest}"
        );
        let plan = Plan::parse(&text, "plan", Path::new("/")).unwrap();
        let found = unmatched(&plan, &[0, 1]).unwrap();
        found.iter().map(Unmatched::to_string).collect()
    }

    #[test]
    fn exceptions_and_comparisons_of_nothing_are_found() {
        let compare =
            |with: &str| format!("compare = {{ metric = \"good_per_s\", with = {with} }}");
        for (series, right) in [
            (
                "except = [{ connections = 3 }]".to_owned(),
                "series s: except: connections has no level 3; right would be one of 1, 2",
            ),
            (
                "except = [{ server = \"one\", connections = \"1\" }]".to_owned(),
                "series s: except: connections has no level \"1\"; right would be one of 1, 2",
            ),
            (
                "except = [{ server = \"three\" }]".to_owned(),
                "series s: except: server has no level \"three\"; right would be one of \"one\", \
                 \"two\"",
            ),
            (
                compare("{ connections = 4 }"),
                "series s: compare: connections has no level 4; right would be one of 1, 2",
            ),
            (
                "except = [{ connections = 1 }]\n".to_owned() + &compare("{ connections = 1 }"),
                "series s: compare: no cell differs from one with { connections = 1 } in that \
                 alone; right would be levels of a cell that has others beside it",
            ),
        ] {
            assert_eq!(said(&series, ""), [right], "{series}");
        }
        let sound = "except = [{ server = \"one\", connections = 2 }]\n".to_owned();
        let found = said(&(sound + &compare("{ server = \"one\" }")), "");
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn exceptions_of_levels_that_never_stand_together_are_found() {
        let said = |except: &str| -> Vec<String> {
            let text = format!(
                "name = \"t\"\n[servers.one]\nkind = \"loadline\"\n[servers.two]\nkind = \"loadline\"\n\
                 [[series]]\nname = \"s\"\nservers = [\"one\"]\nexcept = [{except}]\n\
                 [series.factors]\nconnections = [1, 2]\nmodel = [\n\
                 {{ level = \"a\", server = \"one\" }},\n{{ level = \"b\", server = \"two\" }},\n]\n"
            );
            let plan = Plan::parse(&text, "plan", Path::new("/")).unwrap();
            let found = unmatched(&plan, &[0, 1]).unwrap();
            found.iter().map(Unmatched::to_string).collect()
        };
        let sound = "{ model = \"b\", server = \"two\", connections = 1 }";
        assert_eq!(said(sound), [""; 0]);
        let right = "series s: except: no combination has { model = \"a\", server = \"two\" }; right \
                     would be levels that stand together";
        let apart = format!("{sound}, {{ model = \"a\", server = \"two\" }}");
        assert_eq!(said(&apart), [right]);
        // One that another one covers is a combination all the same.
        assert_eq!(said(&format!("{{ model = \"b\" }}, {sound}")), [""; 0]);
    }

    #[test]
    fn goals_of_no_cell_or_of_several_are_found() {
        let goal = "[[goal]]\nname = \"g\"\nmetric = \"good_per_s\"\nat_most = 1\nseries = \"s\"\n";
        for (rest, right) in [
            (
                "of = { server = \"one\", connections = 3 }",
                "goal g: of: no cell of series s has { connections = 3, server = \"one\" }; \
                 right would be one of 1, 2 for connections",
            ),
            (
                "of = { server = \"one\" }",
                "goal g: of: several cells of series s have { server = \"one\" }; right would \
                 be a level of connections, too",
            ),
            (
                "of = { server = \"one\", connections = 1 }\nover = { server = \"three\" }",
                "goal g: over: no cell of series s has { connections = 1, server = \"three\" }; \
                 right would be one of \"one\", \"two\" for server",
            ),
        ] {
            assert_eq!(said("", &format!("{goal}{rest}")), [right], "{rest}");
        }
        let excepted = "except = [{ server = \"one\", connections = 1 }]";
        let of = "of = { server = \"one\", connections = 1 }\n";
        let found = said(excepted, &format!("{goal}{of}"));
        let right = "right would be levels that a cell has together";
        assert!(found[0].ends_with(right), "{found:?}");
        let over = "over_series = \"other\"\nover = { server = \"one\" }";
        assert_eq!(said("", &format!("{goal}{of}{over}")), [""; 0]);
    }

    #[test]
    fn examples_name_what_is_there() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/examples"));
        for name in ["servers.toml", "small-machine.toml"] {
            let plan = Plan::read(&folder.join(name)).unwrap();
            let mut series = plan.series.iter();
            assert!(series.any(|one| one.compare.is_some() || !one.except.is_empty()));
            let found = unmatched(&plan, &[0, 1]).unwrap();
            assert!(found.is_empty(), "{name}: {found:?}");
        }
    }
}
