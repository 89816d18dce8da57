//! Nothing outside the root is served, however it is asked for.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use loadline_apps::StaticOptions;
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::site::{Site, directory, settled, write};

const SECRET: &str = "SECRET";

/// A root with links of all kinds, and secrets around it; resolved by `openat2` and without.
fn sites(options: &StaticOptions) -> [Site; 2] {
    [false, true].map(|walk| {
        let directory = directory();
        let root = directory.path().join("root");
        write(&directory.path().join("outside.txt"), SECRET);
        write(&directory.path().join("root2/file"), SECRET);
        write(&root.join("in.txt"), "inside");
        write(&root.join("d/in.txt"), "inside d");
        write(&root.join("d/e/in.txt"), "inside e");
        let links = [
            ("ok", "in.txt".to_owned()),
            ("d/up", "../in.txt".to_owned()),
            ("d/e/far", "../../d/./e/../in.txt".to_owned()),
            ("dir", "d".to_owned()),
            ("chain", "dir/up".to_owned()),
            ("absolute", format!("{}/d/in.txt", root.display())),
            ("self", ".".to_owned()),
            ("top", "/".to_owned()),
            ("out", "../outside.txt".to_owned()),
            ("d/out", "../../outside.txt".to_owned()),
            ("d/back", "../../root/in.txt".to_owned()),
            ("outdir", "..".to_owned()),
            (
                "absolute-out",
                format!("{}/outside.txt", directory.path().display()),
            ),
            ("beside", format!("{}2/file", root.display())),
            ("loop", "loop".to_owned()),
            ("loop-a", "loop-b".to_owned()),
            ("loop-b", "loop-a".to_owned()),
            ("dangling", "nowhere".to_owned()),
            ("proc", "/proc/self/root".to_owned()),
        ];
        for (name, target) in links {
            symlink(target, root.join(name)).unwrap();
        }
        let mut site = Site::over(directory, options.clone());
        if walk {
            site.handler = site.handler.without_openat2();
        }
        site
    })
}

#[test]
fn links_that_stay_inside_are_followed_and_no_others() {
    let table = [
        ("/ok", 200, "inside"),
        ("/d/up", 200, "inside"),
        ("/d/e/far", 200, "inside d"),
        ("/dir/in.txt", 200, "inside d"),
        ("/dir/e/in.txt", 200, "inside e"),
        ("/dir/e/far", 200, "inside d"),
        ("/chain", 200, "inside"),
        ("/self/self/in.txt", 200, "inside"),
        ("/absolute", 200, "inside d"),
        ("/dir", 301, ""),
        ("/self", 301, ""),
        ("/dangling", 404, ""),
        ("/out", 403, ""),
        ("/d/out", 403, ""),
        ("/dir/out", 403, ""),
        ("/d/back", 403, ""),
        ("/outdir", 403, ""),
        ("/outdir/", 403, ""),
        ("/outdir/outside.txt", 403, ""),
        ("/outdir/root/in.txt", 403, ""),
        ("/absolute-out", 403, ""),
        ("/beside", 403, ""),
        ("/top", 403, ""),
        ("/top/etc/passwd", 403, ""),
        ("/proc/etc/passwd", 403, ""),
        ("/loop", 403, ""),
        ("/loop-a", 403, ""),
    ];
    for (number, mut site) in sites(&settled()).into_iter().enumerate() {
        for _ in 0..2 {
            for (target, status, text) in table {
                let answer = site.get(target);
                assert_eq!(answer.status, status, "{target}, resolver {number}");
                assert!(
                    status != 200 || answer.text() == text,
                    "{target}, resolver {number}"
                );
            }
        }
    }
}

#[test]
fn links_that_leave_are_followed_if_asked_for() {
    let options = StaticOptions {
        follow_symlinks: true,
        ..settled()
    };
    for mut site in sites(&options) {
        for target in ["/out", "/d/out", "/absolute-out", "/outdir/outside.txt"] {
            assert_eq!(site.get(target).text(), SECRET, "{target}");
        }
        for target in [
            "/../outside.txt",
            "/%2e%2e/outside.txt",
            "/d/..%2f..%2foutside.txt",
        ] {
            assert!(matches!(site.get(target).status, 400 | 404), "{target}");
        }
    }
}

#[test]
fn special_files_are_refused_and_not_waited_for() {
    for mut site in sites(&settled()) {
        let fifo = site.path("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _listener = UnixListener::bind(site.path("socket")).unwrap();
        for target in ["/fifo", "/socket", "/fifo/", "/socket/x"] {
            let expected = if target.matches('/').count() == 1 {
                403
            } else {
                404
            };
            assert_eq!(site.get(target).status, expected, "{target}");
        }
        fs::create_dir(site.path("x")).unwrap();
        fs::rename(fifo, site.path("x/index.html")).unwrap();
        assert_eq!(site.get("/x/").status, 403);
    }
}

#[test]
fn what_may_not_be_read_is_403() {
    for mut site in sites(&settled()) {
        let no_permission = fs::Permissions::from_mode(0o000);
        fs::set_permissions(site.path(".."), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(site.path("in.txt"), no_permission.clone()).unwrap();
        fs::set_permissions(site.path("d/e"), no_permission).unwrap();
        fs::set_permissions(site.path("d"), fs::Permissions::from_mode(0o711)).unwrap();
        // On a thread that is nobody, since the superuser may read anything.
        let answers = std::thread::spawn(move || {
            if rustix::process::geteuid().is_root() {
                rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(65_534)).unwrap();
            }
            ["/in.txt", "/d/e/in.txt", "/d/e", "/d", "/d/in.txt"].map(|path| site.get(path).status)
        });
        assert_eq!(answers.join().unwrap(), [403, 403, 301, 301, 200]);
    }
}

/// A way to write one piece of a path, with what tends to be forgotten.
fn piece() -> impl Strategy<Value = String> {
    let names = [
        "in.txt",
        "d",
        "e",
        "ok",
        "dir",
        "up",
        "chain",
        "self",
        "out",
        "outdir",
        "outside.txt",
        "root",
        "root2",
        "file",
        "absolute",
        "absolute-out",
        "beside",
        "top",
        "proc",
        "etc",
        "passwd",
        "tmp",
        "..",
        ".",
        "",
        "...",
        ".. ",
        "..;",
        "%2e%2e",
        "%2E.",
        ".%2e",
        "%252e%252e",
        "%c0%ae%c0%ae",
        "%u002e",
        "..%2f",
        "..%5c",
        "..\\",
        "%2f",
        "%5c",
        "%00",
        "..%00",
        "%",
        "%2",
        "%zz",
        "in.txt%00.html",
        "\u{ff0e}\u{ff0e}",
    ];
    prop_oneof![
        8 => prop::sample::select(names.to_vec()).prop_map(str::to_owned),
        1 => "[a-z.%/\\\\]{1,6}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_path_escapes(targets in prop::collection::vec(prop::collection::vec(piece(), 1..9), 50)) {
        for mut site in sites(&settled()) {
            let root = site.path("").display().to_string();
            for pieces in &targets {
                for target in [format!("/{}", pieces.join("/")), format!("{root}{}", pieces.join("/"))] {
                    let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
                    let answer = site.exchange(head.into_bytes());
                    let text = String::from_utf8_lossy(&answer);
                    prop_assert!(!text.contains(SECRET) && !text.contains("root:x:"), "{target}");
                    prop_assert!(!text.starts_with("HTTP/1.1 5"), "{target}: {text}");
                    prop_assert!(!text.contains("Location: //"), "{target}: {text}");
                }
            }
        }
    }
}
