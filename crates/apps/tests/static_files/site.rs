//! A real directory, a handler over it, and clients in memory with a clock of their own.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use loadline_apps::static_files::LocalFiles;
use loadline_apps::{StaticFiles, StaticOptions};
use loadline_base::{Chunk, Millis};
use loadline_proto::{
    Action, Context, Counters, Exchange, Handler, HttpDate, Pool, ServerSession, SessionConfig,
};
use tempfile::TempDir;

thread_local! {
    /// How far this test's time of day is ahead of the real one.
    static AHEAD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The time of day of tests.
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now() + AHEAD.get()
}

/// Files and a handler that serves them.
pub(crate) struct Site {
    pub(crate) handler: StaticFiles,
    pub(crate) local: LocalFiles,
    /// The time on the server's clock.
    pub(crate) now: Millis,
    /// Blocking steps so far.
    pub(crate) blocked: usize,
    /// Blocking steps are refused, as where too much is asked of workers.
    pub(crate) refuses: bool,
    /// A loop carries blocking steps out, as where there are no workers.
    pub(crate) is_without_workers: bool,
    directory: TempDir,
}

/// An answer, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) content: Vec<u8>,
}

impl Answer {
    /// All fields but the date: between two responses a second may have passed.
    pub(crate) fn undated(&self) -> Vec<&(String, String)> {
        let fields = self.fields.iter();
        fields.filter(|(name, _)| name != "Date").collect()
    }

    /// The value of a field; empty if it is not there.
    pub(crate) fn field(&self, name: &str) -> &str {
        let mut found = self
            .fields
            .iter()
            .filter(|(of, _)| of.eq_ignore_ascii_case(name));
        let value = found.next().map_or("", |(_, value)| value);
        assert!(found.next().is_none(), "{name} twice: {self:?}");
        value
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).unwrap()
    }
}

/// Options under which a file just written counts as settled, so that freshness goes by `stat`.
pub(crate) fn settled() -> StaticOptions {
    set_ahead(60);
    StaticOptions {
        wall_clock,
        ..StaticOptions::default()
    }
}

/// Sets this test's time of day ahead of the real one.
pub(crate) fn set_ahead(seconds: u64) {
    AHEAD.set(Duration::from_secs(seconds));
}

/// An empty directory in which `root` is the document root.
pub(crate) fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("root")).unwrap();
    directory
}

impl Site {
    /// A site of these files, by name and content; directories are made as needed.
    pub(crate) fn new(files: &[(&str, &str)], options: StaticOptions) -> Self {
        let directory = directory();
        let root = directory.path().join("root");
        for (name, content) in files {
            write(&root.join(name), content);
        }
        Self::over(directory, options)
    }

    /// A site over `root` in `directory`.
    pub(crate) fn over(directory: TempDir, options: StaticOptions) -> Self {
        let handler = StaticFiles::new(&directory.path().join("root"), options).unwrap();
        Self {
            local: handler.local(),
            handler,
            now: Millis(5_000),
            blocked: 0,
            refuses: false,
            is_without_workers: false,
            directory,
        }
    }

    /// The path of something below the root (or beside it, with `..`).
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        write(&self.path(name), content);
    }

    /// Lets time pass on the server's clock.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now = Millis(self.now.0 + ms);
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.request("GET", target, &[])
    }

    pub(crate) fn request(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
    ) -> Answer {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n");
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let bytes = self.exchange(head.into_bytes());
        parse(&bytes, method == "HEAD")
    }

    /// What an event loop has the handler do without requests; whether anything is left.
    pub(crate) fn release_unused(&self) -> bool {
        let cx = Context {
            now: self.now,
            came: self.now,
            date: &HttpDate::at(0),
            pool: &mut Pool::new(),
            counters: &Counters::default(),
            log: None,
        };
        self.handler.release_unused(&cx)
    }

    /// Runs one request through a session and the handler; returns the answer's bytes.
    pub(crate) fn exchange(&mut self, head: Vec<u8>) -> Vec<u8> {
        let (handler, local) = (&self.handler, &mut self.local);
        let block = |exchange: &mut Exchange| {
            exchange.is_done_by_loop = self.is_without_workers;
            match self.refuses {
                true => exchange.refuse(1),
                false => handler.handle_blocking(exchange),
            }
        };
        let (bytes, blocked) = run(handler, local, self.now, head, block);
        self.blocked += blocked;
        bytes
    }
}

/// The answer to one request, and how many blocking steps it took.
pub(crate) fn answer_of(
    handler: &StaticFiles,
    local: &mut LocalFiles,
    now: Millis,
    head: Vec<u8>,
) -> (Answer, usize) {
    let block = |exchange: &mut Exchange| handler.handle_blocking(exchange);
    let (bytes, blocked) = run(handler, local, now, head, block);
    (parse(&bytes, false), blocked)
}

fn run(
    handler: &StaticFiles,
    local: &mut LocalFiles,
    now: Millis,
    mut head: Vec<u8>,
    block: impl Fn(&mut Exchange),
) -> (Vec<u8>, usize) {
    let (mut pool, counters) = (Pool::new(), Counters::default());
    let since = wall_clock().duration_since(SystemTime::UNIX_EPOCH);
    let date = HttpDate::at(since.unwrap().as_secs());
    let mut cx = Context {
        now,
        came: now,
        date: &date,
        pool: &mut pool,
        counters: &counters,
        log: None,
    };
    let mut session = ServerSession::new(&Arc::new(SessionConfig::default()), None, &mut cx);
    session.received(&mut head, &mut cx);
    let (mut output, mut blocked) = (Vec::new(), 0);
    loop {
        match session.next_action(&mut cx) {
            Action::Run(mut exchange) => {
                let outcome = handler.handle(local, &mut exchange, &mut cx);
                session.ran(exchange, outcome, &mut cx);
            }
            Action::Block(mut exchange) => {
                blocked += 1;
                block(&mut exchange);
                session.completed(exchange, &mut cx);
            }
            Action::Send { mut transmit, .. } => {
                while let Some(chunk) = transmit.front() {
                    let sent = append(&chunk, &mut output);
                    transmit.advance(sent);
                }
                session.sent(transmit, &mut cx);
            }
            Action::Wait { .. } | Action::Finish | Action::Close => return (output, blocked),
            action => unreachable!("{action:?}"),
        }
    }
}

fn append(chunk: &Chunk<'_>, output: &mut Vec<u8>) -> u64 {
    match chunk {
        Chunk::Memory(bytes) => {
            output.extend_from_slice(bytes);
            bytes.len() as u64
        }
        Chunk::File { file, offset, len } => {
            let start = output.len();
            output.resize(start + *len as usize, 0);
            let file = fs::File::from(file.fd.try_clone().unwrap());
            file.read_exact_at(&mut output[start..], *offset).unwrap();
            *len
        }
    }
}

/// Takes an answer apart, checking that its framing is right.
pub(crate) fn parse(bytes: &[u8], is_head: bool) -> Answer {
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .expect("a whole head");
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let content = bytes[end + 4..].to_vec();
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap();
    let status: u16 = status_line.split(' ').nth(1).unwrap().parse().unwrap();
    let fields = lines.map(|line| line.split_once(": ").expect("a field"));
    let fields = fields
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let answer = Answer {
        status,
        fields,
        content,
    };
    if is_head || status == 304 || status == 204 {
        assert_eq!(answer.content, b"", "{answer:?}");
    } else {
        assert_eq!(
            answer.field("Content-Length"),
            answer.content.len().to_string()
        );
    }
    answer
}

/// Bytes that no coding makes fewer.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let next = |state: &u64| {
        Some(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1),
        )
    };
    let states = std::iter::successors(Some(1), next);
    states.map(|state| (state >> 56) as u8).take(len).collect()
}

pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}
