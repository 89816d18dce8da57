#!/usr/bin/env python3
"""What the live page costs: CPU time of a server that does nothing else.

  ./x bench live                     without and with watchers, without and with 10,000 connections

A watcher asks for the events of the last second once a second, as a browser does. CPU time is the
scheduler's, in nanoseconds, of all threads of the server.
"""

import socket
import time

from page import table
from load import IdleCrowd
from peers import SCENARIOS, Scenario, loadline
from processes import measured_here
from rig import Rig, options, require_programs, rigged
from slices import cpu_ns
from status import ask

OPTIONS = "--status-path /-/status --idle-timeout off --architecture"
SETTLE_SECONDS = 3


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


def cost(rig: Rig, architecture: str, crowd: int, watchers: int, seconds: int) -> float:
    """Per cent of one CPU."""
    sc = SCENARIOS["idle-10000"]
    with rig.running(loadline(architecture, f"{OPTIONS} {architecture}"), sc) as (proc, url):
        port = int(url.split(":")[2].split("/")[0])
        idle = IdleCrowd(port, Scenario(sc.path, sc.size, crowd))
        assert idle.errors == 0, f"{idle.errors} connections failed"
        seen = [Watcher(port) for _ in range(watchers)]
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
        for architecture in ["reactor", "proactor"]:
            for crowd in [0, 10_000]:
                shares = [cost(rig, architecture, crowd, n, args.seconds) for n in [0, 1, 10]]
                row = [architecture, f"{crowd:,}", *(f"{share:.3f} %" for share in shares)]
                rows.append(row)
                print(*row, sep="  ", flush=True)
    head = ["architecture", "idle connections", "no watcher", "one watcher", "ten watchers"]
    print(f"\n{table(head, rows)}\n\n{measured_here()}, {args.seconds} s each.")


if __name__ == "__main__":
    main()
