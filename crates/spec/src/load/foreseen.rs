//! What a load can say already and no client can do yet: HTTP/3, figures for each step
//! of a scenario, and the path between client and server. Each is refused in one line.

use std::ops::Deref;

use super::LoadSpec;
use crate::rules::first_of;
use crate::values::decimal;
use crate::{SpecError, Table, ValueError};

/// How bytes reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// As they are, or as something that is no scheme of ours: whoever parses the URL says so.
    Http,
    /// By TLS.
    Https,
}

/// A URL as it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    /// How bytes reach it.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        match self.0.split_once("://") {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => Scheme::Https,
            _ => Scheme::Http,
        }
    }
}

impl Deref for Address {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<String> for Address {
    fn from(text: String) -> Self {
        Self(text)
    }
}

as_text!(Address, |text| Ok(Self(text.to_owned())));

/// A share in hundredths: `1%`, `0.5%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

as_text!(
    Percent,
    |text| {
        let number = text.strip_suffix('%').and_then(decimal);
        match number.filter(|number| *number <= 100.0) {
            Some(number) => Ok(Self(number)),
            None => Err(ValueError::new("not a share", "0% to 100%: 0.5%, say")),
        }
    },
    |it, f| { write!(f, "{}%", it.0) }
);

/// Options that are foreseen, with what is not there yet and what would be right.
const FORESEEN: [(&str, &str, &str); 4] = [
    (
        "step-figures",
        "figures for each step are not taken yet",
        "a scenario for each step",
    ),
    ("link-rate", NO_LINK, NETEM),
    ("link-delay", NO_LINK, NETEM),
    ("link-loss", NO_LINK, NETEM),
];
const NO_LINK: &str = "the path to the server is not shaped yet";
const NETEM: &str = "tc-netem(8) on the interface";

/// Refuses what no client can do yet.
pub(super) fn check(spec: &LoadSpec, given: &Table) -> Result<(), SpecError> {
    spec.requests.http.check_supported()?;
    let option = first_of(given, &FORESEEN.map(|(option, _, _)| option));
    match FORESEEN.iter().find(|(name, _, _)| Some(*name) == option) {
        None => Ok(()),
        Some((name, problem, right)) => Err(SpecError::new(name, *problem, *right)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_foreseen_is_data_and_is_refused_in_one_line() {
        for (load, message) in [
            (
                "http = \"2\"",
                "--http 2: HTTP/2 has an option of its own; right would be --http2",
            ),
            ("http = 3", "--http 3: HTTP/3 is not supported yet"),
            (
                "step-figures = true",
                "--step-figures: figures for each step are not taken yet",
            ),
            (
                "link-rate = \"10Mbps\"",
                "--link-rate: the path to the server is not",
            ),
            (
                "link-delay = \"20ms\"",
                "--link-delay: the path to the server is not",
            ),
            (
                "link-loss = \"0.5%\"",
                "--link-loss: the path to the server is not",
            ),
        ] {
            let spec: LoadSpec = crate::fill(&toml::from_str(load).unwrap()).unwrap();
            let shown = spec.check().unwrap_err().to_string();
            assert!(shown.starts_with(message), "{load}: {shown}");
        }
        let loss = "101%".parse::<Percent>().unwrap_err();
        assert!(loss.to_string().contains("right would be 0% to 100%"));
    }
}
