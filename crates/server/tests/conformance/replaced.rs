//! Files that are replaced while they are downloaded: whoever has begun gets the old one whole.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use loadline_server::{Architecture, FileIo, ServerOptions};

use crate::client::TIMEOUT;
use crate::failures::{LARGE, disturb};
use crate::fixture::{Model, Server, limits};

every_model! {
    a_rename_over_a_file_cut_those_who_were_downloading_it,
    permissions_and_links_cut_those_who_were_downloading_a_file,
    fifty_renames_under_load_cut_no_answer,
    #[ignore = "long: two thousand renames for each way to send files"]
    two_thousand_renames_under_load_cut_no_answer,
}

/// The model's options with each way to send large files, where there is a choice.
fn ways(model: Model) -> Vec<ServerOptions> {
    let options = model.options();
    match options.architecture {
        Architecture::Reactor | Architecture::Proactor => [FileIo::Copy, FileIo::Sendfile]
            .map(|file_io| ServerOptions {
                file_io,
                ..options.clone()
            })
            .into(),
        _ => vec![options],
    }
}

pub fn a_rename_over_a_file_cut_those_who_were_downloading_it(model: Model) {
    for options in ways(model) {
        let (got, content) = disturb(options, |path| {
            let other = path.with_extension("new");
            fs::write(&other, vec![b'n'; *LARGE]).unwrap();
            fs::rename(other, path).unwrap();
        });
        assert!(got == content, "{} bytes of the old one", got.len());
    }
}

pub fn permissions_and_links_cut_those_who_were_downloading_a_file(model: Model) {
    for options in ways(model) {
        let (got, content) = disturb(options, |path| {
            fs::hard_link(path, path.with_extension("link")).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
            fs::remove_file(path).unwrap();
        });
        assert!(got == content, "{} bytes of it", got.len());
    }
}

pub fn fifty_renames_under_load_cut_no_answer(model: Model) {
    for options in ways(model) {
        replace_under_load(options, 50);
    }
}

fn two_thousand_renames_under_load_cut_no_answer(model: Model) {
    for options in ways(model) {
        replace_under_load(options, 2000);
    }
}

/// More than memory keeps of a file, and than goes out in one piece.
const REPLACED_LEN: usize = 1_500_000;

const CLIENTS: usize = 3;

/// Replaces a file so often, at least one download after the other, while clients ask for it.
fn replace_under_load(options: ServerOptions, renames: usize) {
    let server = Server::start_with(options, limits());
    let releases = Releases::new(server.path());
    releases.deploy(0);
    let (answers, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| download(&server, &answers, &over)))
            .collect();
        let all_alive = || !clients.iter().any(|client| client.is_finished());
        for number in 1..=renames {
            let before = answers.load(Ordering::SeqCst);
            releases.deploy(number);
            // Without this, a busy machine would have all of them between two downloads.
            let begun = Instant::now();
            while answers.load(Ordering::SeqCst) == before && all_alive() {
                assert!(begun.elapsed() < TIMEOUT, "no answer after rename {number}");
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        over.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().unwrap();
        }
    });
    assert!(answers.into_inner() >= renames);
}

/// Files that take each other's place. They are written once, and linked before each rename: a
/// disk would need longer to write them than the clients to read.
struct Releases<'p>(&'p Path);

impl<'p> Releases<'p> {
    const COUNT: usize = 8;

    fn new(root: &'p Path) -> Self {
        for number in 0..Self::COUNT {
            let content = vec![b'a' + number as u8; REPLACED_LEN];
            fs::write(root.join(format!("release-{number}")), content).unwrap();
        }
        Self(root)
    }

    /// Puts the next one in the place of the one before.
    fn deploy(&self, number: usize) {
        let release = self.0.join(format!("release-{}", number % Self::COUNT));
        let next = self.0.join("next");
        fs::hard_link(release, &next).unwrap();
        fs::rename(next, self.0.join("current.bin")).unwrap();
    }
}

/// Downloads again and again until it is over; each answer is one file, and whole.
fn download(server: &Server, answers: &AtomicUsize, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        let mut client = server.connect();
        client.send("GET /current.bin HTTP/1.1\r\nHost: h\r\n\r\n");
        std::thread::yield_now(); // so there are always downloads on their way
        let answer = client.answer();
        assert_eq!(answer.status, 200);
        let content = answer.body;
        assert_eq!(content.len(), REPLACED_LEN, "cut");
        assert!(content[1..] == content[..REPLACED_LEN - 1], "two mixed");
        answers.fetch_add(1, Ordering::SeqCst);
    }
}
