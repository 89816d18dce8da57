//! The program in front of a real browser: the demo site, and documentation that others wrote.
//!
//! Screenshots are left in `target/browser`.

mod accounts;
mod capacity;
mod chromium;
#[path = "../../../lab/tests/report/fixture.rs"]
mod fixture;
mod live;
mod process;
mod program;
mod report;
#[path = "../../../accounts/tests/accounts/servers.rs"]
#[expect(dead_code, reason = "a part of it is used here")]
mod servers;
mod waterfall;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use chromium::{Browser, Visit};
use program::{EXPERIMENTS, Program, demo_site};
use rcgen::{CertificateParams, KeyPair};

const PAGES: [&str; 5] = ["index", "architectures", "load-lines", "http", "listen"];

/// Images of the page, and those of them that show something.
const IMAGES: &str = "[document.images.length,
    [...document.images].filter((image) => image.naturalWidth > 0).length]";

fn assert_clean(visit: &Visit, what: &str) {
    assert!(visit.problems.is_empty(), "{what}: {:#?}", visit.problems);
}

/// Every image of the present page shows something; returns how many there are.
fn assert_images(browser: &mut Browser, what: &str) -> u64 {
    let counts = browser.evaluate(IMAGES);
    assert_eq!(
        counts[0], counts[1],
        "{what}: images and images that were decoded"
    );
    counts[0].as_u64().expect("a count")
}

#[test]
fn every_page_of_the_demo_site_loads_whole() {
    let server = Program::serve(&demo_site(), &[]);
    let mut browser = Browser::start();
    let mut links = BTreeSet::new();
    for page in PAGES {
        for (look, width, scheme) in [
            ("light", 1280, "light"),
            ("dark", 1280, "dark"),
            ("narrow", 390, "light"),
        ] {
            browser.show_as(width, 900, scheme);
            let visit = browser.visit(&server.url(&format!("/{page}.html")));
            let what = format!("{page} ({look})");
            assert_clean(&visit, &what);
            assert!(assert_images(&mut browser, &what) > 0, "{what}: no image");
            let rules = browser.evaluate("document.styleSheets[0].cssRules.length");
            assert!(
                rules.as_u64() > Some(50),
                "{what}: style sheet of {rules} rules"
            );
            let overflow = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
            assert!(
                overflow.as_i64() <= Some(0),
                "{what}: {overflow} pixels too wide"
            );
            browser.screenshot(&format!("{page}-{look}"));
        }
        let wants_script = browser.evaluate("document.scripts.length > 0");
        let ran = browser.evaluate("document.documentElement.classList.contains('scripted')");
        assert_eq!(wants_script, ran, "{page}: script");
        let hrefs = browser.evaluate(
            "[...document.links].map((link) => link.href.split('#')[0])
                .filter((link) => link.endsWith('.html'))",
        );
        links.extend(
            hrefs
                .as_array()
                .expect("a list")
                .iter()
                .map(|link| link.to_string()),
        );
    }
    assert!(links.len() >= PAGES.len(), "{links:?}");
    for link in links {
        let visit = browser.visit(link.trim_matches('"'));
        assert_clean(&visit, &link);
    }
}

/// Serves the demo site by https, with this certificate, and loads every page whole.
fn load_every_page_by_https(architecture: &str, certificate: &[&str]) {
    let options = [certificate, &["--architecture", architecture]].concat();
    let server = Program::serve_at("https://127.0.0.1:0", &demo_site(), &options);
    let mut browser = Browser::start();
    browser.accept_any_certificate();
    for page in PAGES {
        let what = format!("{page} by https, {architecture}");
        let visit = browser.visit(&server.url(&format!("/{page}.html")));
        assert_clean(&visit, &what);
        assert!(!visit.answers.is_empty(), "{what}");
        for (url, _) in &visit.answers {
            let is_secure = url.starts_with("https://") || url.starts_with("data:");
            assert!(is_secure, "{what}: {url}");
        }
        assert!(assert_images(&mut browser, &what) > 0, "{what}: no image");
        let rules = browser.evaluate("document.styleSheets[0].cssRules.length");
        assert!(rules.as_u64() > Some(50), "{what}: {rules} rules");
        let secure = browser.evaluate(
            "isSecureContext && location.protocol === 'https:' && performance
                .getEntriesByType('navigation')[0].nextHopProtocol === 'h2'",
        );
        assert_eq!(secure, true, "{what}");
    }
    assert_clean(&browser.visit(&server.url("/http.html")), "http");
    let answers = browser.evaluate(EXPERIMENTS);
    for answer in answers.as_array().expect("a list") {
        assert_eq!(answer[2], false, "{architecture}: {answer:#}");
    }
}

#[test]
fn every_page_of_the_demo_site_loads_by_https() {
    load_every_page_by_https("auto", &["--tls", "self-signed"]);
}

#[test]
#[ignore = "long: the site under every architecture"]
fn every_page_of_the_demo_site_loads_by_https_under_every_architecture() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (chain_file, key_file) = (path("c.pem"), path("k.pem"));
    fs::write(&chain_file, certificate.pem()).expect("a file");
    fs::write(&key_file, key.serialize_pem()).expect("a file");
    let files = ["--tls-cert", &chain_file, "--tls-key", &key_file];
    for architecture in loadline_server::Architecture::ALL {
        match loadline_server::check_offered(*architecture) {
            Ok(_) => load_every_page_by_https(architecture.name(), &files),
            Err(error) => {
                let _ = writeln!(io::stderr(), "\nskipped: {error}");
            }
        }
    }
}

#[test]
fn the_directory_itself_shows_the_home_page() {
    let server = Program::serve(&demo_site(), &[]);
    let mut browser = Browser::start();
    assert_clean(&browser.visit(&server.url("/")), "/");
    assert_eq!(
        browser.evaluate("document.querySelector('h1').textContent"),
        "How much can it carry?"
    );
}

#[test]
fn a_missing_page_is_answered_in_the_style_of_the_site() {
    let site = demo_site();
    let pages = site.to_str().expect("a path of text");
    let server = Program::serve(&site, &["--error-pages", pages]);
    let mut browser = Browser::start();
    let url = server.url("/no/such/page");
    let visit = browser.visit(&url);
    assert_eq!(visit.statuses("/no/such/page"), [404]);
    let others: Vec<_> = visit
        .problems
        .iter()
        .filter(|text| !text.contains(&url))
        .collect();
    assert!(others.is_empty(), "{others:#?}");
    assert_eq!(
        browser.evaluate("document.querySelector('.eyebrow').textContent"),
        "404"
    );
    assert!(assert_images(&mut browser, "404") > 0);
    assert!(
        browser
            .evaluate("document.styleSheets[0].cssRules.length")
            .as_u64()
            > Some(50)
    );
    browser.screenshot("404");
}

#[test]
fn without_script_the_plot_is_still_there() {
    let server = Program::serve(&demo_site(), &[]);
    let mut browser = Browser::start();
    browser.disable_scripts();
    assert_clean(
        &browser.visit(&server.url("/load-lines.html")),
        "load-lines",
    );
    let ran = browser.evaluate("document.documentElement.classList.contains('scripted')");
    assert_eq!(ran, false);
    assert_eq!(
        browser.evaluate("document.querySelectorAll('#plot .tail').length"),
        1
    );
    browser.screenshot("load-lines-without-script");
}

#[test]
fn links_lead_from_page_to_page() {
    let server = Program::serve(&demo_site(), &[]);
    let mut browser = Browser::start();
    assert_clean(&browser.visit(&server.url("/index.html")), "index");
    for page in ["architectures", "load-lines", "http", "listen", "index"] {
        let visit = browser.follow(&format!("nav a[href='{page}.html']"));
        assert_clean(&visit, page);
        assert_eq!(
            browser.evaluate("location.pathname"),
            format!("/{page}.html")
        );
    }
}

#[test]
fn the_plot_follows_its_sliders() {
    let server = Program::serve(&demo_site(), &[]);
    let mut browser = Browser::start();
    assert_clean(
        &browser.visit(&server.url("/load-lines.html")),
        "load-lines",
    );
    let readings = "['capacity', 'load-line'].map((id) => document.getElementById(id).textContent)";
    assert_eq!(browser.evaluate(readings)[0], "8,000 / s");
    let before = browser.evaluate("document.querySelector('#plot .tail').getAttribute('d')");
    browser.evaluate(
        "{ const slider = document.getElementById('threads'); slider.value = 1;
           slider.dispatchEvent(new Event('input')); }",
    );
    assert_eq!(browser.evaluate(readings)[0], "2,000 / s");
    let after = browser.evaluate("document.querySelector('#plot .tail').getAttribute('d')");
    assert_ne!(before, after);
}

#[test]
fn the_http_page_gets_the_answers_it_describes() {
    let server = Program::serve(&demo_site(), &[]);
    let mut browser = Browser::start();
    assert_clean(&browser.visit(&server.url("/http.html")), "http");
    let hidden = "[...document.querySelectorAll('.answer')]
        .filter((it) => getComputedStyle(it).display === 'none').length";
    assert_eq!(browser.evaluate(hidden), 0, "not announced when filled");
    let answers = browser.evaluate(EXPERIMENTS);
    let answers = answers.as_array().expect("a list");
    assert_eq!(answers.len(), 10);
    for answer in answers {
        assert_eq!(answer[2], false, "{answer:#}");
    }
    let text_of = |name: &str| {
        let answer = answers
            .iter()
            .find(|answer| answer[0] == name)
            .expect("an experiment");
        answer[3].as_str().expect("text").to_owned()
    };
    assert!(
        text_of("range").contains("89 50 4e 47"),
        "the signature of a PNG"
    );
    assert!(text_of("several").contains("multipart/byteranges"));
    assert!(text_of("method").to_lowercase().contains("< allow: "));
    browser.show_as(1280, 3600, "light");
    browser.screenshot("http-answers");
}

#[test]
fn the_sound_plays_from_any_point() {
    let server = Program::serve(&demo_site(), &[]);
    let mut browser = Browser::start();
    let mut visit = browser.visit(&server.url("/listen.html"));
    let seconds = browser.evaluate(
        "new Promise((resolve, reject) => {
            const audio = document.getElementById('audio');
            audio.onerror = () => reject(audio.error.message);
            const seconds = () => Math.round(audio.duration * 10) / 10; // Opus begins 6.5 ms early
            if (audio.readyState > 0) resolve(seconds());
            else audio.onloadedmetadata = () => resolve(seconds());
        })",
    );
    assert_eq!(seconds, 28, "length of the sound");
    let at = browser.evaluate(
        "new Promise((resolve, reject) => {
            const audio = document.getElementById('audio');
            audio.onerror = () => reject(audio.error.message);
            audio.onseeked = () => resolve(audio.currentTime);
            audio.currentTime = 26;
        })",
    );
    assert_eq!(at, 26);
    while visit.statuses("saturation.ogg").is_empty() {
        browser.wait_for(&mut visit, |event| {
            event["method"] == "Network.responseReceived"
        });
    }
    assert!(
        visit
            .statuses("saturation.ogg")
            .iter()
            .all(|status| *status == 206),
        "{visit:?}"
    );
    assert_clean(&visit, "listen");
}

/// Visits pages of a documentation and leaves the last one open, for more questions. `None`, with a
/// message that is not captured, if it is not installed.
fn visit_documentation(package: &str, root: &str, pages: &[&str]) -> Option<(Program, Browser)> {
    let root = Path::new(root);
    if !root.join("index.html").exists() {
        let hint = format!(
            "\nSKIPPED: {} is missing: apt-get install {package}\n",
            root.display()
        );
        let _ = io::stderr().write_all(hint.as_bytes());
        return None;
    }
    // Debian keeps libraries that several packages use outside of the documentation.
    let server = Program::serve(root, &["--follow-symlinks"]);
    let mut browser = Browser::start();
    let mut images = 0;
    for page in pages {
        let visit = browser.visit(&server.url(page));
        assert_clean(&visit, page);
        images += assert_images(&mut browser, page);
        let name: String = page
            .chars()
            .map(|c| if c.is_alphanumeric() { c } else { '-' })
            .collect();
        browser.screenshot(&format!("{package}{name}"));
    }
    assert!(images >= 5, "{package}: only {images} images");
    Some((server, browser))
}

#[test]
fn documentation_of_sqlite_works() {
    let pages = [
        "/",
        "/lang_select.html",
        "/fileformat2.html",
        "/arch.html",
        "/cli.html",
    ];
    let sqlite = visit_documentation("sqlite3-doc", "/usr/share/doc/sqlite3", &pages);
    let Some((_server, mut browser)) = sqlite else {
        return;
    };
    let contents = "document.getElementById('toc_sub').style.display";
    assert_ne!(browser.evaluate(contents), "block");
    browser.evaluate("document.querySelector('[onclick*=toggle_toc]').click()");
    assert_eq!(
        browser.evaluate(contents),
        "block",
        "the page's script shows its contents"
    );
}

#[test]
fn documentation_of_python_works() {
    let pages = [
        "/",
        "/library/turtle.html",
        "/library/asyncio.html",
        "/search.html",
    ];
    let python = visit_documentation("python3-doc", "/usr/share/doc/python3/html", &pages);
    let Some((server, mut browser)) = python else {
        return;
    };
    // Not clean, perhaps: its script asks for each page found, of which Debian has packed one, the changelog.
    browser.visit(&server.url("/search.html?q=socket"));
    // The search is done by script: it fetches an index, then shows what it found.
    let found = browser.evaluate(
        "(async () => {
            const found = () => document.querySelectorAll('#search-results li').length;
            while (found() === 0) await new Promise((go) => setTimeout(go, 20));
            return found();
        })()",
    );
    assert!(found.as_u64() > Some(0));
    browser.screenshot("python3-doc-search-results");
}
