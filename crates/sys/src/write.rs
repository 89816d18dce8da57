//! Writing a batch of output to a socket: memory by `send`, files by `sendfile`.
//!
//! A file that changes while it is on its way breaks the answer off: it is compared with what was
//! opened before each chunk, and its last bytes go out only after a last comparison. What that
//! cannot see is a change in place, after that moment, of pages that wait in the socket's buffer
//! (`sendfile` queues the pages themselves), and writes through a mapping, whose time stamps come
//! late. Replacing a file by renaming, or by cutting it to nothing and writing anew, is safe.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use loadline_base::{Chunk, OpenFile, Transmit};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

use crate::file::{self, Warm};

/// Bytes of a file that one `sendfile` moves: large enough that the checks before each chunk
/// (under 1 us) vanish beside it, small enough that a change is seen soon.
pub const FILE_CHUNK_BYTES: u64 = 256 << 10;

/// The end of a file goes through memory: it is read, then the file is compared with what was
/// opened, and only then it is sent. So nothing written before that moment can complete an answer.
/// 16 KiB: what fits on the stack and what small files have in all.
const FILE_TAIL_BYTES: usize = 16 << 10;

/// Pieces of memory that go out in one call.
const SLICES_MAX: usize = 32;

/// Whether to look if a file is in memory before sending from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// Look, and stop with `Cold` where sending would wait for a disk.
    Probe,
    /// Send, and wait if need be: on threads that may, or for what was just read ahead.
    Trust,
}

/// How far a batch got.
#[derive(Debug)]
pub enum Progress {
    /// All of it is in the socket.
    Done,
    /// The socket is full: go on when it is writable.
    Blocked,
    /// The budget is used up; the socket may have room, so no event will come.
    Budget,
    /// The next range of a file is not in memory: have it read ahead, then go on with
    /// `Files::Trust` and a budget of `len`.
    Cold {
        /// The file.
        file: Arc<OpenFile>,
        /// First byte to be read.
        offset: u64,
        /// How many.
        len: u64,
    },
}

/// What one call of `write` did.
#[derive(Debug)]
pub struct Written {
    /// Bytes that left.
    pub bytes: u64,
    /// Why it ended.
    pub progress: Progress,
}

/// Why a batch cannot be completed.
#[derive(Debug)]
pub enum WriteError {
    /// The connection failed.
    Peer(io::Error),
    /// The file was changed or cut, or cannot be read: the answer must not complete.
    File(io::Error),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(error) => write!(f, "sending to a client: {error}"),
            Self::File(error) => write!(f, "reading a file to send: {error}"),
        }
    }
}

impl std::error::Error for WriteError {}

/// Writes as much of `transmit` as the socket takes, up to about `budget` bytes; never waits for
/// the socket.
///
/// # Errors
/// The connection failed, or a file is not what was opened any more.
#[inline]
pub fn write(
    socket: BorrowedFd<'_>,
    transmit: &mut Transmit,
    budget: u64,
    files: Files,
) -> Result<Written, WriteError> {
    let mut bytes = 0;
    loop {
        let step = match transmit.front() {
            None => Step::Ended(Progress::Done),
            Some(Chunk::Memory(memory)) => send_memory(socket, transmit, memory)?,
            Some(_) if bytes >= budget => Step::Ended(Progress::Budget),
            Some(Chunk::File { file, offset, len }) => {
                let most = (budget - bytes).min(FILE_CHUNK_BYTES);
                send_file(socket, file, offset, len, most, files)?
            }
        };
        let progress = match step {
            Step::Moved(count) => {
                bytes += count;
                transmit.advance(count);
                continue;
            }
            Step::Filled(count) => {
                bytes += count;
                transmit.advance(count);
                Progress::Blocked
            }
            Step::Ended(progress) => progress,
        };
        return Ok(Written { bytes, progress });
    }
}

enum Step {
    /// So much left, and there may be room for more.
    Moved(u64),
    /// So much left, and the socket is full.
    Filled(u64),
    /// Nothing left.
    Ended(Progress),
}

#[inline]
fn send_memory(
    socket: BorrowedFd<'_>,
    transmit: &Transmit,
    front: &[u8],
) -> Result<Step, WriteError> {
    if transmit.is_last_piece() {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        return step(front.len(), retry(|| send(socket, front, flags)));
    }
    send_pieces(socket, transmit)
}

/// Apart from what small answers need: its table of slices costs more than the rest of it.
#[inline(never)]
fn send_pieces(socket: BorrowedFd<'_>, transmit: &Transmit) -> Result<Step, WriteError> {
    let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, transmit.memory_then_file());
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let count = transmit.slices(&mut slices);
    let slices = &slices[..count];
    let asked = slices.iter().map(|slice| slice.len()).sum();
    let mut none = SendAncillaryBuffer::default();
    step(asked, retry(|| sendmsg(socket, slices, &mut none, flags)))
}

fn step(asked: usize, result: rustix::io::Result<usize>) -> Result<Step, WriteError> {
    match result {
        Ok(sent) if sent < asked => Ok(Step::Filled(sent as u64)),
        Ok(sent) => Ok(Step::Moved(sent as u64)),
        Err(Errno::AGAIN) => Ok(Step::Ended(Progress::Blocked)),
        Err(error) => Err(WriteError::Peer(error.into())),
    }
}

/// One chunk of a file, at most `most` bytes.
fn send_file(
    socket: BorrowedFd<'_>,
    file: &Arc<OpenFile>,
    offset: u64,
    len: u64,
    most: u64,
    files: Files,
) -> Result<Step, WriteError> {
    if len <= FILE_TAIL_BYTES as u64 {
        return send_tail(socket, file, offset, len as usize, files);
    }
    // What remains after this chunk must be a tail of its own, so that it is the tail that decides.
    let chunk = most.min(len - FILE_TAIL_BYTES as u64);
    if files == Files::Probe {
        let mut probe = [0];
        let warm = file::read_warm(&file.fd, &mut probe, offset).map_err(WriteError::File)?;
        if warm == Warm::Cold {
            return Ok(Step::Ended(cold(file, offset, len)));
        }
    }
    check_unchanged(file)?;
    let mut from = offset;
    match retry(|| rustix::fs::sendfile(socket, &file.fd, Some(&mut from), chunk as usize)) {
        Ok(0) => Err(WriteError::File(changed())),
        Ok(sent) => Ok(Step::Moved(sent as u64)),
        Err(Errno::AGAIN) => Ok(Step::Ended(Progress::Blocked)),
        Err(Errno::IO) => Err(WriteError::File(Errno::IO.into())),
        Err(error) => Err(WriteError::Peer(error.into())),
    }
}

fn send_tail(
    socket: BorrowedFd<'_>,
    file: &Arc<OpenFile>,
    offset: u64,
    len: usize,
    files: Files,
) -> Result<Step, WriteError> {
    let mut buffer = [0; FILE_TAIL_BYTES];
    let buffer = &mut buffer[..len];
    let warm = match files {
        Files::Probe => file::read_warm(&file.fd, buffer, offset).map_err(WriteError::File)?,
        Files::Trust => Warm::Unknown,
    };
    let read = match warm {
        Warm::Read(count) if count == len => count,
        // Cold, or warm in part only.
        Warm::Cold | Warm::Read(1..) => {
            return Ok(Step::Ended(cold(file, offset, len as u64)));
        }
        Warm::Read(_) | Warm::Unknown => read_full(file, buffer, offset)?,
    };
    if read < len {
        return Err(WriteError::File(changed()));
    }
    check_unchanged(file)?;
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    step(len, retry(|| send(socket, buffer, flags)))
}

fn read_full(file: &OpenFile, buffer: &mut [u8], offset: u64) -> Result<usize, WriteError> {
    let mut filled = 0;
    while filled < buffer.len() {
        let at = offset + filled as u64;
        match file::read(&file.fd, &mut buffer[filled..], at).map_err(WriteError::File)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

fn cold(file: &Arc<OpenFile>, offset: u64, len: u64) -> Progress {
    Progress::Cold {
        file: Arc::clone(file),
        offset,
        len: len.min(FILE_CHUNK_BYTES),
    }
}

fn check_unchanged(file: &OpenFile) -> Result<(), WriteError> {
    match file::is_unchanged(&file.fd, &file.version) {
        Ok(true) => Ok(()),
        Ok(false) => Err(WriteError::File(changed())),
        Err(error) => Err(WriteError::File(error)),
    }
}

#[cold]
fn changed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the file changed while it was being sent",
    )
}

#[inline]
fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use loadline_base::{Buffer, Segment};
    use rustix::fs::Advice;

    use super::*;

    const LEN: usize = 3 * FILE_CHUNK_BYTES as usize + 12_345;

    fn content() -> Vec<u8> {
        (0..LEN).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    fn opened(file: std::fs::File) -> Arc<OpenFile> {
        let version = file::version(&file).unwrap();
        Arc::new(OpenFile {
            fd: file.into(),
            version,
        })
    }

    fn file_of(content: &[u8]) -> (std::fs::File, Arc<OpenFile>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        let twin = file.try_clone().unwrap();
        (twin, opened(file))
    }

    fn whole(file: &Arc<OpenFile>) -> Segment {
        Segment::File {
            file: Arc::clone(file),
            offset: 0,
            len: file.version.size,
        }
    }

    /// A socket that is not read, with what has been written to it so far readable at the other
    /// end.
    fn pair() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    /// Sends all of it to a reader; returns what arrived and how it ended.
    fn deliver(
        mut transmit: Transmit,
        budget: u64,
        mut between: impl FnMut(u64),
    ) -> (Vec<u8>, Result<(), WriteError>) {
        let (ours, mut theirs) = pair();
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            theirs.read_to_end(&mut bytes).unwrap();
            bytes
        });
        let mut total = 0;
        let result = loop {
            match write(ours.as_fd(), &mut transmit, budget, Files::Trust) {
                Ok(written) => {
                    total += written.bytes;
                    if !transmit.is_done() {
                        between(total);
                    }
                    match written.progress {
                        Progress::Done => break Ok(()),
                        Progress::Blocked => {
                            let stage = crate::Waker::new().unwrap();
                            crate::wait_socket(ours.as_fd(), false, true, stage.as_fd(), None)
                                .unwrap();
                        }
                        Progress::Budget => {}
                        Progress::Cold { .. } => panic!("not asked for"),
                    }
                }
                Err(error) => break Err(error),
            }
        };
        drop(ours);
        (reader.join().unwrap(), result)
    }

    #[test]
    fn memory_and_files_arrive_in_order_whatever_the_budget() {
        let content = content();
        let (_, file) = file_of(&content);
        for budget in [5_000, 20_000, 100_000, u64::MAX] {
            let batch = vec![
                Segment::Buffer(Buffer::from(b"head".to_vec())),
                whole(&file),
                Segment::Buffer(Buffer::from(b"middle".to_vec())),
                Segment::Shared {
                    bytes: Arc::from(&b"0123456789"[..]),
                    start: 2,
                    end: 4,
                },
                Segment::File {
                    file: Arc::clone(&file),
                    offset: 100,
                    len: 50,
                },
            ];
            let mut expected = b"head".to_vec();
            expected.extend_from_slice(&content);
            expected.extend_from_slice(b"middle23");
            expected.extend_from_slice(&content[100..150]);
            let (arrived, result) = deliver(Transmit::new(batch), budget, |_| {});
            assert!(result.is_ok() && arrived == expected, "budget {budget}");
        }
    }

    #[test]
    fn a_file_that_changes_at_any_point_never_completes() {
        let content = content();
        for change_at in [1, FILE_CHUNK_BYTES, (LEN - FILE_TAIL_BYTES - 20_000) as u64] {
            for cut in [false, true] {
                let (mut twin, file) = file_of(&content);
                let mut changed = false;
                let transmit = Transmit::new(vec![whole(&file)]);
                let (arrived, result) = deliver(transmit, 10_000, |total| {
                    if total >= change_at && !changed {
                        changed = true;
                        if cut {
                            twin.set_len(10).unwrap();
                        } else {
                            twin.write_all(b"new").unwrap();
                        }
                    }
                });
                assert!(matches!(result, Err(WriteError::File(_))), "{result:?}");
                assert!(changed && arrived.len() < LEN);
            }
        }
    }

    #[test]
    fn a_file_that_was_changed_before_sends_nothing() {
        for len in [10, LEN] {
            let (mut twin, file) = file_of(&content()[..len]);
            twin.write_all(b"x").unwrap();
            let (arrived, result) = deliver(Transmit::new(vec![whole(&file)]), u64::MAX, |_| {});
            assert!(matches!(result, Err(WriteError::File(_))));
            assert!(arrived.is_empty());
        }
    }

    #[test]
    fn a_full_socket_blocks_and_a_gone_one_fails() {
        let (ours, theirs) = pair();
        let big: Arc<[u8]> = vec![1; 4 << 20].into();
        let mut transmit = Transmit::new(vec![Segment::Shared {
            end: big.len(),
            bytes: big,
            start: 0,
        }]);
        let once = |transmit: &mut Transmit| write(ours.as_fd(), transmit, u64::MAX, Files::Probe);
        let written = once(&mut transmit).unwrap();
        assert!(matches!(written.progress, Progress::Blocked) && written.bytes > 0);
        assert_eq!(transmit.remaining(), (4 << 20) - written.bytes);
        let written = once(&mut transmit).unwrap();
        assert!(matches!(written.progress, Progress::Blocked) && written.bytes == 0);
        drop(theirs);
        assert!(matches!(once(&mut transmit), Err(WriteError::Peer(_))));
    }

    #[test]
    fn many_pieces_leave_in_a_few_calls() {
        let pieces = (0..100).map(|i| Segment::Buffer(Buffer::from(vec![i; 10])));
        let (arrived, result) = deliver(Transmit::new(pieces.collect()), u64::MAX, |_| {});
        assert!(result.is_ok());
        let expected: Vec<u8> = (0..100).flat_map(|i| [i; 10]).collect();
        assert_eq!(arrived, expected);
    }

    fn cold_file() -> Arc<OpenFile> {
        // In the build's folder, which lies on a disk more often than the temporary one.
        let folder = std::env::current_exe().unwrap();
        let mut file = tempfile::tempfile_in(folder.parent().unwrap()).unwrap();
        file.write_all(&content()).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        opened(file)
    }

    #[test]
    fn a_cold_range_is_reported_and_warm_after_reading_ahead() {
        // Two alike: looking at one starts reading it, so the other tells what can be expected.
        let (file, other) = (cold_file(), cold_file());
        if file::read_warm(&other.fd, &mut [0], 0).unwrap() != Warm::Cold {
            return; // a file system that keeps everything in memory
        }
        let (ours, theirs) = pair();
        let reader = thread::spawn(move || {
            let mut theirs = theirs;
            let mut bytes = Vec::new();
            theirs.read_to_end(&mut bytes).unwrap();
            bytes
        });
        let mut transmit = Transmit::new(vec![whole(&file)]);
        let (mut reads, mut scratch) = (0, vec![0; 64 << 10]);
        loop {
            match write(ours.as_fd(), &mut transmit, u64::MAX, Files::Probe)
                .unwrap()
                .progress
            {
                Progress::Done => break,
                Progress::Cold { file, offset, len } => {
                    reads += 1;
                    file::read_ahead(&file.fd, offset, len, &mut scratch);
                }
                Progress::Blocked => thread::yield_now(),
                Progress::Budget => panic!("there is no bound"),
            }
        }
        drop(ours);
        assert!((1..=5).contains(&reads), "{reads} reads");
        assert!(reader.join().unwrap() == content());
    }
}
