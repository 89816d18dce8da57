//! How many workers a pool has, and what is to be known to change that.

use std::io;
use std::sync::Arc;

use loadline_proto::Handler;

use super::{WorkerDesk, Workers, lock};
use crate::site::Site;
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
                let mut desk = WorkerDesk::new(site, source);
                desk.join(self);
                result = self.start_one(site, desk);
            }
            if result.is_err() {
                self.queue.count_out();
            }
        }
        if let Some(control) = &self.control {
            lock(control).set_workers(self.count());
        }
        if let Some(seats) = &self.seats {
            let _ = (0..self.queue.excess()).all(|_| seats.free_one());
        }
        result
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
        self.seats.is_some()
    }

    /// What the workers do, if their number changes.
    pub(crate) fn meter(&self) -> Option<&Meter> {
        self.meter.as_deref()
    }
}
