//! Which groups of clients are the load that is measured.

use crate::{GroupRecord, LittleRecord, TrialRecord, Verdict};

/// The group of the plain clients that speak HTTP/2, where others speak HTTP/1.1 (`--http2-share`).
pub const HTTP2_GROUP: &str = "http2";

impl TrialRecord {
    /// The plain clients that speak HTTP/2 beside those of HTTP/1.1; `None`: all speak the same.
    #[must_use]
    pub fn http2_beside(&self) -> Option<&GroupRecord> {
        let mut others = self.groups.iter().skip(1);
        others.find(|group| group.name == HTTP2_GROUP)
    }

    /// The headline, and beside it the plain clients of HTTP/2, if the load is divided between two
    /// protocols: the rate of a plan is that of both.
    pub fn measured_groups(&self) -> impl Iterator<Item = &GroupRecord> {
        let headline = self.headline();
        let is_other =
            move |group: &&GroupRecord| !headline.is_some_and(|it| std::ptr::eq(it, *group));
        headline
            .into_iter()
            .chain(self.http2_beside().filter(is_other))
    }
}

impl Verdict {
    /// Little's law of each group, with what stands before a sentence about it: nothing for the plain
    /// clients.
    pub fn laws(&self) -> impl Iterator<Item = (String, &LittleRecord)> {
        let plain = self.little.iter().map(|law| (String::new(), law));
        let beside = self.beside.iter().filter_map(|group| {
            let law = group.little.as_ref()?;
            Some((format!("{}: ", group.name), law))
        });
        plain.chain(beside)
    }
}
