//! Accounts as an app of the server: where they may be kept, what happens beside them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::util::{Server, architectures, exchange, run, site, until};

#[test]
fn what_is_no_database_is_refused_without_repeating_a_password() {
    for (url, expected) in [
        ("accounts.db", "sqlite:FILE"),
        ("mysql://me:hush@127.0.0.1", "names no database"),
        (
            "postgres://me:hush@db.example/app?sslmode=prefer",
            "another machine",
        ),
    ] {
        let output = run(&["serve", "--accounts", url]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{url}: {said}");
        assert!(
            said.contains("--accounts: ") && said.contains(expected),
            "{said}"
        );
        assert!(!said.contains("hush"), "{said}");
    }
    let output = run(&["serve", "--accounts-pool", "4"]);
    assert_eq!(output.status.code(), Some(2), "there are no accounts");
    let file = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/accounts.db", file.path().display());
    let output = run(&["serve", "--accounts", &url, "--accounts-pool-min", "65"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("right would be 64 at most"), "{said}");
}

#[test]
fn a_file_in_the_served_directory_is_refused() {
    let site = site();
    let root = site.path().display().to_string();
    let outside = tempfile::tempdir().unwrap();
    let link = outside.path().join("link");
    std::os::unix::fs::symlink(site.path(), &link).unwrap();
    for file in [
        format!("{root}/accounts.db"),
        format!(
            "{root}/../{}/accounts.db",
            site.path().file_name().unwrap().display()
        ),
        format!("{}/accounts.db", link.display()),
    ] {
        let output = run(&["serve", &root, "--accounts", &format!("sqlite:{file}")]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("in the directory that is served"), "{said}");
        assert!(!site.path().join("accounts.db").exists());
    }
}

#[test]
fn accounts_stand_beside_files_under_every_architecture() {
    for architecture in architectures() {
        let site = site();
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("accounts.db");
        let url = format!("sqlite:{}", file.display());
        let more = [
            "--architecture",
            architecture,
            "--accounts",
            &url,
            "--accounts-pool-min",
            "3",
            "--status-path",
            "/-/status",
        ];
        let mut server = Server::start(site.path(), &more);
        let (_, status) = exchange(server.connect(), "/-/status");
        assert!(status.contains("\"connections_opened\": 3"), "{status}");
        for figure in [
            "\"pool_size\": 8",
            "\"pool_size_min\": 3",
            "\"pool_size_max\": 64",
        ] {
            assert!(status.contains(figure), "{figure}: {status}");
        }
        let (head, page) = exchange(server.connect(), "/accounts/login");
        assert!(head.starts_with("HTTP/1.1 200 "), "{architecture}: {head}");
        let policy = "content-security-policy: default-src 'none'";
        assert!(head.to_lowercase().contains(policy), "{head}");
        assert!(page.contains("<h1>Log in</h1>"), "{architecture}: {page}");
        let (head, _) = exchange(server.connect(), "/accounts");
        assert!(head.starts_with("HTTP/1.1 308 "), "{architecture}: {head}");
        let (head, _) = exchange(server.connect(), "/accounts/member");
        assert!(head.starts_with("HTTP/1.1 303 "), "{architecture}: {head}");
        let (head, _) = exchange(server.connect(), "/accountsx");
        assert!(head.starts_with("HTTP/1.1 404 "), "{architecture}: {head}");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let (_, status) = exchange(server.connect(), "/-/status");
        assert!(status.contains("\"pool_waits\": 0"), "{status}");
        let (_, text) = exchange(server.connect(), "/-/status?format=prometheus");
        for metric in ["pool_wait_seconds_total", "pool_size ", "pool_busy "] {
            let metric = format!("\nloadline_accounts_{metric}");
            assert!(text.contains(&metric), "{metric}: {text}");
        }
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0), "{architecture}");
        let left: Vec<_> = fs::read_dir(state.path()).unwrap().flatten().collect();
        assert_eq!(
            left.len(),
            1,
            "{architecture}: the last connection takes the log with it: {left:?}"
        );
    }
}

#[test]
fn the_live_page_has_the_size_of_the_pool_and_its_bounds() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/accounts.db", state.path().display());
    let more = [
        "--accounts",
        &url,
        "--accounts-pool-min",
        "8",
        "--status-path",
        "/-/status",
    ];
    let server = Server::start(site.path(), &more);
    // A sample says what has changed since the last one, a second before.
    let event = until("a sample", || {
        let (_, events) = exchange(server.connect(), "/-/live/events");
        let data = events
            .lines()
            .find_map(|line| line.strip_prefix("data: "))?;
        Some(serde_json::from_str::<serde_json::Value>(data).expect(data))
    });
    for (name, size) in [
        ("database pool", 8),
        ("database pool at least", 8),
        ("database pool at most", 64),
    ] {
        assert_eq!(event["sizes"][name], size, "{name}: {event}");
    }
}
