//! How much memory this process may use: the machine's, and the limit of its control group.

use std::fs;
use std::path::Path;

use crate::affinity::control_groups;

/// What was found about memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// What the machine has.
    pub machine_bytes: u64,
    /// The limit of the control group, if it is less; `None`: without a limit of its own.
    pub group_bytes: Option<u64>,
}

impl MemoryLimit {
    /// What the process may have.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.group_bytes.unwrap_or(self.machine_bytes)
    }
}

/// Finds out; `None` without `/proc`.
#[must_use]
pub fn memory_limit() -> Option<MemoryLimit> {
    limit(Path::new("/"))
}

fn limit(root: &Path) -> Option<MemoryLimit> {
    let machine_bytes = machine_bytes(&fs::read_to_string(root.join("proc/meminfo")).ok()?)?;
    let folders = control_groups(root, "memory").into_iter();
    let limits = folders.flat_map(|folder| {
        let read = |name| {
            fs::read_to_string(folder.join(name))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        // Of version 2, where it may be "max"; of version 1, where a huge number says the same.
        [
            read("memory.max"),
            read("memory.high"),
            read("memory.limit_in_bytes"),
        ]
    });
    Some(MemoryLimit {
        machine_bytes,
        group_bytes: limits
            .flatten()
            .filter(|bytes| *bytes < machine_bytes)
            .min(),
    })
}

/// From lines as `MemTotal:       24684084 kB`.
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::tests::put;

    const GIB: u64 = 1 << 30;

    /// The limit where these files are there, beside a machine of 16 GiB.
    fn limit_of(groups: &str, files: &[(&str, &str)]) -> MemoryLimit {
        let root = tempfile::tempdir().unwrap();
        let meminfo = (
            "proc/meminfo",
            "MemTotal:       16777216 kB\nMemFree: 1 kB\n",
        );
        let all = [meminfo, ("proc/self/cgroup", groups)];
        for (path, text) in all.iter().chain(files) {
            put(root.path(), path, text);
        }
        let found = limit(root.path()).unwrap();
        assert_eq!(found.machine_bytes, 16 * GIB);
        found
    }

    #[test]
    fn the_tightest_limit_of_the_hierarchy_counts() {
        let found = limit_of(
            "0::/a/b\n",
            &[
                ("sys/fs/cgroup/memory.max", "max\n"),
                ("sys/fs/cgroup/a/memory.max", "2147483648\n"),
                ("sys/fs/cgroup/a/b/memory.max", "4294967296\n"),
            ],
        );
        assert_eq!((found.group_bytes, found.bytes()), (Some(2 * GIB), 2 * GIB));
    }

    #[test]
    fn a_group_is_held_back_at_its_high_mark() {
        let found = limit_of(
            "0::/a\n",
            &[
                ("sys/fs/cgroup/a/memory.max", "max\n"),
                ("sys/fs/cgroup/a/memory.high", "1073741824\n"),
            ],
        );
        assert_eq!(found.bytes(), GIB);
    }

    #[test]
    fn version_1_has_a_number_for_no_limit() {
        let groups = "5:memory:/x\n4:cpu,cpuacct:/y\n";
        let path = "sys/fs/cgroup/memory/x/memory.limit_in_bytes";
        let found = limit_of(groups, &[(path, "9223372036854771712\n")]);
        assert_eq!((found.group_bytes, found.bytes()), (None, 16 * GIB));
        assert_eq!(limit_of(groups, &[(path, "1073741824\n")]).bytes(), GIB);
    }

    #[test]
    fn this_machine_has_memory() {
        let found = memory_limit().unwrap();
        assert!(found.bytes() > 0 && found.bytes() <= found.machine_bytes);
    }
}
