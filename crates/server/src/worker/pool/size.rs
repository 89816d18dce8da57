//! How many workers a pool has, and what is to be known to change that.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loadline_proto::Handler;

use super::{WorkerThread, Workers, lock};
use crate::site::Site;
use crate::telemetry::log::{drop_panic, panic_text};
use crate::worker::early_look::EarlyLook;
use crate::worker::job::Job;
use crate::worker::job_queue::source::JobSource;
use crate::worker::meter::Meter;
use crate::worker::peaks::PeaksTaken;

impl Workers {
    /// Changes the number of workers, 1 or more: those that are missing start now, those that are too
    /// many end after their jobs.
    pub(crate) fn resize<H: Handler>(
        self: &Arc<Self>,
        site: &Arc<Site<H>>,
        count: usize,
    ) -> io::Result<()> {
        let mut result = Ok(());
        for source in self.queue.resize(count) {
            if result.is_ok() {
                result = self.start_another(site, source);
            }
            if result.is_err() {
                self.queue.count_out();
            }
        }
        if let Some(control) = &self.control {
            lock(control).set_workers(self.count());
        }
        if let Some(holders) = &self.holders {
            let _ = (0..self.queue.excess()).all(|_| holders.free_one());
        }
        result
    }

    /// What a handler keeps on a thread is made here: if that panics, there is no worker.
    fn start_another<H: Handler>(
        self: &Arc<Self>,
        site: &Arc<Site<H>>,
        source: JobSource<Job>,
    ) -> io::Result<()> {
        let start = AssertUnwindSafe(|| {
            let mut thread = WorkerThread::new(site, source);
            thread.join(self);
            self.start_one(site, thread)
        });
        catch_unwind(start).unwrap_or_else(|panic| {
            let text = format!("a handler panicked: {}", panic_text(panic.as_ref()));
            drop_panic(panic);
            Err(io::Error::other(text))
        })
    }

    /// Workers that there are.
    pub(crate) fn count(&self) -> usize {
        self.queue.workers()
    }

    /// Which of the pools.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Jobs that wait.
    pub(crate) fn depth(&self) -> usize {
        self.queue.depth()
    }

    /// The most workers that had a job, and the most jobs, at one time since the last call.
    pub(crate) fn take_peaks(&self) -> PeaksTaken {
        self.queue.take_peaks()
    }

    /// Whether workers keep connections that wait for their clients.
    pub(crate) fn keeps_connections(&self) -> bool {
        self.holders.is_some()
    }

    /// Whom to wake for a job that has to wait.
    pub(crate) fn set_early_look(&self, early: &Arc<EarlyLook>) {
        let _ = self.early.set(Arc::clone(early)); // once
    }

    /// A job was queued. If no worker is free for it, and sizes are looked at rarely, they are now.
    pub(super) fn look_early(&self) {
        if let Some(early) = self.early.get()
            && early.is_wanted()
            && !self.queue.has_free_workers()
        {
            early.begin();
        }
    }

    /// What the workers do, if their number changes.
    pub(crate) fn meter(&self) -> Option<&Meter> {
        self.meter.as_deref()
    }
}
