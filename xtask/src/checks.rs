//! What `./x check`, `./x test` and `./x fuzz` run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::programs::{Programs, TEST_THREADS};
use crate::steps::{Steps, command, joined};

/// Time for each fuzz target in a test run, in seconds.
const FUZZ_TEST_SECONDS: u32 = 1;
/// Time for each fuzz target in a run of everything, or when fuzzing is what was asked for, in seconds.
const FUZZ_SECONDS: u32 = 60;
/// How fuzz targets are built where they run for a minute or more, and in a test run: there the build takes longer.
const FUZZ_PROFILE: &str = "release";
const FUZZ_TEST_PROFILE: &str = "quick";
/// What asks for the tests that take long, too.
const ALL: &str = "--all";
/// What the names of tests end with that measure or print something: no run includes them.
const BY_HAND: &str = "_by_hand";

/// Format, lints, house rules.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut steps = Steps::new();
    format(&mut steps, root)?;
    lints(&mut steps, root)?;
    steps.run(command(root, "cargo test -q -p xtask --test tidy"))
}

/// Everything but what takes long, and with `--all` that, too: tests that are `#[ignore = "long: WHY"]`,
/// and fuzz targets for longer. With filters only the tests whose names contain one of them.
pub(crate) fn test(root: &Path, arguments: &[String]) -> Result<(), String> {
    let words = words(arguments)?;
    let mut steps = Steps::new();
    let done = match words.filters.is_empty() {
        true => everything(&mut steps, root, &words),
        false => steps.run(filtered(root, &words)),
    };
    println!("\n{steps}");
    done.and_then(|()| steps.check_disturbed())
}

/// Other workspaces are built and tested beside, at a lower priority: they take what CPU time the rest leaves.
fn everything(steps: &mut Steps, root: &Path, words: &Words<'_>) -> Result<(), String> {
    format(steps, root)?;
    let others = other_workspaces(root, words)?;
    let (tests, others) = thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut beside = Steps::new();
            let done = run(&mut beside, others, 2, &root.join("target/tests/beside"));
            (beside, done)
        });
        let tests = lints(steps, root)
            .and_then(|()| documentation(steps, root))
            .and_then(|()| programs(steps, root, words));
        (tests, beside.join())
    });
    let (mut beside, others) = others.map_err(|_| "a thread died".to_owned())?;
    steps.append(&mut beside);
    let (alone, tests) = tests?;
    let folder = root.join("target/tests");
    let alone = run(steps, alone, 1, &folder);
    let again = steps.repeat_disturbed(&folder);
    let done = [others, tests, alone, again].into_iter();
    joined(&done.filter_map(Result::err).collect::<Vec<_>>())
}

/// Builds the programs of tests and runs them, and beside them the examples in the documentation; but for
/// those that time what they do: they are handed out.
fn programs(
    steps: &mut Steps,
    root: &Path,
    words: &Words<'_>,
) -> Result<(Vec<Command>, Result<(), String>), String> {
    let built = steps.run_and_read(Programs::build(root))?;
    let mut programs = Programs::parse(&built, test_threads())?;
    programs.add(command(root, "cargo test -q --workspace --doc --"));
    for program in programs.side_by_side.iter_mut().chain(&mut programs.alone) {
        program.args(words.more());
    }
    let folder = root.join("target/tests");
    let done = run(steps, programs.side_by_side, cpus(), &folder);
    Ok((programs.alone, done))
}

/// The tests of other workspaces; what is built for fuzzing comes before its targets. Other people's HTTP/2 and
/// gRPC take minutes to build, and are left to runs of everything.
fn other_workspaces(root: &Path, words: &Words<'_>) -> Result<Vec<Command>, String> {
    let (seconds, profile) = match words.all {
        true => (FUZZ_SECONDS, FUZZ_PROFILE),
        false => (FUZZ_TEST_SECONDS, FUZZ_TEST_PROFILE),
    };
    let mut interleavings = command(&root.join("interleavings"), "cargo test -q --");
    interleavings.args(words.more());
    let mut others = vec![
        interleavings,
        fuzzing(
            root,
            &format!("cargo build -q --profile {profile}{}", features(words.all)),
        ),
    ];
    if words.all {
        others.push(command(&root.join("interop"), "cargo test -q"));
    }
    let wanted = |target: &String| words.all || !needs_peers(target);
    for target in targets(root)?.into_iter().filter(wanted) {
        others.push(fuzz_target(root, &target, profile, seconds)?);
    }
    Ok(others.into_iter().map(nice).collect())
}

/// Runs commands side by side, with their output in a folder meanwhile.
fn run(
    steps: &mut Steps,
    commands: Vec<Command>,
    lanes: usize,
    folder: &Path,
) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    steps.run_side_by_side(commands, lanes, folder)
}

/// What is to be tested.
struct Words<'a> {
    /// What takes long, too.
    all: bool,
    filters: Vec<&'a str>,
}

impl Words<'_> {
    /// Arguments of the programs of tests.
    fn more(&self) -> &'static [&'static str] {
        match self.all {
            true => &["--include-ignored", "--skip", BY_HAND],
            false => &[],
        }
    }
}

fn words(arguments: &[String]) -> Result<Words<'_>, String> {
    let filters = arguments
        .iter()
        .map(String::as_str)
        .filter(|word| *word != ALL);
    let filters: Vec<_> = filters.collect();
    if let Some(option) = filters.iter().find(|filter| filter.starts_with('-')) {
        return Err(format!(
            "{option} is no filter; right would be {ALL}, or a part of a test's name"
        ));
    }
    Ok(Words {
        all: filters.len() < arguments.len(),
        filters,
    })
}

/// The command that runs the tests asked for by parts of their names.
fn filtered(root: &Path, words: &Words<'_>) -> Command {
    let mut command = command(root, "cargo test --workspace --no-fail-fast --");
    command.envs(test_threads().map(|threads| (TEST_THREADS, threads.to_string())));
    command.args(words.more()).args(&words.filters);
    command
}

/// How many tests of a program run at once, unless the environment says it: tests wait more than they
/// compute.
fn test_threads() -> Option<usize> {
    std::env::var_os(TEST_THREADS).is_none().then(|| 2 * cpus())
}

fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The same command, behind others that want the CPUs.
fn nice(command: Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "10"])
        .arg(command.get_program())
        .args(command.get_args());
    nice.current_dir(command.get_current_dir().unwrap_or_else(|| Path::new(".")));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice
}

/// One fuzz target or all, for so many seconds each.
pub(crate) fn fuzz(root: &Path, arguments: &[String]) -> Result<(), String> {
    let seconds = match arguments.get(1) {
        Some(text) => text
            .parse()
            .map_err(|_| format!("'{text}' is not a number of seconds"))?,
        None => FUZZ_SECONDS,
    };
    match arguments.first() {
        Some(target) if targets(root)?.contains(target) => {
            Steps::new().run(fuzz_target(root, target, FUZZ_PROFILE, seconds)?)
        }
        Some(target) => Err(format!(
            "no fuzz target '{target}'; there are {}",
            targets(root)?.join(", ")
        )),
        None => fuzz_all(&mut Steps::new(), root, seconds),
    }
}

fn format(steps: &mut Steps, root: &Path) -> Result<(), String> {
    steps.run(command(root, "cargo fmt --all --check"))
}

fn lints(steps: &mut Steps, root: &Path) -> Result<(), String> {
    steps.run(command(
        root,
        "cargo clippy -q --workspace --all-targets -- -D warnings",
    ))
}

/// The documentation of all crates, without a warning.
fn documentation(steps: &mut Steps, root: &Path) -> Result<(), String> {
    let mut command = command(root, "cargo doc -q --workspace --no-deps");
    command.env("RUSTDOCFLAGS", "-D warnings");
    steps.run(command)
}

fn fuzz_all(steps: &mut Steps, root: &Path, seconds: u32) -> Result<(), String> {
    for target in targets(root)? {
        steps.run(fuzz_target(root, &target, FUZZ_PROFILE, seconds)?)?;
    }
    Ok(())
}

/// What is found goes to fuzz/artifacts, and new corpus entries stay out of the committed ones.
fn fuzz_target(root: &Path, target: &str, profile: &str, seconds: u32) -> Result<Command, String> {
    let folder = root.join("fuzz");
    let (found, corpus) = ("target/corpus", "corpus");
    for path in [
        "artifacts",
        &format!("{found}/{target}"),
        &format!("{corpus}/{target}"),
    ] {
        let path = folder.join(path);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let features = features(needs_peers(target));
    let line = format!(
        "cargo run -q --profile {profile}{features} --bin {target} -- {found}/{target} {corpus}/{target} \
         -max_total_time={seconds} -artifact_prefix=artifacts/{target}- -print_final_stats=1 \
         -verbosity=0 -timeout=10"
    );
    Ok(fuzzing(root, &line))
}

/// Whether it compares Loadline with other people's code, which is built for that alone.
fn needs_peers(target: &str) -> bool {
    target.ends_with("_peer")
}

fn features(with_peers: bool) -> &'static str {
    if with_peers { " --features peers" } else { "" }
}

/// A command of cargo in the workspace of the fuzz targets.
fn fuzzing(root: &Path, line: &str) -> Command {
    let mut fuzzing = command(&root.join("fuzz"), line);
    fuzzing.env_remove("RUSTFLAGS"); // they would replace those that instrument the code
    fuzzing
}

/// The fuzz targets: a file each.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/targets");
    let unreadable = |error| format!("{}: {error}", folder.display());
    let files: Vec<PathBuf> = fs::read_dir(&folder)
        .and_then(|files| files.map(|file| file.map(|file| file.path())).collect())
        .map_err(unreadable)?;
    let stems = files.iter().filter_map(|path| path.file_stem());
    let mut names: Vec<_> = stems
        .map(|stem| stem.to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &[&str]) -> Result<String, String> {
        let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
        let command = filtered(Path::new("."), &words(&arguments)?);
        let words: Vec<_> = command.get_args().map(|it| it.to_string_lossy()).collect();
        Ok(words.join(" "))
    }

    #[test]
    fn what_takes_long_is_run_when_asked_for_and_filters_are_passed_on() {
        let plain = "test --workspace --no-fail-fast --";
        for (arguments, more) in [
            (&["soak", "drain"][..], " soak drain"),
            (
                &["--all", "soak"],
                " --include-ignored --skip _by_hand soak",
            ),
        ] {
            assert_eq!(line(arguments), Ok(format!("{plain}{more}")));
        }
        assert!(line(&["--al"]).unwrap_err().contains("--al is no filter"));
        assert!(words(&["--all".to_owned()]).unwrap().all);
    }

    #[test]
    fn a_nice_command_is_the_same_otherwise() {
        let mut build = command(Path::new("fuzz"), "cargo build -q");
        build.env("A", "b").env_remove("C");
        let nice = nice(build);
        assert_eq!(nice.get_current_dir(), Some(Path::new("fuzz")));
        let words: Vec<_> = nice.get_args().collect();
        assert_eq!(words, ["-n", "10", "cargo", "build", "-q"]);
        assert_eq!(nice.get_envs().count(), 2);
    }
}
