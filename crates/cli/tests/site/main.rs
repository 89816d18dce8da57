//! The program serves a real site, byte for byte, under every architecture, and holds under a load
//! from a tool that is not ours.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod drain;
mod load;
mod real_site;
mod sequential;
mod util;
