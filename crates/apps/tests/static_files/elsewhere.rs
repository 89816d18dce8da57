//! Files of a mount that is not the root's own: it may be another machine's, and hang.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use loadline_apps::StaticOptions;
use loadline_base::Millis;
use loadline_proto::Handler;
use tempfile::TempDir;

use crate::site::{Answer, Site, answer_of, set_ahead, settled};

/// A site with `far/f.txt`, which lies on another mount; `None`, visibly, where there is no other.
fn site_with_far(options: StaticOptions) -> Option<(Site, TempDir)> {
    let options = StaticOptions {
        follow_symlinks: true,
        ..options
    };
    let site = Site::new(&[("near.txt", "near")], options);
    let far = tempfile::tempdir_in("/dev/shm").ok();
    let device = |path: &std::path::Path| fs::metadata(path).unwrap().dev();
    let far = far.filter(|far| device(far.path()) != device(&site.path("")));
    let Some(far) = far else {
        let _ = writeln!(std::io::stderr(), "\nskipped: there is no second mount");
        return None;
    };
    fs::write(far.path().join("f.txt"), "old").unwrap();
    symlink(far.path(), site.path("far")).unwrap();
    Some((site, far))
}

#[test]
fn what_lies_elsewhere_is_looked_at_where_waiting_is_allowed() {
    let open = StaticOptions {
        memory_bytes_max: 0,
        ..settled()
    };
    for (options, is_open) in [(settled(), false), (open, true)] {
        let Some((mut site, far)) = site_with_far(options) else {
            return;
        };
        for round in 0..5 {
            assert_eq!(site.get("/far/f.txt").text(), "old");
            // Reading from elsewhere may wait too, so what is not in memory is never at hand.
            let expected = if is_open { 2 * round + 1 } else { round + 1 };
            assert_eq!(
                site.blocked, expected,
                "a step that may wait, once a second"
            );
            assert_eq!(site.get("/far/f.txt").text(), "old");
            site.pass(1000);
        }
        assert_eq!(site.get("/near.txt").text(), "near"); // what is not there may take a look
        let blocked = site.blocked;
        for _ in 0..5 {
            site.pass(1000);
            assert_eq!(site.get("/near.txt").text(), "near");
        }
        assert_eq!(site.blocked, blocked, "what is near is not");
        fs::write(far.path().join("next"), "changed").unwrap();
        fs::rename(far.path().join("next"), far.path().join("f.txt")).unwrap();
        site.pass(1000);
        assert_eq!(site.get("/far/f.txt").text(), "changed");
        fs::remove_file(far.path().join("f.txt")).unwrap();
        site.pass(1000);
        assert_eq!(site.get("/far/f.txt").status, 404);
    }
}

/// What is not there seemed to lie nowhere, so a loop looked at it each second.
#[test]
fn where_a_link_leads_nowhere_is_looked_at_where_waiting_is_allowed() {
    let Some((mut site, far)) = site_with_far(settled()) else {
        return;
    };
    symlink(far.path().join("none"), site.path("near.txt.br")).unwrap();
    for round in 1..5 {
        assert_eq!(site.get("/near.txt").text(), "near");
        assert_eq!(site.blocked, round, "a step that may wait, once a second");
        site.pass(1000);
    }
    fs::write(far.path().join("none"), "brotlied").unwrap();
    let answer = site.request("GET", "/near.txt", &[("Accept-Encoding", "br")]);
    assert_eq!(answer.text(), "brotlied");
}

/// A worker comes to a request three seconds after it began; meanwhile the loop has served others.
#[test]
fn what_is_looked_at_late_is_fresh_from_then_on() {
    let Some((site, _far)) = site_with_far(settled()) else {
        return;
    };
    let mut local = site.handler.local();
    let mut get = |path: &str, at_ms: u64| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes();
        let (answer, blocked) = answer_of(&site.handler, &mut local, Millis(at_ms), head);
        (answer.text().to_owned(), blocked)
    };
    // Found, and looked at again.
    for began_ms in [5_000, 15_000] {
        assert_eq!(get("/near.txt", began_ms + 3_000).0, "near");
        assert_eq!(get("/far/f.txt", began_ms), ("old".to_owned(), 1));
        let later = get("/far/f.txt", began_ms + 3_100);
        assert_eq!(later, ("old".to_owned(), 0), "begun at {began_ms}");
    }
}

/// Whether looking at something far hangs, and how many hang in it.
static HUNG: Mutex<(bool, usize)> = Mutex::new((false, 0));
static HUNG_CHANGED: Condvar = Condvar::new();

fn hang(path: &[u8]) {
    if path.ends_with(b"far/f.txt") {
        let mut hung = HUNG.lock().unwrap();
        hung.1 += 1;
        HUNG_CHANGED.notify_all();
        hung = HUNG_CHANGED.wait_while(hung, |hung| hung.0).unwrap();
        hung.1 -= 1;
    }
}

fn set_hung(is_hung: bool) {
    HUNG.lock().unwrap().0 = is_hung;
    HUNG_CHANGED.notify_all();
}

/// One waits for the file system, the others take the file as it was, then it is unavailable; and
/// when the file system is there again, so is the file.
#[test]
fn a_file_system_that_hangs_holds_one_and_the_others_go_on() {
    let options = StaticOptions {
        before_looking: hang,
        ..settled()
    };
    let Some((site, _far)) = site_with_far(options) else {
        return;
    };
    let mut local = site.handler.local();
    let mut get = |at_ms: u64| -> (Answer, usize) {
        let head = b"GET /far/f.txt HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
        answer_of(&site.handler, &mut local, Millis(at_ms), head)
    };
    assert_eq!(get(5_000).0.text(), "old");
    set_hung(true);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            set_ahead(60);
            let head = b"GET /far/f.txt HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
            let mut local = site.handler.local();
            answer_of(&site.handler, &mut local, Millis(6_000), head)
        });
        let hung = HUNG.lock().unwrap();
        let limit = Duration::from_secs(60);
        let (hung, timeout) = HUNG_CHANGED
            .wait_timeout_while(hung, limit, |hung| hung.1 == 0)
            .unwrap();
        assert!(!timeout.timed_out(), "nobody looks");
        drop(hung);
        for at_ms in [6_000, 6_001, 7_500, 15_999] {
            let (answer, blocked) = get(at_ms);
            assert_eq!((answer.text(), blocked), ("old", 0), "at {at_ms}");
        }
        for at_ms in [16_000, 60_000] {
            let (answer, blocked) = get(at_ms);
            assert_eq!((answer.status, blocked), (503, 0), "at {at_ms}");
            assert_eq!(answer.field("Retry-After"), "1");
        }
        set_hung(false);
        let (answer, blocked) = waiting.join().unwrap();
        assert_eq!((answer.text(), blocked), ("old", 1));
    });
    assert_eq!(get(60_001).0.text(), "old");
}
