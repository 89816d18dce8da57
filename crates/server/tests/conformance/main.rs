//! Conformance: a black box over sockets. Every case runs under every model of every
//! architecture, each as a test of its own.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(unreachable_pub, reason = "modules of a test")]

#[path = "../../../proto/tests/drive/answers.rs"]
mod answers;
mod client;
mod fixture;

/// One `#[test]` for each case and model, so that a failure is named.
macro_rules! every_model {
    ($($case:ident,)*) => {
        $(mod $case {
            use crate::fixture::Model;
            every_model!(@models $case: sequential Sequential, thread_per_connection ThreadPerConnection,
                thread_pool ThreadPool, reactor_1x0 Reactor1x0, reactor_1xm Reactor1xM,
                reactor_nx0 ReactorNx0, reactor_nxm ReactorNxM, reactor_handoff ReactorHandoff,
                reactor_socket_io_worker ReactorSocketIoWorker, proactor_1x0 Proactor1x0,
                proactor_1xm Proactor1xM, proactor_nx0 ProactorNx0, proactor_nxm ProactorNxM,
                proactor_handoff ProactorHandoff);
        })*
    };
    (@models $case:ident: $($name:ident $model:ident),*) => {
        $(#[test]
        fn $name() {
            if Model::$model.is_offered() {
                super::$case(Model::$model);
            }
        })*
    };
}

mod connections;
mod failures;
mod files;
mod framing;
mod last_words;
mod later;
mod regression;
mod ring_features;
mod selection;
mod shutdown;

#[test]
fn every_architecture_has_a_model() {
    for architecture in loadline_server::Architecture::ALL {
        let covered = |model: &fixture::Model| model.options().architecture == *architecture;
        assert!(fixture::Model::ALL.iter().any(covered), "{architecture:?}");
    }
}
