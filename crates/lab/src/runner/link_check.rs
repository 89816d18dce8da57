//! A link against its own settings: echo requests, as many packets as it takes, and a bulk transfer.
//!
//! ```text
//!   ping             client ──► server ──► client    round trip, loss of both directions
//!   datagrams (UDP)  more than the bandwidth          what comes through, in each direction
//!   bulk (TCP)       one connection                   what it makes of the link, in each direction
//! ```
//!
//! What TCP makes of a link is its own matter: it sends less where packets are lost. So a bulk transfer
//! must not exceed the bandwidth, and that is all.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use loadline_capacity::stats::{median, quantile};
use loadline_sys::echo::EchoSocket;
use loadline_sys::network::inside;
use loadline_sys::{Waker, affinity};
use serde::Serialize;

use super::error::RunnerError;
use super::namespaces::{CLIENT, SERVER};
use super::relay::{End, Ends};
use crate::journal::LinkFacts;
use crate::link::{Direction, LinkSpec};

/// An echo request with its headers of IP and ICMP.
const ECHO_BYTES: f64 = 84.0;
/// Pauses between echo requests, unless a narrow link takes longer for one.
const ECHO_EVERY: Duration = Duration::from_millis(10);
/// What a datagram carries so that the packet is a full one, and that packet.
const DATAGRAM_BYTES: usize = 1472;
const PACKET_BYTES: f64 = 1500.0;
/// Datagrams are sent at that multiple of the bandwidth: a thread that is held up for a while keeps the
/// buffer filled all the same.
const OVERLOAD: f64 = 2.0;
/// Parts of a measurement, whose median counts: in some of them this machine may have been held up.
const PARTS: usize = 10;
/// Beyond it, a thread of this check sends or receives too slowly to say whether the bandwidth is there.
const DATAGRAMS_BPS_MAX: f64 = 200e6;
/// Beyond the delays and what waits in buffers: a machine that is busy, and TCP's retransmissions.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How far a round trip may be off: a busy machine is late by some milliseconds.
const ROUND_TRIP_OFF_MS: f64 = 2.0;
const ROUND_TRIP_OFF: f64 = 0.02;
/// How far what comes through may be off.
const RATE_OFF: f64 = 0.03;
/// Losses are chance: so many standard deviations are.
const DEVIATIONS: f64 = 4.0;

/// What a link was seen to be.
#[derive(Clone, Debug, Serialize)]
pub struct LinkCheck {
    /// What was measured and what the settings want.
    pub rows: Vec<LinkCheckRow>,
    /// What the relay counted.
    pub link: LinkFacts,
    /// How TCP decided how much to send: "bbr", "cubic".
    pub congestion_control: String,
}

/// One property of the link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkCheckRow {
    /// "ping, median", "datagrams down".
    pub name: String,
    /// "ms", "%", "Mbit/s".
    pub unit: &'static str,
    /// By the settings; `None`: without limit.
    pub wanted: Option<f64>,
    /// As it was.
    pub measured: f64,
    /// Whether that is as it should be; `None`: nothing is said of it.
    pub holds: Option<bool>,
}

impl LinkCheck {
    /// Whether all is as set.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.holds != Some(false))
    }
}

/// Makes a link and measures it, each property for so long. This process has to have a single thread,
/// and is in a network of the link's from then on.
///
/// # Errors
/// The machine does not allow it, or a measurement fails.
pub fn check_link(link: &LinkSpec, seed: u64, each: Duration) -> Result<LinkCheck, RunnerError> {
    let cpus = affinity::cpus_allowed();
    let ends = Ends::make(&cpus, &cpus).map_err(|error| {
        RunnerError::from(format!(
            "links are not testable here: {error}; right would be a /dev/net/tun that may be opened, and \
             root or user namespaces for all users"
        ))
    })?;
    let failed = |error: io::Error| RunnerError::from(format!("the link failed: {error}"));
    let stop = Waker::new().map_err(failed)?;
    thread::scope(|scope| {
        let relay = scope.spawn(|| ends.relay(link, seed, stop.as_fd()));
        let rows = Check {
            link,
            ends: &ends,
            each,
        }
        .rows();
        stop.wake();
        let facts = joined(relay).map_err(failed)?;
        Ok(LinkCheck {
            rows: rows.map_err(failed)?,
            link: facts,
            congestion_control: congestion_control(&ends.server.namespace).unwrap_or_default(),
        })
    })
}

fn congestion_control(namespace: &File) -> io::Result<String> {
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    let name = inside(namespace, || std::fs::read_to_string(path))?;
    Ok(name.trim().to_owned())
}

struct Check<'a> {
    link: &'a LinkSpec,
    ends: &'a Ends,
    each: Duration,
}

/// What is sent in one direction over the link.
struct Flow<'a> {
    name: &'static str,
    direction: &'a Direction,
    from: &'a End,
    to: &'a End,
    address: Ipv4Addr,
}

impl Check<'_> {
    fn rows(&self) -> io::Result<Vec<LinkCheckRow>> {
        let mut rows = self.pings()?;
        let flows = [
            Flow {
                name: "down",
                direction: &self.link.down,
                from: &self.ends.server,
                to: &self.ends.client,
                address: CLIENT,
            },
            Flow {
                name: "up",
                direction: &self.link.up,
                from: &self.ends.client,
                to: &self.ends.server,
                address: SERVER,
            },
        ];
        for flow in &flows {
            if let Some(bps) = flow.direction.bandwidth_bps {
                rows.push(self.datagrams(flow, bps as f64)?);
            }
        }
        for flow in &flows {
            rows.push(self.bulk(flow)?);
        }
        Ok(rows)
    }

    /// How long the last packet may take.
    fn timeout(&self) -> Duration {
        let way = |direction: &Direction| {
            let waiting = match direction.bandwidth_bps {
                Some(bps) => self.link.buffer_bytes(direction) as f64 * 8.0 / bps as f64,
                None => 0.0,
            };
            direction.delay + direction.jitter + Duration::from_secs_f64(waiting)
        };
        TIMEOUT + way(&self.link.up) + way(&self.link.down)
    }

    fn pings(&self) -> io::Result<Vec<LinkCheckRow>> {
        let [up_s, down_s] = [&self.link.up, &self.link.down].map(|it| {
            it.bandwidth_bps
                .map_or(0.0, |bps| ECHO_BYTES * 8.0 / bps as f64)
        });
        let every = ECHO_EVERY.max(Duration::from_secs_f64(up_s.max(down_s) * 4.0));
        let count = (self.each.as_secs_f64() / every.as_secs_f64())
            .ceil()
            .min(60_000.0) as u16;
        let times = (every * u32::from(count), self.timeout());
        let (sent_ms, received_ms) = inside(&self.ends.client.namespace, || {
            let identifier = std::process::id() as u16; // its low half distinguishes it well enough
            let socket = EchoSocket::open(identifier, ECHO_EVERY)?;
            let receiver = socket.try_clone()?;
            let began = Instant::now();
            thread::scope(|scope| {
                let received = scope.spawn(move || replies(&receiver, count, began, times));
                let send = |sequence: u16| {
                    sleep_until(began + every * u32::from(sequence));
                    let at_ms = began.elapsed().as_secs_f64() * 1e3;
                    socket.send(SERVER, sequence).map(|()| at_ms)
                };
                let sent = (0..count).map(send).collect::<io::Result<Vec<f64>>>()?;
                Ok((sent, joined(received)?))
            })
        })?;
        let both = sent_ms.iter().zip(received_ms);
        let times_ms: Vec<f64> = both
            .filter_map(|(sent_ms, received_ms)| Some(received_ms? - sent_ms))
            .collect();
        let wanted_ms = (self.link.round_trip().as_secs_f64() + up_s + down_s) * 1e3;
        Ok(self.ping_rows(&times_ms, f64::from(count), wanted_ms))
    }

    fn ping_rows(&self, times_ms: &[f64], count: f64, wanted_ms: f64) -> Vec<LinkCheckRow> {
        let median_ms = median(times_ms).unwrap_or(f64::INFINITY);
        let off_ms = (wanted_ms * ROUND_TRIP_OFF).max(ROUND_TRIP_OFF_MS);
        let lost = 1.0 - times_ms.len() as f64 / count;
        let loss = 1.0 - (1.0 - self.link.up.loss) * (1.0 - self.link.down.loss);
        vec![
            LinkCheckRow {
                name: "ping, median".to_owned(),
                unit: "ms",
                wanted: Some(wanted_ms),
                measured: median_ms,
                holds: Some((median_ms - wanted_ms).abs() <= off_ms),
            },
            LinkCheckRow {
                name: "ping, 99 %".to_owned(),
                unit: "ms",
                wanted: None,
                measured: quantile(times_ms, 0.99).unwrap_or(f64::INFINITY),
                holds: None,
            },
            LinkCheckRow {
                name: "ping, lost".to_owned(),
                unit: "%",
                wanted: Some(loss * 100.0),
                measured: lost * 100.0,
                holds: Some((lost - loss).abs() <= chance(loss, count)),
            },
        ]
    }

    /// More packets than the link takes: what comes through is its bandwidth, without what it loses.
    fn datagrams(&self, flow: &Flow<'_>, bps: f64) -> io::Result<LinkCheckRow> {
        let receiver = inside(&flow.to.namespace, || UdpSocket::bind((flow.address, 0)))?;
        receiver.set_read_timeout(Some(self.timeout()))?;
        let to = receiver.local_addr()?;
        let every_s = PACKET_BYTES * 8.0 / (bps * OVERLOAD);
        // A narrow link takes longer than that for the fewest packets that have a rate.
        let count = (self.each.as_secs_f64() / every_s).ceil().max(10.0) as u32;
        let window = Duration::from_secs_f64(every_s * f64::from(count));
        let times_s = thread::scope(|scope| {
            let received = scope.spawn(|| arrivals(&receiver, window));
            inside(&flow.from.namespace, || {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
                let began = Instant::now();
                for index in 0..count {
                    sleep_until(began + Duration::from_secs_f64(every_s * f64::from(index)));
                    // A queue of this machine that is full is what was wanted.
                    let _ = socket.send_to(&[0; DATAGRAM_BYTES], to);
                }
                Ok(())
            })?;
            joined(received)
        })?;
        let rate = median_bps(&times_s);
        let wanted = bps * (1.0 - flow.direction.loss);
        let off = RATE_OFF + chance(flow.direction.loss, (times_s.len() / PARTS) as f64);
        Ok(LinkCheckRow {
            name: format!("datagrams {}", flow.name),
            unit: "Mbit/s",
            wanted: Some(wanted / 1e6),
            measured: rate / 1e6,
            holds: (bps <= DATAGRAMS_BPS_MAX).then(|| (rate / wanted - 1.0).abs() <= off),
        })
    }

    fn bulk(&self, flow: &Flow<'_>) -> io::Result<LinkCheckRow> {
        let listener = inside(&flow.to.namespace, || TcpListener::bind((flow.address, 0)))?;
        let to = listener.local_addr()?;
        let bps = thread::scope(|scope| {
            let received = scope.spawn(|| {
                let (stream, _) = listener.accept()?;
                stream.set_read_timeout(Some(self.timeout()))?;
                received_bps(stream, self.each)
            });
            let sent = inside(&flow.from.namespace, || {
                let mut stream = TcpStream::connect_timeout(&to, self.timeout())?;
                stream.set_write_timeout(Some(self.timeout()))?;
                let (chunk, until) = (vec![0; 16 << 10], Instant::now() + self.each);
                // A receiver that has seen enough ends it.
                while Instant::now() < until && stream.write_all(&chunk).is_ok() {}
                let _ = stream.shutdown(Shutdown::Both);
                Ok(())
            });
            if let Err(error) = sent {
                // Nobody may have come: so that the other thread is not left waiting.
                let _ = inside(&flow.to.namespace, || TcpStream::connect(to));
                return Err(error);
            }
            joined(received)
        })?;
        let most = flow.direction.bandwidth_bps.map(|bps| bps as f64);
        Ok(LinkCheckRow {
            name: format!("bulk {}", flow.name),
            unit: "Mbit/s",
            wanted: most.map(|most| most / 1e6),
            measured: bps / 1e6,
            holds: most.map(|most| bps <= most * (1.0 + RATE_OFF)),
        })
    }
}

/// By how much a share that was seen in so many cases may be off by chance.
fn chance(share: f64, cases: f64) -> f64 {
    match share > 0.0 {
        true => DEVIATIONS * (share * (1.0 - share) / cases.max(1.0)).sqrt() + 1.0 / cases.max(1.0),
        false => 0.0,
    }
}

/// When replies came after the beginning, in milliseconds, by the number of their request. Those that are
/// lost do not come: a while without any ends it, once the last request has been sent.
fn replies(
    socket: &EchoSocket,
    count: u16,
    began: Instant,
    (sent_by, timeout): (Duration, Duration),
) -> io::Result<Vec<Option<f64>>> {
    let mut times_ms = vec![None; usize::from(count)];
    let (mut missing, mut last) = (count, began);
    while missing > 0 && (began.elapsed() < sent_by || last.elapsed() < timeout) {
        let reply = socket.receive()?;
        let now = Instant::now();
        let place = reply.and_then(|sequence| times_ms.get_mut(usize::from(sequence)));
        if let Some(place @ None) = place {
            *place = Some((now - began).as_secs_f64() * 1e3);
            (missing, last) = (missing - 1, now);
        }
    }
    Ok(times_ms)
}

/// When datagrams came in the time from the first on, in seconds.
fn arrivals(socket: &UdpSocket, window: Duration) -> io::Result<Vec<f64>> {
    let mut datagram = [0; 2048];
    let is_late = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        )
    };
    let (mut times_s, mut first) = (Vec::new(), None);
    loop {
        match socket.recv(&mut datagram) {
            Ok(_) => {}
            Err(error) if is_late(&error) => return Ok(times_s),
            Err(error) => return Err(error),
        }
        let now = Instant::now();
        let since = now - *first.get_or_insert(now);
        if since > window {
            return Ok(times_s);
        }
        times_s.push(since.as_secs_f64());
    }
}

/// Bits a second of full packets that came at these times: the median of parts with as many packets each.
fn median_bps(times_s: &[f64]) -> f64 {
    let packets = (times_s.len() / PARTS).max(1);
    let marks: Vec<f64> = times_s.iter().step_by(packets).copied().collect();
    let rates: Vec<f64> = marks
        .windows(2)
        .map(|pair| packets as f64 * PACKET_BYTES * 8.0 / (pair[1] - pair[0]))
        .collect();
    median(&rates).unwrap_or(0.0)
}

/// Bits a second of what came behind the first piece of it, which waited for nothing before it. A part of
/// the time would not do: what waits for a packet that is sent again comes all at once.
fn received_bps(mut stream: TcpStream, each: Duration) -> io::Result<f64> {
    let mut chunk = vec![0; 64 << 10];
    let (mut first, mut last, mut bytes) = (None, Instant::now(), 0);
    loop {
        let read = stream.read(&mut chunk)?;
        let now = Instant::now();
        let Some(first) = first else {
            first = (read > 0).then_some(now);
            match first {
                Some(_) => continue,
                None => break,
            }
        };
        if read == 0 || now - first > each {
            break;
        }
        (bytes, last) = (bytes + read, now);
    }
    let seconds = first.map_or(0.0, |first| (last - first).as_secs_f64());
    Ok(match bytes {
        0 => 0.0,
        bytes => bytes as f64 * 8.0 / seconds,
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    let ended = thread.join();
    ended.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

fn sleep_until(time: Instant) {
    thread::sleep(time.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_wider_with_fewer_cases_and_nothing_without_loss() {
        assert!(chance(0.0, 100.0) == 0.0);
        assert!(chance(0.01, 100.0) > chance(0.01, 10_000.0));
        assert!(chance(0.5, 0.0).is_finite());
    }

    #[test]
    fn a_machine_that_is_held_up_for_a_while_changes_no_rate() {
        // A packet of 12,000 bits each millisecond, and a second of nothing in the middle.
        let at = |index: u32| f64::from(index) / 1e3 + if index > 500 { 1.0 } else { 0.0 };
        let times_s: Vec<f64> = (0..1000).map(at).collect();
        assert!((median_bps(&times_s) / 12e6 - 1.0).abs() < 1e-6);
        assert_eq!([median_bps(&[]), median_bps(&[0.0])], [0.0, 0.0]);
    }

    #[test]
    fn one_row_that_does_not_hold_is_enough() {
        let row = |holds| LinkCheckRow {
            name: "ping".to_owned(),
            unit: "ms",
            wanted: None,
            measured: 1.0,
            holds,
        };
        let check = |rows: Vec<LinkCheckRow>| LinkCheck {
            rows,
            link: LinkFacts::default(),
            congestion_control: String::new(),
        };
        assert!(check(vec![row(None), row(Some(true))]).holds());
        assert!(!check(vec![row(Some(true)), row(Some(false))]).holds());
    }
}
