//! Each database under each architecture: whole lives of several users at once, over sockets, and a
//! database that dies in the middle and comes back.
//!
//! The three tests together take three minutes.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;

use crate::client::Connection;
use crate::program::{Server as Program, until};
use crate::servers::{DatabaseKind, Server};
use crate::visitor::{NEW_PASSWORD, PASSWORD, Visitor, is, leads_to};
use crate::{ARCHITECTURES, alone, options};

/// Users at once: more than hashes and loops, fewer than connections to the database.
const USERS: u8 = 6;

#[test]
#[ignore = "long: 50 s"]
fn sqlite_under_each_architecture() {
    let _alone = alone();
    for (number, (architecture, _)) in ARCHITECTURES.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/accounts.db", folder.path().display());
        // It is a part of the program: it cannot be down.
        under(architecture, number, &url, |_| ());
    }
}

#[test]
#[ignore = "long: 70 s"]
fn mariadb_under_each_architecture() {
    on(DatabaseKind::MariaDb);
}

#[test]
#[ignore = "long: 70 s"]
fn postgresql_under_each_architecture() {
    on(DatabaseKind::PostgreSql);
}

fn on(kind: DatabaseKind) {
    let _alone = alone();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut server = runtime.block_on(Server::start(kind));
    for (number, (architecture, _)) in ARCHITECTURES.iter().enumerate() {
        let name = format!("architecture{number}");
        let url = runtime.block_on(server.database(&name));
        let was_run = under(architecture, number, &url, |users| {
            server.kill();
            go_without(users);
            runtime.block_on(server.run());
            go_on(users);
        });
        for table in ["users", "sessions"].iter().filter(|_| was_run) {
            let sql = format!("SELECT count(*) FROM {table}");
            let rows = runtime.block_on(server.count(&name, &sql));
            assert_eq!(rows, 0, "{architecture}: rows in {table}");
        }
    }
}

/// Serves with a database under an architecture; `outage` happens while everybody is logged in.
/// Whether this machine offers that.
fn under(
    architecture: &str,
    number: usize,
    url: &str,
    outage: impl FnOnce(&mut [(String, Visitor)]),
) -> bool {
    let Some(mut more) = options(architecture) else {
        return false;
    };
    // A machine that is busy with others may take seconds for a hash; nobody is to be refused for that.
    more.extend(["--accounts-hashes", "4"]);
    let site = crate::program::site();
    let command = |words: &[&str]| {
        let mut command = std::process::Command::new(crate::program::PROGRAM);
        command.arg("serve").arg(site.path()).args(words);
        command.env("LOADLINE_ACCOUNTS", url); // as it has to be where there is a password in it
        command
    };
    more.extend(["--listen", "127.0.0.1:0"]);
    let mut program = Program::start_command(command(&more), &more);
    let server = program.address();
    let is_brief = architecture == "sequential";
    let threads: Vec<_> = (0..USERS)
        .map(|user| {
            let network = u8::try_from(number).unwrap();
            let address = IpAddr::V4(Ipv4Addr::new(127, 5, network, 1 + user));
            let visitor = Visitor::new(server, address, is_brief);
            thread::spawn(move || live(format!("User{user}"), visitor))
        })
        .collect();
    let users = threads.into_iter().map(|thread| thread.join().unwrap());
    let mut users: Vec<(String, Visitor)> = users.collect();
    outage(&mut users);
    let mut connection = Connection::new(server);
    assert_eq!(connection.get("/").status, 200, "{architecture}");
    drop(connection);
    for (name, visitor) in &mut users {
        leads_to(&visitor.delete(NEW_PASSWORD), "/accounts/?after=deleted");
        is(&visitor.log_in(name, NEW_PASSWORD), 403);
        visitor.leave();
    }
    program.signal("TERM");
    let status = program.wait();
    let lines = program.rest();
    assert_eq!(status.code(), Some(0), "{architecture}: {lines:#?}");
    let bad = lines.iter().find(|line| line.contains("panicked"));
    assert_eq!(bad, None, "{architecture}");
    true
}

/// From the registration to a second login, with the mistakes that people make.
fn live(name: String, mut visitor: Visitor) -> (String, Visitor) {
    let answer = visitor.register(&name);
    leads_to(&answer, "/accounts/login?after=registered");
    is(&visitor.register(&name.to_uppercase()), 409);
    is(&visitor.log_in(&name, "not the one"), 403);
    leads_to(&visitor.log_in(&name, PASSWORD), "/accounts/member");
    is_in(&mut visitor, &name);
    is(&visitor.change_password("not the one"), 403);
    let answer = visitor.change_password(PASSWORD);
    leads_to(&answer, "/accounts/member?after=password");
    is_in(&mut visitor, &name);
    leads_to(&visitor.log_out(), "/accounts/?after=logout");
    leads_to(&visitor.get("/accounts/member"), "/accounts/login");
    is(&visitor.log_in(&name, PASSWORD), 403);
    leads_to(&visitor.log_in(&name, NEW_PASSWORD), "/accounts/member");
    is_in(&mut visitor, &name);
    (name, visitor)
}

fn is_in(visitor: &mut Visitor, name: &str) {
    let page = visitor.get("/accounts/member");
    is(&page, 200);
    let shown = format!("<strong id=\"user\">{name}</strong>");
    assert!(page.text().contains(&shown), "{}", page.text());
    let picture = visitor.get("/accounts/picture");
    assert_eq!(&picture.body[..4], b"\x89PNG");
}

/// A user who is logged in is asked to come back; what needs no database is there.
fn go_without(users: &mut [(String, Visitor)]) {
    for (name, visitor) in users {
        let page = visitor.get("/accounts/member");
        is(&page, 503);
        let wait = page.field("retry-after").and_then(|it| it.parse().ok());
        assert!(wait > Some(0_u32), "{name}: {}", page.head);
        is(&visitor.get("/accounts/style.css"), 200);
        is(&visitor.get("/"), 200);
    }
}

/// Everything goes on by itself, with the sessions that there were.
fn go_on(users: &mut [(String, Visitor)]) {
    for (name, visitor) in users {
        until("the database being back", || {
            let page = visitor.get("/accounts/member");
            assert!([200, 503].contains(&page.status), "{}", page.head);
            (page.status == 200).then_some(())
        });
        is_in(visitor, name);
    }
}
