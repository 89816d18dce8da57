//! The rules of this repository that a compiler does not check, as tests that read the sources.

mod circles;
mod documents;
mod promises;
mod sources;

use std::collections::BTreeMap;
use std::path::Path;

use sources::{Rust, manifests, rust_files, text_files};

/// Which of our crates each may import. Lower floors know nothing of upper ones; `proto` and `sys`
/// do not know each other, nor do `server` and `apps`.
const EDGES: &[(&str, &[&str])] = &[
    ("loadline-base", &[]),
    ("loadline-codings", &[]),
    ("loadline-spec", &["loadline-base"]),
    ("loadline-proto", &["loadline-base"]),
    ("loadline-sys", &["loadline-base"]),
    (
        "loadline-server",
        &[
            "loadline-base",
            "loadline-capacity",
            "loadline-proto",
            "loadline-sys",
        ],
    ),
    (
        "loadline-apps",
        &["loadline-base", "loadline-codings", "loadline-proto"],
    ),
    ("loadline-tls", &["loadline-base", "loadline-proto"]),
    ("loadline-acme", &["loadline-proto", "loadline-tls"]),
    (
        "loadline-tower",
        &["loadline-base", "loadline-codings", "loadline-proto"],
    ),
    (
        "loadline-load",
        &[
            "loadline-base",
            "loadline-proto",
            "loadline-record",
            "loadline-spec",
            "loadline-sys",
        ],
    ),
    (
        "loadline",
        &[
            "loadline-base",
            "loadline-proto",
            "loadline-sys",
            "loadline-server",
            "loadline-apps",
            "loadline-acme",
            "loadline-tls",
            "loadline-tower",
            "loadline-load",
            "loadline-clients",
            "loadline-observe",
            "loadline-serve",
            "loadline-record",
            "loadline-spec",
            "loadline-capacity",
            "loadline-lab",
            "loadline-papers",
            "loadline-accounts",
        ],
    ),
    (
        "loadline-lab",
        &[
            "loadline-base",
            "loadline-capacity",
            "loadline-databases",
            "loadline-record",
            "loadline-spec",
            "loadline-sys",
        ],
    ),
    (
        "loadline-papers",
        &[
            "loadline-base",
            "loadline-capacity",
            "loadline-lab",
            "loadline-record",
        ],
    ),
    (
        "loadline-clients",
        &[
            "loadline-base",
            "loadline-load",
            "loadline-proto",
            "loadline-record",
            "loadline-spec",
            "loadline-sys",
            "loadline-tls",
        ],
    ),
    (
        "loadline-observe",
        &[
            "loadline-apps",
            "loadline-capacity",
            "loadline-proto",
            "loadline-server",
            "loadline-sys",
        ],
    ),
    (
        "loadline-serve",
        &[
            "loadline-acme",
            "loadline-apps",
            "loadline-observe",
            "loadline-proto",
            "loadline-server",
        ],
    ),
    ("loadline-record", &["loadline-base"]),
    ("loadline-capacity", &["loadline-base"]),
    ("loadline-databases", &[]),
    ("loadline-stub", &[]),
    ("loadline-accounts", &["loadline-base", "loadline-capacity"]),
    ("xtask", &[]),
    (
        "loadline-fuzz",
        &[
            "loadline-base",
            "loadline-proto",
            "loadline-apps",
            "loadline-load",
        ],
    ),
    (
        "loadline-interleavings",
        &["loadline-base", "loadline-proto"],
    ),
    (
        "loadline-interop",
        &[
            "loadline-base",
            "loadline-proto",
            "loadline-server",
            "loadline-tls",
            "loadline-tower",
        ],
    ),
    (
        "overload-peers",
        &["loadline-observe", "loadline-server", "loadline-tower"],
    ),
];

/// What further crates the tests of each may import: they marry what the crates may not.
const TEST_EDGES: &[(&str, &[&str])] = &[
    (
        "loadline-server",
        &["loadline-apps", "loadline-tls", "loadline-tower"],
    ),
    (
        "loadline-tower",
        &[
            "loadline-apps",
            "loadline-observe",
            "loadline-server",
            "loadline-tls",
        ],
    ),
    ("loadline-observe", &["loadline-tower"]),
    ("loadline-acme", &["loadline-server"]),
    ("loadline-load", &["loadline-stub", "loadline-tls"]),
    ("loadline-clients", &["loadline-stub"]),
    ("loadline-lab", &["loadline-stub"]),
    ("loadline-accounts", &["loadline-databases"]),
    ("loadline", &["loadline-databases", "loadline-stub"]),
    ("xtask", &["loadline-server"]),
];

/// Lines of code (blank lines, comments and tests apart) in a file.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function, signature and braces included.
const FUNCTION_LINES_MAX: usize = 70;
/// Files and functions that are longer, each with its reason.
const LONG: &[(&str, &str)] = &[];

#[test]
fn crates_import_only_what_their_floor_may() {
    let found = manifests();
    let names: Vec<&str> = found
        .iter()
        .map(|manifest| manifest.name.as_str())
        .collect();
    for (name, _) in EDGES {
        assert!(
            names.contains(name),
            "{name} is in the table, but not in the workspace"
        );
    }
    for manifest in &found {
        let allowed = |table: &[(&str, &'static [&'static str])]| {
            let row = table.iter().find(|(name, _)| *name == manifest.name);
            row.map(|(_, edges)| *edges)
        };
        let edges = allowed(EDGES);
        let edges = edges.unwrap_or_else(|| panic!("{} has no row in EDGES", manifest.name));
        let test_edges = allowed(TEST_EDGES).unwrap_or_default();
        for import in &manifest.imports {
            assert!(
                edges.contains(&import.as_str()),
                "{} must not import {import}",
                manifest.name
            );
        }
        for import in &manifest.test_imports {
            let is_allowed =
                edges.contains(&import.as_str()) || test_edges.contains(&import.as_str());
            assert!(
                is_allowed,
                "the tests of {} must not import {import}",
                manifest.name
            );
        }
    }
}

/// What two architectures share is in other modules, so that each file can be read alone.
#[test]
fn architectures_do_not_import_each_other() {
    let mut files = rust_files();
    files.retain(|file| file.path.starts_with("crates/server/src/architecture/"));
    let name = |file: &Rust| {
        Path::new(&file.path)
            .file_stem()?
            .to_str()
            .map(str::to_owned)
    };
    let names: Vec<String> = files.iter().filter_map(name).collect();
    assert!(names.len() > 1, "{names:?}");
    let mut broken = Vec::new();
    for file in &files {
        for (number, line) in file.code_lines() {
            let mut siblings = names.iter().map(|name| format!("super::{name}"));
            if line.contains("crate::architecture") || siblings.any(|path| line.contains(&path)) {
                broken.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn only_sys_may_allow_unsafe_code() {
    for manifest in manifests() {
        let Some(root) = manifest.root_source() else {
            continue;
        };
        let forbids = root.contains("#![forbid(unsafe_code)]");
        assert_eq!(
            forbids,
            manifest.name != "loadline-sys",
            "{}",
            manifest.name
        );
    }
}

#[test]
fn nothing_is_left_over() {
    // Put together here, so that this file does not hold them.
    let leftovers = [
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("HA", "CK"),
    ];
    let places = [
        concat!("crates", ".io"),
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
    ];
    let mut found = Vec::new();
    for (path, text) in text_files() {
        for (number, line) in text.lines().enumerate() {
            let number = number + 1;
            let leftover = leftovers.iter().find(|word| has_word(line, word));
            let place = places.iter().find(|place| names_place(line, place));
            if let Some(word) = leftover.or(place) {
                found.push(format!("{path}:{number}: {word}"));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Whether an absolute path stands in a line: `/../root/` in a test of paths is none.
fn names_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !place.starts_with('/')
            || !before.is_some_and(|c| c.is_alphanumeric() || ".}/>".contains(c))
    })
}

/// Whether a word stands in a line by itself, not as a part of another.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(is_part);
        let after = line[at + word.len()..].chars().next().is_some_and(is_part);
        !before && !after
    })
}

#[test]
fn files_and_functions_are_short() {
    let mut long = Vec::new();
    for file in rust_files() {
        let is_excepted = |name: &str| LONG.iter().any(|(excepted, _)| *excepted == name);
        let lines = file.lines_of_code();
        if lines > FILE_LINES_MAX && !is_excepted(&file.path) {
            long.push(format!("{}: {lines} lines of code", file.path));
        }
        if file.is_test_file() {
            continue; // a test is a table or a story
        }
        for (name, lines) in file.functions() {
            let place = format!("{}: {name}", file.path);
            if lines > FUNCTION_LINES_MAX && !is_excepted(&place) {
                long.push(format!("{place}: {lines} lines"));
            }
        }
    }
    assert!(long.is_empty(), "\n{}", long.join("\n"));
}

/// `./x test --all` runs what is ignored, but for tests that are run by hand: it knows them by name.
#[test]
fn ignored_tests_are_long_or_run_by_hand() {
    let mut unclear = Vec::new();
    for (path, text) in text_files()
        .iter()
        .filter(|(path, _)| path.ends_with(".rs"))
    {
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(reason) = line.strip_prefix("#[ignore = \"") else {
                continue;
            };
            let next = lines[at..].iter().find(|line| line.starts_with("fn "));
            let is_by_hand = next.is_some_and(|line| line.contains("_by_hand("));
            let is_clear = match is_by_hand {
                true => reason.starts_with("by hand: "),
                false => reason.starts_with("long: ") || reason.starts_with("a child of"),
            };
            if !is_clear {
                unclear.push(format!("{path}:{}: {reason}", at + 1));
            }
        }
    }
    assert!(unclear.is_empty(), "\n{}", unclear.join("\n"));
}

#[test]
fn every_architecture_is_described_and_shown() {
    let page = sources::read("docs/architectures.md");
    let site = sources::read("site/architectures.html");
    for architecture in loadline_server::Architecture::ALL {
        let name = architecture.name();
        assert!(
            page.lines().any(|line| line == format!("## {name}")),
            "docs: {name}"
        );
        assert!(site.contains(name), "site: {name}");
    }
}

#[test]
fn no_source_file_is_unused() {
    let files: BTreeMap<String, Rust> = rust_files()
        .into_iter()
        .map(|file| (file.path.clone(), file))
        .collect();
    let manifests: String = manifests()
        .iter()
        .map(|manifest| manifest.text.as_str())
        .collect();
    let unused: Vec<&String> = files
        .keys()
        .filter(|path| !is_root(path, &manifests))
        .filter(|path| !is_declared(path, &files))
        .collect();
    assert!(unused.is_empty(), "{unused:?}");
}

/// Whether cargo finds a file by itself, or a manifest names it.
fn is_root(path: &str, manifests: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let (name, folder) = (parts[parts.len() - 1], parts[parts.len() - 2]);
    let by_place = match folder {
        "src" => matches!(name, "main.rs" | "lib.rs"),
        "tests" | "benches" | "examples" | "bin" => true,
        _ if name == "build.rs" => parts.len() == 3, // crates/NAME/build.rs
        _ => {
            let above = parts.len().checked_sub(3).map(|at| parts[at]);
            name == "main.rs" && matches!(above, Some("tests" | "benches"))
        }
    };
    by_place || manifests.contains(&format!("path = \"{folder}/{name}\""))
}

/// Whether the file of the module above declares this one.
fn is_declared(path: &str, files: &BTreeMap<String, Rust>) -> bool {
    let path = Path::new(path);
    let folder = path.parent().expect("a file is in a folder");
    let stem = path
        .file_stem()
        .expect("a file has a name")
        .to_string_lossy();
    let (name, folder) = match &*stem {
        "mod" => (
            folder
                .file_name()
                .expect("a module's folder has a name")
                .to_string_lossy(),
            folder.parent().expect("a module's folder is in another"),
        ),
        _ => (stem, folder),
    };
    let above = folder.parent().map(Path::to_owned).unwrap_or_default();
    let beside = folder.with_extension("rs");
    let places = [folder, &above]
        .into_iter()
        .flat_map(|folder| ["mod.rs", "lib.rs", "main.rs"].map(|name| folder.join(name)));
    let declares = |file: &Rust| {
        let declaration = format!("mod {name};");
        file.code.lines().any(|line| line.ends_with(&declaration))
    };
    let mut places = places.chain([beside]);
    places.any(|place| files.get(&*place.to_string_lossy()).is_some_and(declares))
        || is_shared(path, files)
        // Each file in `tests` is a crate of its own.
        || files.values().any(|file| {
            folder.ends_with("tests") && Path::new(&file.path).parent() == Some(folder) && declares(file)
        })
}

/// Whether a file is included by its path from somewhere in the same crate.
fn is_shared(path: &Path, files: &BTreeMap<String, Rust>) -> bool {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    let attribute = format!("{name}\"]");
    files.values().any(|file| {
        let mut lines = file.text.lines();
        lines.any(|line| line.trim_start().starts_with("#[path") && line.ends_with(&attribute))
    })
}

/// Circles that there are still, by crate: "parent: module, module". No further ones may come to be, and
/// a module that has left its circle leaves this list.
const CIRCLES: &[(&str, &[&str])] = &[];

#[test]
fn modules_of_a_crate_do_not_need_each_other_in_circles() {
    let mut wrong = Vec::new();
    for (name, modules) in circles::modules(&rust_files()) {
        let known = CIRCLES.iter().find(|(crate_name, _)| *crate_name == name);
        let known = known.map_or(&[][..], |(_, circles)| circles);
        let found = modules.circles();
        for circle in found
            .iter()
            .filter(|circle| !known.contains(&circle.as_str()))
        {
            wrong.push(format!(
                "{name}: a circle that is not in the list: {circle}"
            ));
        }
        for circle in known
            .iter()
            .filter(|circle| !found.iter().any(|one| one == *circle))
        {
            wrong.push(format!(
                "{name}: no circle any more, take it off the list: {circle}"
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
