//! What the documentation says is held by a test is held by one.

use std::fs;
use std::path::Path;

/// All sources of this crate, and of the tests in a browser.
fn sources() -> String {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        "src",
        "src/web",
        "tests",
        "tests/accounts",
        "../cli/tests/browser",
    ];
    let mut text = String::new();
    for folder in folders {
        for entry in fs::read_dir(own.join(folder)).expect(folder).flatten() {
            if entry.path().extension().is_some_and(|kind| kind == "rs") {
                text += &fs::read_to_string(entry.path()).expect("text");
            }
        }
    }
    text
}

#[test]
fn every_test_in_the_table_of_requirements_is_there() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(own.join("../../docs/accounts.md")).expect("the page");
    let (_, table) = page.split_once("## OWASP ASVS").expect("the table");
    let sources = sources();
    let rows = table
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'));
    let mut count = 0;
    for row in rows {
        let held_by = row.rsplit('|').nth(1).unwrap_or_default();
        for name in held_by.split('`').skip(1).step_by(2) {
            let test = name.rsplit("::").next().unwrap_or_default();
            if !test.contains('_') {
                continue; // all tests of a module, or another word of code
            }
            let is_there = sources.contains(&format!("fn {test}("));
            assert!(is_there, "{name}: no such test");
            count += 1;
        }
    }
    assert!(count > 20, "{count} tests in the table");
}
