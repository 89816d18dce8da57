#!/usr/bin/env python3
"""What refusing costs, and what it leaves of a server's capacity: a part of `./x bench overload`.

  python3 bench/refusals.py --page docs/overload-results.md     the table, and into this page
  python3 bench/refusals.py --quick                             one architecture, once

Each request computes for 200 us on the server's one CPU, over connections that stay. In each block:

  capacity  good responses a second to 64 clients that wait for each other
  refusal   CPU time of the server for each response, while it refuses nearly all of them, over as many
            connections as there are at twice the capacity: each is seldom used, and so costs more
  warm      the same over 64 connections
  cached    the same while it sends a cached file of 600 bytes, without made-up work: the most that a
            refusal is to cost; and over as many connections as `refusal`, to be compared with that
  goodput   good responses a second at twice the capacity
  retries   the same by clients that try a refused request again twice, and how many refusals there are

Twice the capacity C is offered, and a refusal costs r seconds of CPU time. If all of the CPU time is
used, for responses or for refusals, then (1 - 2 C r) / (1 / C - r) good responses a second are left.
Of clients that try again it is not known how many refusals there will be: beside R of them a second,
C (1 - R r) good responses a second are left. R r, a share of the CPU time, is what refusals alone cost.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from load import LoadRun
from page import middle, table, write_between
from peers import SCENARIOS, Server, loadline
from processes import measured_here
from rig import Failed, Rig, options, require_programs, rigged

BEGIN, END = "<!-- refusals -->", "<!-- end of the refusals -->"
SCENARIO = SCENARIOS["small-64"]
OFFERED = 2  # times the capacity
LEFT_MIN = 0.9
IN_GOAL_MIN = 0.99
GOAL_HEAD = ["within a second, %", "goal: 0.90 left, 99 %"]
OF_CACHED_MAX = 1  # a refusal over 64 connections, times a cached file over as many
WORK = "--service-time 200us --service-kind spin"
# Longer than the latency goal: while all threads are busy with one, everything else is refused.
LONG_WORK = "--service-time 1500ms --service-kind sleep"
# More than there are responses in a second: none waits for a connection.
CONNECTIONS = 10_000
# As the clients of the series stay-retries in lab/overload.toml.
RETRIES = "--retries 2 --timeout 2s"
# Clients that wait for each other: enough to keep the server busy.
FEW = 64

ARCHITECTURES = {
    "reactor": "--loops 1 --workers 2",
    "proactor": "--loops 1 --workers 2",
    "thread-pool": "--threads 2",
    # All of them stay: by default it takes 4,096 and closes idle ones for new ones.
    "thread-per-connection": "--connections-max 12000",
}


@dataclass
class Overload:
    """What came of more than the capacity."""

    good_per_s: float
    refused_per_s: float
    in_goal_share: float


@dataclass
class Found:
    """What came of one block."""

    capacity_per_s: float
    refusal_s: float
    cold_cached_s: float
    warm_s: float
    cached_s: float
    once: Overload
    retries: Overload

    @property
    def left_per_s(self) -> float:
        capacity, refusal = self.capacity_per_s, self.refusal_s
        return (1 - OFFERED * capacity * refusal) / (1 / capacity - refusal)

    @property
    def left_beside_retries_per_s(self) -> float:
        return self.capacity_per_s * (1 - self.refusals_share)

    @property
    def refusals_share(self) -> float:
        """Of the CPU time, beside clients that try again."""
        return self.retries.refused_per_s * self.refusal_s

    @property
    def of_cold_cached(self) -> float:
        return self.refusal_s / self.cold_cached_s

    @property
    def of_cached(self) -> float:
        return self.warm_s / self.cached_s


def verdict(is_met: bool) -> str:
    return "met" if is_met else "**not met**"


def server(architecture: str, work: str) -> Server:
    options = f"--architecture {architecture} {ARCHITECTURES[architecture]} {work}"
    return loadline(architecture, options)


def load(rig: Rig, pid: int, url: str, seconds: float, options: str) -> dict:
    """What a load came to: `total`, and what the server used, `watched`."""
    argv = [url, *options.split(), f"--duration={seconds}s"]
    argv += ["--latency-goal=1s", f"--server-pid={pid}"]
    record = LoadRun(argv, rig.scratch() / "load", rig.client_cores).record()
    return {"total": record["groups"][0]["total"], "watched": record["watched"][0]}


def alone(
    rig: Rig, architecture: str, work: str, args: argparse.Namespace, connections: int = FEW
) -> dict:
    """What so many clients come to, each of which waits for its response."""
    with rig.running(server(architecture, work), SCENARIO) as (proc, url):
        if work == LONG_WORK:  # until it knows how long its requests take
            load(rig, proc.pid, url, 3.2, "--connections 2 --timeout 5s")
        warm_up = "500ms" if connections == FEW else "2s"
        options = f"--connections {connections} --warm-up {warm_up}"
        return load(rig, proc.pid, url, args.seconds, options)


def cpu_s_each(found: dict, count: int, share_min: float, what: str) -> float:
    """CPU time of the server for each response of a kind, of which there have to be so many."""
    completed, watched = found["total"]["tally"]["completed"], found["watched"]
    if count < share_min * completed:
        raise Failed(f"{what}: {count} of {completed}")
    return (watched["cpu_user_s"] + watched["cpu_kernel_s"]) / count


def refusal_s_over(
    connections: int, rig: Rig, architecture: str, args: argparse.Namespace
) -> float:
    refusing = alone(rig, architecture, LONG_WORK, args, connections)
    refused = dict(refusing["total"]["tally"]["status_codes"]).get(503, 0)
    return cpu_s_each(refusing, refused, 0.9, f"{architecture}: refused requests")


def cached_s_over(
    connections: int, rig: Rig, architecture: str, args: argparse.Namespace
) -> float:
    caching = alone(rig, architecture, "", args, connections)
    good = caching["total"]["tally"]["good"]
    return cpu_s_each(caching, good, 1, f"{architecture}: good responses of cached files")


def overloaded(
    rig: Rig, architecture: str, capacity_per_s: float, args: argparse.Namespace, more: str = ""
) -> Overload:
    """What comes of twice the capacity."""
    with rig.running(server(architecture, WORK), SCENARIO) as (proc, url):
        rate = f"--rate {OFFERED * capacity_per_s:.0f}"
        options = f"--connections {CONNECTIONS} --warm-up 2s {rate} {more}"
        total = load(rig, proc.pid, url, args.seconds, options)["total"]
    good, good_per_s = total["tally"]["good"], total["rates"]["good_per_s"]
    in_goal_share = total["tally"]["in_goal"] / good if good else 0
    return Overload(good_per_s, total["rates"]["completed_per_s"] - good_per_s, in_goal_share)


def measured(rig: Rig, architecture: str, args: argparse.Namespace) -> Found:
    capacity_per_s = alone(rig, architecture, WORK, args)["total"]["rates"]["good_per_s"]
    refusal_s = refusal_s_over(CONNECTIONS, rig, architecture, args)
    warm_s = refusal_s_over(FEW, rig, architecture, args)
    cold_cached_s = cached_s_over(CONNECTIONS, rig, architecture, args)
    cached_s = cached_s_over(FEW, rig, architecture, args)
    once = overloaded(rig, architecture, capacity_per_s, args)
    retries = overloaded(rig, architecture, capacity_per_s, args, RETRIES)
    return Found(capacity_per_s, refusal_s, cold_cached_s, warm_s, cached_s, once, retries)


def kept(overloads: list[Overload], shares: list[float]) -> list[str]:
    """Goodput as shares of what refusals leave, how much of it is in time, and whether that is enough."""
    in_goal = [it.in_goal_share for it in overloads]
    is_enough = median(shares) >= LEFT_MIN and min(in_goal) >= IN_GOAL_MIN
    return [middle(shares), middle([100 * it for it in in_goal], 1), verdict(is_enough)]


def row(architecture: str, blocks: list[Found]) -> list[str]:
    once = [it.once for it in blocks]
    shares = [it.once.good_per_s / it.left_per_s for it in blocks]
    of_capacity = [it.once.good_per_s / it.capacity_per_s for it in blocks]
    of_cached = [it.of_cached for it in blocks]
    return [
        architecture,
        middle([it.capacity_per_s for it in blocks], 0),
        middle([it.refusal_s * 1e6 for it in blocks], 1),
        middle([it.cold_cached_s * 1e6 for it in blocks], 1),
        middle([it.of_cold_cached for it in blocks]),
        middle([it.warm_s * 1e6 for it in blocks], 1),
        middle([it.cached_s * 1e6 for it in blocks], 1),
        middle(of_cached),
        verdict(median(of_cached) <= OF_CACHED_MAX),
        middle([it.left_per_s for it in blocks], 0),
        middle([it.good_per_s for it in once], 0),
        middle(of_capacity),
        *kept(once, shares),
    ]


def row_of_retries(architecture: str, blocks: list[Found]) -> list[str]:
    retries = [it.retries for it in blocks]
    shares = [it.retries.good_per_s / it.left_beside_retries_per_s for it in blocks]
    return [
        architecture,
        middle([it.refused_per_s for it in retries], 0),
        middle([it.refusal_s * 1e6 for it in blocks], 1),
        middle([100 * it.refusals_share for it in blocks], 1),
        middle([it.left_beside_retries_per_s for it in blocks], 0),
        middle([it.good_per_s for it in retries], 0),
        *kept(retries, shares),
    ]


def arguments() -> argparse.Namespace:
    p = options(__doc__, port=22000)
    o = p.add_argument
    o("--quick", action="store_true", help="reactor alone, once")
    o("--page", type=Path, help="write the table into this page, too")
    o("--only", choices=ARCHITECTURES, help="this architecture alone")
    o("--blocks", type=int, help="how often (default 3)")
    o("-d", "--seconds", type=float, default=2, help="of each measurement (default 2)")
    args = p.parse_args()
    args.blocks = args.blocks or (1 if args.quick else 3)
    quick = args.only or ("reactor" if args.quick else None)
    args.architectures = [quick] if quick else list(ARCHITECTURES)
    return args


def main() -> None:
    args = arguments()
    require_programs("loadline")
    found: dict[str, list[Found]] = {it: [] for it in args.architectures}
    with rigged(args) as rig:
        for block in range(args.blocks):
            for architecture in args.architectures:
                rig.wait_quiet()
                one = measured(rig, architecture, args)
                found[architecture].append(one)
                print(f"{block + 1}/{args.blocks} {architecture}: {one}", flush=True)
    head = ["server", "capacity/s", "refusal, us", "cached of 10,000, us", "refusal / cached of 10,000"]
    head += ["of 64, us", "cached, us", "of 64 / cached", "goal: 1 at most"]
    head += ["left/s", "goodput/s", "/ capacity", "/ left", *GOAL_HEAD]
    origin = f"{measured_here()}; {args.blocks} blocks, {args.seconds:g} s each."
    once = table(head, [row(name, blocks) for name, blocks in found.items()])
    head = ["server", "refusals/s", "refusal, us", "refusals, % of the CPU time"]
    head += ["left/s", "goodput/s", "/ left", *GOAL_HEAD]
    retries = table(head, [row_of_retries(name, blocks) for name, blocks in found.items()])
    text = f"{once}\n\nClients that try again twice:\n\n{retries}\n\n{origin}"
    print(f"\n{text}")
    if args.page:
        write_between(args.page, BEGIN, END, text)


if __name__ == "__main__":
    main()
