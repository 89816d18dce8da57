//! The one Chromium process of all tests. Starting it is what takes longest, so it is started once.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use loadline_sys::process::die_with_parent;

/// Where it is reached over the DevTools protocol: `ws://127.0.0.1:PORT/...`. Starts it at the first
/// call; it ends with this process.
pub(crate) fn address() -> &'static str {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    ADDRESS.get_or_init(|| {
        let (sender, address) = channel();
        // The process ends with the thread that starts it, so that thread stays.
        thread::spawn(move || keep(&sender));
        address.recv().expect("Chromium starts")
    })
}

/// Starts the process, says its address, and reads what it writes for as long as it runs: a full
/// pipe would stop it.
fn keep(sender: &Sender<String>) {
    let profile = new_profile();
    let (reader, writer) = io::pipe().expect("a pipe");
    let mut command = command(&profile);
    command.stderr(writer);
    let mut child = die_with_parent(&mut command)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    drop(command); // and with it the pipe's other end
    let mut said = String::new();
    for line in BufReader::new(reader).lines().map_while(Result::ok) {
        match line.split_once("DevTools listening on ") {
            Some((_, address)) => sender
                .send(address.trim().to_owned())
                .expect("it is awaited"),
            None if said.len() < 10_000 => said += &(line + "\n"),
            None => {}
        }
    }
    let status = child.wait();
    panic!("Chromium ended ({status:?}); it said:\n{said}");
}

/// An empty folder. That of a process which has ended is removed: nobody is left then to do so.
fn new_profile() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for old in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = old.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix("chromium-"));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(old.path());
        }
    }
    let profile = folder.join(format!("chromium-{}", std::process::id()));
    let _ = fs::remove_dir_all(&profile);
    fs::create_dir_all(&profile).expect("a folder for the profile");
    profile
}

fn command(profile: &Path) -> Command {
    let program = [
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
        "/snap/bin/chromium",
    ]
    .into_iter()
    .find(|path| Path::new(path).exists())
    .expect("Chromium is missing; install it with: apt-get install chromium");
    let mut command = Command::new(program);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-unsafe-swiftshader", // surfaces are drawn by WebGL, here without a GPU
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        // Pages of several tests are open at once; none may be slowed down for not being in front.
        .args([
            "--disable-background-timer-throttling",
            "--disable-backgrounding-occluded-windows",
            "--disable-renderer-backgrounding",
        ])
        .args([
            "--disable-dev-shm-usage",
            "--mute-audio",
            "--hide-scrollbars",
        ])
        .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1") // nothing from outside
        .arg("--remote-debugging-port=0")
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("about:blank")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}
