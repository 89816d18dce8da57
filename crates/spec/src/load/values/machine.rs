//! Values of a load that are about this machine: CPUs, addresses, processes, seeds.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use loadline_base::sorting::sort;

use crate::ValueError;
use crate::load::PROCESSES_MAX;

/// Source addresses that a list may name.
const SOURCES_MAX: usize = 1 << 16;
/// CPUs that a list may name: as many as Linux can be built for.
const CPU_MAX: usize = 8191;

/// Source addresses: `127.0.0.2-127.0.0.9`, `10.0.0.5,10.0.0.6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources(pub Vec<IpAddr>);

as_text!(
    Sources,
    |text| {
        const RIGHT: &str = "127.0.0.2-127.0.0.9 or a list with commas";
        let mut found = Vec::new();
        for part in text.split(',') {
            match part.split_once('-') {
                None => found.push(
                    part.parse()
                        .map_err(|_| ValueError::new("not an address", RIGHT))?,
                ),
                Some((first, last)) => {
                    let number = |text: &str| text.parse::<Ipv4Addr>().map(u32::from);
                    let (Ok(first), Ok(last)) = (number(first), number(last)) else {
                        return Err(ValueError::new("not a range of IPv4 addresses", RIGHT));
                    };
                    if first > last {
                        return Err(ValueError::new("the range goes downwards", RIGHT));
                    }
                    if (last - first) as usize >= SOURCES_MAX - found.len() {
                        return Err(ValueError::new(
                            "too many",
                            format!("at most {SOURCES_MAX} addresses"),
                        ));
                    }
                    found.extend((first..=last).map(|number| IpAddr::V4(number.into())));
                }
            }
        }
        Ok(Self(found))
    },
    |it, f| {
        let follows = |one: &IpAddr, next: &IpAddr| match (one, next) {
            (IpAddr::V4(one), IpAddr::V4(next)) => {
                u32::from(*one).checked_add(1) == Some(u32::from(*next))
            }
            _ => false,
        };
        show_runs(&it.0, follows, f)
    }
);

/// A list with commas in which what follows on one another is a range.
fn show_runs<T: fmt::Display>(
    all: &[T],
    follows: impl FnMut(&T, &T) -> bool,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    for (index, run) in all.chunk_by(follows).enumerate() {
        if index > 0 {
            f.write_str(",")?;
        }
        match run {
            [one] => write!(f, "{one}")?,
            [first, .., last] => write!(f, "{first}-{last}")?,
            [] => {}
        }
    }
    Ok(())
}

/// CPUs by number: `1`, `0,2-3`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus(pub Vec<usize>);

as_text!(
    Cpus,
    |text| {
        const RIGHT: &str = "CPU numbers: 1 or 0,2-3";
        let number = |text: &str| match text.parse::<usize>() {
            Ok(cpu) if cpu <= CPU_MAX => Ok(cpu),
            _ => Err(ValueError::new("not a CPU", RIGHT)),
        };
        let mut found = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(ValueError::new("the range goes downwards", RIGHT));
            }
            found.extend(first..=last);
        }
        sort(&mut found);
        found.dedup();
        Ok(Self(found))
    },
    |it, f| { show_runs(&it.0, |one, next| one + 1 == *next, f) }
);

/// A process that is watched, under a name: `nginx=1234`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// As it stands in results.
    pub name: String,
    /// The process; its children are watched with it.
    pub pid: Pid,
}

as_text!(
    Watched,
    |text| {
        const RIGHT: &str = "NAME=PID, nginx=1234 say";
        let parts = text.split_once('=');
        let (name, number) =
            parts.ok_or_else(|| ValueError::new("the process is missing", RIGHT))?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(ValueError::new(
                "a name has letters, digits and -_. only",
                RIGHT,
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            pid: number.parse()?,
        })
    },
    |it, f| { write!(f, "{}={}", it.name, it.pid) }
);

/// A process by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pid(pub u32);

as_text!(Pid, |text| {
    match text.parse::<u32>() {
        Ok(pid) if pid > 0 && pid <= 1 << 22 => Ok(Self(pid)),
        _ => Err(ValueError::new("not a process", "its number, 1234 say")),
    }
});

/// What repeats choices made at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

as_text!(Seed, |text| {
    text.parse().map(Self).map_err(|_| {
        let right = format!("a whole number from 0 to {}", u64::MAX);
        ValueError::new("not a seed", right)
    })
});

/// The part of a run that a process has: `0/3`, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 0.
    pub index: u32,
    /// The number of parts.
    pub of: u32,
}

impl FromStr for Part {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::new("not a part", "0/2, say");
        let (index, of) = text.split_once('/').ok_or_else(wrong)?;
        match (index.parse(), of.parse()) {
            (Ok(index), Ok(of)) if index < of && of <= PROCESSES_MAX as u32 => {
                Ok(Self { index, of })
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::tests::refused;

    #[test]
    fn addresses_cpus_and_processes() {
        let range = "127.0.0.254-127.0.1.1,10.0.0.1".parse::<Sources>().unwrap();
        let shown: Vec<String> = range.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown.join(" "),
            "127.0.0.254 127.0.0.255 127.0.1.0 127.0.1.1 10.0.0.1"
        );
        assert_eq!("::1".parse::<Sources>().unwrap().0.len(), 1);
        assert_eq!(range.to_string(), "127.0.0.254-127.0.1.1,10.0.0.1");
        refused::<Sources>(&[
            ("127.0.0.9-127.0.0.2", "downwards"),
            ("127.0.0.2-9", "not a range"),
            ("localhost", "not an address"),
            ("127.0.0.0-127.255.0.0", "too many"),
            ("", "not an address"),
        ]);
        assert_eq!("0,2-3,2".parse(), Ok(Cpus(vec![0, 2, 3])));
        refused::<Cpus>(&[("3-1", "downwards"), ("x", "not a CPU")]);
        assert_eq!("nginx=12".parse::<Watched>().unwrap().pid, Pid(12));
        refused::<Watched>(&[
            ("12", "NAME=PID"),
            ("a b=12", "letters"),
            ("a=0", "not a process"),
        ]);
        assert_eq!("0/3".parse(), Ok(Part { index: 0, of: 3 }));
        refused::<Part>(&[("3/3", "not a part"), ("1", "not a part")]);
    }
}
