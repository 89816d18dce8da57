//! What is served, and as what.

use crate::site::{Site, settled};

#[test]
fn a_file_is_served_with_all_that_belongs_to_it() {
    let mut site = Site::new(&[("a.css", "body {}\n")], settled());
    let answer = site.get("/a.css");
    assert_eq!((answer.status, answer.text()), (200, "body {}\n"));
    assert_eq!(answer.field("Content-Type"), "text/css; charset=utf-8");
    assert_eq!(answer.field("Accept-Ranges"), "bytes");
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
    assert_eq!((head.status, &head.fields), (200, &answer.fields));
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
