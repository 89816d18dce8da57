//! A responder that runs, seen from outside.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::clock::now_ns;
use crate::listener::Listener;
use crate::record::Shared;
use crate::responder::Responder;
use crate::{Counts, Report, StubOptions, Times};

/// A responder on a thread of its own. Dropping it stops it.
#[derive(Debug)]
pub struct Stub {
    address: SocketAddr,
    begin_ns: u64,
    shared: Arc<Shared>,
    stop: OwnedFd,
    /// Gives back the thread's run delay.
    thread: Option<JoinHandle<io::Result<u64>>>,
}

impl Stub {
    /// Starts a responder; when this returns it answers.
    ///
    /// # Errors
    /// The options do not make sense (`InvalidInput`), the address is taken, the process may not run
    /// on the CPU, or has no descriptor or thread left.
    pub fn start(options: StubOptions) -> io::Result<Self> {
        options.check()?;
        let listener = Listener::bind(options.address, options.listening)?;
        let address = listener.address;
        let shared = Arc::new(Shared::new(
            options.faults.len(),
            options.connection_faults.len(),
            options.times_max,
        ));
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let cpu = options.cpu;
        let begin_ns = now_ns();
        let responder = Responder::new(options, listener, Arc::clone(&shared), &stop, begin_ns)?;
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("stub".to_owned())
            .spawn(move || {
                let pinned = cpu.map_or(Ok(()), pin);
                let is_pinned = pinned.is_ok();
                let _ = ready.send(pinned);
                let before_ns = run_delay_ns();
                if is_pinned {
                    responder.run()?;
                }
                Ok(run_delay_ns().saturating_sub(before_ns))
            })?;
        // A thread that has ended already shows in `stop`.
        is_ready.recv().unwrap_or(Ok(()))?;
        Ok(Self {
            address,
            begin_ns,
            shared,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// When it began, in nanoseconds of the monotonic clock: stalls are counted from here.
    #[must_use]
    pub fn begin_ns(&self) -> u64 {
        self.begin_ns
    }

    /// What has been counted so far. A client may have seen an answer before it is counted here.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// The times of the requests answered so far, in the order of the answers.
    #[must_use]
    pub fn times(&self) -> Vec<Times> {
        self.shared.times()
    }

    /// Ends it, without waiting for anything that is due, and reports.
    ///
    /// # Errors
    /// It had ended before, by an error of the kernel or a mistake of its own.
    pub fn stop(mut self) -> io::Result<Report> {
        let run_delay_ns = self.end()?;
        Ok(Report {
            counts: self.counts(),
            times: self.times(),
            run_delay_ns,
        })
    }

    fn end(&mut self) -> io::Result<u64> {
        let Some(thread) = self.thread.take() else {
            return Ok(0);
        };
        rustix::io::write(&self.stop, &1_u64.to_ne_bytes())?;
        let ended = thread.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the responder's thread panicked")))
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        let _ = self.end(); // an error is lost: `stop` returns it
    }
}

fn pin(cpu: usize) -> io::Result<()> {
    let refused = |error: io::Error| {
        let message = format!("the responder cannot run on CPU {cpu}: {error}");
        io::Error::new(error.kind(), message)
    };
    if cpu >= CpuSet::MAX_CPU {
        let none = io::Error::new(io::ErrorKind::InvalidInput, "there is none of that number");
        return Err(refused(none));
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).map_err(|errno| refused(errno.into()))
}

/// Time in which the calling thread could have run and was not allowed to; 0 where the kernel does
/// not say.
fn run_delay_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let second = text.split_ascii_whitespace().nth(1);
    second.and_then(|number| number.parse().ok()).unwrap_or(0)
}
