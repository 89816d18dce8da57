#!/usr/bin/env python3
"""What the live page costs: CPU time of a server, without and with watchers.

  ./x bench live          of a server that does nothing else, that has 10,000 idle connections, and that
                          answers 1,000 requests a second: 22 minutes
  ./x bench live -d 2     the same, less exact: 7 minutes

A watcher asks for the events of the last second once a second, as a browser does. CPU time is the
scheduler's, in nanoseconds, of all threads of the server. The column without a watcher again says what
chance does. A loaded server answers as many requests with watchers as without: what it takes more is the
page's. The goal: one watcher costs less than 1 % of a CPU, beyond the mean without any.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from page import table
from load import MEASURED, IdleCrowd, LoadRun
from peers import SCENARIOS, Scenario, loadline
from processes import measured_here
from rig import Rig, options, require_programs, rigged
from slices import cpu_ns
from status import ask

OPTIONS = "--status-path /-/status --idle-timeout off --architecture"
ARCHITECTURES = {
    "reactor": "",
    "proactor": "",
    "thread-pool": "",
    # All of them stay: by default it takes 4,096 and closes idle ones for new ones.
    "thread-per-connection": "--connections-max 12000",
}
WATCHERS = [0, 1, 10, 0]
SETTLE_SECONDS = 3
# A load lasts for so much longer than what is measured: at both sides of it.
LOAD_MORE_SECONDS = 10
GOOD_SHARE_MIN = 0.99
COST_MAX = 1.0  # per cent


@dataclass(frozen=True)
class Beside:
    """What a server does beside serving watchers."""

    name: str
    idle: int = 0  # connections
    per_s: int = 0  # requests


BESIDE = [
    Beside("nothing"),
    Beside("10,000 idle connections", idle=10_000),
    Beside("1,000 requests/s", per_s=1000),
]


class Watcher:
    def __init__(self, port: int):
        self.port, self.last = port, ""

    def look(self) -> None:
        fields = f"Last-Event-ID: {self.last}\r\n" if self.last else ""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as s:
            events = ask(s, "/-/live/events", fields)
        for line in events.splitlines():
            if line.startswith("id: "):
                self.last = line[4:]


def watch(watchers: list[Watcher], seconds: float) -> None:
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        for watcher in watchers:
            watcher.look()
        time.sleep(max(0.0, now + 1 - time.monotonic()))


@contextmanager
def loaded(rig: Rig, url: str, per_s: int, seconds: int) -> Iterator[None]:
    """So many requests a second, for longer than what is measured in here."""
    if not per_s:
        yield
        return
    argv = [url, f"--rate={per_s}", "--connections=64"]
    argv += [f"--duration={seconds + LOAD_MORE_SECONDS}s"]
    run = LoadRun(argv, rig.scratch() / "load", rig.client_cores)
    yield
    assert run.is_running(), "loaded to the end"
    tally = run.record(MEASURED)["groups"][0]["total"]["tally"]
    good, offered = tally["good"], tally["offered"]
    assert good >= GOOD_SHARE_MIN * offered, f"{good} of {offered} were good"


def cost(rig: Rig, architecture: str, beside: Beside, watchers: int, seconds: int) -> float:
    """Per cent of one CPU."""
    sc = SCENARIOS["idle-10000"]
    words = f"{OPTIONS} {architecture} {ARCHITECTURES[architecture]}"
    with rig.running(loadline(architecture, words), sc) as (proc, url):
        port = int(url.split(":")[2].split("/")[0])
        idle = IdleCrowd(port, Scenario(sc.path, sc.size, beside.idle))
        assert idle.errors == 0, f"{idle.errors} connections failed"
        seen = [Watcher(port) for _ in range(watchers)]
        with loaded(rig, url, beside.per_s, seconds):
            watch(seen, SETTLE_SECONDS)
            before = cpu_ns(proc.pid)
            began = time.monotonic()
            watch(seen, seconds)
            share = (cpu_ns(proc.pid) - before) / 1e9 / (time.monotonic() - began)
        assert not watchers or int(seen[0].last) >= seconds, "a sample for each second"
        assert idle.closed() == 0, "none was closed"
        idle.close()
    return 100 * share


def main() -> None:
    p = options(__doc__, "./x bench live")
    p.add_argument("-d", "--seconds", type=int, default=20, help="of each row (default 20)")
    args = p.parse_args()
    require_programs("loadline")
    rows = []
    with rigged(args) as rig:
        for architecture in ARCHITECTURES:
            for beside in BESIDE:
                shares = [cost(rig, architecture, beside, n, args.seconds) for n in WATCHERS]
                rows.append([architecture, beside.name, *(f"{share:.3f} %" for share in shares)])
                costs = shares[1] - (shares[0] + shares[3]) / 2
                rows[-1].append("met" if costs < COST_MAX else f"**not met**: {costs:.3f} %")
                print(*rows[-1], sep="  ", flush=True)
    head = ["architecture", "beside", "no watcher", "one watcher", "ten watchers", "none again"]
    head.append("goal: 1 % for one")
    print(f"\n{table(head, rows)}\n\n{measured_here()}, {args.seconds} s each.")


if __name__ == "__main__":
    main()
