//! What is expected of answers, as people type it.

use loadline_base::sorting::sort;
use loadline_spec::ValueError;

/// Reads a list of statuses: `200,404`, `2xx`, `200,3xx`. The result is sorted; empty stands for
/// 200 to 299, what is expected unless something else is given.
///
/// # Errors
/// Something in it is no status; one line says what.
pub fn statuses(text: &str) -> Result<Vec<u16>, ValueError> {
    let mut statuses = Vec::new();
    for part in text.split(',').map(str::trim) {
        let wrong = || {
            let right = "100 to 599, or a class as 2xx, parted by commas";
            ValueError::from(format!("`{part}` is not a status: {right}"))
        };
        let class = part.strip_suffix("xx").or_else(|| part.strip_suffix("XX"));
        match class.unwrap_or(part).parse::<u16>().map_err(|_| wrong())? {
            class @ 1..=5 if part.len() == 3 => statuses.extend(class * 100..=class * 100 + 99),
            status @ 100..=599 if class.is_none() => statuses.push(status),
            _ => return Err(wrong()),
        }
    }
    sort(&mut statuses);
    statuses.dedup();
    if statuses.iter().copied().eq(200..=299) {
        statuses.clear();
    }
    Ok(statuses)
}

/// Reads a SHA-256 as `sha256sum` prints it.
///
/// # Errors
/// It is not 64 hexadecimal digits.
pub fn sha256(text: &str) -> Result<[u8; 32], ValueError> {
    let wrong = || {
        let right = "64 hexadecimal digits, as of sha256sum";
        ValueError::from(format!("`{text}` is not a SHA-256: {right}"))
    };
    let mut hash = [0; 32];
    if text.len() != 64 {
        return Err(wrong());
    }
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16).ok_or_else(wrong);
        *byte = (digit(digits[0])? << 4 | digit(digits[1])?) as u8;
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_classes() {
        assert_eq!(statuses("200,404"), Ok(vec![200, 404]));
        assert_eq!(statuses("404, 200,404"), Ok(vec![200, 404]));
        assert_eq!(statuses("2xx"), Ok(vec![]));
        assert_eq!(statuses("304,5XX").unwrap().len(), 101);
        for text in [
            "", "200,", "2x", "0xx", "6xx", "20xx", "99", "600", "ok", "-200", "1", "+2xx",
        ] {
            assert!(statuses(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hashes_as_sha256sum_prints_them() {
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852B855";
        let hash = sha256(text).unwrap();
        assert_eq!((hash[0], hash[1], hash[31]), (0xe3, 0xb0, 0x55));
        for text in ["", &text[1..], &text.replace('e', "g"), &"ä".repeat(32)] {
            assert!(sha256(text).is_err(), "{text}");
        }
    }
}
