//! Steps of a check, one after the other, each with its command line and the time it took; and what is
//! said of all of them at the end.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
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

/// What a test says that has found nothing out, since the machine did other things at the time.
const DISTURBED: &str = "SKIPPED, the machine disturbed";
/// So many tests may say that: more would hide failures. Beyond that their programs are run once more.
const DISTURBED_MAX: usize = 5;

/// What has been run.
pub(crate) struct Steps {
    began: Instant,
    /// Command lines with their seconds.
    took: Vec<(String, f64)>,
    /// Lines by which tests said that they were skipped, and how often each came.
    skipped: BTreeMap<String, usize>,
    /// Programs of which a test said that it was disturbed, each with all lines by which its tests said that
    /// they were skipped.
    disturbed: Vec<(Command, Vec<String>)>,
    /// Where a line of a step's standard error goes,
    pass_on: fn(&[u8]),
    /// and the output of one that ran beside others.
    show: fn(&[u8]),
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            took: Vec::new(),
            skipped: BTreeMap::new(),
            disturbed: Vec::new(),
            pass_on: |line| {
                let _ = io::stderr().write_all(line);
            },
            show: |output| {
                let _ = io::stdout().write_all(output);
            },
        }
    }

    /// Runs a step; says what it is and how long it took.
    pub(crate) fn run(&mut self, command: Command) -> Result<(), String> {
        self.run_with(command, |_| ())
    }

    fn run_with(
        &mut self,
        mut command: Command,
        attend: impl FnOnce(&mut Child),
    ) -> Result<(), String> {
        let line = shown(&command);
        println!("\n\u{25b6} {line}");
        let began = Instant::now();
        let ended = self.watch(&mut command, attend);
        let took_s = began.elapsed().as_secs_f64();
        println!("\u{25b6} {took_s:.1} s");
        self.took.push((line.clone(), took_s));
        judge(&line, ended)
    }

    /// Runs a step, and hands out what it wrote to its standard output.
    pub(crate) fn run_and_read(&mut self, mut command: Command) -> Result<String, String> {
        let mut read = String::new();
        command.stdout(Stdio::piped());
        self.run_with(command, |child| {
            if let Some(mut output) = child.stdout.take() {
                let _ = output.read_to_string(&mut read);
            }
        })?;
        Ok(read)
    }

    /// Where too many tests could not be judged, runs their programs again, one after the other and only once.
    /// Those tests are judged by this run, and what they skip is what this run says. A failure of an earlier run
    /// stays one.
    pub(crate) fn repeat_disturbed(&mut self, folder: &Path) -> Result<(), String> {
        let count = self.disturbed_count();
        if count <= DISTURBED_MAX {
            return Ok(());
        }
        println!("\n{count} tests could not be judged; their programs are run once more");
        let mut again = Vec::new();
        for (command, skipped) in std::mem::take(&mut self.disturbed) {
            skipped.iter().for_each(|line| self.uncount_skipped(line));
            again.push(command);
        }
        self.run_side_by_side(again, 1, folder)
    }

    fn disturbed_count(&self) -> usize {
        let lines = self.skipped.iter();
        let disturbed = lines.filter(|(line, _)| line.contains(DISTURBED));
        disturbed.map(|(_, times)| times).sum()
    }

    /// Whether the machine was quiet enough for what was found out to count.
    pub(crate) fn check_disturbed(&self) -> Result<(), String> {
        let count = self.disturbed_count();
        match count > DISTURBED_MAX {
            true => Err(format!(
                "failed: {count} tests could not be judged, since the machine did other things; right would be \
                 {DISTURBED_MAX} at most"
            )),
            false => Ok(()),
        }
    }

    /// Steps that were run beside these.
    pub(crate) fn append(&mut self, others: &mut Self) {
        self.took.append(&mut others.took);
        self.disturbed.append(&mut others.disturbed);
        for (line, times) in std::mem::take(&mut others.skipped) {
            *self.skipped.entry(line).or_default() += times;
        }
    }

    /// Runs all of these, so many at once, each with its output in one piece behind its end. Goes on after
    /// a failure, and says at the end which they were.
    pub(crate) fn run_side_by_side(
        &mut self,
        commands: Vec<Command>,
        lanes: usize,
        folder: &Path,
    ) -> Result<(), String> {
        let waiting = Mutex::new(VecDeque::from(commands));
        let (sender, done) = channel();
        let mut failed = Vec::new();
        thread::scope(|scope| {
            for lane in 0..lanes {
                let (sender, waiting) = (sender.clone(), &waiting);
                let path = folder.join(format!("output-{lane}"));
                scope.spawn(move || {
                    let next = || waiting.lock().ok()?.pop_front();
                    while let Some(command) = next() {
                        let _ = sender.send(Done::of(command, &path));
                    }
                });
            }
            drop(sender);
            for done in done {
                failed.extend(self.show_ended(done).err());
            }
        });
        joined(&failed)
    }

    /// A command that has ended: its output, its time, and what it skipped.
    fn show_ended(&mut self, done: Done) -> Result<(), String> {
        let command_line = shown(&done.command);
        println!("\n\u{25b6} {command_line}");
        (self.show)(&done.output);
        println!("\u{25b6} {:.1} s", done.took_s);
        let output = String::from_utf8_lossy(&done.output);
        let skipped = output.lines().filter(|line| says_skipped(line));
        let skipped: Vec<String> = skipped.map(str::to_owned).collect();
        skipped.iter().for_each(|line| self.count_skipped(line));
        if output.contains(DISTURBED) {
            self.disturbed.push((done.command, skipped));
        }
        self.took.push((command_line.clone(), done.took_s));
        judge(&command_line, done.ended)
    }

    /// Runs a command with its standard error passed on as it comes, and looked at: tests say there
    /// that they were skipped, past the capture of their output.
    fn watch(
        &mut self,
        command: &mut Command,
        attend: impl FnOnce(&mut Child),
    ) -> io::Result<ExitStatus> {
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
        attend(&mut child);
        let status = child.wait()?;
        self.note(&lines);
        Ok(status)
    }

    fn count_skipped(&mut self, line: &str) {
        *self.skipped.entry(line.trim().to_owned()).or_default() += 1;
    }

    /// The program that said so is run again.
    fn uncount_skipped(&mut self, line: &str) {
        let line = line.trim();
        if let Some(times) = self.skipped.get_mut(line) {
            *times -= 1;
        }
        self.skipped.retain(|_, times| *times > 0);
    }

    /// Counts the lines that say that something was skipped.
    fn note(&mut self, lines: &Receiver<String>) {
        loop {
            match lines.recv_timeout(LAST_LINES_WAIT) {
                Ok(line) if says_skipped(&line) => self.count_skipped(&line),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// A command that has ended.
struct Done {
    command: Command,
    took_s: f64,
    output: Vec<u8>,
    ended: io::Result<ExitStatus>,
}

impl Done {
    /// Runs a command with its output in a file: a process that it leaves behind holds nothing up.
    fn of(mut command: Command, path: &Path) -> Self {
        let began = Instant::now();
        let ended = File::create(path).and_then(|file| {
            command.stdin(Stdio::null());
            command.stdout(file.try_clone()?).stderr(file).status()
        });
        Self {
            command,
            took_s: began.elapsed().as_secs_f64(),
            output: fs::read(path).unwrap_or_default(),
            ended,
        }
    }
}

/// All errors as one, if there are any.
pub(crate) fn joined(failed: &[String]) -> Result<(), String> {
    match failed {
        [] => Ok(()),
        _ => Err(failed.join("; ")),
    }
}

fn judge(line: &str, ended: io::Result<ExitStatus>) -> Result<(), String> {
    let status = ended.map_err(|error| format!("{line}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("failed ({status}): {line}")),
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
        let expected = "     1 x a: SKIPPED, busy\n     2 x skipped: no ring\n";
        assert_eq!(lines, expected);
    }

    #[test]
    fn few_tests_may_say_that_the_machine_disturbed_them() {
        for (count, is_right) in [(5, true), (6, false)] {
            let (steps, done) = run(&format!(
                "for i in $(seq {count}); do echo \"$i: {DISTURBED} every run\" >&2; done; \
                 echo 'skipped: no ring' >&2"
            ));
            assert_eq!(done, Ok(()));
            assert_eq!(steps.check_disturbed().is_ok(), is_right, "{count}");
        }
    }

    #[test]
    fn programs_that_were_disturbed_too_much_are_run_once_more() {
        let folder = std::env::temp_dir().join(format!("xtask-again-{}", std::process::id()));
        let say = |count: usize| format!("for i in $(seq {count}); do echo $i: {DISTURBED}; done");
        let disturbed_again = say(6);
        for (count, then, runs, is_right) in [
            (5, "exit 3", 1, true),
            (6, "true", 2, true),
            (6, "exit 3", 2, false),
            (6, disturbed_again.as_str(), 2, false),
        ] {
            fs::create_dir(&folder).unwrap();
            let script = format!(
                "echo >> runs; echo skipped: no ring; \
                 if [ $(wc -l < runs) = 1 ]; then {}; else {then}; fi",
                say(count)
            );
            let mut command = Command::new("sh");
            command.args(["-c", &script]).current_dir(&folder);
            let mut steps = Steps::new();
            steps.show = |_| ();
            let first = steps.run_side_by_side(vec![command], 1, &folder);
            assert_eq!(first, Ok(()), "{count}, {then}");
            let again = steps.repeat_disturbed(&folder);
            let done = again.and_then(|()| steps.check_disturbed());
            assert_eq!(done.is_ok(), is_right, "{count}, {then}");
            let ran = fs::read(folder.join("runs")).unwrap();
            assert_eq!(ran.len(), runs, "{count}, {then}");
            let others = steps.skipped.get("skipped: no ring");
            assert_eq!(
                others,
                Some(&1),
                "once, however often it ran: {count}, {then}"
            );
            fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[test]
    fn a_step_that_fails_is_named_with_its_time_and_what_it_skipped() {
        let (steps, done) = run("printf 'skipped: the last line' >&2; exit 3");
        let failed = done.unwrap_err();
        assert!(failed.starts_with("failed (exit status: 3): sh "));
        let text = steps.to_string();
        assert!(text.contains(" s  sh -c printf") && text.contains(" s  in all\n"));
        assert!(text.ends_with("1 line says:\n     1 x skipped: the last line\n"));
    }

    #[test]
    fn side_by_side_all_are_run_and_those_that_failed_are_named() {
        let folder = std::env::temp_dir().join(format!("xtask-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let scripts = [
            "echo skipped: one",
            "exit 3",
            "kill -9 $$",
            "echo SKIPPED >&2",
        ];
        let commands = scripts.map(|script| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        });
        let mut steps = Steps::new();
        steps.show = |_| ();
        let done = steps.run_side_by_side(commands.into(), 2, &folder);
        fs::remove_dir_all(&folder).unwrap();
        let failed = done.unwrap_err();
        for one in [
            "(exit status: 3): sh -c exit 3",
            "(signal: 9 (SIGKILL)): sh -c kill",
        ] {
            assert!(failed.contains(one), "{failed}");
        }
        assert!(!failed.contains("echo"), "{failed}");
        let text = steps.to_string();
        assert!(text.contains("Skipped, as 2 lines say:"), "{text}");
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
