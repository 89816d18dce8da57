//! The threads of one process: started together, heard in one place, their failures told.
//!
//! Engine threads carry the plain clients; one more thread may carry clients of other kinds. Each tells its messages
//! through the same function, which usually puts them into a channel; none of them waits for whoever
//! listens.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use loadline_sys::usage;

use crate::{Control, Message, Plan, Share, engine};

/// What a fleet tells.
#[derive(Debug)]
pub enum Event {
    /// A thread's message.
    Told(Message),
    /// A thread has ended, well or not.
    Ended {
        /// Its name.
        thread: String,
        /// Why it could not go on.
        result: Result<(), String>,
    },
}

/// Who carries a process's part of the load.
#[derive(Clone, Debug)]
pub struct Crew {
    /// The part of the process.
    pub share: Share,
    /// Threads for the plain clients.
    pub engine_threads: u32,
    /// One thread more.
    pub extra: Option<ExtraThread>,
    /// CPUs that the threads of all processes are pinned to, in turn; empty: not pinned.
    pub cpus: Vec<usize>,
}

impl Crew {
    /// How many threads a fleet of it has.
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

/// Threads at work.
#[derive(Debug)]
pub struct Fleet {
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

impl Fleet {
    /// Starts the threads; they open their connections and then wait for `control`'s start.
    ///
    /// `tell` is called on the threads, and must not wait.
    ///
    /// # Errors
    /// A thread cannot be started; those that were are asked to stop.
    pub fn start<F>(
        plan: &Arc<Plan>,
        crew: &Crew,
        control: &Arc<Control>,
        tell: F,
    ) -> io::Result<Self>
    where
        F: Fn(Event) + Clone + Send + 'static,
    {
        let mut posts: Vec<(String, Share, Arc<Work>)> = Vec::new();
        let engine_threads = crew.engine_threads(plan);
        for index in 0..engine_threads {
            let share = crew.share.part(index, engine_threads);
            let name = format!("engine {}", share.index);
            posts.push((name, share, Arc::new(engine::run)));
        }
        if let Some(extra) = &crew.extra {
            let name = format!("{} {}", extra.name, crew.share.index);
            posts.push((name, crew.share, Arc::clone(&extra.run)));
        }
        let mut threads = Vec::new();
        let posts_per_process = posts.len();
        for (number, (name, share, work)) in posts.into_iter().enumerate() {
            let (plan, looked_at) = (Arc::clone(plan), Arc::clone(control));
            let tell = tell.clone();
            let number = crew.share.index as usize * posts_per_process + number;
            let cpu = (!crew.cpus.is_empty()).then(|| crew.cpus[number % crew.cpus.len()]);
            let label = name.clone();
            let body = move || {
                stand(&label, cpu, &tell, |out| {
                    work(&plan, share, &looked_at, out)
                })
            };
            let started = Builder::new().name(name).spawn(body);
            match started {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    control.stop();
                    return Err(error);
                }
            }
        }
        Ok(Self { threads })
    }

    /// How many threads there are: as many say that they are ready, and that they have ended.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// Waits for every thread. To be called when all have told their end.
    pub fn join(self) {
        for thread in self.threads {
            let _ = thread.join(); // a panic was told as a thread's end
        }
    }
}

/// One thread from begin to end: pinned, at work, its end told whatever happens.
fn stand<F>(
    name: &str,
    cpu: Option<usize>,
    tell: &F,
    work: impl FnOnce(&mut dyn FnMut(Message)) -> io::Result<()>,
) where
    F: Fn(Event),
{
    let pinned = cpu.map_or(Ok(()), |cpu| {
        loadline_sys::affinity::pin_thread(&[cpu])
            .map_err(|error| format!("it cannot be pinned to CPU {cpu}: {error}"))
    });
    // Whoever merges and draws may run on the same CPU, and is not to keep this thread from it. What
    // cannot be had shows in the lag.
    let _ = usage::wake_promptly();
    let result = pinned.and_then(|()| {
        let mut out = |message| tell(Event::Told(message));
        match catch_unwind(AssertUnwindSafe(|| work(&mut out))) {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err("it panicked".to_owned()),
        }
    });
    tell(Event::Ended {
        thread: name.to_owned(),
        result,
    });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn told(work: impl FnOnce(&mut dyn FnMut(Message)) -> io::Result<()> + Send) -> Vec<Event> {
        let (tell, events) = channel();
        stand("post", None, &|event| tell.send(event).unwrap(), work);
        drop(tell);
        events.iter().collect()
    }

    #[test]
    fn the_end_of_a_thread_is_told_however_it_ends() {
        let end = |events: Vec<Event>| match events.into_iter().next_back() {
            Some(Event::Ended { thread, result }) => {
                assert_eq!(thread, "post");
                result
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(end(told(|_| Ok(()))), Ok(()));
        let failed = end(told(|_| Err(io::Error::other("no epoll"))));
        assert_eq!(failed, Err("no epoll".to_owned()));
        assert!(end(told(|_| panic!("on purpose"))).is_err());
        let share = Share::WHOLE;
        let messages = told(|out| {
            out(Message::Ready {
                share,
                connections: 3,
            });
            Ok(())
        });
        assert!(matches!(
            messages[0],
            Event::Told(Message::Ready { connections: 3, .. })
        ));
    }

    #[test]
    fn a_cpu_that_is_not_there_ends_the_thread_with_a_reason() {
        let (tell, events) = channel();
        let cpu = Some(1023);
        stand("post", cpu, &|event| tell.send(event).unwrap(), |_| Ok(()));
        match events.recv().unwrap() {
            Event::Ended { result, .. } => {
                let reason = result.unwrap_err();
                assert!(reason.contains("CPU 1023"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}
