//! The reactor and the proactor: their models, how they spread and bound connections, their workers,
//! files in flight, and how they go down. Only `--socket-io worker` is the reactor's alone.

/// One `#[test]` for each case and architecture whose threads are loops.
macro_rules! on_loops {
    ($($case:ident,)*) => {
        $(mod $case {
            on_loops!(@one $case reactor Reactor);
            on_loops!(@one $case proactor Proactor);
        })*
    };
    (@one $case:ident $name:ident $architecture:ident) => {
        #[test]
        fn $name() {
            let architecture = loadline_server::Architecture::$architecture;
            if crate::shared::is_offered(architecture) {
                super::$case(architecture);
            }
        }
    };
}

/// The same for the proactor alone.
macro_rules! on_the_proactor {
    ($($case:ident,)*) => {
        $(mod $case {
            on_loops!(@one $case proactor Proactor);
        })*
    };
}

mod balance;
mod descriptors;
mod drain;
mod events;
mod fairness;
mod files;
mod held_up;
mod limits;
mod many;
mod models;
mod overload;
mod ring;
mod sizes;
mod util;
mod workers;
