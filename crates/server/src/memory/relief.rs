//! Which connections are closed when memory is short: those of the client that holds most of it, in the
//! whole process.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use loadline_base::{MemoryPressure, Millis, sorting};

use super::ledger::{Held, Part, Sums};
use crate::fairness::{ClientKey, Occupation};

/// Idle connections are closed if they have been idle for so long: the next request of a client that is
/// at work may be on its way.
const IDLE_MIN_MS: u64 = 1000;

/// What other loops free is counted in no more steps than this for each client.
const STEPS_MAX: u64 = 1024;

/// A connection, and what its end would free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding<T> {
    pub(crate) client: ClientKey,
    pub(crate) occupation: Occupation,
    pub(crate) bytes: u64,
    pub(crate) connection: T,
}

/// What is to be freed, in the whole process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortage {
    pub(crate) pressure: MemoryPressure,
    pub(crate) excess_bytes: u64,
    pub(crate) now: Millis,
}

/// What is to be done about it here.
#[derive(Debug)]
pub(crate) struct Relief<T> {
    /// Connections to be closed, in this order.
    pub(crate) chosen: Vec<T>,
    /// The clients that give something up, here or elsewhere, in order.
    pub(crate) givers: Vec<ClientKey>,
    /// What they give up is enough.
    pub(crate) is_enough: bool,
    /// What clients hold here before and after that.
    pub(crate) held: Vec<Held>,
    pub(crate) left: Vec<Held>,
}

/// What one client may have to give up.
struct Line<'h, T> {
    /// What it holds in all, here and elsewhere.
    bytes: u64,
    /// Its connections here: the last one is the first to give up.
    own: &'h [Holding<T>],
    /// Of what it holds here.
    held: Held,
    here: Share,
    elsewhere: Share,
    /// A connection elsewhere, about.
    step: u64,
    /// `false`: it stands for many clients elsewhere that are taken to be alike.
    is_named: bool,
}

/// What may be freed in one place, and was.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    all: u64,
    freed: u64,
}

/// What comes first.
enum Given<T> {
    Here(Holding<T>),
    Elsewhere(u64),
}

impl<T: Copy> Relief<T> {
    /// Nobody gives up anything.
    pub(crate) fn nothing(all: Vec<Holding<T>>, now: Millis) -> Self {
        let shortage = Shortage {
            pressure: MemoryPressure::None,
            excess_bytes: 0,
            now,
        };
        shortage.choose(all, &Sums::default())
    }
}

impl Shortage {
    /// Chooses the connections whose end frees enough, beside what other loops free at the same time by
    /// the same rule. Each is of the client that then holds most, in the order of occupations;
    /// connections of nobody in particular are those of one client. What a client holds at several loops
    /// it gives up at each of them in proportion.
    pub(crate) fn choose<T: Copy>(&self, mut all: Vec<Holding<T>>, elsewhere: &Sums) -> Relief<T> {
        sorting::sort_by_key(&mut all, |it| (it.client, Reverse(it.occupation)));
        let mut lines = self.lines(&all, elsewhere);
        let held = held_here(&lines);
        // Those that are not named come after equals: a loop that closes nothing would wait for others that do
        // the same.
        let key = |index: usize, line: &Line<'_, T>| {
            (line.bytes, line.is_named, Reverse(line.held.client), index)
        };
        let keys = lines.iter().enumerate();
        let mut heap: BinaryHeap<_> = keys.map(|(index, line)| key(index, line)).collect();
        let (mut freed, mut chosen, mut givers) = (0, Vec::new(), Vec::new());
        while freed < self.excess_bytes
            && let Some((.., index)) = heap.pop()
        {
            let line = &mut lines[index];
            let client = line.held.client;
            match self.next(line) {
                Some(Given::Here(first)) => {
                    freed += first.bytes;
                    chosen.push(first.connection);
                    givers.push(client);
                }
                Some(Given::Elsewhere(bytes)) => {
                    freed += bytes;
                    givers.extend(line.is_named.then_some(client));
                }
                None => continue,
            }
            heap.push(key(index, line));
        }
        sorting::sort(&mut givers);
        givers.dedup();
        Relief {
            chosen,
            givers,
            is_enough: freed >= self.excess_bytes,
            held,
            left: held_here(&lines),
        }
    }

    fn lines<'h, T>(&self, all: &'h [Holding<T>], elsewhere: &Sums) -> Vec<Line<'h, T>> {
        let of_one = all.chunk_by(|one, other| one.client == other.client);
        let mut lines: Vec<_> = of_one.map(|own| self.line(own)).collect();
        let here = lines.len();
        for held in &elsewhere.named {
            let known = lines[..here].binary_search_by_key(&held.client, |line| line.held.client);
            let index = known.unwrap_or_else(|_| {
                lines.push(Line::of(held.client));
                lines.len() - 1
            });
            self.add_elsewhere(&mut lines[index], held, 1);
        }
        if elsewhere.rest_clients > 0 {
            let mut rest = Line::of(ClientKey::NOBODY);
            rest.is_named = false;
            self.add_elsewhere(&mut rest, &elsewhere.rest, elsewhere.rest_clients);
            lines.push(rest);
        }
        lines
    }

    fn line<'h, T>(&self, own: &'h [Holding<T>]) -> Line<'h, T> {
        let mut line = Line::of(own.first().map_or(ClientKey::NOBODY, |it| it.client));
        for it in own {
            let part = Part {
                bytes: it.bytes,
                connections: 1,
            };
            line.held.bytes += it.bytes;
            match it.occupation {
                Occupation::Slow(_) => line.held.slow.add(part),
                Occupation::Idle(since) if self.is_long_idle(since) => line.held.idle.add(part),
                Occupation::Idle(_) | Occupation::Served => {}
            }
        }
        line.own = own;
        line.bytes = line.held.bytes;
        line.here.all = self.freeable(&line.held).bytes;
        line
    }

    /// Adds what so many clients that are alike hold at other loops.
    fn add_elsewhere<T>(&self, line: &mut Line<'_, T>, held: &Held, clients: u64) {
        let to_free = self.freeable(held);
        line.bytes += held.bytes / clients;
        line.elsewhere.all = to_free.bytes;
        let one = to_free.bytes / to_free.connections.max(1);
        let of_client = to_free.bytes.div_ceil(clients);
        line.step = match line.is_named {
            true => one.max(self.excess_bytes / STEPS_MAX).max(1),
            false => of_client.max(1),
        };
    }

    fn freeable(&self, held: &Held) -> Part {
        let mut part = held.idle;
        if self.pressure >= MemoryPressure::Slow {
            part.add(held.slow);
        }
        part
    }

    /// What a client gives up next; `None`: it has nothing left.
    fn next<T: Copy>(&self, line: &mut Line<'_, T>) -> Option<Given<T>> {
        while line.here.comes_before(line.elsewhere)
            && let Some((last, others)) = line.own.split_last()
        {
            line.own = others;
            if self.may_go(last.occupation) {
                line.give_here(last);
                return Some(Given::Here(*last));
            }
        }
        let bytes = line.step.min(line.elsewhere.left());
        if bytes == 0 {
            return None;
        }
        line.elsewhere.freed += bytes;
        if line.is_named {
            line.bytes = line.bytes.saturating_sub(bytes);
        } // otherwise the next one holds as much
        Some(Given::Elsewhere(bytes))
    }

    fn may_go(&self, occupation: Occupation) -> bool {
        match occupation {
            Occupation::Slow(_) => self.pressure >= MemoryPressure::Slow,
            Occupation::Idle(since) => self.is_long_idle(since),
            Occupation::Served => false,
        }
    }

    fn is_long_idle(&self, since: Millis) -> bool {
        since.0 + IDLE_MIN_MS <= self.now.0
    }
}

/// What clients hold here, of those that do.
fn held_here<T>(lines: &[Line<'_, T>]) -> Vec<Held> {
    let held = lines.iter().map(|line| line.held);
    held.filter(|held| held.bytes > 0).collect()
}

impl<T> Line<'_, T> {
    fn of(client: ClientKey) -> Self {
        Self {
            bytes: 0,
            own: &[],
            held: Held {
                client,
                ..Held::default()
            },
            here: Share::default(),
            elsewhere: Share::default(),
            step: 0,
            is_named: true,
        }
    }

    fn give_here(&mut self, holding: &Holding<T>) {
        let held = &mut self.held;
        let part = match holding.occupation {
            Occupation::Slow(_) => &mut held.slow,
            _ => &mut held.idle,
        };
        part.bytes -= holding.bytes;
        part.connections -= 1;
        held.bytes -= holding.bytes;
        self.here.freed += holding.bytes;
        self.bytes = self.bytes.saturating_sub(holding.bytes);
    }
}

impl Share {
    fn left(self) -> u64 {
        self.all.saturating_sub(self.freed)
    }

    /// Whether as great a part of it is left as of the other.
    fn comes_before(self, other: Self) -> bool {
        let product = |one: u64, two: u64| u128::from(one) * u128::from(two);
        other.left() == 0
            || self.left() > 0 && product(self.freed, other.all) <= product(other.freed, self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(client: u8, occupation: Occupation, name: &'static str) -> Holding<&'static str> {
        Holding {
            client: ClientKey::of([192, 0, 2, client].into()),
            occupation,
            bytes: 100,
            connection: name,
        }
    }

    fn slow(client: u8, since: u64, name: &'static str) -> Holding<&'static str> {
        holding(client, Occupation::Slow(Millis(since)), name)
    }

    fn idle(client: u8, since: u64, name: &'static str) -> Holding<&'static str> {
        holding(client, Occupation::Idle(Millis(since)), name)
    }

    fn closed(
        pressure: MemoryPressure,
        excess_bytes: u64,
        all: &[Holding<&'static str>],
    ) -> Vec<&'static str> {
        let now = Millis(10_000);
        let shortage = Shortage {
            pressure,
            excess_bytes,
            now,
        };
        shortage.choose(all.to_vec(), &Sums::default()).chosen
    }

    #[test]
    fn who_holds_most_gives_up_first_however_short_he_has_waited() {
        let all = [
            slow(1, 1, "old"),
            slow(2, 7, "b"),
            slow(2, 5, "a"),
            slow(2, 9, "c"),
        ];
        let slow = |excess| closed(MemoryPressure::Slow, excess, &all);
        assert!(slow(0).is_empty());
        assert_eq!(slow(1), ["a"]);
        assert_eq!(slow(101), ["a", "b"]);
        // Now both hold as much.
        assert_eq!(slow(u64::MAX).len(), 4);
        assert_eq!(slow(u64::MAX)[..2], ["a", "b"]);
    }

    #[test]
    fn of_one_client_slow_connections_go_before_idle_ones_and_requests_in_progress_stay() {
        let served = holding(1, Occupation::Served, "served");
        let all = [
            idle(1, 3, "idle"),
            served,
            slow(1, 8, "slow"),
            idle(1, 9500, "young"),
        ];
        assert_eq!(
            closed(MemoryPressure::Slow, u64::MAX, &all),
            ["slow", "idle"]
        );
        assert_eq!(closed(MemoryPressure::Idle, u64::MAX, &all), ["idle"]);
    }

    #[test]
    fn what_a_client_has_with_the_server_counts_as_well() {
        let served = holding(2, Occupation::Served, "served");
        let all = [
            slow(1, 1, "one"),
            slow(1, 1, "two"),
            served,
            served,
            slow(2, 9, "three"),
        ];
        assert_eq!(closed(MemoryPressure::Full, 1, &all), ["three"]);
        assert_eq!(
            closed(MemoryPressure::Full, 200, &all),
            ["three", "two"],
            "who has given up all that he can is passed over"
        );
    }

    /// At another loop: so many connections of 100 bytes that wait for this client.
    fn elsewhere(held_by: &[(u8, u64)]) -> Sums {
        let held = |(client, connections): &(u8, u64)| {
            let slow = Part {
                bytes: 100 * connections,
                connections: *connections,
            };
            Held {
                client: ClientKey::of([192, 0, 2, *client].into()),
                bytes: slow.bytes,
                slow,
                idle: Part::default(),
            }
        };
        Sums::of(held_by.iter().map(held).collect())
    }

    fn beside(
        excess_bytes: u64,
        all: &[Holding<&'static str>],
        elsewhere: &Sums,
    ) -> Relief<&'static str> {
        let shortage = Shortage {
            pressure: MemoryPressure::Slow,
            excess_bytes,
            now: Millis(10_000),
        };
        shortage.choose(all.to_vec(), elsewhere)
    }

    #[test]
    fn who_holds_most_of_all_loops_gives_up_though_another_holds_more_here() {
        let all = [
            slow(1, 1, "one"),
            slow(1, 2, "two"),
            slow(1, 3, "three"),
            slow(2, 8, "few"),
            slow(2, 9, "here"),
        ];
        assert_eq!(beside(100, &all, &Sums::default()).chosen, ["one"]);
        let relief = beside(100, &all, &elsewhere(&[(2, 4)]));
        assert_eq!(relief.chosen, ["few"]);
        assert_eq!(relief.givers, [ClientKey::of([192, 0, 2, 2].into())]);
        assert!(relief.is_enough);
        let bytes = |held: &[Held]| held.iter().map(|held| held.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(&relief.held), [300, 200]);
        assert_eq!(bytes(&relief.left), [300, 100]);
    }

    #[test]
    fn each_loop_frees_its_part_of_what_a_client_holds() {
        let names = ["a", "b", "c", "d", "e", "f"];
        let all: Vec<_> = (0..6)
            .map(|since| slow(1, since, names[since as usize]))
            .collect();
        let count = |excess, held: u64| beside(excess, &all, &elsewhere(&[(1, held)])).chosen.len();
        assert_eq!(count(600, 6), 3);
        assert_eq!(count(600, 18), 2, "a quarter, and what is left of it");
        assert_eq!(count(900, 3), 6, "all that there is");
        assert_eq!(count(600, 0), 6);
    }

    #[test]
    fn where_others_hold_what_is_to_be_freed_nothing_is_closed_here() {
        let all = [slow(1, 1, "quiet"), slow(3, 1, "other")];
        let relief = beside(2_000, &all, &elsewhere(&[(2, 40)]));
        assert!(relief.chosen.is_empty() && relief.is_enough, "{relief:?}");
        assert_eq!(relief.left.len(), 2);
        let relief = beside(4_100, &all, &elsewhere(&[(2, 40)]));
        assert_eq!(relief.chosen.len(), 1, "{relief:?}");
        let relief = beside(9_999, &all, &elsewhere(&[(2, 40)]));
        assert_eq!(relief.chosen.len(), 2);
        assert!(!relief.is_enough);
    }

    #[test]
    fn loops_that_all_choose_free_what_is_to_be_freed_and_hardly_more() {
        // Clients by how many connections they have at each of three loops.
        let clients: [[u64; 3]; 6] = [
            [9, 9, 9],
            [0, 20, 0],
            [3, 0, 3],
            [1, 1, 1],
            [0, 0, 12],
            [7, 0, 1],
        ];
        for excess in [100, 700, 1500, 3000, 5000] {
            let mut given = [0_u64; 6];
            for here in 0..3 {
                let mut all = Vec::new();
                let mut others = Vec::new();
                for (client, counts) in clients.iter().enumerate() {
                    let number = client as u8;
                    (0..counts[here]).for_each(|since| all.push((number, since)));
                    let elsewhere: u64 = counts.iter().sum::<u64>() - counts[here];
                    if elsewhere > 0 {
                        others.push((number, elsewhere));
                    }
                }
                let held = |(client, since): &(u8, u64)| slow(*client, *since, "");
                let all: Vec<_> = all.iter().map(held).collect();
                let relief = beside(excess, &all, &elsewhere(&others));
                let before = |client: usize| clients[client][here] * 100;
                for (client, given) in given.iter_mut().enumerate() {
                    let key = ClientKey::of([192, 0, 2, client as u8].into());
                    let left = relief.left.iter().find(|it| it.client == key);
                    *given += before(client) - left.map_or(0, |it| it.bytes);
                }
            }
            let freed: u64 = given.iter().sum();
            assert!(
                (excess..excess + 1000).contains(&freed),
                "{excess}: {given:?}"
            );
            // Nobody gives up anything while another holds more than he did.
            let all = |client: usize| clients[client].iter().sum::<u64>() * 100;
            let most_left = (0..6).map(|it| all(it) - given[it]).max().unwrap();
            for client in 0..6 {
                let is_above = all(client) + 300 >= most_left;
                assert!(given[client] == 0 || is_above, "{excess}: {given:?}");
            }
        }
    }

    #[test]
    fn many_small_clients_elsewhere_count_as_those_that_are_named() {
        let many = |first: u32, count: u32| {
            let held = |client| Held {
                client: ClientKey::of(std::net::Ipv4Addr::from(client).into()),
                bytes: 100,
                slow: Part {
                    bytes: 100,
                    connections: 1,
                },
                idle: Part::default(),
            };
            Sums::of((first..first + count).map(held).collect())
        };
        let all: Vec<_> = (0..200).map(|client| slow(client, 1, "")).collect();
        let chosen = beside(20_000, &all, &many(1 << 30, 600)).chosen;
        assert!(
            chosen.len() <= 200 && !chosen.is_empty(),
            "{}",
            chosen.len()
        );
        let both = beside(60_000, &all, &many(1 << 30, 600));
        assert!(both.is_enough);
    }
}
