//! Numbers, factors and levels as people read them.

use loadline_record::report::number::grouped;

use crate::analysis::Unit;
use crate::journal::{Level, Levels};

/// A value with its unit, to four digits: "48,210/s", "12.3 ms", "1.2 %".
#[must_use]
pub fn value(value: f64, unit: Option<Unit>) -> String {
    match unit {
        None | Some(Unit::Count) => digits(value, 4),
        Some(Unit::PerSecond) => format!("{}/s", digits(value, 4)),
        Some(Unit::Share) => format!("{} %", digits(value * 100.0, 3)),
        Some(unit) => {
            let (scale, name) = unit.scale(value.abs());
            format!("{} {name}", digits(value / scale, 3))
        }
    }
}

/// A number with this number of significant digits, with commas between thousands; whole numbers are never cut.
#[must_use]
pub fn digits(value: f64, count: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32 + 1;
    let decimals = usize::try_from(count as i32 - magnitude)
        .unwrap_or(0)
        .min(9);
    let text = format!("{value:.decimals$}");
    let (sign, text) = text
        .strip_prefix('-')
        .map_or(("", text.as_str()), |it| ("−", it));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}", grouped(whole))
}

/// A ratio, with the zeros that say how exactly it is known: "1.00", "0.971", "12.3".
#[must_use]
pub fn ratio(ratio: f64) -> String {
    match ratio.abs() {
        small if small < 1.0 => format!("{ratio:.3}"),
        middle if middle < 10.0 => format!("{ratio:.2}"),
        _ => digits(ratio, 3),
    }
}

/// Words as a shell takes them.
#[must_use]
pub fn shell(command: &[String]) -> String {
    let quoted = command.iter().map(|word| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&byte);
        if !word.is_empty() && word.bytes().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Suffixes of factor names that are units, with how they are written. The longest come first.
const UNITS: [(&str, &str); 6] = [
    ("_per_s", "/s"),
    ("_bytes", "bytes"),
    ("_us", "µs"),
    ("_ms", "ms"),
    ("_ns", "ns"),
    ("_s", "s"),
];

/// Factors whose name says less than it should.
const NAMES: [(&str, &str); 6] = [
    ("service_us", "Service time"),
    ("rate_per_s", "Offered rate"),
    ("file_bytes", "File size"),
    ("cpus", "CPUs"),
    ("socket_io", "Socket I/O"),
    ("file_io", "File I/O"),
];

/// Name of a factor and its unit: `service_us` is "Service time" in "µs".
#[must_use]
pub fn factor(name: &str) -> (String, Option<&'static str>) {
    let unit = UNITS.iter().find(|(suffix, _)| name.ends_with(suffix));
    let stem = unit.map_or(name, |(suffix, _)| &name[..name.len() - suffix.len()]);
    let known = NAMES.iter().find(|(known, _)| *known == name);
    let label = known.map_or_else(
        || capital(&stem.replace('_', " ")),
        |(_, it)| (*it).to_owned(),
    );
    (label, unit.map(|(_, unit)| *unit))
}

/// The same with the unit behind it: "Service time (µs)".
#[must_use]
pub fn factor_with_unit(name: &str) -> String {
    match factor(name) {
        (label, Some(unit)) => format!("{label} ({unit})"),
        (label, None) => label,
    }
}

/// A level with what it is of: "service time 200 µs", "reactor".
#[must_use]
pub fn level_of(name: &str, level: &Level) -> String {
    match level {
        Level::Text(text) if text == "on" || text == "off" => {
            format!("{} {text}", factor(name).0.to_lowercase())
        }
        Level::Text(text) => text.clone(),
        Level::Number(number) => {
            let (label, unit) = factor(name);
            let label = if label == "CPUs" {
                label
            } else {
                label.to_lowercase()
            };
            let number = digits(*number, 6);
            match unit {
                Some("/s") => format!("{label} {number}/s"),
                Some(unit) => format!("{label} {number} {unit}"),
                None => format!("{label} {number}"),
            }
        }
    }
}

/// A level alone.
#[must_use]
pub fn level(level: &Level) -> String {
    match level {
        Level::Text(text) => text.clone(),
        Level::Number(number) => digits(*number, 6),
    }
}

/// All levels of a cell.
#[must_use]
pub fn levels(levels: &Levels) -> String {
    let all = levels.iter().map(|(name, level)| level_of(name, level));
    all.collect::<Vec<_>>().join(", ")
}

/// With a capital at its begin.
#[must_use]
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + chars.as_str()
    })
}

/// A list: "a, b and c".
#[must_use]
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

/// "1 trial", "2 trials".
#[must_use]
pub fn count(count: usize, one: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {one}{s}", digits(count as f64, 9))
}

/// Fit for file names and fragments.
#[must_use]
pub fn slug(text: &str) -> String {
    let parts = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("-").to_ascii_lowercase()
}

/// Text for between tags and within attributes.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            // XML has no way to say these.
            c if c.is_control() && c != '\n' && c != '\t' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_units_and_no_needless_digits() {
        let table = [
            (48_210.4, Some(Unit::PerSecond), "48,210/s"),
            (1_234_567.0, Some(Unit::PerSecond), "1,234,567/s"),
            (12_345.0, Some(Unit::Microseconds), "12.3 ms"),
            (0.5, Some(Unit::Microseconds), "0.5 µs"),
            (0.0123, Some(Unit::Share), "1.23 %"),
            (3.5 * 1024.0 * 1024.0, Some(Unit::Bytes), "3.5 MiB"),
            (2.5e6, Some(Unit::BytesPerSecond), "2.5 MB/s"),
            (0.0, Some(Unit::PerSecond), "0/s"),
            (-1.5, None, "−1.5"),
            (16.0, Some(Unit::Count), "16"),
        ];
        for (number, unit, text) in table {
            assert_eq!(value(number, unit), text);
        }
    }

    #[test]
    fn factors_have_their_units() {
        assert_eq!(factor_with_unit("service_us"), "Service time (µs)");
        assert_eq!(factor_with_unit("rate_per_s"), "Offered rate (/s)");
        assert_eq!(factor_with_unit("loops"), "Loops");
        assert_eq!(
            level_of("service_us", &Level::Number(200.0)),
            "service time 200 µs"
        );
        assert_eq!(level_of("architecture", &Level::from("reactor")), "reactor");
        assert_eq!(
            level_of("keep_alive", &Level::from("off")),
            "keep alive off"
        );
        assert_eq!(slug("P1: Fig. 20"), "p1-fig-20");
    }
}
