//! What a guard and a relay report to the runner, on a pipe: one line of JSON for each report.

use std::io::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::journal::LinkFacts;

/// Of a guard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum GuardReport {
    /// The process has this number.
    Started(u32),
    /// It could not be started, with the reason.
    Failed(String),
    /// It has ended: "exit status 1".
    Ended(String),
}

/// Of a relay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RelayReport {
    /// It carries packets.
    Ready {
        /// Its namespaces belong to a user namespace of its own.
        has_own_user: bool,
        /// Its descriptor of the server's network namespace.
        server: i32,
        /// Its descriptor of the client's network namespace.
        client: i32,
    },
    /// It could not be started, or a device failed, with the reason.
    Failed(String),
    /// It has ended as ordered, and has carried this.
    Ended(LinkFacts),
}

/// Writes a report to standard output. A runner that is gone reads none, and closes standard input.
pub(super) fn send(report: &impl Serialize) {
    let Ok(line) = serde_json::to_string(report) else {
        return; // it is made of numbers and texts
    };
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_line_whatever_is_in_it() {
        let report = GuardReport::Failed("started 7\nended".into());
        let line = serde_json::to_string(&report).unwrap();
        assert_eq!(line.lines().count(), 1);
        assert_eq!(serde_json::from_str::<GuardReport>(&line).unwrap(), report);
        let report = RelayReport::Ready {
            has_own_user: true,
            server: 4,
            client: 5,
        };
        let line = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<RelayReport>(&line).unwrap(), report);
    }
}
