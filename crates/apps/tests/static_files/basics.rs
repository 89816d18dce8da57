//! What is served, and as what.

use loadline_apps::{StaticFiles, StaticOptions};

use crate::site::{Site, settled};

#[test]
fn a_file_is_served_with_all_that_belongs_to_it() {
    let mut site = Site::new(&[("a.css", "body {}\n")], settled());
    let answer = site.get("/a.css");
    assert_eq!((answer.status, answer.text()), (200, "body {}\n"));
    assert_eq!(answer.field("Content-Type"), "text/css; charset=utf-8");
    assert_eq!(answer.field("Accept-Ranges"), "bytes");
    assert_eq!(answer.field("X-Content-Type-Options"), "nosniff");
    assert!(answer.field("ETag").starts_with('"'), "{answer:?}");
    assert!(
        answer.field("Last-Modified").ends_with(" GMT"),
        "{answer:?}"
    );
    assert_eq!(
        (answer.field("Vary"), answer.field("Cache-Control")),
        ("", "")
    );
    // From memory it is the same, and to HEAD it is the same without the content.
    assert_eq!(site.get("/a.css"), answer);
    let head = site.request("HEAD", "/a.css", &[]);
    assert_eq!((head.status, head.undated()), (200, answer.undated()));
}

#[test]
fn every_size_is_served_whole() {
    for size in [
        0,
        1,
        16 << 10,
        (16 << 10) + 1,
        256 << 10,
        (256 << 10) + 1,
        3 << 20,
    ] {
        let content: String = ('a'..='z').cycle().take(size).collect();
        let mut site = Site::new(&[("a.txt", &content)], settled());
        for _ in 0..3 {
            let answer = site.get("/a.txt");
            assert_eq!(answer.status, 200);
            assert!(answer.text() == content, "{size}");
        }
        let head = site.request("HEAD", "/a.txt", &[]);
        assert_eq!(head.field("Content-Length"), size.to_string());
    }
}

#[test]
fn only_reading_methods_are_allowed() {
    let mut site = Site::new(&[("a.txt", "a"), ("d/index.html", "d")], settled());
    for target in ["/a.txt", "/missing", "/d"] {
        for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE"] {
            let answer = site.request(method, target, &[("Content-Length", "0")]);
            assert_eq!(answer.status, 405, "{method} {target}");
            assert_eq!(answer.field("Allow"), "GET, HEAD, OPTIONS");
        }
    }
    for target in ["/a.txt", "*"] {
        let answer = site.request("OPTIONS", target, &[]);
        assert_eq!(
            (answer.status, answer.field("Allow")),
            (204, "GET, HEAD, OPTIONS")
        );
    }
}

#[test]
fn statuses() {
    let files = [
        ("index.html", "home"),
        ("a b.txt", "space"),
        ("plus+.txt", "plus"),
        ("ü.txt", "umlaut"),
        ("%2e.txt", "percent"),
        ("d/index.html", "d"),
        ("d/page.html", "page"),
        ("empty/x/y.txt", "y"),
        (".git/config", "secret"),
        ("d/.env", "secret"),
        (".well-known/security.txt", "contact"),
    ];
    let table = [
        ("/", 200, "home"),
        ("/index.html", 200, "home"),
        ("/a%20b.txt", 200, "space"),
        ("/plus+.txt", 200, "plus"),
        ("/%C3%BC.txt", 200, "umlaut"),
        ("/%252e.txt", 200, "percent"),
        ("/./d/../a%20b.txt", 200, "space"),
        ("/d/", 200, "d"),
        ("/d/.", 200, "d"),
        ("/d/page.html?x=1", 200, "page"),
        ("/.well-known/security.txt", 200, "contact"),
        ("/missing", 404, ""),
        ("/missing/", 404, ""),
        ("/d/missing", 404, ""),
        ("/d/page.html/", 404, ""),
        ("/d/page.html/more", 404, ""),
        ("/empty/", 403, ""),
        ("/.git/config", 403, ""),
        ("/.git/", 403, ""),
        ("/.no-such", 403, ""),
        ("/d/.env", 403, ""),
        ("/d/.well-known/security.txt", 403, ""),
    ];
    let mut site = Site::new(&files, settled());
    for round in ["new", "remembered"] {
        for (target, status, text) in table {
            let answer = site.get(target);
            assert_eq!(answer.status, status, "{target}, {round}");
            if status == 200 {
                assert_eq!(answer.text(), text, "{target}, {round}");
            }
        }
    }
    let long = format!("/{}", "a".repeat(256));
    assert_eq!(site.get(&long).status, 404, "a name longer than any file's");
    let deep = format!("/{}", "a/".repeat(3000));
    assert_eq!(site.get(&deep).status, 404, "a path longer than any file's");
}

#[test]
fn hidden_files_are_served_if_asked_for() {
    let options = StaticOptions {
        hidden: true,
        ..settled()
    };
    let mut site = Site::new(&[(".a/.b", "shown")], options);
    assert_eq!(site.get("/.a/.b").text(), "shown");
}

#[test]
fn a_directory_is_redirected_to_its_slash_form() {
    let mut site = Site::new(&[("d/index.html", ""), ("a b/é/index.html", "")], settled());
    let table = [
        ("/d", "/d/"),
        ("/d?a=1&b=//evil", "/d/?a=1&b=//evil"),
        ("/d?", "/d/?"),
        ("//d", "/d/"),
        ("/x/..//d", "/d/"),
        ("/a%20b/%C3%A9", "/a%20b/%C3%A9/"),
        ("/a%20b", "/a%20b/"),
    ];
    for (target, location) in table {
        for _ in 0..2 {
            let answer = site.get(target);
            assert_eq!(
                (answer.status, answer.field("Location")),
                (301, location),
                "{target}"
            );
        }
    }
    let answer = site.get("/x/..//d//evil.example/..");
    assert!(!answer.field("Location").starts_with("//"), "{answer:?}");
}

#[test]
fn the_first_index_there_is_serves() {
    let index = ["index.html", "index.htm", "home.txt"]
        .map(str::to_owned)
        .to_vec();
    let options = StaticOptions { index, ..settled() };
    let files = [
        ("a/index.htm", "htm"),
        ("a/home.txt", "txt"),
        ("b/home.txt", "txt"),
    ];
    let mut site = Site::new(&files, options);
    assert_eq!(site.get("/a/").text(), "htm");
    let answer = site.get("/b/");
    assert_eq!(
        (answer.text(), answer.field("Content-Type")),
        ("txt", "text/plain; charset=utf-8")
    );
    // A better one that comes later, and one that is a directory.
    site.write("a/index.html", "html");
    std::fs::create_dir(site.path("b/index.html")).unwrap();
    site.pass(1000);
    assert_eq!(site.get("/a/").text(), "html");
    assert_eq!(site.get("/b/").text(), "txt");
}

#[test]
fn a_directory_is_listed_if_asked_for() {
    let options = StaticOptions {
        listing: true,
        ..settled()
    };
    let files = [
        ("d/<b>.txt", "x"),
        ("d/.hidden", "x"),
        ("d/sub/a", "x"),
        ("secret", "x"),
    ];
    let mut site = Site::new(&files, options);
    std::os::unix::fs::symlink("sub", site.path("d/link")).unwrap();
    std::os::unix::fs::symlink("../../outside", site.path("d/leak")).unwrap();
    std::fs::write(site.path("../outside"), "secret").unwrap();
    let answer = site.get("/d/?sort=size");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("Content-Type"), "text/html; charset=utf-8");
    assert_eq!(site.blocked, 1, "names are read where waiting is allowed");
    let page = answer.text();
    assert!(page.contains("&lt;b&gt;.txt") && page.contains("sub/") && page.contains("link/"));
    for unseen in [".hidden", "leak", "secret", "<b>"] {
        assert!(!page.contains(unseen), "{unseen} in {page}");
    }
    let head = site.request("HEAD", "/d/?sort=size", &[]);
    assert_eq!(head.field("Content-Length"), answer.field("Content-Length"));
    assert_eq!(site.get("/d").status, 301);
    // An index file comes first, as soon as there is one.
    site.write("d/index.html", "index");
    site.pass(1000);
    assert_eq!(site.get("/d/").text(), "index");
}

#[test]
fn the_fallback_answers_for_pages_but_not_for_parts_of_them() {
    let options = StaticOptions {
        spa_fallback: Some("app.html".to_owned()),
        ..settled()
    };
    let mut site = Site::new(&[("app.html", "app"), ("real.txt", "real")], options);
    let table = [
        ("/", 200, "app"),
        ("/users/7", 200, "app"),
        ("/users/john.doe", 200, "app"),
        ("/old.html", 200, "app"),
        ("/real.txt", 200, "real"),
        ("/app.js", 404, ""),
        ("/logo.png", 404, ""),
        ("/.git", 403, ""),
    ];
    for (target, status, text) in table {
        for _ in 0..2 {
            let answer = site.get(target);
            assert_eq!(answer.status, status, "{target}");
            assert!(status != 200 || answer.text() == text, "{target}");
        }
    }
    site.write("users/7", "a file by now");
    site.write("app.html", "a new app");
    site.pass(1000);
    assert_eq!(site.get("/users/7").text(), "a file by now");
    assert_eq!(site.get("/users/8").text(), "a new app");
    std::fs::remove_file(site.path("app.html")).unwrap();
    site.pass(1000);
    assert_eq!(site.get("/users/8").status, 404);
}

/// The program looked for it in its own way at the start: pages passed that were never served.
#[test]
fn a_fallback_is_checked_by_the_rules_by_which_it_is_served() {
    for (page, expected) in [
        ("app.html", Ok(())),
        ("/app.html", Ok(())),
        ("d/", Ok(())),
        ("d", Err(404)),
        ("missing.html", Err(404)),
        ("/etc/hostname", Err(404)),
        ("../outside", Err(400)),
        (".hidden/app.html", Err(403)),
        ("link.html", Err(403)),
    ] {
        let options = StaticOptions {
            spa_fallback: Some(page.to_owned()),
            ..settled()
        };
        let files = [
            ("app.html", "app"),
            ("d/index.html", "index"),
            (".hidden/app.html", "app"),
        ];
        let mut site = Site::new(&files, options);
        std::fs::write(site.path("../outside"), "secret").unwrap();
        std::os::unix::fs::symlink("../outside", site.path("link.html")).unwrap();
        let checked = site.handler.check_fallback();
        assert_eq!(checked.map_err(|status| status.code()), expected, "{page}");
        let status = site.get("/users/7").status;
        assert_eq!(status == 200, expected.is_ok(), "{page}: {status}");
    }
}

#[test]
fn cache_control_and_media_types_by_option() {
    let mut options = settled();
    options.cache_control = vec![
        ".css:max-age=3600".parse().unwrap(),
        "text/html:no-cache".parse().unwrap(),
    ];
    options.media_types = [".abc=application/x-abc".parse().unwrap()]
        .into_iter()
        .collect();
    let files = [("a.css", ""), ("index.html", ""), ("a.abc", "")];
    let mut site = Site::new(&files, options);
    assert_eq!(site.get("/a.css").field("Cache-Control"), "max-age=3600");
    assert_eq!(site.get("/").field("Cache-Control"), "no-cache");
    let other = site.get("/a.abc");
    assert_eq!(other.field("Content-Type"), "application/x-abc");
    assert_eq!(other.field("Cache-Control"), "");
}

#[test]
fn what_is_no_directory_is_no_root() {
    let site = Site::new(&[("file", "")], settled());
    for name in ["file", "missing"] {
        assert!(
            StaticFiles::new(&site.path(name), settled()).is_err(),
            "{name}"
        );
    }
}
