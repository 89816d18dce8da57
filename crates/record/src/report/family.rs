//! Number formats of the tools whose forms are printed: wrk's units, Go's durations. Exactly theirs,
//! with their digits, so that scripts written for those tools read what they expect.

use std::time::Duration;

/// wrk's `format_units`: scales while the amount is at least 0.85 of the step, two decimals. As in
/// wrk the largest unit of each table is never reached.
fn wrk_units(amount: f64, step: f64, base: &str, units: &[&str], decimals: usize) -> String {
    let (mut amount, mut unit) = (amount, base);
    for next in &units[..units.len().saturating_sub(1)] {
        if amount < step * 0.85 {
            break;
        }
        amount /= step;
        unit = next;
    }
    format!("{amount:.decimals$}{unit}")
}

/// wrk's `format_time_us`: `2.57ms`, `30.01s`, `1.50m`.
pub(super) fn wrk_time_us(us: f64) -> String {
    if us >= 1_000_000.0 {
        return wrk_units(us / 1_000_000.0, 60.0, "s", &["m", "h"], 2);
    }
    wrk_units(us, 1000.0, "us", &["ms", "s"], 2)
}

/// wrk's `format_time_s`, of whole seconds: `30s`, `2m`.
pub(super) fn wrk_time_s(seconds: f64) -> String {
    wrk_units(seconds, 60.0, "s", &["m", "h"], 0)
}

/// wrk's `format_binary`: `850.77K`.
pub(super) fn wrk_binary(bytes: f64) -> String {
    wrk_units(bytes, 1024.0, "", &["K", "M", "G", "T", "P"], 2)
}

/// wrk's `format_metric`: `1.67k`.
pub(super) fn wrk_metric(amount: f64) -> String {
    wrk_units(amount, 1000.0, "", &["k", "M", "G", "T", "P"], 2)
}

/// wrk's `print_units`: right-aligned so that numbers stand below each other whatever the length of
/// their units.
pub(super) fn wrk_padded(text: &str, width: usize) -> String {
    let letters = |back: usize| {
        let index = text.len().checked_sub(back);
        index.is_some_and(|index| text.as_bytes()[index].is_ascii_alphabetic())
    };
    let pad = 2 - usize::from(letters(1)) - usize::from(letters(2));
    let width = width.saturating_sub(pad);
    let mut shown = format!("{text:>width$}");
    shown.truncate(width.max(1));
    shown + &" ".repeat(pad)
}

/// Go's `Duration.String`: `1m2.5s`, `145.082ms`, `97µs`.
pub(super) fn go_duration(ns: u64) -> String {
    let (hours, minutes) = (ns / 3_600_000_000_000, ns / 60_000_000_000 % 60);
    let seconds = (ns % 60_000_000_000) as f64 / 1e9;
    match (ns, hours, minutes) {
        (0, ..) => "0s".to_owned(),
        (_, 0, 0) => format!("{:?}", Duration::from_nanos(ns)), // the same form as Go's
        (_, 0, minutes) => format!("{minutes}m{seconds}s"),
        (_, hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// vegeta's `round`: to the unit below the largest one that the duration has.
pub(super) fn go_rounded(ns: u64) -> String {
    const UNITS_NS: [u64; 6] = [
        3_600_000_000_000,
        60_000_000_000,
        1_000_000_000,
        1_000_000,
        1_000,
        1,
    ];
    let found = UNITS_NS.iter().position(|&unit_ns| ns >= unit_ns);
    let below = found.and_then(|index| UNITS_NS.get(index + 1));
    let rounded = match below {
        Some(&unit_ns) => ns.saturating_add(unit_ns / 2) / unit_ns * unit_ns,
        None => ns,
    };
    go_duration(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_scale_as_in_wrk() {
        let table = [
            (97.0, "97.00us"),
            (849.0, "849.00us"),
            (850.0, "0.85ms"),
            (2570.0, "2.57ms"),
            (900_000.0, "900.00ms"),
            (30_010_000.0, "30.01s"),
            (90_000_000.0, "1.50m"),
            (7_200_000_000.0, "120.00m"),
        ];
        for (us, text) in table {
            assert_eq!(wrk_time_us(us), text);
        }
        assert_eq!(wrk_time_s(30.0), "30s");
        assert_eq!(wrk_time_s(60.0), "1m");
        assert_eq!(wrk_binary(870_000.0), "849.61K");
        assert_eq!(wrk_binary(871_188.0), "850.77K");
        assert_eq!(wrk_binary(900_000.0), "0.86M");
        assert_eq!(wrk_metric(1670.0), "1.67k");
        assert_eq!(wrk_metric(802.19), "802.19");
    }

    #[test]
    fn numbers_stand_below_each_other() {
        assert_eq!(wrk_padded("2.57ms", 8), "  2.57ms");
        assert_eq!(wrk_padded("802.19", 8), "802.19  ");
        assert_eq!(wrk_padded("1.67k", 9), "   1.67k ");
    }

    #[test]
    fn durations_as_go_writes_them() {
        let table = [
            (0, "0s", "0s"),
            (7, "7ns", "7ns"),
            (97_000, "97µs", "97µs"),
            (1_234_567, "1.234567ms", "1.235ms"),
            (145_082_066, "145.082066ms", "145.082ms"),
            (10_094_965_987, "10.094965987s", "10.095s"),
            (62_500_000_000, "1m2.5s", "1m3s"),
            (60_000_000_001, "1m0.000000001s", "1m0s"),
            (119_999_999_999, "1m59.999999999s", "2m0s"),
            (3_661_000_000_000, "1h1m1s", "1h1m0s"),
        ];
        for (ns, exact, rounded) in table {
            assert_eq!(go_duration(ns), exact);
            assert_eq!(go_rounded(ns), rounded);
        }
    }
}
