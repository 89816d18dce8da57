//! The options of `loadline precompress` as they are typed.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueHint};
use loadline_apps::precompress::{Coding, TypePattern};
use loadline_spec::ValueError;
use loadline_spec::values::{Auto, Count, Size};

pub(crate) const PRECOMPRESS_MORE: &str = "\
Examples:
  loadline precompress public
      writes app.js.br, app.js.zst and app.js.gz beside public/app.js, and so on; what is up to date stays
  loadline precompress public --encodings gzip --types text/html,text/css
      writes only .gz, and only for these

Exit codes:
  0  every file has the variants that make it smaller
  1  something failed: standard error says which files are without
  2  bad usage: an option, a directory";

/// The options of `loadline precompress`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PrecompressFlags {
    /// The directory. Hidden files and symbolic links in it are left out.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: PathBuf,

    /// What to write: br (brotli, .br), zstd (.zst), gzip (.gz).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "br,zstd,gzip"
    )]
    pub(crate) encodings: Vec<Encoding>,

    /// The media types of files to compress: image/svg+xml,font/*, for instance [default: text-like
    /// ones].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) types: Vec<TypePattern>,

    /// The shortest file to compress.
    #[arg(long, value_name = "SIZE", default_value = "1k")]
    pub(crate) min_size: Size<1>,

    /// Files that are compressed at the same time; auto is one for each CPU.
    #[arg(long, value_name = "N", default_value = "auto")]
    pub(crate) jobs: Auto<Count<1, 1024>>,
}

/// A content coding by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoding(pub(crate) Coding);

impl FromStr for Encoding {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut all = Coding::COMPRESSED.into_iter();
        let named = all.find(|coding| coding.token() == Some(text));
        let unknown = || ValueError::new("not made here", "br, zstd, gzip, or several: br,gzip");
        named.map(Self).ok_or_else(unknown)
    }
}
