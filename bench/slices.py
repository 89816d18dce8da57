"""Two or more servers that stay up, loaded for a second each in turn: small differences.

  ./x bench slices small-1000 ceil-epoll reactor proactor
  ./x bench slices small-64 'cmd:old:old/loadline serve {root} --listen 127.0.0.1:{port}' reactor

A round of `./x bench goals` lasts for seconds and starts each server anew, and the speed of a
shared machine drifts in that time by more than two builds of one server differ. Here the servers
stay, the slices are short (A B C C B A ...), and the CPU time that a request took is read from the
scheduler in nanoseconds. What is printed is the median of the ratios to the first server in each
round of slices, with a 95 % bootstrap interval of that median: an interval that holds 1 says that
the two cannot be told apart.
"""

import argparse
import random
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from load import wrk
from peers import SCENARIOS, Scenario, Server, pick_server
from processes import become_reaper, cpu_seconds, tree
from rig import Rig

RESAMPLES = 5000


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(
        prog="./x bench slices",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    o = p.add_argument
    keep_alive = [name for name, sc in SCENARIOS.items() if not sc.idle]
    o("scenario", choices=keep_alive, help="what is asked: " + ", ".join(keep_alive))
    which = "of lab/compare.toml, or cmd:LABEL:COMMAND; the first is what others are compared with"
    o("servers", nargs="+", metavar="SERVER", help=which)
    o("-n", "--slices", type=int, default=20, help="for each server (default 20)")
    o("-d", "--seconds", type=int, default=1, help="of each slice (default 1)")
    o("--server-core", type=int, default=0, metavar="CPU")
    o("--client-core", type=int, default=1, metavar="CPU")
    o("--port", type=int, default=21000, help="ports used lie above it (default 21000)")
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


def interval(values: list[float]) -> tuple[float, float]:
    chance = random.Random(1)
    medians = sorted(
        statistics.median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    return medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


@dataclass(frozen=True)
class Slice:
    """What one server did in one turn."""

    name: str
    number: int
    us: float  # its CPU time for a request
    run: dict  # what wrk says

    @property
    def rps(self) -> float:
        return self.run["requests"] / self.run["seconds"]


def slices(
    rig: Rig, servers: list[Server], sc: Scenario, count: int, seconds: int
) -> Iterator[Slice]:
    """All servers in turn, forwards and backwards; the first turn, which warms them up, not shown."""
    with ExitStack() as stack:
        up = [(s.name, *stack.enter_context(rig.running(s, sc))) for s in servers]
        for number in range(-1, count):
            for name, proc, url in up if number % 2 == 0 else up[::-1]:
                cpu = CpuTime(proc.pid)
                run = wrk(url, sc, seconds * sc.stretch, rig.client_cores, rig.script)
                us = cpu.us() / max(run["requests"], 1)
                if number >= 0:
                    yield Slice(name, number, us, run)


def main() -> None:
    args = arguments()
    become_reaper({args.client_core})
    servers = [pick_server(name) for name in args.servers]
    sc = SCENARIOS[args.scenario]
    with tempfile.TemporaryDirectory(prefix="slices-") as folder:
        rig = Rig(Path(folder), args.port, {args.server_core}, {args.client_core})
        us: dict[str, list[float]] = {server.name: [] for server in servers}
        for found in slices(rig, servers, sc, args.slices, args.seconds):
            us[found.name].append(found.us)
    first = us[servers[0].name]
    print(f"| {args.scenario} | server CPU us a request | requests per CPU second, x {servers[0].name} |")
    print("|---|---:|---:|")
    for server in servers:
        ratios = [base / own for base, own in zip(first, us[server.name])]
        low, high = interval(ratios)
        middle = f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"
        print(f"| {server.name} | {statistics.median(us[server.name]):.2f} | {middle} |")


if __name__ == "__main__":
    main()
