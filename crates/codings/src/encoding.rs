//! Which variant to send (RFC 9110 section 12.5.3).

/// A content coding that a file can be sent in. Later is preferred at equal quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Coding {
    /// The file as it is.
    Identity,
    /// `gzip`, in a `.gz` neighbour.
    Gzip,
    /// `zstd`, in a `.zst` neighbour.
    Zstd,
    /// `br`, in a `.br` neighbour.
    Brotli,
}

impl Coding {
    /// Those that compress, best first. The program makes each of them itself.
    pub const COMPRESSED: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// The value for Content-Encoding; `None` for identity.
    #[must_use]
    pub fn token(self) -> Option<&'static str> {
        match self {
            Self::Identity => None,
            Self::Gzip => Some("gzip"),
            Self::Zstd => Some("zstd"),
            Self::Brotli => Some("br"),
        }
    }

    /// What the neighbour's name adds to the file's; empty for identity.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Identity => "",
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
            Self::Brotli => ".br",
        }
    }
}

/// A request's Accept-Encoding, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedCodings {
    /// How much each is wanted, by `Coding as usize`.
    weights: [Weight; 4],
}

/// How much a coding is wanted. Codings that the client names come before identity when it is
/// silent about that: it would not name them otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Refused,
    Unnamed,
    Thousandths(u16),
}

impl AcceptedCodings {
    /// Reads every value of Accept-Encoding; without any, only identity is wanted.
    #[must_use]
    pub fn parse<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> Self {
        let mut named: [Option<Weight>; 4] = [None; 4];
        let mut others = None;
        for element in values
            .into_iter()
            .flat_map(|v| v.split(|byte| *byte == b','))
        {
            let Some((token, weight)) = parse_element(element) else {
                continue;
            };
            if token == b"*" {
                others = Some(weight);
            } else if let Some(coding) = recognise(token) {
                named[coding as usize] = Some(weight);
            }
        }
        let mut weights = named.map(|weight| weight.or(others).unwrap_or(Weight::Refused));
        let identity = Coding::Identity as usize;
        weights[identity] = named[identity].or(others).unwrap_or(Weight::Unnamed);
        Self { weights }
    }

    /// The best of the codings that there are. Identity always is, and is the last resort even if
    /// the client refuses it: an answer is worth more than a 406.
    #[must_use]
    pub fn best(&self, available: impl IntoIterator<Item = Coding>) -> Coding {
        let weight = |coding: Coding| self.weights[coding as usize];
        available
            .into_iter()
            .filter(|coding| weight(*coding) != Weight::Refused)
            .chain([Coding::Identity])
            .max_by_key(|coding| (weight(*coding), *coding))
            .unwrap_or(Coding::Identity)
    }

    /// Whether one is wanted more than another, not counting what is preferred here.
    #[must_use]
    pub fn prefers(&self, one: Coding, another: Coding) -> bool {
        self.weights[one as usize] > self.weights[another as usize]
    }
}

fn recognise(token: &[u8]) -> Option<Coding> {
    [
        (&b"identity"[..], Coding::Identity),
        (b"gzip", Coding::Gzip),
        (b"x-gzip", Coding::Gzip), // the same (RFC 9110 section 8.4.1.3)
        (b"zstd", Coding::Zstd),
        (b"br", Coding::Brotli),
    ]
    .into_iter()
    .find_map(|(name, coding)| token.eq_ignore_ascii_case(name).then_some(coding))
}

/// `token [ OWS ";" OWS "q=" weight ]`; `None` if it is not that, which is as if it were not there.
fn parse_element(element: &[u8]) -> Option<(&[u8], Weight)> {
    let mut parts = element.splitn(2, |byte| *byte == b';');
    let token = parts.next()?.trim_ascii();
    let weight = match parts.next() {
        None => 1000,
        Some(parameter) => {
            let (name, value) = parameter.trim_ascii().split_at_checked(2)?;
            if !name.eq_ignore_ascii_case(b"q=") {
                return None;
            }
            thousandths(value)?
        }
    };
    let weight = match weight {
        0 => Weight::Refused,
        weight => Weight::Thousandths(weight),
    };
    (!token.is_empty()).then_some((token, weight))
}

/// A weight (RFC 9110 section 12.4.2): 0 to 1 with at most three decimals.
fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, decimals) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] => (whole, decimals),
        _ => return None,
    };
    if decimals.len() > 3 || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = decimals.iter().chain(b"000").take(3);
    let fraction = digits.fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    match (whole, fraction) {
        (b'0', fraction) => Some(fraction),
        (b'1', 0) => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Coding::{Brotli, Gzip, Identity, Zstd};
    use super::*;

    fn best(value: &str, available: &[Coding]) -> Coding {
        AcceptedCodings::parse([value.as_bytes()]).best(available.iter().copied())
    }

    #[test]
    fn table_of_choices_when_all_are_there() {
        for (value, coding) in [
            ("gzip, deflate, br, zstd", Brotli),
            ("gzip, deflate, zstd", Zstd),
            ("gzip, deflate", Gzip),
            ("GZIP", Gzip),
            ("x-gzip", Gzip),
            ("br;q=0.5, gzip;q=0.8", Gzip),
            ("br;q=0.5, zstd;q=0.5, gzip;q=0.5", Brotli),
            ("gzip;q=0.001", Gzip),
            ("gzip ; q=0.2 ,\tbr;q=0.1", Gzip),
            ("gzip;Q=1.000, br;q=0.999", Gzip),
            ("gzip;q=1., br;q=0.", Gzip),
            ("*", Brotli),
            ("*;q=0.1", Brotli),
            ("br;q=0, *", Zstd),
            ("gzip, *;q=0", Gzip),
            ("", Identity),
            ("deflate, compress", Identity),
            ("identity", Identity),
            ("gzip;q=0", Identity),
            ("gzip;q=0.000", Identity),
            ("identity, gzip;q=0.5", Identity),
            ("identity;q=0.5, gzip;q=0.5", Gzip),
            ("identity;q=0, gzip", Gzip),
            ("identity;q=0.5, *;q=0.1", Identity),
            ("gzip;q=0.1, *;q=0.9", Brotli),
            // A 406 is never sent.
            ("identity;q=0", Identity),
            ("*;q=0", Identity),
            ("identity;q=0, *;q=0", Identity),
            // What is no element counts for nothing.
            ("gzip;q=2", Identity),
            ("gzip;q=1.001", Identity),
            ("gzip;q=-1", Identity),
            ("gzip;q=0.1234", Identity),
            ("gzip;q=.5", Identity),
            ("gzip;q=", Identity),
            ("gzip;q", Identity),
            ("gzip;", Identity),
            ("gzip;q=1;x=y", Identity),
            ("gzip;level=9", Identity),
            ("gzip;q=abc, br;q=0.1", Brotli),
            (";q=1, , gzip", Gzip),
            ("g zip", Identity),
            ("gzipx, xgzip", Identity),
            ("gzip br", Identity),
            // Said twice: the last word counts.
            ("gzip, gzip;q=0", Identity),
        ] {
            assert_eq!(best(value, &Coding::COMPRESSED), coding, "{value}");
        }
    }

    #[test]
    fn only_what_is_there_is_chosen() {
        for (value, available, coding) in [
            ("gzip, br", &[][..], Identity),
            ("gzip, br", &[Gzip], Gzip),
            ("gzip, br", &[Zstd], Identity),
            ("gzip;q=0.1, *;q=0.9", &[Gzip], Identity),
            ("identity;q=0, br", &[Gzip], Identity),
            ("br;q=0.1, gzip", &[Brotli, Identity], Brotli),
            ("*;q=0, gzip", &[Gzip, Brotli], Gzip),
        ] {
            assert_eq!(best(value, available), coding, "{value} of {available:?}");
        }
    }

    #[test]
    fn a_preference_is_the_clients_own() {
        let accepted = AcceptedCodings::parse([&b"gzip;q=0.5, br;q=0.5, zstd"[..]]);
        assert!(accepted.prefers(Zstd, Brotli) && accepted.prefers(Gzip, Identity));
        assert!(!accepted.prefers(Brotli, Gzip) && !accepted.prefers(Gzip, Brotli));
    }

    #[test]
    fn several_lines_are_one_list_and_none_wants_identity() {
        let two = AcceptedCodings::parse([&b"gzip;q=0.5"[..], b"br;q=0.4"]);
        assert_eq!(two.best(Coding::COMPRESSED), Gzip);
        let none = AcceptedCodings::parse([]);
        assert_eq!(none.best(Coding::COMPRESSED), Identity);
    }

    #[test]
    fn tokens_and_suffixes_agree() {
        for coding in Coding::COMPRESSED {
            let token = coding.token().unwrap();
            assert_eq!(best(token, &Coding::COMPRESSED), coding);
            assert!(coding.suffix().starts_with('.'));
        }
        assert_eq!((Identity.token(), Identity.suffix()), (None, ""));
    }
}
