//! Precompressed neighbours.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use loadline_apps::StaticOptions;

use crate::site::{Answer, Site, noise, set_ahead, settled};

fn accepting(site: &mut Site, codings: &str) -> Answer {
    site.request("GET", "/a.js", &[("Accept-Encoding", codings)])
}

fn site() -> Site {
    let files = [
        ("a.js", "plain"),
        ("a.js.gz", "gzipped"),
        ("a.js.br", "brotlied"),
        ("alone.js", "alone"),
    ];
    Site::new(&files, settled())
}

#[test]
fn the_client_chooses_by_quality() {
    let mut site = site();
    let table = [
        ("gzip, deflate, br, zstd", "br", "brotlied"),
        ("gzip", "gzip", "gzipped"),
        ("x-gzip", "gzip", "gzipped"),
        ("br;q=0.5, gzip;q=0.9", "gzip", "gzipped"),
        ("zstd", "", "plain"),
        ("br;q=0, gzip;q=0", "", "plain"),
        ("*", "br", "brotlied"),
        ("identity", "", "plain"),
        ("", "", "plain"),
    ];
    for _ in 0..2 {
        for (codings, chosen, text) in table {
            let answer = accepting(&mut site, codings);
            assert_eq!((answer.status, answer.text()), (200, text), "{codings}");
            assert_eq!(answer.field("Content-Encoding"), chosen, "{codings}");
            assert_eq!(
                answer.field("Content-Type"),
                site.get("/a.js").field("Content-Type")
            );
            assert_eq!(answer.field("Vary"), "Accept-Encoding", "{codings}");
        }
        assert_eq!(site.get("/a.js").text(), "plain");
    }
}

#[test]
fn every_answer_of_what_varies_says_so_and_has_its_own_etag() {
    let mut site = site();
    let plain = site.get("/a.js");
    let packed = accepting(&mut site, "br");
    assert_ne!(plain.field("ETag"), packed.field("ETag"));
    let etag = packed.field("ETag");
    let table: [(&[(&str, &str)], u16); 5] = [
        (&[("Accept-Encoding", "br"), ("If-None-Match", etag)], 304),
        (&[("Accept-Encoding", "gzip"), ("If-None-Match", etag)], 200),
        (&[("Accept-Encoding", "br"), ("Range", "bytes=0-2")], 206),
        (&[("Accept-Encoding", "br"), ("Range", "bytes=99-")], 416),
        (&[("Accept-Encoding", "br"), ("If-Match", "\"other\"")], 412),
    ];
    for (fields, status) in table {
        let answer = site.request("GET", "/a.js", fields);
        assert_eq!(answer.status, status, "{fields:?}");
        assert_eq!(answer.field("Vary"), "Accept-Encoding", "{fields:?}");
    }
    let range = site.request("GET", "/a.js", table[2].0);
    assert_eq!(
        (range.text(), range.field("Content-Encoding")),
        ("bro", "br")
    );
    assert_eq!(accepting_alone(&mut site).field("Vary"), "");
}

fn accepting_alone(site: &mut Site) -> Answer {
    let answer = site.request("GET", "/alone.js", &[("Accept-Encoding", "br, gzip")]);
    assert_eq!(answer.text(), "alone");
    answer
}

#[test]
fn neighbours_come_and_go_within_a_second() {
    let mut site = site();
    assert_eq!(accepting_alone(&mut site).field("Content-Encoding"), "");
    site.write("alone.js.gz", "packed");
    site.pass(1000);
    let answer = site.request("GET", "/alone.js", &[("Accept-Encoding", "gzip")]);
    assert_eq!(answer.text(), "packed");
    std::fs::remove_file(site.path("alone.js.gz")).unwrap();
    site.pass(1000);
    accepting_alone(&mut site);
}

#[test]
fn a_stale_neighbour_does_not_hide_a_newer_file() {
    let mut site = site();
    let old = SystemTime::now() - Duration::from_secs(5);
    let neighbour = std::fs::File::options()
        .write(true)
        .open(site.path("a.js.br"))
        .unwrap();
    neighbour.set_modified(old).unwrap();
    assert_eq!(accepting(&mut site, "br, gzip").text(), "gzipped");
}

#[test]
fn neighbours_that_cannot_be_had_are_none() {
    let mut site = site();
    for suffix in ["br", "gz"] {
        std::fs::remove_file(site.path(&format!("a.js.{suffix}"))).unwrap();
    }
    std::fs::create_dir(site.path("a.js.br")).unwrap();
    std::fs::write(site.path("../outside"), "secret").unwrap();
    symlink("../outside", site.path("a.js.gz")).unwrap();
    for _ in 0..2 {
        let answer = accepting(&mut site, "br, gzip");
        assert_eq!((answer.status, answer.text()), (200, "plain"));
    }
}

/// Its file was read, and compressed in vain, each second.
#[test]
fn what_cannot_be_had_is_looked_at_again_and_its_file_is_not_read_again() {
    type Put = fn(&Site);
    let kinds: [(&str, Put); 3] = [
        ("a directory", |site| {
            std::fs::create_dir(site.path("a.txt.br")).unwrap();
        }),
        ("a link out of the root", |site| {
            std::fs::write(site.path("../outside"), "secret").unwrap();
            symlink("../outside", site.path("a.txt.br")).unwrap();
        }),
        ("for somebody else", |site| {
            site.write("a.txt.br", "brotlied");
            std::fs::set_permissions(site.path("a.txt.br"), Permissions::from_mode(0o000)).unwrap();
        }),
    ];
    for (kind, put) in kinds {
        let mut site = Site::new(&[], settled());
        site.write("a.txt", noise(5000));
        put(&site);
        std::fs::set_permissions(site.path(".."), Permissions::from_mode(0o755)).unwrap();
        // On a thread that is nobody, since the superuser may read anything.
        let thread = std::thread::spawn(move || {
            if rustix::process::geteuid().is_root() {
                rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(65_534)).unwrap();
            }
            set_ahead(60);
            for _ in 0..3 {
                let answer = site.request("GET", "/a.txt", &[("Accept-Encoding", "br")]);
                assert_eq!(answer.status, 200, "{kind}");
                assert!(answer.content == noise(5000), "{kind}");
                site.pass(1000);
            }
            assert_eq!(site.blocked, 1, "{kind}");
            site
        });
        let mut site = thread.join().unwrap();
        // One that can be had is sent.
        let path = site.path("a.txt.br");
        let removed = std::fs::remove_dir(&path).or_else(|_| std::fs::remove_file(&path));
        removed.unwrap();
        site.write("a.txt.br", "brotlied");
        let answer = site.request("GET", "/a.txt", &[("Accept-Encoding", "br")]);
        assert_eq!(answer.text(), "brotlied", "{kind}");
    }
}

/// A look at the neighbour's name failed, so the file was read anew each second.
#[test]
fn a_file_whose_neighbours_would_have_too_long_names_is_not_read_again() {
    for name_bytes in [252, 255] {
        let mut site = Site::new(&[], settled());
        let name = format!("{}.txt", "n".repeat(name_bytes - 4));
        site.write(&name, noise(5000));
        let get = |site: &mut Site| {
            let accepts = [("Accept-Encoding", "br")];
            site.request("GET", &format!("/{name}"), &accepts)
        };
        for _ in 0..3 {
            assert!(get(&mut site).content == noise(5000), "{name_bytes}");
            site.pass(1000);
        }
        assert_eq!(site.blocked, 1, "{name_bytes}");
        if name_bytes == 252 {
            site.write(&format!("{name}.br"), "brotlied"); // which just fits
            assert_eq!(get(&mut site).text(), "brotlied");
        }
    }
}

/// A loop looked at it each second, which may wait for another machine, and when it changed the file was read again.
#[test]
fn what_is_behind_a_link_out_of_the_root_is_not_looked_at() {
    for is_absolute in [false, true] {
        let mut site = Site::new(&[], settled());
        site.write("a.txt", noise(5000));
        let (outside, link) = (site.path("../outside"), site.path("a.txt.br"));
        match is_absolute {
            true => symlink(&outside, &link).unwrap(),
            false => symlink("../outside", &link).unwrap(),
        }
        for content in ["", "secret", "another secret"] {
            std::fs::write(&outside, content).unwrap();
            let answer = site.request("GET", "/a.txt", &[("Accept-Encoding", "br")]);
            assert!(answer.content == noise(5000), "{content}");
            site.pass(1000);
        }
        assert_eq!(site.blocked, 1, "one load");
        // The link itself is looked at.
        std::fs::remove_file(&link).unwrap();
        site.write("inside", "brotlied");
        symlink("inside", &link).unwrap();
        let answer = site.request("GET", "/a.txt", &[("Accept-Encoding", "br")]);
        assert_eq!(answer.text(), "brotlied");
    }
}

#[test]
fn a_neighbour_that_can_be_opened_and_not_read_is_none() {
    let options = StaticOptions {
        follow_symlinks: true,
        ..settled()
    };
    let mut site = Site::new(&[("a.js", "plain"), ("a.js.gz", "gzipped")], options);
    let file = std::fs::File::options().write(true).open(site.path("a.js"));
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.unwrap().set_modified(long_ago).unwrap();
    // It claims to be longer than it is, so there is no state of it to send.
    let endless = "/sys/kernel/fscaps";
    symlink(endless, site.path("a.js.br")).unwrap();
    for _ in 0..2 {
        let answer = accepting(&mut site, "br, gzip");
        assert_eq!((answer.status, answer.text()), (200, "gzipped"));
    }
    assert_eq!(site.get("/a.js.br").status, 503, "by its own name");
}

#[test]
fn neighbours_are_left_alone_if_asked_to() {
    let options = StaticOptions {
        precompressed: false,
        ..settled()
    };
    let mut site = Site::new(&[("a.js", "plain"), ("a.js.gz", "gzipped")], options);
    let answer = accepting(&mut site, "gzip");
    assert_eq!((answer.text(), answer.field("Vary")), ("plain", ""));
    assert_eq!(
        site.get("/a.js.gz").text(),
        "gzipped",
        "by its own name it is a file"
    );
}
