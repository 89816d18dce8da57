//! What HTTP/2 needs between two events of a connection, or for as long as a stream lasts: of a thread, so
//! that an idle connection does not hold it.

use loadline_base::BoxPool;

use super::request::RequestFields;
use super::stream::Stream;

/// As many streams as a connection has at one time, by default.
pub(crate) const STREAMS_MAX: usize = 128;

/// Spare memory of one thread.
#[derive(Debug, Default)]
pub(crate) struct Http2Memory {
    pub(crate) streams: BoxPool<Stream, STREAMS_MAX>,
    /// Of the request whose field block is being decoded.
    pub(crate) fields: RequestFields,
    /// A name and a value of it.
    pub(crate) field: Vec<u8>,
    /// A field block in the making, and a name in it.
    pub(crate) block: Vec<u8>,
    pub(crate) name: Vec<u8>,
}
