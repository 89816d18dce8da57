//! `loadline lab advise`: what a run says should be used, in words, with the command line to start it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;

use loadline_capacity::stats::Comparison;
use loadline_lab::advice::{Advice, Choice, Goal, Question, advise, text};
use loadline_lab::analysis::Run;
use loadline_lab::journal::Levels;
use loadline_lab::report::{quantity, shell};
use loadline_server::Architecture;
use loadline_spec::field::Preset;
use loadline_spec::load::values::Cpus;
use loadline_spec::values::{Auto, Count};
use loadline_spec::words;
use loadline_sys::affinity::CpuBudget;

use crate::failure::{Exit, Failure};
use crate::flags::defs::Command;
use crate::flags::high::{Machine, Plan, plan, why_no_io_uring};
use crate::flags::lab_advise_defs::LabAdviseFlags;
use crate::flags::{self, Typed};
use crate::start_up::{chosen, count};
use loadline_spec::serve::{Named, ServeSpec};

/// Advises, or says why not.
pub(super) fn advice(flags: &LabAdviseFlags) -> Result<(), Failure> {
    let run = Run::read(&flags.run).map_err(Failure::usage)?;
    let question = Question {
        series: flags.series.clone(),
        workload: flags.workload.iter().cloned().collect::<Levels>(),
        goal: flags.goal,
    };
    let advice = advise(&run, &question)
        .map_err(|why| Failure::new(Exit::BindOrAssert, format!("no advice: {why}")))?;
    if let Some(path) = &flags.json {
        let text = serde_json::to_string_pretty(&advice).map_err(std::io::Error::from);
        text.and_then(|text| fs::write(path, text + "\n"))
            .map_err(|error| Failure::file(path, error))?;
    }
    crate::print(page(&advice).as_bytes())
}

fn page(advice: &Advice) -> String {
    let goal = advice.goal;
    let clear = match advice.tied.is_empty() {
        true => "",
        false => "none is distinguishably the best. The best mean has ",
    };
    let (workload, best) = (text(&advice.workload), named(&advice.best, goal));
    let mut page = format!("For {workload}: {clear}{best}");
    page += &match advice.rests_on.as_slice() {
        [first, _, ..] => format!(" at {}.\n", text(first)),
        _ => ".\n".to_owned(),
    };
    if let Some(resolved) = resolved(&advice.best) {
        let (chosen, cpus) = (chosen(&resolved), cpus(&advice.best));
        let _ = writeln!(page, "  {chosen}; on {cpus}");
    }
    page += &comparison(advice);
    page += &changes(advice);
    page += &start(&advice.best);
    let rests_on: Vec<String> = advice.rests_on.iter().map(text).collect();
    let _ = writeln!(
        page,
        "Rests on series {}, {}, {} of trials{}.",
        advice.series,
        rests_on.join(" and "),
        count(advice.best.blocks, "block"),
        match advice.discarded {
            0 => String::new(),
            discarded => format!("; {} of the series discarded", count(discarded, "trial")),
        }
    );
    page
}

/// "reactor, 48,210/s" with what is to be known about that value.
fn named(choice: &Choice, goal: Goal) -> String {
    let least = match (choice.is_client_limited, goal) {
        (true, Goal::Throughput) => "at least ",
        (true, Goal::TailLatency) => "at most ",
        _ => "",
    };
    let what = match choice.levels.is_empty() {
        true => "the only server".to_owned(),
        false => text(&choice.levels),
    };
    format!("{what}, {least}{}", quantity(goal.metric(), choice.value))
}

fn comparison(advice: &Advice) -> String {
    let Some((runner_up, comparison)) = &advice.runner_up else {
        return "There was no other choice to compare it with.\n".to_owned();
    };
    let is_tied = advice.tied.iter().any(|it| it.levels == runner_up.levels);
    let margin = margin(comparison);
    let runner_up = named(runner_up, advice.goal);
    let mut page = match is_tied {
        true => format!("Not distinguishable from {runner_up}: the ratio is {margin}.\n"),
        false => format!("Runner-up: {runner_up}; the advice is {margin} times as good.\n"),
    };
    for choice in advice.tied.iter().skip(usize::from(is_tied)) {
        let choice = named(choice, advice.goal);
        let _ = writeln!(page, "Nor is it distinguishable from {choice}.");
    }
    let limited =
        advice.best.is_client_limited || advice.tied.iter().any(|it| it.is_client_limited);
    if limited {
        page += "Where the client was the limit, what the server's CPU time leaves room for, an estimate, counts too.\n";
    }
    let least = advice.matters * 100.0;
    page + &format!("Differences below {least:.1} % count as none here.\n")
}

fn margin(comparison: &Comparison) -> String {
    let ratio = comparison.ratio;
    let Some(it) = comparison.interval else {
        return format!("{ratio:.2} (no interval)");
    };
    let (low, high, level) = (it.low, it.high, it.level * 100.0);
    format!("{ratio:.2} ({low:.2} to {high:.2}, {level:.0} % interval)")
}

fn changes(advice: &Advice) -> String {
    if advice.would_change.is_empty() {
        return "Nothing that was measured beside it would change that.\n".to_owned();
    }
    let mut page = "What would change that:\n".to_owned();
    for change in &advice.would_change {
        let (best, margin) = (text(&change.best), margin(&change.comparison));
        let (factor, level) = (&change.factor, &change.level);
        page += &format!("  {factor} = {level}: {best} is {margin} times as good there\n");
    }
    page
}

/// How to start it, where it is Loadline with its numbers written out: on another machine `auto` would
/// be others.
fn start(choice: &Choice) -> String {
    if choice.command.is_empty() {
        return String::new();
    }
    let Some(resolved) = resolved(choice) else {
        let mut page = format!("It was started with\n  {}\n", shell(&choice.command));
        if let Some(text) = &choice.configuration {
            let _ = writeln!(page, "and this file:\n{}", text.trim_end());
        }
        return page;
    };
    let begin = ["loadline", "serve", "DIR", "--listen=127.0.0.1:8080"];
    let mut line = begin.map(str::to_owned).to_vec();
    line.extend(written_out(&resolved).iter().map(|word| for_others(word)));
    format!("Start it with\n  {}\n", shell(&line))
}

/// The database of a trial is gone with it.
fn for_others(word: &str) -> String {
    let url = word.strip_prefix("--accounts=");
    match url.and_then(|url| url.split_once(':')) {
        Some(("sqlite", _)) => "--accounts=sqlite:accounts.db".to_owned(),
        Some((scheme, _)) => format!("--accounts={scheme}://USER:PASSWORD@HOST/DATABASE"),
        None => word.to_owned(),
    }
}

/// The options of a server, its numbers written out, without what was the trial's and not the choice.
fn written_out(plan: &Plan) -> Vec<String> {
    let preset = ServeSpec::default();
    let mut spec = ServeSpec {
        root: preset.root,
        listen: preset.listen,
        work: preset.work,
        ..ServeSpec::clone(&plan.flags)
    };
    spec.running.status_path = None;
    spec.running.log_level = preset.running.log_level;
    let options = &plan.options;
    let numbers = &mut spec.architecture;
    numbers.architecture = Preset(Auto::Given(Named(options.architecture)));
    match options.architecture {
        Architecture::Reactor | Architecture::Proactor => {
            numbers.loops = Preset(Auto::Given(Count::clamped(options.loops)));
            numbers.workers = Preset(Auto::Given(Count::clamped(options.workers)));
        }
        Architecture::ThreadPool => {
            numbers.threads = Preset(Auto::Given(Count::clamped(options.threads)));
        }
        Architecture::Sequential | Architecture::ThreadPerConnection => {}
    }
    words(&spec)
}

/// What `loadline serve` made of its options on the CPUs of the trial, where `auto` is by this machine; `None`: it was another server.
fn resolved(choice: &Choice) -> Option<Plan> {
    if choice.command.first().map(String::as_str) != Some("loadline") {
        return None;
    }
    let machine = Machine {
        budget: CpuBudget {
            affinity: cpu_count(&choice.cpus).max(1),
            quota_milli: choice.cpu_quota.map(|cpus| (cpus * 1000.0) as u64),
        },
        descriptors_max: usize::MAX,
        memory: None,
        refuses_io_uring: why_no_io_uring(),
    };
    match flags::read(choice.command.iter().map(OsString::from)) {
        Ok(Typed::Command(Command::Serve(flags))) => plan(*flags, &machine).ok(),
        _ => None,
    }
}

fn cpu_count(list: &str) -> usize {
    list.parse::<Cpus>().map_or(0, |list| list.0.len())
}

fn cpus(choice: &Choice) -> String {
    let cpus = match cpu_count(&choice.cpus) {
        0 => "unknown CPUs".to_owned(),
        several => count(several, "CPU"),
    };
    match choice.cpu_quota {
        None => cpus,
        Some(quota) => format!("{cpus} with a quota of {quota}"),
    }
}

#[cfg(test)]
mod tests {
    use loadline_lab::advice::Choice;

    use super::{cpus, for_others, resolved};

    /// What is `auto` there is by the CPUs of the trial, and by its quota.
    #[test]
    fn auto_follows_the_quota_of_the_trial() {
        let words = [
            "loadline",
            "serve",
            ".",
            "--architecture=reactor",
            "--loops=auto",
        ];
        let mut choice = Choice {
            levels: [].into(),
            command: words.map(str::to_owned).to_vec(),
            configuration: None,
            cpus: "0-3".to_owned(),
            cpu_quota: None,
            value: 1.0,
            blocks: 3,
            is_client_limited: false,
        };
        assert_eq!(cpus(&choice), "4 CPUs");
        assert_eq!(resolved(&choice).unwrap().options.loops, 4);
        choice.cpu_quota = Some(0.4);
        assert_eq!(cpus(&choice), "4 CPUs with a quota of 0.4");
        assert_eq!(resolved(&choice).unwrap().options.loops, 1);
    }

    #[test]
    fn the_database_of_a_trial_is_not_advised() {
        assert_eq!(
            for_others("--accounts=sqlite:runs/P2/scratch/000080/accounts.db"),
            "--accounts=sqlite:accounts.db"
        );
        assert_eq!(
            for_others("--accounts=postgres://tester@%2Ftmp%2Fpg/trial6"),
            "--accounts=postgres://USER:PASSWORD@HOST/DATABASE"
        );
        assert_eq!(for_others("--accounts-pool=8"), "--accounts-pool=8");
    }
}
