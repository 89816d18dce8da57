//! Classes of bytes, and numbers as text.

/// Whether the byte may stand in a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// Whether the byte may stand in the value of a field, or in a line of the chunked coding: no control
/// character but a tab.
pub(crate) fn is_text_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

static TOKEN: [bool; 256] = letters_digits_and(b"!#$%&'*+-.^_`|~");

/// A table of bytes: ASCII letters, digits and these marks.
pub(crate) const fn letters_digits_and(marks: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut index = 0;
    while index < marks.len() {
        table[marks[index] as usize] = true;
        index += 1;
    }
    table
}

/// Appends a number in decimal, without allocating.
pub(crate) fn push_decimal(output: &mut Vec<u8>, number: u64) {
    output.extend_from_slice(decimal(number, &mut [0; 20]));
}

/// The digits of a number, which are put at the end of `digits`.
pub(crate) fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    &digits[start..]
}
