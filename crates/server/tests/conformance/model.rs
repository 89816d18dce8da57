//! Every architecture with numbers that make a difference, and a test for each case under each.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::Write as _;
use std::time::Duration;

use loadline_server::{
    Accept, Architecture, Balance, FileIo, Parsing, Queue, ServerOptions, SocketIo,
};

/// One `#[test]` for each case and model, so that a failure is named. A case may have an attribute.
macro_rules! every_model {
    ($($(#[$attribute:meta])? $case:ident,)*) => {
        $(mod $case {
            use crate::model::Model;
            every_model!(@models $case [$($attribute)?]: sequential Sequential, thread_per_connection ThreadPerConnection,
                thread_pool ThreadPool, thread_pool_without_goal ThreadPoolWithoutGoal, reactor_1x0 Reactor1x0, reactor_1xm Reactor1xM,
                reactor_nx0 ReactorNx0, reactor_nxm ReactorNxM, reactor_handoff ReactorHandoff,
                reactor_socket_io_worker ReactorSocketIoWorker, proactor_1x0 Proactor1x0,
                proactor_1xm Proactor1xM, proactor_nx0 ProactorNx0, proactor_nxm ProactorNxM,
                proactor_handoff ProactorHandoff, reactor_parse_worker ReactorParseWorker,
                proactor_parse_worker ProactorParseWorker);
        })*
    };
    (@models $case:ident $attributes:tt: $($name:ident $model:ident),*) => {
        $(every_model!(@one $case $attributes: $name $model);)*
    };
    (@one $case:ident [$($attribute:meta)?]: $name:ident $model:ident) => {
        #[test]
        $(#[$attribute])?
        fn $name() {
            if Model::$model.is_offered() {
                super::$case(Model::$model);
            }
        }
    };
}

macro_rules! models {
    ($($model:ident,)*) => {
        /// An architecture with its numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Model {
            $($model,)*
        }

        impl Model {
            pub const ALL: &'static [Self] = &[$(Self::$model,)*];
        }
    };
}

models! {
    Sequential,
    ThreadPerConnection,
    ThreadPool,
    ThreadPoolWithoutGoal,
    Reactor1x0,
    Reactor1xM,
    ReactorNx0,
    ReactorNxM,
    ReactorHandoff,
    ReactorSocketIoWorker,
    Proactor1x0,
    Proactor1xM,
    ProactorNx0,
    ProactorNxM,
    ProactorHandoff,
    ReactorParseWorker,
    ProactorParseWorker,
}

fn options_of(architecture: Architecture) -> ServerOptions {
    ServerOptions {
        architecture,
        threads: 16,
        // No test waits for so long, however crowded the machine is.
        latency_goal: Some(Duration::from_secs(60)),
        defer_accept: false, // so that silent connections show at once
        ..ServerOptions::default()
    }
}

impl Model {
    pub fn options(self) -> ServerOptions {
        let reactor = |loops, workers| ServerOptions {
            loops,
            workers,
            ..options_of(Architecture::Reactor)
        };
        let proactor = |loops, workers| ServerOptions {
            architecture: Architecture::Proactor,
            ..reactor(loops, workers)
        };
        let blocking = options_of;
        match self {
            Self::Sequential => blocking(Architecture::Sequential),
            Self::ThreadPerConnection => blocking(Architecture::ThreadPerConnection),
            Self::ThreadPool => blocking(Architecture::ThreadPool),
            Self::ThreadPoolWithoutGoal => ServerOptions {
                latency_goal: None,
                ..blocking(Architecture::ThreadPool)
            },
            Self::Reactor1x0 => reactor(1, 0),
            Self::Reactor1xM => reactor(1, 2),
            Self::ReactorNx0 => ServerOptions {
                accept: Accept::ReusePort,
                balance: Balance::Adaptive,
                file_io: FileIo::Sendfile,
                ..reactor(3, 0)
            },
            Self::ReactorNxM => ServerOptions {
                queue: Queue::WorkStealing,
                ..reactor(2, 3)
            },
            Self::ReactorHandoff => ServerOptions {
                accept: Accept::Handoff,
                balance: Balance::LeastBusy,
                ..reactor(2, 2)
            },
            Self::Proactor1x0 => proactor(1, 0),
            Self::Proactor1xM => proactor(1, 4),
            Self::ProactorNx0 => ServerOptions {
                accept: Accept::ReusePort,
                ..proactor(2, 0)
            },
            Self::ProactorNxM => ServerOptions {
                balance: Balance::Adaptive,
                queue: Queue::WorkStealing,
                file_io: FileIo::Sendfile,
                ..proactor(2, 4)
            },
            Self::ProactorHandoff => ServerOptions {
                accept: Accept::Handoff,
                balance: Balance::LeastBusy,
                file_io: FileIo::Sendfile,
                ..proactor(2, 2)
            },
            Self::ReactorSocketIoWorker => ServerOptions {
                socket_io: SocketIo::Worker,
                file_io: FileIo::Sendfile,
                ..reactor(1, 3)
            },
            Self::ReactorParseWorker => ServerOptions {
                parse: Parsing::Worker,
                ..reactor(1, 3)
            },
            Self::ProactorParseWorker => ServerOptions {
                parse: Parsing::Worker,
                queue: Queue::WorkStealing,
                ..proactor(2, 3)
            },
        }
    }

    /// Whether this machine offers it; says so visibly if not.
    pub fn is_offered(self) -> bool {
        let offered = loadline_server::check_offered(self.options().architecture);
        if let Err(error) = &offered {
            // Not by `eprintln`, which nobody would see from a test.
            let _ = writeln!(std::io::stderr(), "\nskipped, {self:?}: {error}");
        }
        offered.is_ok()
    }

    /// Whether it serves more than one connection at a time.
    pub fn is_concurrent(self) -> bool {
        self != Self::Sequential
    }
}
