//! Files of `lab/` that the program carries, packed by `build.rs`.

use std::io::Read as _;

use flate2::read::GzDecoder;

/// A packed file, by the name that it has in `lab/`, without the folder; claims and figures are JSON.
macro_rules! packed {
    ($name:literal) => {
        $crate::packed::Packed(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".gz")))
    };
}
pub(crate) use packed;

/// A text of this program, by gzip.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packed(pub(crate) &'static [u8]);

impl Packed {
    pub(crate) fn text(self) -> String {
        let mut text = String::new();
        GzDecoder::new(self.0)
            .read_to_string(&mut text)
            .expect("the file is a part of the program");
        text
    }
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
