//! What `./x check`, `./x test` and `./x fuzz` run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::steps::{Steps, command};

/// Time for each fuzz target in a test run, in seconds.
const FUZZ_TEST_SECONDS: u32 = 2;
/// Time for each fuzz target in a run of everything, or when fuzzing is what was asked for, in seconds.
const FUZZ_SECONDS: u32 = 60;
/// How many tests run at once, to the programs of tests.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// What asks for the tests that take long, too.
const ALL: &str = "--all";
/// What the names of tests end with that measure or print something: no run includes them.
const BY_HAND: &str = "_by_hand";

/// Format, lints, house rules.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut steps = Steps::new();
    format_and_lints(&mut steps, root)?;
    steps.run(command(root, "cargo test -q -p xtask --test tidy"))
}

/// Everything but what takes long, and with `--all` that, too: tests that are `#[ignore = "long: WHY"]`,
/// and fuzz targets for longer. With filters only the tests whose names contain one of them.
pub(crate) fn test(root: &Path, arguments: &[String]) -> Result<(), String> {
    let (tests, filters) = tests(root, arguments)?;
    let fuzz_seconds = match arguments.len() == filters {
        true => FUZZ_TEST_SECONDS,
        false => FUZZ_SECONDS,
    };
    let mut steps = Steps::new();
    let all = |steps: &mut Steps| {
        if filters == 0 {
            format_and_lints(steps, root)?;
            documentation(steps, root)?;
            fuzz_all(steps, root, fuzz_seconds)?;
            interleavings(steps, root)?;
        }
        steps.run(tests)
    };
    let done = all(&mut steps);
    println!("\n{steps}");
    done
}

/// The command that runs the tests asked for, and how many filters it has.
fn tests(root: &Path, arguments: &[String]) -> Result<(Command, usize), String> {
    let filters = arguments.iter().filter(|argument| *argument != ALL);
    let filters: Vec<&String> = filters.collect();
    if let Some(option) = filters.iter().find(|filter| filter.starts_with('-')) {
        return Err(format!(
            "{option} is no filter; right would be {ALL}, or a part of a test's name"
        ));
    }
    let mut command = command(root, "cargo test --workspace --no-fail-fast --");
    if std::env::var_os(TEST_THREADS).is_none() {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        command.env(TEST_THREADS, (2 * cpus).to_string()); // tests wait more than they compute
    }
    if filters.len() < arguments.len() {
        command.args(["--include-ignored", "--skip", BY_HAND]);
    }
    command.args(&filters);
    Ok((command, filters.len()))
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
            fuzz_one(&mut Steps::new(), root, target, seconds)
        }
        Some(target) => Err(format!(
            "no fuzz target '{target}'; there are {}",
            targets(root)?.join(", ")
        )),
        None => fuzz_all(&mut Steps::new(), root, seconds),
    }
}

fn format_and_lints(steps: &mut Steps, root: &Path) -> Result<(), String> {
    steps.run(command(root, "cargo fmt --all --check"))?;
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

/// What threads share, by a model checker.
fn interleavings(steps: &mut Steps, root: &Path) -> Result<(), String> {
    steps.run(command(&root.join("interleavings"), "cargo test -q"))
}

fn fuzz_all(steps: &mut Steps, root: &Path, seconds: u32) -> Result<(), String> {
    for target in targets(root)? {
        fuzz_one(steps, root, &target, seconds)?;
    }
    Ok(())
}

/// What is found goes to fuzz/artifacts, and new corpus entries stay out of the committed ones.
fn fuzz_one(steps: &mut Steps, root: &Path, target: &str, seconds: u32) -> Result<(), String> {
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
    let line = format!(
        "cargo run -q --release --bin {target} -- {found}/{target} {corpus}/{target} \
         -max_total_time={seconds} -artifact_prefix=artifacts/{target}- -print_final_stats=1 \
         -verbosity=0 -timeout=10"
    );
    let mut fuzzing = command(&folder, &line);
    fuzzing.env_remove("RUSTFLAGS"); // they would replace those that instrument the code
    steps.run(fuzzing)
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

    fn line(arguments: &[&str]) -> Result<(String, usize), String> {
        let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
        let (command, filters) = tests(Path::new("."), &arguments)?;
        let words: Vec<_> = command.get_args().map(|it| it.to_string_lossy()).collect();
        Ok((words.join(" "), filters))
    }

    #[test]
    fn what_takes_long_is_run_when_asked_for_and_filters_are_passed_on() {
        let plain = "test --workspace --no-fail-fast --";
        for (arguments, more, filters) in [
            (&[][..], "", 0),
            (&["--all"], " --include-ignored --skip _by_hand", 0),
            (&["soak", "drain"], " soak drain", 2),
            (
                &["--all", "soak"],
                " --include-ignored --skip _by_hand soak",
                1,
            ),
        ] {
            assert_eq!(line(arguments), Ok((format!("{plain}{more}"), filters)));
        }
        assert!(line(&["--al"]).unwrap_err().contains("--al is no filter"));
    }
}
