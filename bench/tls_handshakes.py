#!/usr/bin/env python3
"""Connections that stay, beside handshakes of others: what the handshakes cost their latency.

  ./x bench tls handshakes                    all servers, 5 rounds: 5 minutes
  ./x bench tls handshakes reactor nginx -n 9 some, more rounds
  ./x bench tls handshakes --server-cores 0,1 two CPUs for each server
  ./x bench tls handshakes --publish          the table goes into docs/tls.md, too

64 connections that stay ask for a file of 600 bytes by TLS 1.3, at a fixed rate (Poisson). In each
round a server is loaded three times, in an order that turns round by round:

  alone       nothing else
  beside      and 500 full handshakes a second, each of a connection with one request
  alone again A/A: what is no difference

A server stays up for all of its rounds, and servers take turns. All have P-256 certificates, X25519
and AES-128-GCM, and one loop or process on one CPU; both clients are on the other one, where the
connections that stay come before the handshakes (SCHED_IDLE): what a handshake computes at its
client's end is not to delay them. Ratios are to `alone` of the same round.

With two CPUs the workers of Loadline can compute handshakes on one while the loop runs on the other;
nginx and h2o keep one process or thread. A machine with two CPUs has none left for the clients then.
They share one of the server's, and wait for it, too: latencies are longer than with one CPU for each
side, and only ratios tell something.
"""

import argparse
import statistics
from contextlib import ExitStack
from dataclasses import dataclass

from load import LoadRun
from page import middle, table, write_between
from peers import SMALL, Scenario, Server, loadline, of_lab
from processes import REPOSITORY, measured_here
from rig import Rig, chosen, options, require_programs, rigged

PAGE = REPOSITORY / "docs" / "tls.md"
END = "<!-- end of what it writes -->"
BEGIN = {  # by the CPUs of a server
    1: "<!-- ./x bench tls handshakes --publish -->",
    2: "<!-- ./x bench tls handshakes --server-cores 0,1 --publish -->",
}
SCENARIO = Scenario("/small.html", SMALL, 64, tls=True)
CLIENT = ["--insecure", "--tls-key-exchange=x25519", "--tls-cipher=aes-128-gcm"]
WARM_UP_SECONDS = 1
KINDS = ["alone", "beside", "alone again"]
PERCENTILES = ["p50", "p99", "p99_9"]


def serve(name: str, words: str) -> Server:
    """Loadline with these options, by TLS."""
    return loadline(name, f"--tls self-signed {words}", "https://127.0.0.1:{port}")


OF_LOADLINE = {
    "reactor": "--architecture reactor --loops 1",
    "proactor": "--architecture proactor --loops 1",
    "reactor-0": "--architecture reactor --loops 1 --workers 0",
    "proactor-0": "--architecture proactor --loops 1 --workers 0",
    "thread-pool": "--architecture thread-pool",
    "thread-per-connection": "--architecture thread-per-connection",
}


def servers() -> dict[str, Server]:
    """Those that are installed."""
    others = [Server(name, of_lab(f"{name}-tls").argv, name) for name in ["nginx", "h2o"]]
    own = [serve(*it) for it in OF_LOADLINE.items()]
    known = [*own, *(other for other in others if other.is_installed())]
    return {server.name: server for server in known}


@dataclass
class Found:
    """What came of one load."""

    latency_us: dict[str, float]
    cpu_share: float  # of the server, for whatever it did
    errors: int
    handshakes_per_s: float = 0.0


def one_load(rig: Rig, pid: int, url: str, kind: str, args: argparse.Namespace) -> Found:
    where, cores = rig.scratch(), rig.client_cores
    length = [f"--duration={args.seconds}s", f"--warm-up={WARM_UP_SECONDS}s"]
    beside = None
    if kind == "beside":
        each = ["--new-connection", "--connections=2000", f"--rate={args.handshakes}"]
        beside = LoadRun([url, *CLIENT, *length, *each], where / "beside", cores, yields=True)
    stay = ["--connections=64", f"--rate={args.rate}", f"--server-pid={pid}"]
    record = LoadRun([url, *CLIENT, *length, *stay], where / "stay", cores).record()
    total, watched = record["groups"][0]["total"], record["watched"][0]
    found = Found(
        {name: total["latency"]["percentiles"][name] or 0.0 for name in PERCENTILES},
        (watched["cpu_user_s"] + watched["cpu_kernel_s"]) / watched["seconds"],
        sum(total["tally"]["errors"].values()),
    )
    if beside:
        done = beside.record()["groups"][0]["total"]
        found.handshakes_per_s = done["tally"]["handshakes_full"] / done["seconds"]
    return found


def measure(rig: Rig, args: argparse.Namespace) -> dict[str, dict[str, list[Found]]]:
    """Of each server and kind, one of each round."""
    known = servers()
    wanted = [known[name] for name in args.servers]
    found = {server.name: {kind: [] for kind in KINDS} for server in wanted}
    with ExitStack() as stack:
        up = [(it.name, *stack.enter_context(rig.running(it, SCENARIO))) for it in wanted]
        for number in range(args.rounds):
            for name, proc, url in up[number % len(up) :] + up[: number % len(up)]:
                rig.wait_quiet()
                turn = number % len(KINDS)
                for kind in KINDS[turn:] + KINDS[:turn]:
                    one = one_load(rig, proc.pid, url, kind, args)
                    found[name][kind].append(one)
                    print(f"{number + 1}/{args.rounds} {name}, {kind}: {one}", flush=True)
    return found


def rows(name: str, found: dict[str, list[Found]]) -> list[list[str]]:
    """A row for each kind, the second and third with ratios to the first."""
    body = []
    for kind, runs in found.items():
        row = [name, kind]
        for percentile in PERCENTILES:
            own = [run.latency_us[percentile] for run in runs]
            base = [run.latency_us[percentile] for run in found["alone"]]
            row.append(f"{statistics.median(own):.0f}")
            if percentile != "p50":
                ratios = [one / other for one, other in zip(own, base) if other]
                row.append(middle(ratios) if kind != "alone" and ratios else "")
        row.append(f"{100 * statistics.median(run.cpu_share for run in runs):.0f} %")
        handshakes = statistics.median(run.handshakes_per_s for run in runs)
        row.append(f"{handshakes:.0f}" if handshakes else "")
        row.append(f"{sum(run.errors for run in runs)}")
        body.append(row)
    return body


HEAD = ["server", "64 connections", "p50, us", "p99, us", "x alone", "p99.9, us", "x alone"]
HEAD += ["server CPU", "handshakes/s", "errors"]


def arguments() -> argparse.Namespace:
    p = options(__doc__, "./x bench tls handshakes", port=23000)
    known = list(servers())
    p.add_argument("servers", nargs="*", metavar="SERVER", help=f"of {', '.join(known)}")
    o = p.add_argument
    o("-n", "--rounds", type=int, default=5, help="default 5")
    o("-d", "--seconds", type=int, default=3, help="of each load (default 3)")
    o("--rate", type=int, default=10_000, help="requests a second of the 64 (default 10000)")
    o("--handshakes", type=int, default=500, help="a second (default 500)")
    o("--publish", action="store_true", help="write the table into docs/tls.md, too")
    args = p.parse_args()
    args.servers = chosen(p, "server", args.servers, known)
    if args.publish and len(args.server_cores) not in BEGIN:
        p.error("--publish: docs/tls.md has tables for one and for two --server-cores, no other")
    return args


def whose_cpus(args: argparse.Namespace) -> str:
    """Which CPUs both sides had."""

    def named(cores: set[int]) -> str:
        return f"CPU{'s' * (len(cores) > 1)} {' and '.join(map(str, sorted(cores)))}"

    shared = args.server_cores & args.client_cores
    text = f"each server on {named(args.server_cores)}, clients on {named(args.client_cores)}"
    return f"{text}, so that they share {named(shared)}" if shared else text


def main() -> None:
    args = arguments()
    require_programs("loadline")
    with rigged(args, quiet_wait=5) as rig:
        found = measure(rig, args)
    body = [row for name, kinds in found.items() for row in rows(name, kinds)]
    origin = f"{measured_here()}: `{args.command_line}`; {args.rate:,} requests a second, "
    origin += f"{args.rounds} rounds of {args.seconds} s each: medians, ratios with the range; "
    origin += f"{whose_cpus(args)}."
    text = f"{table(HEAD, body)}\n\n{origin}"
    print(f"\n{text}")
    if args.publish:
        write_between(PAGE, BEGIN[len(args.server_cores)], END, text)


if __name__ == "__main__":
    main()
