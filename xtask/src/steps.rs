//! Steps of a check, one after the other, each with its command line and the time it took.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// A command below `folder`, as it would be typed.
pub(crate) fn command(folder: &Path, line: &str) -> Command {
    let mut words = line.split_ascii_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).current_dir(folder);
    command
}

/// Runs a step; says what it is and how long it took.
pub(crate) fn run(mut command: Command) -> Result<(), String> {
    let line = shown(&command);
    println!("\n\u{25b6} {line}");
    let began = Instant::now();
    let status = command
        .status()
        .map_err(|error| format!("{line}: {error}"))?;
    println!("\u{25b6} {:.1} s", began.elapsed().as_secs_f64());
    match status.success() {
        true => Ok(()),
        false => Err(format!("failed ({status}): {line}")),
    }
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    words.join(" ")
}
