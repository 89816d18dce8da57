//! Certificates and ticket keys in files that change while they are served.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use loadline_tls::{CertificateFiles, CertificatePair, TakenUp, TicketFiles};
use rcgen::{CertificateParams, KeyPair};

fn write(folder: &Path, which: &str, name: &str) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    // Another file each time: within a tick of the kernel's clock, a change of the same one may not show.
    let put = |name: &str, pem: String| {
        fs::write(folder.join("new"), pem).unwrap();
        fs::rename(folder.join("new"), folder.join(name)).unwrap();
    };
    if which != "key" {
        put("c.pem", certificate.pem());
    }
    if which != "certificate" {
        put("k.pem", key.serialize_pem());
    }
}

fn pair(folder: &Path) -> CertificatePair {
    CertificatePair {
        certificate: folder.join("c.pem"),
        key: folder.join("k.pem"),
    }
}

/// Whether anything was taken up, and how many errors there were.
fn counts(taken_up: &TakenUp) -> (bool, usize) {
    (taken_up.is_any, taken_up.errors.len())
}

fn names(files: &CertificateFiles) -> Vec<String> {
    let all = files.certificates().all();
    all.iter().flat_map(|it| it.names().to_vec()).collect()
}

#[test]
fn a_changed_pair_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "both", "one");
    let mut files = CertificateFiles::load(vec![pair(folder.path())]).unwrap();
    assert_eq!(names(&files), ["one"]);
    assert_eq!(counts(&files.refresh()), (false, 0), "nothing has changed");
    write(folder.path(), "both", "two");
    assert_eq!(counts(&files.refresh()), (false, 0), "half written?");
    assert_eq!(counts(&files.refresh()), (true, 0));
    assert_eq!(names(&files), ["two"]);
    assert_eq!(counts(&files.refresh()), (false, 0));
}

#[test]
fn a_broken_one_is_reported_once_and_the_old_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "both", "one");
    let mut files = CertificateFiles::load(vec![pair(folder.path())]).unwrap();
    // Half of a renewal is no failure yet.
    write(folder.path(), "certificate", "two");
    assert_eq!(counts(&files.refresh()), (false, 0));
    let taken_up = files.refresh();
    assert_eq!(counts(&taken_up), (false, 1));
    let error = taken_up.errors[0].to_string();
    assert!(error.contains("does not belong"), "{error}");
    assert_eq!(counts(&files.refresh()), (false, 0), "reported once");
    assert_eq!(names(&files), ["one"]);
    assert_eq!(counts(&files.reload()), (false, 1), "on demand, again");
    fs::remove_file(folder.path().join("k.pem")).unwrap();
    assert_eq!(counts(&files.refresh()), (false, 0));
    assert_eq!(counts(&files.refresh()), (false, 1));
    write(folder.path(), "both", "three");
    assert_eq!(counts(&files.refresh()), (false, 0));
    assert_eq!(counts(&files.refresh()), (true, 0));
    assert_eq!(names(&files), ["three"]);
    assert_eq!(counts(&files.reload()), (true, 0));
}

#[test]
fn each_broken_pair_is_reported_and_holds_up_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let folders = ["a", "b", "c"].map(|name| folder.path().join(name));
    for (folder, name) in folders.iter().zip(["one", "two", "three"]) {
        fs::create_dir(folder).unwrap();
        write(folder, "both", name);
    }
    let pairs = folders.iter().map(|folder| pair(folder));
    let mut files = CertificateFiles::load(pairs.collect()).unwrap();
    write(&folders[0], "certificate", "broken");
    write(&folders[1], "key", "broken");
    write(&folders[2], "both", "four");
    assert_eq!(counts(&files.refresh()), (false, 0));
    let taken_up = files.refresh();
    assert_eq!(counts(&taken_up), (true, 2));
    assert_eq!(names(&files), ["one", "two", "four"]);
    for (error, folder) in taken_up.errors.iter().zip(&folders) {
        let (error, folder) = (error.to_string(), folder.display().to_string());
        assert!(error.contains(&folder), "{error}");
    }
    assert_eq!(counts(&files.refresh()), (false, 0), "reported once");
    // Another change is no reason to report it again.
    write(&folders[0], "both", "five");
    assert_eq!(counts(&files.refresh()), (false, 0));
    assert_eq!(counts(&files.refresh()), (true, 0));
    assert_eq!(counts(&files.refresh()), (false, 0));
    write(&folders[2], "both", "six");
    assert_eq!(counts(&files.reload()), (true, 1));
    assert_eq!(names(&files), ["five", "two", "six"]);
}

#[test]
fn the_mode_of_a_ticket_key_is_looked_at_with_each_reading() {
    let folder = tempfile::tempdir_in("/tmp").unwrap(); // others can enter that
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let path = folder.path().join("ticket.key");
    fs::write(&path, [1; 80]).unwrap();
    let set = |mode| fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    set(0o644);
    let mut files = TicketFiles::load(vec![path.clone()]).unwrap();
    let tickets = Arc::clone(files.tickets());
    let warnings = tickets.key_warnings();
    assert_eq!(warnings.len(), 1);
    let text = warnings[0].to_string();
    assert!(
        text.contains("can read the ticket key; right would be 600"),
        "{text}"
    );
    for (mode, warnings) in [(0o600, 0), (0o604, 1)] {
        set(mode);
        files.reload().unwrap();
        assert_eq!(tickets.key_warnings().len(), warnings, "{mode:o}");
    }
}

#[test]
fn ticket_keys_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ticket.key");
    assert!(TicketFiles::load(vec![path.clone()]).is_err());
    fs::write(&path, [1; 80]).unwrap();
    let mut files = TicketFiles::load(vec![path.clone()]).unwrap();
    assert!(files.refresh().is_none());
    fs::write(&path, [2; 48]).unwrap();
    assert!(files.refresh().is_none());
    assert!(matches!(files.refresh(), Some(Ok(()))));
    fs::write(&path, b"short").unwrap();
    assert!(files.refresh().is_none());
    assert!(files.refresh().unwrap().is_err());
}
