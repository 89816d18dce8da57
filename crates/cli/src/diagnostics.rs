//! What the program says on standard error.
//!
//! A server's standard error may be a pipe whose reader has gone or does not read, or a terminal that
//! has hung up. None of it may hold a thread up, or end it: so `loadline serve` says everything, log
//! lines, panics and its last words, through a [`LineWriter`]. What cannot be written is counted and
//! shown on the status page. The descriptor stays as it was given: others share it, and would not
//! expect it to stop waiting.
//!
//! Before that, and in the other commands, there are only last words: written by a thread of their own,
//! for which the end waits a little.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use loadline_base::LogLimit;
use loadline_observe::{Closing, LineWriter, LineWriterOptions, Target};
use loadline_server::AccessSink;

/// How long the end waits for the last words to be written.
const GRACE: Duration = Duration::from_secs(1);

/// Panics that are reported in ten seconds: a client may know how to cause them.
const PANICS_MAX: u32 = 20;

/// Of this process, once it serves.
static RUNNING: OnceLock<Running> = OnceLock::new();

struct Running {
    log: Arc<LineWriter>,
    closing: Mutex<Option<Closing>>,
}

/// From now on everything is said by a thread of its own: messages of this level and above it, and
/// panics. To be called once.
pub(crate) fn start(level: tracing::Level) -> io::Result<()> {
    let (log, closing) = LineWriter::start(LineWriterOptions::DIAGNOSTICS, Target::Stderr)?;
    let lines = Arc::clone(&log);
    let running = Running {
        log,
        closing: Mutex::new(Some(closing)),
    };
    if RUNNING.set(running).is_err() {
        return Err(io::Error::other("started twice"));
    }
    tracing_subscriber::fmt()
        .with_writer(move || Line(Arc::clone(&lines)))
        .with_max_level(level)
        .with_target(false)
        .log_internal_errors(false) // by `eprintln`, which panics on a closed descriptor
        .init();
    std::panic::set_hook(Box::new(print_panic));
    Ok(())
}

/// Says something: lines, each ending in a newline. Never waits in a process that serves; elsewhere for
/// a moment at most.
pub(crate) fn print(text: &str) {
    match RUNNING.get() {
        Some(running) => running.log.offer(&mut text.as_bytes().to_vec()),
        None => write_for_a_while(text),
    }
}

/// Waits until what was said is written, for a moment at most. Nothing may be said after that.
pub(crate) fn finish() {
    let Some(running) = RUNNING.get() else { return };
    let closing = running.closing.lock();
    let closing = closing.unwrap_or_else(PoisonError::into_inner).take();
    if let Some(closing) = closing {
        closing.finish(GRACE);
    }
}

/// Where it goes, once this process serves; for its counts.
pub(crate) fn log() -> Option<&'static Arc<LineWriter>> {
    RUNNING.get().map(|running| &running.log)
}

/// Where a message goes: it comes as one piece, and is a batch.
struct Line(Arc<LineWriter>);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.offer(&mut bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the standard library would say, without waiting and at a bounded rate.
fn print_panic(info: &PanicHookInfo<'_>) {
    static LIMIT: LogLimit = LogLimit::new(PANICS_MAX);
    let Some(more) = LIMIT.admit(Instant::now()) else {
        return;
    };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let place = info.location().map(ToString::to_string);
    let place = place.unwrap_or_else(|| "an unknown place".to_owned());
    let text = info.payload_as_str().unwrap_or("no message");
    let mut message = format!("thread '{name}' panicked at {place}: {text}{more}\n");
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        message += &format!("{trace}");
    }
    print(&message);
}

/// Writes by a thread that may be left behind. Where none is to be had, as much as there is room for.
fn write_for_a_while(text: &str) {
    let (written, done) = sync_channel(1);
    let own = text.to_owned();
    let write = move || {
        let _ = io::stderr().write_all(own.as_bytes()); // there is no other place to report it
        let _ = written.send(());
    };
    let thread = std::thread::Builder::new().name("last words".into());
    match thread.spawn(write) {
        Ok(_) => _ = done.recv_timeout(GRACE),
        Err(_) => write_what_fits(text),
    }
}

/// Where a pipe says that it is writable, it takes this much without waiting.
const PIECE_BYTES: usize = 4096;

fn write_what_fits(text: &str) {
    for piece in text.as_bytes().chunks(PIECE_BYTES) {
        let has_room = loadline_sys::wait_writable(&io::stderr(), Some(0));
        if !has_room.is_ok_and(|has_room| has_room) || io::stderr().write_all(piece).is_err() {
            return;
        }
    }
}
