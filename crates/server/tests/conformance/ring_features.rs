//! The proactor with each of the kernel's newer features forced off: what an older kernel has to do
//! without must not be missed.
//!
//! The environment is the process's, so the cases run in a child: this test binary again.

use std::process::Command;

use loadline_sys::ring::{Features, WITHOUT};

use crate::fixture::Model;

/// A model that has workers, shared accepting and one loop: all of the ring's ways.
const CASES: &str = "proactor_1xm";
/// Cases wait for timeouts more than they compute.
const THREADS: &str = "8";

fn passes_without(features: &str) {
    if !Model::Proactor1xM.is_offered() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([CASES, "--test-threads", THREADS])
        .env(WITHOUT, features)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "without {features}: {said}");
    assert!(!said.contains("0 passed"), "no such cases: {said}");
}

macro_rules! without {
    ($($name:ident $feature:literal,)*) => {
        $(#[test]
        fn $name() {
            passes_without($feature);
        })*

        #[test]
        fn each_feature_is_left_out_once() {
            assert_eq!(Features::NAMES, [$($feature,)*]);
        }
    };
}

without! {
    multishot_accept "multishot-accept",
    multishot_receive "multishot-receive",
    quiet_sends "quiet-sends",
    defer_taskrun "defer-taskrun",
    no_sqarray "no-sqarray",
    no_iowait "no-iowait",
}

#[test]
fn all_of_them() {
    passes_without(&Features::NAMES.join(","));
}
