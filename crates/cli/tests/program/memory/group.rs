//! The same in a control group with a limit, with the budget that is worked out from it: the kernel kills no server.
//! Where this process may make no such group, a line says why, and the test is skipped.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use loadline_sys::affinity::control_groups;

use super::{Attack, attacks, besiege, site_and_options};
use crate::util::{GRACE, PROGRAM, Server};

/// What each has, and the memory of its group: the budget is 40, 32, 40, 64 and 64 MiB. A pool of fewer threads
/// waits for slow clients.
const GROUPS: [(&str, u64); 5] = [
    ("--architecture reactor --loops 2 --workers 2", 128),
    (
        "--architecture reactor --loops 2 --workers 2 --socket-io worker",
        128,
    ),
    ("--architecture proactor --loops 2 --workers 2", 128),
    ("--architecture thread-pool --threads 450", 256),
    ("--architecture thread-per-connection", 256),
];

/// Moves a shell into the group whose `cgroup.procs` it is given, and runs a command there in its place.
const ENTER: &str = "echo $$ > \"$0\" && exec \"$@\"";

/// A control group with a limit of memory, removed when dropped.
struct MemoryGroup {
    folder: PathBuf,
    /// Where the kernel counts those that it has killed.
    events: &'static str,
}

impl MemoryGroup {
    /// A group whose processes have so much memory together, below that of this process or, where that cannot be,
    /// below the nearest one above it. Or why there can be none.
    fn make(bytes: u64) -> Result<Self, String> {
        let mut why = None;
        for place in control_groups(Path::new("/"), "memory") {
            match Self::make_in(&place, bytes) {
                Ok(group) => return Ok(group),
                // The first says most: further up, less is allowed.
                Err(error) => {
                    why.get_or_insert_with(|| format!("{}: {error}", place.display()));
                }
            }
        }
        Err(why.unwrap_or_else(|| "no control groups are found".to_owned()))
    }

    fn make_in(place: &Path, bytes: u64) -> io::Result<Self> {
        let (limit, swap, events) = match place.join("memory.limit_in_bytes").exists() {
            true => (
                "memory.limit_in_bytes",
                "memory.swappiness",
                "memory.oom_control",
            ),
            false => {
                hand_on_memory(place)?;
                ("memory.max", "memory.swap.max", "memory.events")
            }
        };
        let mut folder = tempfile::Builder::new();
        let made = folder
            .prefix("loadline-memory-")
            .make_in(place, |path| fs::create_dir(path))?;
        let ((), folder) = made.keep()?;
        let group = Self { folder, events };
        fs::write(group.folder.join(limit), bytes.to_string())?;
        let _ = fs::write(group.folder.join(swap), "0"); // or there is no swap to be kept from
        let mut command = group.command("cat");
        let entered = command.arg("/proc/self/cgroup").output()?;
        if !entered.status.success() {
            return Err(io::Error::other("no process can be moved into a group"));
        }
        match group.is_found_by(&String::from_utf8_lossy(&entered.stdout)) {
            true => Ok(group),
            false => Err(io::Error::other("a group's path is that of the host")),
        }
    }

    /// Whether a process that is in these groups finds its limit: in a container a path may be one of the host's.
    fn is_found_by(&self, groups: &str) -> bool {
        let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let mut paths = paths.map(|path| path.trim_start_matches('/'));
        paths.any(|path| !path.is_empty() && self.folder.ends_with(path))
    }

    /// A command that runs in it.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", ENTER]);
        command.arg(self.folder.join("cgroup.procs")).arg(program);
        command
    }

    /// How many of its processes the kernel has killed.
    fn killed(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join(self.events)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.expect("the kernel counts them").parse().unwrap()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let until = Instant::now() + GRACE;
        // Its last process may take a moment to leave.
        while let Err(error) = fs::remove_dir(&self.folder)
            && error.kind() == io::ErrorKind::ResourceBusy
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Sees to it that groups below one of version 2 have the controller.
fn hand_on_memory(place: &Path) -> io::Result<()> {
    let path = place.join("cgroup.subtree_control");
    let has_it = |path: &Path| -> io::Result<bool> {
        let text = fs::read_to_string(path)?;
        Ok(text.split_ascii_whitespace().any(|name| name == "memory"))
    };
    if has_it(&path)? {
        return Ok(());
    }
    match has_it(&place.join("cgroup.controllers"))? {
        true => fs::write(&path, "+memory"),
        false => Err(io::Error::other("it has no memory controller")),
    }
}

/// Under this attack. The kernel's buffers of sockets are no part of the budget, but of the group: they are bounded as
/// the manual says. `Err`: there can be no such group.
fn survive(architecture: &str, limit_mib: u64, attack: &Attack) -> Result<(), String> {
    let group = MemoryGroup::make(limit_mib << 20)?;
    let (folders, options) = site_and_options();
    let words = ["--listen", "127.0.0.1:0", "--socket-buffer", "16k"];
    let options = options.iter().map(String::as_str);
    let words = words.into_iter().chain(options);
    let words: Vec<&str> = words.chain(architecture.split(' ')).collect();
    let mut command = group.command(PROGRAM);
    command.arg("serve").arg(folders[0].path()).args(&words);
    let server = Server::start_command(command, &words);
    let found = format!("{limit_mib} MiB of memory in its control group");
    let said = &server.start_up;
    assert!(said.iter().any(|line| line.contains(&found)), "{said:?}");
    let is_too_little = |line: &String| line.contains("may be too little");
    assert!(!said.iter().any(is_too_little), "{said:?}");
    let outcome = besiege(&server, attack, 400);
    let _ = writeln!(io::stderr(), "{architecture} in {limit_mib} MiB, {outcome}");
    assert_eq!(group.killed(), 0, "{architecture}, {outcome}");
    Ok(())
}

fn say_skipped(why: &str) {
    let line = format!("\nskipped: no control group with a limit of memory: {why}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Each attack on one of the architectures, in turn.
#[test]
fn the_kernel_kills_no_server_in_a_group_with_a_limit() {
    for ((architecture, limit_mib), attack) in GROUPS.into_iter().cycle().zip(attacks()) {
        if let Err(why) = survive(architecture, limit_mib, &attack) {
            return say_skipped(&why);
        }
    }
}

#[test]
#[ignore = "long: each kind of attack on each architecture"]
fn the_kernel_kills_no_server_in_a_group_under_any_attack() {
    for (architecture, limit_mib) in GROUPS {
        for attack in attacks() {
            if let Err(why) = survive(architecture, limit_mib, &attack) {
                return say_skipped(&why);
            }
        }
    }
}
