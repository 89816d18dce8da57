//! Our client, as the load generator has it, with the server of the `h2` crate at its other end, in memory.

mod connection;
mod ends;
mod fields;
mod random;
mod server;
mod streams;
mod windows;
