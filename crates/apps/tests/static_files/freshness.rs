//! What changes is seen within a second, and what does not is not looked at meanwhile.

use std::fs;
use std::os::unix::fs::symlink;

use loadline_apps::StaticOptions;
use loadline_proto::Handler;

use crate::site::{Site, set_ahead, settled};

/// Options under which files are kept in memory and kept open, settled and young.
fn all_options() -> [StaticOptions; 4] {
    let open = |options| StaticOptions {
        memory_bytes_max: 0,
        ..options
    };
    [
        settled(),
        open(settled()),
        StaticOptions::default(),
        open(StaticOptions::default()),
    ]
}

/// What is done, how, and what the file says then.
type Change = (&'static str, fn(&Site), Option<&'static str>);

/// Ways to change what `/d/f.txt` answers from "old" to "other", or to nothing.
const CHANGES: [Change; 9] = [
    (
        "written over",
        |site| site.write("d/f.txt", "other"),
        Some("other"),
    ),
    (
        "replaced",
        |site| {
            site.write("new", "other");
            fs::rename(site.path("new"), site.path("d/f.txt")).unwrap();
        },
        Some("other"),
    ),
    (
        "replaced by one of the same size and times",
        |site| {
            let modified = fs::metadata(site.path("d/f.txt"))
                .unwrap()
                .modified()
                .unwrap();
            site.write("new", "own");
            let file = fs::File::options()
                .write(true)
                .open(site.path("new"))
                .unwrap();
            file.set_modified(modified).unwrap();
            fs::rename(site.path("new"), site.path("d/f.txt")).unwrap();
        },
        Some("own"),
    ),
    (
        "cut",
        |site| {
            let file = fs::File::options()
                .write(true)
                .open(site.path("d/f.txt"))
                .unwrap();
            file.set_len(1).unwrap();
        },
        Some("o"),
    ),
    (
        "removed",
        |site| fs::remove_file(site.path("d/f.txt")).unwrap(),
        None,
    ),
    (
        "replaced by a link",
        |site| {
            site.write("new", "other");
            fs::remove_file(site.path("d/f.txt")).unwrap();
            symlink("../new", site.path("d/f.txt")).unwrap();
        },
        Some("other"),
    ),
    (
        "its directory replaced",
        |site| {
            fs::rename(site.path("d"), site.path("e")).unwrap();
            site.write("d/f.txt", "other");
        },
        Some("other"),
    ),
    (
        "its directory replaced by a link",
        |site| {
            site.write("e/f.txt", "other");
            fs::rename(site.path("d"), site.path("was")).unwrap();
            symlink("e", site.path("d")).unwrap();
        },
        Some("other"),
    ),
    (
        "the root replaced",
        |site| {
            fs::rename(site.path(""), site.path("../was")).unwrap();
            site.write("d/f.txt", "other");
        },
        Some("other"),
    ),
];

/// Asserts that two threads that know the file see the change after so long.
fn both_threads_see((what, change, expected): Change, mut site: Site, after_ms: u64) {
    let mut other_thread = site.handler.local();
    for _ in 0..2 {
        assert_eq!(site.get("/d/f.txt").text(), "old");
        std::mem::swap(&mut site.local, &mut other_thread);
    }
    change(&site);
    site.pass(after_ms);
    for _ in 0..4 {
        let answer = site.get("/d/f.txt");
        match expected {
            Some(text) => assert_eq!(answer.text(), text, "{what}"),
            None => assert_eq!(answer.status, 404, "{what}"),
        }
        std::mem::swap(&mut site.local, &mut other_thread);
    }
}

#[test]
fn every_change_is_seen_after_a_second_by_every_thread() {
    for options in all_options() {
        for change in CHANGES {
            for walk in [false, true] {
                let mut site = Site::new(&[("d/f.txt", "old")], options.clone());
                if walk {
                    site.handler = site.handler.without_openat2();
                }
                both_threads_see(change, site, 1000);
            }
        }
    }
}

#[test]
fn within_a_second_nothing_is_looked_at() {
    let mut site = Site::new(&[("d/f.txt", "old")], settled());
    let before = site.get("/d/f.txt");
    fs::remove_file(site.path("d/f.txt")).unwrap();
    site.pass(999);
    assert_eq!(site.get("/d/f.txt"), before);
    site.pass(1);
    assert_eq!(site.get("/d/f.txt").status, 404);
    site.write("d/f.txt", "new");
    site.pass(999);
    assert_eq!(site.get("/d/f.txt").status, 404);
    site.pass(1);
    assert_eq!(site.get("/d/f.txt").text(), "new");
}

/// What is kept open can only be sent as it is now: under the old length it would be broken off.
#[test]
fn a_change_of_an_open_file_is_seen_at_once_by_every_thread() {
    let options = StaticOptions {
        memory_bytes_max: 0,
        ..settled()
    };
    for change in CHANGES {
        let what = change.0;
        if what.starts_with("its directory") || what.starts_with("the root") {
            continue; // another path, while the file itself is as it was
        }
        let site = Site::new(&[("d/f.txt", "old")], options.clone());
        both_threads_see(change, site, 0);
    }
}

#[test]
fn what_stays_the_same_stays_known() {
    for options in all_options() {
        let mut site = Site::new(&[("f.txt", "same")], options);
        let first = site.get("/f.txt");
        let blocked = site.blocked;
        for _ in 0..30 {
            site.pass(1000);
            let answer = site.get("/f.txt");
            assert_eq!(answer.text(), "same");
            if !answer.field("ETag").starts_with("W/") {
                assert_eq!(
                    answer.field("ETag"),
                    first.field("ETag").trim_start_matches("W/")
                );
            }
        }
        assert_eq!(site.blocked, blocked, "it never had to wait for it");
    }
}

#[test]
fn a_link_swapped_to_the_outside_is_refused() {
    for options in all_options() {
        let mut site = Site::new(&[("a", "inside")], options);
        fs::write(site.path("../outside"), "secret").unwrap();
        symlink("a", site.path("link")).unwrap();
        assert_eq!(site.get("/link").text(), "inside");
        fs::remove_file(site.path("link")).unwrap();
        symlink("../outside", site.path("link")).unwrap();
        site.pass(1000);
        assert_eq!(site.get("/link").status, 403);
    }
}

#[test]
fn a_root_that_is_a_link_can_be_pointed_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    for (release, content) in [("1", "first"), ("2", "second")] {
        crate::site::write(&directory.path().join(release).join("f"), content);
    }
    let root = directory.path().join("root");
    symlink("1", &root).unwrap();
    let mut site = Site::over(directory, settled());
    assert_eq!(site.get("/f").text(), "first");
    symlink("2", site.path("../next")).unwrap();
    fs::rename(site.path("../next"), root).unwrap();
    site.pass(1000);
    assert_eq!(site.get("/f").text(), "second");
}

/// While two changes have the same time, only reading again finds the second.
#[test]
fn a_change_that_leaves_no_trace_in_the_times_is_seen() {
    let mut site = Site::new(&[("f.txt", "0")], StaticOptions::default());
    for round in 1..200 {
        let content = (round % 10).to_string();
        site.write("f.txt", &content);
        site.pass(1000);
        assert_eq!(site.get("/f.txt").text(), content);
    }
}

/// The same, shown by what does not depend on how fine the file system's clock is.
#[test]
fn what_was_young_is_read_again_though_its_times_are_the_same() {
    let options = StaticOptions {
        memory_bytes_max: 0,
        ..settled()
    };
    let mut site = Site::new(&[("f.txt", "same")], options);
    set_ahead(0);
    let young = site.get("/f.txt").field("ETag").to_owned();
    set_ahead(60);
    site.pass(999);
    assert_eq!(site.get("/f.txt").field("ETag"), young);
    site.pass(1);
    let settled = site.get("/f.txt").field("ETag").to_owned();
    assert_eq!(young, format!("W/{settled}"));
}

#[test]
fn the_etag_of_a_file_is_weak_while_it_is_young() {
    let open = |options| StaticOptions {
        memory_bytes_max: 0,
        ..options
    };
    let files = [("f.txt", "content")];
    let young = Site::new(&files, open(StaticOptions::default())).get("/f.txt");
    assert!(young.field("ETag").starts_with("W/\""), "{young:?}");
    let mut site = Site::new(&files, open(settled()));
    let before = site.get("/f.txt").field("ETag").to_owned();
    assert!(before.starts_with('"'));
    site.write("f.txt", "another");
    site.pass(1000);
    assert_ne!(site.get("/f.txt").field("ETag"), before);
    // That of content in memory goes by its bytes.
    let etag = |content| Site::new(&[("f.txt", content)], StaticOptions::default()).get("/f.txt");
    assert_eq!(etag("a").field("ETag"), etag("a").field("ETag"));
    assert_ne!(etag("a").field("ETag"), etag("b").field("ETag"));
    assert!(etag("a").field("ETag").starts_with('"'));
}
