//! Where a run was measured, and how to measure it again, as pages say it.

use loadline_lab::report::{Report, shell};

/// A run behind a page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Source {
    /// Machine, version, day, and how much was measured.
    pub(crate) facts: String,
    /// The command that measures it again.
    pub(crate) command: String,
}

impl Source {
    pub(crate) fn new(report: &Report) -> Self {
        Self {
            facts: facts(report),
            command: shell(&repeated(&report.environment.command)),
        }
    }
}

/// The command that repeats a run anywhere: where the program lay, and where the results went, is of
/// the machine that it was run on.
fn repeated(command: &[String]) -> Vec<String> {
    let mut words = command.iter();
    let program = words.next().and_then(|path| path.rsplit('/').next());
    let mut kept: Vec<String> = program.map(str::to_owned).into_iter().collect();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--out" | "--keep" => _ = words.next(),
            word if word.starts_with("--out=") || word.starts_with("--keep=") => {}
            word => kept.push(word.to_owned()),
        }
    }
    kept
}

/// The machine, and how much was measured, in a sentence or two.
pub(crate) fn facts(report: &Report) -> String {
    let of = |name: &str| {
        let facts = report.environment.facts.iter();
        let mut found = facts.filter(|fact| fact.name == name);
        found.next().map_or("", |fact| fact.value.as_str())
    };
    let repeated = match report.repeated.len() {
        0 => String::new(),
        1 => "; 1 was disturbed and run again".to_owned(),
        count => format!("; {count} were disturbed and run again"),
    };
    let late = match report.times_discarded.len() {
        0 => String::new(),
        count => format!(", {count} more in their times alone"),
    };
    format!(
        "{} on {} CPUs of {}, Linux {}, congestion control {}, Loadline {}; CPUs of server | client: {}. {} \
         trials in {}, {} of them discarded{late}{repeated}.",
        of("Begun"),
        of("CPUs of the machine"),
        of("Processor"),
        of("Kernel"),
        of("Congestion control"),
        of("Loadline"),
        of("CPUs of server | client"),
        report.trials_counted + report.discarded.len(),
        of("Time in trials"),
        report.discarded.len()
    )
}
