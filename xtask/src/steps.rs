//! Steps of a check, one after the other, each with its command line and the time it took; and what is
//! said of all of them at the end.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait for output after a step has ended: a process that it has left behind may hold the
/// pipe open.
const LAST_LINES_WAIT: Duration = Duration::from_secs(2);

/// A command below `folder`, as it would be typed.
pub(crate) fn command(folder: &Path, line: &str) -> Command {
    let mut words = line.split_ascii_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).current_dir(folder);
    command
}

/// What has been run.
pub(crate) struct Steps {
    began: Instant,
    /// Command lines with their seconds.
    took: Vec<(String, f64)>,
    /// Lines by which tests said that they were skipped, and how often each came.
    skipped: BTreeMap<String, usize>,
    /// Where a line of a step's standard error goes.
    pass_on: fn(&[u8]),
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            took: Vec::new(),
            skipped: BTreeMap::new(),
            pass_on: |line| {
                let _ = io::stderr().write_all(line);
            },
        }
    }

    /// Runs a step; says what it is and how long it took.
    pub(crate) fn run(&mut self, mut command: Command) -> Result<(), String> {
        let line = shown(&command);
        println!("\n\u{25b6} {line}");
        let began = Instant::now();
        let ended = self.watch(&mut command);
        let took_s = began.elapsed().as_secs_f64();
        println!("\u{25b6} {took_s:.1} s");
        self.took.push((line.clone(), took_s));
        let status = ended.map_err(|error| format!("{line}: {error}"))?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("failed ({status}): {line}")),
        }
    }

    /// Runs a command with its standard error passed on as it comes, and looked at: tests say there
    /// that they were skipped, past the capture of their output.
    fn watch(&mut self, command: &mut Command) -> io::Result<std::process::ExitStatus> {
        if io::stderr().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
            command.env("CARGO_TERM_COLOR", "always"); // cargo sees a pipe
        }
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let (sender, lines) = channel();
        if let Some(stderr) = child.stderr.take() {
            let pass_on = self.pass_on;
            thread::spawn(move || {
                let mut pieces = BufReader::new(stderr).split(b'\n').map_while(Result::ok);
                pieces.try_for_each(|piece| {
                    pass_on(&[&piece, &b"\n"[..]].concat());
                    sender.send(String::from_utf8_lossy(&piece).into_owned())
                })
            });
        }
        let status = child.wait()?;
        self.note(&lines);
        Ok(status)
    }

    /// Counts the lines that say that something was skipped.
    fn note(&mut self, lines: &Receiver<String>) {
        loop {
            match lines.recv_timeout(LAST_LINES_WAIT) {
                Ok(line) if says_skipped(&line) => {
                    *self.skipped.entry(line.trim().to_owned()).or_default() += 1;
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (line, took_s) in &self.took {
            writeln!(f, "{took_s:8.1} s  {line}")?;
        }
        let total_s = self.began.elapsed().as_secs_f64();
        writeln!(f, "{total_s:8.1} s  in all")?;
        let count: usize = self.skipped.values().sum();
        match count {
            0 => writeln!(f, "No test said that it was skipped."),
            1 => writeln!(f, "Skipped, as 1 line says:"),
            _ => writeln!(f, "Skipped, as {count} lines say:"),
        }?;
        for (line, times) in &self.skipped {
            writeln!(f, "{times:6} x {line}")?;
        }
        Ok(())
    }
}

/// Whether a line of standard error says that a test was skipped. Compilers and tests that fail write
/// elsewhere, or begin otherwise.
fn says_skipped(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("skipped") || line.contains("SKIPPED")
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> (Steps, Result<(), String>) {
        let mut steps = Steps::new();
        steps.pass_on = |_| (); // whoever runs this test would take it for a skipped one
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let done = steps.run(command);
        (steps, done)
    }

    #[test]
    fn what_was_skipped_stands_at_the_end_with_its_count() {
        let (steps, done) = run(
            "for i in 1 2; do printf '\\nskipped: no ring\\n' >&2; done; echo 'a: SKIPPED, busy' >&2; \
             echo 'nothing was skipped' >&2",
        );
        assert_eq!(done, Ok(()));
        let text = steps.to_string();
        let (_, lines) = text.split_once("Skipped, as 3 lines say:\n").unwrap();
        assert_eq!(
            lines,
            "     1 x a: SKIPPED, busy\n     2 x skipped: no ring\n"
        );
    }

    #[test]
    fn a_step_that_fails_is_named_with_its_time_and_what_it_skipped() {
        let (steps, done) = run("printf 'skipped: the last line' >&2; exit 3");
        assert!(
            done.unwrap_err()
                .starts_with("failed (exit status: 3): sh ")
        );
        let text = steps.to_string();
        assert!(text.contains(" s  sh -c printf") && text.contains(" s  in all\n"));
        assert!(text.ends_with("1 line says:\n     1 x skipped: the last line\n"));
    }

    #[test]
    fn a_process_left_behind_holds_nothing_up() {
        let began = Instant::now();
        let (steps, done) = run("echo skipped >&2; sleep 60 & exit 0");
        assert_eq!(done, Ok(()));
        assert!(began.elapsed() < Duration::from_secs(50));
        assert!(steps.to_string().contains("Skipped, as 1 line says:"));
    }
}
