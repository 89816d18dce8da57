//! Which precompressed variant to send (RFC 9110 section 12.5.3).

/// A content coding that a neighbouring file can be in. Later is preferred at equal quality.
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
    /// Those that live in neighbouring files, best first.
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
    /// Thousandths by `Coding as usize`.
    quality: [u16; 4],
}

impl AcceptedCodings {
    /// Reads every value of Accept-Encoding; without any, only identity is wanted.
    #[must_use]
    pub fn parse<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> Self {
        let _ = values.into_iter();
        Self { quality: [0; 4] }
    }

    /// The best of the codings that there are. Identity always is, and is the last resort even if
    /// the client refuses it: an answer is worth more than a 406.
    #[must_use]
    pub fn best(&self, available: impl IntoIterator<Item = Coding>) -> Coding {
        let _ = (available.into_iter(), self.quality);
        unimplemented!()
    }
}
