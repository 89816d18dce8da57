//! What a connection is occupied with, as far as it has to make room for others.

use loadline_base::Millis;

/// In this order the connections of one client give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Occupation {
    /// In the middle of a request or a response it waits for its client, which began with that then.
    Slow(Millis),
    /// Between two requests, since then.
    Idle(Millis),
    /// The server works for it.
    Served,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_gives_up_first_then_who_is_idle_the_longest() {
        let order = [
            Occupation::Slow(Millis(7)),
            Occupation::Slow(Millis(9)),
            Occupation::Idle(Millis(3)),
            Occupation::Idle(Millis(8)),
            Occupation::Served,
        ];
        assert!(order.is_sorted());
    }
}
