//! Every bound of a client's HTTP/2 connection, each with its reason.

use crate::http2::frame::WINDOW_BYTES_MAX;

/// Content of the connection and of each stream that the server may send before it gets more room:
/// as much as there can be (RFC 9113 section 6.9.1). What comes is counted and thrown away, so it takes
/// no memory, and a window that runs out would measure the client.
pub(super) const WINDOW_BYTES: u32 = WINDOW_BYTES_MAX;
/// Room is given back in pieces of this size: half of the window, once in a GiB.
pub(super) const WINDOW_UPDATE_BYTES: u32 = WINDOW_BYTES / 2;
/// Field blocks of a response, compressed: that of the heads of HTTP/1.
pub(super) const BLOCK_BYTES_MAX: usize = 32 << 10;
/// Frames of one field block: what fits into the bound above fits into three. A server that sends empty
/// ones would never end the block, and they cost it nothing.
pub(super) const BLOCK_FRAMES_MAX: u32 = 16;
/// A buffer that a frame or a block in pieces has made larger than this is not kept.
pub(super) const KEPT_BYTES_MAX: usize = 2 << 10;
/// Output that waits for the socket, beyond which no further content of requests is added: two of what
/// a socket takes at once.
pub(super) const OUT_BYTES_MAX: usize = 256 << 10;
/// Answers to PING and SETTINGS, and resets of streams whose responses make them necessary, that wait for
/// the socket. A server that asks for more and reads nothing would fill the memory.
pub(super) const ANSWERS_MAX: usize = 1024;
/// The last stream of a connection (section 5.1.1).
pub(super) const STREAM_ID_MAX: u32 = (1 << 31) - 1;
