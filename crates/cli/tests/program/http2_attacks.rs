//! What clients of HTTP/2 cannot do: each attack of the manual's table, over sockets, under every architecture.
//! The connection, the stream or the request ends as it should; the attack's counter on the status page grows
//! by what was provoked; and others are served meanwhile.
//!
//! The bounds themselves, to the frame: `crates/proto/tests/http2/floods.rs`.

mod abandoned;
mod attacks;
mod client;

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr};
use std::thread;

use serde_json::Value;

use crate::admin::{admin_address, ask};
use crate::util::{Server, architectures, connect, site, until};
use attacks::{Attack, Ends, WINDOWS, attacks};
use client::{Client, Seen};

/// One test for each architecture, since some attacks take the seconds of a time limit.
macro_rules! withstand_under {
    ($($test:ident: $architecture:literal,)*) => {
        const COVERED: &[&str] = &[$($architecture),*];

        $(#[test]
        fn $test() {
            if architectures().contains(&$architecture) {
                withstand($architecture);
                abandoned::withstand($architecture);
            }
        })*
    };
}

withstand_under! {
    attacks_on_sequential: "sequential",
    attacks_on_thread_per_connection: "thread-per-connection",
    attacks_on_thread_pool: "thread-pool",
    attacks_on_reactor: "reactor",
    attacks_on_proactor: "proactor",
}

#[test]
fn every_architecture_is_attacked() {
    for architecture in loadline_server::Architecture::ALL {
        assert!(COVERED.contains(&architecture.name()), "{architecture:?}");
    }
}

/// A row and a counter of it that take a minute: `crates/proto/tests/http2/turns.rs` has its test.
const WITHOUT_SOCKETS: (&str, &str) = (WINDOWS, "refused_streams");

#[test]
fn each_attack_has_its_row_in_the_manual_and_each_row_an_attack() {
    let manual = include_str!("../../../../docs/supported-http.md");
    let (_, section) = manual.split_once("### What clients cannot do").unwrap();
    let lines = section.lines().skip_while(|line| !line.starts_with("|--"));
    let rows: Vec<&str> = lines
        .skip(1)
        .take_while(|line| line.starts_with("| "))
        .collect();
    let in_two = abandoned::attacks().into_iter().map(|it| it.attack);
    let attacks: Vec<Attack> = attacks().into_iter().chain(in_two).collect();
    for attack in &attacks {
        let row = rows.iter().find(|row| attack.has_row(row));
        let row = row.unwrap_or_else(|| panic!("{}: no row {:?}", attack.name, attack.row));
        for count in &attack.counts {
            let counter = format!("`{}`", count.name);
            assert!(
                row.contains(&counter),
                "{}: no {counter} in {row}",
                attack.name
            );
        }
    }
    for row in rows {
        let of_row = || attacks.iter().filter(move |attack| attack.has_row(row));
        assert!(of_row().next().is_some(), "{row}");
        let (_, counters) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        for counter in counters.split('`').skip(1).step_by(2) {
            let mut counts = of_row().flat_map(|attack| &attack.counts);
            let (of, name) = WITHOUT_SOCKETS;
            let is_without = row.contains(of) && counter == name;
            assert!(
                is_without || counts.any(|count| [count.group, count.name].contains(&counter)),
                "no attack grows {counter}: {row}"
            );
        }
    }
}

/// Limits of time that a test can wait for, and buffers that it can fill.
const OPTIONS: &str = "--admin-listen 127.0.0.1:0 --latency-goal 60s --socket-buffer 64k \
    --head-timeout 3s --body-timeout 3s --write-timeout 3s --write-rate-min 1m --idle-timeout 5s";

/// The server that is attacked.
struct Target {
    address: SocketAddr,
    /// Where its status page is.
    pages: SocketAddr,
    is_sequential: bool,
}

fn withstand(architecture: &str) {
    let site = site();
    std::fs::write(site.path().join("page.html"), "x".repeat(10 << 10)).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", elsewhere.path().join("accounts").display());
    let own = ["--architecture", architecture, "--accounts", &database];
    let words: Vec<&str> = OPTIONS.split_whitespace().chain(own).collect();
    let server = Server::start(site.path(), &words);
    let target = Target {
        address: server.address(),
        pages: admin_address(&server),
        is_sequential: architecture == "sequential",
    };
    for attack in attacks() {
        let name = format!("{architecture}, {}", attack.name);
        let before = target.at_rest();
        let seen = target.suffer(&attack, &before);
        assert!(
            attack.ends.have_come(&seen),
            "{name}: {:?}, {seen:?}",
            attack.ends
        );
        let grown = until(&name, || attack.grown(&before, &target.at_rest()));
        for (count, grown) in attack.counts.iter().zip(grown) {
            assert!(grown <= count.most, "{name}: {count:?}, {grown}");
        }
    }
    let total = target.at_rest();
    let (_, text) = ask(target.pages, "/-/status?format=prometheus");
    for count in attacks().iter().flat_map(|attack| &attack.counts) {
        let in_json = count.of(&total);
        assert_eq!(count.in_prometheus(&text), in_json, "{count:?}: {text}");
    }
}

impl Target {
    /// An attack is carried out. Others ask for a page meanwhile; of a sequential server, behind it.
    fn suffer(&self, attack: &Attack, before: &Value) -> Seen {
        let (address, name) = (self.address, attack.name);
        let others = move || {
            let page = (200, "<p>hello</p>".to_owned());
            assert_eq!(ask(address, "/"), page, "{name}");
        };
        let stream = connect(address);
        let mut sender = &stream;
        let mut client = Client::new(&stream);
        thread::scope(|scope| {
            scope.spawn(move || {
                let _ = sender.write_all(&attack.frames); // unless the server has ended the connection
            });
            let is_read = attack.ends != Ends::Unread;
            if is_read {
                client.take(); // its first frame: the server is at it
            }
            if !self.is_sequential {
                scope.spawn(others);
            }
            if !is_read {
                until(name, || attack.grown(before, &self.total()));
            }
            while !attack.ends.can_stop(&client.seen) && client.take() {}
            let _ = stream.shutdown(Shutdown::Both); // unless the server has done so
        });
        if self.is_sequential {
            others();
        }
        client.seen
    }

    /// What all threads have counted.
    fn total(&self) -> Value {
        let (status, content) = ask(self.pages, "/-/status");
        assert_eq!(status, 200, "{content}");
        let mut page: Value = serde_json::from_str(&content).expect(&content);
        page["total"].take()
    }

    /// The same once nobody is connected to the site.
    fn at_rest(&self) -> Value {
        until("the end of all connections", || {
            let total = self.total();
            (total["connections"] == 0).then_some(total)
        })
    }
}
