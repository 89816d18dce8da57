//! Servers that the lab knows, told to other programs; and where a comparison may be written to.

use std::fs;

use serde_json::Value;

use crate::bench::said;
use crate::program::run;

#[test]
fn servers_are_told_with_how_they_are_started() {
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
            "ngin: no such server; right would be one of apache-event, ceil-epoll",
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
