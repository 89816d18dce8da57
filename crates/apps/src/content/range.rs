//! The Range field (RFC 9110 sections 14.1 and 14.2).
//!
//! What cannot be understood is ignored, as the standard wants: then the answer is the whole.
//! Ignored as well is what only a broken client or an attack asks for, since a multipart answer
//! costs more than what it carries: more than [`RANGES_MAX`] ranges, more than two that overlap,
//! many out of order, or more bytes in all than there are.

use std::fmt;
use std::ops::Range;

use loadline_base::sorting;

/// Bytes of a representation; never empty, never beyond its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl ByteRange {
    /// Number of bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// The value of Content-Range, for a representation of `size` bytes.
    pub fn content_range(self, size: u64) -> impl fmt::Display {
        let Self { start, end } = self;
        fmt::from_fn(move |f| write!(f, "bytes {start}-{}/{size}", end - 1))
    }
}

/// The value of Content-Range that goes with a 416.
pub fn unsatisfied_content_range(size: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "bytes */{size}"))
}

/// What a request wants of a representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of it, with 200: there is no Range, or it is to be ignored.
    Whole,
    /// One range, with 206 and Content-Range.
    One(ByteRange),
    /// Two or more, in the order asked for, with 206 and multipart/byteranges.
    Several(Vec<ByteRange>),
    /// No range lies inside: 416 with Content-Range `bytes */size`.
    Unsatisfiable,
}

/// Most ranges that one request may ask for; a request with more gets the whole.
pub const RANGES_MAX: usize = 16;

/// Most ranges that may come in any order; more than that must ascend.
const UNORDERED_MAX: usize = 4;

/// Reads the values of the Range field of a GET against a representation of `size` bytes.
pub fn select<'v>(values: impl IntoIterator<Item = &'v [u8]>, size: u64) -> Selection {
    let mut values = values.into_iter();
    // Range is not a list: two lines of it are as good as none.
    match (values.next(), values.next()) {
        (Some(value), None) => select_from(value, size).unwrap_or(Selection::Whole),
        _ => Selection::Whole,
    }
}

/// `None`: to be ignored.
fn select_from(value: &[u8], size: u64) -> Option<Selection> {
    let (unit, set) = value.split_at_checked(b"bytes=".len())?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let mut ranges = [ByteRange { start: 0, end: 0 }; RANGES_MAX];
    let mut count = 0;
    let mut asked = 0;
    for spec in set.split(|byte| *byte == b',') {
        let spec = spec.trim_ascii();
        if spec.is_empty() {
            continue; // a recipient accepts empty list elements (RFC 9110 section 5.6.1.2)
        }
        asked += 1;
        if asked > RANGES_MAX {
            return None;
        }
        let bytes = bytes_of(spec, size)?;
        if !bytes.is_empty() {
            let Range { start, end } = bytes;
            ranges[count] = ByteRange { start, end };
            count += 1;
        }
    }
    match &ranges[..count] {
        [] if asked == 0 => None,
        [] => Some(Selection::Unsatisfiable),
        [range] => Some(Selection::One(*range)),
        several if is_abuse(several, size) => None,
        several => Some(Selection::Several(several.to_vec())),
    }
}

/// The bytes that one range of the field names; none if it is not satisfiable. `None`: it is no range.
fn bytes_of(spec: &[u8], size: u64) -> Option<Range<u64>> {
    let dash = spec.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        let len = number(last)?;
        // The end of nothing is nothing, which Content-Range cannot say.
        let can_be_said = len == 0 || size > 0;
        return can_be_said.then_some(size.saturating_sub(len)..size);
    }
    let first = number(first)?;
    let last = match last {
        b"" => u64::MAX,
        digits => number(digits)?,
    };
    let end = last.saturating_add(1).min(size);
    (first <= last).then_some(first..end)
}

/// Digits as a number; one too large for 64 bits is as good as the largest, for no file is so long.
fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    Some(text.parse().unwrap_or(u64::MAX))
}

fn is_abuse(ranges: &[ByteRange], size: u64) -> bool {
    let total: u128 = ranges.iter().map(|range| u128::from(range.len())).sum();
    if total > u128::from(size) {
        return true;
    }
    let ascends = ranges.is_sorted_by_key(|range| range.start);
    if ranges.len() > UNORDERED_MAX && !ascends {
        return true;
    }
    let mut sorted = ranges.to_vec();
    sorting::sort_by_key(&mut sorted, |range| range.start);
    let mut reach = 0;
    let mut overlaps = 0;
    for range in sorted {
        overlaps += usize::from(range.start < reach);
        reach = reach.max(range.end);
    }
    overlaps > 1 // one overlap is two ranges that overlap
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Selection::{One, Several, Unsatisfiable, Whole};
    use super::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    fn several(ranges: &[(u64, u64)]) -> Selection {
        Several(ranges.iter().map(|(s, e)| range(*s, *e)).collect())
    }

    #[test]
    fn table_of_single_ranges() {
        for (value, size, selection) in [
            ("bytes=0-0", 100, One(range(0, 1))),
            ("bytes=0-499", 1000, One(range(0, 500))),
            ("bytes=500-999", 1000, One(range(500, 1000))),
            ("bytes=500-999", 501, One(range(500, 501))),
            ("bytes=99-", 100, One(range(99, 100))),
            ("bytes=0-", 100, One(range(0, 100))),
            ("bytes=-1", 100, One(range(99, 100))),
            ("bytes=-100", 100, One(range(0, 100))),
            ("bytes=-101", 100, One(range(0, 100))),
            ("BYTES=1-2", 100, One(range(1, 3))),
            ("Bytes=1-2", 100, One(range(1, 3))),
            ("bytes= 1-2 ", 100, One(range(1, 3))),
            ("bytes=\t1-2\t,", 100, One(range(1, 3))),
            ("bytes=,,1-2", 100, One(range(1, 3))),
            ("bytes=0001-0002", 100, One(range(1, 3))),
            ("bytes=0-18446744073709551615", 100, One(range(0, 100))),
            ("bytes=0-18446744073709551616", 100, One(range(0, 100))),
            ("bytes=0-99999999999999999999999", 100, One(range(0, 100))),
            ("bytes=-99999999999999999999999", 100, One(range(0, 100))),
            (
                "bytes=0-18446744073709551615",
                u64::MAX,
                One(range(0, u64::MAX)),
            ),
            ("bytes=100-", 100, Unsatisfiable),
            ("bytes=100-200", 100, Unsatisfiable),
            ("bytes=-0", 100, Unsatisfiable),
            ("bytes=99999999999999999999999-", 100, Unsatisfiable),
            ("bytes=18446744073709551615-", u64::MAX, Unsatisfiable),
            ("bytes=0-", 0, Unsatisfiable),
            ("bytes=0-0", 0, Unsatisfiable),
            ("bytes=-0", 0, Unsatisfiable),
            // Satisfiable by the standard's words, yet there is no byte that Content-Range could name.
            ("bytes=-5", 0, Whole),
        ] {
            assert_eq!(
                select([value.as_bytes()], size),
                selection,
                "{value} of {size}"
            );
        }
    }

    #[test]
    fn what_must_be_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes= ",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=1",
            "bytes=1-b",
            "bytes=2-1",
            "bytes=1-2-3",
            "bytes=--1",
            "bytes=+1-2",
            "bytes=1 -2",
            "bytes=1- 2",
            "bytes=0x1-2",
            "bytes=1-2;3-4",
            "bytes=0-1,x",
            "bytes=0-1,5-4",
            "bytes=200-100",
            "bytes=1.0-2",
            "bytes =0-1",
            " bytes=0-1",
            "byte=0-1",
            "bytesx=0-1",
            "items=0-1",
            "lines=0-",
            "bytes:0-1",
            "bytes=\u{664}-",
            "none",
            "=0-1",
            "0-1",
        ] {
            assert_eq!(select([value.as_bytes()], 100), Whole, "{value}");
        }
        assert_eq!(select([], 100), Whole);
        assert_eq!(select([&b"bytes=0-1"[..], b"bytes=0-1"], 100), Whole);
    }

    #[test]
    fn table_of_several_ranges() {
        for (value, selection) in [
            ("bytes=0-0,2-3", several(&[(0, 1), (2, 4)])),
            (
                "bytes=0-0 , 2-3\t,, -1",
                several(&[(0, 1), (2, 4), (99, 100)]),
            ),
            ("bytes=50-59,0-9", several(&[(50, 60), (0, 10)])),
            ("bytes=0-9,200-300,20-29", several(&[(0, 10), (20, 30)])),
            ("bytes=0-9,200-300", One(range(0, 10))),
            ("bytes=100-,200-300,-0", Unsatisfiable),
            // Two may overlap or touch; three may not overlap.
            ("bytes=0-9,5-14", several(&[(0, 10), (5, 15)])),
            (
                "bytes=0-9,10-19,20-29",
                several(&[(0, 10), (10, 20), (20, 30)]),
            ),
            ("bytes=0-9,5-14,10-19", Whole),
            ("bytes=0-0,0-0,0-0", Whole),
            ("bytes=0-9,5-14,50-59,55-60", Whole),
            // More in all than there is.
            ("bytes=0-,0-", Whole),
            ("bytes=0-,-1", Whole),
            ("bytes=0-49,50-", several(&[(0, 50), (50, 100)])),
            // Up to four in any order, more only ascending.
            (
                "bytes=8-8,6-6,4-4,2-2",
                several(&[(8, 9), (6, 7), (4, 5), (2, 3)]),
            ),
            ("bytes=8-8,6-6,4-4,2-2,0-0", Whole),
            (
                "bytes=0-0,2-2,4-4,6-6,8-8",
                several(&[(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]),
            ),
        ] {
            assert_eq!(select([value.as_bytes()], 100), selection, "{value}");
        }
    }

    #[test]
    fn sums_beyond_64_bits_count_as_more_than_there_is() {
        assert_eq!(select([&b"bytes=0-,1-"[..]], u64::MAX), Whole);
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let ascending = |count: u64| {
            let specs: Vec<_> = (0..count).map(|i| format!("{0}-{0}", i * 2)).collect();
            format!("bytes={}", specs.join(","))
        };
        let most = select([ascending(16).as_bytes()], 1000);
        assert!(matches!(most, Several(ranges) if ranges.len() == RANGES_MAX));
        assert_eq!(select([ascending(17).as_bytes()], 1000), Whole);
        assert_eq!(select([ascending(17).as_bytes()], 1), Whole);
        let commas = format!("bytes={}0-0", ",".repeat(100_000));
        assert_eq!(select([commas.as_bytes()], 1000), One(range(0, 1)));
    }

    #[test]
    fn content_range_counts_the_last_byte_in() {
        let of = |start, end, size| range(start, end).content_range(size).to_string();
        assert_eq!(of(0, 500, 1234), "bytes 0-499/1234");
        assert_eq!(of(7, 8, 8), "bytes 7-7/8");
        assert_eq!(unsatisfied_content_range(47).to_string(), "bytes */47");
    }

    /// The standard's words, byte by byte: which bytes does a spec name?
    fn naive(first: Option<u64>, last: Option<u64>, size: u64) -> Vec<u64> {
        (0..size)
            .filter(|byte| match (first, last) {
                (Some(first), last) => *byte >= first && last.is_none_or(|last| *byte <= last),
                (None, Some(suffix)) => *byte + suffix >= size,
                (None, None) => false,
            })
            .collect()
    }

    fn bound() -> impl Strategy<Value = Option<u64>> {
        proptest::option::weighted(0.8, prop_oneof![8 => 0..70_u64, 1 => any::<u64>()])
    }

    proptest! {
        #[test]
        fn every_range_lies_inside_and_is_what_was_asked_for(
            specs in proptest::collection::vec((bound(), bound()), 1..6),
            size in 0..64_u64,
        ) {
            let text = |bound: &Option<u64>| bound.map(|b| b.to_string()).unwrap_or_default();
            let list: Vec<_> = specs.iter().map(|(f, l)| format!("{}-{}", text(f), text(l))).collect();
            let value = format!("bytes={}", list.join(", "));
            let is_valid = specs.iter().all(|spec| match spec {
                (None, None) => false,
                (Some(first), Some(last)) => first <= last,
                _ => true,
            });
            let wanted: Vec<_> = specs
                .iter()
                .map(|(first, last)| match (first, last) {
                    (None, Some(suffix)) => naive(None, Some((*suffix).min(size)), size),
                    _ => naive(*first, *last, size),
                })
                .filter(|bytes| !bytes.is_empty())
                .collect();
            let bytes = |range: &ByteRange| (range.start..range.end).collect::<Vec<_>>();
            match select([value.as_bytes()], size) {
                One(range) => {
                    prop_assert!(is_valid && range.end <= size);
                    prop_assert_eq!(&wanted, &[bytes(&range)]);
                }
                Several(ranges) => {
                    prop_assert!(is_valid && ranges.iter().all(|range| range.end <= size));
                    prop_assert_eq!(&wanted, &ranges.iter().map(bytes).collect::<Vec<_>>());
                    prop_assert!(ranges.iter().map(|range| range.len()).sum::<u64>() <= size);
                }
                Unsatisfiable => prop_assert!(is_valid && wanted.is_empty()),
                Whole => prop_assert!(!is_valid || size == 0 || wanted.len() > 1),
            }
        }

        #[test]
        fn any_bytes_are_read_without_harm(
            text in proptest::collection::vec(proptest::sample::select(b"bytes=0189-, \t".to_vec()), 0..40),
            size: u64,
        ) {
            let value = [b"bytes=", &text[..]].concat();
            let ranges = match select([&value[..]], size) {
                One(range) => vec![range],
                Several(ranges) => ranges,
                Whole | Unsatisfiable => vec![],
            };
            prop_assert!(ranges.iter().all(|range| range.start < range.end && range.end <= size));
        }
    }
}
