"""Two or more servers that stay up, loaded for a second each in turn: small differences.

  ./x bench slices small-1000 ceil-epoll reactor proactor
  ./x bench slices small-64 'cmd:old:old/loadline serve {root} --listen 127.0.0.1:{port}' reactor
  ./x bench slices small-64 reactor reactor       A/A: what is no difference
  ./x bench slices h2-32 h2o-tls nginx-tls reactor-tls    HTTP/2: 32 streams on each connection

A trial of the laboratory lasts for seconds and starts each server anew, and the speed of a shared
machine drifts in that time by more than two builds of one server differ. Here the servers
stay, the slices are short (A B C C B A ...), and the CPU time that a request took is read from the
scheduler in nanoseconds. What is printed is the median of the ratios to the first server in each
round of slices, with a 95 % bootstrap interval of that median: an interval that holds 1 says that
the two cannot be distinguished.

Where a process happens to lie in memory is its own for as long as it runs. With thousands of
connections that is more than the difference between two builds: with `--starts` the servers are
started anew, and the median of each start's slices is one value.
"""

import argparse
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from load import h2load, wrk
from page import middle_of_slices, table
from peers import SCENARIOS, Scenario, Server, pick_server
from processes import cpu_seconds, tree
from rig import Rig, options, rigged


def arguments() -> argparse.Namespace:
    p = options(__doc__, "./x bench slices", server_cores="0", client_cores="1")
    o = p.add_argument
    keep_alive = [name for name, sc in SCENARIOS.items() if not sc.idle]
    o("scenario", choices=keep_alive, help="what is asked: " + ", ".join(keep_alive))
    which = "of lab/compare.toml, or cmd:LABEL:COMMAND; the first is what others are compared with"
    o("servers", nargs="+", metavar="SERVER", help=which)
    o("-n", "--slices", type=int, default=20, help="for each server (default 20)")
    o("-d", "--seconds", type=int, default=1, help="of each slice (default 1)")
    o("-s", "--starts", type=int, default=1, help="of the servers, with slices after each (default 1)")
    return p.parse_args()


def cpu_ns(root: int) -> int:
    """CPU time of all threads of a process and its children, by the scheduler."""
    total = 0
    for pid, _ in tree(root):
        for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total += int(file.read_text().split()[0])
            except (OSError, ValueError):
                pass  # a thread that has ended meanwhile
    return total


class CpuTime:
    """What a server uses from now on."""

    def __init__(self, root: int):
        self.root = root
        self.ns, self.seconds = cpu_ns(root), cpu_seconds(root)

    def us(self) -> float:
        """Of threads that have ended only the process's own count knows, in hundredths of a second:
        it is taken where it says clearly more."""
        exact = (cpu_ns(self.root) - self.ns) / 1e3
        coarse = (cpu_seconds(self.root) - self.seconds) * 1e6
        return coarse if coarse > 1.05 * exact + 20_000 else exact


@dataclass(frozen=True)
class Slice:
    """What one server did in one turn."""

    name: str
    us: float  # its CPU time for a request
    run: dict  # what the client says


def named_apart(servers: list[Server]) -> list[tuple[str, Server]]:
    """A server that is given twice is its own A/A."""
    names: list[str] = []
    for server in servers:
        again = names.count(server.name) + sum(n.startswith(f"{server.name} (") for n in names)
        names.append(f"{server.name} ({again + 1})" if again else server.name)
    return list(zip(names, servers))


def slices(
    rig: Rig, servers: list[Server], sc: Scenario, count: int, seconds: int, start: int = 0
) -> Iterator[Slice]:
    """All servers in turn, forwards and backwards; the first turn, which warms them up, not shown."""
    with ExitStack() as stack:
        named = named_apart(servers)
        first = start % len(named)  # each start begins with another server: an edge has two turns on end
        named = named[first:] + named[:first]
        up = [(name, *stack.enter_context(rig.running(s, sc))) for name, s in named]
        for number in range(-1, count):
            for name, proc, url in up if number % 2 == 0 else up[::-1]:
                cpu = CpuTime(proc.pid)
                if sc.streams:
                    run = h2load(url, sc, seconds, rig.client_cores)
                else:
                    run = wrk(url, sc, seconds * sc.stretch, rig.client_cores, rig.script)
                us = cpu.us() / max(run["requests"], 1)
                if number >= 0:
                    yield Slice(name, us, run)


def shown(what: str, starts: list[dict[str, list[float]]]) -> str:
    """A table: each server, as a ratio to the first. Of several starts each has one value."""
    first, *_ = starts[0]
    body = []
    for name in starts[0]:
        own = [us for start in starts for us in start[name]]
        by_start = [[base / us for base, us in zip(it[first], it[name])] for it in starts]
        ratios = by_start[0] if len(starts) == 1 else [statistics.median(it) for it in by_start]
        body.append([name, f"{statistics.median(own):.2f}", middle_of_slices(ratios)])
    return table([what, "server CPU us a request", f"requests per CPU second, x {first}"], body)


def main() -> None:
    args = arguments()
    servers = [pick_server(name) for name in args.servers]
    starts: list[dict[str, list[float]]] = []
    of_each = SCENARIOS[args.scenario], args.slices, args.seconds
    with rigged(args) as rig:
        for start in range(args.starts):
            us: dict[str, list[float]] = {name: [] for name, _ in named_apart(servers)}
            for found in slices(rig, servers, *of_each, start):
                us[found.name].append(found.us)
            starts.append(us)
    print(shown(args.scenario, starts))


if __name__ == "__main__":
    main()
