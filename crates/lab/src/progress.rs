//! The progress of a run: a live line on a terminal, and plain lines elsewhere, one
//! for each trial.

use std::io::Write;

use loadline_record::report::number::{maybe_us, rate, span_s};

use crate::cells::levels_text;
use crate::expand::{Expansion, PlannedTrial};
use crate::journal::Trial;
use crate::observer::{IDLE_WAIT_MAX, RunObserver, RunProgress};
use crate::plan::Plan;

/// The narrowest terminal that a live line is made for.
const WIDTH_MIN: usize = 20;

/// Prints the progress of a run.
#[derive(Debug)]
pub struct ProgressPrinter<'a, W: Write> {
    to: W,
    plan: &'a Plan,
    expansion: &'a Expansion,
    /// Columns of the terminal; `None`: not on one.
    width: Option<usize>,
    is_line_there: bool,
}

impl<'a, W: Write> ProgressPrinter<'a, W> {
    /// To a terminal so wide, or to something else.
    pub fn new(to: W, plan: &'a Plan, expansion: &'a Expansion, width: Option<usize>) -> Self {
        Self {
            to,
            plan,
            expansion,
            width: width.map(|width| width.max(WIDTH_MIN)),
            is_line_there: false,
        }
    }

    /// A line that stays.
    pub fn say(&mut self, line: &str) {
        let text = match std::mem::take(&mut self.is_line_there) {
            true => format!("\r\x1b[K{line}\n"),
            false => format!("{line}\n"),
        };
        self.put(&text);
    }

    /// Takes the live line away, for what comes next.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.is_line_there) {
            self.put("\r\x1b[K");
        }
    }

    /// A line that goes with the next.
    fn show(&mut self, line: &str, width: usize) {
        let line: String = line.chars().take(width - 1).collect();
        self.put(&format!("\r\x1b[K{line}"));
        self.is_line_there = true;
    }

    /// The series and the levels of a trial.
    fn what(&self, planned: &PlannedTrial) -> String {
        let cell = self.expansion.cell(planned);
        let series = &self.plan.series[cell.series].name;
        what(series, &levels_text(&cell.levels), planned.is_a_a)
    }

    /// `17/96, block 2/3, 4 min left`.
    fn how_far(&self, block: u32, progress: &RunProgress) -> String {
        format!(
            "{}/{}, block {}/{}, {} left",
            progress.recorded,
            self.expansion.trials.len(),
            block + 1,
            self.expansion.block_count(),
            span_s(progress.left_s.round().max(0.0))
        )
    }

    fn put(&mut self, text: &str) {
        // Whoever has closed it does not want to know.
        let _ = self
            .to
            .write_all(text.as_bytes())
            .and_then(|()| self.to.flush());
    }
}

impl<W: Write> RunObserver for ProgressPrinter<'_, W> {
    fn waits(&mut self, planned: &PlannedTrial, progress: &RunProgress) {
        let line = format!(
            "{}; waits until others leave the CPUs, at most {}, to run again {}",
            self.how_far(planned.block, progress),
            span_s(IDLE_WAIT_MAX.as_secs_f64()),
            self.what(planned)
        );
        match self.width {
            Some(width) => self.show(&line, width),
            None => self.say(&line),
        }
    }

    fn begins(&mut self, planned: &PlannedTrial, progress: &RunProgress) {
        let Some(width) = self.width else { return };
        let how_far = self.how_far(planned.block, progress);
        let line = format!("{how_far}; now {}", self.what(planned));
        self.show(&line, width);
    }

    fn recorded(&mut self, trial: &Trial, progress: &RunProgress) {
        let is_worth_a_line = self.width.is_none() || !trial.discarded.is_empty();
        if !is_worth_a_line {
            return;
        }
        let what = what(&trial.series, &levels_text(&trial.levels), trial.is_a_a);
        let how_far = self.how_far(trial.block, progress);
        let line = format!("{how_far}; {what}: {}", result(trial));
        self.say(&line);
    }
}

fn what(series: &str, levels: &str, is_a_a: bool) -> String {
    let again = if is_a_a { " (A/A)" } else { "" };
    format!("{series}: {levels}{again}")
}

/// What a trial came to, in short.
fn result(trial: &Trial) -> String {
    if let Some(reason) = trial.discarded.first() {
        let more = match trial.discarded.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        return format!("discarded: {reason}{more}");
    }
    let headline = trial.load.as_ref().and_then(|load| load.headline());
    let Some(group) = headline else {
        return "recorded".to_owned();
    };
    let per_s = rate(group.total.rates.completed_per_s);
    if let Some(reason) = trial.times_discarded.first() {
        return format!("{per_s}/s, times discarded: {reason}");
    }
    let latency = &group.total.latency;
    format!(
        "{per_s}/s, p50 {}, p99 {}",
        maybe_us(latency.percentile_us(50.0)),
        maybe_us(latency.percentile_us(99.0))
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::expand::expand;

    fn shown(width: Option<usize>) -> String {
        let text = "name = \"t\"\n[servers.loadline]\n[[series]]\nname = \"s\"\nreplicates = 1\n\
                    factors = { loops = [1, 2] }\na_a = false";
        let plan = Plan::parse(text, "plan", Path::new("/")).unwrap();
        let run = expand(&plan, 1, &[0], &[]).unwrap();
        let mut out = Vec::new();
        let mut progress = ProgressPrinter::new(&mut out, &plan, &run, width);
        let state = RunProgress {
            recorded: 1,
            left_s: 90.2,
        };
        progress.begins(&run.trials[0], &state);
        let mut trial = Trial {
            series: "s".to_owned(),
            is_a_a: true,
            ..Trial::default()
        };
        progress.recorded(&trial, &state);
        trial.discarded = vec!["It rained.".to_owned(), "It snowed.".to_owned()];
        progress.recorded(&trial, &state);
        progress.waits(&run.trials[1], &state);
        progress.say("done");
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn plain_lines_are_one_for_each_trial() {
        let text = shown(None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].starts_with("1/2, block 1/1, "), "{text}");
        assert!(lines[0].ends_with("left; s:  (A/A): recorded"), "{text}");
        assert!(lines[1].ends_with("discarded: It rained. (and 1 more)"));
        let waits = "waits until others leave the CPUs, at most 30 s, to run again s: ";
        assert!(lines[2].contains(waits), "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn a_terminal_has_one_line_that_lives_and_those_that_matter() {
        let text = shown(Some(40));
        assert_eq!(text.lines().count(), 2, "{text:?}");
        let live = text.trim_start_matches("\r\x1b[K").split('\r').next();
        assert_eq!(live.unwrap().chars().count(), 39, "{text:?}");
        assert!(text.ends_with("\r\x1b[K1/2, block 1/1, 1 min 30 s left; s:  (A/A): discarded: It rained. (and 1 more)\n\r\x1b[K1/2, block 1/1, 1 min 30 s left; waits \r\x1b[Kdone\n"), "{text:?}");
    }
}
