//! A slow network between client and server, as a plan describes it: `satellite`, or
//! `delay=75ms,bandwidth=2Mbit,loss=1%`.
//!
//! ```text
//!   client ── up ──►  [ loss · buffer · bandwidth · delay, jitter ]  ──► server
//!          ◄─ down ─  [ loss · buffer · bandwidth · delay, jitter ]  ◄──
//! ```
//!
//! All here is pure: what a link is, and when each packet leaves it ([`Pipe`]). The process that carries
//! packets is the runner's.

mod pipe;
mod presets;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use pipe::Pipe;
pub use presets::{PRESETS, Preset};

use loadline_spec::ValueError;
use loadline_spec::values::{OnOff, OrOff, Size, Time};
use serde::{Deserialize, Deserializer};
use values::{bandwidth, bandwidth_text, share, share_text};

/// The longest that makes sense here: the round trip to the moon is 2.6 s.
const DELAY_S_MAX: u64 = 30;
/// A packet of the usual size has to fit.
const BUFFER_BYTES_MIN: u64 = 1500;
/// Half a second of the fastest link; both directions may be full.
const BUFFER_BYTES_MAX: u64 = 64 << 20;
/// What a buffer has at least unless it is given: the first window of ten segments (RFC 6928), and some
/// more connections.
const BUFFER_BYTES_LEAST: u64 = 64 << 10;

/// What a link is, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkSpec {
    /// From the client to the server.
    pub up: Direction,
    /// From the server to the client.
    pub down: Direction,
}

/// What a link is in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Direction {
    /// How long a packet is on its way, once it has left the buffer.
    pub delay: Duration,
    /// By how much that differs at most, to both sides, each value as likely as any other.
    pub jitter: Duration,
    /// How fast packets leave the buffer, in bits a second, counted with their headers of IP; `None`: at
    /// once.
    pub bandwidth_bps: Option<u64>,
    /// The share of packets that are lost on the way, each by itself.
    pub loss: f64,
    /// How many bytes may wait for the bandwidth; `None`: what [`LinkSpec::buffer_bytes`] says.
    pub buffer_bytes: Option<u64>,
    /// Whether jitter lets packets overtake others.
    pub reorder: bool,
}

impl LinkSpec {
    /// The buffer of a direction: as given, or what is on its way there and back at its bandwidth, and
    /// 64 KiB at least.
    #[must_use]
    pub fn buffer_bytes(&self, direction: &Direction) -> u64 {
        let Some(bps) = direction.bandwidth_bps else {
            return BUFFER_BYTES_MAX; // nothing waits, and what is on its way is bounded by the pipe
        };
        let product = bps as f64 / 8.0 * self.round_trip().as_secs_f64();
        let own = (product as u64).clamp(BUFFER_BYTES_LEAST, BUFFER_BYTES_MAX);
        direction.buffer_bytes.unwrap_or(own)
    }

    /// How long a small packet takes there and back, without jitter and waiting.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.up.delay + self.down.delay
    }

    fn set(&mut self, name: &str, text: &str) -> Result<(), ValueError> {
        match name.split_once('.') {
            Some(("up", name)) => self.up.set(name, text),
            Some(("down", name)) => self.down.set(name, text),
            _ => (self.up.set(name, text)).and_then(|()| self.down.set(name, text)),
        }
        .map_err(|error| error.at(name))
    }

    /// From names and values: first a preset, then what is of both directions, then of one.
    fn of(given: &[(String, String)]) -> Result<Self, ValueError> {
        let mut link = Self::default();
        if let Some((_, name)) = given.iter().find(|(name, _)| name == "like") {
            link = Preset::named(name)?;
        }
        let is_of_one = |name: &str| name.contains('.');
        for of_one in [false, true] {
            for (name, text) in given {
                if is_of_one(name) == of_one && name != "like" {
                    link.set(name, text)?;
                }
            }
        }
        for direction in [&link.up, &link.down] {
            direction.check()?;
        }
        Ok(link)
    }
}

impl Direction {
    fn set(&mut self, name: &str, text: &str) -> Result<(), ValueError> {
        type Way = Time<0, DELAY_S_MAX>;
        match name {
            "delay" => self.delay = *text.parse::<Way>()?,
            "jitter" => self.jitter = *text.parse::<Way>()?,
            "bandwidth" => self.bandwidth_bps = bandwidth(text)?,
            "loss" => self.loss = share(text)?,
            "buffer" => {
                let bytes = text.parse::<Size<BUFFER_BYTES_MIN, BUFFER_BYTES_MAX>>()?;
                self.buffer_bytes = Some(*bytes);
            }
            "reorder" => self.reorder = text.parse::<OnOff>()?.0,
            _ => {
                return Err(ValueError::new(
                    "not known",
                    "delay, jitter, bandwidth, loss, buffer or reorder, for one direction with up. or \
                     down. before it",
                ));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ValueError> {
        if self.jitter > self.delay {
            return Err(ValueError::new(
                "the jitter is longer than the delay",
                "at most as long, since no packet arrives before it was sent",
            ));
        }
        if self.buffer_bytes.is_some() && self.bandwidth_bps.is_none() {
            return Err(ValueError::new(
                "a buffer without a bandwidth",
                "both: nothing waits for a bandwidth without limit",
            ));
        }
        Ok(())
    }

    /// What differs from no link at all.
    fn given(&self) -> Vec<(&'static str, String)> {
        let time = |time: Duration| Time::<0, DELAY_S_MAX>::clamped(time).to_string();
        let jitter = Some(self.jitter).filter(|jitter| !jitter.is_zero());
        let given = [
            ("delay", Some(time(self.delay))),
            ("jitter", jitter.map(time)),
            ("bandwidth", self.bandwidth_bps.map(bandwidth_text)),
            ("loss", (self.loss > 0.0).then(|| share_text(self.loss))),
            ("buffer", self.buffer_bytes.map(|bytes| bytes.to_string())),
            ("reorder", self.reorder.then(|| "on".to_owned())),
        ];
        given
            .into_iter()
            .filter_map(|(name, text)| Some((name, text?)))
            .collect()
    }
}

/// `satellite`, `satellite,loss=1%`, `delay=75ms,up.bandwidth=1Mbit`.
impl FromStr for LinkSpec {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut given: Vec<(String, String)> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name.trim(), value.trim()),
                None if given.is_empty() && !part.is_empty() => ("like", part),
                None => return Err(ValueError::new("not a link", Preset::right())),
            };
            if given.iter().any(|(other, _)| other == name) {
                return Err(ValueError::new(
                    format!("{name} stands there twice"),
                    "once",
                ));
            }
            given.push((name.to_owned(), value.to_owned()));
        }
        Self::of(&given)
    }
}

/// In a form that is read again.
impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |direction: &Direction, prefix: &str| {
            let parts = direction.given();
            let parts = parts
                .iter()
                .map(|(name, value)| format!("{prefix}{name}={value}"));
            parts.collect::<Vec<_>>().join(",")
        };
        if self.up == self.down {
            return f.write_str(&one(&self.down, ""));
        }
        write!(f, "{},{}", one(&self.down, "down."), one(&self.up, "up."))
    }
}

/// As a plan has it: `"off"`, the text of a link, or a table of the same names.
pub(crate) struct LinkOrOff(pub(crate) OrOff<LinkSpec>);

impl<'de> Deserialize<'de> for LinkOrOff {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let read = match LinkTable::deserialize(from)? {
            LinkTable::Text(text) => text.parse(),
            LinkTable::Table(table) => {
                let mut given = Vec::new();
                for (name, entry) in table {
                    entry.add_to(&mut given, name);
                }
                LinkSpec::of(&given).map(|link| OrOff(Some(link)))
            }
        };
        read.map(Self).map_err(serde::de::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a link: \"satellite\", or { delay = \"75ms\", bandwidth = \"2Mbit\", loss = \"1%\" }"
)]
enum LinkTable {
    Text(String),
    Table(BTreeMap<String, Entry>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text, a number, true or false")]
enum Entry {
    Switch(bool),
    Number(f64),
    Text(String),
    OneDirection(BTreeMap<String, Self>),
}

impl Entry {
    fn add_to(self, given: &mut Vec<(String, String)>, name: String) {
        match self {
            Self::Switch(is_on) => given.push((name, OnOff(is_on).to_string())),
            Self::Number(number) => given.push((name, number.to_string())),
            Self::Text(text) => given.push((name, text)),
            Self::OneDirection(table) => {
                for (inner, entry) in table {
                    entry.add_to(given, format!("{name}.{inner}"));
                }
            }
        }
    }
}
