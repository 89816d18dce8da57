#!/usr/bin/env python3
"""A number of threads that finds itself, beside fixed ones: the goal of `docs/overload.md`.

  ./x bench sizes                            the reactor's workers, 13 minutes
  ./x bench sizes --architecture thread-pool its threads
  ./x bench sizes --quick                    three loads and four sizes: whether it works

Each load asks for work that sleeps or computes (crates/tower/examples/work.rs), in a closed loop; the
last two log in (`loadline serve --accounts`), where fixed numbers are those of workers and of connections
to the database alike. Hashes of passwords bound them: few users and few sizes show that. A row of
servers with fixed numbers has each load for some seconds. The best of them, by throughput, has it again,
for as long as one server with `auto`, which stays up and has one load after the other: the throughput
and the p99 of `auto` are shares of this second run, and A/A is that of the first to the second.

`settled` is when the number was last outside of a step (a tenth) of what it was in the end; `changes` are
those of the ten seconds after the fifth, which are measured: the goal is one at most, of one step at most.
Where there were too few responses for a p99 (ten have to be beyond it: logins), the highest percentile
that there were enough for is compared, and named.
"""

import argparse
import math
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import status
from databases import PostgreSql, postgresql
from load import MEASURED, LoadRun
from page import table
from peers import SMALL, Scenario, Server, command, loadline
from processes import REPOSITORY, measured_here
from rig import Rig, options, require_programs, rigged

DONE = len("done\n")
# Neighbours are of different kinds: the load changes its kind each time.
LOADS = {
    "sleep 0": {"/sleep/0": 1},
    "sleep 100 ms": {"/sleep/100000": 1},
    "compute 100 us": {"/spin/100": 1},
    "sleep 10 ms": {"/sleep/10000": 1},
    "compute 1 ms": {"/spin/1000": 1},
    "sleep 1 ms": {"/sleep/1000": 1},
    "compute 1 ms, half sleep 10 ms": {"/spin/1000": 1, "/sleep/10000": 1},
    "sleep 100 us": {"/sleep/100": 1},
    "compute 100 us, a tenth sleep 10 ms": {"/spin/100": 9, "/sleep/10000": 1},
}
# Logins, on a database.
LOGINS = {"log in on SQLite": "sqlite", "log in on PostgreSQL": "postgresql"}
LOGIN_SCENARIO = REPOSITORY / "lab" / "papers" / "accounts-login.toml"
LOGIN_USERS = 16
LOGIN_SIZES = [1, 2, 4, 8, 32]
QUICK_LOADS = ["compute 1 ms", "sleep 10 ms", "sleep 100 us"]
SIZES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96]
QUICK_SIZES = [2, 8, 32, 64]
SETTLE_SECONDS = 5
WATCH_SECONDS = 10
LOOKS_PER_SECOND = 5
CHANGES_MAX = 1
PERCENTILES = ["p99", "p95", "p90", "p75", "p50"]
STEP = 0.1
ARCHITECTURES = {
    "reactor": ("--workers", "workers"),
    "proactor": ("--workers", "workers"),
    "thread-pool": ("--threads", "threads"),
}


def step(size: int) -> int:
    """How far a number may change at once while it is settled."""
    return math.ceil(STEP * size)


@dataclass
class Run:
    """What a load got."""

    per_s: float
    percentiles: dict[str, float | None]  # microseconds
    sizes: list[tuple[float, int]]  # seconds before the end, threads

    def settled_s(self) -> float:
        last = self.sizes[-1][1]
        outside = [before for before, size in self.sizes if abs(size - last) > step(last)]
        return max(0.0, SETTLE_SECONDS + WATCH_SECONDS - outside[-1]) if outside else 0.0

    def changes(self) -> list[tuple[int, int]]:
        """While it is to be settled: the sizes before and after each."""
        late = [size for before, size in self.sizes if before <= WATCH_SECONDS]
        return [(before, now) for before, now in zip(late, late[1:]) if before != now]

    def is_calm(self) -> bool:
        changes = self.changes()
        is_step = all(abs(now - before) <= step(before) for before, now in changes)
        return is_step and len(changes) <= CHANGES_MAX


def server(args: argparse.Namespace, size: str, database: str | None, own: PostgreSql | None) -> Server:
    option, _ = ARCHITECTURES[args.architecture]
    numbers = f"--architecture {args.architecture} {option} {size}"
    title = f"{args.architecture} {size}"
    if database is None:
        return Server(title, command(f"work --listen 127.0.0.1:{{port}} {numbers}"), "work")
    url = own.new_database() if own else "sqlite:{dir}/accounts.db"
    accounts = f"--accounts {shlex.quote(url)} --accounts-pool {size}"
    return loadline(title, f"--status-path /-/status {numbers} {accounts}")


def watched(port: int, name: str, run: LoadRun) -> list[tuple[float, int]]:
    """The number of threads, which is looked at while a load runs. Times count back from its end: it may
    have users to register before it begins."""
    seen = []
    while run.is_running():
        time.sleep(1 / LOOKS_PER_SECOND)
        try:
            found = status.status_at(port)
        except (OSError, RuntimeError):
            continue  # a look less
        seen.append((time.monotonic(), found["server"][name]))
    end = time.monotonic()
    return [(end - at, size) for at, size in seen]


def load(args, rig: Rig, url: str, name: str, warm_up: float, seconds: float, threads="") -> Run:
    """One load, of a server that runs; and what becomes of this number of threads."""
    urls = rig.scratch() / "urls"
    argv = [f"--duration={seconds}s", f"--warm-up={warm_up}s"]
    if name in LOGINS:
        argv += [url.removesuffix(START.path) + "/accounts/", f"--scenario={LOGIN_SCENARIO}"]
        argv += [f"--users={LOGIN_USERS}", "--source-per-client"]
    else:
        urls.write_text("".join(f"{weight} {path}\n" for path, weight in LOADS[name].items()))
        argv += [url, f"--urls={urls}", f"--connections={args.connections}"]
    run = LoadRun(argv, rig.scratch() / "load", rig.client_cores)
    seen = watched(rig.port, threads, run) if threads else []
    total = run.record(MEASURED)["groups"][0]["total"]
    return Run(total["rates"]["good_per_s"], total["latency"]["percentiles"], seen)


@contextmanager
def started(args, rig: Rig, size: str, name: str) -> Iterator[str]:
    """A server for a load: its URL."""
    database = LOGINS.get(name)
    is_own = database == "postgresql"
    start = LOGIN_START if database else START
    running = postgresql(rig.dir / f"postgresql-{rig.port}-{size}", rig.server_cores)
    with running if is_own else nullcontext() as own:
        with rig.running(server(args, size, database, own), start) as (_, url):
            yield url.removesuffix(start.path) + START.path


def together(loads: list[str]) -> list[list[str]]:
    """Loads that one server is asked, one after the other; those that log in have one each."""
    work = [name for name in loads if name in LOADS]
    return ([work] if work else []) + [[name] for name in loads if name in LOGINS]


def fixed(args, rig: Rig) -> dict[str, dict[int, Run]]:
    """Each load with each size."""
    runs: dict[str, dict[int, Run]] = {name: {} for name in args.loads}
    for names in together(args.loads):
        for size in args.sizes if names[0] in LOADS else LOGIN_SIZES:
            with started(args, rig, str(size), names[0]) as url:
                for name in names:
                    runs[name][size] = load(args, rig, url, name, 0.5, args.seconds)
            print(size, *(f"{runs[name][size].per_s:.0f}/s" for name in names), sep="  ", flush=True)
    return runs


START = Scenario("/sleep/0", DONE, 1)
LOGIN_START = Scenario("/small.html", SMALL, 1)


def compare(args, rig: Rig, runs: dict[str, dict[int, Run]]) -> list[list[str]]:
    rows = []
    _, shown = ARCHITECTURES[args.architecture]
    auto = {}
    for names in together(args.loads):
        with started(args, rig, "auto", names[0]) as url:
            for name in names:
                auto[name] = load(args, rig, url, name, SETTLE_SECONDS, WATCH_SECONDS, shown)
    for name in args.loads:
        size, first = max(runs[name].items(), key=lambda item: item[1].per_s)
        with started(args, rig, str(size), name) as url:
            again = load(args, rig, url, name, 0.5, WATCH_SECONDS)
        rows.append(row(name, size, first, again, auto[name]))
        print(*rows[-1], sep="  ", flush=True)
    return rows


def tail_share(one: Run, other: Run) -> str:
    """p99 as a share of the other's; or the highest percentile for which both had enough responses."""
    for name in PERCENTILES:
        if (mine := one.percentiles[name]) and (others := other.percentiles[name]):
            return f"{mine / others:.2f}" + ("" if name == PERCENTILES[0] else f" ({name})")
    return ""


def row(name: str, size: int, first: Run, again: Run, auto: Run) -> list[str]:
    changes = [f"{before} to {now}" for before, now in auto.changes()]
    return [
        name,
        f"{size}",
        f"{again.per_s:.0f}/s",
        f"{auto.sizes[-1][1]}",
        f"{auto.per_s / again.per_s:.3f}",
        f"{first.per_s / again.per_s:.3f}",
        tail_share(auto, again),
        tail_share(first, again),
        f"{auto.settled_s():.1f} s",
        ", ".join(changes) or "none",
        "met" if auto.is_calm() else "**not met**",
    ]


HEAD = ["load", "best size", "its throughput", "auto", "throughput", "A/A", "p99", "A/A"]
HEAD += ["settled", "changes", "goal: one of a step"]


def arguments() -> argparse.Namespace:
    p = options(__doc__, "./x bench sizes")
    o = p.add_argument
    o("--architecture", choices=ARCHITECTURES, default="reactor", help="default reactor")
    o("--quick", action="store_true", help="three loads and four sizes")
    loads = [*LOADS, *LOGINS]
    o("--only", choices=loads, action="append", help="this load alone; may be given several times")
    o("-c", "--connections", type=int, default=64, help="of the closed loop (default 64)")
    o("-d", "--seconds", type=float, default=2, help="of each fixed size (default 2)")
    args = p.parse_args()
    args.loads = args.only or (QUICK_LOADS if args.quick else loads)
    args.sizes = QUICK_SIZES if args.quick else SIZES
    return args


def main() -> None:
    args = arguments()
    require_programs("loadline", "work")
    with rigged(args) as rig:
        rig.wait_quiet()
        rows = compare(args, rig, fixed(args, rig))
    print(f"\n{table(HEAD, rows)}\n")
    print(f"{args.architecture}, {args.connections} connections; {measured_here()}.")


if __name__ == "__main__":
    main()
