//! The static file handler over real directories, driven through a session in memory.

#![allow(clippy::unwrap_used, reason = "a failed test is what it is for")]

mod basics;
mod bounds;
mod elsewhere;
mod escapes;
mod freshness;
mod made;
mod selection;
mod site;
mod threads;
mod variants;
