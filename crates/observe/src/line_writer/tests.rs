//! What reaches a file that fills up, hangs or is gone, and what is counted as lost.

use super::*;
use std::sync::mpsc::channel;
use std::sync::{Mutex, OnceLock};

/// What a file does with each write.
struct Script<F>(F);

impl<F: FnMut(&[u8]) -> io::Result<usize>> Write for Script<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: FnMut(&[u8]) -> io::Result<usize> + Send> Output for Script<F> {}

/// A file on a disk with room for so many bytes.
struct Filling {
    file: File,
    bytes_left: usize,
}

impl Write for Filling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes_left == 0 {
            return full();
        }
        let written = self
            .file
            .write(&bytes[..bytes.len().min(self.bytes_left)])?;
        self.bytes_left -= written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Filling {
    fn identity(&self) -> Option<(u64, u64)> {
        self.file.identity()
    }
}

type Kept = Arc<Mutex<Vec<u8>>>;

/// A log of which each write is this.
fn log_by(
    write: impl FnMut(&[u8]) -> io::Result<usize> + Send + 'static,
) -> (Arc<LineWriter>, Closing) {
    let target = Target::File("/nowhere/at/all".into());
    LineWriter::start_with(LineWriterOptions::LOG, target, Box::new(Script(write))).unwrap()
}

/// A log on a disk: each entry is how many bytes the next write takes; then all.
fn log_on(
    options: LineWriterOptions,
    mut script: Vec<io::Result<usize>>,
) -> (Arc<LineWriter>, Closing, Kept, Receiver<()>) {
    let kept = Kept::default();
    let keep = Arc::clone(&kept);
    let (failed, failures) = channel();
    let disk = Script(move |bytes: &[u8]| {
        let taken = match script.is_empty() {
            true => Ok(bytes.len()),
            false => script.remove(0).map(|n| n.min(bytes.len())),
        };
        match &taken {
            Ok(n) => keep.lock().unwrap().extend_from_slice(&bytes[..*n]),
            Err(_) => failed.send(()).unwrap(),
        }
        taken
    });
    let target = Target::File("/nowhere/at/all".into());
    let (log, closing) = LineWriter::start_with(options, target, Box::new(disk)).unwrap();
    (log, closing, kept, failures)
}

/// What becomes of lines, when each but the last one meets a failure: the counts, and what is kept.
fn kept_of(
    options: LineWriterOptions,
    script: Vec<io::Result<usize>>,
    lines: &[&str],
) -> (LogCounts, String) {
    let (log, closing, kept, failures) = log_on(options, script);
    let (last, failing) = lines.split_last().unwrap();
    for lines in failing {
        log.offer(&mut lines.as_bytes().to_vec());
        failures.recv_timeout(GRACE).unwrap();
    }
    log.offer(&mut last.as_bytes().to_vec());
    let counts = closing.finish(GRACE);
    let kept = kept.lock().unwrap().clone();
    (counts, String::from_utf8(kept).unwrap())
}

fn full() -> io::Result<usize> {
    Err(io::ErrorKind::StorageFull.into())
}

fn counted(written: u64, dropped: u64, errors: u64) -> LogCounts {
    LogCounts {
        written,
        dropped,
        errors,
    }
}

const GRACE: Duration = Duration::from_secs(20);

fn await_counts(log: &LineWriter, are_wished: impl Fn(LogCounts) -> bool) {
    let began = Instant::now();
    while !are_wished(log.counts()) {
        assert!(began.elapsed() < GRACE, "{:?}", log.counts());
        std::thread::yield_now();
    }
}

#[test]
fn every_line_arrives_once_from_many_threads() {
    let (log, closing, kept, _failures) =
        log_on(LineWriterOptions::LOG, vec![Ok(3), Ok(1), Ok(70)]);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let log = &log;
            scope.spawn(move || {
                let mut lines = Vec::new();
                for number in 0..500 {
                    lines.extend_from_slice(format!("{thread} {number}\n").as_bytes());
                    if number % 3 == 0 {
                        log.offer(&mut lines);
                        assert!(lines.is_empty());
                    }
                }
                log.offer(&mut lines);
            });
        }
    });
    let counts = closing.finish(GRACE);
    assert_eq!(counts, counted(2000, 0, 0));
    let kept = String::from_utf8(kept.lock().unwrap().clone()).unwrap();
    for thread in 0..4 {
        let own = kept
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("{thread} ")));
        let numbers: Vec<usize> = own.map(|number| number.parse().unwrap()).collect();
        assert_eq!(numbers, (0..500).collect::<Vec<_>>());
    }
}

#[test]
fn a_disk_that_fills_up_leaves_whole_lines() {
    let lines = ["first\nsecond\nthird\n", "later\n"];
    let (counts, kept) = kept_of(LineWriterOptions::LOG, vec![Ok(8), full()], &lines);
    // "third" was dropped; the rest of "second" was written as soon as there was room.
    assert_eq!(counts, counted(3, 1, 1));
    assert_eq!(kept, "first\nsecond\nlater\n");
}

#[test]
fn what_cannot_be_written_is_counted() {
    let script = vec![full(), full()];
    let (counts, kept) = kept_of(LineWriterOptions::LOG, script, &["one\ntwo\n", "three\n"]);
    assert_eq!((counts, kept.as_str()), (counted(0, 3, 2), ""));
}

#[test]
fn lines_that_come_when_the_thread_has_ended_are_counted() {
    let (log, closing, kept, _failures) = log_on(LineWriterOptions::LOG, Vec::new());
    log.offer(&mut b"in time\n".to_vec());
    assert_eq!(closing.finish(GRACE), counted(1, 0, 0));
    let mut lines = b"one\ntwo\n".to_vec();
    log.offer(&mut lines);
    assert!(lines.is_empty());
    log.offer(&mut b"three\n".to_vec());
    assert_eq!(log.counts(), counted(1, 3, 0));
    assert_eq!(*kept.lock().unwrap(), b"in time\n");
}

#[test]
fn lines_for_a_full_disk_hasten_no_attempt() {
    let (log, closing) = log_by(|_| full());
    let began = Instant::now();
    for _ in 0..200 {
        log.offer(&mut b"line\n".to_vec());
        std::thread::sleep(Duration::from_millis(2)); // so that each finds the writer at rest
    }
    let counts = closing.finish(GRACE);
    assert_eq!((counts.written, counts.dropped), (0, 200));
    // The first, one after each interval, and the last one at the end.
    let errors_max = began.elapsed().as_millis() / RETRY_INTERVAL.as_millis() + 2;
    assert!(u128::from(counts.errors) <= errors_max, "{counts:?}");
}

#[test]
fn a_writer_that_hangs_costs_lines_and_not_the_callers() {
    let (release, held) = sync_channel::<()>(0);
    let kept = Kept::default();
    let keep = Arc::clone(&kept);
    let (log, closing) = log_by(move |bytes| {
        let _ = held.recv();
        keep.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    });
    let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
    for _ in 0..10_000 {
        log.offer(&mut line.clone());
    }
    let dropped = log.counts().dropped;
    let room = (LineWriterOptions::LOG.queued_bytes_max / 1024) as u64;
    // What the writer had taken before it hung is beside the queue.
    let taken_most = (WRITE_BYTES / 1024) as u64 + 1;
    assert!(
        dropped <= 10_000 - room && dropped >= 10_000 - room - taken_most,
        "{dropped}"
    );
    drop(release);
    let counts = closing.finish(GRACE);
    assert_eq!(counts.written + counts.dropped, 10_000);
    assert_eq!(count_lines(&kept.lock().unwrap()), counts.written);
}

#[test]
fn a_named_pipe_without_a_reader_is_refused_at_once_and_one_with_a_reader_gets_every_line() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let target = Target::File(path.clone());
    let Err(refused) = LineWriter::start(LineWriterOptions::LOG, target.clone()) else {
        panic!("nobody reads it");
    };
    assert!(
        refused.to_string().contains("no program reads"),
        "{refused}"
    );
    let mut options = OpenOptions::new();
    let options = options
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut reader = options.open(&path).unwrap();
    let (log, closing) = LineWriter::start(LineWriterOptions::LOG, target).unwrap();
    // More than a pipe holds: the writer waits for its reader.
    let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
    for _ in 0..1000 {
        log.offer(&mut line.clone());
    }
    let writer = std::thread::spawn(move || closing.finish(GRACE));
    let (mut received, mut buffer) = (0, vec![0; 64 << 10]);
    while received < 1000 * line.len() {
        match io::Read::read(&mut reader, &mut buffer) {
            Ok(count) => received += count,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
        }
    }
    assert_eq!(writer.join().unwrap(), counted(1000, 0, 0));
}

#[test]
fn a_file_is_opened_again_though_lines_come_as_fast_as_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log_of_disk: Arc<OnceLock<Arc<LineWriter>>> = Arc::default();
    let log_of_test = Arc::clone(&log_of_disk);
    let disk = Script(move |bytes: &[u8]| {
        if let Some(log) = log_of_disk.get() {
            log.offer(&mut b"another\n".to_vec());
        }
        Ok(bytes.len())
    });
    let target = Target::File(path.clone());
    let (log, closing) =
        LineWriter::start_with(LineWriterOptions::LOG, target, Box::new(disk)).unwrap();
    let _ = log_of_test.set(Arc::clone(&log));
    log.offer(&mut b"first\n".to_vec());
    log.reopen();
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < GRACE, "it writes on to the old one");
        std::thread::yield_now();
    }
    assert_eq!(closing.finish(GRACE).dropped, 0);
}

#[test]
fn a_line_begun_is_finished_if_the_file_that_is_opened_again_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for (name, is_moved) in [("stays.log", false), ("moves.log", true)] {
        let path = folder.path().join(name);
        let disk = Filling {
            file: append_to(&path).unwrap(),
            bytes_left: 8,
        };
        let target = Target::File(path.clone());
        let (log, closing) =
            LineWriter::start_with(LineWriterOptions::LOG, target, Box::new(disk)).unwrap();
        log.offer(&mut b"first\nsecond\n".to_vec());
        await_counts(&log, |counts| counts.errors > 0);
        if is_moved {
            std::fs::rename(&path, folder.path().join("old.log")).unwrap();
        }
        log.reopen();
        await_counts(&log, |counts| counts.written + counts.dropped == 2);
        log.offer(&mut b"third\n".to_vec());
        let counts = closing.finish(GRACE);
        let (expected, dropped) = match is_moved {
            false => ("first\nsecond\nthird\n", 0),
            true => ("third\n", 1),
        };
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(counts.dropped, dropped, "{name}");
    }
}

#[test]
fn a_panic_costs_the_lines_at_hand_and_no_more() {
    let kept = Kept::default();
    let keep = Arc::clone(&kept);
    let (panics, panicked) = channel();
    let mut is_first = true;
    let (log, closing) = log_by(move |bytes| {
        if std::mem::take(&mut is_first) {
            panics.send(()).unwrap();
            panic!("on purpose");
        }
        keep.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    });
    log.offer(&mut b"one\n".to_vec());
    panicked.recv_timeout(GRACE).unwrap();
    log.offer(&mut b"two\n".to_vec());
    let counts = closing.finish(GRACE);
    assert_eq!(counts, counted(1, 1, 1));
    assert_eq!(*kept.lock().unwrap(), b"two\n");
}

/// No other message would say that diagnostics were lost.
#[test]
fn diagnostics_that_were_lost_leave_a_note_in_their_place() {
    let script = vec![full(), full(), Ok(4)];
    let lines = ["one\ntwo\n", "three\n", "four\n"];
    let (counts, kept) = kept_of(LineWriterOptions::DIAGNOSTICS, script, &lines);
    assert_eq!(
        kept,
        "loadline: 3 lines of diagnostics were lost here\nfour\n"
    );
    assert_eq!((counts.dropped, counts.errors), (3, 2));
}

#[test]
fn a_note_that_was_half_written_is_finished_and_not_repeated() {
    let script = vec![full(), full(), Ok(4), full()];
    let (log, closing, kept, failures) = log_on(LineWriterOptions::DIAGNOSTICS, script);
    for text in ["one\ntwo\n", "three\n", "four\n"] {
        log.offer(&mut text.as_bytes().to_vec());
        failures.recv_timeout(GRACE).unwrap();
    }
    await_counts(&log, |counts| counts.written == 1); // the note
    log.offer(&mut b"five\n".to_vec());
    let counts = closing.finish(GRACE);
    let kept = String::from_utf8(kept.lock().unwrap().clone()).unwrap();
    assert_eq!(
        kept,
        "loadline: 3 lines of diagnostics were lost here\n\
         loadline: 1 lines of diagnostics were lost here\nfive\n"
    );
    assert_eq!((counts.dropped, counts.errors), (4, 3));
}
