#!/usr/bin/env python3
"""Which rule spreads connections over loops best: p99 of `--balance adaptive` beside fixed rules.

  ./x bench balance                    all loads, 3 rounds: at most 12 minutes
  ./x bench balance --quick            one round of 1 s each: whether it works
  ./x bench balance --only tenth -r 8  one load, more rounds

Two loops without workers, 60 connections, an open loop for each group of clients. The loads:

  even       every connection asks as often, for as much
  tenth      a tenth of the connections makes nine tenths of the work
  zipf       connections ask for files whose sizes follow Zipf's law
  bursts     every 3 s it is another tenth of the connections that makes nine tenths of the work; 12 s
  neighbour  as even, but each loop has a CPU of its own, and the first shares it with a busy process

In a round each rule has its turn, in another order each time; the first fixed rule has two, and the
second one says what chance does. A rule's p99 is of all responses of a turn; the ratio of two rules
is taken in each round, and the table has the geometric mean, lowest and highest. A second table has the
goals: 0.8 of the best fixed rule's p99, of an even load not worse than a rule differs from itself.
"""

import argparse
import base64
import math
import os
import random
import struct
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from load import MEASURED, LoadRun
from page import table
from peers import Scenario, loadline
from processes import measured_here, spawn, stop
from rig import Failed, Rig, options, require_programs, rigged
from status import status

CONNECTIONS = 60
ZIPF_BYTES = 4 << 20  # of the largest file
BURST_SECONDS = 3
BURST_PARTS = 10
BURST_MORE = 81  # as often as otherwise: nine tenths of all requests are of the part that is busy
SCENARIO = Scenario("/small.html", 600, CONNECTIONS)

RULES = {
    "round-robin": "--accept handoff --balance round-robin",
    "least-connections": "--accept handoff --balance least-connections",
    "least-busy": "--accept handoff --balance least-busy",
    "shared": "--accept shared",
    "adaptive": "--accept handoff --balance adaptive",
}
AGAIN = "round-robin again"
RATIO_MAX = 0.8
TURNS = {**RULES, AGAIN: RULES["round-robin"]}


@dataclass(frozen=True)
class Group:
    """Some clients, each with a connection of its own."""

    processes: int
    connections: int  # of each process
    per_s: float  # of each process
    path: str = "/small.html"
    burst: int | None = None  # the one in which it asks more often; `per_s` is without


@dataclass(frozen=True)
class Load:
    groups: list[Group]
    work: str = "--service-time 300us --service-kind spin"
    neighbour: bool = False


def zipf(per_s: float) -> list[Group]:
    """Ranks 1 to 63 by octave: one process for 1, 2, 4 ... 32 connections."""
    groups = []
    for octave in range(6):
        count = 1 << octave
        groups.append(Group(1, count, per_s * count, f"/zipf-{octave}.bin"))
    return groups


def bursts(per_s: float) -> list[Group]:
    """Parts of two processes with three connections each. Which two are a part is by chance: connections
    that are opened one after the other would be divided evenly by taking turns alone."""
    parts = [part for part in range(BURST_PARTS) for _ in range(2)]
    random.Random(1).shuffle(parts)
    otherwise = per_s / (BURST_MORE + BURST_PARTS - 1) / 2
    return [Group(1, CONNECTIONS // len(parts), otherwise, burst=part) for part in parts]


EVEN = "even"
LOADS = {
    EVEN: Load([Group(1, CONNECTIONS, 4000)]),
    "tenth": Load([Group(6, 1, 600), Group(1, CONNECTIONS - 6, 400)]),
    "zipf": Load(zipf(120), work=""),
    "bursts": Load(bursts(4000)),
    "neighbour": Load([Group(1, CONNECTIONS, 2600)], neighbour=True),
}


def make_files(root: Path) -> None:
    long_ago = time.time() - 3600
    for octave in range(6):
        file = root / f"zipf-{octave}.bin"
        file.write_bytes(b"z" * (ZIPF_BYTES * 2 // (3 * (1 << octave) - 1)))
        os.utime(file, (long_ago, long_ago))


def numbers(data: bytes) -> Iterator[int]:
    """Zig-zag LEB128, nine bytes at most."""
    at = 0
    while at < len(data):
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            if shift == 56:
                value |= byte << shift
                break
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield (value >> 1) ^ -(value & 1)


def counts(text: str) -> Counter:
    """Microseconds and how often they were, of an HdrHistogram (V2, compressed, 3 digits)."""
    packed = base64.b64decode(text)
    data = zlib.decompress(packed[8:])
    _, length, _, digits, _, _, _ = struct.unpack(">iiiiqqd", data[:40])
    if digits != 3:
        raise Failed(f"a histogram of {digits} digits")
    half = 1024  # sub-buckets: 2048, of which each further power of two adds half
    found: Counter = Counter()
    index = 0
    for number in numbers(data[40 : 40 + length]):
        if number < 0:
            index -= number
            continue
        power, sub = index // half - 1, index % half + half
        if power < 0:
            power, sub = 0, sub - half
        found[sub << power] += number
        index += 1
    return found


def quantile(found: Counter, share: float) -> float:
    left = share * found.total()
    for value, count in sorted(found.items()):
        left -= count
        if left <= 0:
            return value
    return math.nan


def loop_threads(pid: int) -> list[int]:
    """Its loops, in their order; the last one has the main thread where nobody accepts for it."""
    tasks = sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
    names = {task: Path(f"/proc/{pid}/task/{task}/comm").read_text().strip() for task in tasks}
    loops = sorted((task for task in tasks if names[task].startswith("loop ")), key=names.get)
    return loops if len(loops) == 2 else [*loops, pid]


@contextmanager
def neighbour(pid: int, cores: list[int]) -> Iterator[None]:
    """Each loop on a CPU of its own, the first beside a process that is always busy."""
    for task, core in zip(loop_threads(pid), cores):
        os.sched_setaffinity(task, {core})
    with open(os.devnull, "wb") as nowhere:
        busy = spawn([sys.executable, "-c", "while True: pass"], {cores[0]}, nowhere)
    try:
        yield
    finally:
        stop(busy)


def write_log(file: Path, group: Group, count: int, chance: random.Random) -> None:
    """An access log of so many bursts, Poisson arrivals, to be replayed at its own times. All logs begin at
    the same moment."""
    times = [0.0]
    for burst in range(count):
        per_s = group.per_s * (BURST_MORE if burst == group.burst else 1)
        at = burst * BURST_SECONDS + chance.expovariate(per_s)
        while at < (burst + 1) * BURST_SECONDS:
            times.append(at)
            at += chance.expovariate(per_s)
    request = f'"method":"GET","uri":"{group.path}"'
    file.write_text("".join(f'{{"ts":{1e9 + at:.6f},"request":{{{request}}}}}\n' for at in times))


def pace(rig: Rig, number: int, group: Group, args: argparse.Namespace) -> list[str]:
    """When a process of a group asks, as options of the load generator."""
    if group.burst is None:
        lasts = [f"--duration={args.seconds}s", f"--warm-up={args.warm_up}s"]
        return [f"--rate={group.per_s:g}", *lasts]
    log = rig.scratch() / f"requests-{number}.json"
    write_log(log, group, args.bursts, random.Random(args.seed * 1000 + number))
    return [f"--replay={log}", "--replay-timing=1"]


def clients(rig: Rig, load: Load, url: str, args: argparse.Namespace) -> Counter:
    """What all of them saw."""
    base = url.removesuffix(SCENARIO.path)
    running = []
    for number, group in enumerate(load.groups):
        argv = [base + group.path, "--threads=1", "--timeout=10s"]
        argv += [f"--connections={group.connections}", *pace(rig, number, group, args)]
        for process in range(group.processes):
            out = rig.scratch() / f"load-{number}-{process}"
            running.append(LoadRun(argv, out, rig.client_cores))
    found: Counter = Counter()
    for run in running:
        total = run.record(MEASURED)["groups"][0]["total"]
        found += counts(total["latency"]["histogram"])
    return found


def turn(rig: Rig, load: Load, rule: str, args: argparse.Namespace) -> tuple[float, float, int]:
    """p99 in microseconds, how busy the loops were on average, and connections that moved."""
    size = f"--architecture {args.architecture} --loops 2 --workers 0 --latency-goal off"
    words = f"{size} {load.work} {rule} --admin-listen unix:{{dir}}/admin"
    with rig.running(loadline(args.architecture, words), SCENARIO) as (server, url):
        began = time.monotonic()
        cores = sorted(rig.server_cores)
        with neighbour(server.pid, cores) if load.neighbour else nullcontext():
            found = clients(rig, load, url, args)
        total = status(rig.scratch() / "admin")["total"]
        busy = total["busy_us"] / 1e6 / 2 / (time.monotonic() - began)
    return quantile(found, 0.99), busy, total["connections_moved"]


def geometric(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def judged(name: str, best: str, ratios: list[float], again: list[float]) -> list[str]:
    """Whether the goal of a load is met: a row. A rule may differ from itself in either direction."""
    mean, itself = geometric(ratios), geometric(again)
    most = max(itself, 1 / itself) if name == EVEN else RATIO_MAX
    spread = f"{mean:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return [name, best, spread, f"{most:.2f} at most", "met" if mean <= most else "**not met**"]


def measure(args: argparse.Namespace, rig: Rig) -> tuple[list[list[str]], list[list[str]]]:
    """Rows of rules, and of goals."""
    chance = random.Random(args.seed)
    rows, goals = [], []
    for name in args.only or LOADS:
        p99: dict[str, list[float]] = {rule: [] for rule in TURNS}
        busy, moved = [], []
        for _ in range(args.rounds):
            order = list(TURNS)
            chance.shuffle(order)
            for rule in order:
                p99_us, busy_now, moved_now = turn(rig, LOADS[name], TURNS[rule], args)
                p99[rule].append(p99_us)
                busy.append(busy_now)
                if rule == "adaptive":
                    moved.append(moved_now)
                print(f"{name}, {rule}: p99 {p99_us / 1000:.2f} ms, busy {busy_now:.2f}", flush=True)
        fixed = [rule for rule in RULES if rule != "adaptive"]
        best = min(fixed, key=lambda rule: geometric(p99[rule]))
        over_best, of_itself = [
            [a / b for a, b in zip(p99[rule], p99[other])]
            for rule, other in [("adaptive", best), (AGAIN, "round-robin")]
        ]
        goals.append(judged(name, best, over_best, of_itself))
        for rule in TURNS:
            against = "round-robin" if rule == AGAIN else rule
            over = "round-robin again" if rule == AGAIN else "adaptive"
            ratios = [a / b for a, b in zip(p99[over], p99[against])]
            rows.append(
                [
                    name,
                    rule + (" (best fixed)" if rule == best else ""),
                    f"{geometric(p99[rule]) / 1000:.2f}",
                    "" if rule == "adaptive" else f"{geometric(ratios):.2f}",
                    "" if rule == "adaptive" else f"{min(ratios):.2f} to {max(ratios):.2f}",
                    str(sum(moved)) if rule == "adaptive" else "",
                    f"{sum(busy) / len(busy):.2f}",
                ]
            )
    return rows, goals


def arguments() -> argparse.Namespace:
    p = options(__doc__, "./x bench balance", port=22000, server_cores="0,1", client_cores="0,1")
    o = p.add_argument
    o("--quick", action="store_true", help="one round of 1 s for each rule")
    o("--only", action="append", choices=LOADS, help="this load alone; may be given several times")
    o("-r", "--rounds", type=int, help="default 3")
    o("-d", "--seconds", type=float, help="measured in each turn but of bursts (default 3.5)")
    o("-w", "--warm-up", type=float, help="before it, in which connections move (default 2)")
    o("--architecture", choices=["reactor", "proactor"], default="reactor")
    o("--seed", type=int, default=1, help="of the order in which rules have their turns, and of bursts")
    args = p.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.seconds = args.seconds or (1 if args.quick else 3.5)
    args.warm_up = args.warm_up or (1 if args.quick else 2)
    args.bursts = 1 if args.quick else 4
    return args


def main() -> None:
    args = arguments()
    require_programs("loadline")
    with rigged(args) as rig:
        make_files(rig.root)
        rows, goals = measure(args, rig)
    head = ["load", "rule", "p99, ms", "adaptive over it", "in rounds", "moves", "loops busy"]
    origin = f"{measured_here()}, {args.architecture}, {args.rounds} rounds of {args.seconds:g} s."
    print(f"\n{table(head, rows)}\n\n{origin}")
    print(f"Beside {AGAIN!r}: that one over the first.")
    print(f"\n{table(['load', 'best fixed', 'adaptive over it', 'goal', ''], goals)}")


if __name__ == "__main__":
    main()
