//! Sessions in memory, of the server and of the client: tables, cuts, deadlines. One program, since
//! each takes its time to link.

#[path = "../drive/mod.rs"]
mod drive;

mod access_log;
mod answered_body;
mod client;
mod connection_record;
mod content_ahead;
mod content_limits;
mod cuts;
mod deadlines;
mod encoded_then_blocking;
mod framing_table;
mod gathered;
mod half_close;
mod http2_bytes;
mod idle_table;
mod latency;
mod layered;
mod malformed_table;
mod pair;
mod persistence_table;
mod request_trailers;
mod smuggling_table;
mod started_over;
mod streaming;
mod trusted_proxies_table;
