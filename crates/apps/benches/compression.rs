//! What levels of compression cost and bring: time per byte of one CPU, and ratio.
//!
//! `./x bench compression FILE...`: a table for the files together, each compressed by itself. Without
//! files: the text of the demo site. The levels that the program uses are marked; docs/decisions/0074
//! says why they are.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]
#![allow(clippy::unwrap_used, reason = "a benchmark may")]

use std::io::Write;
use std::path::{Path, PathBuf};

use loadline_apps::MediaTypes;
use loadline_codings::{Coding, Effort, Encoder, is_text_like};
use rustix::time::{ClockId, clock_gettime};

/// Each level is repeated for as long as this at least.
const CPU_S_MIN: f64 = 0.3;

const LEVELS: [(Coding, &[i32]); 3] = [
    (Coding::Gzip, &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
    (
        Coding::Zstd,
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 17, 19],
    ),
    (Coding::Brotli, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
];

fn main() {
    let named = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"));
    // From where `./x` is: cargo runs this in another folder.
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut paths: Vec<PathBuf> = named.map(|name| root.join(name)).collect();
    if paths.is_empty() {
        add_texts(&root.join("site"), &mut paths);
    }
    let texts: Vec<Vec<u8>> = paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    let total: usize = texts.iter().map(Vec::len).sum();
    println!("{} files, {total} bytes", texts.len());
    println!("| coding | level | ratio | MB/s | us for 20 KB |  |");
    println!("|---|--:|--:|--:|--:|---|");
    for (coding, levels) in LEVELS {
        for level in levels {
            row(coding, *level, &texts, total);
        }
    }
}

/// The files below a directory that the server would compress.
fn add_texts(directory: &Path, paths: &mut Vec<PathBuf>) {
    for found in std::fs::read_dir(directory).unwrap() {
        let path = found.unwrap().path();
        let media_type = MediaTypes::default()
            .of(path.as_os_str().as_encoded_bytes())
            .into_owned();
        if path.is_dir() {
            add_texts(&path, paths);
        } else if is_text_like(&media_type) && path.metadata().unwrap().len() >= 1024 {
            paths.push(path);
        }
    }
}

fn row(coding: Coding, level: i32, texts: &[Vec<u8>], total: usize) {
    let (began, mut rounds, mut compressed) = (cpu_s(), 0, 0);
    while cpu_s() - began < CPU_S_MIN {
        compressed = texts
            .iter()
            .map(|text| compressed_len(coding, level, text))
            .sum();
        rounds += 1;
    }
    let per_byte_s = (cpu_s() - began) / f64::from(rounds) / total as f64;
    let used = |effort: Effort, name| match effort.level(coding) == level {
        true => name,
        false => "",
    };
    println!(
        "| {} | {level} | {:.3} | {:.1} | {:.0} | {}{}{} |",
        coding.token().unwrap_or_default(),
        total as f64 / compressed as f64,
        1e-6 / per_byte_s,
        per_byte_s * 20_000.0 * 1e6,
        used(Effort::EachTime, "each time"),
        used(Effort::OnTheFly, "on the fly"),
        used(Effort::Ahead, "ahead"),
    );
}

fn compressed_len(coding: Coding, level: i32, text: &[u8]) -> usize {
    let mut encoder = Encoder::new(coding, level, text.len() as u64, Vec::new()).unwrap();
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap().len()
}

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
