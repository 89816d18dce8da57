//! Variants that are made on the fly.

use std::fs;
use std::io::Read;
use std::sync::Arc;
use std::time::SystemTime;

use loadline_apps::{CacheLimits, StaticOptions};
use loadline_base::MemoryBudget;

use crate::site::{Answer, Site, noise, set_ahead, settled};

const BROWSER: &str = "gzip, deflate, br, zstd";

/// Text of `len` bytes in which little comes again as it was.
fn text(len: usize) -> String {
    let words = (0_u64..).map(|n| format!("{:x} ", n.wrapping_mul(0x9e37_79b9) % 0xffff));
    let mut text: String = words.take(len / 3 + 1).collect();
    text.truncate(len);
    text
}

fn accepting(site: &mut Site, target: &str, codings: &str) -> Answer {
    site.request("GET", target, &[("Accept-Encoding", codings)])
}

/// The content of a response without its coding.
fn decoded(answer: &Answer) -> Vec<u8> {
    let mut content = Vec::new();
    let bytes = &answer.content[..];
    match answer.field("Content-Encoding") {
        "" => content.extend_from_slice(bytes),
        "gzip" => {
            let mut decoder = flate2::read::GzDecoder::new(bytes);
            decoder.read_to_end(&mut content).unwrap();
        }
        "zstd" => {
            let mut decoder = zstd::stream::read::Decoder::new(bytes).unwrap();
            decoder.read_to_end(&mut content).unwrap();
        }
        "br" => {
            brotli_decompressor::BrotliDecompress(&mut &*bytes, &mut content).unwrap();
        }
        other => panic!("{other}"),
    }
    content
}

fn site(len: usize) -> (Site, String) {
    let content = text(len);
    let files = [
        ("a.js", &*content),
        ("short.js", "short"),
        ("a.png", &content),
    ];
    (Site::new(&files, settled()), content)
}

#[test]
fn the_first_that_asks_waits_for_it_and_then_it_is_there() {
    // In memory, and too large for that.
    for len in [5_000, 300_000] {
        let (mut site, content) = site(len);
        site.get("/a.js"); // it may have to be looked for
        site.blocked = 0;
        for (codings, coding) in [
            (BROWSER, "br"),
            ("gzip, br", "br"),
            ("br", "br"),
            ("gzip, deflate, zstd", "zstd"),
            ("gzip", "gzip"),
            ("zstd;q=0.1, gzip;q=0.2", "gzip"),
            ("identity;q=0, gzip", "gzip"),
            ("gzip;q=0.5, *;q=0.6", "br"),
            ("br;q=0, *", "zstd"),
            ("br;q=0.5, zstd;q=0.6, gzip;q=0.4", "zstd"),
            ("identity", ""),
            ("identity, br;q=0.9", ""),
            ("gzip;q=0", ""),
            ("*;q=0", ""),
            ("", ""),
        ] {
            let answer = accepting(&mut site, "/a.js", codings);
            assert_eq!(answer.status, 200);
            assert_eq!(answer.field("Content-Encoding"), coding, "{codings}");
            assert_eq!(answer.field("Vary"), "Accept-Encoding", "{codings}");
            assert!(decoded(&answer) == content.as_bytes(), "{codings} of {len}");
            if !coding.is_empty() {
                assert!(answer.content.len() < len);
            }
            let blocked = site.blocked;
            let again = accepting(&mut site, "/a.js", codings);
            assert!(again.content == answer.content, "the same again");
            assert_eq!(again.field("ETag"), answer.field("ETag"));
            assert_eq!(site.blocked, blocked, "without a blocking step");
        }
        assert_eq!(site.blocked, 3, "one for each coding");
        assert!(site.get("/a.js").text() == content);
    }
}

/// It used to get a 503, though there was a form of the file for it.
#[test]
fn who_asks_for_it_where_no_worker_has_time_gets_what_there_is() {
    for len in [5_000, 300_000] {
        let (mut site, content) = site(len);
        let plain = site.get("/a.js"); // it may have to be looked for
        site.refuses = true;
        site.blocked = 0;
        let answer = accepting(&mut site, "/a.js", BROWSER);
        assert_eq!(site.blocked, 1);
        assert_eq!((answer.status, answer.field("Content-Encoding")), (200, ""));
        assert_eq!(answer.field("Vary"), "Accept-Encoding");
        assert_eq!(answer.field("Retry-After"), "");
        assert!(answer.content == content.as_bytes());
        site.pass(1000);
        let tag = plain.field("ETag");
        let fields = [("Accept-Encoding", BROWSER), ("If-None-Match", tag)];
        assert_eq!(site.request("GET", "/a.js", &fields).status, 304);
        assert_eq!(site.blocked, 2, "another one asks after a second");
        // A form that is there is better than none.
        site.refuses = false;
        site.pass(1000);
        accepting(&mut site, "/a.js", "gzip");
        site.refuses = true;
        let answer = accepting(&mut site, "/a.js", BROWSER);
        assert_eq!(answer.field("Content-Encoding"), "gzip");
        assert!(decoded(&answer) == content.as_bytes());
        assert_eq!(site.blocked, 4);
        site.refuses = false;
        site.pass(1000);
        assert_eq!(
            accepting(&mut site, "/a.js", BROWSER).field("Content-Encoding"),
            "br"
        );
    }
}

/// Loops without workers compressed for milliseconds, unless the options said not to.
#[test]
fn no_loop_makes_one() {
    let content = text(5_000);
    let options = StaticOptions {
        spa_fallback: Some("index.html".to_owned()),
        ..settled()
    };
    let mut site = Site::new(&[("index.html", &content)], options);
    for (is_without_workers, coding) in [(true, ""), (true, ""), (false, "br"), (true, "br")] {
        site.is_without_workers = is_without_workers;
        site.pass(1000);
        for target in ["/index.html", "/some/route"] {
            let answer = accepting(&mut site, target, BROWSER);
            assert_eq!(answer.status, 200);
            assert_eq!(answer.field("Content-Encoding"), coding, "{target}");
            assert!(decoded(&answer) == content.as_bytes(), "{target}");
        }
    }
}

#[test]
fn what_is_short_or_compressed_already_stays_as_it_is() {
    let (mut site, content) = site(5_000);
    site.write("noise.txt", noise(5000));
    site.write("large.txt", " ".repeat((4 << 20) + 1));
    for (target, vary, blocked) in [
        ("/short.js", "", 0),
        ("/a.png", "", 0),
        ("/large.txt", "", 0),
        ("/noise.txt", "Accept-Encoding", 1),
    ] {
        site.get(target); // it may have to be looked for
        site.blocked = 0;
        for _ in 0..3 {
            let answer = accepting(&mut site, target, BROWSER);
            assert_eq!((answer.status, answer.field("Content-Encoding")), (200, ""));
            assert_eq!(answer.field("Vary"), vary, "{target}");
        }
        assert_eq!(site.blocked, blocked, "{target}");
    }
    assert_eq!(site.get("/a.png").content, content.as_bytes());
}

/// That counted as no smaller, in no coding: the file was sent as it is until it changed.
#[test]
fn of_a_file_that_could_not_be_read_it_is_tried_again() {
    let options = StaticOptions {
        follow_symlinks: true,
        memory_bytes_max: 0,
        ..settled()
    };
    let mut site = Site::new(&[], options);
    // It claims to be longer than it is, so there is no reading all of it.
    std::os::unix::fs::symlink("/sys/kernel/fscaps", site.path("a.txt")).unwrap();
    for (blocked, coding) in (1..).zip(["gzip", "zstd", "br"]) {
        let head = site.request("HEAD", "/a.txt", &[("Accept-Encoding", coding)]);
        assert_eq!((head.status, head.field("Content-Encoding")), (200, ""));
        assert_eq!(site.blocked, blocked, "{coding}");
    }
}

#[test]
fn it_can_be_turned_off_and_is_off_without_a_cache() {
    let uncached = CacheLimits {
        bytes_max: 0,
        ..CacheLimits::default()
    };
    for options in [
        StaticOptions {
            compress: false,
            ..settled()
        },
        StaticOptions {
            cache: uncached,
            ..settled()
        },
    ] {
        let mut site = Site::new(&[("a.js", &text(5_000))], options);
        let answer = accepting(&mut site, "/a.js", BROWSER);
        let fields = (answer.field("Content-Encoding"), answer.field("Vary"));
        assert_eq!(fields, ("", ""));
    }
}

#[test]
fn none_is_made_while_memory_is_short() {
    let content = text(300_000);
    let memory = MemoryBudget::new(Some(64 << 20));
    let options = StaticOptions {
        memory: Some(Arc::clone(&memory)),
        ..settled()
    };
    let mut site = Site::new(&[("a.js", &content), ("b.js", &content)], options);
    assert_eq!(
        accepting(&mut site, "/a.js", "gzip").field("Content-Encoding"),
        "gzip"
    );
    assert_eq!(memory.used_bytes(), 0, "it was given back");
    // It would be short with what compressing takes; it is short.
    for more in [46 << 20, 2 << 20] {
        memory.reserve(more);
        let answer = accepting(&mut site, "/b.js", "gzip");
        assert_eq!((answer.status, answer.field("Content-Encoding")), (200, ""));
        site.pass(1000);
    }
    assert_eq!(
        accepting(&mut site, "/a.js", "gzip").field("Content-Encoding"),
        "gzip"
    );
}

/// It was compressed once for each.
#[test]
fn an_index_file_is_compressed_once_for_both_of_its_names() {
    for len in [5_000, 300_000] {
        let content = text(len);
        let files = [("index.html", &*content), ("a/index.html", &content)];
        for [first, second] in [
            ["/", "/index.html"],
            ["/index.html", "/"],
            ["/a/", "/a/index.html"],
            ["/a/index.html", "/a/"],
        ] {
            let memory = MemoryBudget::new(Some(64 << 20));
            let options = StaticOptions {
                memory: Some(Arc::clone(&memory)),
                ..settled()
            };
            let mut site = Site::new(&files, options);
            let answer = accepting(&mut site, first, BROWSER);
            assert_eq!(answer.field("Content-Encoding"), "br", "{first} of {len}");
            memory.reserve(48 << 20); // none is made from now on
            let again = accepting(&mut site, second, BROWSER);
            assert_eq!(again.field("Content-Encoding"), "br", "{second} of {len}");
            assert!(decoded(&again) == content.as_bytes(), "{second} of {len}");
        }
    }
}

#[test]
fn a_neighbour_wins_over_what_the_client_likes_as_much() {
    let (mut site, content) = site(5_000);
    site.write("a.js.gz", "as gzip");
    for (codings, coding) in [
        (BROWSER, "gzip"),
        ("gzip;q=0.5, zstd;q=0.5", "gzip"),
        ("gzip;q=0.5, zstd", "zstd"),
        ("zstd", "zstd"),
        (BROWSER, "zstd"), // which is there by now
    ] {
        let answer = accepting(&mut site, "/a.js", codings);
        assert_eq!(answer.field("Content-Encoding"), coding, "{codings}");
        match coding {
            "gzip" => assert_eq!(answer.text(), "as gzip"),
            _ => assert!(decoded(&answer) == content.as_bytes()),
        }
    }
    // One that comes later takes the place of what was made.
    site.write("a.js.br", "as brotli");
    site.pass(1000);
    assert_eq!(accepting(&mut site, "/a.js", BROWSER).text(), "as brotli");
}

#[test]
fn a_variant_has_validators_and_ranges_of_its_own() {
    let (mut site, content) = site(5_000);
    let plain = site.get("/a.js");
    let made = accepting(&mut site, "/a.js", "gzip");
    let tag = made.field("ETag");
    assert!(tag.starts_with('"') && tag != plain.field("ETag"), "{tag}");
    for other in ["zstd", "br"] {
        let other = accepting(&mut site, "/a.js", other);
        assert_ne!(other.field("ETag"), tag);
    }
    assert_eq!(made.field("Last-Modified"), plain.field("Last-Modified"));
    let gzip = ("Accept-Encoding", "gzip");
    let plain_tag = plain.field("ETag");
    let date = plain.field("Last-Modified"); // of all forms
    let last = made.content.len().to_string();
    let past_the_end = format!("bytes={last}-");
    let table: [(&[(&str, &str)], u16); 12] = [
        (&[gzip, ("If-None-Match", tag)], 304),
        (&[gzip, ("If-None-Match", plain_tag)], 200),
        (&[gzip, ("If-Match", plain_tag)], 412),
        (&[gzip, ("Range", "bytes=0-9")], 206),
        (&[gzip, ("Range", "bytes=0-9"), ("If-Range", tag)], 206),
        (
            &[gzip, ("Range", "bytes=0-9"), ("If-Range", plain_tag)],
            200,
        ),
        (&[gzip, ("Range", "bytes=0-1,5-6")], 200),
        (&[gzip, ("Range", &past_the_end)], 416),
        (&[("Range", "bytes=0-9"), ("If-Range", plain_tag)], 206),
        (&[gzip, ("Range", "bytes=0-9"), ("If-Range", date)], 200),
        (&[("Range", "bytes=0-9"), ("If-Range", date)], 200),
        (&[("Range", "bytes=0-1,5-6")], 206),
    ];
    for (fields, status) in table {
        let answer = site.request("GET", "/a.js", fields);
        assert_eq!(answer.status, status, "{fields:?}");
        assert_eq!(answer.field("Vary"), "Accept-Encoding", "{fields:?}");
    }
    let range = site.request("GET", "/a.js", table[3].0);
    assert_eq!(range.field("Content-Range"), format!("bytes 0-9/{last}"));
    assert_eq!(range.field("Content-Encoding"), "gzip");
    assert_eq!(range.content, made.content[..10]);
    let range = site.request("GET", "/a.js", table[8].0);
    assert_eq!(range.content, &content.as_bytes()[..10]);
    // A message of several parts is in no coding, whatever its parts are.
    let several = site.request("GET", "/a.js", table[6].0);
    assert_eq!(several.field("Content-Encoding"), "gzip");
    assert_eq!(several.content, made.content);
    let several = site.request("GET", "/a.js", table[11].0);
    assert_eq!(several.field("Content-Encoding"), "");
    assert!(several.field("Content-Type").starts_with("multipart/"));
}

#[test]
fn head_says_what_get_would() {
    let (mut site, _) = site(5_000);
    let head = site.request("HEAD", "/a.js", &[("Accept-Encoding", BROWSER)]);
    let get = accepting(&mut site, "/a.js", BROWSER);
    assert_eq!(head.undated(), get.undated());
    assert_eq!(head.field("Content-Encoding"), "br");
}

#[test]
fn a_file_that_changes_is_compressed_again_and_one_that_is_touched_is_not() {
    for len in [5_000, 300_000] {
        let (mut site, content) = site(len);
        assert!(decoded(&accepting(&mut site, "/a.js", "gzip")) == content.as_bytes());
        let changed = content.replace('a', "b");
        site.write("a.js", &changed);
        site.pass(1000);
        let answer = accepting(&mut site, "/a.js", "gzip");
        assert!(decoded(&answer) == changed.as_bytes());
        assert_eq!(answer.field("Content-Encoding"), "gzip");
        if len > 256 << 10 {
            continue; // it is not in memory: nobody knows whether it has other content
        }
        let blocked = site.blocked;
        let file = fs::File::options()
            .write(true)
            .open(site.path("a.js"))
            .unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        site.pass(1000);
        let touched = accepting(&mut site, "/a.js", "gzip");
        assert_eq!(touched.content, answer.content);
        assert_ne!(
            touched.field("Last-Modified"),
            answer.field("Last-Modified")
        );
        assert_eq!(site.blocked, blocked);
    }
}

/// Another change within the same tick of the file system's clock would not be seen.
#[test]
fn of_a_file_too_large_for_memory_a_variant_is_kept_once_its_times_can_be_trusted() {
    let (mut site, content) = site(300_000);
    set_ahead(0);
    for (ahead, is_made) in [(0, true), (60, true), (60, false)] {
        set_ahead(ahead);
        let before = site.blocked;
        let answer = accepting(&mut site, "/a.js", "gzip");
        assert!(decoded(&answer) == content.as_bytes());
        assert_eq!(site.blocked > before, is_made, "{ahead} s after the change");
        site.pass(1000);
    }
}

#[test]
fn a_page_that_answers_for_others_is_compressed_for_them() {
    let options = StaticOptions {
        spa_fallback: Some("index.html".to_owned()),
        ..settled()
    };
    let content = text(5_000);
    let mut site = Site::new(&[("index.html", &content)], options);
    for target in ["/some/route", "/some/route", "/", "/index.html", "/other"] {
        let answer = accepting(&mut site, target, BROWSER);
        assert_eq!(answer.field("Content-Encoding"), "br", "{target}");
        assert!(decoded(&answer) == content.as_bytes(), "{target}");
    }
}

#[test]
fn what_is_made_is_within_the_budget_of_the_cache() {
    let cache = CacheLimits {
        bytes_max: 1 << 20,
        entries_max: 1000,
        ..CacheLimits::default()
    };
    let content = text(9_000);
    let names: Vec<String> = (0..300).map(|n| format!("{n}.txt")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &*content)).collect();
    let mut site = Site::new(&files, StaticOptions { cache, ..settled() });
    for name in &names {
        let answer = accepting(&mut site, &format!("/{name}"), "gzip");
        assert!(decoded(&answer) == content.as_bytes());
        assert!(site.handler.cache_use().weight <= cache.bytes_max as u64 / 2);
    }
}
