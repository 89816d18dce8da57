//! Prometheus' text format, version 0.0.4.
//!
//! Written by hand: the client libraries own their counters, while these are kept by each serving
//! thread for itself; and the form is a few lines.

use std::fmt::Write;

/// Text in the making.
#[derive(Default)]
pub(crate) struct Exposition(pub(crate) String);

impl Exposition {
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(
            self.0,
            "# HELP loadline_{name} {help}.\n# TYPE loadline_{name} {kind}"
        );
    }

    /// A family of one sample.
    pub(crate) fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, "", value);
    }

    /// `labels` with their braces, or empty.
    pub(crate) fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.0, "loadline_{name}{labels} {value}");
    }
}
