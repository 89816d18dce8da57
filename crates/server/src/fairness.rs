//! Who holds how much of what has run short, so that the client that holds most gives up first.
//!
//! A client is an address: one of IPv4, or the /64 network of one of IPv6, which a single customer has.
//! Clients are counted exactly, and only while they hold something: so there are never more of them
//! than connections or jobs, and nobody pays for sharing a cell of a sketch with somebody else.

mod holdings;
pub(crate) mod lanes;
mod occupation;

pub(crate) use holdings::{Holdings, Share};
pub(crate) use loadline_proto::ClientKey;
pub(crate) use occupation::Occupation;
