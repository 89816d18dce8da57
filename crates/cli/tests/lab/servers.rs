//! Servers that the lab knows, printed for other programs; and where a comparison may be written to.

use std::fs;

use serde_json::Value;

use crate::bench::said;
use crate::program::run;

#[test]
fn servers_are_printed_with_how_they_are_started() {
    let output = run(&["lab", "server"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is_installed = |name: &str| {
        let found = all.as_array().unwrap().iter().find(|it| it["name"] == name);
        found.unwrap()["is_installed"].as_bool().unwrap()
    };
    assert!(is_installed("reactor"));
    is_installed("nginx-tuned"); // either way, but it is known

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let place = ["--port=8123", "--root", path, "--dir", path];
    let output = run(&[&["lab", "server", "nginx-tuned"][..], &place].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let one: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(one["command"][0], "nginx");
    let configuration = fs::read_to_string(folder.path().join("configuration")).unwrap();
    assert!(
        configuration.contains("listen 127.0.0.1:8123"),
        "{configuration}"
    );
    assert!(
        configuration.contains("location = /large.bin"),
        "{configuration}"
    );
}

#[test]
fn what_is_wrong_is_said_before_anything_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let unmarked = folder.path().join("page.md");
    fs::write(&unmarked, "# A page\n").unwrap();
    let out = folder.path().join("out");
    let (page, out) = (unmarked.to_str().unwrap(), out.to_str().unwrap());
    for (words, part) in [
        (
            &["server", "ngin", "--root", path, "--dir", path][..],
            "ngin: no such server; right would be one of apache-event, caddy-h2c, caddy-tls",
        ),
        (&["server", "reactor"], "--root"),
        (&["server", "--port", "0"], "--port"),
        (
            &["compare", "--page", page, "--out", out],
            "no place for it; right would be the line <!-- ./x bench servers --publish -->",
        ),
        (
            &["compare", "--readme", "/no-such-file", "--out", out],
            "/no-such-file",
        ),
        (&["compare", "--plan", page, "--out", out], "page.md"),
        (
            &["compare", "--plan", page, "--readme", page],
            "right would be --page",
        ),
    ] {
        let output = run(&[&["lab"][..], words].concat());
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words:?}: {}",
            said(&output)
        );
        let said = said(&output);
        assert!(
            said.contains(part) && said.lines().count() == 1,
            "{words:?}: {said}"
        );
    }
    assert!(!folder.path().join("out").exists());
}

/// Servers, loads, a goal and a file beside it are the plan's; the tables go where the page has a place.
#[test]
fn the_servers_of_any_plan_are_compared_and_its_goals_judged() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (plan, page, out) = (place("mine.toml"), place("page.md"), place("out"));
    let text = "name = \"mine\"\nfiles = { \"a.txt\" = 100 }\n\
        [servers.one]\nkind = \"loadline\"\noptions = { loops = 1, workers = 0 }\n\
        [servers.two]\nkind = \"loadline\"\noptions = { loops = 1, workers = 1 }\n\
        [defaults]\npath = \"/a.txt\"\nreplicates = 2\nduration_s = 0.5\nwarm_up_s = 0.1\n\
        a_a = false\nallow = { client_limited = true, steal = 1.0, others = 1.0 }\n\
        load = { connections = 2, method = \"GET\", body_file = \"{plan}/mine.toml\" }\n\
        [[series]]\nname = \"files\"\ncompare = { metric = \"good_per_s\", with = { server = \"one\" } }\n\
        [[goal]]\nname = \"requests at all\"\nseries = \"files\"\nmetric = \"good_per_s\"\n\
        of = { server = \"one\" }\nat_least = 1\n\
        [[goal]]\nname = \"more than there can be\"\nseries = \"files\"\nmetric = \"good_per_s\"\n\
        of = { server = \"two\" }\nat_least = 1000000000000\n";
    fs::write(&plan, text).unwrap();
    let marks = "<!-- ./x bench mine --publish -->\n<!-- end of what it writes -->\n";
    fs::write(&page, marks).unwrap();
    let words = [
        "lab", "compare", "--plan", &plan, "--page", &page, "--out", &out, "--quiet",
    ];
    let output = run(&words);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let page = fs::read_to_string(&page).unwrap();
    for part in [
        "x one",
        "| requests at all ",
        "at least 1/s",
        "| **not met** |",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("nginx"), "{page}");
    let json = fs::read_to_string(folder.path().join("out/compare.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let is_met = |goal: usize| json["goals"][goal]["is_met"].as_bool();
    assert_eq!((is_met(0), is_met(1)), (Some(true), Some(false)));
}
