//! Packs the plans, claims and figures that the program carries: a fifth of their size is left.

use std::io::{self, Write as _};
use std::path::Path;
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

const FILES: [&str; 9] = [
    "compare.toml",
    "papers/claims.toml",
    "papers/figures.toml",
    "papers/published.csv",
    "papers/P1.toml",
    "papers/P2.toml",
    "papers/P3.toml",
    "papers/P4.toml",
    "papers/P5.toml",
];

fn main() -> io::Result<()> {
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    println!("cargo:rerun-if-changed=build.rs");
    for file in FILES {
        let path = Path::new("../../lab").join(file);
        println!("cargo:rerun-if-changed={}", path.display());
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&fs::read(&path)?)?;
        let name = path.file_name().unwrap_or_default();
        let name = format!("{}.gz", name.to_string_lossy());
        let target = Path::new(&out).join(name);
        fs::write(target, packed.finish()?)?;
    }
    Ok(())
}
