//! The file of an order whose certificate has come: what it may not do any more.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use loadline_acme::UnixTime;
use tempfile::TempDir;

use crate::clocks::open;
use crate::player::Played;
use crate::site::Site;

/// An authority that plays the record, with the order of then; and the order's file.
fn start() -> (Played, Arc<Site>, TempDir, PathBuf) {
    let (site, folder) = (Arc::new(Site::start()), tempfile::tempdir().unwrap());
    let validated = Arc::clone(&site);
    let played = Played::start(Box::new(move |path| validated.get(path)));
    let kept = played.keep(&folder.path().join("state"));
    let file = kept.join(format!("{}.order.json", played.name()));
    (played, site, folder, file)
}

fn recorded(played: &Played) -> UnixTime {
    UnixTime(played.record["now"].as_u64().unwrap())
}

/// The certificate of before was served on, and the try counted as failed.
#[test]
fn a_certificate_is_served_though_the_file_of_its_order_cannot_be_removed() {
    let (played, site, folder, file) = start();
    played.look_before(["my-order", "certZ"], move || {
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap(); // it cannot be removed as a file is
    });
    let mut automatic = open(&played, &site, &folder.path().join("state"));
    automatic.turn(recorded(&played));
    played.check();
    let report = automatic.report();
    let report = report.lock().unwrap();
    assert_eq!((report.issued, report.failures), (1, 0), "{report:?}");
    assert_eq!(site.certificates.all().len(), 1);
}

/// The program has ended before it could remove the file, for instance: at the renewal the same certificate came
/// again.
#[test]
fn an_order_whose_certificate_is_in_service_is_not_gone_on_with() {
    let (played, site, folder, file) = start();
    let order = fs::read(&file).unwrap();
    let mut automatic = open(&played, &site, &folder.path().join("state"));
    automatic.turn(recorded(&played));
    assert!(!file.exists());
    fs::write(&file, order).unwrap();
    played.front.take_paths();
    automatic.turn(recorded(&played).plus(Duration::from_secs(80 * 24 * 3600)));
    let paths = played.front.take_paths();
    assert!(paths.iter().any(|it| it == "/order-plz"), "{paths:?}");
}
