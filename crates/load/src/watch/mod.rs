//! Watches processes while they are under load: CPU, memory, threads, context switches, descriptors
//! of each with all its descendants, once a second, on a thread of its own.
//!
//! `look` reads /proc; here is when. A look that is expensive (thousands of processes) is taken less
//! often, so that watching takes no more than a hundredth of one CPU; of many threads each look
//! sees a part.

mod look;

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use loadline_record::{WatchedRecord, WatchedSample};
use loadline_sys::clock::monotonic_ns;
use loadline_sys::usage;
use look::{Haste, Looker};

use crate::schedule::ns;

/// Time between looks.
const INTERVAL_NS: u64 = 1_000_000_000;

/// Looks take at most this part of the time, by their thread's CPU time.
const REST_PER_LOOK: u64 = 100;

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As it stands in results.
    pub name: String,
    /// The process at the top.
    pub pid: u32,
}

/// Watches until it is ended (or dropped).
#[derive(Debug)]
pub struct Watch {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Vec<Watched>>,
}

#[derive(Debug)]
struct Watched {
    target: Target,
    looker: Looker,
    looks: Vec<(u64, WatchedSample)>,
    ended_ns: Option<u64>,
}

impl Watch {
    /// Takes a first look and goes on.
    ///
    /// # Errors
    /// One of the processes does not exist, or no thread can be started.
    pub fn begin(targets: Vec<Target>) -> io::Result<Self> {
        let mut watched = Vec::new();
        for target in targets {
            let looker = Looker::new(Path::new("/proc"), target.pid).map_err(|error| {
                let (pid, name) = (target.pid, &target.name);
                let text = match error.kind() {
                    io::ErrorKind::NotFound => format!(
                        "{pid} ({name}): no such process; right would be the number of one that runs"
                    ),
                    _ => format!("{pid} ({name}): the process cannot be watched: {error}"),
                };
                io::Error::new(error.kind(), text)
            })?;
            watched.push(Watched {
                target,
                looker,
                looks: Vec::new(),
                ended_ns: None,
            });
        }
        let (stop, stopped) = mpsc::channel();
        let (began, begun) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || watch(watched, &began, &stopped))?;
        let _ = begun.recv(); // the first look is taken
        Ok(Self { stop, thread })
    }

    /// Takes a last look. Times in the records count from `start_ns` of the monotonic clock; their
    /// totals are filled in by the merger, which knows what counted.
    #[must_use]
    pub fn end(self, start_ns: u64) -> Vec<WatchedRecord> {
        let _ = self.stop.send(());
        let watched = self.thread.join().unwrap_or_default();
        watched
            .into_iter()
            .map(|watched| watched.into_record(start_ns))
            .collect()
    }
}

fn watch(
    mut watched: Vec<Watched>,
    began: &mpsc::Sender<()>,
    stopped: &mpsc::Receiver<()>,
) -> Vec<Watched> {
    if watched.is_empty() {
        return watched;
    }
    let mut due_ns = monotonic_ns();
    let mut haste = Haste::All;
    loop {
        let before_ns = ns(usage::thread_cpu());
        for one in &mut watched {
            one.look(haste);
        }
        let cost_ns = match haste {
            Haste::All => 0, // there was no load yet
            Haste::Some => ns(usage::thread_cpu()).saturating_sub(before_ns),
        };
        haste = Haste::Some;
        let _ = began.send(());
        let after_ns = monotonic_ns();
        due_ns = next_due(due_ns, cost_ns, after_ns);
        let rest = Duration::from_nanos(due_ns.saturating_sub(after_ns));
        match stopped.recv_timeout(rest) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    for one in &mut watched {
        one.look(Haste::All);
    }
    watched
}

/// A second after the last time, or later if looks are expensive.
fn next_due(due_ns: u64, cost_ns: u64, after_ns: u64) -> u64 {
    let next_ns = due_ns + INTERVAL_NS;
    if next_ns > after_ns && cost_ns * REST_PER_LOOK <= INTERVAL_NS {
        return next_ns;
    }
    after_ns + INTERVAL_NS.max(cost_ns * REST_PER_LOOK)
}

impl Watched {
    fn look(&mut self, haste: Haste) {
        if self.ended_ns.is_some() {
            return;
        }
        let now_ns = monotonic_ns();
        let (sample, is_alive) = self.looker.look(now_ns, haste);
        self.looks.push((now_ns, sample));
        if !is_alive {
            self.ended_ns = Some(now_ns);
        }
    }

    fn into_record(self, start_ns: u64) -> WatchedRecord {
        let since_start_s = |ns: u64| (ns as f64 - start_ns as f64) / 1e9;
        let looks = self.looks.into_iter();
        WatchedRecord {
            name: self.target.name,
            pid: self.target.pid,
            ended_s: self.ended_ns.map(since_start_s),
            series: looks
                .map(|(ns, sample)| WatchedSample {
                    at_s: since_start_s(ns),
                    ..sample
                })
                .collect(),
            ..WatchedRecord::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A child of the test's own: ended with it.
    struct Shell(Child);

    impl Shell {
        fn run(script: &str) -> Self {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            Self(command.spawn().unwrap())
        }

        fn line(&mut self) -> String {
            let mut line = String::new();
            let out = self.0.stdout.as_mut().unwrap();
            BufReader::with_capacity(1, out)
                .read_line(&mut line)
                .unwrap();
            line.trim().to_owned()
        }

        fn target(&self) -> Target {
            Target {
                name: "server".to_owned(),
                pid: self.0.id(),
            }
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Prints a line when it has used some CPU time, in itself and in a child that is still there.
    const WORKS: &str = "
        spin() { i=0; while [ $i -lt 60000 ]; do i=$((i + 1)); done; }
        exec 3<&0; { spin; echo child; read line <&3; } &
        spin; wait_for_me=1; echo parent; wait";

    #[test]
    fn a_process_and_its_child_are_seen_at_work() {
        let mut shell = Shell::run(&format!("echo ready; read go; {WORKS}"));
        assert_eq!(shell.line(), "ready"); // before that it has hardly any memory
        let watch = Watch::begin(vec![shell.target()]).unwrap();
        let start_ns = monotonic_ns();
        let go = shell.0.stdin.as_mut().unwrap();
        go.write_all(b"go\n").unwrap();
        let mut said = [shell.line(), shell.line()];
        said.sort();
        assert_eq!(said, ["child", "parent"]);
        let record = &watch.end(start_ns)[0];
        let last = record.series.last().unwrap();
        assert!(record.series[0].at_s <= 0.0 && last.at_s > 0.0);
        assert_eq!((last.processes, last.threads), (2, 2));
        assert!(last.cpu_user_s + last.cpu_kernel_s > 0.0);
        let pss_bytes = record.series[0].pss_bytes; // seldom asked for
        assert!(pss_bytes.is_some_and(|bytes| bytes > 10_000));
        assert!(last.descriptors.is_some_and(|count| count >= 6));
        assert_eq!(record.ended_s, None);
    }

    #[test]
    fn the_end_of_a_process_is_noted() {
        let mut shell = Shell::run("read go; exit");
        let watch = Watch::begin(vec![shell.target()]).unwrap();
        drop(shell.0.stdin.take());
        shell.0.wait().unwrap();
        let record = &watch.end(0)[0];
        assert!(record.ended_s.is_some());
    }

    #[test]
    fn of_many_threads_all_are_seen_in_the_end() {
        let [begin, begun, seen] = [(); 3].map(|()| std::sync::Barrier::new(301));
        thread::scope(|scope| {
            for _ in 0..300 {
                scope.spawn(|| {
                    begin.wait();
                    for _ in 0..5 {
                        thread::sleep(Duration::from_millis(1));
                    }
                    begun.wait();
                    seen.wait(); // what has ended is not known any more
                });
            }
            let mut looker = Looker::new(Path::new("/proc"), std::process::id()).unwrap();
            let (first, _) = looker.look(monotonic_ns(), Haste::All);
            assert!(first.threads >= 301 && first.switches_voluntary == 0);
            begin.wait();
            begun.wait();
            let (part, _) = looker.look(monotonic_ns(), Haste::Some);
            let (whole, _) = looker.look(monotonic_ns(), Haste::Some);
            seen.wait();
            assert!(part.switches_voluntary >= 5 * 200, "{part:?}");
            assert!(whole.switches_voluntary >= 5 * 300, "{whole:?}");
        });
    }

    #[test]
    fn what_does_not_exist_cannot_be_watched() {
        let target = Target {
            name: "ghost".to_owned(),
            pid: u32::MAX,
        };
        let error = Watch::begin(vec![target]).unwrap_err().to_string();
        assert!(error.contains("(ghost): no such process"), "{error}");
    }

    #[test]
    fn expensive_looks_are_taken_less_often() {
        let second = INTERVAL_NS;
        assert_eq!(next_due(0, 10, 1_000_000), second);
        let cost = second / 10;
        assert_eq!(next_due(0, cost, cost), cost + 10 * second);
        // After a pause (of the machine, say) there is no row of looks to catch up with.
        assert_eq!(next_due(0, 1, 5 * second + 1), 6 * second + 1);
    }
}
