//! Values as people type them: durations, sizes, addresses, counts, switches.
//!
//! Every refusal says what would be right; the option's name is added by whoever prints it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use loadline_server::ListenAddr;

/// A number that the program works out by itself unless it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Auto<T> {
    /// Work it out.
    #[default]
    Auto,
    /// As given.
    Given(T),
}

impl<T: Copy> Auto<T> {
    /// The given one, or what `auto` makes of it.
    pub(crate) fn or_else(self, auto: impl FnOnce() -> T) -> T {
        match self {
            Self::Auto => auto(),
            Self::Given(value) => value,
        }
    }

    /// The given one.
    pub(crate) fn given(self) -> Option<T> {
        match self {
            Self::Auto => None,
            Self::Given(value) => Some(value),
        }
    }
}

/// A count between two bounds, for a clap value parser.
pub(crate) fn count_in(
    bounds: std::ops::RangeInclusive<usize>,
) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text| {
        let (least, most) = (*bounds.start(), *bounds.end());
        let right = format!("a whole number from {least} to {most}");
        let digits = text.strip_prefix('-').unwrap_or(text);
        match text.parse::<usize>() {
            Ok(count) if bounds.contains(&count) => Ok(count),
            Ok(_) => Err(format!("out of range; right would be {right}")),
            Err(_) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err(format!("out of range; right would be {right}"))
            }
            Err(_) => Err(format!("not a number; right would be {right}")),
        }
    }
}

/// The name of a file in whatever directory.
pub(crate) fn file_name(text: &str) -> Result<String, String> {
    if matches!(text, "" | "." | "..") || text.contains(['/', '\0']) {
        return Err("not the name of a file; right would be index.html, say".to_owned());
    }
    Ok(text.to_owned())
}

/// A count between two bounds, or `auto`.
pub(crate) fn auto_count_in(
    bounds: std::ops::RangeInclusive<usize>,
) -> impl Fn(&str) -> Result<Auto<usize>, String> + Clone + Send + Sync + 'static {
    let count = count_in(bounds);
    move |text| match text {
        "auto" => Ok(Auto::Auto),
        _ => match count(text) {
            Ok(count) => Ok(Auto::Given(count)),
            Err(message) => Err(format!("{message}, or auto")),
        },
    }
}

/// A switch that is spelt out.
pub(crate) fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("right would be on or off".to_owned()),
    }
}

/// The longest duration that makes sense here. A day: beyond it a slip of the unit is likelier.
const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A duration with its unit: `200us`, `15s`, `1.5m`. Zero may go without a unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const RIGHT: &str = "right would be a number with a unit: 200us, 50ms, 10s, 5m or 1h";
    let (number, unit) = split_unit(text);
    let unit_ns: u128 = match unit {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" if number == "0" => 1,
        "" if !number.is_empty() => {
            return Err(format!(
                "the unit is missing; right would be {number}s, say"
            ));
        }
        _ => return Err(format!("not a duration; {RIGHT}")),
    };
    let nanos = scale(number, unit_ns).ok_or_else(|| format!("not a duration; {RIGHT}"))?;
    match u64::try_from(nanos).map(Duration::from_nanos) {
        Ok(duration) if duration <= DURATION_MAX => Ok(duration),
        _ => Err("too long; right would be at most 24h".to_owned()),
    }
}

/// A time after which something ends; `None`: it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeout(pub(crate) Option<Duration>);

/// A duration, or `off`.
pub(crate) fn timeout(text: &str) -> Result<Timeout, String> {
    match text {
        "off" => Ok(Timeout(None)),
        _ => match duration(text) {
            Ok(duration) => Ok(Timeout(Some(duration))),
            Err(message) => Err(format!("{message}, or off")),
        },
    }
}

/// A size with an optional unit, in powers of 1024: `600`, `64k`, `1.5M`, `2GiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    const RIGHT: &str =
        "right would be a number of bytes, with a unit if you like: 4096, 64k, 8M, 2G";
    let (number, unit) = split_unit(text);
    let unit_bytes: u128 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(format!("not a size; {RIGHT}")),
    };
    let bytes = scale(number, unit_bytes).ok_or_else(|| format!("not a size; {RIGHT}"))?;
    match u64::try_from(bytes) {
        Ok(bytes) if bytes <= 1 << 40 => Ok(bytes),
        _ => Err("too large; right would be at most 1024G".to_owned()),
    }
}

/// Splits a number from the letters behind it.
pub(super) fn split_unit(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text.split_at(end)
}

/// A decimal number without sign or exponent, up to 18 digits before the point and nine behind.
pub(super) fn decimal(number: &str) -> Option<f64> {
    scale(number, 1_000_000_000).map(|billionths| billionths as f64 / 1e9)
}

/// A decimal number with up to nine digits behind the point, times `unit`.
fn scale(number: &str, unit: u128) -> Option<u128> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || part.len() > 9 || (part.is_empty() && number.contains('.')) {
        return None;
    }
    let digits = |text: &str| -> Option<u128> {
        match text {
            "" => Some(0),
            _ if text.len() <= 18 => text.parse().ok(),
            _ => None,
        }
    };
    let power = 10_u128.pow(u32::try_from(part.len()).ok()?);
    Some(digits(whole)? * unit + digits(part)? * unit / power)
}

/// Where to listen: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, `unix:/run/loadline.sock`.
pub(crate) fn address(text: &str) -> Result<ListenAddr, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return unix_address(path);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(ListenAddr::Tcp(address));
    }
    if let Some(port) = text.strip_prefix("localhost:")
        && let Ok(port) = port.parse::<u16>()
    {
        return Ok(ListenAddr::Tcp((Ipv4Addr::LOCALHOST, port).into()));
    }
    Err(hint_for(text))
}

/// The longest path of a Unix socket: `sun_path` has 108 bytes, the last of them NUL.
const UNIX_PATH_BYTES_MAX: usize = 107;

fn unix_address(path: &str) -> Result<ListenAddr, String> {
    match path.len() {
        0 => Err("the path is missing; right would be unix:/run/loadline.sock".to_owned()),
        1..=UNIX_PATH_BYTES_MAX => Ok(ListenAddr::Unix(PathBuf::from(path))),
        _ => Err(format!(
            "the path is too long; right would be at most {UNIX_PATH_BYTES_MAX} bytes"
        )),
    }
}

/// What was probably meant by something that is no address.
fn hint_for(text: &str) -> String {
    const RIGHT: &str = "127.0.0.1:8080, [::1]:8080, 0.0.0.0:80 or unix:/run/loadline.sock";
    let bare = text.strip_prefix(':').unwrap_or(text);
    let port_of = |text: &str| text.parse::<u32>().ok();
    match (port_of(bare), text.parse::<IpAddr>()) {
        (Some(port), _) if port <= 65_535 => {
            format!("the address is missing; right would be 127.0.0.1:{port} or 0.0.0.0:{port}")
        }
        (_, Ok(IpAddr::V6(ip))) => format!("the port is missing; right would be [{ip}]:8080"),
        (_, Ok(ip)) => format!("the port is missing; right would be {ip}:8080"),
        _ => match text.rsplit_once(':') {
            Some((_, port)) if port_of(port).is_some_and(|port| port > 65_535) => {
                "the port is out of range; right would be 0 to 65535".to_owned()
            }
            _ => format!("not an address; right would be {RIGHT}"),
        },
    }
}

/// One of a closed set, by name; known to the help, to completions and to suggestions.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(|choice| name(*choice))).try_map(move |text| {
        let mut choices = all.iter().copied();
        choices
            .find(|choice| name(*choice) == text)
            .ok_or("unknown")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("200us", 200_000),
            ("1.5ms", 1_500_000),
            ("10s", 10_000_000_000),
            ("0.25s", 250_000_000),
            ("5m", 300_000_000_000),
            ("24h", 86_400_000_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for (text, part) in [
            ("", "not a duration"),
            ("10", "right would be 10s"),
            ("s", "not a duration"),
            ("-1s", "not a duration"),
            ("1,5s", "not a duration"),
            ("1.s", "not a duration"),
            ("1.2.3s", "not a duration"),
            ("1 s", "not a duration"),
            ("1d", "not a duration"),
            ("25h", "too long"),
            ("99999999999999999999s", "not a duration"),
            ("999999999999999999h", "too long"),
        ] {
            let message = duration(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("600", 600),
            ("64k", 64 << 10),
            ("64KiB", 64 << 10),
            ("1.5M", 3 << 19),
            ("2GB", 2 << 30),
            ("1024G", 1 << 40),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for (text, part) in [
            ("", "not a size"),
            ("k", "not a size"),
            ("-1", "not a size"),
            ("1T", "not a size"),
            ("2048G", "too large"),
            ("1e3", "not a size"),
        ] {
            let message = size(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn counts() {
        let workers = auto_count_in(0..=64);
        assert_eq!(workers("auto"), Ok(Auto::Auto));
        assert_eq!(workers("0"), Ok(Auto::Given(0)));
        assert_eq!(workers("64"), Ok(Auto::Given(64)));
        for (text, part) in [
            ("65", "out of range"),
            ("99999999999999999999999", "out of range"),
            ("-1", "out of range"),
            ("-", "not a number"),
            ("", "not a number"),
            ("2.5", "not a number"),
        ] {
            let message = workers(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
            assert!(message.contains("0 to 64, or auto"), "{text}: {message}");
        }
    }

    #[test]
    fn addresses() {
        let good = |text: &str| address(text).expect(text);
        assert_eq!(
            good("127.0.0.1:80"),
            ListenAddr::Tcp(([127, 0, 0, 1], 80).into())
        );
        assert_eq!(
            good("localhost:0"),
            ListenAddr::Tcp(([127, 0, 0, 1], 0).into())
        );
        assert_eq!(
            good("[::1]:65535"),
            ListenAddr::Tcp("[::1]:65535".parse().unwrap())
        );
        assert_eq!(good("unix:/a/b"), ListenAddr::Unix("/a/b".into()));
        for (text, part) in [
            ("8080", "right would be 127.0.0.1:8080 or"),
            (":8080", "right would be 127.0.0.1:8080 or"),
            ("127.0.0.1", "right would be 127.0.0.1:8080"),
            ("::1", "right would be [::1]:8080"),
            ("127.0.0.1:65536", "the port is out of range"),
            ("70000", "not an address"),
            ("example.org:80", "not an address"),
            ("300.0.0.1:80", "not an address"),
            ("", "not an address"),
            ("unix:", "the path is missing"),
        ] {
            let message = address(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
        let long = format!("unix:/{}", "x".repeat(107));
        assert!(address(&long).unwrap_err().contains("too long"));
    }
}
