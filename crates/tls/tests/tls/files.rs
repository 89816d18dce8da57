//! Certificates and ticket keys in files that change while they are served.

use std::fs;
use std::path::{Path, PathBuf};

use loadline_tls::{CertificateFiles, CertificatePair, TicketFiles};
use rcgen::{CertificateParams, KeyPair};

fn write(folder: &Path, which: &str, name: &str) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    if which != "key" {
        fs::write(folder.join("c.pem"), certificate.pem()).unwrap();
    }
    if which != "certificate" {
        fs::write(folder.join("k.pem"), key.serialize_pem()).unwrap();
    }
}

fn names(files: &CertificateFiles) -> Vec<String> {
    let all = files.certificates().all();
    all.iter().flat_map(|it| it.names().to_vec()).collect()
}

#[test]
fn a_changed_pair_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "both", "one");
    let pair = CertificatePair {
        certificate: folder.path().join("c.pem"),
        key: folder.path().join("k.pem"),
    };
    let mut files = CertificateFiles::load(vec![pair]).unwrap();
    assert_eq!(names(&files), ["one"]);
    assert!(files.refresh().is_none(), "nothing has changed");
    write(folder.path(), "both", "two");
    assert!(matches!(files.refresh(), Some(Ok(()))));
    assert_eq!(names(&files), ["two"]);
    assert!(files.refresh().is_none());
}

#[test]
fn a_broken_one_is_reported_once_and_the_old_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "both", "one");
    let pair = CertificatePair {
        certificate: folder.path().join("c.pem"),
        key: folder.path().join("k.pem"),
    };
    let mut files = CertificateFiles::load(vec![pair]).unwrap();
    // Half of a renewal is no failure yet.
    write(folder.path(), "certificate", "two");
    assert!(files.refresh().is_none());
    let error = files.refresh().unwrap().unwrap_err().to_string();
    assert!(error.contains("does not belong"), "{error}");
    assert!(files.refresh().is_none(), "reported once");
    assert_eq!(names(&files), ["one"]);
    assert!(files.reload().is_err(), "on demand, again");
    fs::remove_file(folder.path().join("k.pem")).unwrap();
    assert!(files.refresh().is_none());
    assert!(files.refresh().unwrap().is_err());
    write(folder.path(), "both", "three");
    assert!(matches!(files.refresh(), Some(Ok(()))));
    assert_eq!(names(&files), ["three"]);
    assert!(files.reload().is_ok());
}

#[test]
fn a_broken_pair_does_not_hold_up_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let folders = ["a", "b"].map(|name| folder.path().join(name));
    for (folder, name) in folders.iter().zip(["one", "two"]) {
        fs::create_dir(folder).unwrap();
        write(folder, "both", name);
    }
    let pair = |folder: &PathBuf| CertificatePair {
        certificate: folder.join("c.pem"),
        key: folder.join("k.pem"),
    };
    let mut files = CertificateFiles::load(folders.iter().map(pair).collect()).unwrap();
    write(&folders[0], "certificate", "broken");
    write(&folders[1], "both", "three");
    assert!(files.refresh().is_none());
    assert_eq!(names(&files), ["one", "three"]);
    assert!(files.refresh().unwrap().is_err());
    write(&folders[1], "both", "four");
    assert!(files.reload().is_err());
    assert_eq!(names(&files), ["one", "four"]);
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
    assert!(matches!(files.refresh(), Some(Ok(()))));
    fs::write(&path, b"short").unwrap();
    assert!(files.refresh().is_none());
    assert!(files.refresh().unwrap().is_err());
}
