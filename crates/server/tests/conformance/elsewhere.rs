//! A file system that hangs, which is not that of the root: it holds a worker, and no loop.

use std::collections::HashMap;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use loadline_apps::StaticOptions;
use loadline_server::Architecture;

use crate::client::{Client, TIMEOUT};
use crate::fixture::{Model, Server, eventually, limits};

every_model! {
    a_file_system_that_hung_stopped_every_loop,
}

/// What hangs, by the name of its folder, and how many hang in it.
static HUNG: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);
static RELEASED: Condvar = Condvar::new();

fn hang(path: &[u8]) {
    let path = String::from_utf8_lossy(path).into_owned();
    let mut hung = HUNG.lock().unwrap();
    let folders = hung.get_or_insert_default();
    let folder = folders
        .keys()
        .find(|folder| path.contains(*folder))
        .cloned();
    let Some(folder) = folder else { return };
    *folders.entry(folder.clone()).or_default() += 1;
    let is_hung = |hung: &mut Option<HashMap<String, usize>>| {
        hung.as_ref()
            .is_some_and(|folders| folders.contains_key(&folder))
    };
    drop(RELEASED.wait_while(hung, is_hung).unwrap());
}

/// Has a folder hang until it is dropped.
struct Hang(String);

impl Hang {
    fn begin(folder: &str) -> Self {
        let mut hung = HUNG.lock().unwrap();
        hung.get_or_insert_default().insert(folder.to_owned(), 0);
        Self(folder.to_owned())
    }

    fn waiting(&self) -> usize {
        HUNG.lock()
            .unwrap()
            .as_ref()
            .map_or(0, |folders| folders[&self.0])
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        if let Some(folders) = HUNG.lock().unwrap().as_mut() {
            folders.remove(&self.0);
        }
        RELEASED.notify_all();
    }
}

fn request(folder: &str) -> String {
    format!("GET /{folder}/far.txt HTTP/1.1\r\nHost: h\r\n\r\n")
}

pub fn a_file_system_that_hung_stopped_every_loop(model: Model) {
    let options = model.options();
    let has_loops = matches!(
        options.architecture,
        Architecture::Reactor | Architecture::Proactor
    );
    if !has_loops || options.workers == 0 || options.workers_parse() {
        return; // whoever serves a connection there waits for its files, too
    }
    let Ok(far) = tempfile::tempdir_in("/dev/shm") else {
        return skip();
    };
    std::fs::write(far.path().join("far.txt"), "far").unwrap();
    let files = StaticOptions {
        follow_symlinks: true,
        before_looking: hang,
        ..StaticOptions::default()
    };
    let server = Server::start_over(options, limits(), files);
    let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
    if device(far.path()) == device(server.path()) {
        return skip();
    }
    let folder = format!("far-{model:?}");
    symlink(far.path(), server.path().join(&folder)).unwrap();
    let mut client = server.connect();
    assert_eq!(client.get(&format!("/{folder}/far.txt"), "").body, b"far");

    let hang = Hang::begin(&folder);
    let held = held(&server, &folder, &hang);
    // Long enough for what is near to be looked at again as well.
    let until = Instant::now() + Duration::from_millis(1_500);
    while Instant::now() < until {
        let mut client = server.connect();
        assert_eq!(client.get("/folder/", "").body, b"in a folder");
        assert_eq!(client.get("/style.css", "").status, 200);
        let answer = client.get(&format!("/{folder}/far.txt"), "");
        assert_eq!(answer.body, b"far", "as it was, while one waits");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        hang.waiting() <= held.len(),
        "one look for each who came before it"
    );
    drop(hang);
    for mut client in held {
        assert_eq!(client.answer().body, b"far");
    }
}

fn skip() {
    let _ = writeln!(std::io::stderr(), "\nskipped: there is no second mount");
}

/// Asks until the file is looked at again; returns those who wait for that.
fn held(server: &Server, folder: &str, hang: &Hang) -> Vec<Client> {
    let begun = Instant::now();
    let mut held = Vec::new();
    while hang.waiting() == 0 {
        assert!(begun.elapsed() < TIMEOUT, "nobody looks");
        let mut client = server.connect();
        client.send(request(folder));
        eventually("it is answered, or waits", || {
            hang.waiting() > 0 || client.is_answered()
        });
        if hang.waiting() == 0 {
            assert_eq!(client.answer().body, b"far");
        } else {
            held.push(client);
        }
    }
    held
}
