#!/usr/bin/env python3
"""One address that does its worst by TLS beside 50 others: what it costs them.

  ./x bench tls floods                        all servers, with and without shares: 20 minutes
  ./x bench tls floods reactor --fairness on  some
  ./x bench tls floods --attacks bursts -n 5  one attack, more rounds

The 50 have an address each and ask for ten responses a second, half of them over connections that
stay, half over new ones. What they ask for sleeps for 10 ms on eight workers or threads. A response
is good if it comes within a second after it was due. The one address

  abandoned   sends 2,000 first messages a second, each over a connection of its own, and leaves
  bursts      opens 1,000 connections, sends their first messages at once, leaves half a second later
  pieces      has 2,000 connections that send their first messages byte by byte
  plain-text  sends 2,000 plain requests a second to the port of TLS, over new connections
  handshakes  makes 2,000 full handshakes a second and asks for something over each

In each round: nobody beside them, each attack, and nobody again (A/A). The server has one CPU; those
who load it have the other one, where the 50 come before the attack (SCHED_IDLE).
"""

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from load import LoadRun
from page import middle, table
from processes import REPOSITORY, measured_here, spawn, stop
from rig import Rig, chosen, options, require_programs, rigged
from slices import CpuTime
from tls_attacker import KINDS
from tls_handshakes import CLIENT, SCENARIO, serve

OTHERS = ["--sources=127.0.0.3-127.0.0.52", "--latency-goal=1s", "--timeout=5s"]
RATE = 250  # of each half
HANDSHAKES = "--sources=127.0.0.2 --new-connection --connections=4000 --rate=2000".split()
WARM_UP_SECONDS = 1
ATTACKS = [*KINDS, "handshakes"]
ALONE, AGAIN = "nobody", "nobody again"
GOAL = 0.95

WORK = "--service-time 10ms --service-kind sleep --connections-max 2048"
ARCHITECTURES = {
    "reactor": "--loops 1 --workers 8",
    "proactor": "--loops 1 --workers 8",
    "thread-pool": "--threads 8",
    "thread-per-connection": "",
}


@dataclass
class Found:
    """What became of the 50 in one run."""

    stay_per_s: float
    new_per_s: float
    p95_us: float  # of the new ones; 0: too few
    cpu_share: float  # of the server
    errors: dict[str, int]  # of both halves

    @property
    def good_per_s(self) -> float:
        return self.stay_per_s + self.new_per_s


@contextmanager
def attacked(rig: Rig, kind: str, url: str, seconds: int) -> Iterator[None]:
    """By this kind of client, if it is one."""
    if kind in (ALONE, AGAIN):
        yield
        return
    if kind == "handshakes":
        argv = [url, *CLIENT, *HANDSHAKES, f"--duration={seconds + 60}s"]
        proc = LoadRun(argv, rig.scratch() / kind, rig.client_cores, yields=True).proc
    else:
        port = url.split(":")[2].split("/")[0]
        argv = [sys.executable, str(REPOSITORY / "bench" / "tls_attacker.py"), kind, port]
        with open(rig.scratch() / kind, "wb") as log:
            proc = spawn(argv, rig.client_cores, log, yields=True)
    try:
        time.sleep(1)  # it has begun, and holds what it can
        yield
        if proc.poll() is not None:
            raise RuntimeError(f"{kind}: ended by itself, exit code {proc.returncode}")
    finally:
        stop(proc)


def one_run(rig: Rig, pid: int, url: str, kind: str, seconds: int) -> Found:
    length = [f"--duration={seconds}s", f"--warm-up={WARM_UP_SECONDS}s", f"--rate={RATE}"]
    halves = {"stay": ["--connections=50"], "new": ["--connections=2000", "--new-connection"]}
    with attacked(rig, kind, url, seconds):
        cpu = CpuTime(pid)
        began = time.monotonic()
        runs = [
            LoadRun([url, *CLIENT, *OTHERS, *length, *half], rig.scratch() / name, rig.client_cores)
            for name, half in halves.items()
        ]
        stay, new = [run.record()["groups"][0]["total"] for run in runs]
        share = cpu.us() / 1e6 / (time.monotonic() - began)
    p95_us = new["latency"]["percentiles"]["p95"] or 0.0
    per_s = [half["tally"]["in_goal"] / half["seconds"] for half in (stay, new)]
    errors = Counter(stay["tally"]["errors"]) + Counter(new["tally"]["errors"])
    return Found(*per_s, p95_us, share, dict(errors))


Runs = dict[str, list[Found]]


def measure(rig: Rig, name: str, fairness: str, args: argparse.Namespace) -> Runs:
    words = f"--architecture {name} {ARCHITECTURES[name]} --fairness {fairness} {WORK}"
    kinds = [ALONE, *args.attacks, AGAIN]
    found: Runs = {kind: [] for kind in kinds}
    with rig.running(serve(name, words), SCENARIO) as (proc, url):
        for number in range(args.rounds):
            for kind in kinds:
                rig.wait_quiet()
                one = one_run(rig, proc.pid, url, kind, args.seconds)
                found[kind].append(one)
                print(f"{number + 1}/{args.rounds} {name}, {fairness}, {kind}: {one}", flush=True)
    return found


def rows(name: str, fairness: str, found: Runs) -> list[list[str]]:
    body = []
    alone = statistics.median(run.good_per_s for run in found[ALONE])
    for kind, runs in found.items():
        ratios = [run.good_per_s / other.good_per_s for run, other in zip(runs, found[ALONE])]
        row = [f"{name}, {fairness}", kind]
        row += [f"{statistics.median(run.stay_per_s for run in runs):.0f}"]
        row += [f"{statistics.median(run.new_per_s for run in runs):.0f}"]
        if kind == ALONE:
            row += [f"1 ({alone:.0f})", ""]
        else:
            row += [middle(ratios), "met" if statistics.median(ratios) >= GOAL else "**not met**"]
        row += [f"{statistics.median(run.p95_us for run in runs) / 1e3:.0f}"]
        row += [f"{100 * statistics.median(run.cpu_share for run in runs):.0f} %"]
        body.append(row)
    return body


HEAD = ["server, fairness", "beside", "good/s that stay", "new", "of those alone"]
HEAD += [f"goal: {GOAL}", "p95 of new, ms", "server CPU"]


def arguments() -> argparse.Namespace:
    p = options(__doc__, "./x bench tls floods", port=24000)
    known = ", ".join(ARCHITECTURES)
    p.add_argument("servers", nargs="*", metavar="SERVER", help=f"of {known}; default all")
    o = p.add_argument
    o("--fairness", choices=["on", "off"], help="default both")
    o("--attacks", nargs="+", choices=ATTACKS, default=ATTACKS, metavar="ATTACK")
    o("-n", "--rounds", type=int, default=3, help="default 3")
    o("-d", "--seconds", type=int, default=4, help="of each run (default 4)")
    args = p.parse_args()
    args.servers = chosen(p, "server", args.servers, list(ARCHITECTURES))
    args.shares = [args.fairness] if args.fairness else ["on", "off"]
    return args


def main() -> None:
    args = arguments()
    require_programs("loadline")
    body = []
    with rigged(args) as rig:
        for name in args.servers:
            for fairness in args.shares:
                body += rows(name, fairness, measure(rig, name, fairness, args))
    origin = f"{measured_here()}: `{args.command_line}`; {args.rounds} rounds of {args.seconds} s."
    print(f"\n{table(HEAD, body)}\n\n{origin}")


if __name__ == "__main__":
    main()
