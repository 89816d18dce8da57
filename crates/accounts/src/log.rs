//! How often accounts say what visitors do, and what goes wrong.
//!
//! Each line has a limit of its own beside it: a crowd that logs in, or a disk that is full, fills no
//! other disk with lines about it. How many were left out stands in the next one.

/// Lines of one kind in ten seconds about what visitors do: an operator sees each of them but for floods.
pub(crate) const VISITS_MAX: u32 = 100;

/// The same about what goes wrong: one cause mostly fails every request.
pub(crate) const FAILURES_MAX: u32 = 10;
