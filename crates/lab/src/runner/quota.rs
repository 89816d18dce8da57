//! Control groups with a CPU quota: so much CPU time in each period, and not a thread runs beyond it.
//!
//! Both forms of Linux are known: version 1, where `cpu` is a hierarchy of its own
//! (`cpu.cfs_quota_us`), and version 2, where all controllers share one (`cpu.max`). In version 2 a
//! group that has processes cannot hand the controller on, but for the root; so a group is made below
//! that of this process, or below the nearest one above it that can.
//!
//! A group has a name of its own. Its guard removes it when nothing is left of the server, and the
//! runner when the trial ends: one that outlives both is empty.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::error::RunnerError;
use crate::file_error::FileError;
use crate::journal::CpuQuota;

/// The period of a quota: short, so that a server that is held back is not seen to pause.
const PERIOD_US: f64 = 5_000.0;
/// The kernel grants no quota below it (`min_cfs_quota_period`).
const QUOTA_US_MIN: f64 = 1_000.0;
/// A group whose processes have just ended may take a moment until it can be removed.
const GONE_WITHIN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(1);

/// Where control groups of this process can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    form: Form,
    /// Where it is mounted.
    top: PathBuf,
    /// That of this process.
    own: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Version1,
    Version2,
}

/// A control group with a quota, removed when dropped.
#[derive(Debug)]
pub(super) struct QuotaGroup {
    form: Form,
    folder: PathBuf,
    cpus: f64,
    period_us: u64,
}

/// Whether quotas can be set here.
///
/// # Errors
/// What is in the way and what would be right.
pub fn check(cpus: f64) -> Result<(), RunnerError> {
    QuotaGroup::make(cpus).map(drop)
}

impl QuotaGroup {
    /// A group whose processes have this number of CPUs together, or this part of one.
    pub(super) fn make(cpus: f64) -> Result<Self, RunnerError> {
        let read = |path: &str| fs::read_to_string(path).map_err(FileError::of(Path::new(path)));
        let mounts = read("/proc/self/mountinfo")?;
        let groups = read("/proc/self/cgroup")?;
        let hierarchy = Hierarchy::find(&mounts, &groups).ok_or_else(|| {
            "a CPU quota needs the cpu controller of control groups, which is not mounted here"
                .to_owned()
        })?;
        hierarchy.make(cpus)
    }

    /// Where it is.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The quota, and how often it was spent since the group was made. A kernel that does not say has
    /// zeros.
    pub(super) fn read(&self) -> CpuQuota {
        let stat = fs::read_to_string(self.folder.join("cpu.stat")).unwrap_or_default();
        let value = |name: &str| {
            let of_name = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
            stat.lines().find_map(of_name).unwrap_or(0_u64)
        };
        let throttled_s = match self.form {
            Form::Version1 => value("throttled_time") as f64 / 1e9,
            Form::Version2 => value("throttled_usec") as f64 / 1e6,
        };
        CpuQuota {
            cpus: self.cpus,
            period_us: self.period_us,
            periods: value("nr_periods"),
            periods_throttled: value("nr_throttled"),
            throttled_s,
        }
    }
}

impl Drop for QuotaGroup {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// Removes a group that is empty, or is about to be; one that is gone already is none.
pub(super) fn remove(group: &Path) {
    let until = Instant::now() + GONE_WITHIN;
    while let Err(error) = fs::remove_dir(group) {
        let is_busy = error.kind() == io::ErrorKind::ResourceBusy;
        if !is_busy || Instant::now() > until {
            return; // it is empty
        }
        thread::sleep(LOOK);
    }
}

impl Hierarchy {
    /// From `/proc/self/mountinfo` and `/proc/self/cgroup`: version 1 where it has the controller,
    /// which version 2 then has not.
    fn find(mounts: &str, groups: &str) -> Option<Self> {
        let of_form = |form: Form| {
            let (root, top) = mounts.lines().find_map(|line| mount(line, form))?;
            let own = groups.lines().find_map(|line| group(line, form))?;
            // In a container the mount may show a part of the hierarchy, or not the own group.
            let own = own.strip_prefix(&root).unwrap_or_else(|_| Path::new(""));
            Some(Self {
                form,
                own: top.join(own),
                top,
            })
        };
        of_form(Form::Version1).or_else(|| of_form(Form::Version2))
    }

    fn make(&self, cpus: f64) -> Result<QuotaGroup, RunnerError> {
        let period_us = (QUOTA_US_MIN / cpus).max(PERIOD_US);
        let quota_us = (period_us * cpus).round() as u64;
        let period_us = period_us.round() as u64;
        let folder = self
            .make_folder()
            .map_err(|error| refusal(&error.to_string()))?;
        let group = QuotaGroup {
            form: self.form,
            folder,
            cpus,
            period_us,
        };
        let set = |name: &str, value: String| {
            let path = group.folder.join(name);
            fs::write(&path, &value)
                .map_err(|error| refusal(&format!("{}: {value}: {error}", path.display())))
        };
        match self.form {
            Form::Version1 => {
                set("cpu.cfs_period_us", period_us.to_string())?;
                set("cpu.cfs_quota_us", quota_us.to_string())?;
            }
            Form::Version2 => set("cpu.max", format!("{quota_us} {period_us}"))?,
        }
        Ok(group)
    }

    /// A folder below the own group or, where that cannot be, below the nearest one above it.
    fn make_folder(&self) -> Result<PathBuf, FileError> {
        let above = self.own.ancestors();
        let places = above.take_while(|place| place.starts_with(&self.top));
        let mut why = None;
        for place in places {
            let made = match self.form {
                Form::Version1 => new_folder(place),
                Form::Version2 => hand_on_cpu(place).and_then(|()| new_folder(place)),
            };
            match made {
                Ok(folder) => return Ok(folder),
                // The first says most: further up, less is allowed.
                Err(error) => {
                    why.get_or_insert_with(|| FileError::of(place)(error));
                }
            }
        }
        Err(why.unwrap_or_else(|| FileError::of(&self.own)(io::Error::other("no such group"))))
    }
}

/// Root and place of a mount of that form with the controller, from a line as `31 23 0:28 / /sys/fs/cgroup/cpu
/// rw,relatime - cgroup cgroup rw,cpu`.
fn mount(line: &str, form: Form) -> Option<(PathBuf, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    let (mut before, mut after) = (before.split(' '), after.split(' '));
    let (root, top) = (before.nth(3)?, before.next()?);
    let (kind, options) = (after.next()?, after.nth(1)?);
    let is_it = match form {
        Form::Version1 => kind == "cgroup" && options.split(',').any(|option| option == "cpu"),
        Form::Version2 => kind == "cgroup2",
    };
    is_it.then(|| (root.into(), top.into()))
}

/// The own group, from a line as `4:cpu,cpuacct:/user` or `0::/user.slice`.
fn group(line: &str, form: Form) -> Option<PathBuf> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let is_it = match form {
        Form::Version1 => controllers.split(',').any(|controller| controller == "cpu"),
        Form::Version2 => number == "0" && controllers.is_empty(),
    };
    is_it.then(|| path.into())
}

/// Sees to it that groups below one of version 2 have the controller.
fn hand_on_cpu(group: &Path) -> io::Result<()> {
    let path = group.join("cgroup.subtree_control");
    let has_it = |text: &str| text.split_ascii_whitespace().any(|name| name == "cpu");
    if has_it(&fs::read_to_string(&path)?) {
        return Ok(());
    }
    if !has_it(&fs::read_to_string(group.join("cgroup.controllers"))?) {
        return Err(io::Error::other("it has no cpu controller"));
    }
    fs::write(&path, "+cpu")
}

/// Of a name that no other has: some may have been left by programs that were killed.
fn new_folder(place: &Path) -> io::Result<PathBuf> {
    let begin = format!("loadline-{}-", std::process::id());
    let mut folder = tempfile::Builder::new();
    let made = folder
        .prefix(&begin)
        .make_in(place, |path| fs::create_dir(path))?;
    let ((), path) = made.keep()?;
    Ok(path)
}

fn refusal(why: &str) -> String {
    format!(
        "no control group with a CPU quota can be made: {why}; right would be root, or a control \
         group that may be written to and is not limited itself"
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const MOUNTS_1: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
        34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
    const MOUNTS_2: &str =
        "26 23 0:24 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_own_group_is_found_in_both_forms() {
        let found = |mounts: &str, groups: &str| {
            let found = Hierarchy::find(mounts, groups)?;
            Some(format!("{:?} {}", found.form, found.own.display()))
        };
        let right = |text: &str| Some(text.to_owned());
        let groups = "5:cpuset:/a\n4:cpu,cpuacct:/b/c\n0::/d\n";
        let own = right("Version1 /sys/fs/cgroup/cpu,cpuacct/b/c");
        assert_eq!(found(MOUNTS_1, groups), own);
        let own = right("Version2 /sys/fs/cgroup/user.slice/x");
        assert_eq!(found(MOUNTS_2, "0::/user.slice/x\n"), own);
        // A container that is shown its own group as the root, and one that is shown another.
        let container = "32 31 0:29 /docker/7 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
        for (group, own) in [
            ("/docker/7/x", "Version1 /sys/fs/cgroup/cpu/x"),
            ("/y", "Version1 /sys/fs/cgroup/cpu/"),
        ] {
            let text = format!("4:cpu:{group}\n");
            assert_eq!(found(container, &text), right(own));
        }
        assert_eq!(found("", groups), None);
        assert_eq!(found(MOUNTS_1, ""), None);
    }

    fn hierarchy(form: Form, top: &Path, own: &str) -> Hierarchy {
        Hierarchy {
            form,
            top: top.to_owned(),
            own: top.join(own),
        }
    }

    fn read(path: PathBuf) -> String {
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn version_1_has_quota_and_period_in_files_of_their_own() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("own")).unwrap();
        let hierarchy = hierarchy(Form::Version1, top.path(), "own");
        for (cpus, quota, period) in [
            (0.4, "2000", "5000"),
            (2.0, "10000", "5000"),
            (0.05, "1000", "20000"),
        ] {
            let group = hierarchy.make(cpus).unwrap();
            let folder = group.folder().to_owned();
            assert!(folder.starts_with(top.path().join("own")));
            assert_eq!(read(folder.join("cpu.cfs_quota_us")), quota);
            assert_eq!(read(folder.join("cpu.cfs_period_us")), period);
            let stat = "nr_periods 200\nnr_throttled 150\nthrottled_time 500000000\nburst_time 7\n";
            fs::write(folder.join("cpu.stat"), stat).unwrap();
            let seen = group.read();
            assert_eq!(
                (seen.periods, seen.periods_throttled, seen.throttled_s),
                (200, 150, 0.5)
            );
            assert!((seen.cpus - cpus).abs() < 1e-12);
        }
    }

    /// A group of version 2 as the kernel shows it.
    fn group_2(folder: &Path, controllers: &str, handed_on: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("cgroup.controllers"), controllers).unwrap();
        fs::write(folder.join("cgroup.subtree_control"), handed_on).unwrap();
    }

    #[test]
    fn version_2_takes_the_nearest_group_that_can_hand_the_controller_on() {
        let top = tempfile::tempdir().unwrap();
        group_2(top.path(), "cpu memory", "cpu memory");
        group_2(&top.path().join("slice"), "cpu memory", "memory");
        // That of this process was not given the controller.
        group_2(&top.path().join("slice/scope"), "memory", "");
        let hierarchy = hierarchy(Form::Version2, top.path(), "slice/scope");
        let group = hierarchy.make(0.4).unwrap();
        assert_eq!(
            group.folder().parent(),
            Some(top.path().join("slice").as_path())
        );
        assert_eq!(
            read(top.path().join("slice/cgroup.subtree_control")),
            "+cpu"
        );
        assert_eq!(read(group.folder().join("cpu.max")), "2000 5000");
        let stat = "usage_usec 9\nnr_periods 4\nnr_throttled 3\nthrottled_usec 250000\n";
        fs::write(group.folder().join("cpu.stat"), stat).unwrap();
        let seen = group.read();
        assert_eq!(
            (seen.periods, seen.periods_throttled, seen.throttled_s),
            (4, 3, 0.25)
        );
    }

    #[test]
    fn where_no_group_can_be_made_one_line_says_why() {
        let top = tempfile::tempdir().unwrap();
        group_2(top.path(), "memory", "");
        let refused = hierarchy(Form::Version2, top.path(), "")
            .make(0.4)
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("it has no cpu controller") && refused.contains("right would be root"),
            "{refused}"
        );
        let nowhere = hierarchy(Form::Version1, &top.path().join("none"), "");
        let refused = nowhere.make(0.4).unwrap_err().to_string();
        assert!(
            refused.contains("No such file") && !refused.contains('\n'),
            "{refused}"
        );
    }

    /// The kernel's own, where this process may. What it does to a process is tested with the program.
    #[test]
    fn a_real_group_is_made_and_goes() {
        let group = match QuotaGroup::make(0.4) {
            Ok(group) => group,
            Err(why) => return drop(writeln!(io::stderr(), "\nskipped: {why}")),
        };
        let folder = group.folder().to_owned();
        assert_eq!(read(folder.join("cgroup.procs")), "");
        let seen = group.read();
        assert_eq!((seen.periods_throttled, seen.throttled_s), (0, 0.0));
        drop(group);
        assert!(!folder.exists());
    }
}
