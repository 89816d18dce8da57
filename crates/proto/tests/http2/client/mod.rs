//! The client's end of a connection of HTTP/2 as a state machine, driven by a server in memory.

mod cuts;
mod faults;
mod requests;
mod responses;
mod tape;
mod windows;
