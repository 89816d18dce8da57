//! The rules for documents: links lead somewhere, the front pages stay short, and the README's figures
//! are those of docs/figures.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::sources::{read, root, text_files};

const README_LINES_MAX: usize = 120;
const ARCHITECTURE_WORDS_MAX: usize = 1500;

#[test]
fn links_lead_somewhere() {
    let pages: BTreeMap<String, String> = text_files()
        .into_iter()
        .filter(|(path, _)| path.ends_with(".md"))
        .map(|(path, text)| (path, without_code(&text)))
        .collect();
    let anchors: BTreeMap<&str, BTreeSet<String>> = pages
        .iter()
        .map(|(path, text)| (path.as_str(), anchors(text)))
        .collect();
    let mut broken = Vec::new();
    for (page, text) in &pages {
        for link in links(text).filter(|link| !link.contains(':')) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => beside(page, file),
            };
            let exists = root().join(&target).exists();
            let has_anchor = |found: &BTreeSet<String>| anchor.is_empty() || found.contains(anchor);
            if !exists || !anchors.get(target.as_str()).is_none_or(has_anchor) {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// A page without its blocks of code.
fn without_code(page: &str) -> String {
    let mut is_code = false;
    let lines = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The targets of a page's links and pictures.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let ends = page.split("](").skip(1);
    ends.filter_map(|rest| rest.split([')', ' ']).next())
}

/// The names that a link into a page may have, as code hosts make them of headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let of_headings = headings.map(|line| {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let text = line.trim_start_matches('#').trim().to_lowercase();
        text.chars()
            .filter(kept)
            .collect::<String>()
            .replace(' ', "-")
    });
    let of_tags = page.split("<a id=\"").skip(1);
    let of_tags = of_tags.filter_map(|rest| rest.split('"').next().map(str::to_owned));
    of_headings.chain(of_tags).collect()
}

/// The path of a file that a page names.
fn beside(page: &str, file: &str) -> String {
    let mut path = PathBuf::from(page);
    path.pop();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            part => path.push(part),
        }
    }
    path.to_string_lossy().into_owned()
}

#[test]
fn decisions_have_a_number_of_their_own_and_are_in_the_index() {
    let folder = "docs/decisions/";
    let index = read("docs/decisions/README.md");
    let mut numbers = BTreeSet::new();
    for (path, text) in text_files() {
        let Some(name) = path
            .strip_prefix(folder)
            .filter(|name| *name != "README.md")
        else {
            continue;
        };
        let number = &name[..4];
        assert!(
            text.starts_with(&format!("# {number}: ")),
            "{path}: its title"
        );
        assert!(numbers.insert(number.to_owned()), "{path}: taken");
        assert!(
            index.contains(&format!("]({name})")),
            "{path}: not in the index"
        );
    }
    assert!(!numbers.is_empty());
}

#[test]
fn front_pages_are_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= README_LINES_MAX, "README.md: {lines} lines");
    let words = read("ARCHITECTURE.md").split_whitespace().count();
    assert!(
        words <= ARCHITECTURE_WORDS_MAX,
        "ARCHITECTURE.md: {words} words"
    );
}

#[test]
fn the_readme_shows_figures_that_were_measured() {
    let (readme, page) = (read("README.md"), read("docs/figures.md"));
    let (shown, measured) = (figures(&readme), figures(&page));
    assert!(shown.len() > 10, "the README has a table of figures");
    for (place, figure) in &shown {
        let found = measured.get(place);
        assert_eq!(found, Some(figure), "{place:?}: as in docs/figures.md");
    }
}

/// The cells of the table of servers, by row and column.
fn figures(page: &str) -> BTreeMap<(String, String), String> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    let mut rows = page
        .lines()
        .skip_while(|line| !line.starts_with("| server CPU us a request"))
        .take_while(|line| line.starts_with('|'));
    let head = rows.next().map(cells).unwrap_or_default();
    let mut found = BTreeMap::new();
    for row in rows.skip(1).map(cells) {
        for (column, cell) in head.iter().zip(&row).skip(1) {
            found.insert((row[0].clone(), column.clone()), cell.clone());
        }
    }
    found
}
