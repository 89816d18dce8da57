//! The decisions about static content as pure functions over bytes and times.
//!
//! Nothing here opens, reads or asks for anything: which path is meant, which ranges, whether the
//! client's copy is still good, which variant, what a page looks like. So tables test all of it.

pub mod conditional;
pub mod error_pages;
pub mod listing;
pub mod media_type;
pub mod multipart;
pub mod path;
pub mod range;
