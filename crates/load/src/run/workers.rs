//! Who carries the load: threads of this process, or processes like this one.
//!
//! ```text
//!   parent                                    child: the same command line with --part I/N
//!     │  ◄── stdout: a message a line ──────    its threads' messages
//!     └─ stdin: "start NS", "end", "stop" ──►   sets the start, asks for the end
//! ```
//!
//! The start is a moment of the monotonic clock, which all processes of a machine share. A child ends
//! when its standard input does: so none outlives its parent.

use std::ffi::OsString;
use std::io::{self, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use loadline_record::StepReport;

use super::RunError;
use crate::load_threads::{LoadThreads, RunEvent, ThreadError, ThreadSpec};
use crate::wire::{self, WireError};
use crate::{Control, Message, Plan};

/// The threads or processes that carry the load.
#[derive(Debug)]
pub(super) enum Workers {
    /// Threads of this process.
    Own {
        /// The threads.
        load_threads: LoadThreads,
        /// What they look at.
        control: Arc<Control>,
    },
    /// Processes.
    Processes {
        /// Their standard inputs.
        inputs: Vec<ChildStdin>,
        /// How many threads say that they are ready.
        ready_expected: usize,
    },
}

impl Workers {
    /// Starts the threads of this process.
    pub(super) fn own(
        plan: &Arc<Plan>,
        spec: &ThreadSpec,
        sender: &Sender<RunEvent>,
    ) -> io::Result<Self> {
        let control = Arc::new(Control::new());
        let sender = sender.clone();
        let load_threads = LoadThreads::start(plan, spec, &control, move |event| {
            let _ = sender.send(event); // no receiver any more: the end is near
        })?;
        Ok(Self::Own {
            load_threads,
            control,
        })
    }

    /// Starts `count` processes, each with as many threads as `spec` says.
    pub(super) fn processes(
        count: u32,
        plan: &Plan,
        spec: &ThreadSpec,
        sender: &Sender<RunEvent>,
    ) -> io::Result<Self> {
        let mut inputs = Vec::new();
        for index in 0..count {
            let mut child = spawn(index, count, plan.seed)?;
            inputs.extend(child.stdin.take());
            let sender = sender.clone();
            std::thread::Builder::new()
                .name(format!("process {index}"))
                .spawn(move || listen(index, count, child, &sender))?;
        }
        Ok(Self::Processes {
            inputs,
            ready_expected: spec.thread_count(plan) * count as usize,
        })
    }

    /// How many threads say that they are ready.
    pub(super) fn ready_expected(&self) -> usize {
        match self {
            Self::Own { load_threads, .. } => load_threads.thread_count(),
            Self::Processes { ready_expected, .. } => *ready_expected,
        }
    }

    /// How many ends are reported: by threads, or by processes.
    pub(super) fn ends_expected(&self) -> usize {
        match self {
            Self::Own { load_threads, .. } => load_threads.thread_count(),
            Self::Processes { inputs, .. } => inputs.len(),
        }
    }

    /// Sets the moment of the start.
    pub(super) fn start_at(&mut self, start_ns: u64) {
        match self {
            Self::Own { control, .. } => control.start_at(start_ns),
            Self::Processes { inputs, .. } => say(inputs, &format!("start {start_ns}\n")),
        }
    }

    /// The requests are done: clients without a number of them are to finish.
    pub(super) fn end(&mut self) {
        match self {
            Self::Own { control, .. } => control.end(),
            Self::Processes { inputs, .. } => say(inputs, "end\n"),
        }
    }

    /// Asks for the end.
    pub(super) fn stop(&mut self) {
        match self {
            Self::Own { control, .. } => control.stop(),
            Self::Processes { inputs, .. } => say(inputs, "stop\n"),
        }
    }

    /// Waits for threads whose ends were all reported.
    pub(super) fn join(self) {
        if let Self::Own { load_threads, .. } = self {
            load_threads.join();
        }
    }
}

fn say(inputs: &mut [ChildStdin], line: &str) {
    for input in inputs {
        let _ = input.write_all(line.as_bytes()); // the end of a child is reported by its own thread
    }
}

/// This program again, also if its file has been replaced meanwhile, with the part it has.
fn spawn(index: u32, count: u32, seed: u64) -> io::Result<Child> {
    let mut words = std::env::args_os().skip(1);
    let mut arguments: Vec<OsString> = words.next().into_iter().collect();
    arguments.extend(["--part".into(), format!("{index}/{count}").into()]);
    arguments.extend(["--part-seed".into(), seed.to_string().into()]);
    arguments.extend(words);
    Command::new("/proc/self/exe")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Reads from a child to its end.
fn listen(index: u32, count: u32, mut child: Child, sender: &Sender<RunEvent>) {
    let received = receive(&mut child, sender);
    let mut words = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut words); // then there are none
    }
    let status = child.wait();
    let result = match (received, status) {
        (Ok(()), Ok(status)) if status.success() => Ok(()),
        (Err(error), _) => Err(error.into()),
        (_, Err(error)) => Err(error.into()),
        (_, Ok(status)) => Err(ThreadError::Process(match words.lines().last() {
            Some(line) => line.trim_start_matches("loadline: ").to_owned(),
            None => status.to_string(),
        })),
    };
    let _ = sender.send(RunEvent::Ended {
        thread: format!("process {} of {count}", index + 1),
        result,
    });
}

/// The messages of a child, until it closes its standard output.
fn receive(child: &mut Child, sender: &Sender<RunEvent>) -> Result<(), WireError> {
    let Some(stdout) = child.stdout.take() else {
        return Ok(());
    };
    let mut reader = wire::Reader::new(BufReader::with_capacity(1 << 16, stdout));
    while let Some(message) = reader.next_message()? {
        if sender.send(RunEvent::Message(message)).is_err() {
            break; // no receiver any more
        }
    }
    Ok(())
}

/// Carries one part, as a child of the process that merges. `steps` gives the results of the steps
/// of a scenario in this process.
///
/// # Errors
/// A thread cannot go on, or standard output is closed.
pub fn carry_part(
    plan: &Arc<Plan>,
    spec: &ThreadSpec,
    steps: &dyn Fn() -> Option<Vec<StepReport>>,
) -> Result<(), RunError> {
    let (sender, events) = channel();
    let mut workers = Workers::own(plan, spec, &sender).map_err(RunError::Thread)?;
    drop(sender);
    if let Workers::Own { control, .. } = &workers {
        let control = Arc::clone(control);
        std::thread::Builder::new()
            .name("orders".into())
            .spawn(move || obey(&control))
            .map_err(RunError::Thread)?;
    }
    let reported = report(&events, workers.ends_expected(), steps);
    if reported.is_err() {
        workers.stop();
    }
    reported
}

/// Does what the parent says; without a parent there is nothing to do.
fn obey(control: &Control) {
    for line in io::stdin().lines().map_while(Result::ok) {
        match line.split_once(' ') {
            Some(("start", ns)) => match ns.parse() {
                Ok(ns) => control.start_at(ns),
                Err(_) => break,
            },
            _ if line == "end" => control.end(),
            _ => control.stop(),
        }
    }
    std::process::exit(1);
}

fn report(
    events: &Receiver<RunEvent>,
    ends_expected: usize,
    steps: &dyn Fn() -> Option<Vec<StepReport>>,
) -> Result<(), RunError> {
    let mut out = io::stdout().lock();
    let mut send = |message: &Message| wire::write(message, &mut out).map_err(RunError::Output);
    let mut ends = 0;
    while ends < ends_expected {
        match events.recv() {
            Ok(RunEvent::Message(message)) => send(&message)?,
            Ok(RunEvent::Ended { thread, result }) => {
                ends += 1;
                result.map_err(|error| RunError::lost(thread, error))?;
            }
            Ok(RunEvent::Interrupted) => {}
            Err(_) => break,
        }
    }
    match steps() {
        Some(steps) => send(&Message::Steps(steps)),
        None => Ok(()),
    }
}
