//! The five papers: what each is about, and its plan with both grids.

use loadline_record::report::Style;

use crate::PaperError;
use crate::packed::{Packed, packed};

/// A paper that can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paper {
    /// As on the command line, in `published.csv` and in claims.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    packed: Packed,
    /// The form of the tool that the paper used.
    pub style: Style,
    /// What the plan names besides, to be put beside it: name and text.
    pub files: &'static [(&'static str, &'static str)],
}

/// The scenarios of users with accounts.
const ACCOUNTS: [(&str, &str); 3] = [
    (
        "accounts-page.toml",
        include_str!("../../../lab/papers/accounts-page.toml"),
    ),
    (
        "accounts-register.toml",
        include_str!("../../../lab/papers/accounts-register.toml"),
    ),
    (
        "accounts-login.toml",
        include_str!("../../../lab/papers/accounts-login.toml"),
    ),
];

/// The scenario of connections that cost more than others.
const BUSY_USERS: (&str, &str) = (
    "busy-users.toml",
    include_str!("../../../lab/papers/busy-users.toml"),
);

/// All of them.
pub const PAPERS: [Paper; 5] = [
    Paper {
        name: "P1",
        title: "reactor models under high concurrency",
        packed: packed!("P1.toml"),
        style: Style::Webbench,
        files: &[ACCOUNTS[0], BUSY_USERS],
    },
    Paper {
        name: "P2",
        title: "reactor against proactor",
        packed: packed!("P2.toml"),
        style: Style::Webbench,
        files: &ACCOUNTS,
    },
    Paper {
        name: "P3",
        title: "four architectures under a constant rate",
        packed: packed!("P3.toml"),
        style: Style::Wrk2,
        files: &[],
    },
    Paper {
        name: "P4",
        title: "a static server against 10,000 connections",
        packed: packed!("P4.toml"),
        style: Style::Weighttp,
        files: &[],
    },
    Paper {
        name: "P5",
        title: "thread per connection against one event loop",
        packed: packed!("P5.toml"),
        style: Style::Vegeta,
        files: &ACCOUNTS,
    },
];

impl Paper {
    /// `lab/papers/NAME.toml`, with both grids.
    #[must_use]
    pub fn text(&self) -> String {
        self.packed.text()
    }

    /// By name, in either case.
    ///
    /// # Errors
    /// There is none of this name, and which there are.
    pub fn named(name: &str) -> Result<&'static Self, PaperError> {
        let found = PAPERS
            .iter()
            .find(|paper| paper.name.eq_ignore_ascii_case(name));
        let names = PAPERS.map(|paper| paper.name).join(", ");
        found.ok_or_else(|| PaperError::Unknown(name.escape_debug().to_string(), names))
    }
}
