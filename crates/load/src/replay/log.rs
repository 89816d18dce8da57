//! A log as a whole: each different request once, the lines as indexes, and when they were.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, Read};

use loadline_proto::Method;
use thiserror::Error;

use super::line;
use super::logged::LogLine;

/// Lines that are replayed at most: 4 bytes for each, and 8 more with their times. While these are
/// put in order, ten million lines take 350 MB.
pub const LINES_MAX: usize = 10_000_000;
/// Different requests at most, each ready to be sent: some 400 bytes for each, and its target.
pub const DISTINCT_MAX: usize = 500_000;
/// Bytes of the targets of all different requests.
pub const TARGETS_BYTES_MAX: usize = 128 << 20;
/// A longer line is not understood.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// A file with this number of bytes without a line end is no log.
const GAP_BYTES_MAX: u64 = 16 << 20;

/// What is wanted of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// All methods, not only GET and HEAD: requests that change something, and without their bodies,
    /// which no log has.
    pub all_methods: bool,
    /// Lines have to say when they were.
    pub times: bool,
    /// At most this number of lines.
    pub lines_max: usize,
}

/// What a log contains.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Each different request once, in the order of first appearance.
    pub requests: Vec<(Method, Box<[u8]>)>,
    /// Indexes into `requests`, one for each line.
    pub sequence: Vec<u32>,
    /// When each line of `sequence` was, in nanoseconds since 1970, if that was wanted.
    pub times_ns: Vec<i64>,
    /// Whether all times are in whole seconds.
    pub is_whole_seconds: bool,
    /// How it was read.
    pub report: LogReport,
}

/// How a log was read: what is replayed and what is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// Lines read.
    pub lines: u64,
    /// Lines that are replayed.
    pub replayed: u64,
    /// Different requests in them.
    pub distinct: u64,
    /// Lines left out for their method.
    pub other_methods: u64,
    /// Lines left out because they contain no request, or (if times are wanted) of no time.
    pub unparsable: u64,
    /// The number of the first of these, from 1, and what is the matter with it.
    pub first_unparsable: Option<(u64, &'static str)>,
    /// The bound at which reading ended before the end of the log.
    pub cut: Option<&'static str>,
}

/// Why a log cannot be replayed.
#[derive(Debug, Error)]
pub enum LogError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is packed: the program that unpacks it.
    #[error("it is compressed: unpack it first, with {0}")]
    Compressed(&'static str),
    /// Nothing is in it.
    #[error("it is empty")]
    Empty,
    /// All requests in it have methods that are not wanted.
    #[error("no GET or HEAD in it")]
    OtherMethods,
    /// No line is a request that is wanted.
    #[error(
        "none of {lines} lines can be replayed; line {number}: {reason} \
         (wanted: the common, combined or a JSON form)"
    )]
    NoRequest {
        /// Lines in it.
        lines: u64,
        /// The first that was not understood.
        number: u64,
        /// What is the matter with that.
        reason: &'static str,
    },
    /// Its times are further apart than the longest run.
    #[error("its times span {days} days, {scaled_days} scaled by {scale}: at most 100")]
    TooLong {
        /// Days of the log.
        days: u64,
        /// Days of the run.
        scaled_days: u64,
        /// By how much time is multiplied.
        scale: f64,
    },
}

impl Log {
    /// Reads a log to its end or to the first bound.
    ///
    /// # Errors
    /// It cannot be read, or no line of it can be replayed; one line says why.
    pub fn read(mut from: impl BufRead, wanted: Wanted) -> Result<Self, LogError> {
        if let Some(unpack) = compression(from.fill_buf()?) {
            return Err(LogError::Compressed(unpack));
        }
        let mut reading = Reading {
            wanted,
            log: Self {
                is_whole_seconds: true,
                ..Self::default()
            },
            indexes: HashMap::new(),
            targets_bytes: 0,
            key: Vec::new(),
        };
        let mut bytes = Vec::new();
        loop {
            match next_line(&mut from, &mut bytes)? {
                Line::End => break,
                Line::Whole => reading.take(&bytes),
                Line::TooLong => reading.refuse("it is longer than 64 KiB"),
            }
            if reading.log.report.cut.is_some() {
                break;
            }
        }
        reading.finish()
    }
}

/// A log while it is read.
struct Reading {
    wanted: Wanted,
    log: Log,
    /// From method and target to the index among the requests.
    indexes: HashMap<Box<[u8]>, u32>,
    targets_bytes: usize,
    /// Room for a key.
    key: Vec<u8>,
}

impl Reading {
    fn take(&mut self, bytes: &[u8]) {
        if self.log.sequence.len() >= self.wanted.lines_max {
            self.log.report.cut = Some("the most lines that are replayed");
            return;
        }
        let line = match line::parse(bytes) {
            Ok(line) => line,
            Err(reason) => return self.refuse(reason),
        };
        let method = match line.method {
            Some(method @ (Method::Get | Method::Head)) => method,
            Some(method) if self.wanted.all_methods && method != Method::Connect => method,
            _ => {
                self.log.report.lines += 1;
                self.log.report.other_methods += 1;
                return;
            }
        };
        let time = line.time.filter(|_| self.wanted.times);
        if self.wanted.times && time.is_none() {
            return self.refuse("it has no time");
        }
        let Some(index) = self.index(method, &line) else {
            return;
        };
        if let Some(time) = time {
            self.log.times_ns.push(time.unix_ns);
            self.log.is_whole_seconds &= time.is_whole_second;
        }
        self.log.report.lines += 1;
        self.log.sequence.push(index);
    }

    fn refuse(&mut self, reason: &'static str) {
        let report = &mut self.log.report;
        report.lines += 1;
        report.unparsable += 1;
        let line = report.lines;
        report.first_unparsable.get_or_insert((line, reason));
    }

    /// The index of a request; a new one is added. `None`: there are too many.
    fn index(&mut self, method: Method, line: &LogLine<'_>) -> Option<u32> {
        self.key.clear();
        self.key.extend_from_slice(method.as_str().as_bytes());
        self.key.push(b' ');
        self.key.extend_from_slice(&line.target);
        if let Some(index) = self.indexes.get(self.key.as_slice()) {
            return Some(*index);
        }
        let requests = &mut self.log.requests;
        self.targets_bytes += line.target.len();
        if requests.len() == DISTINCT_MAX {
            self.log.report.cut = Some("the most different requests");
        } else if self.targets_bytes > TARGETS_BYTES_MAX {
            self.log.report.cut = Some("the most bytes of different targets");
        }
        if self.log.report.cut.is_some() {
            return None;
        }
        let index = requests.len() as u32;
        requests.push((method, Box::from(&*line.target)));
        self.indexes.insert(Box::from(self.key.as_slice()), index);
        Some(index)
    }

    fn finish(mut self) -> Result<Log, LogError> {
        let report = &mut self.log.report;
        report.replayed = self.log.sequence.len() as u64;
        report.distinct = self.log.requests.len() as u64;
        if report.replayed > 0 {
            return Ok(self.log);
        }
        Err(match (report.lines, report.first_unparsable) {
            (0, _) => LogError::Empty,
            (_, None) => LogError::OtherMethods,
            (lines, Some((number, reason))) => LogError::NoRequest {
                lines,
                number,
                reason,
            },
        })
    }
}

impl fmt::Display for LogReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (replayed, lines, distinct) = (self.replayed, self.lines, self.distinct);
        write!(
            f,
            "{replayed} of {lines} lines are replayed, {distinct} different requests"
        )?;
        let others = self.other_methods;
        if others > 0 {
            write!(f, "; {others} with other methods are left out")?;
        }
        if let Some((line, reason)) = self.first_unparsable {
            let count = self.unparsable;
            write!(
                f,
                "; {count} are not understood, the first is line {line}: {reason}"
            )?;
        }
        if let Some(bound) = self.cut {
            write!(f, "; what follows is left out: {bound} is reached")?;
        }
        Ok(())
    }
}

enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads the next line into `bytes`, without its end; of one that is too long, only the begin.
fn next_line(from: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<Line> {
    bytes.clear();
    let room = LINE_BYTES_MAX as u64 + 1;
    if from.by_ref().take(room).read_until(b'\n', bytes)? == 0 {
        return Ok(Line::End);
    }
    if bytes.pop_if(|byte| *byte == b'\n').is_some() {
        bytes.pop_if(|byte| *byte == b'\r');
        return Ok(Line::Whole);
    }
    if bytes.len() <= LINE_BYTES_MAX {
        return Ok(Line::Whole); // the last one, without a line end
    }
    let passed = from.take(GAP_BYTES_MAX).skip_until(b'\n')?;
    if passed as u64 == GAP_BYTES_MAX {
        let reason = "it is no log: a line of it does not end";
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(Line::TooLong)
}

/// The program that unpacks what begins like this.
fn compression(begin: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 4] = [
        (b"\x1f\x8b", "zcat"),
        (b"\x28\xb5\x2f\xfd", "zstdcat"),
        (b"\xfd7zXZ", "xzcat"),
        (b"BZh", "bzcat"),
    ];
    let found = known.iter().find(|(magic, _)| begin.starts_with(magic));
    found.map(|(_, program)| *program)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted {
        all_methods: false,
        times: true,
        lines_max: LINES_MAX,
    };

    fn common(request: &str, second: u32) -> String {
        format!("h - - [10/Oct/2000:13:55:{second:02} +0000] \"{request} HTTP/1.1\" 200 5\n")
    }

    fn read(text: &str, wanted: Wanted) -> Result<Log, LogError> {
        Log::read(text.as_bytes(), wanted)
    }

    #[test]
    fn each_different_request_once_and_the_lines_in_order() {
        let requests = [
            "GET /a", "GET /b", "HEAD /a", "GET /a", "POST /p", "BREW /t",
        ];
        let text: String = requests.iter().map(|request| common(request, 7)).collect();
        let text = format!("garbage\r\n{text}\n{{\"request\":\"GET /b HTTP/1.1\"}}");
        let log = read(&text, WANTED).unwrap();
        assert_eq!(log.sequence, [0, 1, 2, 0]);
        assert_eq!(log.requests[2], (Method::Head, Box::from(&b"/a"[..])));
        assert_eq!(log.times_ns.len(), 4);
        assert_eq!(log.report.first_unparsable, Some((1, "it has no [time]")));
        assert_eq!(
            log.report.to_string(),
            "4 of 9 lines are replayed, 3 different requests; 2 with other methods are left out; \
             3 are not understood, the first is line 1: it has no [time]"
        );
        let wanted = Wanted {
            all_methods: true,
            times: false,
            ..WANTED
        };
        let log = read(&text, wanted).unwrap();
        assert_eq!(log.sequence, [0, 1, 2, 0, 3, 1]);
        assert!(log.times_ns.is_empty());
    }

    #[test]
    fn a_request_of_no_time_is_not_among_those_replayed() {
        let text = format!("{}{{\"request\":\"GET /b HTTP/1.1\"}}", common("GET /a", 1));
        let log = read(&text, WANTED).unwrap();
        assert_eq!((log.report.unparsable, log.report.distinct), (1, 1));
        assert_eq!(log.requests.len(), 1);
    }

    #[test]
    fn bounds_cut_a_log_and_say_so() {
        let text: String = (0..10).map(|second| common("GET /", second)).collect();
        let cut = |lines_max| {
            let wanted = Wanted {
                lines_max,
                ..WANTED
            };
            read(&text, wanted).unwrap().report
        };
        let report = cut(4);
        assert_eq!((report.lines, report.replayed), (4, 4));
        let end = "the most lines that are replayed is reached";
        assert!(report.to_string().ends_with(end));
        assert_eq!(cut(10).cut, None);
        let long = format!("{}\n{}", "x".repeat(LINE_BYTES_MAX + 1), common("GET /", 1));
        let log = read(&long, WANTED).unwrap();
        assert_eq!(
            log.report.first_unparsable,
            Some((1, "it is longer than 64 KiB"))
        );
        assert_eq!(log.sequence.len(), 1);
        let endless = Log::read(io::BufReader::new(io::repeat(0)), WANTED);
        assert!(endless.unwrap_err().to_string().contains("does not end"));
    }

    #[test]
    fn a_log_without_a_request_is_refused() {
        let refusal = |text: &str| read(text, WANTED).unwrap_err().to_string();
        assert_eq!(refusal(""), "it is empty");
        assert_eq!(refusal(&common("POST /", 1)), "no GET or HEAD in it");
        assert!(
            refusal("\nx\n").starts_with("none of 2 lines can be replayed; line 1: it is empty")
        );
        assert!(refusal("\x1f\u{8b}").starts_with("none of"));
        let gzip = Log::read(&b"\x1f\x8b\x08"[..], WANTED).unwrap_err();
        assert_eq!(
            gzip.to_string(),
            "it is compressed: unpack it first, with zcat"
        );
    }
}
