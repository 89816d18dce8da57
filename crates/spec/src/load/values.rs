//! Values of a load as people type them: rates, stairs, bursts, slow clients, addresses, CPUs.

mod machine;

pub use machine::{Cpus, Part, Pid, Seed, Sources, Watched};

use std::fmt;
use std::ops::Deref;

use loadline_base::choice;
use loadline_base::choices::Choice;

use crate::values::{Count, Size, SomeTime, decimal, split_unit};
use crate::{SpecError, ValueError};

/// Clients of any kind, at most. Each has a descriptor somewhere.
pub const CLIENTS_MAX: usize = 1 << 20;
/// The highest rate that can be asked for. Beyond it a slip of the unit is likelier.
const RATE_MAX: f64 = 10_000_000.0;

/// Requests per second, in millionths: `5000`, `20k`, `0.5`, `300/s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(f64);

impl Rate {
    /// The nearest rate that there is.
    #[must_use]
    pub fn clamped(per_s: f64) -> Self {
        Self(in_millionths(per_s.clamp(1e-6, RATE_MAX)))
    }
}

impl Deref for Rate {
    type Target = f64;

    fn deref(&self) -> &f64 {
        &self.0
    }
}

as_text!(
    Rate,
    |text| {
        match rate_or_zero(text)? {
            0.0 => Err(ValueError::new(
                "nothing would be sent",
                "more than 0 a second",
            )),
            rate => Ok(Self(rate)),
        }
    },
    |it, f| { show_decimal(it.0, 6, f) }
);

fn in_millionths(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

/// With as many digits behind the point as are needed, and `digits` at most.
fn show_decimal(number: f64, digits: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let text = format!("{number:.digits$}");
    f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
}

fn rate_or_zero(text: &str) -> Result<f64, ValueError> {
    const RIGHT: &str = "requests a second: 5000, 20k or 0.5";
    let (number, unit) = split_unit(text.strip_suffix("/s").unwrap_or(text));
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        _ if number.is_empty() => return Err(ValueError::new("not a rate", RIGHT)),
        _ => return Err(ValueError::new(format!("unknown unit '{unit}'"), RIGHT)),
    };
    let number = decimal(number).ok_or_else(|| ValueError::new("not a rate", RIGHT))?;
    match number * factor {
        rate if rate <= RATE_MAX => Ok(in_millionths(rate)),
        _ => Err(ValueError::new("out of range", "at most 10M a second")),
    }
}

/// A rate that moves in a straight line: `100..2500`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// Requests a second at the begin; may be 0.
    pub from: f64,
    /// Requests a second at the end; may be 0.
    pub to: f64,
}

as_text!(
    Ramp,
    |text| {
        const RIGHT: &str = "FROM..TO in requests a second, 100..2500 say";
        let ends = text.split_once("..");
        let (from, to) = ends.ok_or_else(|| ValueError::new("not a ramp", RIGHT))?;
        let (from, to) = (rate_or_zero(from)?, rate_or_zero(to)?);
        match from.max(to) {
            0.0 => Err(ValueError::new("nothing would be sent", RIGHT)),
            _ => Ok(Self { from, to }),
        }
    },
    |it, f| { write!(f, "{}..{}", Shown(it.from), Shown(it.to)) }
);

/// A rate that may be 0, as text.
pub(super) struct Shown(pub(super) f64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_decimal(self.0, 6, f)
    }
}

/// Periods of load and of quiet, by turns: `1s/4s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// With load.
    pub on: SomeTime,
    /// Without.
    pub off: SomeTime,
}

as_text!(
    Burst,
    |text| {
        let periods = text.split_once('/');
        let (on, off) =
            periods.ok_or_else(|| ValueError::new("not a burst", "ON/OFF, 1s/4s say"))?;
        Ok(Self {
            on: on.parse()?,
            off: off.parse()?,
        })
    },
    |it, f| { write!(f, "{}/{}", it.on, it.off) }
);

/// Bytes a second: `10KB/s`, `1B/s`, in powers of 1024 as sizes are.
fn byte_rate(text: &str) -> Result<u64, ValueError> {
    const RIGHT: &str = "bytes a second: 10B/s, 10KB/s or 1MB/s";
    let wrong = || ValueError::new("not a speed", RIGHT);
    let amount = text.strip_suffix("/s").ok_or_else(wrong)?;
    match amount.parse::<Size>().as_deref() {
        Ok(0) => Err(ValueError::new("nothing would ever move", RIGHT)),
        Ok(bytes) => Ok(*bytes),
        Err(_) => Err(wrong()),
    }
}

/// Clients of one kind, each at a speed: `200@10KB/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowGroup {
    /// How many.
    pub count: u64,
    /// Bytes a second of each.
    pub bytes_per_second: u64,
}

as_text!(
    SlowGroup,
    |text| {
        let parts = text.split_once('@');
        let (count, speed) = parts.ok_or_else(|| {
            ValueError::new("the speed is missing", "COUNT@SPEED, 200@10KB/s say")
        })?;
        let count: Count<1, CLIENTS_MAX> = count.parse()?;
        Ok(Self {
            count: *count as u64,
            bytes_per_second: byte_rate(speed)?,
        })
    },
    |it, f| { write!(f, "{}@{}B/s", it.count, it.bytes_per_second) }
);

/// Bits a second, as video is rated: `5Mbps`, `800kbps`; in powers of 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitRate(pub u64);

as_text!(
    BitRate,
    |text| {
        const RIGHT: &str = "800kbps or 5Mbps";
        let wrong = || ValueError::new("not a bit rate", RIGHT);
        let (number, unit) = split_unit(text);
        let factor = match unit.to_ascii_lowercase().as_str() {
            "bps" | "bit/s" => 1.0,
            "kbps" | "kbit/s" => 1e3,
            "mbps" | "mbit/s" => 1e6,
            "gbps" | "gbit/s" => 1e9,
            "" if !number.is_empty() => {
                return Err(ValueError::new(
                    "the unit is missing",
                    format!("{number}Mbps"),
                ));
            }
            _ => return Err(wrong()),
        };
        match decimal(number).ok_or_else(wrong)? * factor {
            bits if bits < 1000.0 => Err(ValueError::new("too slow for any video", RIGHT)),
            bits if bits > 1e11 => Err(ValueError::new("too fast", RIGHT)),
            bits => Ok(Self(bits as u64)),
        }
    },
    |it, f| { write!(f, "{}bps", it.0) }
);

/// The factor for the times of a log: `1`, `0.1`, `2.5`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeScale(pub f64);

as_text!(
    TimeScale,
    |text| {
        match decimal(text) {
            Some(scale) if (0.000_001..=1000.0).contains(&scale) => Ok(Self(scale)),
            Some(_) => Err(ValueError::new("out of range", "0.000001 to 1000")),
            None => Err(ValueError::new(
                "not a factor",
                "1 for the log's own times, 0.1 for ten times as fast",
            )),
        }
    },
    |it, f| { show_decimal(it.0, 9, f) }
);

choice! {
    /// How arrivals are spread around the rate.
    Arrivals {
        /// Independent of each other, as many users are: gaps are exponential.
        Poisson "poisson",
        /// Evenly spaced.
        Constant "constant",
    }
}

choice! {
    /// Whose schedule the requests of an open loop have.
    ScheduleOf {
        /// All connections have one: what is due takes any that is free.
        Shared "shared",
        /// Each connection has its own: what is due on one waits for it alone.
        PerConnection "per-connection",
    }
}

choice! {
    /// What happens to a request that is due while no connection is free.
    Overflow {
        /// It waits; its latency counts from when it was due.
        Queue "queue",
        /// It is dropped, and counted as such.
        Drop "drop",
    }
}

choice! {
    /// How a TLS connection gets its keys.
    KeyExchange {
        /// X25519 and ML-KEM-768 together: a quantum computer cannot read it later.
        X25519Mlkem768 "x25519mlkem768",
        /// X25519.
        X25519 "x25519",
        /// The curve P-256.
        P256 "p256",
        /// The curve P-384.
        P384 "p384",
    }
}

choice! {
    /// What encrypts a connection of TLS 1.3.
    Cipher {
        /// AES-128-GCM.
        Aes128Gcm "aes-128-gcm",
        /// AES-256-GCM.
        Aes256Gcm "aes-256-gcm",
        /// ChaCha20-Poly1305.
        ChaCha20Poly1305 "chacha20-poly1305",
    }
}

choice! {
    /// Versions of HTTP.
    HttpVersion {
        /// HTTP/1.0.
        Http10 "1.0",
        /// HTTP/1.1.
        Http11 "1.1",
        /// HTTP/2; by an option of its own.
        Http2 "2",
        /// HTTP/3; foreseen.
        Http3 "3",
    }
}

/// One of a closed set, by its name.
fn named<T: Choice>(text: &str) -> Result<T, ValueError> {
    let found = T::CHOICES.iter().find(|choice| choice.text() == text);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = T::CHOICES.iter().map(|choice| choice.text()).collect();
        ValueError::new("unknown", names.join(" or "))
    })
}

as_text!(Arrivals, named, |it, f| f.write_str(it.name()));
as_text!(ScheduleOf, named, |it, f| f.write_str(it.name()));
as_text!(Overflow, named, |it, f| f.write_str(it.name()));
as_text!(KeyExchange, named, |it, f| f.write_str(it.name()));
as_text!(Cipher, named, |it, f| f.write_str(it.name()));
as_text!(HttpVersion, named, |it, f| f.write_str(it.name()));

impl HttpVersion {
    /// Whether clients speak it.
    ///
    /// # Errors
    /// Not yet.
    pub fn check_supported(self) -> Result<(), SpecError> {
        match self {
            Self::Http10 | Self::Http11 => Ok(()),
            Self::Http2 => {
                let problem = "HTTP/2 has an option of its own";
                Err(SpecError::new("http", problem, "--http2").with_value(self))
            }
            Self::Http3 => {
                let problem = format!("HTTP/{self} is not supported yet");
                Err(SpecError::new("http", problem, "1.1, 1.0 or --http2").with_value(self))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::tests::refused;
    use crate::load::Steps;

    #[test]
    fn rates() {
        for (text, right) in [
            ("5000", 5000.0),
            ("20k", 20_000.0),
            ("0.5", 0.5),
            ("300/s", 300.0),
            ("1.5k/s", 1500.0),
            ("10M", 10e6),
        ] {
            assert_eq!(text.parse::<Rate>(), Ok(Rate(right)), "{text}");
        }
        refused::<Rate>(&[
            ("0", "nothing would be sent"),
            ("0.0", "nothing would be sent"),
            ("", "not a rate"),
            ("-5", "not a rate"),
            ("5x", "unknown unit 'x'"),
            ("5/m", "unknown unit '/m'"),
            ("fast", "not a rate"),
            ("11M", "out of range"),
            ("1e5", "unknown unit"),
            ("99999999999999999999", "not a rate"),
        ]);
    }

    #[test]
    fn shapes_of_load() {
        let (from, to, by) = (100.0, 2500.0, 100.0);
        assert_eq!("100..2.5k/100".parse(), Ok(Steps { from, to, by }));
        refused::<Steps>(&[
            ("100..2500", "100..2500/100"),
            ("100/10", "FROM..TO/STEP"),
            ("100..2500/0", "nothing would be sent"),
            ("0..2500/100", "nothing would be sent"),
            ("1..1M/1", "steps"),
        ]);
        let (from, to) = (0.0, 1000.0);
        assert_eq!("0..1k".parse(), Ok(Ramp { from, to }));
        refused::<Ramp>(&[("0..0", "nothing would be sent"), ("100", "FROM..TO")]);
        let (on, off) = ("1s".parse().unwrap(), "4s".parse().unwrap());
        assert_eq!("1s/4s".parse(), Ok(Burst { on, off }));
        refused::<Burst>(&[
            ("1s", "ON/OFF"),
            ("1s/4", "unit is missing"),
            ("0s/4s", "too short"),
        ]);
    }

    #[test]
    fn slow_clients_and_their_speeds() {
        let group = SlowGroup {
            count: 200,
            bytes_per_second: 10 << 10,
        };
        assert_eq!("200@10KB/s".parse(), Ok(group));
        assert_eq!("5@1B/s".parse::<SlowGroup>().unwrap().bytes_per_second, 1);
        refused::<SlowGroup>(&[
            ("200", "the speed is missing"),
            ("0@1B/s", "out of range"),
            ("2@0B/s", "nothing would ever move"),
            ("2@10", "not a speed"),
            ("2@10Kbit/s", "not a speed"),
            ("@10B/s", "not a number"),
        ]);
        assert_eq!("5Mbps".parse(), Ok(BitRate(5_000_000)));
        assert_eq!("0.8mbit/s".parse(), Ok(BitRate(800_000)));
        refused::<BitRate>(&[
            ("5", "5Mbps"),
            ("5MB/s", "not a bit rate"),
            ("0Mbps", "too slow"),
        ]);
    }

    #[test]
    fn factors_of_time() {
        assert_eq!("0.1".parse(), Ok(TimeScale(0.1)));
        refused::<TimeScale>(&[("0", "out of range"), ("fast", "not a factor")]);
    }
}
