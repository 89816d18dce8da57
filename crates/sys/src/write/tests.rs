//! Batches over socket pairs: files that change, sockets that fill up, ranges that are not in memory.

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
        is_local: true,
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

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Buffer,
    Sendfile,
}

const WAYS: [Way; 2] = [Way::Buffer, Way::Sendfile];

/// Sends all of it to a reader; returns what arrived and how it ended.
fn deliver(
    mut transmit: Transmit,
    budget: u64,
    way: Way,
    mut between: impl FnMut(u64),
) -> (Vec<u8>, Result<(), WriteError>) {
    let (ours, mut theirs) = pair();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        theirs.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let mut total = 0;
    let mut buffer = (way == Way::Buffer).then(FileBuffer::default);
    let result = loop {
        match write(
            ours.as_fd(),
            &mut transmit,
            budget,
            Files::Trust,
            buffer.as_mut(),
        ) {
            Ok(written) => {
                total += written.bytes;
                if !transmit.is_done() {
                    between(total);
                }
                match written.progress {
                    WriteProgress::Done => break Ok(()),
                    WriteProgress::Blocked => {
                        let stage = crate::Waker::new().unwrap();
                        crate::wait_socket(ours.as_fd(), false, true, stage.as_fd(), None, None)
                            .unwrap();
                    }
                    WriteProgress::Budget => {}
                    WriteProgress::NotCached { .. } => panic!("not asked for"),
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
    let budgets = [5_000, 20_000, 100_000, u64::MAX];
    for (way, budget) in WAYS.into_iter().flat_map(|way| budgets.map(|b| (way, b))) {
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
        let (arrived, result) = deliver(Transmit::new(batch), budget, way, |_| {});
        assert!(
            result.is_ok() && arrived == expected,
            "{way:?}, budget {budget}"
        );
    }
}

#[test]
fn a_file_that_changes_at_any_point_never_completes() {
    let content = content();
    let moments = [1, FILE_CHUNK_BYTES, (LEN - FILE_TAIL_BYTES - 20_000) as u64];
    for (way, change_at) in WAYS.into_iter().flat_map(|way| moments.map(|m| (way, m))) {
        for cut in [false, true] {
            let (mut twin, file) = file_of(&content);
            let mut changed = false;
            let transmit = Transmit::new(vec![whole(&file)]);
            let (arrived, result) = deliver(transmit, 10_000, way, |total| {
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
    for (way, len) in WAYS
        .into_iter()
        .flat_map(|way| [10, LEN].map(|len| (way, len)))
    {
        let (mut twin, file) = file_of(&content()[..len]);
        twin.write_all(b"x").unwrap();
        let transmit = Transmit::new(vec![whole(&file)]);
        let (arrived, result) = deliver(transmit, u64::MAX, way, |_| {});
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
    let once =
        |transmit: &mut Transmit| write(ours.as_fd(), transmit, u64::MAX, Files::Probe, None);
    let written = once(&mut transmit).unwrap();
    assert!(matches!(written.progress, WriteProgress::Blocked) && written.bytes > 0);
    assert_eq!(transmit.remaining(), (4 << 20) - written.bytes);
    let written = once(&mut transmit).unwrap();
    assert!(matches!(written.progress, WriteProgress::Blocked) && written.bytes == 0);
    drop(theirs);
    assert!(matches!(once(&mut transmit), Err(WriteError::Peer(_))));
}

#[test]
fn many_pieces_leave_in_a_few_calls() {
    let pieces = (0..100).map(|i| Segment::Buffer(Buffer::from(vec![i; 10])));
    let (arrived, result) = deliver(
        Transmit::new(pieces.collect()),
        u64::MAX,
        Way::Buffer,
        |_| {},
    );
    assert!(result.is_ok());
    let expected: Vec<u8> = (0..100).flat_map(|i| [i; 10]).collect();
    assert_eq!(arrived, expected);
}

/// A file whose pages were dropped, where the file system does that.
pub(crate) fn uncached_file(content: &[u8]) -> Arc<OpenFile> {
    // In the build's folder, which lies on a disk more often than the temporary one.
    let folder = std::env::current_exe().unwrap();
    let mut file = tempfile::tempfile_in(folder.parent().unwrap()).unwrap();
    file.write_all(content).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    opened(file)
}

#[test]
fn an_uncached_range_is_reported_and_cached_after_reading_ahead() {
    for way in WAYS {
        reports_uncached_ranges(way);
    }
}

fn reports_uncached_ranges(way: Way) {
    // Two alike: looking at one starts reading it, so the other shows what can be expected.
    let (file, other) = (uncached_file(&content()), uncached_file(&content()));
    if file::read_cached(&other.fd, &mut [0], 0).unwrap() != CachedRead::NotCached {
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
    let mut buffer = (way == Way::Buffer).then(FileBuffer::default);
    loop {
        let written = write(
            ours.as_fd(),
            &mut transmit,
            u64::MAX,
            Files::Probe,
            buffer.as_mut(),
        );
        match written.unwrap().progress {
            WriteProgress::Done => break,
            WriteProgress::NotCached { file, offset, len } => {
                reads += 1;
                file::read_ahead(&file.fd, offset, len, &mut scratch);
            }
            WriteProgress::Blocked => thread::yield_now(),
            WriteProgress::Budget => panic!("there is no bound"),
        }
    }
    drop(ours);
    assert!((1..=5).contains(&reads), "{reads} reads");
    assert!(reader.join().unwrap() == content());
}
