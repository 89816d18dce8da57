//! Any bytes as a Range field: what is selected lies inside, is bounded, and asked for in plain
//! words gives the same again.
//!
//! The first line is the size of the representation.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadline_fuzz::content::range::{ByteRange, RANGES_MAX, Selection, select};
use loadline_fuzz::{as_text, first_line};

fuzz_target!(|bytes: &[u8]| {
    let (line, value) = first_line(bytes);
    let digits = line.iter().filter(|byte| byte.is_ascii_digit());
    let size = digits.fold(0, |size: u64, digit| {
        size.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))
    });
    let selection = select([value], size);
    assert_eq!(select([value, value], size), Selection::Whole);
    let ranges = match &selection {
        Selection::Whole | Selection::Unsatisfiable => return,
        Selection::One(range) => std::slice::from_ref(range),
        Selection::Several(ranges) => {
            assert!((2..=RANGES_MAX).contains(&ranges.len()));
            ranges
        }
    };
    let mut total = 0;
    for range in ranges {
        assert!(
            range.start < range.end && range.end <= size,
            "{}",
            as_text(bytes)
        );
        total += u128::from(range.len());
    }
    assert!(total <= u128::from(size));
    assert_eq!(select([spell(ranges).as_bytes()], size), selection);
});

fn spell(ranges: &[ByteRange]) -> String {
    let specs: Vec<_> = ranges
        .iter()
        .map(|range| format!("{}-{}", range.start, range.end - 1))
        .collect();
    format!("bytes={}", specs.join(","))
}
