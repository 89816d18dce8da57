//! Servers whose threads are loops, and what they are asked besides.

use std::sync::Arc;
use std::time::Duration;

use loadline_base::{ContentVersion, OpenFile};
use loadline_proto::Limits;
use loadline_server::{Architecture, Counts, Role, ServerOptions, SocketIo};

pub(crate) use crate::shared::*;

/// Whether an architecture can have its sockets read and written by these.
pub(crate) fn offers(architecture: Architecture, socket_io: SocketIo) -> bool {
    socket_io == SocketIo::Loop || architecture == Architecture::Reactor
}

/// All that can.
pub(crate) fn socket_ios(architecture: Architecture) -> impl Iterator<Item = &'static SocketIo> {
    let all = SocketIo::ALL.iter();
    all.filter(move |socket_io| offers(architecture, **socket_io))
}

pub(crate) fn options(architecture: Architecture, loops: usize, workers: usize) -> ServerOptions {
    ServerOptions {
        architecture,
        loops,
        workers,
        latency_goal: Some(Duration::from_secs(60)),
        defer_accept: false, // so that silent connections show at once
        ..ServerOptions::default()
    }
}

pub(crate) fn start(options: ServerOptions) -> Server {
    start_with(options, TestHandler::default(), Limits::default())
}

pub(crate) fn start_with(options: ServerOptions, handler: TestHandler, limits: Limits) -> Server {
    Server::start(options, handler, limits)
}

impl Server {
    /// A connection that the server has taken in and counts as open, and the index of its loop.
    pub(crate) fn connect_taken_in(&self) -> (Client, usize) {
        let before = self.loops();
        let client = self.connect();
        let mut index = None;
        eventually(|| {
            let now = self.loops();
            index = (0..now.len()).find(|i| now[*i].accepted > before[*i].accepted);
            index = index.filter(|i| now[*i].connections + closed(&now[*i]) == now[*i].accepted);
            index.is_some()
        });
        (client, index.unwrap())
    }

    pub(crate) fn total(&self) -> Counts {
        self.handle.snapshot().total
    }

    pub(crate) fn loops(&self) -> Vec<Counts> {
        self.of(Role::Loop)
    }

    pub(crate) fn of(&self, role: Role) -> Vec<Counts> {
        let threads = self.handle.snapshot().per_thread;
        let of_role = threads.into_iter().filter(|thread| thread.role == role);
        of_role.map(|thread| thread.counts).collect()
    }
}

fn closed(counts: &Counts) -> u64 {
    counts.closed.iter().sum()
}

pub(crate) fn open_file(path: &std::path::Path) -> Arc<OpenFile> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::File::open(path).unwrap();
    let meta = file.metadata().unwrap();
    let ns = |seconds: i64, ns: i64| seconds * 1_000_000_000 + ns;
    Arc::new(OpenFile {
        version: ContentVersion {
            size: meta.size(),
            modified_ns: ns(meta.mtime(), meta.mtime_nsec()),
        },
        fd: file.into(),
        is_local: true,
    })
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).unwrap()
    }
}
