//! Circles among the modules of a crate: none but those that are known.
//!
//! A module counts with everything below it. Two modules with the same parent are in a circle if each
//! needs the other, directly or through further ones. A parent and its own parts may need each other.
//! What a module needs is read from its `use` lines and from paths that begin with `crate` or `super`;
//! a name that is only passed on (`pub use`) is followed to the module that defines it.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::Rust;

/// Path of a module from the root of its crate.
type Path = Vec<String>;

/// A module: one file.
#[derive(Default)]
struct Module {
    /// What it needs, as written.
    paths: Vec<Path>,
    /// Names that `use` lines bind, and where to.
    names: BTreeMap<String, Path>,
    /// Modules of which it passes on everything.
    globs: Vec<Path>,
    /// Names of items that it defines.
    items: BTreeSet<String>,
}

/// The modules of one crate.
#[derive(Default)]
pub(crate) struct Modules(BTreeMap<Path, Module>);

/// The modules of each crate, by the crate's folder.
pub(crate) fn modules(files: &[Rust]) -> BTreeMap<String, Modules> {
    let mut crates: BTreeMap<String, Modules> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.is_test_file()) {
        let Some((name, inner)) =
            (file.path.strip_prefix("crates/")).and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        let modules = crates.entry(name.to_owned()).or_default();
        modules.0.insert(place(inner), Module::read(&file.code));
    }
    crates
}

/// "a/b.rs" and "a/b/mod.rs" are a::b, and "lib.rs" is the root.
fn place(inner: &str) -> Path {
    let mut parts: Path = inner
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    let is_root = matches!(
        parts.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    );
    parts.truncate(parts.len() - usize::from(is_root));
    parts
}

impl Modules {
    /// Each circle as "parent: one, two".
    pub(crate) fn circles(&self) -> Vec<String> {
        let mut edges: BTreeMap<(Path, String), BTreeSet<String>> = BTreeMap::new();
        for (here, module) in &self.0 {
            for path in &module.paths {
                let Some(there) = self
                    .absolute(here, path)
                    .map(|path| self.definition(&path, 0))
                else {
                    continue;
                };
                let common = here.iter().zip(&there).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (here.get(common), there.get(common)) {
                    let key = (here[..common].to_vec(), from.clone());
                    edges.entry(key).or_default().insert(to.clone());
                }
            }
        }
        let parents: BTreeSet<&Path> = edges.keys().map(|(parent, _)| parent).collect();
        let circles = parents.into_iter().flat_map(|parent| {
            let of_parent = edges.iter().filter(|((one, _), _)| one == parent);
            let graph = of_parent
                .map(|((_, from), to)| (from.as_str(), to))
                .collect();
            let name = parent.join("::");
            circles(&graph)
                .into_iter()
                .map(move |circle| format!("{name}: {}", circle.join(", ")))
        });
        circles.collect()
    }

    /// A path as written in a module, from the root; `None`: it is of another crate.
    fn absolute(&self, here: &Path, path: &Path) -> Option<Path> {
        let mut base = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "super" | "self" => here.clone(),
            child => {
                let child = [here.as_slice(), &[child.to_owned()]].concat();
                return self
                    .0
                    .contains_key(&child)
                    .then(|| [here.as_slice(), path].concat());
            }
        };
        for part in path {
            match part.as_str() {
                "crate" | "self" => {}
                "super" => drop(base.pop()),
                _ => base.push(part.clone()),
            }
        }
        Some(base)
    }

    /// The module that defines what a path names.
    fn definition(&self, path: &Path, depth: usize) -> Path {
        let len = (0..=path.len())
            .rev()
            .find(|len| self.0.contains_key(&path[..*len]));
        let (here, rest) = path.split_at(len.unwrap_or(0));
        let here = here.to_vec();
        let (Some(name), Some(module)) = (rest.first(), self.0.get(&here)) else {
            return here;
        };
        if module.items.contains(name) || depth > self.0.len() {
            return here;
        }
        let bound = module
            .names
            .get(name)
            .and_then(|target| self.absolute(&here, target));
        if let Some(target) = bound {
            return self.definition(&target, depth + 1);
        }
        let globs = module
            .globs
            .iter()
            .filter_map(|glob| self.absolute(&here, glob));
        let defining = |glob: &Path| {
            let module = self.0.get(glob);
            module.is_some_and(|module| module.items.contains(name))
        };
        globs.into_iter().find(defining).unwrap_or(here)
    }
}

impl Module {
    fn read(code: &str) -> Self {
        let mut module = Self::default();
        let code = without_tests(code);
        let mut statement = String::new();
        for line in code.lines() {
            let start = unqualified(line.trim_start());
            if statement.is_empty() && !start.starts_with("use ") {
                module.items.extend(item(start));
                module.paths.extend(paths(line));
                continue;
            }
            statement += start;
            if start.ends_with(';') {
                module.bind(statement.trim_start_matches("use ").trim_end_matches(';'));
                statement.clear();
            }
        }
        module
    }

    fn bind(&mut self, tree: &str) {
        for (path, name) in flat(tree) {
            match name.as_str() {
                "*" => self.globs.push(path.clone()),
                _ => drop(self.names.insert(name, path.clone())),
            }
            self.paths.push(path);
        }
    }
}

/// The code but for what is built for tests alone.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept += line;
            kept.push('\n');
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        let _ = lines.find(|line| line.ends_with(';') && !line.starts_with("    ") || *line == end);
    }
    kept
}

/// Without `pub` and `pub(crate)`.
fn unqualified(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else {
        return line;
    };
    let rest = match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')').map_or("", |(_, rest)| rest),
        None => rest,
    };
    rest.strip_prefix(' ').unwrap_or(line)
}

/// The name of the item that a line begins.
fn item(line: &str) -> Option<String> {
    const KINDS: [&str; 8] = [
        "struct", "enum", "trait", "type", "const", "static", "fn", "union",
    ];
    let mut words = line
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty());
    let is_kind = |word: &&str| KINDS.contains(word);
    let modifiers = ["unsafe", "async", "extern"];
    let first = words.find(|word| !modifiers.contains(word))?;
    if !is_kind(&first) {
        return None;
    }
    words
        .find(|word| !is_kind(word) && !modifiers.contains(word))
        .map(str::to_owned)
}

/// Paths in a line that begin with `crate` or `super`.
fn paths(line: &str) -> Vec<Path> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = line
        .split(|c: char| !is_part(c))
        .filter(|word| word.contains("::"));
    let paths = words.map(|word| word.split("::").map(str::to_owned).collect::<Path>());
    paths
        .filter(|path| matches!(path[0].as_str(), "crate" | "super"))
        .collect()
}

/// Every path of a `use` tree, and the name that it binds.
fn flat(tree: &str) -> Vec<(Path, String)> {
    let tree = tree.trim();
    let Some((head, inner)) = tree.split_once('{') else {
        let (path, renamed) = tree
            .split_once(" as ")
            .map_or((tree, None), |(a, b)| (a, Some(b)));
        let mut path: Path = path
            .split("::")
            .map(|part| part.trim().to_owned())
            .collect();
        let last = path.last().cloned().unwrap_or_default();
        if path.len() > 1 && matches!(last.as_str(), "self" | "*") {
            path.pop();
        }
        let name = match last.as_str() {
            "self" => path.last().cloned().unwrap_or_default(),
            _ => last,
        };
        return vec![(path, renamed.map_or(name, |name| name.trim().to_owned()))];
    };
    let mut depth = 0;
    let parts = inner.trim_end_matches('}').split(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let parts: Vec<&str> = parts.filter(|part| !part.trim().is_empty()).collect();
    let closed = |part: &&str| {
        // The last brace was cut off with the one that closes the tree.
        let open = part.matches('{').count() - part.matches('}').count();
        format!("{head}{}{}", part.trim(), "}".repeat(open))
    };
    parts.iter().flat_map(|part| flat(&closed(part))).collect()
}

/// The sets of more than one node that reach each other.
fn circles(graph: &BTreeMap<&str, &BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |from: &str| {
        let mut found = BTreeSet::new();
        let mut left = vec![from.to_owned()];
        while let Some(one) = left.pop() {
            for next in graph
                .get(one.as_str())
                .into_iter()
                .flat_map(|next| next.iter())
            {
                if found.insert(next.clone()) {
                    left.push(next.clone());
                }
            }
        }
        found
    };
    let reach: BTreeMap<&str, BTreeSet<String>> =
        graph.keys().map(|from| (*from, reached(from))).collect();
    let mut circles = BTreeSet::new();
    for (from, found) in &reach {
        let returns = |to: &&String| {
            reach
                .get(to.as_str())
                .is_some_and(|back| back.contains(*from))
        };
        let circle: Vec<String> = found.iter().filter(returns).cloned().collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<Rust> = (files.iter())
            .map(|(path, text)| Rust {
                path: format!("crates/one/src/{path}"),
                text: (*text).to_owned(),
                code: (*text).to_owned(),
            })
            .collect();
        modules(&files)["one"].circles()
    }

    #[test]
    fn siblings_that_need_each_other_are_a_circle() {
        let lib = ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::*;\n");
        let a = |text| ("a.rs", text);
        let uses = "use std::{\n    fmt,\n    io::{self, Read},\n};\nuse crate::{B, b::{C as D}};\npub struct A;\n";
        let b = ("b.rs", "pub struct B;\nfn f() { super::A }\n");
        assert_eq!(circles_of(&[lib, a(uses), b]), [": a, b"]);
        assert_eq!(circles_of(&[lib, a("pub struct A;\n"), b]), [""; 0]);
        let tested = "pub struct A;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod more {\n    use crate::B;\n}\n";
        assert_eq!(circles_of(&[lib, a(tested), b]), [""; 0]);
        let behind = "pub struct A;\n#[cfg(test)]\nmod tests;\nuse crate::B;\n";
        assert_eq!(circles_of(&[lib, a(behind), b]), [": a, b"]);
    }

    #[test]
    fn a_module_counts_with_what_is_below_it() {
        let lib = ("lib.rs", "mod a;\nmod b;\n");
        let (a, part) = (
            ("a.rs", "mod part;\n"),
            ("a/part.rs", "use crate::b::B;\nuse super::A;\n"),
        );
        let (b, other) = (
            ("b/mod.rs", "mod other;\npub struct B;\n"),
            ("b/other.rs", "use crate::a;\n"),
        );
        assert_eq!(circles_of(&[lib, a, part, b, other]), [": a, b"]);
        // A parent and its part.
        assert_eq!(
            circles_of(&[lib, a, part, ("b/mod.rs", "pub struct B;\n")]),
            [""; 0]
        );
    }
}
