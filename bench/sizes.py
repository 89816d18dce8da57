#!/usr/bin/env python3
"""A number of threads that finds itself, beside fixed ones: the goal of `docs/overload.md`.

  ./x bench sizes                            the reactor's workers, about 17 minutes
  ./x bench sizes --architecture thread-pool its threads
  ./x bench sizes --architecture reactor proactor thread-pool   all three, in one table
  ./x bench sizes --quick                    three loads and four sizes: whether it works

Each load asks for work that sleeps or computes (crates/tower/examples/work.rs), in a closed loop; the
last four have a database (`loadline serve --accounts`), where fixed numbers are those of workers and of
connections to it alike. Pages behind a login only read it. Logins are bound by hashes of passwords: few
users and few sizes show that. A row of servers with fixed numbers has each load for some seconds. The best
of them, by throughput, has it again, for as long as one server with `auto`, which stays up and has one load
after the other: the throughput and the p99 of `auto` are shares of this second run, and A/A is that of the
first to the second.

`settled` is when the number was last outside of a step (a tenth) of what it was in the end; `changes` are
those of the ten seconds after the fifth, which are measured. Where there were too few responses for a p99
(ten have to be beyond it: logins), the highest percentile that there were enough for is compared, and
named. Goals: 0.95 of the throughput; a p99 not above the best size's by more than that differs from itself
(A/A, either way); settled within five seconds; one change at most, of one step at most. A row that missed one
is measured three more times, some 50 seconds each, with the same best size, and `auto` has the load before it
first. Such a row has the medians of all four, is judged by them, and says how often each goal was missed. A
second table has the rows that missed one by that.
"""

import argparse
import math
import shlex
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median

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


@dataclass(frozen=True)
class OnDatabase:
    """What users with accounts do, each over a connection of their own."""

    database: str
    scenario: str  # in lab/papers
    users: int
    sizes: list[int]


# Databases that are written to, and that are only read. Each user registers before the start.
ON_DATABASES = {
    f"{title} on {name}": OnDatabase(database, scenario, users, sizes)
    for title, scenario, users, sizes in [
        ("log in", "accounts-login.toml", 16, [1, 2, 4, 8, 32]),
        ("page", "accounts-page.toml", 32, [1, 2, 3, 4, 6, 8, 12, 16, 32]),
    ]
    for name, database in [("SQLite", "sqlite"), ("PostgreSQL", "postgresql")]
}
QUICK_LOADS = ["compute 1 ms", "sleep 10 ms", "sleep 100 us"]
SIZES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96]
QUICK_SIZES = [2, 8, 32, 64]
SETTLE_SECONDS = 5
WATCH_SECONDS = 10
LOOKS_PER_SECOND = 5
CHANGES_MAX = 1
THROUGHPUT_MIN = 0.95
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

    def changes_text(self) -> str:
        return ", ".join(f"{before} to {now}" for before, now in self.changes()) or "none"

    def is_calm(self) -> bool:
        changes = self.changes()
        is_step = all(abs(now - before) <= step(before) for before, now in changes)
        return is_step and len(changes) <= CHANGES_MAX


def tail_share(one: Run, other: Run) -> tuple[float, str] | None:
    """p99 as a share of the other's; or the highest percentile for which both had enough responses."""
    for name in PERCENTILES:
        if (mine := one.percentiles[name]) and (others := other.percentiles[name]):
            return mine / others, name
    return None


@dataclass
class Measurement:
    """A load with the best fixed size, twice, and with `auto`."""

    first: Run
    again: Run
    auto: Run

    def throughput(self) -> float:
        return self.auto.per_s / self.again.per_s

    def tail(self) -> tuple[float, str] | None:
        return tail_share(self.auto, self.again)

    def own_tail(self) -> tuple[float, str] | None:
        return tail_share(self.first, self.again)

    def tail_excess(self) -> float:
        """The tail over what the best size's differs from itself by."""
        tail, own = self.tail(), self.own_tail()
        margin = max(own[0], 1 / own[0]) if own else 1.0
        return tail[0] / margin if tail else 0.0


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
    if on_database := ON_DATABASES.get(name):
        scenario = REPOSITORY / "lab" / "papers" / on_database.scenario
        argv += [url.removesuffix(START.path) + "/accounts/", f"--scenario={scenario}"]
        argv += [f"--users={on_database.users}", "--source-per-client"]
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
    database = ON_DATABASES[name].database if name in ON_DATABASES else None
    is_own = database == "postgresql"
    start = ACCOUNTS_START if database else START
    running = postgresql(rig.dir / f"postgresql-{rig.port}-{size}", rig.server_cores)
    with running if is_own else nullcontext() as own:
        with rig.running(server(args, size, database, own), start) as (_, url):
            yield url.removesuffix(start.path) + START.path


def together(loads: list[str]) -> list[list[str]]:
    """Loads that one server is asked, one after the other; those on databases have one each."""
    work = [name for name in loads if name in LOADS]
    return ([work] if work else []) + [[name] for name in loads if name in ON_DATABASES]


def fixed(args, rig: Rig) -> dict[str, dict[int, Run]]:
    """Each load with each size."""
    runs: dict[str, dict[int, Run]] = {name: {} for name in args.loads}
    for names in together(args.loads):
        for size in args.sizes if names[0] in LOADS else ON_DATABASES[names[0]].sizes:
            with started(args, rig, str(size), names[0]) as url:
                for name in names:
                    runs[name][size] = load(args, rig, url, name, 0.5, args.seconds)
            print(size, *(f"{runs[name][size].per_s:.0f}/s" for name in names), sep="  ", flush=True)
    return runs


START = Scenario("/sleep/0", DONE, 1)
ACCOUNTS_START = Scenario("/small.html", SMALL, 1)


def fixed_once(args, rig: Rig, name: str, size: int, seconds: float) -> Run:
    with started(args, rig, str(size), name) as url:
        return load(args, rig, url, name, 0.5, seconds)


def with_auto(args, rig: Rig, names: list[str]) -> dict[str, Run]:
    """Loads that one server has in turn, whose number finds itself."""
    _, shown = ARCHITECTURES[args.architecture]
    with started(args, rig, "auto", names[0]) as url:
        return {
            name: load(args, rig, url, name, SETTLE_SECONDS, WATCH_SECONDS, shown) for name in names
        }


def once_more(args, rig: Rig, name: str, size: int) -> Measurement:
    """A row from its beginning; `auto` has the load before this one first, if it had one."""
    first = fixed_once(args, rig, name, size, args.seconds)
    names = next(names for names in together(args.loads) if name in names)
    end = names.index(name) + 1
    auto = with_auto(args, rig, names[max(end - 2, 0) : end])[name]
    return Measurement(first, fixed_once(args, rig, name, size, WATCH_SECONDS), auto)


def compare(args, rig: Rig, runs: dict[str, dict[int, Run]]) -> list[list[str]]:
    rows = []
    auto = {}
    for names in together(args.loads):
        auto |= with_auto(args, rig, names)
    for name in args.loads:
        size, first = max(runs[name].items(), key=lambda item: item[1].per_s)
        again = fixed_once(args, rig, name, size, WATCH_SECONDS)
        measured = [Measurement(first, again, auto[name])]
        if missed(measured):
            measured += [once_more(args, rig, name, size) for _ in range(args.again)]
        rows.append([args.architecture, *row(name, size, measured)])
        print(*rows[-1], sep="  ", flush=True)
    return rows


def missed(measured: list[Measurement]) -> list[str]:
    """Which goals, by the median."""
    goals = {
        "throughput": median(it.throughput() for it in measured) >= THROUGHPUT_MIN,
        "p99": median(it.tail_excess() for it in measured) <= 1,
        "settled": median(it.auto.settled_s() for it in measured) <= SETTLE_SECONDS,
        "changes": median(it.auto.is_calm() for it in measured) >= 0.5,
    }
    return [name for name, is_met in goals.items() if not is_met]


def how_often(measured: list[Measurement]) -> str:
    """It was measured, and which goals were missed in how many of these."""
    if len(measured) == 1:
        return "once"
    counts = Counter(name for it in measured for name in missed([it]))
    counted = ", ".join(f"{name} missed in {count}" for name, count in counts.items())
    return f"{len(measured)} times: {counted}"


def share_text(shares: list[tuple[float, str] | None]) -> str:
    """The median. Its name is the first one's."""
    known = [share for share in shares if share is not None]
    if not known:
        return ""
    _, name = known[0]
    text = f"{median(share for share, _ in known):.2f}"
    return text + ("" if name == PERCENTILES[0] else f" ({name})")


def row(name: str, size: int, measured: list[Measurement]) -> list[str]:
    """Medians, and the changes of each measurement."""
    return [
        name,
        f"{size}",
        f"{median(it.again.per_s for it in measured):.0f}/s",
        f"{median(it.auto.sizes[-1][1] for it in measured):.0f}",
        f"{median(it.throughput() for it in measured):.3f}",
        f"{median(it.first.per_s / it.again.per_s for it in measured):.3f}",
        share_text([it.tail() for it in measured]),
        share_text([it.own_tail() for it in measured]),
        f"{median(it.auto.settled_s() for it in measured):.1f} s",
        "; ".join(it.auto.changes_text() for it in measured),
        how_often(measured),
        ", ".join(missed(measured)) or ALL_MET,
    ]


HEAD = ["architecture", "load", "best size", "its throughput", "auto", "throughput", "A/A", "p99"]
HEAD += ["A/A", "settled", "changes", "measured", "goals missed"]
ALL_MET = "none"


def arguments() -> argparse.Namespace:
    p = options(__doc__, "./x bench sizes")
    o = p.add_argument
    o("--architecture", choices=ARCHITECTURES, nargs="+", default=["reactor"], help="default reactor")
    o("--quick", action="store_true", help="three loads and four sizes")
    loads = [*LOADS, *ON_DATABASES]
    o("--only", choices=loads, action="append", help="this load alone; may be given several times")
    o("-c", "--connections", type=int, default=64, help="of the closed loop (default 64)")
    o("-d", "--seconds", type=float, default=2, help="of each fixed size (default 2)")
    o("--again", type=int, metavar="TIMES", help="a row that missed a goal (default 3; --quick: 0)")
    args = p.parse_args()
    if args.again is None:
        args.again = 0 if args.quick else 3
    args.architectures = args.architecture
    args.loads = args.only or (QUICK_LOADS if args.quick else loads)
    args.sizes = QUICK_SIZES if args.quick else SIZES
    return args


def main() -> None:
    args = arguments()
    require_programs("loadline", "work")
    rows = []
    with rigged(args) as rig:
        rig.wait_quiet()
        for args.architecture in args.architectures:
            rows += compare(args, rig, fixed(args, rig))
    print(f"\n{table(HEAD, rows)}\n")
    if not_met := [row for row in rows if row[-1] != ALL_MET]:
        print(f"Rows that missed a goal:\n\n{table(HEAD, not_met)}\n")
    print(f"{len(rows) - len(not_met)} of {len(rows)} rows met all goals.")
    print(f"{args.connections} connections; {measured_here()}.")


if __name__ == "__main__":
    main()
