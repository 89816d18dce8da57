//! A thread that writes the lines that other threads hand it: of the access log, of diagnostics.
//!
//! Those threads never wait for it: they push batches of whole lines into a bounded lock-free queue, and
//! lines that find no room are dropped and counted. The thread alone touches the
//! file. A full disk, a closed pipe or a pipe without a reader costs lines, which are counted, and one
//! message per interval.
//!
//! ```text
//!   loop ──┐
//!   loop ──┼─ batches ─► bounded queue ─► writer ─► file, standard output or standard error
//!   loop ──┘  (dropped and counted)         ▲ SIGHUP: open the file again
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use loadline_server::AccessSink;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Emptied batches that are kept for the next ones.
const SPARES_MAX: usize = 256;
/// A batch that has grown beyond this is freed rather than kept.
const SPARE_BYTES_MAX: usize = 64 << 10;
/// What the writer gathers before it writes.
const WRITE_BYTES: usize = 256 << 10;
/// Between two messages about a log that cannot be written.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// How long the writer rests after a failed write before it tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How long it waits for room in a pipe.
const PIPE_INTERVAL: Duration = Duration::from_millis(5);

/// What is written, and how much of it may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineWriterOptions {
    /// Of the thread, and in messages.
    pub name: &'static str,
    /// Batches in the queue. A batch is what one thread logged in one turn, at the least one line.
    pub batches_max: usize,
    /// Bytes in the queue.
    pub queued_bytes_max: usize,
    /// How a loss is reported.
    pub losses: Losses,
}

impl LineWriterOptions {
    /// A log of requests or connections: some fifty thousand lines, a tenth of a second at full speed.
    pub const LOG: Self = Self {
        name: "log",
        batches_max: 16 * 1024,
        queued_bytes_max: 8 << 20,
        losses: Losses::Reported,
    };

    /// Messages of a program: what a few seconds of trouble have to say.
    pub const DIAGNOSTICS: Self = Self {
        name: "diagnostics",
        batches_max: 4096,
        queued_bytes_max: 1 << 20,
        losses: Losses::Noted,
    };
}

/// How lost lines are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losses {
    /// By a diagnostic message, once in an interval.
    Reported,
    /// By a line in their place, once there is room again.
    Noted,
}

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, appended to.
    File(PathBuf),
}

impl Target {
    /// `-` is standard output.
    pub fn from_path(path: PathBuf) -> Self {
        if path.as_os_str() == "-" {
            Self::Stdout
        } else {
            Self::File(path)
        }
    }

    fn open(&self) -> io::Result<File> {
        Ok(match self {
            // Not `io::stdout`, whose own buffer would tear lines apart when a write fails.
            Self::Stdout => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            Self::Stderr => File::from(io::stderr().as_fd().try_clone_to_owned()?),
            Self::File(path) => append_to(path)?,
        })
    }

    fn name(&self) -> String {
        match self {
            Self::Stdout => "standard output".to_owned(),
            Self::Stderr => "standard error".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

/// Opens a file, or a named pipe that has a reader: without one it would hold up whoever opens it.
fn append_to(path: &Path) -> io::Result<File> {
    let never_waits = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    let options = options.append(true).create(true).custom_flags(never_waits);
    options
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(code) if code == Errno::NXIO.raw_os_error() => {
                io::Error::new(error.kind(), "it is a named pipe that no program reads")
            }
            _ => error,
        })
}

/// An open target; in tests anything that writes.
trait Output: Write + Send {
    /// Device and inode. `None`: not known.
    fn identity(&self) -> Option<(u64, u64)> {
        None
    }
}

impl Output for File {
    fn identity(&self) -> Option<(u64, u64)> {
        let found = self.metadata().ok()?;
        Some((found.dev(), found.ino()))
    }
}

/// What serving threads and the writer share.
struct Shared {
    options: LineWriterOptions,
    batches: ArrayQueue<Vec<u8>>,
    spares: ArrayQueue<Vec<u8>>,
    queued_bytes: AtomicUsize,
    lines_written: AtomicU64,
    lines_dropped: AtomicU64,
    write_errors: AtomicU64,
    reopen: AtomicBool,
    closing: AtomicBool,
    /// The thread writes no more.
    ended: AtomicBool,
}

/// A log that is being written.
pub struct LineWriter {
    shared: Arc<Shared>,
    writer: Thread,
}

/// The writer's thread, to be waited for at the end. Dropped, it waits for [`DROP_TIMEOUT`] at most.
pub struct Closing {
    log: Arc<LineWriter>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// How long a dropped [`Closing`] waits for the last lines to be written.
pub const DROP_TIMEOUT: Duration = Duration::from_secs(2);

/// The log's own counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCounts {
    /// Lines that were written.
    pub written: u64,
    /// Lines that found no room, or no way into the file.
    pub dropped: u64,
    /// Writes that failed.
    pub errors: u64,
}

impl LineWriter {
    /// Opens the target and starts the thread.
    ///
    /// # Errors
    /// The target cannot be opened, or there is no thread to be had.
    pub fn start(options: LineWriterOptions, target: Target) -> io::Result<(Arc<Self>, Closing)> {
        let out = target.open()?;
        Self::start_with(options, target, Box::new(out))
    }

    fn start_with(
        options: LineWriterOptions,
        target: Target,
        out: Box<dyn Output>,
    ) -> io::Result<(Arc<Self>, Closing)> {
        let shared = Arc::new(Shared {
            options,
            batches: ArrayQueue::new(options.batches_max),
            spares: ArrayQueue::new(SPARES_MAX),
            queued_bytes: AtomicUsize::new(0),
            lines_written: AtomicU64::new(0),
            lines_dropped: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
            reopen: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let (finished, done) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(options.name.into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let mut writer = Writer::new(shared, target, out);
                    // A panic costs the lines at hand and no more: others would never be written.
                    while catch_unwind(AssertUnwindSafe(|| writer.run())).is_err() {
                        writer.recover();
                    }
                    writer.shared.end();
                    let _ = finished.send(()); // no receiver is left if the end was cut short
                }
            })?;
        let log = Arc::new(Self {
            shared,
            writer: thread.thread().clone(),
        });
        let closing = Closing {
            log: Arc::clone(&log),
            done,
            thread: Some(thread),
        };
        Ok((log, closing))
    }

    /// Has the writer open its file again, after what is queued.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        self.writer.unpark();
    }

    /// The counts now.
    pub fn counts(&self) -> LogCounts {
        LogCounts {
            written: self.shared.lines_written.load(Ordering::Relaxed),
            dropped: self.shared.lines_dropped.load(Ordering::Relaxed),
            errors: self.shared.write_errors.load(Ordering::Relaxed),
        }
    }
}

impl AccessSink for LineWriter {
    fn offer(&self, lines: &mut Vec<u8>) {
        if lines.is_empty() {
            return;
        }
        let shared = &self.shared;
        if shared.ended.load(Ordering::Relaxed) {
            shared.drop_lines(lines);
            return lines.clear();
        }
        let len = lines.len();
        let queued = shared.queued_bytes.fetch_add(len, Ordering::Relaxed);
        if queued + len > shared.options.queued_bytes_max {
            shared.queued_bytes.fetch_sub(len, Ordering::Relaxed);
            shared.drop_lines(lines);
            return lines.clear();
        }
        let batch = std::mem::replace(lines, shared.spares.pop().unwrap_or_default());
        match shared.batches.push(batch) {
            Ok(()) => {
                // Either the thread sees the batch when it ends, or its end is seen here.
                fence(Ordering::SeqCst);
                match shared.ended.load(Ordering::Relaxed) {
                    false => self.writer.unpark(), // a system call only if it sleeps
                    true => shared.drop_queue(),
                }
            }
            Err(mut batch) => {
                shared.queued_bytes.fetch_sub(len, Ordering::Relaxed);
                shared.drop_lines(&batch);
                batch.clear();
                *lines = batch;
            }
        }
    }
}

impl Shared {
    fn has_news(&self) -> bool {
        self.closing.load(Ordering::Acquire)
            || self.reopen.load(Ordering::Acquire)
            || !self.batches.is_empty()
    }

    fn drop_lines(&self, lines: &[u8]) {
        self.lines_dropped
            .fetch_add(count_lines(lines), Ordering::Relaxed);
    }

    /// Nothing is written from now on.
    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.drop_queue();
    }

    fn drop_queue(&self) {
        while let Some(batch) = self.batches.pop() {
            self.queued_bytes.fetch_sub(batch.len(), Ordering::Relaxed);
            self.drop_lines(&batch);
        }
    }
}

impl Closing {
    /// Has everything written that is queued, for `timeout` at most. Returns the counts.
    pub fn finish(mut self, timeout: Duration) -> LogCounts {
        self.write_rest(timeout);
        self.log.counts()
    }

    fn write_rest(&mut self, timeout: Duration) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.log.shared.closing.store(true, Ordering::Release);
        self.log.writer.unpark();
        if self.done.recv_timeout(timeout).is_ok() {
            let _ = thread.join(); // it has sent its last message
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.write_rest(DROP_TIMEOUT);
    }
}

/// The thread's side.
struct Writer {
    shared: Arc<Shared>,
    target: Target,
    out: Box<dyn Output>,
    /// Whole lines to be written, but for the front, which may be the rest of a line begun.
    pending: Vec<u8>,
    /// Whether what was written last ended in the middle of a line.
    line_begun: bool,
    last_report: Option<Instant>,
    /// The note at the front of what is pending that lines were lost.
    note_bytes: usize,
    /// Lost lines of which a note was written.
    losses_noted: u64,
    /// Those that the one at the front covers.
    losses_in_note: u64,
}

impl Writer {
    fn new(shared: Arc<Shared>, target: Target, out: Box<dyn Output>) -> Self {
        Self {
            shared,
            target,
            out,
            pending: Vec::with_capacity(WRITE_BYTES),
            line_begun: false,
            last_report: None,
            note_bytes: 0,
            losses_noted: 0,
            losses_in_note: 0,
        }
    }

    fn run(&mut self) {
        loop {
            // Asked before the queue is emptied: what is offered later finds us awake.
            let closing = self.shared.closing.load(Ordering::Acquire);
            let reopening = self.shared.reopen.swap(false, Ordering::AcqRel);
            let mut is_well = true;
            // As often as takes what is queued now: where lines come as fast as they are written, the queue
            // is never empty.
            let mut writes_left = self.shared.options.queued_bytes_max / WRITE_BYTES + 1;
            while is_well && writes_left > 0 && self.gather() {
                is_well = self.write();
                writes_left -= 1;
            }
            if reopening {
                self.open_again();
            }
            if closing {
                while self.gather() {
                    self.give_up_rest(); // only after a failure is there any
                }
                return;
            }
            if !is_well {
                self.rest();
            } else if !self.shared.has_news() {
                // The wake-up of whatever came before the question may have been used up by a
                // write that waited; that of what comes after it cannot have been.
                std::thread::park();
            }
        }
    }

    /// Takes batches from the queue. Returns whether there is anything to write.
    fn gather(&mut self) -> bool {
        if self.pending.is_empty() && !self.shared.batches.is_empty() {
            self.note_losses();
        }
        while self.pending.len() < WRITE_BYTES
            && let Some(mut batch) = self.shared.batches.pop()
        {
            self.shared
                .queued_bytes
                .fetch_sub(batch.len(), Ordering::Relaxed);
            self.pending.extend_from_slice(&batch);
            if batch.capacity() <= SPARE_BYTES_MAX {
                batch.clear();
                let _ = self.shared.spares.push(batch); // enough spares: this one is freed
            }
        }
        !self.pending.is_empty()
    }

    /// Says that lines were lost, in their place.
    fn note_losses(&mut self) {
        let Shared { options, .. } = *self.shared;
        let dropped = self.shared.lines_dropped.load(Ordering::Relaxed);
        if options.losses == Losses::Noted && dropped > self.losses_noted {
            let lost = dropped - self.losses_noted;
            let _ = writeln!(
                self.pending,
                "loadline: {lost} lines of {} were lost here",
                options.name
            );
            self.note_bytes = self.pending.len();
            self.losses_in_note = dropped;
        }
    }

    /// Writes what is pending. After a failure only the rest of a line begun stays, so that lines
    /// are whole once writing works again; the others are dropped and counted.
    fn write(&mut self) -> bool {
        let mut written = 0;
        let failure = loop {
            if written == self.pending.len() {
                self.pending.clear();
                return true;
            }
            match self.out.write(&self.pending[written..]) {
                Ok(0) => break io::ErrorKind::WriteZero.into(),
                Ok(n) => {
                    let lines = count_lines(&self.pending[written..written + n]);
                    self.shared
                        .lines_written
                        .fetch_add(lines, Ordering::Relaxed);
                    written += n;
                    self.note_written(written);
                    self.line_begun = self.pending[written - 1] != b'\n';
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Standard output may be a pipe that its other owner made non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(PIPE_INTERVAL);
                }
                Err(error) => break error,
            }
        };
        let newline = self.pending[written..]
            .iter()
            .position(|byte| *byte == b'\n');
        let rest_end = match newline {
            Some(newline) if self.line_begun => written + newline + 1,
            _ => written,
        };
        // A note that was not written is no line that was lost.
        let lost_from = rest_end.max(self.note_bytes);
        self.shared.drop_lines(&self.pending[lost_from..]);
        if self.line_begun && written < self.note_bytes {
            self.losses_noted = self.losses_in_note; // its rest is written before any other line
        }
        self.note_bytes = 0;
        self.pending.truncate(rest_end);
        self.pending.drain(..written);
        self.report(&failure);
        false
    }

    fn note_written(&mut self, written: usize) {
        if self.note_bytes > 0 && written >= self.note_bytes {
            self.note_bytes = 0;
            self.losses_noted = self.losses_in_note;
        }
    }

    /// Goes on after a panic.
    fn recover(&mut self) {
        self.shared.write_errors.fetch_add(1, Ordering::Relaxed);
        self.give_up_rest();
        self.rest();
    }

    /// Waits before the next attempt, though lines come meanwhile, but not once the log is closing.
    fn rest(&self) {
        let end = Instant::now() + RETRY_INTERVAL;
        while !self.shared.closing.load(Ordering::Acquire) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::park_timeout(left);
        }
    }

    fn report(&mut self, failure: &io::Error) {
        self.shared.write_errors.fetch_add(1, Ordering::Relaxed);
        let is_recent = |at: Instant| at.elapsed() < REPORT_INTERVAL;
        if self.shared.options.losses == Losses::Noted || self.last_report.is_some_and(is_recent) {
            return;
        }
        self.last_report = Some(Instant::now());
        let dropped = self.shared.lines_dropped.load(Ordering::Relaxed);
        tracing::error!(
            "the {} {} cannot be written: {failure}; {dropped} lines dropped so far",
            self.shared.options.name,
            self.target.name()
        );
    }

    /// Opens the target anew, for a file that was moved away; keeps the old one if that fails.
    fn open_again(&mut self) {
        let name = self.shared.options.name;
        match self.target.open() {
            Ok(out) => {
                let identity = out.identity();
                let is_other = identity.is_none() || identity != self.out.identity();
                self.out = Box::new(out);
                if is_other {
                    self.give_up_rest(); // the rest of a line whose beginning is elsewhere
                    self.line_begun = false;
                }
                self.last_report = None;
                tracing::info!("the {name} {} was opened again", self.target.name());
            }
            Err(error) => tracing::error!(
                "the {name} {} cannot be opened again: {error}; writing to the old one",
                self.target.name()
            ),
        }
    }

    fn give_up_rest(&mut self) {
        self.shared.drop_lines(&self.pending);
        self.pending.clear();
        self.note_bytes = 0;
    }
}

fn count_lines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests;
