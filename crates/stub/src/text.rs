//! Programs as people write them: `exp:5ms`, `1s/10s`, `cut-body@10`.
//!
//! Every function says in one line what is wrong with a text that it does not understand.

use std::borrow::Cow;

use clap::ValueEnum;
use thiserror::Error;

use crate::{ConnectionFault, Draw, Every, Fault, Latency, Stall};

/// A text, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}'{problem}")]
pub(crate) struct TextError {
    text: String,
    problem: Cow<'static, str>,
}

fn wrong<T>(text: &str, problem: impl Into<Cow<'static, str>>) -> Result<T, TextError> {
    let (text, problem) = (text.to_owned(), problem.into());
    Err(TextError { text, problem })
}

/// A time in nanoseconds: a number and one of `ns`, `us`, `ms`, `s`; or `0`.
pub(crate) fn duration_ns(text: &str) -> Result<u64, TextError> {
    const YEAR_NS: f64 = 366.0 * 86_400.0 * 1e9;
    if text == "0" {
        return Ok(0);
    }
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(unit_at.unwrap_or(text.len()));
    let unit_ns = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return wrong(text, ": a time has a unit: ns, us, ms or s"),
    };
    match number.parse::<f64>() {
        Ok(number) if (0.0..=YEAR_NS).contains(&(number * unit_ns)) => {
            Ok((number * unit_ns).round() as u64)
        }
        _ => wrong(text, " is not a time"),
    }
}

/// `5ms`, `exp:5ms` (the mean), or `bimodal:1ms,10ms,5%` (the usual time, the other, its share).
pub(crate) fn latency(text: &str) -> Result<Latency, TextError> {
    match text.split_once(':') {
        None => Ok(Latency::Constant {
            ns: duration_ns(text)?,
        }),
        Some(("exp", mean)) => Ok(Latency::Exponential {
            mean_ns: duration_ns(mean)? as f64,
        }),
        Some(("bimodal", parts)) => {
            let parts: Vec<&str> = parts.split(',').collect();
            let &[first, second, share] = parts.as_slice() else {
                return wrong(text, " has another form than bimodal:TIME,TIME,SHARE");
            };
            Ok(Latency::Bimodal {
                first_ns: duration_ns(first)?,
                second_ns: duration_ns(second)?,
                second_share: self::share(share)?,
            })
        }
        Some((name, _)) => wrong(
            name,
            " is no distribution: TIME, exp:TIME, bimodal:TIME,TIME,SHARE",
        ),
    }
}

fn share(text: &str) -> Result<f64, TextError> {
    let percent = text.strip_suffix('%');
    match (percent.unwrap_or(text).trim().parse::<f64>(), percent) {
        (Ok(number), Some(_)) if (0.0..=100.0).contains(&number) => Ok(number / 100.0),
        (Ok(number), None) if (0.0..=1.0).contains(&number) => Ok(number),
        _ => wrong(text, " is no share: 5% or 0.05, say"),
    }
}

/// `1s/10s`: how long, and how often.
pub(crate) fn stall(text: &str) -> Result<Stall, TextError> {
    let Some((length, every)) = text.split_once('/') else {
        return wrong(text, " has another form than TIME/TIME");
    };
    Ok(Stall {
        length_ns: duration_ns(length)?,
        every_ns: duration_ns(every)?,
    })
}

/// `NAME@N` or `NAME:ARGUMENT@N`: what happens to every Nth answer.
pub(crate) fn fault(text: &str) -> Result<Every<Fault>, TextError> {
    let (what, every) = every(text)?;
    let (name, argument) = match what.split_once(':') {
        Some((name, argument)) => (name, Some(argument)),
        None => (what, None),
    };
    let fault = match (name, argument) {
        ("close", None) => Fault::Close,
        ("reset", None) => Fault::Reset,
        ("cut-head", None) => Fault::CutHead,
        ("cut-body", None) => Fault::CutBody,
        ("reset-in-body", None) => Fault::ResetInBody,
        ("content", None) => Fault::Content,
        ("never", None) => Fault::Never,
        ("status", Some(status)) => Fault::Status(number(status)?),
        ("longer", Some(bytes)) => Fault::Longer {
            bytes: number(bytes)?,
        },
        ("shorter", Some(bytes)) => Fault::Shorter {
            bytes: number(bytes)?,
        },
        ("excess", Some(bytes)) => Fault::Excess {
            bytes: number(bytes)?,
        },
        ("late", Some(by)) => Fault::Late {
            by_ns: duration_ns(by)?,
        },
        ("malformed", Some(how)) => Fault::Malformed(named(how, "no way to be malformed")?),
        _ => {
            return wrong(
                what,
                " is no fault: close, reset, cut-head, cut-body, reset-in-body, content, never, \
                 status:N, longer:N, shorter:N, excess:N, late:TIME, malformed:HOW",
            );
        }
    };
    Ok(Every { every, fault })
}

fn named<T: ValueEnum>(text: &str, otherwise: &str) -> Result<T, TextError> {
    T::from_str(text, false).or_else(|_| {
        let values = T::value_variants().iter();
        let names =
            values.filter_map(|value| Some(value.to_possible_value()?.get_name().to_owned()));
        let names: Vec<String> = names.collect();
        wrong(text, format!(" is {otherwise}: {}", names.join(", ")))
    })
}

/// `close@N` or `reset@N`: what happens to every Nth connection.
pub(crate) fn connection_fault(text: &str) -> Result<Every<ConnectionFault>, TextError> {
    let (name, every) = every(text)?;
    let fault = named(name, "no fault")?;
    Ok(Every { every, fault })
}

fn every(text: &str) -> Result<(&str, u64), TextError> {
    let Some((what, every)) = text.split_once('@') else {
        return wrong(text, ": which ones? NAME@10 is every tenth");
    };
    Ok((what, number(every)?))
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, TextError> {
    text.parse()
        .or_else(|_| wrong(text, " is not a number, or not one that fits"))
}

/// How many parts of the distribution there are, or `independent`.
pub(crate) fn draw(text: &str) -> Result<Draw, TextError> {
    match text {
        "independent" => Ok(Draw::Independent),
        _ => Ok(Draw::Stratified {
            strata: number(text)?,
        }),
    }
}

/// Content, by its number of bytes.
pub(crate) fn body(text: &str) -> Result<Vec<u8>, TextError> {
    let bytes = b"Hello, world!".iter().copied().cycle();
    Ok(bytes.take(number(text)?).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Malformed;

    #[test]
    fn times_have_units() {
        for (text, ns) in [
            ("0", 0),
            ("250ns", 250),
            ("1.5us", 1_500),
            ("5ms", 5_000_000),
            ("2s", 2_000_000_000),
        ] {
            assert_eq!(duration_ns(text), Ok(ns));
        }
        for text in ["", "5", "ms", "-1s", "5 minutes", "NaNs", "infs", "1e30s"] {
            assert!(duration_ns(text).is_err(), "{text}");
        }
    }

    #[test]
    fn latencies_and_stalls() {
        assert_eq!(latency("5ms"), Ok(Latency::Constant { ns: 5_000_000 }));
        assert_eq!(
            latency("exp:1us"),
            Ok(Latency::Exponential { mean_ns: 1000.0 })
        );
        let bimodal = Latency::Bimodal {
            first_ns: 1_000_000,
            second_ns: 10_000_000,
            second_share: 0.05,
        };
        assert_eq!(latency("bimodal:1ms,10ms,5%"), Ok(bimodal));
        assert_eq!(latency("bimodal:1ms,10ms,0.05"), Ok(bimodal));
        for text in ["exp:", "normal:5ms", "bimodal:1ms,2ms", "bimodal:1ms,2ms,2"] {
            assert!(latency(text).is_err(), "{text}");
        }
        let expected = Stall {
            length_ns: 1_000_000_000,
            every_ns: 10_000_000_000,
        };
        assert_eq!(stall("1s/10s"), Ok(expected));
        assert!(stall("1s").is_err());
    }

    #[test]
    fn faults_by_name() {
        for (text, expected) in [
            ("cut-body@10", Fault::CutBody),
            ("status:503@10", Fault::Status(503)),
            ("late:2us@10", Fault::Late { by_ns: 2000 }),
            ("malformed:lengths@10", Fault::Malformed(Malformed::Lengths)),
        ] {
            let expected = Every {
                every: 10,
                fault: expected,
            };
            assert_eq!(fault(text), Ok(expected));
        }
        for text in [
            "cut-body",
            "cut-body:1@10",
            "status@10",
            "status:many@10",
            "close@-1",
            "lost@2",
            "malformed:x@2",
        ] {
            assert!(fault(text).is_err(), "{text}");
        }
        assert!(connection_fault("reset@3").is_ok());
        assert!(connection_fault("never@3").is_err());
    }
}
