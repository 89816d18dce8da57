//! `loadline lab capacity`: options to limits of a search, trials with `loadline load`, and the
//! result as text, JSON and exit code.

use std::io::Write as _;
use std::path::PathBuf;

use loadline_capacity::search::{Bound, Limits, Search, TrialOutcome, Try};
use loadline_lab::capacity::{
    self, Capacity, Client, ClientOptions, Evidence, Fresh, FreshOptions, Runs, SearchObserver,
    Stop, Trials, page,
};
use loadline_lab::cells::cpus_text;
use loadline_lab::plan::{Network, Placement};
use loadline_lab::slo::Slo;
use loadline_record::from_json;
use loadline_record::report::number::{maybe_us, rate, span_s};
use loadline_spec::load::LoadSpec;
use loadline_spec::load::values::Cpus;

use crate::failure::{Exit, Failure};
use crate::files::{Output, full};
use crate::flags::capacity_defs::CapacityFlags;
use crate::interrupt;

/// What a trial takes beside its measurement and warm-up, before that is known better.
const START_S: f64 = 0.5;
/// The rate to begin with is at most this: a server on its knees is no place to begin.
const BEGIN_PER_S_MAX: f64 = 1000.0;
const BEGIN_PER_S_MIN: f64 = 1.0;

/// How long the closed loop takes that says where to begin.
const CLOSED_LOOP_S: f64 = 1.0;

/// Searches, and prints what was found.
pub(super) fn capacity(flags: &CapacityFlags) -> Result<(), Failure> {
    let slo: Slo = (flags.slo.parse()).map_err(|why| Failure::usage(format!("--slo {why}")))?;
    let mut limits = limits(flags, &slo);
    limits.check().map_err(Failure::usage)?;
    check_fit(flags)?;
    let load = load(&flags.load)?;
    let json = Output::open("--json", flags.json.as_deref())?;
    interrupt::catch(interrupt::end)?;
    let (mut trials, target) = trials(flags, load)?;
    let conditions = conditions(flags);
    let earlier = earlier(&flags.again, &slo.to_string(), &target, &conditions)?;
    if flags.from.is_none() {
        let carried_per_s = match trials.closed_loop(CLOSED_LOOP_S) {
            // Options of an open loop, perhaps; if it is something else, the first trial says so.
            Err(Stop::Failed(_)) => 0.0,
            carried => carried.map_err(stopped)?,
        };
        limits.begin_per_s = begin_per_s(limits.begin_per_s, carried_per_s, *flags.to);
        limits.budget_s -= CLOSED_LOOP_S;
        limits.check().map_err(Failure::usage)?;
    }
    let mut lines = Lines {
        is_quiet: flags.quiet,
        budget_s: limits.budget_s,
    };
    let result = capacity::measure(
        &slo,
        &target,
        &conditions,
        &limits,
        &mut *trials,
        &mut lines,
    );
    let mut result = result.map_err(stopped)?;
    if !earlier.is_empty() {
        result.runs = Runs::of(&earlier, &result);
    }
    crate::print(page(&result).as_bytes())?;
    Output::write(json, |to| {
        to.write_all(&serde_json::to_vec_pretty(&result)?)
    })?;
    ending(&result)
}

/// Near what a closed loop carried, but below it: a server that does better at higher rates is seen on
/// the way up. `auto_per_s` is where a short trial is long enough.
fn begin_per_s(auto_per_s: f64, carried_per_s: f64, to_per_s: f64) -> f64 {
    let near_per_s = (carried_per_s / 10.0).max(auto_per_s.min(carried_per_s / 3.0));
    match near_per_s >= BEGIN_PER_S_MIN {
        true => near_per_s.min(to_per_s),
        false => auto_per_s,
    }
}

/// The results of earlier searches for the same.
fn earlier(
    paths: &[PathBuf],
    slo: &str,
    target: &str,
    conditions: &str,
) -> Result<Vec<Capacity>, Failure> {
    let read = |path: &PathBuf| {
        let wrong = |why: String| {
            let name = path.display();
            Failure::usage(format!(
                "--again {name}: {why}; right would be the --json of a search for the same"
            ))
        };
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let read = from_json(&bytes);
        let read: Capacity = read.map_err(|error| wrong(error.to_string()))?;
        Runs::check(&read, slo, target, conditions).map_err(|other| wrong(other.to_string()))?;
        Ok(read)
    };
    paths.iter().map(read).collect()
}

/// What else the capacity depends on, as options: the same text for the same trials. Those of `--sweep`
/// only look for where the others are to be.
fn conditions(flags: &CapacityFlags) -> String {
    let mut given = vec![format!("--connections={}", *flags.connections)];
    let placement = placement(flags);
    given.push(format!("--cpus={}", cpus_text(&placement.client)));
    if flags.url.is_none() {
        given.push(format!("--server-cpus={}", cpus_text(&placement.server)));
    }
    let quota = flags.cpu_quota.map(|cpus| format!("--cpu-quota={cpus}"));
    let network = flags.namespaces.then(|| "--namespaces".to_owned());
    let link = flags.link.map(|link| format!("--link={link}"));
    let root = flags.root.as_ref().map(|root| {
        let root = full(root).unwrap_or_else(|| root.clone());
        format!("--root={}", root.display())
    });
    let path = flags.path.as_ref().map(|path| format!("--path={path}"));
    given.extend([quota, network, link, root, path].into_iter().flatten());
    given.push(format!("--trial={}s", flags.trial.as_secs_f64()));
    given.push(format!("--warm-up={}s", flags.warm_up.as_secs_f64()));
    given.extend(flags.load.iter().map(|word| format!("--load={word}")));
    given.join(" ")
}

/// Trials against what is there or what is started, and how that is called.
fn trials(flags: &CapacityFlags, load: LoadSpec) -> Result<(Box<dyn Trials>, String), Failure> {
    // Clients with many connections inherit it.
    loadline_sys::usage::raise_descriptor_limit();
    let warm_up_s = flags.warm_up.as_secs_f64();
    let seed = flags
        .seed
        .unwrap_or_else(|| u64::from(std::process::id()) << 16);
    if let Some(url) = &flags.url {
        let options = ClientOptions {
            url: url.clone(),
            connections: *flags.connections,
            warm_up_s,
            server_pid: flags.server_pid.map(|pid| pid.0),
            cpus: flags.cpus.clone(),
            load,
            seed,
        };
        let client = Client::new(options, interrupt::is_over).map_err(stopped)?;
        client.check().map_err(stopped)?;
        return Ok((Box::new(client), url.clone()));
    }
    let fresh = Fresh::new(
        FreshOptions {
            command: flags.command.clone(),
            root: flags.root.clone(),
            path: flags.path.clone().unwrap_or_else(|| "/".to_owned()),
            connections: *flags.connections,
            warm_up_s,
            placement: placement(flags),
            cpu_quota: flags.cpu_quota,
            network: match flags.namespaces {
                true => Network::Namespaces,
                false => Network::Loopback,
            },
            link: flags.link,
            load,
            seed,
        },
        interrupt::is_over,
    );
    let fresh = fresh.map_err(Failure::usage)?;
    Ok((Box::new(fresh), flags.command.join(" ")))
}

fn placement(flags: &CapacityFlags) -> Placement {
    let cpus = loadline_sys::affinity::cpus_allowed();
    let split = Placement::named("split", &cpus);
    let split = split.unwrap_or_else(|| Placement {
        server: cpus.clone(),
        client: cpus.clone(),
    });
    let given = |list: &Option<Cpus>| list.as_ref().map(|list| list.0.clone());
    Placement {
        server: given(&flags.server_cpus).unwrap_or(split.server),
        client: given(&flags.cpus).unwrap_or(split.client),
    }
}

fn limits(flags: &CapacityFlags, slo: &Slo) -> Limits {
    let short_s = flags.sweep.as_secs_f64();
    // A few more than needed: errors have no latency.
    let requests_min = slo.requests_min() as f64 * 1.1;
    let begin_per_s = (requests_min / short_s).clamp(BEGIN_PER_S_MIN, BEGIN_PER_S_MAX);
    Limits {
        begin_per_s: flags
            .from
            .map_or_else(|| begin_per_s.min(*flags.to), |rate| *rate),
        rate_max_per_s: *flags.to,
        budget_s: flags.budget.as_secs_f64(),
        short_s,
        long_s: flags.trial.as_secs_f64(),
        requests_min,
        warm_up_s: flags.warm_up.as_secs_f64(),
        overhead_s: flags.warm_up.as_secs_f64() + START_S,
    }
}

/// A server that runs already, or one that is started: not both, and options of one of them.
fn check_fit(flags: &CapacityFlags) -> Result<(), Failure> {
    let is_url = flags.url.is_some();
    let wrong = match (is_url, flags.command.is_empty()) {
        (true, false) => "a URL and a command: right would be one of them",
        (false, true) => {
            "the server is missing: right would be its URL, or -- and how it is started"
        }
        (true, true) if flags.root.is_some() || flags.path.is_some() => {
            "--root and --path belong to a server that is started; right would be a URL with its path"
        }
        (true, true) if flags.cpu_quota.is_some() => {
            "--cpu-quota belongs to a server that is started; this one runs without"
        }
        (true, true) if flags.namespaces => {
            "--namespaces belongs to a server that is started; this one has its network already"
        }
        (true, true) if flags.link.is_some() => {
            "--link belongs to a server that is started; this one has its network already"
        }
        (true, true) if flags.server_cpus.is_some() => {
            "--server-cpus belongs to a server that is started; this one has its CPUs already"
        }
        (false, false) if flags.server_pid.is_some() => {
            "--server-pid belongs to a URL; a server that is started is watched anyway"
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(wrong))
}

/// The load that `--load` describes, word by word.
fn load(words: &[String]) -> Result<LoadSpec, Failure> {
    let wrong = |why: String| Failure::usage(format!("--load {}: {why}", words.join(" ")));
    let load = crate::flags::load_words(words).map_err(|failure| wrong(failure.message))?;
    capacity::check_load(&load).map_err(|error| wrong(error.to_string()))?;
    Ok(load)
}

fn stopped(stop: Stop) -> Failure {
    match stop {
        Stop::Failed(why) => Failure::failed(why),
        Stop::Interrupted => Failure::new(Exit::Interrupted, "interrupted before the first trial"),
    }
}

fn ending(result: &Capacity) -> Result<(), Failure> {
    let (exit, why) = match result.finding.bound {
        _ if result.interrupted => (
            Exit::Interrupted,
            "interrupted: this is what was found so far",
        ),
        Bound::Found => return Ok(()),
        Bound::NoneHolds => (Exit::BindOrAssert, "no rate holds the SLO"),
        Bound::AtLeast => (
            Exit::ClientLimited,
            "the capacity is beyond what could be tried",
        ),
        Bound::BudgetTooSmall => (
            Exit::Cut,
            "the budget is too small for an interval of 10 %; --budget gives it more",
        ),
    };
    Err(Failure::new(exit, why))
}

/// A line for each trial, on standard error.
struct Lines {
    is_quiet: bool,
    budget_s: f64,
}

impl SearchObserver for Lines {
    fn begins(&mut self, _: &Try, _: &Search) {}

    fn judged(&mut self, evidence: &Evidence, search: &Search) {
        if self.is_quiet {
            return;
        }
        let trial = &evidence.tried.trial;
        let outcome = match evidence.tried.outcome {
            TrialOutcome::Holds => "held",
            TrialOutcome::Fails => "not held",
            TrialOutcome::Discarded => "discarded",
            TrialOutcome::ClientLimited => "client-limited",
        };
        let measured = evidence.measured.as_ref();
        let p99_us = measured.and_then(|one| one.latency_p99_us);
        let reason = evidence.reasons.first();
        let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
        let left_s = (self.budget_s - search.spent_s()).max(0.0).round();
        crate::say(&format!(
            "{:>3} {:<7} {}/s for {}: {outcome}, p99 {}, {} left{reason}",
            search.tried().len(),
            trial.stage,
            rate(trial.rate_per_s),
            span_s(trial.seconds),
            maybe_us(p99_us),
            span_s(left_s),
        ));
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    /// Of a search with these options for a server that is started.
    fn conditions_of(words: &[&str]) -> String {
        let words = [
            &["capacity", "--slo=p99 < 1s"][..],
            words,
            &["--", "server"],
        ]
        .concat();
        let command = CapacityFlags::augment_args(clap::Command::new("capacity"));
        let matches = command.try_get_matches_from(words).unwrap();
        conditions(&CapacityFlags::from_arg_matches(&matches).unwrap())
    }

    #[test]
    fn searches_of_other_content_or_length_do_not_stand_beside_each_other() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        let of_root = |path: &str| {
            let root = format!("--root={}", folder.path().join(path).display());
            conditions_of(&[root.as_str()])
        };
        let usual = conditions_of(&[]);
        for other in ["--trial=20s", "--warm-up=2s", "--path=/b"] {
            assert_ne!(conditions_of(&[other]), usual, "{other}");
        }
        for same in [
            "--trial=10000ms",
            "--warm-up=1s",
            "--sweep=1s",
            "--budget=1h",
        ] {
            assert_eq!(conditions_of(&[same]), usual, "{same}");
        }
        assert_eq!(of_root("a"), of_root("./a/../a"));
        assert_ne!(of_root("a"), of_root("."));
        assert_ne!(of_root("a"), usual);
    }

    #[test]
    fn it_begins_near_the_answer() {
        for (carried_per_s, right) in [
            (150_000.0, 15_000.0), // a tenth
            (1200.0, 366.0),       // where a short trial is long enough, but below what is carried
            (900.0, 300.0),        // a third
            (0.0, 366.0),          // nothing was answered
            (1e9, 1e6),            // the highest rate to try
        ] {
            assert_eq!(begin_per_s(366.0, carried_per_s, 1e6), right);
        }
    }
}
