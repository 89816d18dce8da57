//! Lines of a head, eight bytes at a time: where a name ends, and where a line does.

use crate::ascii::{is_text_byte, is_token_byte};

/// Why reading stops before the end of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The rest has not come.
    Cut,
    /// It is no head.
    Bad(&'static str),
}

/// The index of the colon behind the field name that begins at `start`.
///
/// Nearly all names are letters and hyphens, eight of which are judged at once.
#[inline(always)]
pub(super) fn name_end(window: &[u8], start: usize) -> Result<usize, Stop> {
    let mut at = start;
    while let Some(chunk) = window[at..].first_chunk() {
        let word = u64::from_le_bytes(*chunk);
        let colon = lowest_zero(word ^ repeated(b':'));
        let before = colon.wrapping_sub(1) & !colon;
        if before & not_letter_or_hyphen(word) != 0 {
            break;
        }
        at += 8;
        if colon != 0 {
            at += colon.trailing_zeros() as usize / 8;
            return named(window, start, at - 8);
        }
    }
    let len = window[at..].iter().position(|byte| !is_token_byte(*byte));
    named(window, start, at + len.ok_or(Stop::Cut)?)
}

#[inline]
fn named(window: &[u8], start: usize, end: usize) -> Result<usize, Stop> {
    match window[end] {
        b':' if end > start => Ok(end),
        b' ' | b'\t' if end == start => Err(Stop::Bad("a folded field line")),
        b' ' | b'\t' => Err(Stop::Bad("white space between a field name and its colon")),
        _ => Err(Stop::Bad("a field line without a valid name")),
    }
}

/// The index of the first byte from `start` on that no request target holds: white space, a control
/// character, or one beyond ASCII.
#[inline(always)]
pub(crate) fn target_end(window: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(chunk) = window[at..].first_chunk() {
        let others = lowest_not_visible(u64::from_le_bytes(*chunk));
        if others != 0 {
            return at + others.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let len = window[at..]
        .iter()
        .position(|byte| !byte.is_ascii_graphic());
    at + len.unwrap_or(window.len() - at)
}

/// The index of the CR that ends the line which goes on at `from`, text without control characters.
#[inline(always)]
pub(super) fn line_end(window: &[u8], from: usize) -> Result<usize, Stop> {
    let mut at = from;
    loop {
        if let Some(chunk) = window[at..].first_chunk() {
            let controls = lowest_control(u64::from_le_bytes(*chunk));
            if controls == 0 {
                at += 8;
                continue;
            }
            at += controls.trailing_zeros() as usize / 8;
        } else {
            let len = window[at..].iter().position(u8::is_ascii_control);
            at += len.ok_or(Stop::Cut)?;
        }
        match window[at..] {
            [b'\r', b'\n', ..] => return Ok(at),
            [b'\t', ..] => at += 1,
            [b'\r'] => return Err(Stop::Cut),
            [b'\r', ..] => return Err(Stop::Bad("a bare CR in the head")),
            [b'\n', ..] => return Err(Stop::Bad("a line of the head ends in a bare LF")),
            _ => return Err(Stop::Bad("a control character in the head")),
        }
    }
}

/// Whether it may be the value of a field: no control character but a tab.
#[inline]
pub(crate) fn is_text(value: &[u8]) -> bool {
    let (words, rest) = value.as_chunks::<8>();
    let is_plain = |word: &[u8; 8]| {
        lowest_control(u64::from_le_bytes(*word)) == 0 || word.iter().copied().all(is_text_byte)
    };
    words.iter().all(is_plain) && rest.iter().copied().all(is_text_byte)
}

/// Whether it may be the name of a field in HTTP/2: a token without letters in upper case.
#[inline]
pub(crate) fn is_lower_case_name(name: &[u8]) -> bool {
    let is_lower = |byte: &u8| is_token_byte(*byte) && !byte.is_ascii_uppercase();
    let (words, rest) = name.as_chunks::<8>();
    let is_plain = |chunk: &[u8; 8]| {
        let word = u64::from_le_bytes(*chunk);
        // Of letters and the hyphen, those in upper case lack this bit.
        let has_no_upper = word & repeated(0x20) == repeated(0x20);
        not_letter_or_hyphen(word) == 0 && has_no_upper || chunk.iter().all(is_lower)
    };
    !name.is_empty() && words.iter().all(is_plain) && rest.iter().all(is_lower)
}

/// The highest bit of each byte.
const HIGHEST: u64 = repeated(0x80);

pub(super) const fn repeated(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Marks the first byte that is zero, by its highest bit; marks behind it mean nothing. (A borrow
/// runs from lower bytes to higher ones, and starts at a zero.)
const fn lowest_zero(word: u64) -> u64 {
    word.wrapping_sub(repeated(1)) & !word & HIGHEST
}

/// Marks the first byte that is a control character, in the same way.
const fn lowest_control(word: u64) -> u64 {
    let below_space = word.wrapping_sub(repeated(b' ')) & !word & HIGHEST;
    below_space | lowest_zero(word ^ repeated(0x7f))
}

/// Marks the first byte that is not visible ASCII, in the same way. (What is carried beyond a byte
/// comes from one that is marked.)
const fn lowest_not_visible(word: u64) -> u64 {
    let below = word.wrapping_sub(repeated(b'!')) & !word;
    let above = word | word.wrapping_add(repeated(1));
    (below | above) & HIGHEST
}

/// Marks every byte that is neither an ASCII letter nor a hyphen. No sum reaches the next byte.
const fn not_letter_or_hyphen(word: u64) -> u64 {
    let seven_bits = word & !HIGHEST;
    let lower = seven_bits | repeated(0x20);
    let from_a = lower + repeated(0x80 - b'a');
    let beyond_z = lower + repeated(0x7f - b'z');
    let not_hyphen = (seven_bits ^ repeated(b'-')) + repeated(0x7f);
    (word | (!(from_a & !beyond_z) & not_hyphen)) & HIGHEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_a_value_at_each_place() {
        for len in 0..20 {
            let value = vec![b'x'; len];
            assert!(is_text(&value));
            for at in 0..len {
                for byte in 0..=255 {
                    let mut value = value.clone();
                    value[at] = byte;
                    assert_eq!(is_text(&value), is_text_byte(byte), "{byte} at {at}");
                }
            }
        }
        assert!(!is_text(b"\ta\0bcdef"), "behind a tab");
    }

    #[test]
    fn each_byte_of_a_name_at_each_place() {
        assert!(!is_lower_case_name(b""));
        for len in 1..20 {
            for at in 0..len {
                for byte in 0..=255_u8 {
                    let mut name = vec![b'-'; len];
                    name[at] = byte;
                    let is_name = is_token_byte(byte) && !byte.is_ascii_uppercase();
                    assert_eq!(is_lower_case_name(&name), is_name, "{byte} at {at}");
                }
            }
        }
    }
}
