//! The proactor with each of the kernel's newer features forced off: what an older kernel has to do
//! without must not be missed.
//!
//! `./x test` leaves out all of them at once, as the oldest of these kernels does; `./x test --all` each by itself,
//! too, which together is as much as the whole suite.
//!
//! The environment is the process's, so the cases run in a child: this test binary again.

use std::process::Command;

use loadline_sys::ring::{Features, WITHOUT};

use crate::fixture::Model;

/// Cases wait for timeouts more than they compute.
const THREADS: &str = "16";

/// A layer above the ring, the same with and without its features.
const OVER_TLS: &str = "tls::";

/// The models, as cases are named.
const ONE_LOOP: &str = "proactor_1x0";
const ONE_LOOP_WORKERS: &str = "proactor_1xm";
const LOOPS: &str = "proactor_nx0";
const LOOPS_WORKERS: &str = "proactor_nxm";

fn passes_without(features: &str, models: &[&str]) {
    if !Model::Proactor1xM.is_offered() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(models)
        .args(["--skip", OVER_TLS, "--test-threads", THREADS])
        .env(WITHOUT, features)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "without {features}: {said}");
    for model in models {
        assert!(said.contains(model), "no cases of {model}: {said}");
    }
}

macro_rules! without {
    ($($name:ident $feature:literal under $models:expr,)*) => {
        $(#[test]
        #[ignore = "long: the cases of one to three models once more"]
        fn $name() {
            passes_without($feature, &$models);
        })*

        #[test]
        fn each_feature_is_left_out_once() {
            assert_eq!(Features::NAMES, [$($feature,)*]);
        }
    };
}

// Each under the models that it could make a difference to: how connections are accepted depends on
// the loops, when nothing is received on the workers.
without! {
    multishot_accept "multishot-accept" under [ONE_LOOP_WORKERS, LOOPS, LOOPS_WORKERS],
    multishot_receive "multishot-receive" under [ONE_LOOP, ONE_LOOP_WORKERS],
    quiet_sends "quiet-sends" under [ONE_LOOP, ONE_LOOP_WORKERS],
    defer_taskrun "defer-taskrun" under [ONE_LOOP, LOOPS_WORKERS],
    no_sqarray "no-sqarray" under [ONE_LOOP_WORKERS],
    read_ahead "read-ahead" under [ONE_LOOP, ONE_LOOP_WORKERS],
    no_iowait "no-iowait" under [ONE_LOOP_WORKERS],
}

#[test]
fn all_of_them() {
    let models = [ONE_LOOP, ONE_LOOP_WORKERS, LOOPS, LOOPS_WORKERS];
    passes_without(&Features::NAMES.join(","), &models);
}
