//! The threads of one process: started together, their messages and failures in one channel.
//!
//! Engine threads carry the plain clients; one more thread may carry clients of other kinds. Each sends its messages
//! through the same function, which usually puts them into a channel; none of them waits for the
//! receiver.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use loadline_sys::usage;
use thiserror::Error;

use crate::wire::WireError;
use crate::{Control, Message, Plan, Share, engine};

/// An event of a run.
#[derive(Debug)]
pub enum RunEvent {
    /// A thread, or a process in the place of one, has sent a message.
    Message(Message),
    /// A thread or process has ended, well or not.
    Ended {
        /// Its name.
        thread: String,
        /// Why it could not go on.
        result: Result<(), ThreadError>,
    },
    /// A signal asks for the end.
    Interrupted,
}

/// Why a thread, or a process in the place of one, could not go on.
#[derive(Debug, Error)]
pub enum ThreadError {
    /// The CPU is not there, say.
    #[error("it cannot be pinned to CPU {cpu}: {error}")]
    Pin {
        /// Which CPU.
        cpu: usize,
        /// Why not.
        error: io::Error,
    },
    /// The kernel refused what it needs.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A fault of this program.
    #[error("it panicked")]
    Panicked,
    /// A process's messages cannot be read.
    #[error(transparent)]
    Messages(#[from] WireError),
    /// A process ended by itself: its last line, or its status.
    #[error("{0}")]
    Process(String),
}

/// The threads that carry a process's part of the load.
#[derive(Clone, Debug)]
pub struct ThreadSpec {
    /// The part of the process.
    pub share: Share,
    /// Threads for the plain clients.
    pub engine_threads: u32,
    /// One thread more.
    pub extra: Option<ExtraThread>,
    /// CPUs that the threads of all processes are pinned to, in turn; empty: not pinned.
    pub cpus: Vec<usize>,
}

impl ThreadSpec {
    /// How many threads it comes to.
    #[must_use]
    pub fn thread_count(&self, plan: &Plan) -> usize {
        self.engine_threads(plan) as usize + usize::from(self.extra.is_some())
    }

    /// How many of them carry plain clients.
    #[must_use]
    pub fn engine_threads(&self, plan: &Plan) -> u32 {
        match plan.connections {
            0 => 0,
            _ => self.engine_threads.max(1),
        }
    }
}

/// Running threads.
#[derive(Debug)]
pub struct LoadThreads {
    threads: Vec<JoinHandle<()>>,
}

/// What a thread does with its share of a plan.
pub type Work =
    dyn Fn(&Plan, Share, &Control, &mut dyn FnMut(Message)) -> io::Result<()> + Send + Sync;

/// A thread that each process has beside those of the plain clients, for clients of other kinds.
#[derive(Clone)]
pub struct ExtraThread {
    /// Its name in results, before the number of the process.
    pub name: &'static str,
    /// What it does, with the share of the process.
    pub run: Arc<Work>,
}

impl fmt::Debug for ExtraThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtraThread")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl LoadThreads {
    /// Starts the threads; they open their connections and then wait for `control`'s start.
    ///
    /// `report` is called on the threads, and must not wait.
    ///
    /// # Errors
    /// A thread cannot be started; those that were are asked to stop.
    pub fn start<F>(
        plan: &Arc<Plan>,
        spec: &ThreadSpec,
        control: &Arc<Control>,
        report: F,
    ) -> io::Result<Self>
    where
        F: Fn(RunEvent) + Clone + Send + 'static,
    {
        let mut roles: Vec<(String, Share, Arc<Work>)> = Vec::new();
        let engine_threads = spec.engine_threads(plan);
        for index in 0..engine_threads {
            let share = spec.share.part(index, engine_threads);
            let name = format!("engine {}", share.index);
            roles.push((name, share, Arc::new(engine::run)));
        }
        if let Some(extra) = &spec.extra {
            let name = format!("{} {}", extra.name, spec.share.index);
            roles.push((name, spec.share, Arc::clone(&extra.run)));
        }
        let mut threads = Vec::new();
        let roles_per_process = roles.len();
        for (number, (name, share, work)) in roles.into_iter().enumerate() {
            let (plan, thread_control) = (Arc::clone(plan), Arc::clone(control));
            let report = report.clone();
            let number = spec.share.index as usize * roles_per_process + number;
            let cpu = (!spec.cpus.is_empty()).then(|| spec.cpus[number % spec.cpus.len()]);
            let label = name.clone();
            let body = move || {
                run_thread(&label, cpu, &report, |out| {
                    work(&plan, share, &thread_control, out)
                })
            };
            let started = Builder::new().name(name).spawn(body);
            threads.push(started.inspect_err(|_| control.stop())?);
        }
        Ok(Self { threads })
    }

    /// How many threads there are: as many say that they are ready, and that they have ended.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// Waits for every thread; to be called after all have reported their end.
    pub fn join(self) {
        for thread in self.threads {
            let _ = thread.join(); // a panic was reported as a thread's end
        }
    }
}

/// One thread from begin to end: pinned, at work, its end reported whatever happens.
fn run_thread<F>(
    name: &str,
    cpu: Option<usize>,
    report: &F,
    work: impl FnOnce(&mut dyn FnMut(Message)) -> io::Result<()>,
) where
    F: Fn(RunEvent),
{
    let pinned = cpu.map_or(Ok(()), |cpu| {
        loadline_sys::affinity::pin_thread(&[cpu]).map_err(|error| ThreadError::Pin { cpu, error })
    });
    // The thread that merges and draws may run on the same CPU: this one comes first. If that fails,
    // the lag shows it.
    let _ = usage::wake_promptly();
    let result = pinned.and_then(|()| {
        let mut out = |message| report(RunEvent::Message(message));
        match catch_unwind(AssertUnwindSafe(|| work(&mut out))) {
            Ok(result) => result.map_err(ThreadError::Io),
            Err(_) => Err(ThreadError::Panicked),
        }
    });
    report(RunEvent::Ended {
        thread: name.to_owned(),
        result,
    });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn events_of(
        cpu: Option<usize>,
        work: impl FnOnce(&mut dyn FnMut(Message)) -> io::Result<()>,
    ) -> Vec<RunEvent> {
        let (report, events) = channel();
        run_thread("thread", cpu, &|event| report.send(event).unwrap(), work);
        drop(report);
        events.iter().collect()
    }

    fn end(mut events: Vec<RunEvent>) -> Result<(), ThreadError> {
        match events.pop() {
            Some(RunEvent::Ended { thread, result }) => {
                assert_eq!(thread, "thread");
                result
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_end_of_a_thread_is_reported_however_it_ends() {
        assert!(end(events_of(None, |_| Ok(()))).is_ok());
        let failed = end(events_of(None, |_| Err(io::Error::other("no epoll"))));
        assert_eq!(failed.unwrap_err().to_string(), "no epoll");
        assert!(end(events_of(None, |_| panic!("on purpose"))).is_err());
        let messages = events_of(None, |out| {
            out(Message::Ready { connections: 3 });
            Ok(())
        });
        assert!(matches!(
            messages[0],
            RunEvent::Message(Message::Ready { connections: 3 })
        ));
    }

    #[test]
    fn a_cpu_that_is_not_there_ends_the_thread_with_a_reason() {
        let result = end(events_of(Some(1023), |_| Ok(())));
        let reason = result.unwrap_err().to_string();
        assert!(reason.contains("CPU 1023"), "{reason}");
    }
}
