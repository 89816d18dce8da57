//! Accounts in a real browser, served by the program: the whole journey on each database.

use serde_json::json;

use crate::chromium::Browser;
use crate::program::{Program, demo_site};
use crate::servers::{DatabaseKind, Server};

const PASSWORD: &str = "wind and tide wait for no one";

/// Fills the fields of the page's form and sends it, as a user would.
fn send(browser: &mut Browser, fields: &[(&str, &str)]) {
    for (id, value) in fields {
        let fill = format!(
            "document.getElementById({}).value = {}",
            json!(id),
            json!(value)
        );
        browser.evaluate(&fill);
    }
    browser.follow("main form button");
}

fn path(browser: &mut Browser) -> String {
    let path = browser.evaluate("location.pathname");
    path.as_str().expect("a path").to_owned()
}

fn expect_path(browser: &mut Browser, expected: &str) {
    let found = path(browser);
    let shown = browser.evaluate("document.body.innerText");
    assert_eq!(found, expected, "the page says: {shown}");
}

/// The texts of what the page warns of.
fn warnings(browser: &mut Browser) -> String {
    let texts = "[...document.querySelectorAll('[role=alert]')].map((it) => it.textContent).join()";
    browser.evaluate(texts).as_str().expect("text").to_owned()
}

fn expect_warning(browser: &mut Browser, warning: &str) {
    let warnings = warnings(browser);
    assert!(warnings.contains(warning), "{warning}: {warnings}");
}

fn journey(database: &str, name: &str) {
    let program = Program::serve(&demo_site(), &["--accounts", database]);
    let mut browser = Browser::start();
    assert!(browser.visit(&program.url("/")).problems.is_empty());
    let visit = browser.follow("a[href='accounts/']");
    assert!(visit.problems.is_empty(), "{:?}", visit.problems);
    expect_path(&mut browser, "/accounts/");
    browser.follow("main a[href='/accounts/register']");
    register(&mut browser);
    log_in(&mut browser);
    see_the_picture(&mut browser, name);
    browser.follow(".logout button");
    expect_path(&mut browser, "/accounts/");
    browser.visit(&program.url("/accounts/member"));
    expect_path(&mut browser, "/accounts/login");
    send(&mut browser, &[("name", "Ada"), ("password", PASSWORD)]);
    change_password(&mut browser);
    browser.visit(&program.url("/accounts/delete"));
    send(&mut browser, &[("current", "a new and better one")]);
    expect_path(&mut browser, "/accounts/");
    browser.visit(&program.url("/accounts/login"));
    send(
        &mut browser,
        &[("name", "Ada"), ("password", "a new and better one")],
    );
    expect_warning(&mut browser, "wrong");
}

fn register(browser: &mut Browser) {
    for (password, repeat, warning) in [
        ("short", "short", "too short"),
        ("password123", "password123", "most common"),
        (PASSWORD, "another", "differ"),
    ] {
        let fields = [("name", "Ada"), ("password", password), ("repeat", repeat)];
        send(browser, &fields);
        expect_warning(browser, warning);
        let kept =
            "[document.getElementById('name').value, document.getElementById('password').value]";
        assert_eq!(browser.evaluate(kept), json!(["Ada", ""]));
    }
    let fields = [
        ("name", "Ada"),
        ("password", PASSWORD),
        ("repeat", PASSWORD),
    ];
    send(browser, &fields);
    expect_path(browser, "/accounts/login");
    browser.follow("main a[href='/accounts/register']");
    let fields = [
        ("name", "ADA"),
        ("password", PASSWORD),
        ("repeat", PASSWORD),
    ];
    send(browser, &fields);
    expect_warning(browser, "is taken");
    browser.follow("main a[href='/accounts/login']");
}

fn log_in(browser: &mut Browser) {
    send(browser, &[("name", "Ada"), ("password", "not the one")]);
    expect_warning(browser, "The user name or the password is wrong.");
    send(browser, &[("name", "ada"), ("password", PASSWORD)]);
    expect_path(browser, "/accounts/member");
    assert_eq!(
        browser.evaluate("document.getElementById('user').textContent"),
        "Ada"
    );
    assert_eq!(
        browser.evaluate("document.cookie"),
        "",
        "no script sees a cookie"
    );
}

fn see_the_picture(browser: &mut Browser, name: &str) {
    for (look, width, scheme) in [("light", 1280, "light"), ("dark", 390, "dark")] {
        browser.show_as(width, 900, scheme);
        let size = browser.evaluate(
            "document.getElementById('picture').decode()
                .then(() => [picture.naturalWidth, picture.naturalHeight])",
        );
        assert_eq!(size, json!([960, 540]));
        let overflow = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
        assert!(overflow.as_i64() <= Some(0), "{overflow} pixels too wide");
        browser.screenshot(&format!("accounts-{name}-{look}"));
    }
    browser.show_as(1280, 900, "light");
}

fn change_password(browser: &mut Browser) {
    expect_path(browser, "/accounts/member");
    browser.follow("main a[href='/accounts/password']");
    let new = "a new and better one";
    send(
        browser,
        &[
            ("current", "not the one"),
            ("password", new),
            ("repeat", new),
        ],
    );
    expect_warning(browser, "not your present password");
    send(
        browser,
        &[("current", PASSWORD), ("password", new), ("repeat", new)],
    );
    expect_path(browser, "/accounts/member");
}

fn on_server(kind: DatabaseKind, name: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start(kind));
    let url = runtime.block_on(server.database("journey"));
    journey(&url, name);
}

#[test]
fn accounts_on_sqlite() {
    let folder = tempfile::tempdir().expect("a directory");
    journey(
        &format!("sqlite:{}/accounts.db", folder.path().display()),
        "sqlite",
    );
}

#[test]
fn accounts_on_mariadb() {
    on_server(DatabaseKind::MariaDb, "mariadb");
}

#[test]
fn accounts_on_postgresql() {
    on_server(DatabaseKind::PostgreSql, "postgresql");
}

/// Everything can be done without script, by keyboard, and every field says what it is.
#[test]
fn accounts_need_no_script_and_name_their_fields() {
    let folder = tempfile::tempdir().expect("a directory");
    let database = format!("sqlite:{}/accounts.db", folder.path().display());
    let program = Program::serve(&demo_site(), &["--accounts", &database]);
    let mut browser = Browser::start();
    browser.disable_scripts();
    for page in ["", "login", "register"] {
        let visit = browser.visit(&program.url(&format!("/accounts/{page}")));
        assert!(visit.problems.is_empty(), "{:?}", visit.problems);
        assert_eq!(browser.evaluate("document.scripts.length"), 0);
        let unnamed = "[...document.querySelectorAll('input:not([type=hidden])')]
            .filter((field) => field.labels.length !== 1 || !field.autocomplete).length";
        assert_eq!(browser.evaluate(unnamed), 0, "{page}");
        assert_eq!(
            browser.evaluate("document.querySelectorAll('h1').length"),
            1
        );
        assert_eq!(browser.evaluate("document.documentElement.lang"), "en");
    }
    let fields = [
        ("name", "Ada"),
        ("password", PASSWORD),
        ("repeat", PASSWORD),
    ];
    send(&mut browser, &fields);
    send(&mut browser, &[("name", "Ada"), ("password", PASSWORD)]);
    expect_path(&mut browser, "/accounts/member");
}
