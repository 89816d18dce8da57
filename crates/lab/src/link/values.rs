//! Bandwidths and shares as people write them.

use loadline_spec::ValueError;
use loadline_spec::values::{decimal, split_unit};

/// In powers of 1000, as networks are rated.
const UNITS: [(&str, f64); 4] = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
/// A full packet then takes twelve seconds.
const BPS_MIN: f64 = 1e3;
/// Beyond it, the relay is the limit and not the link.
const BPS_MAX: f64 = 1e9;
/// Beyond it, TCP carries nothing that could be measured.
const LOSS_MAX: f64 = 0.5;

/// `2Mbit`, `2Mbit/s` or `2Mbps`; `None`: `unlimited`.
pub(super) fn bandwidth(text: &str) -> Result<Option<u64>, ValueError> {
    const RIGHT: &str = "1kbit to 1Gbit, or unlimited";
    if text == "unlimited" {
        return Ok(None);
    }
    let (number, unit) = split_unit(text);
    let unit = unit.to_ascii_lowercase().replace("bps", "bit");
    let unit = unit.strip_suffix("/s").unwrap_or(&unit);
    let unit = UNITS.iter().find(|(name, _)| *name == unit);
    let bps = unit.and_then(|(_, unit)| Some(decimal(number)? * unit));
    match bps {
        None => Err(ValueError::new("not a bandwidth", RIGHT)),
        Some(bps) if (BPS_MIN..=BPS_MAX).contains(&bps) => Ok(Some(bps.round() as u64)),
        Some(_) => Err(ValueError::new("out of range", RIGHT)),
    }
}

/// In the largest unit that it is a whole number of.
pub(super) fn bandwidth_text(bps: u64) -> String {
    const NAMES: [(&str, u64); 3] = [("Gbit", 1_000_000_000), ("Mbit", 1_000_000), ("kbit", 1000)];
    match NAMES.iter().find(|(_, unit)| bps.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bps / unit),
        None => format!("{bps}bit"),
    }
}

/// `1%`, or `0.01`, in whole millionths.
pub(super) fn share(text: &str) -> Result<f64, ValueError> {
    let millionths = match text.strip_suffix('%') {
        Some(percent) => decimal(percent).map(|percent| percent * 1e4),
        None => decimal(text).map(|share| share * 1e6),
    };
    match millionths.map(|millionths| millionths.round() / 1e6) {
        Some(share) if (0.0..=LOSS_MAX).contains(&share) => Ok(share),
        Some(_) => Err(ValueError::new("out of range", "0% to 50%")),
        None => Err(ValueError::new("not a share", "1%, or 0.01")),
    }
}

pub(super) fn share_text(share: f64) -> String {
    let percent = format!("{:.4}", share * 100.0);
    let percent = percent.trim_end_matches('0').trim_end_matches('.');
    format!("{percent}%")
}
