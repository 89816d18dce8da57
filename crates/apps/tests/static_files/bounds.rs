//! What the cache may hold, and what a loop may wait for.

use std::fs::File;
use std::io::{IoSliceMut, Write};

use loadline_apps::{CacheLimits, StaticOptions};
use loadline_proto::Handler;
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::site::{Site, settled};

fn limited(bytes_max: usize, entries_max: usize, open_files_max: usize) -> StaticOptions {
    StaticOptions {
        cache: CacheLimits {
            bytes_max,
            entries_max,
            open_files_max,
            misses_max: 64,
        },
        precompressed: false,
        ..settled()
    }
}

/// Asks for each of 400 files of 5 KB twice.
fn visit_all(site: &mut Site) {
    let content = "12345".repeat(1000);
    for number in 0..400 {
        site.write(&format!("{number}"), &content);
    }
    for number in (0..400).chain(0..400) {
        assert_eq!(site.get(&format!("/{number}")).text(), content);
    }
}

#[test]
fn memory_and_entries_are_bounded() {
    let mut site = Site::new(&[], limited(1 << 20, 100_000, 100));
    visit_all(&mut site);
    let held = site.handler.cache_use();
    assert!(held.weight <= 512 << 10 && held.entries >= 50, "{held:?}");
    let mut site = Site::new(&[], limited(100 << 20, 200, 100));
    visit_all(&mut site);
    let held = site.handler.cache_use();
    assert!((50..=100).contains(&held.entries), "{held:?}");
}

#[test]
fn no_cache_serves_as_well() {
    for limits in [(0, 0, 0), (0, 100, 100), (1 << 20, 0, 100)] {
        let mut site = Site::new(&[], limited(limits.0, limits.1, limits.2));
        visit_all(&mut site);
        assert_eq!(site.handler.cache_use().entries, 0);
    }
}

/// Files below the root of `site` that this process keeps open.
fn open_files(site: &Site) -> usize {
    let root = site.path("");
    let fds = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_below = |fd: &std::fs::DirEntry| {
        let target = std::fs::read_link(fd.path());
        // Not the root itself.
        target.is_ok_and(|target| target.starts_with(&root) && target != root)
    };
    fds.filter(|fd| is_below(fd.as_ref().unwrap())).count()
}

#[test]
fn a_file_that_nobody_asks_for_is_closed() {
    let options = limited(100 << 20, 1000, 100);
    let options = StaticOptions {
        memory_bytes_max: 0,
        ..options
    };
    let mut site = Site::new(&[("once", "1"), ("often", "2")], options);
    site.get("/once");
    site.get("/often");
    assert_eq!(open_files(&site), 2);
    for _ in 0..70 {
        site.pass(1000);
        assert_eq!(site.get("/often").text(), "2");
    }
    site.pass(59_000);
    site.get("/often");
    assert_eq!(open_files(&site), 1, "only the one that is asked for");
}

/// The index of a thread without requests kept them open for as long as it had none.
#[test]
fn a_thread_without_requests_keeps_no_file_open() {
    let options = StaticOptions {
        memory_bytes_max: 0,
        ..limited(100 << 20, 1000, 100)
    };
    let mut site = Site::new(&[("once", "1"), ("often", "2")], options);
    for _ in 0..2 {
        site.get("/once");
    }
    let mut quiet = site.handler.local();
    std::mem::swap(&mut site.local, &mut quiet);
    for _ in 0..130 {
        site.pass(1000);
        assert_eq!(site.get("/often").text(), "2");
    }
    assert_eq!(open_files(&site), 1, "only the one that is asked for");
    drop(quiet);
}

/// They stayed open until the next request.
#[test]
fn without_any_request_files_are_closed_as_well() {
    let options = StaticOptions {
        memory_bytes_max: 0,
        ..limited(100 << 20, 1000, 100)
    };
    let mut site = Site::new(&[("once", "1")], options);
    site.get("/once");
    assert!(site.release_unused());
    assert_eq!(open_files(&site), 1);
    site.pass(60_000);
    assert!(!site.release_unused(), "nothing is left");
    assert_eq!(open_files(&site), 0);
}

#[test]
fn open_files_are_bounded() {
    for (open_files_max, at_least) in [(64, 16), (0, 0)] {
        let options = limited(100 << 20, 100_000, open_files_max);
        let mut site = Site::new(
            &[],
            StaticOptions {
                memory_bytes_max: 0,
                ..options
            },
        );
        visit_all(&mut site);
        let mut second = site.handler.local();
        std::mem::swap(&mut site.local, &mut second);
        visit_all(&mut site);
        let count = open_files(&site);
        assert!(
            (at_least..=open_files_max).contains(&count),
            "{count} of {open_files_max}"
        );
    }
}

#[test]
fn a_flood_of_misses_fills_nothing_and_pushes_nothing_out() {
    let mut site = Site::new(&[("hot", "hot")], limited(1 << 20, 1000, 100));
    site.get("/hot");
    for number in 0..5000 {
        assert_eq!(site.get(&format!("/missing/{number}")).status, 404);
    }
    let held = site.handler.cache_use();
    assert!(held.entries == 1 && held.misses <= 64, "{held:?}");
}

#[test]
fn spellings_of_one_path_share_its_content() {
    let mut site = Site::new(&[("hot", "hot")], limited(1 << 20, 1000, 100));
    for number in 0..200 {
        let target = format!("/{}%68ot", "./".repeat(number));
        assert_eq!(site.get(&target).text(), "hot", "{target}");
    }
    assert_eq!(site.handler.cache_use().entries, 1);
}

#[test]
fn what_the_kernel_has_at_hand_is_answered_on_the_loop() {
    for size in [100, 100_000, 1_000_000] {
        let content = "x".repeat(size);
        let options = StaticOptions {
            precompressed: false,
            ..settled()
        };
        let mut site = Site::new(&[("f", &content)], options);
        assert!(site.get("/f").text() == content);
        assert_eq!(site.blocked, 0, "{size}");
        let mut site = Site::new(&[("f", &content)], settled());
        site.handler = site.handler.without_openat2();
        assert!(site.get("/f").text() == content);
        assert_eq!(site.blocked, 1, "{size}: walking may wait");
        assert!(site.get("/f").text() == content);
        assert_eq!(site.blocked, 1, "{size}: known by now");
    }
}

/// Writes a file that is on the disk and, if the file system can, not in the page cache.
fn write_uncached(site: &Site, name: &str, content: &[u8]) -> File {
    let mut file = File::create(site.path(name)).unwrap();
    file.write_all(content).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let file = File::open(site.path(name)).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    file
}

#[test]
fn what_is_not_cached_is_waited_for_elsewhere() {
    for size in [100_000, 1_000_000] {
        let content = vec![b'x'; size];
        let mut blocked = 0;
        // The kernel may keep some of a file in memory against all advice, but not each time.
        for _ in 0..10 {
            let options = StaticOptions {
                precompressed: false,
                ..settled()
            };
            let mut site = Site::new(&[], options);
            // Asked of another file, since asking starts to read it.
            let twin = write_uncached(&site, "twin", &content);
            let mut byte = [0];
            let slices = &mut [IoSliceMut::new(&mut byte)];
            if preadv2(&twin, slices, 0, ReadWriteFlags::NOWAIT) != Err(Errno::AGAIN) {
                return; // a file system that is always in memory
            }
            write_uncached(&site, "f", &content);
            assert!(site.get("/f").content == content);
            blocked = site.blocked;
            if blocked == 1 {
                break;
            }
        }
        assert_eq!(blocked, 1, "{size}");
    }
}
