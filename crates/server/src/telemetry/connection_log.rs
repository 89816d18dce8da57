//! The connection log: numbers for all threads, lines of each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loadline_proto::{ConnectionFormat, ConnectionLog, ConnectionRecord};

use crate::telemetry::log;
use crate::{AccessSink, ConnectionLogging};

/// What all threads share.
pub(crate) struct SharedConnectionLog {
    format: ConnectionFormat,
    sink: Arc<dyn AccessSink>,
    last_id: AtomicU64,
}

/// A thread's own part.
pub(crate) struct ThreadConnectionLog {
    shared: Arc<SharedConnectionLog>,
    log: ConnectionLog,
}

impl SharedConnectionLog {
    pub(crate) fn new(logging: ConnectionLogging) -> Arc<Self> {
        Arc::new(Self {
            format: logging.format,
            sink: logging.sink,
            last_id: AtomicU64::new(0),
        })
    }
}

impl ThreadConnectionLog {
    pub(crate) fn new(shared: &Arc<SharedConnectionLog>) -> Self {
        Self {
            shared: Arc::clone(shared),
            log: ConnectionLog::new(shared.format),
        }
    }

    /// Writes the line of a new connection. `now_us` is on the server's clock, which began at
    /// `began_unix_us`.
    pub(crate) fn accepted(
        &mut self,
        peer: Option<SocketAddr>,
        now_us: u64,
        began_unix_us: u64,
    ) -> Box<ConnectionRecord> {
        let id = 1 + self.shared.last_id.fetch_add(1, Ordering::Relaxed);
        let record = Box::new(ConnectionRecord::new(id, peer, now_us));
        let unix_us = began_unix_us.saturating_add(now_us);
        self.log.accepted(&record, unix_us);
        record
    }

    /// Writes the line of one that is closed.
    pub(crate) fn closed(&mut self, record: &ConnectionRecord, now_us: u64, began_unix_us: u64) {
        let unix_us = began_unix_us.saturating_add(now_us);
        let duration_us = now_us.saturating_sub(record.accepted_us);
        self.log.closed(record, unix_us, duration_us);
    }

    /// Bytes that wait to be handed on.
    pub(crate) fn len(&mut self) -> usize {
        self.log.lines().len()
    }

    pub(crate) fn offer(&mut self) {
        if !self.log.lines().is_empty() {
            log::harmless(|| self.shared.sink.offer(self.log.lines()));
            self.log.lines().clear(); // as the sink leaves it, unless it has panicked
        }
    }
}
