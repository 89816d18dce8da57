#!/usr/bin/env python3
"""The load that a server says it has, beside the load that it has: a part of `./x bench overload`.

  python3 bench/load_ratio.py --page docs/overload-results.md     the table, and into this page
  python3 bench/load_ratio.py --quick                             fewer and shorter points

Each request works for 10 ms: two at a time, asleep, or computing on the server's one CPU. So the
capacity is known: 200/s and 100/s. The load is Poisson, over a connection for each request; the
estimate is read from the status page once a second, at a listener of its own, and the last one
counts.

`app` is an axum app (bench/overload-peers) that has two requests at a time, asleep: 200/s, which no
thread of the server shows. What its requests cost is known after an overload only, so it is first asked
for twice its capacity. Its status page has no listener of its own.
"""

import argparse
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from load import MEASURED, LoadRun
from page import table, write_between
from peers import SCENARIOS, Server, command, loadline
from processes import find_program, measured_here
from rig import Failed, Rig, options, require_programs, rigged
from status import status, status_at

BEGIN, END = "<!-- load ratio -->", "<!-- end of the load ratio -->"
SCENARIO = SCENARIOS["close-64"]
LEVELS = [0.3, 0.5, 0.7, 0.9]
ERROR_MAX = 0.1
WARM_UP_SECONDS = 2
OVERLOAD, OVERLOAD_SECONDS = 2, 10  # times the capacity of an app, before it is measured
PEERS = "bench/overload-peers/Cargo.toml --target-dir target/overload-peers"


@dataclass(frozen=True)
class Case:
    """A server whose capacity is known."""

    architecture: str
    kind: str
    per_s: int
    options: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        return ", ".join(filter(None, [self.architecture, self.kind, self.note]))

    def server(self) -> Server:
        if self.kind == "app":
            place = "--listen 127.0.0.1:{port} --content {root}{path}"
            served = f"overload-peers --served-by {self.architecture} --pages"
            return Server(self.name, command(f"{served} {place}"))
        work = f"--service-time 10ms --service-kind {self.kind} --architecture {self.architecture}"
        return loadline(self.name, f"{work} --admin-listen unix:{{dir}}/admin {self.options}")


# Threads that sleep are as many as there are connections, so thread-per-connection has no capacity there. Two threads
# of a pool have two requests of an app at most, so under thread-pool none waits within it.
CASES = [
    Case("reactor", "sleep", 200, "--loops 1 --workers 2"),
    Case("proactor", "sleep", 200, "--loops 1 --workers 2"),
    Case("thread-pool", "sleep", 200, "--threads 2"),
    Case("reactor", "app", 200, note="two at a time"),
    Case("thread-per-connection", "app", 200, note="two at a time"),
    Case("reactor", "spin", 100, "--loops 1 --workers 2"),
    Case("proactor", "spin", 100, "--loops 1 --workers 2"),
    Case("reactor", "spin", 100, "--loops 1 --workers auto", "workers auto"),
    Case("thread-pool", "spin", 100, "--threads auto", "threads auto"),
    Case("thread-pool", "spin", 100, "--threads 2"),
    Case("thread-per-connection", "spin", 100),
]


@dataclass
class Point:
    """A server under load."""

    case: Case
    scratch: Path
    url: str
    load: LoadRun
    found: dict | None = None  # what the server said last

    def read(self) -> None:
        if self.case.kind == "app":
            page = status_at(urlsplit(self.url).port)
        else:
            page = status(self.scratch / "admin")
        self.found = page["load"] or self.found


def start_load(rig: Rig, case: Case, files: Path, url: str, level: float, more: list[str]) -> LoadRun:
    argv = [url, f"--rate={level * case.per_s:g}", "--new-connection", "--connections=4000", *more]
    return LoadRun(argv, files, rig.client_cores)


def overload(rig: Rig, servers: list[tuple[Case, Path, str]]) -> None:
    """Until the servers know what a request costs their apps. Nobody reads their pages meanwhile, so
    it is no part of the load that they say later."""
    more = [f"--duration={OVERLOAD_SECONDS}s"]
    loads = [
        start_load(rig, case, scratch / "overload", url, OVERLOAD, more)
        for case, scratch, url in servers
        if case.kind == "app"
    ]
    for load in loads:
        load.record()


def started(rig: Rig, case: Case, scratch: Path, url: str, level: float, seconds: int) -> Point:
    more = [f"--duration={seconds}s", f"--warm-up={WARM_UP_SECONDS}s"]
    load = start_load(rig, case, scratch / "load", url, level, more)
    return Point(case, scratch, url, load)


def points(rig: Rig, cases: list[Case], level: float, seconds: int) -> list[Point]:
    """What servers say at this part of their capacity, side by side."""
    rig.wait_quiet()
    with ExitStack() as stack:
        servers = []
        for case in cases:
            _, url = stack.enter_context(rig.running(case.server(), SCENARIO))
            servers.append((case, rig.scratch(), url))
        overload(rig, servers)
        found = [started(rig, *server, level, seconds) for server in servers]
        time.sleep(WARM_UP_SECONDS)
        while any(point.load.is_running() for point in found):
            time.sleep(1)
            for point in found:
                # Of a load that has ended, idle seconds would count too.
                if point.load.is_running():
                    point.read()
    for point in found:
        point.load.record(MEASURED)  # latency is not judged here
        if not point.found:
            raise Failed(f"{point.case.name} at {level}: no estimate")
    return found


def row(level: float, point: Point) -> list[str]:
    case, found = point.case, point.found
    error = found["ratio"] / level - 1
    return [
        case.name,
        f"{level:g}",
        f"{found['ratio']:.3f}",
        f"{found['low']:.3f} to {found['high']:.3f}" if found["low"] else "",
        f"{100 * error:+.1f} %",
        found["limit"],
        f"{found['capacity_per_s']:.0f}",
        "yes" if abs(error) <= ERROR_MAX else "**no**",
    ]


def measure(args: argparse.Namespace, rig: Rig) -> list[list[str]]:
    # Who sleeps needs a few hundredths of the CPU, and all who do are measured at the same time.
    asleep = [case for case in CASES if case.kind == "sleep"]
    apps = [case for case in CASES if case.kind == "app"]
    computing = [case for case in CASES if case.kind == "spin"]
    groups = [asleep, apps, *([case] for case in computing)]
    rows = []
    for level in args.levels:
        for group in groups:
            if args.only in (None, group[0].kind):
                for point in points(rig, group, level, args.seconds):
                    rows.append(row(level, point))
                    print(*rows[-1], sep="  ", flush=True)
    # By server, as they are read.
    names = [case.name for case in CASES]
    return sorted(rows, key=lambda one: (names.index(one[0]), float(one[1])))


def arguments() -> argparse.Namespace:
    p = options(__doc__)
    o = p.add_argument
    o("--quick", action="store_true", help="two levels, for 6 s each")
    o("--page", type=Path, help="write the table into this page, too")
    o("--only", choices=["sleep", "app", "spin"], help="requests of this kind alone")
    o("-d", "--seconds", type=int, help="of each point (default 20)")
    args = p.parse_args()
    args.levels = [0.5, 0.9] if args.quick else LEVELS
    args.seconds = args.seconds or (6 if args.quick else 20)
    return args


def main() -> None:
    args = arguments()
    require_programs("loadline")
    if args.only in (None, "app") and not find_program("overload-peers"):
        sys.exit(f"overload-peers is not there: cargo build --release --manifest-path {PEERS}")
    with rigged(args) as rig:
        rows = measure(args, rig)
    head = ["server", "load", "estimate", "interval", "error", "limit", "capacity", "within 10 %"]
    text = f"{table(head, rows)}\n\n{measured_here()}, {args.seconds} s for each row."
    print(f"\n{text}")
    if args.page:
        write_between(args.page, BEGIN, END, text)


if __name__ == "__main__":
    main()
