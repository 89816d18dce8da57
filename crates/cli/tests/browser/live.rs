//! The live page in a real browser: it loads, it is fed, and it fits.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use serde_json::{Value, json};

use crate::assert_clean;
use crate::chromium::{Browser, Visit};
use crate::program::{Program, demo_site};

/// Waits until the page has drawn so many seconds.
fn await_seconds(browser: &mut Browser, count: usize) {
    let seconds = format!(
        "new Promise((done) => {{
            const look = () => samples.length >= {count} ? done(samples.length) : setTimeout(look, 50);
            look();
        }})"
    );
    let seen = browser.evaluate(&seconds);
    assert!(seen.as_u64() >= Some(count as u64), "{seen}");
    browser.evaluate("new Promise(requestAnimationFrame).then(() => true)");
}

/// Requests that the page's server answers with 200 and 404, one after the other.
fn make_requests(browser: &mut Browser) {
    browser.evaluate(
        "(async () => {
            for (let n = 0; n < 20; n++) {
                await (await fetch('/index.html')).text();
                await (await fetch('/live-has-no-such-file')).text();
            }
        })().then(() => true)",
    );
}

fn text(browser: &mut Browser, selector: &str) -> String {
    let value = browser.evaluate(&format!("document.querySelector('{selector}').textContent"));
    value.as_str().expect("text").to_owned()
}

/// What the browser has said since the last look, except for the requests that were made to fail.
fn noted(browser: &mut Browser) -> Vec<String> {
    let mut visit = Visit::default();
    while let Some(event) = browser.noted() {
        visit.note(&event);
    }
    visit
        .problems
        .retain(|problem| !problem.contains("live-has-no-such-file"));
    visit.problems
}

#[test]
fn it_is_fed_and_fits_in_light_and_dark() {
    let server = Program::serve(&demo_site(), &["--status-path", "/-/status"]);
    let mut browser = Browser::start();
    assert_looks(&mut browser, &server, "live");
}

/// On screens of both widths, in light and dark.
fn assert_looks(browser: &mut Browser, server: &Program, name: &str) {
    for (look, width, scheme) in [
        ("light", 1280, "light"),
        ("dark", 1280, "dark"),
        ("phone", 360, "light"),
        ("phone-dark", 360, "dark"),
    ] {
        browser.show_as(width, 900, scheme);
        let visit = browser.visit(&server.url("/-/live"));
        assert_clean(&visit, look);
        await_seconds(browser, 1);
        make_requests(browser);
        let before = browser
            .evaluate("samples.length")
            .as_u64()
            .expect("a count") as usize;
        await_seconds(browser, before + 2);
        let overflow = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
        assert!(
            overflow.as_i64() <= Some(0),
            "{look}: {overflow} pixels too wide"
        );
        assert_drawn(browser, look);
        let legend = text(browser, "#rates-legend");
        assert!(
            legend.contains("2xx") && legend.contains("4xx"),
            "{look}: {legend}"
        );
        let rows = browser.evaluate("document.querySelectorAll('#seconds tr').length");
        assert!(rows.as_u64() >= Some(2), "{look}: {rows} rows");
        let cells = browser.evaluate(
            "[document.querySelectorAll('thead th').length,
              ...[...document.querySelectorAll('#seconds tr')].map((row) => row.children.length)]",
        );
        let cells = cells.as_array().expect("counts");
        assert!(
            cells.iter().all(|count| *count == cells[0]),
            "{look}: {cells:?}"
        );
        let capacity = text(browser, "#ratio-text");
        assert!(capacity.contains("limited by its"), "{look}: {capacity}");
        let problems = noted(browser);
        assert!(problems.is_empty(), "{look}: {problems:#?}");
        browser.screenshot_of_all(&format!("{name}-{look}"));
    }
}

/// Something is drawn on every canvas, and each has a name for those who do not see it.
fn assert_drawn(browser: &mut Browser, look: &str) {
    let drawn = browser.evaluate(
        "[...document.querySelectorAll('canvas')].map((canvas) => {
            const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            return [canvas.id, data.some((value) => value > 0), canvas.ariaLabel.length > 10];
        })",
    );
    let drawn = drawn.as_array().expect("a list");
    assert_eq!(drawn.len(), 6, "{look}");
    for canvas in drawn {
        assert_eq!(
            (&canvas[1], &canvas[2]),
            (&Value::Bool(true), &Value::Bool(true)),
            "{look}: {canvas}"
        );
    }
}

/// The document allows no script and no style but its own files.
#[test]
fn nothing_foreign_runs_on_it() {
    let server = Program::serve(&demo_site(), &["--status-path", "/inner/status"]);
    let mut browser = Browser::start();
    assert_clean(&browser.visit(&server.url("/inner/live")), "live");
    await_seconds(&mut browser, 1);
    let outcome = browser.evaluate(
        "new Promise((done) => {
            document.addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));
            const script = document.createElement('script');
            script.textContent = 'document.title = \"foreign\"';
            document.body.append(script);
        })",
    );
    assert_eq!(outcome, "script-src-elem");
    assert_eq!(browser.evaluate("document.title"), "Loadline, live");
}

/// Seconds in their order, and what it says once the server is gone.
#[test]
fn it_draws_no_second_twice_and_says_when_the_server_is_gone() {
    let server = Program::serve(&demo_site(), &["--status-path", "/-/status"]);
    let mut browser = Browser::start();
    assert_clean(&browser.visit(&server.url("/-/live")), "live");
    await_seconds(&mut browser, 2);
    let counts = browser.evaluate(
        "[[1001, 1], [1002, 1], [1003, 1], [1004, 6], [1005, 1], [1, 1], [2, 1]].map(([id, span_s]) => {
            const sample = { ...samples[0], span_s };
            received({ lastEventId: String(id), data: JSON.stringify(sample) });
            return samples.length;
        })",
    );
    assert_eq!(counts, json!([1, 2, 3, 1, 2, 1, 2]));
    drop(server);
    let state = browser.evaluate(
        "new Promise((done) => {
            const look = (looks_left) => {
                const text = document.getElementById('state').textContent;
                text || looks_left === 0 ? done(text) : setTimeout(look, 100, looks_left - 1);
            };
            look(300);
        })",
    );
    assert_eq!(state, "The server does not respond; trying again.");
    browser.evaluate("dispatchEvent(new Event('resize'))");
    assert_eq!(text(&mut browser, "#state"), state, "drawn again");
}

/// It was drawn once for each: two minutes when it was opened, and hours when it had been hidden for so long.
#[test]
fn it_is_drawn_once_for_all_seconds_that_come_at_a_time() {
    let server = Program::serve(&demo_site(), &["--status-path", "/-/status"]);
    let mut browser = Browser::start();
    assert_clean(&browser.visit(&server.url("/-/live")), "live");
    await_seconds(&mut browser, 1);
    let drawn = browser.evaluate(
        "(async () => {
            let count = 0;
            const once = draw;
            draw = () => { count += 1; once(); };
            const data = JSON.stringify({ ...samples[0], span_s: 1 });
            for (let id = 1001; id <= 1100; id++) received({ lastEventId: String(id), data });
            await new Promise(requestAnimationFrame);
            draw = once;
            return count;
        })()",
    );
    // One more if the server's own next second has come meanwhile.
    assert!(matches!(drawn.as_u64(), Some(1 | 2)), "{drawn}");
    assert!(noted(&mut browser).is_empty());
}

/// The pool of connections to a database, beside threads.
#[test]
fn it_shows_the_sizes_of_pools_with_their_bounds() {
    let state = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}/accounts.db", state.path().display());
    let options = format!(
        "--status-path /-/status --architecture reactor --workers 3 --accounts {url} \
         --accounts-pool-min 8"
    );
    let server = Program::serve(&demo_site(), &options.split(' ').collect::<Vec<_>>());
    let mut browser = Browser::start();
    assert_clean(&browser.visit(&server.url("/-/live")), "live");
    await_seconds(&mut browser, 1);
    let sizes = text(&mut browser, "#sizes");
    for size in ["database pool8", "at least8", "at most64", "workers3"] {
        assert!(sizes.contains(size), "{size}: {sizes}");
    }
    assert!(noted(&mut browser).is_empty());
}

/// A worker, eight clients that wait for it, and hardly any time to wait.
#[test]
fn it_shows_what_is_refused_and_how_old_the_queue_is() {
    let options = "--status-path /-/status --architecture reactor --loops 1 --workers 1 \
                   --service-time 20ms --latency-goal 50ms";
    let options: Vec<&str> = options.split_ascii_whitespace().collect();
    let server = Program::serve(&demo_site(), &options);
    let address = server.url("").replace("http://", "");
    let mut browser = Browser::start();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        for _ in 0..8 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    request(&address);
                }
            });
        }
        assert_clean(&browser.visit(&server.url("/-/live")), "live");
        let both = "new Promise((done) => {
            const look = () => {
                const found = samples.find((it) => it.refused.late > 0 && it.queue.age_us > 0);
                found ? done(found.load !== null) : setTimeout(look, 50);
            };
            look();
        })";
        assert_eq!(browser.evaluate(both), true, "the load ratio is there, too");
        browser.evaluate("new Promise(requestAnimationFrame).then(() => true)");
    });
    for (chart, reason) in [("refused", "late"), ("queue", "age"), ("rates", "5xx")] {
        let legend = text(&mut browser, &format!("#{chart}-legend"));
        assert!(legend.contains(reason), "{chart}: {legend}");
    }
    browser.screenshot_of_all("live-overload");
    let problems = noted(&mut browser);
    assert!(problems.is_empty(), "{problems:#?}");
}

/// A request over a connection of its own.
fn request(address: &str) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let request = b"GET /index.html HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("it is sent");
    stream.read_to_end(&mut Vec::new()).expect("a response");
}

/// Ends the clients when the test ends, also if it fails.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn ten_thousand_connections_are_behind_it() {
    const CONNECTIONS: usize = 10_000;
    let limit = loadline_sys::usage::raise_descriptor_limit();
    assert!(limit.soft > CONNECTIONS as u64 + 1000, "{limit:?}");
    let options =
        "--status-path /-/status --architecture reactor --idle-timeout off --defer-accept off";
    let server = Program::serve(&demo_site(), &options.split(' ').collect::<Vec<_>>());
    let address = server.url("").replace("http://", "");
    let connections: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| TcpStream::connect(&address).expect("a connection"))
        .collect();
    let mut browser = Browser::start();
    assert_looks(&mut browser, &server, "live-10000");
    let sizes = "Number(samples[samples.length - 1].sizes.connections)";
    let seen = browser.evaluate(sizes);
    assert!(seen.as_u64() >= Some(CONNECTIONS as u64), "{seen}");
    // After a gap of more than five seconds, by the server's clock, the page begins anew. So there was none between
    // these; on a busy machine it may take longer until there are so many.
    await_seconds(&mut browser, 11);
    let late = browser.evaluate("samples.slice(1).filter((it) => it.span_s > PAUSE_S).length");
    assert_eq!(late, 0);
    assert!(noted(&mut browser).is_empty());
    drop(connections);
}
