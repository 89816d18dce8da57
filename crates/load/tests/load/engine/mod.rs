//! The engine over real sockets, against small servers that do what their script says.

mod closed;
mod errors;
mod http2;
mod http2_places;
mod no_alloc;
mod open;
mod retries;
mod run;
mod server;
