//! The relay: carries packets between two TUN devices as a link would, one of them in the server's
//! network namespace and one in the client's.
//!
//! ```text
//!   namespace of the client                                     namespace of the server
//!   client ── 10.77.0.2, TUN ══►  pipe up  ══► relay ══►  TUN, 10.77.0.1 ── server
//!                             ◄══ pipe down ══
//! ```
//!
//! TCP of both sides is the kernel's own. The namespaces and devices end with the process that holds them.
//! Without root, the process makes a user namespace first, in which it may make networks.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use hdrhistogram::Histogram;
use loadline_base::sorting::sort;
use loadline_sys::clock::monotonic_ns;
use loadline_sys::{Events, Interest, Poller, affinity, network, tun, usage};

use super::namespaces::{CLIENT, PREFIX_BITS, SERVER, settings, steer, take_over};
use super::report::{self, RelayReport};
use crate::journal::{DirectionFacts, LinkFacts};
use crate::link::{Direction, LinkSpec, Pipe};

/// Packets that the kernel keeps until the relay reads them: some bursts of a server with a hundred
/// connections. More is counted as dropped before the relay.
const QUEUE_PACKETS: u16 = 10_000;
/// The largest packet of IP.
const PACKET_BYTES_MAX: usize = 65_536;
/// Packets read from one device before the other, and before those that are due meanwhile.
const BATCH: usize = 64;
/// Buffers that are kept for the next packets: 6 MiB of the usual size.
const SPARE_MAX: usize = 4096;
/// A packet that is later than a minute is counted as that.
const LATE_US_MAX: u64 = 60_000_000;

/// What a relay is to be.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// The link.
    pub link: LinkSpec,
    /// Of what is lost, and of jitter.
    pub seed: u64,
    /// CPUs that work on what the server receives.
    pub server_cpus: Vec<usize>,
    /// CPUs that work on what the client receives.
    pub client_cpus: Vec<usize>,
}

/// Both namespaces, each with its device.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) server: End,
    pub(crate) client: End,
    /// Whether they belong to a user namespace of this process's own.
    pub(crate) has_own_user: bool,
}

/// A namespace with a device.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) namespace: File,
    tun: File,
    name: &'static str,
}

impl Ends {
    /// Makes both. This process, which has to have a single thread, is in one of them from then on.
    ///
    /// # Errors
    /// What this machine does not have or does not allow.
    pub(crate) fn make(server_cpus: &[usize], client_cpus: &[usize]) -> io::Result<Self> {
        let settings = settings();
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("no namespace can be made: {error}"))
        };
        let (first, has_own_user) = match network::enter_new() {
            Ok(first) => (first, false),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                network::enter_new_user().map_err(named)?;
                (network::enter_new().map_err(named)?, true)
            }
            Err(error) => return Err(named(error)),
        };
        let end = |namespace: File, name: &'static str, address: Ipv4Addr, cpus: &[usize]| {
            let tun = tun::open(name)?;
            tun::bring_up("lo")?;
            // Its own packets would use the link, too. Kernels without IPv6 have no such file.
            let quiet = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
            let _ = std::fs::write(quiet, "1");
            tun::set_up(name, address, PREFIX_BITS)?;
            let _ = tun::set_queue(name, QUEUE_PACKETS); // without root it stays shorter
            // Where that is refused, the relay's CPU works on what both sides receive.
            let _ = steer(name, cpus);
            take_over(&settings)?;
            Ok::<End, io::Error>(End {
                namespace,
                tun,
                name,
            })
        };
        let server = end(first, "server", SERVER, server_cpus)?;
        let second = network::enter_new().map_err(named)?;
        let client = end(second, "client", CLIENT, client_cpus)?;
        Ok(Self {
            server,
            client,
            has_own_user,
        })
    }

    /// Carries packets until `stop` is readable.
    ///
    /// # Errors
    /// The kernel refuses what it granted before.
    pub(crate) fn relay(
        &self,
        link: &LinkSpec,
        seed: u64,
        stop: BorrowedFd<'_>,
    ) -> io::Result<LinkFacts> {
        let of_thread = usage::thread_cpu();
        // Others would delay it. Where it may not come first, it asks for short slices.
        if usage::run_before_others().is_err() {
            let _ = usage::wake_promptly();
        }
        let _ = usage::sleep_precisely(); // else it is late by up to 50 us more
        let mut forwarders = [
            Forwarder::new(&self.client, &self.server, (&link.up, link), seed),
            Forwarder::new(&self.server, &self.client, (&link.down, link), !seed),
        ];
        forward(&mut forwarders, stop)?;
        let [up, down] = forwarders;
        Ok(LinkFacts {
            settings: link.to_string(),
            up: up.facts(),
            down: down.facts(),
            cpu_s: (usage::thread_cpu() - of_thread).as_secs_f64(),
        })
    }
}

const STOP: u64 = 2;

fn forward(forwarders: &mut [Forwarder<'_>; 2], stop: BorrowedFd<'_>) -> io::Result<()> {
    let (poller, mut events) = (Poller::new()?, Events::new());
    for (bits, forwarder) in (0..).zip(forwarders.iter()) {
        poller.add(&forwarder.from.tun, bits, Interest::Batches)?;
    }
    poller.add(stop, STOP, Interest::Batches)?;
    let mut packet = vec![0; PACKET_BYTES_MAX];
    let mut spare = Vec::new();
    loop {
        for forwarder in forwarders.iter_mut() {
            forwarder.deliver(&mut spare);
        }
        let due_ns = forwarders
            .iter()
            .filter_map(|forwarder| forwarder.pipe.due_ns())
            .min();
        let rest_ns = due_ns.map(|due_ns| due_ns.saturating_sub(monotonic_ns()));
        poller.wait_ns(&mut events, rest_ns)?;
        let now_ns = monotonic_ns();
        for event in events.iter() {
            match event.bits {
                STOP => return Ok(()),
                bits => {
                    forwarders[usize::from(bits != 0)].receive(now_ns, &mut packet, &mut spare)?
                }
            }
        }
    }
}

/// Forwards packets in one direction between two devices.
struct Forwarder<'a> {
    from: &'a End,
    to: &'a End,
    pipe: Pipe<Vec<u8>>,
    late_us: Histogram<u64>,
    refused: u64,
}

impl<'a> Forwarder<'a> {
    fn new(
        from: &'a End,
        to: &'a End,
        (direction, link): (&Direction, &LinkSpec),
        seed: u64,
    ) -> Self {
        Self {
            from,
            to,
            pipe: Pipe::new(direction, link.buffer_bytes(direction), seed),
            late_us: Histogram::new_with_bounds(1, LATE_US_MAX, 3)
                .expect("bounds that histograms take"),
            refused: 0,
        }
    }

    /// Writes what is due.
    fn deliver(&mut self, spare: &mut Vec<Vec<u8>>) {
        loop {
            let now_ns = monotonic_ns();
            let Some((packet, due_ns)) = self.pipe.take(now_ns) else {
                return;
            };
            self.late_us.saturating_record((now_ns - due_ns) / 1000);
            // A receiver that has no memory for it loses it, as on any network.
            if (&self.to.tun).write(&packet).is_err() {
                self.refused += 1;
            }
            keep(spare, packet);
        }
    }

    /// Reads what is there.
    fn receive(
        &mut self,
        now_ns: u64,
        packet: &mut [u8],
        spare: &mut Vec<Vec<u8>>,
    ) -> io::Result<()> {
        for _ in 0..BATCH {
            let read = match (&self.from.tun).read(packet) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let packet = &packet[..read];
            // Of version 4; both sides have no other addresses.
            if packet.first().is_none_or(|first| first >> 4 != 4) {
                continue;
            }
            let mut kept = spare.pop().unwrap_or_default();
            kept.clear();
            kept.extend_from_slice(packet);
            if let Some(packet) = self.pipe.put(now_ns, read, kept) {
                keep(spare, packet);
            }
        }
        Ok(())
    }

    fn facts(&self) -> DirectionFacts {
        let late = |share: f64| match self.late_us.is_empty() {
            true => None,
            false => Some(self.late_us.value_at_quantile(share)),
        };
        DirectionFacts {
            refused: self.refused + self.from.dropped().unwrap_or(0),
            late_p50_us: late(0.5),
            late_p99_us: late(0.99),
            late_max_us: late(1.0),
            ..self.pipe.counts()
        }
    }
}

impl End {
    /// Packets that the kernel did not keep for the relay.
    fn dropped(&self) -> Option<u64> {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
        sent_and_dropped(&network::inside(&self.namespace, read).ok()?, self.name)
    }
}

/// From `/proc/net/dev`: eight counters of what was received, then bytes, packets, errors and drops of what
/// was sent.
fn sent_and_dropped(text: &str, name: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, counters) = lines.into_iter().find(|(of, _)| of.trim() == name)?;
    counters.split_ascii_whitespace().nth(11)?.parse().ok()
}

fn keep(spare: &mut Vec<Vec<u8>>, packet: Vec<u8>) {
    if spare.len() < SPARE_MAX {
        spare.push(packet);
    }
}

/// The process of a relay: reports on standard output where its namespaces are, carries packets until standard
/// input ends or has something, and reports what it has carried.
///
/// # Errors
/// Devices or namespaces cannot be made, or a device fails. Standard output has the error, too.
pub fn relay(options: &RelayOptions) -> io::Result<()> {
    let done = run(options);
    if let Err(error) = &done {
        report::send(&RelayReport::Failed(error.to_string()));
    }
    done
}

fn run(options: &RelayOptions) -> io::Result<()> {
    let mut cpus = [options.server_cpus.as_slice(), &options.client_cpus].concat();
    sort(&mut cpus);
    cpus.dedup();
    if !cpus.is_empty() {
        affinity::pin_thread(&cpus)?;
    }
    let ends = Ends::make(&options.server_cpus, &options.client_cpus)?;
    report::send(&RelayReport::Ready {
        has_own_user: ends.has_own_user,
        server: ends.server.namespace.as_raw_fd(),
        client: ends.client.namespace.as_raw_fd(),
    });
    let facts = ends.relay(&options.link, options.seed, io::stdin().as_fd())?;
    report::send(&RelayReport::Ended(facts));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_dropped_is_read() {
        let text = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13\n\
                    server:  0 0 0 0 0 0 0 0 99 9 0 42 0 0 0 0\n";
        assert_eq!(sent_and_dropped(text, "server"), Some(42));
        assert_eq!(sent_and_dropped(text, "client"), None);
    }
}
