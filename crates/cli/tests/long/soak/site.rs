//! Files whose content says which version of them it is, replaced while they are served.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use tempfile::TempDir;

/// Small files: more than fit into one batch, few enough that each is asked for often.
pub(super) const SMALL_COUNT: u64 = 16;
const SMALL_BYTES: usize = 600;
/// More than any socket takes at once, so it leaves in many pieces.
pub(super) const LARGE: &str = "large.bin";
const LARGE_BYTES: usize = 4 << 20;
/// Never replaced: parts of it can be asked for, one after the other.
pub(super) const FIXED: &str = "fixed.bin";
const FIXED_BYTES: usize = 1 << 20;

/// What is served, and where.
pub(super) struct Site {
    folder: TempDir,
    pub(super) server: SocketAddr,
    /// Whether a connection keeps all others waiting.
    pub(super) is_sequential: bool,
}

/// Makes the files.
pub(super) fn make() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..SMALL_COUNT {
        replace(folder.path(), &small(number), 0);
    }
    replace(folder.path(), LARGE, 0);
    replace(folder.path(), FIXED, 0);
    folder
}

impl Site {
    pub(super) fn new(folder: TempDir, server: SocketAddr, is_sequential: bool) -> Self {
        Self {
            folder,
            server,
            is_sequential,
        }
    }

    /// Puts another version in the place of a file, at once.
    pub(super) fn replace(&self, name: &str, version: u64) {
        replace(self.folder.path(), name, version);
    }
}

pub(super) fn small(number: u64) -> String {
    format!("small-{}.html", number % SMALL_COUNT)
}

fn replace(folder: &Path, name: &str, version: u64) {
    let new = folder.join(format!(".{name}"));
    fs::write(&new, content(name, version)).unwrap();
    fs::rename(new, folder.join(name)).unwrap();
}

/// Asserts that this is one version of the file, whole.
pub(super) fn check(name: &str, body: &[u8]) {
    let line = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let version = line
        .strip_prefix(name)
        .and_then(|it| it.trim().parse().ok());
    let version = version.unwrap_or_else(|| panic!("no version of {name}: {line}"));
    let right = content(name, version);
    let is_right = body == right; // not assert_eq: it would print all of it
    let differs = body
        .iter()
        .zip(&right)
        .position(|(one, other)| one != other);
    assert!(
        is_right,
        "{name} {version}: {} bytes in place of {}, which differ from {differs:?} on",
        body.len(),
        right.len()
    );
}

/// A part of the file that is never replaced.
pub(super) fn fixed(from: usize, to: usize) -> Vec<u8> {
    content(FIXED, 0)[from..to].to_vec()
}

fn content(name: &str, version: u64) -> Vec<u8> {
    let bytes = match name {
        LARGE => LARGE_BYTES,
        FIXED => FIXED_BYTES,
        _ => SMALL_BYTES,
    };
    let length = bytes + usize::try_from(version % 97).unwrap();
    let mut content = format!("{name} {version}\n").into_bytes();
    let mut random = Random::new(version ^ u64::from(name.as_bytes()[6]) << 32);
    while content.len() < length {
        content.extend(random.next().to_le_bytes());
    }
    content.truncate(length);
    content
}

/// A sequence that looks random, and is the same for the same seed: xorshift64*.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 32) % bound
    }
}
