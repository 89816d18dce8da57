//! The client's end: answers as a server may send them, and as it may not.

mod framing;
mod tape;
