//! multipart/byteranges bodies (RFC 9110 section 14.6).

use std::fmt;
use std::sync::Arc;

use loadline_base::{Buffer, OpenFile, Segment};

use super::range::ByteRange;

/// Where the bytes of a representation are.
#[derive(Clone, Debug)]
pub enum Content {
    /// In memory.
    Shared(Arc<[u8]>),
    /// In a file.
    File(Arc<OpenFile>),
}

/// What separates the parts: 32 hexadecimal digits, which the caller draws so that the content
/// cannot be made to contain them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary(pub u128);

impl Boundary {
    /// The Content-Type of the whole answer.
    #[must_use]
    pub fn content_type(self) -> String {
        format!("multipart/byteranges; boundary={self}")
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The body: a part per range of a representation of `size` bytes and of type `media_type`. Its
/// Content-Length is the sum of the segments' lengths (as `Body::len` has it).
#[must_use]
pub fn body(
    content: &Content,
    ranges: &[ByteRange],
    size: u64,
    media_type: &str,
    boundary: Boundary,
) -> Vec<Segment> {
    let mut segments = Vec::with_capacity(ranges.len() * 2 + 1);
    let mut before = "";
    for range in ranges {
        let content_range = range.content_range(size);
        let head = format!(
            "{before}--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: {content_range}\r\n\r\n"
        );
        before = "\r\n";
        segments.push(Segment::Buffer(Buffer::from(head.into_bytes())));
        segments.push(content.segment(*range));
    }
    let close = format!("{before}--{boundary}--\r\n");
    segments.push(Segment::Buffer(Buffer::from(close.into_bytes())));
    segments
}

impl Content {
    /// The bytes of one range, as a piece of output.
    ///
    /// # Panics
    /// If the content is in memory and the range does not lie inside it.
    #[must_use]
    pub fn segment(&self, range: ByteRange) -> Segment {
        match self {
            Self::Shared(bytes) => {
                assert!(range.end <= bytes.len() as u64, "{range:?} lies outside");
                Segment::Shared {
                    bytes: Arc::clone(bytes),
                    start: range.start as usize,
                    end: range.end as usize,
                }
            }
            Self::File(file) => Segment::File {
                file: Arc::clone(file),
                offset: range.start,
                len: range.len(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use loadline_base::ContentVersion;
    use loadline_proto::Body;
    use proptest::prelude::*;

    use super::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    /// What goes over the wire; files as zeros, since nothing reads here.
    fn flatten(segments: &[Segment]) -> Vec<u8> {
        let bytes = |segment: &Segment| match segment {
            Segment::Buffer(buffer) => buffer.to_vec(),
            Segment::Shared { bytes, start, end } => bytes[*start..*end].to_vec(),
            Segment::File { len, .. } => vec![0; *len as usize],
        };
        segments.iter().flat_map(bytes).collect()
    }

    #[test]
    fn the_bytes_on_the_wire() {
        let content = Content::Shared(Arc::from(&b"0123456789"[..]));
        let boundary = Boundary(0x1234);
        let parts = body(
            &content,
            &[range(0, 2), range(9, 10)],
            10,
            "text/plain",
            boundary,
        );
        let b = "00000000000000000000000000001234";
        let expected = format!(
            "--{b}\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\n01\r\n\
             --{b}\r\nContent-Type: text/plain\r\nContent-Range: bytes 9-9/10\r\n\r\n9\r\n\
             --{b}--\r\n"
        );
        assert_eq!(String::from_utf8_lossy(&flatten(&parts)), expected);
        let content_type = format!("multipart/byteranges; boundary={b}");
        assert_eq!(boundary.content_type(), content_type);
    }

    #[test]
    fn a_file_is_only_pointed_at() {
        let fd = std::fs::File::open("/dev/null").unwrap().into();
        let version = ContentVersion::default();
        let file = Arc::new(OpenFile {
            fd,
            version,
            is_local: true,
        });
        let content = Content::File(Arc::clone(&file));
        let parts = body(
            &content,
            &[range(5, 1 << 40)],
            1 << 41,
            "video/mp4",
            Boundary(1),
        );
        let [
            _,
            Segment::File {
                file: of,
                offset,
                len,
            },
            _,
        ] = &parts[..]
        else {
            panic!("{parts:?}");
        };
        assert!(Arc::ptr_eq(of, &file));
        assert_eq!((*offset, *len), (5, (1 << 40) - 5));
    }

    #[test]
    #[should_panic(expected = "lies outside")]
    fn a_range_beyond_the_content_is_a_bug() {
        let _ = Content::Shared(Arc::from(&b"abc"[..])).segment(range(1, 4));
    }

    /// Takes a body apart as a client does: by boundary, head and Content-Range.
    fn parse(mut rest: &[u8], boundary: Boundary) -> Vec<(u64, u64, Vec<u8>)> {
        let find = |text: &[u8], of: &str| text.windows(of.len()).position(|w| w == of.as_bytes());
        let mut parts = Vec::new();
        let delimiter = format!("--{boundary}");
        loop {
            rest = rest.strip_prefix(delimiter.as_bytes()).expect("a boundary");
            if rest == b"--\r\n" {
                return parts;
            }
            let end = find(rest, "\r\n\r\n").expect("the end of the head");
            let head = std::str::from_utf8(&rest[..end]).unwrap();
            let (_, bytes) = head.split_once("Content-Range: bytes ").unwrap();
            let (start, last) = bytes.split_once('/').unwrap().0.split_once('-').unwrap();
            let (start, end_of_range) = (start.parse().unwrap(), last.parse::<u64>().unwrap() + 1);
            rest = &rest[end + 4..];
            let (content, after) = rest.split_at((end_of_range - start) as usize);
            parts.push((start, end_of_range, content.to_vec()));
            rest = after.strip_prefix(b"\r\n").expect("CRLF before a boundary");
        }
    }

    proptest! {
        #[test]
        fn a_client_gets_the_ranges_back(
            content in proptest::collection::vec(any::<u8>(), 1..200),
            picks in proptest::collection::vec((any::<u16>(), any::<u16>()), 1..16),
            boundary: u128,
        ) {
            let size = content.len() as u64;
            let ranges: Vec<_> = picks
                .iter()
                .map(|(at, len)| {
                    let start = u64::from(*at) % size;
                    range(start, start + 1 + u64::from(*len) % (size - start))
                })
                .collect();
            let boundary = Boundary(boundary);
            let shared = Content::Shared(Arc::from(&content[..]));
            let segments = body(&shared, &ranges, size, "a/b", boundary);
            prop_assert!(segments.iter().all(|segment| !segment.is_empty()));
            let wire = flatten(&segments);
            prop_assert_eq!(Body::Segments(segments).len(), wire.len() as u64);
            let expected: Vec<_> = ranges
                .iter()
                .map(|r| (r.start, r.end, content[r.start as usize..r.end as usize].to_vec()))
                .collect();
            prop_assert_eq!(parse(&wire, boundary), expected);
        }
    }
}
