//! Actors on the real stage, over sockets, against small servers of the tests' own.

mod crowds;
mod idle;
mod player;
mod server;
mod slow;
mod stage;
