//! The client's end: answers as a server may send them, and as it may not.

mod cuts;
mod framing;
mod malformed;
mod pair;
mod states;
mod tape;
