//! How often accounts say what visitors do, and what goes wrong.
//!
//! Each line has a limit of its own beside it: many logins at once, or a full disk, fill no
//! other disk with lines about it. The next line says how many were left out.

/// Lines of one kind in ten seconds about what visitors do: an operator sees each of them but for floods.
pub(crate) const VISITS_MAX: u32 = 100;

/// The same about what goes wrong: one cause mostly fails every request.
pub(crate) const FAILURES_MAX: u32 = 10;

/// Logs what a visitor does.
macro_rules! visited {
    ($what:literal, $visitor:expr $(, $user_id:expr)?) => {
        loadline_base::limited!(
            $crate::log::VISITS_MAX,
            std::time::Instant::now(),
            |more| tracing::info!(
                $(user_id = $user_id,)?
                address = %$visitor.address,
                "accounts: {}{more}",
                $what
            )
        )
    };
}

/// Logs what went wrong.
macro_rules! failed {
    ($level:ident, $($what:tt)+) => {
        loadline_base::limited!(
            $crate::log::FAILURES_MAX,
            std::time::Instant::now(),
            |more| tracing::$level!("accounts: {}{more}", format_args!($($what)+))
        )
    };
}

pub(crate) use {failed, visited};
