//! Packs the plans, claims and figures that the program carries: a fifth of their size is left. Claims and figures
//! become JSON: to read them takes less code, and no place in them has to be named at run time.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

const FILES: [&str; 7] = [
    "compare.toml",
    "papers/published.csv",
    "papers/P1.toml",
    "papers/P2.toml",
    "papers/P3.toml",
    "papers/P4.toml",
    "papers/P5.toml",
];

const AS_JSON: [&str; 2] = ["papers/claims.toml", "papers/figures.toml"];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    for file in FILES {
        let path = source(file);
        pack(&path, &fs::read(&path)?)?;
    }
    for file in AS_JSON {
        let path = source(file);
        let table: toml::Table =
            toml::from_str(&fs::read_to_string(&path)?).map_err(io::Error::other)?;
        pack(&path.with_extension("json"), &serde_json::to_vec(&table)?)?;
    }
    Ok(())
}

fn source(file: &str) -> PathBuf {
    let path = Path::new("../../lab").join(file);
    println!("cargo:rerun-if-changed={}", path.display());
    path
}

/// Under the name of the path with `.gz` behind it.
fn pack(path: &Path, content: &[u8]) -> io::Result<()> {
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(content)?;
    let name = path.file_name().unwrap_or_default();
    let target = Path::new(&out).join(format!("{}.gz", name.to_string_lossy()));
    fs::write(target, packed.finish()?)
}
