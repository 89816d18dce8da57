//! The client's end: answers as a server may send them, and as it may not.

mod cuts;
#[path = "../drive/mod.rs"]
mod drive;
mod framing;
mod malformed;
mod pair;
mod states;
mod tape;
