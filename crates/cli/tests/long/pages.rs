//! The demo site and the accounts in Firefox, as `tests/browser` has them in Chromium.
//!
//! All tests together take a minute and a half.

use serde_json::json;

use crate::alone;
use crate::demo::{EXPERIMENTS, Program, demo_site};
use crate::firefox::{Firefox, Visit};
use crate::visitor::{NEW_PASSWORD, PASSWORD};

const PAGES: [&str; 5] = ["index", "architectures", "load-lines", "http", "listen"];

fn assert_clean(visit: &Visit, what: &str) {
    assert!(visit.problems.is_empty(), "{what}: {:#?}", visit.problems);
}

#[test]
#[ignore = "long: 20 s, and Firefox"]
fn every_page_of_the_demo_site_loads_whole_in_firefox() {
    load_every_page(&Program::serve(&demo_site(), &[]), "http/1.1");
}

#[test]
#[ignore = "long: 20 s, and Firefox"]
fn every_page_of_the_demo_site_loads_by_http_2_in_firefox() {
    let options = ["--tls", "self-signed"];
    let server = Program::serve_at("https://127.0.0.1:0", &demo_site(), &options);
    load_every_page(&server, "h2");
}

/// All pages, on screens of both widths and by links, by this protocol.
fn load_every_page(server: &Program, protocol: &str) {
    let _alone = alone();
    let mut browser = Firefox::start();
    for page in PAGES {
        for width in [1280, 390] {
            browser.show_as(width);
            let what = format!("{page}, {width} pixels wide");
            let visit = browser.visit(&server.url(&format!("/{page}.html")));
            assert_clean(&visit, &what);
            assert!(visit.answers.len() > 2 || width == 390, "{what}: {visit:?}");
            let found = browser.evaluate(
                "[document.images.length,
                  [...document.images].filter((image) => image.naturalWidth > 0).length,
                  document.styleSheets[0].cssRules.length > 50,
                  document.documentElement.scrollWidth - innerWidth <= 0,
                  (document.scripts.length > 0)
                      === document.documentElement.classList.contains('scripted')]",
            );
            assert!(found[0].as_u64() > Some(0), "{what}: no image");
            assert_eq!(found[0], found[1], "{what}: images, and those decoded");
            let rest = [&found[2], &found[3], &found[4]];
            assert_eq!(rest, [true; 3], "{what}: styled, fits, scripted");
            let spoken = browser.evaluate(
                "['navigation', 'resource'].flatMap((kind) =>
                    performance.getEntriesByType(kind).map((entry) => entry.nextHopProtocol))",
            );
            let spoken = spoken.as_array().expect("a list");
            // Of what is in the cache there is none.
            let is_known = |it: &&serde_json::Value| **it != "";
            assert!(
                spoken.iter().filter(is_known).all(|it| it == protocol),
                "{what}: {spoken:?}"
            );
        }
    }
    browser.show_as(1280);
    for page in ["architectures", "load-lines", "http", "listen", "index"] {
        let visit = browser.follow(&format!("nav a[href='{page}.html']"));
        assert_clean(&visit, page);
        let path = browser.evaluate("location.pathname");
        assert_eq!(path, format!("/{page}.html"));
    }
}

#[test]
#[ignore = "long: 15 s, and Firefox"]
fn sound_and_experiments_work_in_firefox() {
    let _alone = alone();
    let server = Program::serve(&demo_site(), &[]);
    let mut browser = Firefox::start();
    let visit = browser.visit(&server.url("/listen.html"));
    assert_clean(&visit, "listen");
    let played = browser.evaluate(
        "new Promise((resolve, reject) => {
            const audio = document.getElementById('audio');
            audio.onerror = () => reject(audio.error.message);
            const seek = () => {
                audio.onseeked = () => resolve([Math.round(audio.duration * 10) / 10, audio.currentTime]);
                audio.currentTime = 26;
            };
            if (audio.readyState > 0) seek();
            else audio.onloadedmetadata = seek;
        })",
    );
    assert_eq!(
        played,
        json!([28, 26]),
        "length of the sound, and where it is"
    );
    let visit = browser.visit(&server.url("/http.html"));
    assert_clean(&visit, "http");
    let answers = browser.evaluate(EXPERIMENTS);
    let answers = answers.as_array().expect("a list");
    assert_eq!(answers.len(), 10);
    for answer in answers {
        assert_eq!(answer[2], false, "{answer:#}");
    }
}

#[test]
#[ignore = "long: 20 s, and Firefox"]
fn accounts_work_in_firefox() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}/accounts.db", folder.path().display());
    let program = Program::serve(&demo_site(), &["--accounts", &database]);
    let mut browser = Firefox::start();
    assert_clean(&browser.visit(&program.url("/")), "/");
    assert_clean(&browser.follow("a[href='accounts/']"), "accounts");
    assert_clean(&browser.follow("main a[href='/accounts/register']"), "form");
    let fields = |password| {
        [
            ("name", "Ada"),
            ("password", password),
            ("repeat", PASSWORD),
        ]
    };
    send(&mut browser, &fields("another"));
    warns(&mut browser, "differ");
    send(&mut browser, &fields(PASSWORD));
    is_at(&mut browser, "/accounts/login");
    send(
        &mut browser,
        &[("name", "Ada"), ("password", "not the one")],
    );
    warns(&mut browser, "wrong");
    send(&mut browser, &[("name", "ada"), ("password", PASSWORD)]);
    is_at(&mut browser, "/accounts/member");
    let seen = browser.evaluate(
        "document.getElementById('picture').decode().then(() =>
            [picture.naturalWidth, document.getElementById('user').textContent, document.cookie])",
    );
    assert_eq!(seen, json!([960, "Ada", ""]), "and no script sees a cookie");
    browser.follow("main a[href='/accounts/password']");
    let fields = [
        ("current", PASSWORD),
        ("password", NEW_PASSWORD),
        ("repeat", NEW_PASSWORD),
    ];
    send(&mut browser, &fields);
    is_at(&mut browser, "/accounts/member");
    browser.follow(".logout button");
    is_at(&mut browser, "/accounts/");
    browser.visit(&program.url("/accounts/member"));
    is_at(&mut browser, "/accounts/login");
    send(&mut browser, &[("name", "Ada"), ("password", NEW_PASSWORD)]);
    is_at(&mut browser, "/accounts/member");
    browser.visit(&program.url("/accounts/delete"));
    send(&mut browser, &[("current", NEW_PASSWORD)]);
    is_at(&mut browser, "/accounts/");
}

/// Fills the fields of the page's form and sends it, as a user would.
fn send(browser: &mut Firefox, fields: &[(&str, &str)]) {
    for (id, value) in fields {
        let (id, value) = (json!(id), json!(value));
        browser.evaluate(&format!("document.getElementById({id}).value = {value}"));
    }
    browser.follow("main form button");
}

fn is_at(browser: &mut Firefox, path: &str) {
    assert_eq!(browser.evaluate("location.pathname"), path);
}

fn warns(browser: &mut Firefox, warning: &str) {
    let texts = "[...document.querySelectorAll('[role=alert]')].map((it) => it.textContent).join()";
    let texts = browser.evaluate(texts);
    assert!(texts.as_str().unwrap().contains(warning), "{texts}");
}
