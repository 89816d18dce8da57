//! Values of `loadline load` as people type them: rates, stairs, bursts, slow clients, addresses, CPUs.
//!
//! As in `values`, every refusal says what would be right; whoever prints it adds the option's name.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use loadline_load::run::PROCESSES_MAX;
use loadline_load::schedule::Steps;

use super::values::{decimal, duration, size, split_unit};

/// The highest rate that can be asked for. Beyond it a slip of the unit is likelier.
const RATE_MAX: f64 = 10_000_000.0;
/// Source addresses that a list may name.
const SOURCES_MAX: usize = 1 << 16;
/// CPUs that a list may name: as many as Linux can be built for.
const CPU_MAX: usize = 8191;

/// Requests per second: `5000`, `20k`, `0.5`, `300/s`.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    match rate_or_zero(text)? {
        0.0 => Err("nothing would be sent; right would be more than 0 a second".to_owned()),
        rate => Ok(rate),
    }
}

fn rate_or_zero(text: &str) -> Result<f64, String> {
    const RIGHT: &str = "right would be requests a second: 5000, 20k or 0.5";
    let (number, unit) = split_unit(text.strip_suffix("/s").unwrap_or(text));
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        _ if number.is_empty() => return Err(format!("not a rate; {RIGHT}")),
        _ => return Err(format!("unknown unit '{unit}'; {RIGHT}")),
    };
    let number = decimal(number).ok_or_else(|| format!("not a rate; {RIGHT}"))?;
    match number * factor {
        rate if rate <= RATE_MAX => Ok(rate),
        _ => Err("out of range; right would be at most 10M a second".to_owned()),
    }
}

/// A rate that moves in a straight line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ramp {
    /// Requests a second at the begin; may be 0.
    pub(crate) from: f64,
    /// Requests a second at the end; may be 0.
    pub(crate) to: f64,
}

/// `100..2500`.
pub(crate) fn ramp(text: &str) -> Result<Ramp, String> {
    const RIGHT: &str = "right would be FROM..TO in requests a second, 100..2500 say";
    let (from, to) = text
        .split_once("..")
        .ok_or_else(|| format!("not a ramp; {RIGHT}"))?;
    let (from, to) = (rate_or_zero(from)?, rate_or_zero(to)?);
    match from.max(to) {
        0.0 => Err(format!("nothing would be sent; {RIGHT}")),
        _ => Ok(Ramp { from, to }),
    }
}

/// Rates one after the other: `100..2500/100`, or downwards.
pub(crate) fn steps(text: &str) -> Result<Steps, String> {
    const RIGHT: &str = "right would be FROM..TO/STEP in requests a second, 100..2500/100 say";
    let parts = text
        .rsplit_once('/')
        .and_then(|(span, step)| Some((span.split_once("..")?, step)));
    let Some(((from, to), step)) = parts else {
        return Err(format!("not steps; {RIGHT}"));
    };
    let steps = Steps {
        from: rate(from)?,
        to: rate(to)?,
        by: rate(step)?,
    };
    match steps.rates() {
        Ok(_) => Ok(steps),
        Err(why) => Err(format!("{why}; {RIGHT}")),
    }
}

/// Periods of load and of quiet, by turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    /// With load.
    pub(crate) on: Duration,
    /// Without.
    pub(crate) off: Duration,
}

/// `1s/4s`.
pub(crate) fn burst(text: &str) -> Result<Burst, String> {
    const RIGHT: &str = "right would be ON/OFF, 1s/4s say";
    let (on, off) = text
        .split_once('/')
        .ok_or_else(|| format!("not a burst; {RIGHT}"))?;
    Ok(Burst {
        on: some_time(on)?,
        off: some_time(off)?,
    })
}

/// The shortest stretch of time that is worth an option.
const TIME_LEAST: Duration = Duration::from_micros(1);

/// A duration of more than nothing.
pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time < TIME_LEAST => Err("too short; right would be at least 1us".to_owned()),
        time => Ok(time),
    }
}

/// The longest timeout: histograms end at ten minutes.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// A timeout or a deadline.
pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time < Duration::from_millis(1) => {
            Err("too short; right would be at least 1ms".to_owned())
        }
        time if time > TIMEOUT_MAX => Err("too long; right would be at most 10m".to_owned()),
        time => Ok(time),
    }
}

/// The length of a run or of a part of it that is measured.
pub(crate) fn run_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time < Duration::from_millis(10) => {
            Err("too short to measure anything; right would be at least 10ms".to_owned())
        }
        time => Ok(time),
    }
}

/// Bytes a second: `10KB/s`, `1B/s`, in powers of 1024 as sizes are.
pub(crate) fn byte_rate(text: &str) -> Result<u64, String> {
    const RIGHT: &str = "right would be bytes a second: 10B/s, 10KB/s or 1MB/s";
    let amount = text
        .strip_suffix("/s")
        .ok_or_else(|| format!("not a speed; {RIGHT}"))?;
    match size(amount) {
        Ok(0) => Err(format!("nothing would ever move; {RIGHT}")),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(format!("not a speed; {RIGHT}")),
    }
}

/// Clients of one kind, each at a speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlowGroup {
    /// How many.
    pub(crate) count: u64,
    /// At so many bytes a second.
    pub(crate) bytes_per_second: u64,
}

/// `200@10KB/s`.
pub(crate) fn slow_group(text: &str) -> Result<SlowGroup, String> {
    const RIGHT: &str = "right would be COUNT@SPEED, 200@10KB/s say";
    let (count, speed) = text
        .split_once('@')
        .ok_or_else(|| format!("the speed is missing; {RIGHT}"))?;
    let count = super::values::count_in(1..=CLIENTS_MAX)(count)?;
    Ok(SlowGroup {
        count: count as u64,
        bytes_per_second: byte_rate(speed)?,
    })
}

/// Clients of any kind, at most. Each has a descriptor somewhere.
pub(crate) const CLIENTS_MAX: usize = 1 << 20;

/// Bits a second, as video is rated: `5Mbps`, `800kbps`; in powers of 1000.
pub(crate) fn bit_rate(text: &str) -> Result<u64, String> {
    const RIGHT: &str = "right would be 800kbps or 5Mbps";
    let (number, unit) = split_unit(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "bps" | "bit/s" => 1.0,
        "kbps" | "kbit/s" => 1e3,
        "mbps" | "mbit/s" => 1e6,
        "gbps" | "gbit/s" => 1e9,
        "" if !number.is_empty() => {
            return Err(format!("the unit is missing; right would be {number}Mbps"));
        }
        _ => return Err(format!("not a bit rate; {RIGHT}")),
    };
    let number = decimal(number).ok_or_else(|| format!("not a bit rate; {RIGHT}"))?;
    match number * factor {
        bits if bits < 1000.0 => Err(format!("too slow for any video; {RIGHT}")),
        bits if bits > 1e11 => Err(format!("too fast; {RIGHT}")),
        bits => Ok(bits as u64),
    }
}

/// What the times of a log are multiplied by: `1`, `0.1`, `2.5`.
pub(crate) fn time_scale(text: &str) -> Result<f64, String> {
    match decimal(text) {
        Some(scale) if (0.000_001..=1000.0).contains(&scale) => Ok(scale),
        Some(_) => Err("out of range; right would be 0.000001 to 1000".to_owned()),
        None => Err(
            "not a factor; right would be 1 for the log's own times, 0.1 for ten times as \
                     fast"
                .to_owned(),
        ),
    }
}

/// Source addresses: `127.0.0.2-127.0.0.9`, `10.0.0.5,10.0.0.6`.
pub(crate) fn sources(text: &str) -> Result<Vec<IpAddr>, String> {
    const RIGHT: &str = "right would be 127.0.0.2-127.0.0.9 or a list with commas";
    let mut found = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            None => found.push(
                part.parse()
                    .map_err(|_| format!("not an address; {RIGHT}"))?,
            ),
            Some((first, last)) => {
                let number = |text: &str| text.parse::<Ipv4Addr>().map(u32::from);
                let (Ok(first), Ok(last)) = (number(first), number(last)) else {
                    return Err(format!("not a range of IPv4 addresses; {RIGHT}"));
                };
                if first > last {
                    return Err(format!("the range goes downwards; {RIGHT}"));
                }
                if (last - first) as usize >= SOURCES_MAX - found.len() {
                    return Err(format!(
                        "too many; right would be at most {SOURCES_MAX} addresses"
                    ));
                }
                found.extend((first..=last).map(|number| IpAddr::V4(number.into())));
            }
        }
    }
    Ok(found)
}

/// CPUs by number: `1`, `0,2-3`.
pub(crate) fn cpus(text: &str) -> Result<Vec<usize>, String> {
    const RIGHT: &str = "right would be CPU numbers: 1 or 0,2-3";
    let number = |text: &str| match text.parse::<usize>() {
        Ok(cpu) if cpu <= CPU_MAX => Ok(cpu),
        _ => Err(format!("not a CPU; {RIGHT}")),
    };
    let mut found = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("the range goes downwards; {RIGHT}"));
        }
        found.extend(first..=last);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// A process that is watched, under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watched {
    /// As it stands in results.
    pub(crate) name: String,
    /// The process; its children are watched with it.
    pub(crate) pid: u32,
}

/// `nginx=1234`.
pub(crate) fn watched(text: &str) -> Result<Watched, String> {
    const RIGHT: &str = "right would be NAME=PID, nginx=1234 say";
    let (name, number) = text
        .split_once('=')
        .ok_or_else(|| format!("the process is missing; {RIGHT}"))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return Err(format!("a name has letters, digits and -_. only; {RIGHT}"));
    }
    Ok(Watched {
        name: name.to_owned(),
        pid: pid(number)?,
    })
}

/// A process by its number.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(pid) if pid > 0 && pid <= 1 << 22 => Ok(pid),
        _ => Err("not a process; right would be its number, 1234 say".to_owned()),
    }
}

/// What repeats choices made at random.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!(
            "not a seed; right would be a whole number from 0 to {}",
            u64::MAX
        )
    })
}

/// Which part of a run a process has: `0/3`, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Which, from 0.
    pub(crate) index: u32,
    /// Of how many.
    pub(crate) of: u32,
}

/// `0/3`.
pub(crate) fn part(text: &str) -> Result<Part, String> {
    let wrong = || "right would be 0/2, say".to_owned();
    let (index, of) = text.split_once('/').ok_or_else(wrong)?;
    match (index.parse(), of.parse()) {
        (Ok(index), Ok(of)) if index < of && of <= PROCESSES_MAX as u32 => Ok(Part { index, of }),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(rate(text), Ok(right), "{text}");
        }
        for (text, part) in [
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
        ] {
            let message = rate(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn shapes_of_load() {
        assert_eq!(
            steps("100..2.5k/100"),
            Ok(Steps {
                from: 100.0,
                to: 2500.0,
                by: 100.0
            })
        );
        for (text, part) in [
            ("100..2500", "100..2500/100"),
            ("100/10", "FROM..TO/STEP"),
            ("100..2500/0", "nothing would be sent"),
            ("0..2500/100", "nothing would be sent"),
            ("1..1M/1", "steps"),
        ] {
            let message = steps(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
        let up = Ramp {
            from: 0.0,
            to: 1000.0,
        };
        assert_eq!(ramp("0..1k"), Ok(up));
        assert!(ramp("0..0").unwrap_err().contains("nothing would be sent"));
        assert!(ramp("100").unwrap_err().contains("FROM..TO"));
        let one_in_five = Burst {
            on: Duration::from_secs(1),
            off: Duration::from_secs(4),
        };
        assert_eq!(burst("1s/4s"), Ok(one_in_five));
        assert!(burst("1s").unwrap_err().contains("ON/OFF"));
        assert!(burst("1s/4").unwrap_err().contains("unit is missing"));
        assert!(burst("0s/4s").unwrap_err().contains("too short"));
    }

    #[test]
    fn slow_clients_and_their_speeds() {
        let group = SlowGroup {
            count: 200,
            bytes_per_second: 10 << 10,
        };
        assert_eq!(slow_group("200@10KB/s"), Ok(group));
        assert_eq!(slow_group("5@1B/s").unwrap().bytes_per_second, 1);
        for (text, part) in [
            ("200", "the speed is missing"),
            ("0@1B/s", "out of range"),
            ("2@0B/s", "nothing would ever move"),
            ("2@10", "not a speed"),
            ("2@10Kbit/s", "not a speed"),
            ("@10B/s", "not a number"),
        ] {
            let message = slow_group(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
        assert_eq!(bit_rate("5Mbps"), Ok(5_000_000));
        assert_eq!(bit_rate("0.8mbit/s"), Ok(800_000));
        assert!(bit_rate("5").unwrap_err().contains("5Mbps"));
        assert!(bit_rate("5MB/s").unwrap_err().contains("not a bit rate"));
        assert!(bit_rate("0Mbps").unwrap_err().contains("too slow"));
    }

    #[test]
    fn addresses_cpus_and_processes() {
        let range = sources("127.0.0.254-127.0.1.1,10.0.0.1").unwrap();
        let shown: Vec<String> = range.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "127.0.0.254",
                "127.0.0.255",
                "127.0.1.0",
                "127.0.1.1",
                "10.0.0.1"
            ]
        );
        assert_eq!(sources("::1").unwrap().len(), 1);
        for (text, part) in [
            ("127.0.0.9-127.0.0.2", "downwards"),
            ("127.0.0.2-9", "not a range"),
            ("localhost", "not an address"),
            ("127.0.0.0-127.255.0.0", "too many"),
            ("", "not an address"),
        ] {
            let message = sources(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
        assert_eq!(cpus("0,2-3,2"), Ok(vec![0, 2, 3]));
        assert!(cpus("3-1").unwrap_err().contains("downwards"));
        assert!(cpus("x").unwrap_err().contains("not a CPU"));
        assert_eq!(watched("nginx=12").unwrap().pid, 12);
        assert!(watched("12").unwrap_err().contains("NAME=PID"));
        assert!(watched("a b=12").unwrap_err().contains("letters"));
        assert!(watched("a=0").unwrap_err().contains("not a process"));
        assert_eq!(part("0/3"), Ok(Part { index: 0, of: 3 }));
        assert!(part("3/3").is_err() && part("1").is_err());
    }

    #[test]
    fn times_with_bounds() {
        assert!(some_time("0").unwrap_err().contains("too short"));
        assert!(timeout("11m").unwrap_err().contains("10m"));
        assert!(timeout("500us").unwrap_err().contains("1ms"));
        assert!(run_time("0s").unwrap_err().contains("10ms"));
        assert_eq!(time_scale("0.1"), Ok(0.1));
        assert!(time_scale("0").unwrap_err().contains("out of range"));
        assert!(time_scale("fast").unwrap_err().contains("not a factor"));
    }
}
