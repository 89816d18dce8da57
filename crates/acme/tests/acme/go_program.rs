//! Programs of others in Go, built from their modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// From this one on Go fetches a later Go by itself if a module needs one (`GOTOOLCHAIN`).
const FETCHES_OTHERS: u32 = 21;

/// Builds it into `target/NAME`, once, with a Go of at least this minor version, or with one that fetches
/// it.
pub(crate) fn build(name: &str, module: &str, go_minor: u32) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let folder = target.join(name);
    let program = folder.join(name);
    if program.exists() {
        return program;
    }
    fs::create_dir_all(&folder).unwrap();
    let of = |least| {
        let mut all = ["go", "/usr/local/go/bin/go"].into_iter();
        all.find(|go| minor_version(go) >= Some(least))
    };
    let Some(go) = of(go_minor).or_else(|| of(FETCHES_OTHERS)) else {
        panic!("Go is missing, to build {name} with; right would be 1.{go_minor} or later");
    };
    let mut install = Command::new(go);
    install.args(["install", module]).env("GOTOOLCHAIN", "auto");
    install.env("GOBIN", folder.canonicalize().unwrap());
    assert!(install.status().unwrap().success(), "{module}");
    program
}

/// 24 of `go version go1.24.2 linux/amd64`.
fn minor_version(go: &str) -> Option<u32> {
    let output = Command::new(go).arg("version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (_, rest) = text.split_once("go1.")?;
    let end = rest.find(|it: char| !it.is_ascii_digit())?;
    rest[..end].parse().ok()
}
