//! Neighbours that are written ahead: which, when, and that a server takes them.
#![allow(clippy::unwrap_used, reason = "a failed test is what it is for")]

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use loadline_apps::precompress::{Coding, PrecompressOptions, Summary, TypePattern, precompress};
use tempfile::TempDir;

const LEN: usize = 20_000;

fn text() -> String {
    let words = (0_u64..).map(|n| format!("{:x} ", n.wrapping_mul(0x9e37_79b9) % 0xffff));
    let mut text: String = words.take(LEN).collect();
    text.truncate(LEN);
    text
}

fn noise() -> Vec<u8> {
    let next = |state: &u64| {
        Some(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1),
        )
    };
    let states = std::iter::successors(Some(1), next);
    states.map(|state| (state >> 56) as u8).take(LEN).collect()
}

fn options() -> PrecompressOptions {
    PrecompressOptions {
        codings: Coding::COMPRESSED.to_vec(),
        bytes_min: 1000,
        types: Vec::new(),
        jobs: 3.try_into().unwrap(),
    }
}

/// Runs it; what it came to, and which paths were reported.
fn run(root: &Path, options: &PrecompressOptions) -> (Summary, Vec<PathBuf>) {
    let reported = Mutex::new(Vec::new());
    let report = |path: &Path, _: &std::io::Error| reported.lock().unwrap().push(path.to_owned());
    let summary = precompress(root, options, &report).unwrap();
    (summary, reported.into_inner().unwrap())
}

/// Every name below a directory, in order.
fn names(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for found in fs::read_dir(directory).unwrap() {
            let path = found.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                directories.push(path.clone());
            }
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            names.push(name.to_owned());
        }
    }
    names.sort();
    names
}

fn decoded(path: &Path) -> Vec<u8> {
    let (file, mut content) = (File::open(path).unwrap(), Vec::new());
    match path.extension().unwrap().to_str().unwrap() {
        "gz" => {
            let mut decoder = flate2::read::GzDecoder::new(file);
            decoder.read_to_end(&mut content).unwrap();
        }
        "br" => {
            let mut encoded = std::io::BufReader::new(file);
            brotli_decompressor::BrotliDecompress(&mut encoded, &mut content).unwrap();
        }
        _ => {
            let mut decoder = zstd::stream::read::Decoder::new(file).unwrap();
            decoder.read_to_end(&mut content).unwrap();
        }
    }
    content
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

fn set_modified(path: &Path, time: SystemTime) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// A directory with everything that makes a difference.
fn site() -> TempDir {
    let site = tempfile::tempdir().unwrap();
    let root = site.path();
    for directory in ["sub/deeper", ".hidden", ".well-known"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for name in [
        "a.js",
        "sub/deeper/b.html",
        ".well-known/c.json",
        "picture.png",
        ".d.txt",
        ".hidden/e.txt",
    ] {
        fs::write(root.join(name), text()).unwrap();
    }
    fs::write(root.join("short.txt"), "short").unwrap();
    fs::write(root.join("noise.txt"), noise()).unwrap();
    symlink("a.js", root.join("link.js")).unwrap();
    symlink("sub", root.join("link")).unwrap();
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(root.join("a.js"), mode).unwrap();
    set_modified(
        &root.join("a.js"),
        SystemTime::UNIX_EPOCH + Duration::from_nanos(1_500_000_000_123_456_789),
    );
    site
}

#[test]
fn neighbours_are_written_for_what_is_served_and_gets_smaller() {
    let site = site();
    let root = site.path();
    let before = names(root);
    let (summary, reported) = run(root, &options());
    assert_eq!(reported, Vec::<PathBuf>::new());
    assert_eq!(summary.files, 5);
    assert_eq!((summary.written, summary.not_smaller), (9, 3));
    assert_eq!(summary.bytes_before, 9 * LEN as u64);
    assert!(summary.bytes_after < summary.bytes_before);
    let mut right = before;
    for name in ["a.js", "sub/deeper/b.html", ".well-known/c.json"] {
        for suffix in [".gz", ".zst", ".br"] {
            let neighbour = root.join(format!("{name}{suffix}"));
            assert!(decoded(&neighbour) == text().as_bytes(), "{neighbour:?}");
            assert_eq!(modified(&neighbour), modified(&root.join(name)));
            right.push(format!("{name}{suffix}"));
        }
    }
    right.sort();
    assert_eq!(names(root), right, "and nothing else is left");
    let mode = fs::metadata(root.join("a.js.gz"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);

    // Again: there is nothing to do.
    let (again, _) = run(root, &options());
    assert_eq!(
        (again.written, again.up_to_date, again.not_smaller),
        (0, 9, 3)
    );
    assert_eq!(names(root), right);
}

#[test]
fn what_is_stale_is_made_anew_or_removed() {
    let site = site();
    let root = site.path();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in [
        "a.js.gz",
        "a.js.br",
        "noise.txt.gz",
        "short.txt.gz",
        "gone.js.gz",
    ] {
        fs::write(root.join(name), "of before").unwrap();
        set_modified(&root.join(name), old);
    }
    fs::write(root.join("a.js.zst"), "somebody's, and newer").unwrap();
    let (summary, _) = run(root, &options());
    assert_eq!((summary.removed, summary.failed), (2, 0), "{summary}");
    for name in ["a.js.gz", "a.js.br"] {
        assert!(decoded(&root.join(name)) == text().as_bytes(), "{name}");
    }
    let untouched = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    assert_eq!(untouched("a.js.zst"), "somebody's, and newer");
    assert_eq!(
        untouched("gone.js.gz"),
        "of before",
        "no neighbour of anything"
    );
    assert!(!root.join("noise.txt.gz").exists() && !root.join("short.txt.gz").exists());
}

/// It counted as up to date, and was served in place of the newer file for good.
#[test]
fn a_change_within_the_same_second_makes_neighbours_stale() {
    let site = site();
    let root = site.path();
    run(root, &options());
    let later = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_500_000_000_623_456_789);
    set_modified(&root.join("a.js"), later);
    let (summary, _) = run(root, &options());
    assert_eq!((summary.written, summary.up_to_date), (3, 6), "{summary}");
}

#[test]
fn what_goes_wrong_with_a_file_is_reported_and_the_rest_is_done() {
    let site = site();
    let root = site.path();
    fs::create_dir(root.join("a.js.gz")).unwrap();
    let old = SystemTime::UNIX_EPOCH;
    File::open(root.join("a.js.gz"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    let (summary, reported) = run(root, &options());
    assert_eq!(reported, [root.join("a.js.gz")]);
    assert_eq!((summary.failed, summary.written), (1, 8));
    assert!(!names(root).iter().any(|name| name.ends_with("tmp")));
}

/// It was removed, and another file written under its name, which the other run then renamed: half a variant
/// was served as a whole one.
#[test]
fn what_another_run_is_writing_stays_as_it_is() {
    let site = site();
    let root = site.path();
    let read_only = fs::Permissions::from_mode(0o444);
    let others = root.join(".a.js.gz.loadline-tmp");
    fs::write(&others, "half").unwrap();
    for path in [&others, &root.join("a.js")] {
        fs::set_permissions(path, read_only.clone()).unwrap();
    }
    symlink("picture.png", root.join(".a.js.br.loadline-tmp")).unwrap();
    let (summary, reported) = run(root, &options());
    assert_eq!(reported, Vec::<PathBuf>::new());
    assert_eq!((summary.failed, summary.written), (0, 9));
    for suffix in ["gz", "br"] {
        let neighbour = root.join(format!("a.js.{suffix}"));
        assert!(decoded(&neighbour) == text().as_bytes(), "{suffix}");
        let mode = fs::metadata(&neighbour).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o444);
    }
    let picture = fs::read_to_string(root.join("picture.png")).unwrap();
    assert!(picture == text(), "what the link leads to stays as it was");
    assert_eq!(fs::read_to_string(&others).unwrap(), "half");
    let left = names(root);
    let left = left.iter().filter(|name| name.ends_with("tmp")).count();
    assert_eq!(left, 2, "of the other run, and none of this one");
}

/// Owner, group and permissions.
fn access(path: &Path) -> (u32, u32, u32) {
    let metadata = fs::metadata(path).unwrap();
    (metadata.uid(), metadata.gid(), metadata.mode() & 0o777)
}

const NOBODY: u32 = 65_534;

/// They had those of whoever ran it: the server could not read them, or another group could.
#[test]
fn variants_have_the_owner_and_the_group_of_their_originals() {
    let site = site();
    let original = site.path().join("a.js");
    if rustix::process::geteuid().is_root() {
        chown(&original, Some(NOBODY), Some(NOBODY)).unwrap();
    } else {
        // Another one of this user's groups, if there is one.
        let own = rustix::process::getegid();
        let groups = rustix::process::getgroups().unwrap();
        let mut others = groups.iter().filter(|group| **group != own);
        others.any(|group| chown(&original, None, Some(group.as_raw())).is_ok());
    }
    let (summary, reported) = run(site.path(), &options());
    assert_eq!((reported, summary.written), (vec![], 9));
    for suffix in ["gz", "zst", "br"] {
        let variant = site.path().join(format!("a.js.{suffix}"));
        assert_eq!(access(&variant), access(&original), "{suffix}");
    }
}

/// The group of whoever ran it could read what others may not.
#[test]
fn a_group_that_cannot_be_given_is_no_other_groups_right() {
    if !rustix::process::geteuid().is_root() {
        return; // it takes a file of a group that its owner is not in
    }
    let site = tempfile::tempdir().unwrap();
    let original = site.path().join("a.js");
    fs::write(&original, text()).unwrap();
    fs::set_permissions(&original, fs::Permissions::from_mode(0o640)).unwrap();
    chown(&original, Some(NOBODY), Some(NOBODY - 1)).unwrap();
    chown(site.path(), Some(NOBODY), None).unwrap();
    let (summary, reported) = run_as_nobody(site.path());
    assert_eq!((reported, summary.written), (vec![], 3));
    for suffix in ["gz", "zst", "br"] {
        let (owner, group, mode) = access(&site.path().join(format!("a.js.{suffix}")));
        assert_eq!((owner, mode), (NOBODY, 0o600), "{suffix}");
        assert_ne!(group, NOBODY - 1);
    }
    let (summary, reported) = run_as_nobody(site.path());
    assert_eq!((reported, summary.up_to_date), (vec![], 3), "again");
}

/// On a thread of its own, of a user who may do little: of nobody, if this one may do anything.
fn run_as_nobody(root: &Path) -> (Summary, Vec<PathBuf>) {
    let root = root.to_owned();
    let thread = std::thread::spawn(move || {
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(NOBODY)).unwrap();
        }
        run(&root, &options())
    });
    thread.join().unwrap()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// They kept those of when they were written: others could read what only the owner may by now.
#[test]
fn variants_of_an_earlier_run_are_written_anew_if_the_access_of_their_originals_has_changed() {
    let site = site();
    let (root, original) = (site.path(), site.path().join("a.js"));
    run(root, &options());
    let other = root.join("a.js.zst");
    fs::write(&other, "somebody's, and newer").unwrap();
    let of_other = access(&other);
    for mode in [0o600, 0o644] {
        set_mode(&original, mode);
        if rustix::process::geteuid().is_root() {
            chown(&original, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        for (written, up_to_date) in [(2, 7), (0, 9)] {
            let (summary, reported) = run(root, &options());
            assert_eq!(reported, Vec::<PathBuf>::new());
            let counts = (summary.written, summary.up_to_date);
            assert_eq!(counts, (written, up_to_date), "{mode:o}: {summary}");
        }
        for suffix in ["gz", "br"] {
            let variant = root.join(format!("a.js.{suffix}"));
            assert_eq!(access(&variant), access(&original), "{suffix}, {mode:o}");
            assert!(decoded(&variant) == text().as_bytes(), "{suffix}");
        }
        assert_eq!(access(&other), of_other);
    }
}

/// Whoever may write to a directory can move a file of somebody else to a variant's place, and give a file of their own
/// the same time.
#[test]
fn what_is_in_a_variants_place_is_given_to_nobody() {
    let site = tempfile::tempdir().unwrap();
    let (root, original) = (site.path(), site.path().join("a.js"));
    fs::write(&original, text()).unwrap();
    set_mode(&original, 0o644);
    let (place, kept) = (root.join("a.js.gz"), root.join("kept"));
    fs::write(&place, "secret").unwrap();
    set_mode(&place, 0o600);
    set_modified(&place, modified(&original));
    fs::hard_link(&place, &kept).unwrap();
    let before = access(&kept);
    if rustix::process::geteuid().is_root() {
        chown(&original, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let (summary, reported) = run(root, &options());
    assert_eq!((reported, summary.written), (vec![], 3));
    assert_eq!(access(&kept), before);
    assert_eq!(fs::read_to_string(&kept).unwrap(), "secret");
    assert_eq!(access(&place), access(&original));
    assert!(decoded(&place) == text().as_bytes());
}

#[test]
fn access_that_cannot_be_given_is_a_warning_and_no_failure() {
    let site = tempfile::tempdir().unwrap();
    let (root, original) = (site.path(), site.path().join("a.js"));
    fs::write(&original, text()).unwrap();
    set_mode(&original, 0o644);
    let (summary, _) = run(root, &options());
    assert_eq!(summary.written, 3);
    set_mode(&original, 0o444);
    set_mode(root, 0o555);
    let (summary, reported) = run_as_nobody(root);
    set_mode(root, 0o755); // so that it can be removed
    assert_eq!(reported.len(), 3, "{reported:?}");
    assert_eq!((summary.up_to_date, summary.failed), (3, 0), "{summary}");
    assert_eq!(access(&root.join("a.js.gz")).2, 0o644);
}

#[test]
fn what_a_server_would_not_take_is_not_up_to_date() {
    let (site, other) = (site(), tempfile::tempdir().unwrap());
    let root = site.path();
    fs::create_dir(root.join("a.js.gz")).unwrap();
    let elsewhere = other.path().join("elsewhere");
    fs::write(&elsewhere, "somebody's").unwrap();
    for name in ["a.js.br", "noise.txt.br"] {
        symlink(&elsewhere, root.join(name)).unwrap();
    }
    let (summary, reported) = run(root, &options());
    assert_eq!(reported, [root.join("a.js.gz")]);
    assert_eq!(
        (summary.failed, summary.up_to_date, summary.removed),
        (1, 0, 0)
    );
    assert!(!root.join("a.js.br").is_symlink());
    assert!(decoded(&root.join("a.js.br")) == text().as_bytes());
    assert!(
        root.join("noise.txt.br").is_symlink(),
        "nothing took its place"
    );
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "somebody's");
}

#[test]
fn types_can_be_chosen() {
    let site = site();
    let types = ["image/*", "Text/HTML"].map(|it| it.parse::<TypePattern>().unwrap());
    let options = PrecompressOptions {
        types: types.to_vec(),
        ..options()
    };
    let (summary, _) = run(site.path(), &options);
    assert_eq!((summary.files, summary.written), (2, 6));
    for bad in [
        "",
        "html",
        "text/",
        "/html",
        "text/*x",
        "*/*",
        "text/html;q=1",
    ] {
        let error = bad.parse::<TypePattern>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("'{bad}'")), "{error}");
    }
}

#[test]
fn one_at_a_time_and_only_in_a_directory() {
    let site = site();
    let lock = File::open(site.path()).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let error = precompress(site.path(), &options(), &|_, _| ()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    let error = precompress(&site.path().join("a.js"), &options(), &|_, _| ()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotADirectory);
}
