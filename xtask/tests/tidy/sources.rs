//! The files of the repository, and of Rust ones the code without comments and strings.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold what is built, found or fetched.
const NOT_OURS: &[&str] = &[
    "target",
    ".git",
    "corpus",
    "artifacts",
    "__pycache__",
    "runs",
];

pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .expect("xtask is a folder of the repository")
        .to_owned()
}

/// A file of the repository, by its path from the root.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files that hold text, but lock files, which are written by cargo.
pub(crate) fn text_files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk(&root(), &mut found);
    let texts = found.into_iter().filter_map(|path| {
        let text = fs::read_to_string(&path).ok()?;
        let path = path
            .strip_prefix(root())
            .ok()?
            .to_string_lossy()
            .into_owned();
        (!path.ends_with(".lock")).then_some((path, text))
    });
    texts.collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    for entry in entries.map_while(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().expect("the kind of a file is known");
        if kind.is_dir() && !NOT_OURS.contains(&name.as_str()) {
            walk(&entry.path(), found);
        } else if kind.is_file() && name != ".git" {
            found.push(entry.path());
        }
    }
}

/// A manifest.
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) text: String,
    /// Crates of ours under `[dependencies]`.
    pub(crate) imports: Vec<String>,
    /// Crates of ours under `[dev-dependencies]`.
    pub(crate) test_imports: Vec<String>,
    folder: String,
}

impl Manifest {
    /// The source of the crate's root module.
    pub(crate) fn root_source(&self) -> Option<String> {
        let root = root().join(&self.folder);
        let places = ["src/lib.rs", "src/main.rs"].map(|place| root.join(place));
        places
            .iter()
            .find_map(|place| fs::read_to_string(place).ok())
    }
}

/// Every manifest of a package.
pub(crate) fn manifests() -> Vec<Manifest> {
    let texts = text_files().into_iter();
    texts
        .filter_map(|(path, text)| manifest(&path, text))
        .collect()
}

fn manifest(path: &str, text: String) -> Option<Manifest> {
    let folder = path.strip_suffix("Cargo.toml")?.to_owned();
    let (mut name, mut section) = (None, "");
    let (mut imports, mut test_imports) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let key = line.split([' ', '.', '=']).next().unwrap_or_default();
        match section {
            "[package]" if key == "name" => name = line.split('"').nth(1).map(str::to_owned),
            "[dependencies]" if key.starts_with("loadline") => imports.push(key.to_owned()),
            "[dev-dependencies]" if key.starts_with("loadline") => {
                test_imports.push(key.to_owned())
            }
            _ => {}
        }
    }
    Some(Manifest {
        name: name?,
        imports,
        test_imports,
        folder,
        text,
    })
}

/// A Rust source.
pub(crate) struct Rust {
    pub(crate) path: String,
    /// As it is.
    pub(crate) text: String,
    /// The same lines without comments and what is in quotes.
    pub(crate) code: String,
}

/// Every Rust source.
pub(crate) fn rust_files() -> Vec<Rust> {
    let texts = text_files()
        .into_iter()
        .filter(|(path, _)| path.ends_with(".rs"));
    texts.map(|(path, text)| Rust::new(path, text)).collect()
}

impl Rust {
    pub(crate) fn new(path: String, text: String) -> Self {
        Self {
            code: bare(&text),
            path,
            text,
        }
    }

    /// Whether it is all tests or measurements.
    pub(crate) fn is_test_file(&self) -> bool {
        let mut parts = self.path.split('/');
        parts.any(|part| matches!(part, "tests" | "benches" | "fuzz" | "tests.rs"))
    }

    /// The lines of code, numbered from 1, up to the tests at the foot of the file.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.code.lines().enumerate();
        lines
            .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
            .map(|(index, line)| (index + 1, line))
    }

    pub(crate) fn lines_of_code(&self) -> usize {
        self.code_lines()
            .filter(|(_, line)| !line.trim().is_empty())
            .count()
    }

    /// Functions and their lengths. In formatted code a body ends where a brace stands as deep as
    /// the line that began it.
    pub(crate) fn functions(&self) -> Vec<(String, usize)> {
        let lines: Vec<&str> = self.code_lines().map(|(_, line)| line).collect();
        let mut functions = Vec::new();
        for (start, line) in lines.iter().enumerate() {
            let Some(name) = function_name(line) else {
                continue;
            };
            let depth = line.len() - line.trim_start().len();
            let end = format!("{}}}", " ".repeat(depth));
            let without_body = lines[start..].iter().position(|line| line.ends_with(';'));
            let body_end = lines[start..].iter().position(|line| *line == end);
            let opens = lines[start..].iter().position(|line| line.ends_with('{'));
            match (body_end, opens, without_body) {
                (_, Some(opens), Some(semicolon)) if semicolon < opens => {} // of a trait, or extern
                (Some(length), _, _) => functions.push((name.to_owned(), length + 1)),
                _ => {}
            }
        }
        functions
    }
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_modifier = |word: &str| {
        matches!(word, "pub" | "const" | "async" | "unsafe" | "extern") || word.starts_with("pub(")
    };
    let name = after.split(['(', '<']).next()?;
    (before.split_ascii_whitespace().all(is_modifier) && !name.is_empty()).then_some(name)
}

/// Blanks comments and the contents of strings and characters, keeping the lines.
fn bare(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, replacement) = match first {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), ""),
            '/' if rest.starts_with("/*") => (block_comment(rest), ""),
            '"' => (string(rest), "\"\""),
            'r' if is_raw_string(&bare, rest) => (raw_string(rest), "\"\""),
            '\'' => match character(rest) {
                Some(length) => (length, "' '"),
                None => (1, "'"), // a lifetime
            },
            _ => {
                bare.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
        };
        let lines = rest[..length].matches('\n').count();
        bare.push_str(replacement);
        bare.extend(std::iter::repeat_n('\n', lines));
        rest = &rest[length..];
    }
    let lines: Vec<&str> = bare.lines().map(str::trim_end).collect();
    lines.join("\n")
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        match (text[at..].find("/*"), text[at..].find("*/")) {
            (Some(open), Some(close)) if open < close => (depth, at) = (depth + 1, at + open + 2),
            (_, Some(close)) if depth <= 1 => return at + close + 2,
            (_, Some(close)) => (depth, at) = (depth - 1, at + close + 2),
            (_, None) => return text.len(),
        }
    }
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

fn is_raw_string(before: &str, text: &str) -> bool {
    let part_of_word = before
        .chars()
        .next_back()
        .is_some_and(|c| c.is_alphanumeric() && c != 'b');
    !part_of_word && text[1..].trim_start_matches('#').starts_with('"')
}

fn raw_string(text: &str) -> usize {
    let hashes = text[1..].len() - text[1..].trim_start_matches('#').len();
    let end = format!("\"{}", "#".repeat(hashes));
    let start = hashes + 2;
    text[start..]
        .find(&end)
        .map_or(text.len(), |at| start + at + end.len())
}

/// The length of a character in quotes; `None` if it is a lifetime.
fn character(text: &str) -> Option<usize> {
    let inner = text[1..].chars().next()?;
    if inner == '\\' {
        return text[3..].find('\'').map(|at| at + 4);
    }
    text[1 + inner.len_utf8()..]
        .starts_with('\'')
        .then(|| inner.len_utf8() + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_quotes_are_blank() {
        for (text, expected) in [
            ("a // b\nc", "a\nc"),
            ("a /* b /* c */ d\n*/ e", "a\n e"),
            (r#"f("unsafe \" x", y)"#, r#"f("", y)"#),
            ("f(r##\"un\"#safe\"##, y)", r#"f("", y)"#),
            (r"f('\'', '\u{41}', '{', b'\\')", "f(' ', ' ', ' ', b' ')"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
        ] {
            assert_eq!(bare(text), expected, "{text}");
        }
    }

    #[test]
    fn functions_are_measured() {
        let text = "pub fn one() {\n    a();\n}\n\ntrait T {\n    fn none(&self);\n    fn two(\n        \
                    &self,\n    ) {\n        if x {\n        }\n    }\n}\n";
        let file = Rust::new("a.rs".into(), text.into());
        let expected = [("one".to_owned(), 3), ("two".to_owned(), 6)];
        assert_eq!(file.functions(), expected);
    }
}
