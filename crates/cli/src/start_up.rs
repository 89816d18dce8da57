//! The start-up lines: what was found, what was chosen, and where to look.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use loadline_server::{
    Accept, Architecture, Balance, ListenAddr, Parsing, Queue, SocketIo, WorkerPools,
};

use crate::flags::high::{Machine, Plan};
use crate::flags::memory::size;
use loadline_spec::serve::{Listen, RunningSpec};
use loadline_spec::values::Auto;

/// The lines, each ending in a newline.
pub(crate) fn text(
    plan: &Plan,
    machine: &Machine,
    root: &Path,
    addresses: &[ListenAddr],
) -> String {
    let (version, root) = (env!("CARGO_PKG_VERSION"), root.display());
    let (found, chosen) = (found(machine), chosen(plan));
    let mut text = format!("loadline {version}: found {found}; chose {chosen}\n");
    if let Some(why) = &plan.fallback {
        text += &format!("loadline: the reactor instead of the proactor: {why}\n");
    }
    if let Some(warning) = &plan.memory_warning {
        text += &format!("loadline: {warning}\n");
    }
    for (address, listen) in addresses.iter().zip(&plan.flags.listen) {
        let (base, note) = url(address, scheme(listen));
        let slash = match address {
            ListenAddr::Tcp(_) => "/",
            ListenAddr::Unix(_) => "",
        };
        text += &format!("loadline: serving {root} on {base}{slash}{note}\n");
    }
    text
}

/// Where the server's own pages are, if not at the addresses that it serves.
pub(crate) fn admin_text(
    running: &RunningSpec,
    addresses: &[ListenAddr],
    status_path: &str,
) -> String {
    let line = |(address, listen): (&ListenAddr, &Listen)| {
        let (base, note) = url(address, scheme(listen));
        let comma = match address {
            ListenAddr::Tcp(_) => "",
            ListenAddr::Unix(_) => ", ",
        };
        format!("loadline: status page at {base}{comma}{status_path}{note}\n")
    };
    let addresses = addresses.iter().zip(&running.admin_listen);
    addresses.map(line).collect()
}

/// Prints the lines once what only starting up needs is given back: whoever has waited for them may measure from
/// then on what the server takes.
pub(crate) fn announce(lines: &str, release_memory: impl FnOnce(), print: impl FnOnce(&str)) {
    release_memory();
    print(lines);
}

fn found(machine: &Machine) -> String {
    let quota = match machine.budget.quota_milli {
        None => "no quota".to_owned(),
        Some(milli) => format!("a quota of {}.{:03}", milli / 1000, milli % 1000),
    };
    let affinity = machine.budget.affinity;
    let descriptors = match machine.descriptors_max {
        usize::MAX => "no descriptor limit".to_owned(),
        most => format!("{most} descriptors"),
    };
    let memory = machine.memory.map_or(String::new(), |memory| {
        let group = memory.group_bytes.map_or("", |_| " in its control group");
        format!(", {} of memory{group}", size(memory.bytes()))
    });
    format!(
        "{} ({affinity} by affinity, {quota}) and {descriptors}{memory}",
        count(machine.budget.cpus(), "CPU")
    )
}

/// What was chosen: "2 loops, 4 workers, ..."
pub(crate) fn chosen(plan: &Plan) -> String {
    let options = &plan.options;
    let mut parts = match options.architecture {
        Architecture::Sequential => vec!["one thread".to_owned()],
        Architecture::ThreadPerConnection => vec![],
        Architecture::ThreadPool => {
            vec![
                match options.changing_sizes() {
                    Some(range) => format!("{range} threads"),
                    None => count(options.threads, "thread"),
                },
                format!("queue of {}", options.queue_max),
            ]
        }
        Architecture::Reactor | Architecture::Proactor => {
            let own = match options.worker_pools {
                WorkerPools::PerLoop if options.workers > 0 => " for each",
                _ => "",
            };
            let workers = match options.changing_sizes() {
                Some(range) => format!("{range} workers{own}"),
                None => format!("{}{own}", count(options.workers, "worker")),
            };
            let mut parts = vec![count(options.loops, "loop"), workers];
            if options.workers > 0 {
                let each = match options.queue {
                    Queue::Shared => "",
                    Queue::WorkStealing => " for each kind of job",
                };
                let queue = options.queue.name();
                parts.push(format!("{queue} queue of {}{each}", options.queue_max));
            }
            parts.push(match options.accept {
                Accept::Handoff => format!("handoff by {}", options.balance.name()),
                accept => format!("{} accept", accept.name()),
            });
            if options.accept != Accept::Handoff && options.balance == Balance::Adaptive {
                parts.push("adaptive balance".to_owned());
            }
            if options.socket_io == SocketIo::Worker {
                parts.push("sockets read and written by workers".to_owned());
            }
            if options.parse == Parsing::Worker {
                parts.push("requests parsed by workers".to_owned());
            }
            parts
        }
    };
    let has_cap = match options.architecture {
        Architecture::Sequential => false,
        Architecture::ThreadPool => options.latency_goal.is_some(),
        _ => true,
    };
    if has_cap {
        let connections = count(options.connections_max, "connection");
        parts.push(format!("at most {connections}"));
    }
    if let Some(bytes) = plan.memory_bytes_max {
        parts.push(format!("at most {}", size(bytes)));
    }
    let auto = match plan.flags.architecture.architecture.0 {
        Auto::Auto => " (auto)",
        Auto::Given(_) => "",
    };
    let (name, parts) = (options.architecture.name(), parts.join(", "));
    format!("{name}{auto}: {parts}")
}

/// "1 loop", "2 loops".
pub(crate) fn count(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// An address as a browser takes it, without a path: of all addresses of the machine, one that leads
/// here. And what is to be said about it.
fn url(address: &ListenAddr, (scheme, port): Scheme) -> (String, &'static str) {
    let ListenAddr::Tcp(tcp) = address else {
        return (address.to_string(), "");
    };
    let (ip, note) = match tcp.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => {
            (Ipv4Addr::LOCALHOST.into(), " (every IPv4 address)")
        }
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST.into(), " (every address)"),
        ip => (ip, ""),
    };
    let shown = SocketAddr::new(ip, tcp.port());
    let shown = shown.to_string();
    let host = shown.strip_suffix(port).unwrap_or(&shown);
    (format!("{scheme}://{host}"), note)
}

/// A scheme, and the port that a URL need not name.
type Scheme = (&'static str, &'static str);

const HTTP: Scheme = ("http", ":80");
const HTTPS: Scheme = ("https", ":443");

fn scheme(listen: &Listen) -> Scheme {
    match listen {
        Listen::Https(_) => HTTPS,
        Listen::Tcp(_) | Listen::Unix(_) => HTTP,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// It was done beside the first requests, and took from the server again what they had read of the program.
    #[test]
    fn memory_is_given_back_before_the_server_says_that_it_serves() {
        let done = RefCell::new(Vec::new());
        let release_memory = || done.borrow_mut().push("given back".to_owned());
        let print = |lines: &str| done.borrow_mut().push(lines.to_owned());
        announce("serving\n", release_memory, print);
        assert_eq!(done.into_inner(), ["given back", "serving\n"]);
    }

    #[test]
    fn urls() {
        for (address, expected) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("0.0.0.0:81", "http://127.0.0.1:81 (every IPv4 address)"),
            ("[::]:8080", "http://[::1]:8080 (every address)"),
            ("10.0.0.1:80", "http://10.0.0.1"),
            ("[::1]:80", "http://[::1]"),
        ] {
            let (base, note) = url(&ListenAddr::Tcp(address.parse().unwrap()), HTTP);
            assert_eq!(base + note, expected);
        }
        assert_eq!(url(&ListenAddr::Unix("/a".into()), HTTP).0, "unix:/a");
        for (address, expected) in [
            ("[::1]:443", "https://[::1]"),
            ("10.0.0.1:80", "https://10.0.0.1:80"),
        ] {
            let address = ListenAddr::Tcp(address.parse().unwrap());
            assert_eq!(url(&address, HTTPS).0, expected);
        }
    }
}
