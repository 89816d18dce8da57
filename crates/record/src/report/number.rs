//! How numbers look: three or four significant digits, the unit beside them, exact counts exact.

/// A time given in microseconds: `97 us`, `2.35 ms`, `12.3 s`, with three significant digits.
#[must_use]
pub fn time_us(us: f64) -> String {
    scaled(us, 1000.0, &["us", "ms", "s"])
}

/// Whole microseconds as `time_us`, `-` where there are none.
#[must_use]
pub fn maybe_us(us: Option<u64>) -> String {
    us.map_or_else(|| "-".to_owned(), |us| time_us(us as f64))
}

/// A span of seconds as people say it: `10 s`, `1 min 30 s`, `2 h 5 min`.
#[must_use]
pub fn span_s(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{} s", significant(seconds, 3));
    }
    let whole = seconds.round() as u64;
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
    match (hours, minutes, rest) {
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, rest) => format!("{minutes} min {rest} s"),
        (hours, 0, _) => format!("{hours} h"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Bytes in powers of 1024: `312 B`, `6.81 MiB`.
#[must_use]
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// A rate with four significant digits, without a prefix, so that a script can read it: `20,120`.
#[must_use]
pub fn rate(per_second: f64) -> String {
    grouped_decimal(&significant(per_second, 4))
}

/// A share as a percentage with three significant digits; never `100 %` nor `0 %` unless it is
/// exactly that.
#[must_use]
pub fn percent(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return "-".to_owned();
    }
    let share = part / whole * 100.0;
    let text = significant(share, 3);
    if text == "100" && part < whole {
        return "99.9+ %".to_owned();
    }
    if share > 0.0 && share < 0.001 {
        return "<0.001 %".to_owned();
    }
    format!("{text} %")
}

/// A count, exact: `19,980`.
#[must_use]
pub fn count(count: u64) -> String {
    grouped(&count.to_string())
}

/// Three significant digits and a metric prefix, where there is little room: `19.9k`.
#[must_use]
pub fn short(value: f64) -> String {
    if value < 999.5 {
        return significant(value, 3);
    }
    scaled(value, 1000.0, &["", "k", "M", "G"]).replace(' ', "")
}

/// A number with `digits` significant digits; whole numbers that fit stay whole.
#[must_use]
pub fn significant(value: f64, digits: u32) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let whole_max = 10_f64.powi(i32::try_from(digits).unwrap_or(3));
    if value.fract() == 0.0 && value.abs() < whole_max {
        return format!("{value:.0}");
    }
    let magnitude = value.abs().max(f64::MIN_POSITIVE).log10().floor() as i32;
    // Very small numbers stop at a thousandth of what three digits of 1 show.
    let decimals = i32::try_from(digits).unwrap_or(3) - 1 - magnitude;
    let step = 10_f64.powi(-decimals);
    let rounded = (value / step).round() * step;
    let decimals = decimals.clamp(0, 6) as usize;
    let text = format!("{rounded:.decimals$}");
    // Rounding may have gained a digit: 9.996 is 10.0, not 10.00.
    let shown = text.bytes().filter(u8::is_ascii_digit).count();
    match decimals > 0 && value.abs() >= 1.0 && shown > digits as usize {
        true => format!("{rounded:.*}", decimals - 1),
        false => text,
    }
}

/// Scales by `step` until the number is below it, and puts the unit behind.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut amount = value;
    let mut index = 0;
    // What rounds to the next unit is shown in it: 999.7 us is 1.00 ms.
    while index + 1 < units.len() && amount.abs() >= step - 0.5 {
        amount /= step;
        index += 1;
    }
    let text = match index {
        0 => significant(amount, 3),
        _ => padded(amount),
    };
    format!("{text} {}", units[index]).trim_end().to_owned()
}

/// Three significant digits, always: `1.00`, `12.0`, `123`.
fn padded(value: f64) -> String {
    match value.abs() {
        small if small < 9.995 => format!("{value:.2}"),
        middle if middle < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn grouped_decimal(text: &str) -> String {
    match text.split_once('.') {
        Some((whole, rest)) => format!("{}.{rest}", grouped(whole)),
        None => grouped(text),
    }
}

/// Digits with commas between thousands.
#[must_use]
pub fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let table = [
            (0.0, "0 us"),
            (1.0, "1 us"),
            (4.216, "4.22 us"),
            (97.0, "97 us"),
            (999.0, "999 us"),
            (999.7, "1.00 ms"),
            (1000.0, "1.00 ms"),
            (2350.4, "2.35 ms"),
            (12_345.0, "12.3 ms"),
            (99_960.0, "100 ms"),
            (999_900.0, "1.00 s"),
            (61_000_000.0, "61.0 s"),
            (600_000_000.0, "600 s"),
        ];
        for (us, text) in table {
            assert_eq!(time_us(us), text);
        }
    }

    #[test]
    fn spans_are_said_as_people_do() {
        let table = [
            (10.0, "10 s"),
            (0.25, "0.250 s"),
            (59.99, "60.0 s"),
            (60.0, "1 min"),
            (90.2, "1 min 30 s"),
            (3600.0, "1 h"),
            (7500.0, "2 h 5 min"),
        ];
        for (seconds, text) in table {
            assert_eq!(span_s(seconds), text);
        }
    }

    #[test]
    fn rates_and_counts_can_be_read_by_scripts_without_their_commas() {
        let table = [
            (0.0, "0"),
            (0.125, "0.1250"),
            (19.987, "19.99"),
            (1998.0, "1,998"),
            (9999.6, "10,000"),
            (20_123.4, "20,120"),
            (1_234_567.0, "1,235,000"),
        ];
        for (per_second, text) in table {
            assert_eq!(rate(per_second), text);
        }
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn nearly_all_is_not_all_and_nearly_nothing_is_not_nothing() {
        assert_eq!(percent(1.0, 0.0), "-");
        assert_eq!(percent(0.0, 5.0), "0 %");
        assert_eq!(percent(5.0, 5.0), "100 %");
        assert_eq!(percent(999_999.0, 1_000_000.0), "99.9+ %");
        assert_eq!(percent(1.0, 1_000.0), "0.100 %");
        assert_eq!(percent(1.0, 1_000_000_000.0), "<0.001 %");
        assert_eq!(percent(41.04, 100.0), "41.0 %");
    }

    #[test]
    fn bytes_and_short_numbers() {
        assert_eq!(bytes(312.0), "312 B");
        assert_eq!(bytes(1024.0), "1.00 KiB");
        assert_eq!(bytes(7_140_000.0), "6.81 MiB");
        assert_eq!(short(7.0), "7");
        assert_eq!(short(999.6), "1.00k");
        assert_eq!(short(19_900.0), "19.9k");
        assert_eq!(significant(9.996, 3), "10.0");
        assert_eq!(significant(f64::NAN, 3), "-");
    }

    fn read(text: &str) -> f64 {
        let number = text.split(' ').next().unwrap_or_default().replace(',', "");
        number.parse().unwrap()
    }

    proptest! {
        #[test]
        fn no_more_than_four_digits_and_no_less_true_than_three(us in 0.001_f64..1e9) {
            let text = time_us(us);
            let factor = match text.split(' ').nth(1) {
                Some("us") => 1.0,
                Some("ms") => 1e3,
                _ => 1e6,
            };
            prop_assert!((read(&text) * factor - us).abs() <= us * 0.0051, "{us}: {text}");
            let digits = text.bytes().filter(u8::is_ascii_digit);
            let leading = text.bytes().take_while(|byte| matches!(byte, b'0' | b'.'));
            let leading = leading.filter(u8::is_ascii_digit);
            prop_assert!(us >= 1e9 || digits.count() - leading.count() <= 4, "{text}");
        }

        #[test]
        fn rates_are_true_to_four_digits(per_second in 0.001_f64..1e9) {
            let text = rate(per_second);
            prop_assert!((read(&text) - per_second).abs() <= per_second * 0.00051, "{text}");
        }

        #[test]
        fn shares_are_never_rounded_to_all_or_nothing(part in 0_u64..1_000_000, more in 0_u64..1_000_000) {
            let text = percent(part as f64, (part + more) as f64);
            prop_assert_eq!(text == "100 %", part > 0 && more == 0);
            prop_assert_eq!(text == "0 %", part == 0 && more > 0);
        }
    }
}
