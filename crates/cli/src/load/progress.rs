//! Progress on standard error: a live view on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use loadline_clients::scenario::Scenario;
use loadline_load::run::RoundObserver;
use loadline_load::trial::Merger;
use loadline_record::StepReport;
use loadline_record::report::{Page, live};

/// How often a terminal is drawn anew, at most.
const REDRAW: Duration = Duration::from_millis(100);
/// How often a plain line is written, at most.
const PLAIN: Duration = Duration::from_secs(1);

/// Where progress goes.
#[derive(Debug)]
pub(super) struct Progress {
    manner: Manner,
    /// Lines on the terminal that the next drawing replaces.
    drawn_count: usize,
    /// Of the last drawing, from the start of the round.
    drawn_ns: Option<u64>,
    /// Whether it was said that connections are being opened.
    is_opening: bool,
    /// Counts how its steps fared in other processes too.
    scenario: Option<Scenario>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Quiet,
    Plain,
    Terminal,
}

impl Progress {
    pub(super) fn new(is_quiet: bool, scenario: Option<Scenario>) -> Self {
        let manner = match (is_quiet, io::stderr().is_terminal()) {
            (true, _) => Manner::Quiet,
            (false, true) => Manner::Terminal,
            (false, false) => Manner::Plain,
        };
        Self {
            manner,
            drawn_count: 0,
            drawn_ns: None,
            is_opening: false,
            scenario,
        }
    }

    /// A line that stays.
    pub(super) fn say(&mut self, line: &str) {
        if self.manner != Manner::Quiet {
            self.clear();
            put(&format!("loadline: {line}\n"));
        }
    }

    /// Takes the live view away, for what comes next.
    pub(super) fn clear(&mut self) {
        if self.drawn_count > 0 {
            put(&erase(self.drawn_count));
        }
        self.drawn_count = 0;
        self.drawn_ns = None;
    }
}

impl RoundObserver for Progress {
    /// Connections are being opened, which takes a while.
    fn opening(&mut self, ready: usize, expected: usize) {
        if !self.is_opening {
            self.is_opening = true;
            self.say(&format!(
                "opening connections; {ready} of {expected} threads are ready"
            ));
        }
    }

    /// How things stand, if it is time to say so.
    fn running(&mut self, merger: &Merger, elapsed_ns: u64) {
        let interval = match self.manner {
            Manner::Quiet => return,
            Manner::Plain => PLAIN,
            Manner::Terminal => REDRAW,
        };
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let due_ns = match (self.drawn_ns, self.manner) {
            (Some(drawn_ns), _) => drawn_ns + interval_ns,
            (None, Manner::Plain) => interval_ns, // before that there is nothing to say
            (None, _) => 0,
        };
        if elapsed_ns < due_ns {
            return;
        }
        self.drawn_ns = Some(elapsed_ns);
        let snapshot = merger.snapshot(elapsed_ns);
        if self.manner == Manner::Plain {
            return put(&format!("{}\n", live::line(&snapshot)));
        }
        let lines = live::lines(&snapshot, page());
        let mut text = erase(self.drawn_count);
        for line in &lines {
            text.push_str(line);
            text.push('\n');
        }
        put(&text);
        self.drawn_count = lines.len();
    }

    fn steps(&mut self, steps: &[StepReport]) {
        if let Some(scenario) = &self.scenario {
            scenario.add(steps);
        }
    }

    fn ended(&mut self) {
        self.clear();
    }
}

/// The cursor to the begin of the lines drawn last, which are erased.
fn erase(lines: usize) -> String {
    match lines {
        0 => String::new(),
        count => format!("\x1b[{count}A\x1b[J"),
    }
}

/// What results and the live view are drawn on.
pub(super) fn page() -> Page {
    let wide = terminal_size::terminal_size().map(|(terminal_size::Width(width), _)| width);
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL")
        .or_else(|| set("LC_CTYPE"))
        .or_else(|| set("LANG"));
    let is_utf8 = |locale: String| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    };
    Page {
        width: wide.map_or(80, usize::from),
        is_utf8: locale.is_some_and(is_utf8),
    }
}

/// If standard error is closed, the text is lost.
fn put(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr
        .write_all(text.as_bytes())
        .and_then(|()| stderr.flush());
}
