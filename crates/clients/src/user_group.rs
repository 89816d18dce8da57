//! Clients of one kind: how many, where they go, and how one is made.

use std::net::IpAddr;

use crate::VirtualUser;

/// How a virtual user of a user group is made: by its number in the whole user group and the plan's seed.
pub type UserFactory = std::sync::Arc<dyn Fn(u64, u64) -> Box<dyn VirtualUser> + Send + Sync>;

/// Virtual users of one kind.
#[derive(Clone)]
pub struct UserGroup {
    /// Index into `Plan::groups`.
    pub group: u16,
    /// How many, in the whole run.
    pub count: u64,
    /// Index into `Plan::servers`.
    pub server: u16,
    /// Where virtual user `i` comes from: `sources[i % len]`; empty: as the plan's.
    pub sources: Vec<IpAddr>,
    /// What the kernel may take in before it is read, in bytes; `None`: as the system has it.
    pub receive_buffer_bytes: Option<usize>,
    /// Makes one.
    pub make: UserFactory,
}

impl UserGroup {
    /// One virtual user of group 0, with the plan's sources and the system's buffers.
    #[must_use]
    pub fn new(make: UserFactory) -> Self {
        Self {
            group: 0,
            count: 1,
            server: 0,
            sources: Vec::new(),
            receive_buffer_bytes: None,
            make,
        }
    }

    /// The same for `count` virtual users of a group.
    #[must_use]
    pub fn of(self, group: u16, count: u64) -> Self {
        Self {
            group,
            count,
            ..self
        }
    }
}
