//! Writing a batch of output to a socket: memory by `send`; files through a buffer of the thread, or
//! by `sendfile` where none is given.
//!
//! A file that changes while it is on its way breaks the answer off. Through a buffer, each chunk is
//! read, then the file is compared with what was opened, and only then the chunk is sent. By
//! `sendfile` it is compared before each chunk, and its last bytes go out only after a last
//! comparison; what that cannot see is a change in place, after that moment, of pages that wait in
//! the socket's buffer (`sendfile` queues the pages themselves). Neither sees writes through a
//! mapping, whose time stamps come late, nor a file that is rewritten in place at its length and
//! then dated back.
//!
//! A file that another one is renamed over is sent on to its end: the descriptor keeps its content.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use loadline_base::{Chunk, OpenFile, Transmit};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

use crate::file::{self, CachedRead};

/// Bytes of a file that are copied at once, and what is read ahead: large enough that the
/// checks of each chunk (under 1 us) vanish beside it, small enough that a change is seen soon and
/// that a buffer of it stays in a core's own cache between reading and sending.
pub const FILE_CHUNK_BYTES: u64 = 512 << 10;

/// Bytes of a file that one `sendfile` moves: as much as a loop may write before others have their
/// turn. 256 KiB cost the server 146 us for a MiB where a MiB at once cost 131 (medians of five rounds
/// in turn).
const SENDFILE_BYTES: u64 = 1 << 20;

/// Where it is looked whether a file is in the page cache: what the kernel reads ahead in one piece.
const PROBE_BYTES: u64 = 128 << 10;

/// With `sendfile` the end of a file goes through memory all the same: so nothing written before the
/// last comparison can complete an answer. 16 KiB: what fits on the stack and what small files have in all.
const FILE_TAIL_BYTES: usize = 16 << 10;

/// Pieces of memory that go out in one call.
const SLICES_MAX: usize = 32;

/// Whether to look if a file is in the page cache before sending from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// Look, and stop with `NotCached` where sending would wait for a disk.
    Probe,
    /// Send, and wait if need be: on threads that may, or for what was just read ahead.
    Trust,
}

/// What a thread reads files into before it sends them: one for all its connections, since what a
/// socket did not take is read again. No memory before the first file.
#[derive(Debug, Default)]
pub struct FileBuffer(Vec<u8>);

impl FileBuffer {
    fn bytes(&mut self) -> &mut [u8] {
        self.0.resize(FILE_CHUNK_BYTES as usize, 0);
        &mut self.0
    }
}

/// How far a batch got.
#[derive(Debug)]
pub enum WriteProgress {
    /// All of it is in the socket.
    Done,
    /// The socket is full: go on when it is writable.
    Blocked,
    /// The budget is used up; the socket may have room, so no event will come.
    Budget,
    /// The next range of a file is not in the page cache: have it read ahead, then go on with
    /// `Files::Trust` and a budget of `len`.
    NotCached {
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
    pub progress: WriteProgress,
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
/// the socket. Files go through `buffer`, or by `sendfile` without one.
///
/// # Errors
/// The connection failed, or a file is not what was opened any more.
#[inline]
pub fn write(
    socket: BorrowedFd<'_>,
    transmit: &mut Transmit,
    budget: u64,
    files: Files,
    mut buffer: Option<&mut FileBuffer>,
) -> Result<Written, WriteError> {
    let mut bytes = 0;
    loop {
        let step = match transmit.front() {
            None => Step::Ended(WriteProgress::Done),
            Some(Chunk::Memory(memory)) => send_memory(socket, transmit, memory)?,
            Some(_) if bytes >= budget => Step::Ended(WriteProgress::Budget),
            Some(Chunk::File { file, offset, len }) => {
                let most = budget - bytes;
                let range = Range { file, offset, len };
                match &mut buffer {
                    Some(buffer) => copy_file(socket, range, most, files, buffer)?,
                    None => send_file(socket, range, most, files)?,
                }
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
                WriteProgress::Blocked
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
    Ended(WriteProgress),
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
        Err(Errno::AGAIN) => Ok(Step::Ended(WriteProgress::Blocked)),
        Err(error) => Err(WriteError::Peer(error.into())),
    }
}

/// What is left of a piece of a file.
#[derive(Clone, Copy)]
struct Range<'t> {
    file: &'t Arc<OpenFile>,
    offset: u64,
    len: u64,
}

/// One chunk of a file, at most `most` bytes, through memory.
fn copy_file(
    socket: BorrowedFd<'_>,
    range: Range<'_>,
    most: u64,
    files: Files,
    buffer: &mut FileBuffer,
) -> Result<Step, WriteError> {
    let buffer = buffer.bytes();
    let chunk = most.min(range.len).min(buffer.len() as u64) as usize;
    let Some(read) = read_chunk(range, &mut buffer[..chunk], files)? else {
        return Ok(Step::Ended(not_cached(range)));
    };
    check_unchanged(range.file)?;
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    step(read, retry(|| send(socket, &buffer[..read], flags)))
}

/// Reads at least something; `None`: that would wait for a disk.
fn read_chunk(
    range: Range<'_>,
    buffer: &mut [u8],
    files: Files,
) -> Result<Option<usize>, WriteError> {
    let Range { file, offset, .. } = range;
    let cached = match files {
        Files::Probe => file::read_cached(&file.fd, buffer, offset).map_err(WriteError::File)?,
        Files::Trust => CachedRead::Unknown,
    };
    let read = match cached {
        CachedRead::Read(count) => count,
        CachedRead::NotCached => return Ok(None),
        // It cannot say that it would not wait for another machine.
        CachedRead::Unknown if files == Files::Probe && !file.is_local => return Ok(None),
        CachedRead::Unknown => file::read(&file.fd, buffer, offset).map_err(WriteError::File)?,
    };
    match read {
        0 => Err(WriteError::File(changed())),
        count => Ok(Some(count)),
    }
}

/// One chunk of a file, at most `most` bytes, by `sendfile`.
fn send_file(
    socket: BorrowedFd<'_>,
    range: Range<'_>,
    most: u64,
    files: Files,
) -> Result<Step, WriteError> {
    let Range { file, offset, len } = range;
    if len <= FILE_TAIL_BYTES as u64 {
        return send_tail(socket, range, files);
    }
    // What remains after this chunk must be a tail of its own, so that it is the tail that decides.
    let chunk = most.min(SENDFILE_BYTES).min(len - FILE_TAIL_BYTES as u64);
    let chunk = match files {
        Files::Probe => cached_len(range, chunk)?,
        Files::Trust => chunk,
    };
    if chunk == 0 {
        return Ok(Step::Ended(not_cached(range)));
    }
    check_unchanged(file)?;
    let mut from = offset;
    match retry(|| rustix::fs::sendfile(socket, &file.fd, Some(&mut from), chunk as usize)) {
        Ok(0) => Err(WriteError::File(changed())),
        // Fewer bytes than asked for may have other reasons than a full socket: the next call shows it.
        Ok(sent) => Ok(Step::Moved(sent as u64)),
        Err(Errno::AGAIN) => Ok(Step::Ended(WriteProgress::Blocked)),
        Err(Errno::IO) => Err(WriteError::File(Errno::IO.into())),
        Err(error) => Err(WriteError::Peer(error.into())),
    }
}

/// How much of a range's first `len` bytes is in the page cache, estimated by a look here and there.
fn cached_len(range: Range<'_>, len: u64) -> Result<u64, WriteError> {
    let mut cached = 0;
    while cached < len {
        let offset = range.offset + cached;
        if read_chunk(Range { offset, ..range }, &mut [0], Files::Probe)?.is_none() {
            break;
        }
        cached += PROBE_BYTES.min(len - cached);
    }
    Ok(cached)
}

fn send_tail(socket: BorrowedFd<'_>, range: Range<'_>, files: Files) -> Result<Step, WriteError> {
    let mut tail = [0; FILE_TAIL_BYTES];
    let tail = &mut tail[..range.len as usize];
    let mut filled = 0;
    while filled < tail.len() {
        let rest = Range {
            offset: range.offset + filled as u64,
            ..range
        };
        let Some(count) = read_chunk(rest, &mut tail[filled..], files)? else {
            return Ok(Step::Ended(not_cached(range)));
        };
        filled += count;
    }
    check_unchanged(range.file)?;
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    step(tail.len(), retry(|| send(socket, tail, flags)))
}

fn not_cached(range: Range<'_>) -> WriteProgress {
    WriteProgress::NotCached {
        file: Arc::clone(range.file),
        offset: range.offset,
        len: range.len.min(FILE_CHUNK_BYTES),
    }
}

fn check_unchanged(file: &OpenFile) -> Result<(), WriteError> {
    match file::is_unchanged(&file.fd, file.version) {
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
pub(crate) mod tests;
