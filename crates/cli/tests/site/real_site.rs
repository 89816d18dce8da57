//! Every file of a real documentation site, over keep-alive, compared with the disk.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::util::{Client, Server, documentation, is_offered, options};

fn files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            if name.starts_with('.') {
                continue; // hidden: not served
            }
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(path)
            }
        }
    }
    files
}

/// Everything but letters, digits and a few marks is percent-encoded.
fn request_path(root: &Path, file: &Path) -> String {
    let relative = file
        .strip_prefix(root)
        .unwrap()
        .to_str()
        .expect("UTF-8 names");
    let mut path = String::from("/");
    for byte in relative.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

fn serves_byte_for_byte(architecture: &str) {
    if !is_offered(architecture) {
        return;
    }
    let root = documentation();
    let files = files(root);
    assert!(
        files.len() > 500,
        "a real site has more than {} files",
        files.len()
    );
    let server = Server::start(root, &options(architecture));
    let clients = if architecture == "sequential" { 1 } else { 4 };
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = Client::connect(server.addr);
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let path = request_path(root, file);
                    let answer = client.get(&path);
                    assert_eq!(answer.status, 200, "{path}");
                    assert!(!answer.closes(), "{path}: the connection is kept alive");
                    let content = std::fs::read(file).unwrap();
                    assert!(answer.body == content, "{path}: not what is on disk");
                }
            });
        }
    });
    assert!(next.into_inner() >= files.len());
}

macro_rules! each_architecture {
    ($($name:ident)*) => {
        $(#[test] fn $name() { serves_byte_for_byte(stringify!($name)); })*

        #[test]
        fn no_architecture_is_left_out() {
            let names: Vec<_> = crate::util::ARCHITECTURES.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

each_architecture! {
    sequential thread_per_connection thread_pool reactor_1x0 reactor_1x4 reactor_2x0
    reactor_handoff reactor_reuse_port reactor_socket_io_worker
    proactor_1x0 proactor_1x4 proactor_2x0 proactor_2x4 proactor_handoff
    reactor_parse_worker proactor_parse_worker
}
