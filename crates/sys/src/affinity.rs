//! How many CPUs this process may use: affinity mask and the quota of its control group; and
//! threads kept to some of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What was found about CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuBudget {
    /// CPUs in the affinity mask.
    pub affinity: usize,
    /// Quota of the control group in thousandths of a CPU; `None`: without quota.
    pub quota_milli: Option<u64>,
}

impl CpuBudget {
    /// Threads that can run at once: the mask, bounded by the quota rounded up; at least 1.
    #[must_use]
    pub fn cpus(self) -> usize {
        let quota = self
            .quota_milli
            .map_or(usize::MAX, |milli| milli.div_ceil(1000) as usize);
        self.affinity.min(quota).max(1)
    }

    /// CPU seconds in a second: the mask, or the quota if that is less.
    #[must_use]
    pub fn cpu_seconds_per_second(self) -> f64 {
        let quota = (self.quota_milli).map_or(f64::INFINITY, |milli| milli as f64 / 1000.0);
        (self.affinity as f64).min(quota).max(0.001)
    }
}

/// Finds out.
#[must_use]
pub fn cpu_budget() -> CpuBudget {
    let affinity = sched_getaffinity(None).map_or(1, |set| set.count() as usize);
    CpuBudget {
        affinity,
        quota_milli: quota_milli(Path::new("/")),
    }
}

/// Keeps the calling thread, and threads that it starts from now on, to these CPUs.
///
/// # Errors
/// None of them is there for this process, or a number is beyond what Linux can have (1023 here).
pub fn pin_thread(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        if *cpu >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(*cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// The CPUs in the affinity mask of the calling thread.
#[must_use]
pub fn cpus_allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect()
}

/// The folders of this process's control group and of those above it, its own first, as far as they
/// can be seen below `root` (`/`, but for tests): of version 2, or of version 1 where that has this
/// controller.
#[must_use]
pub fn control_groups(root: &Path, controller: &str) -> Vec<PathBuf> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let mounts = match controllers {
            "" => vec!["."],
            some if some.split(',').any(|one| one == controller) => {
                vec![some, controller, "cpu,cpuacct"]
            }
            _ => continue,
        };
        for mount in mounts {
            let mount = root.join("sys/fs/cgroup").join(mount);
            // In a container the path may be the host's, of which only the root of the mount is visible.
            let own = mount.join(path.trim_start_matches('/'));
            let seen = own
                .ancestors()
                .take_while(|folder| folder.starts_with(&mount));
            folders.extend(seen.map(Path::to_owned));
        }
    }
    folders
}

/// The tightest quota from the process's own control group up to the root.
fn quota_milli(root: &Path) -> Option<u64> {
    let folders = control_groups(root, "cpu").into_iter();
    let quotas = folders.filter_map(|folder| read_v2(&folder).or_else(|| read_v1(&folder)));
    quotas.min()
}

/// `cpu.max`: "quota period" in microseconds, the quota may be "max".
fn read_v2(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
    let mut parts = text.split_ascii_whitespace();
    milli(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?)
}

/// `cpu.cfs_quota_us` (-1 for none) and `cpu.cfs_period_us`.
fn read_v1(folder: &Path) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let quota = number("cpu.cfs_quota_us")?.trim().parse().ok()?;
    let period = number("cpu.cfs_period_us")?.trim().parse().ok()?;
    milli(quota, period)
}

fn milli(quota_us: u64, period_us: u64) -> Option<u64> {
    quota_us.checked_mul(1000)?.checked_div(period_us)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_tightest_quota_of_the_hierarchy_counts() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/self/cgroup", "0::/a/b\n");
        put(root.path(), "sys/fs/cgroup/cpu.max", "max 100000\n");
        assert_eq!(quota_milli(root.path()), None);
        put(root.path(), "sys/fs/cgroup/a/cpu.max", "150000 100000\n");
        put(root.path(), "sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
        assert_eq!(quota_milli(root.path()), Some(1500));
    }

    #[test]
    fn version_1_and_a_path_that_only_the_host_sees() {
        let root = tempfile::tempdir().unwrap();
        let groups = "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n";
        put(root.path(), "proc/self/cgroup", groups);
        let folder = root.path().join("sys/fs/cgroup/cpu,cpuacct");
        put(&folder, "cpu.cfs_quota_us", "-1\n");
        put(&folder, "cpu.cfs_period_us", "100000\n");
        assert_eq!(quota_milli(root.path()), None);
        put(&folder, "cpu.cfs_quota_us", "50000\n");
        assert_eq!(quota_milli(root.path()), Some(500));
    }

    #[test]
    fn a_thread_stays_where_it_is_pinned() {
        let last = *cpus_allowed().last().unwrap();
        let pinned = std::thread::spawn(move || {
            pin_thread(&[last]).unwrap();
            (cpus_allowed(), cpu_budget().affinity)
        });
        assert_eq!(pinned.join().unwrap(), (vec![last], 1));
        assert!(pin_thread(&[CpuSet::MAX_CPU]).is_err());
    }

    #[test]
    fn a_fraction_of_a_cpu_is_one_thread() {
        let budget = |affinity, quota_milli| {
            CpuBudget {
                affinity,
                quota_milli,
            }
            .cpus()
        };
        assert_eq!(budget(8, Some(500)), 1);
        assert_eq!(budget(8, Some(2500)), 3);
        assert_eq!(budget(2, Some(2500)), 2);
        assert_eq!(budget(64, None), 64);
        assert!(cpu_budget().cpus() >= 1);
    }
}
