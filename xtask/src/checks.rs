//! What `./x check`, `./x test` and `./x fuzz` run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::steps::{command, run};

/// Time for each fuzz target in a test run, in seconds.
const FUZZ_TEST_SECONDS: u32 = 5;
/// Time for each fuzz target when fuzzing is what was asked for, in seconds.
const FUZZ_SECONDS: u32 = 60;

/// Format, lints, house rules.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    format_and_lints(root)?;
    run(command(root, "cargo test -q -p xtask --test tidy"))
}

/// Everything; with filters only the tests whose names contain one of them.
pub(crate) fn test(root: &Path, filters: &[String]) -> Result<(), String> {
    let mut tests = command(root, "cargo test --workspace --no-fail-fast");
    if !filters.is_empty() {
        tests.arg("--").args(filters);
        return run(tests);
    }
    format_and_lints(root)?;
    fuzz_all(root, FUZZ_TEST_SECONDS)?;
    run(tests)
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
        Some(target) if targets(root)?.contains(target) => fuzz_one(root, target, seconds),
        Some(target) => Err(format!(
            "no fuzz target '{target}'; there are {}",
            targets(root)?.join(", ")
        )),
        None => fuzz_all(root, seconds),
    }
}

fn format_and_lints(root: &Path) -> Result<(), String> {
    run(command(root, "cargo fmt --all --check"))?;
    run(command(
        root,
        "cargo clippy -q --workspace --all-targets -- -D warnings",
    ))
}

fn fuzz_all(root: &Path, seconds: u32) -> Result<(), String> {
    for target in targets(root)? {
        fuzz_one(root, &target, seconds)?;
    }
    Ok(())
}

/// What is found goes to fuzz/artifacts, and new corpus entries stay out of the committed ones.
fn fuzz_one(root: &Path, target: &str, seconds: u32) -> Result<(), String> {
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
    run(fuzzing)
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
