//! Automatic certificates with an authority: one that plays a recorded exchange, and Pebble.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(unreachable_pub, reason = "modules of a test")]

#[macro_use]
#[path = "../../../server/tests/conformance/model.rs"]
mod model;

mod account;
mod authority;
mod challenge_client;
mod challenges;
mod clocks;
mod dns;
mod external;
mod front;
mod go_program;
mod kept;
mod limited;
mod order_files;
mod pebble;
mod player;
mod recorded;
mod site;
mod with_pebble;
