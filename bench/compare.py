#!/usr/bin/env python3
"""Compare HTTP servers side by side on one machine, one core each, as it suits the question.

  bench/compare.py nginx                       Loadline against nginx: one ratio a round
  bench/compare.py peers                       every installed server, all scenarios
  bench/compare.py peers reactor nginx-tuned h2o -s small-64 close-64
  bench/compare.py peers reactor 'cmd:mine:./mine --port {port} --root {root}' -s small-64

The published tables are those of `./x bench servers` and `./x bench goals`.

Every round starts a fresh server on its own port, pinned to one core, loads it
with wrk pinned to another, and stops it.  Rounds are interleaved (A B C C B A A
B C ...) so that drift of the machine, and what a server leaves behind (sockets
in TIME_WAIT), hit every server alike; the tables hold medians.  Needs Python
3.11 and wrk.  A system service that a package has started (nginx, apache2,
lighttpd, h2o) must be stopped first.

Servers are those of lab/compare.toml.  An own one is  cmd:LABEL:COMMAND ; in
COMMAND {port} {root} {path} {size} are filled in.  ROOT holds small.html (600
bytes) and large.bin (1 MiB); {path} and {size} are what the scenario asks for.
LABEL must not hold a colon.  Ports count up from --port, a fresh one for each
start.

The ceilings (ceil-epoll, ceil-epoll-eager, ceil-uring) answer any read that ends
in an empty line with one prebuilt answer and parse nothing: what they cost is
what the kernel's TCP and one event loop cost.  `./x bench peers` builds them.

Reading the tables
  req/s     what wrk saw.  Only comparable where 'srv%' is near 100: below that
            wrk's core ('wrk%'), not the server, set the pace.
  cpu us    user+system CPU time of the server's process tree per request.  The
            fairest figure: it does not depend on who was the bottleneck.
  both us   the same plus wrk's: on the loopback part of a server's work runs in
            its client's time (big answers: most of it) and the other way round.
  cap/s     1e6 / cpu us: requests per second of a whole core.
  xbase     cap/s as a ratio to the base server's, over the same rounds.
  p50, p99  wrk is a closed loop: latency at saturation is about
            connections / (req/s).  Compare only between equal connections.
  err       socket errors + timeouts + answers that are not 2xx or 3xx.  A server
            that closes without having said 'Connection: close' shows one each.
  pss MiB   sum of Pss over the process tree at the end of the load.
  noise%    CPU that anyone else used (all cores, and steal) as a share of the
            round; over --max-noise the round is repeated, then kept and marked.
"""

import argparse
import json
import signal
import statistics
import sys
import tempfile
from pathlib import Path

import measure
from page import table
from peers import SCENARIOS, Server, of_lab, pick_server
from processes import become_reaper
from rig import BIN_DIRS, Failed, Rig, cores_of, require_programs

DEFAULT = ["reactor", "proactor", "nginx-tuned", "nginx-default", "apache-event", "lighttpd", "h2o"]
DEFAULT += ["ceil-epoll", "ceil-epoll-eager", "ceil-uring"]


class Bench:
    def __init__(self, args: argparse.Namespace, rig: Rig):
        self.args, self.rig = args, rig
        self.rounds: dict[tuple[str, str], list[measure.Figures]] = {}  # by scenario and server

    def round(self, name: str, server: Server) -> measure.Figures:
        sc, args = SCENARIOS[name], self.args
        for _ in range(args.retries + 1):
            if sc.idle:
                r = measure.idle(self.rig, server, sc)
            else:
                r = measure.load(self.rig, server, sc, args.seconds, args.warmup)
            if r["noise"] <= args.max_noise:
                break
        self.rounds.setdefault((name, server.name), []).append(r)
        return r

    def run(self, servers: list[Server], scenarios: list[str]) -> None:
        for name in scenarios:
            group = list(servers)
            for i in range(self.args.rounds):
                for server in group[::-1] if i % 2 else list(group):
                    try:
                        r = self.round(name, server)
                    except (Failed, OSError, RuntimeError) as e:
                        print(f"{name}: {server.name} left out: {e}", file=sys.stderr)
                        group.remove(server)
                        continue
                    if self.args.verbose:
                        figures = " ".join(f"{k}={v:.4g}" for k, v in r.items())
                        print(f"{name} round {i + 1} {server.name}: {figures}", file=sys.stderr)
            self.table(name, [s.name for s in group])

    def table(self, name: str, servers: list[str]) -> None:
        rows = {s: self.rounds[name, s] for s in servers if (name, s) in self.rounds}
        if not rows:
            return
        med = {s: {k: statistics.median(r[k] for r in rs) for k in rs[0]} for s, rs in rows.items()}
        base = self.args.base if self.args.base in med else next(iter(med))
        print(f"\n### {name}  (base {base}, medians of {self.args.rounds} rounds)\n")
        if SCENARIOS[name].idle:
            head = ["server", "conns", "err", "user B/conn", "kernel B/conn"]
            head += ["pss MiB start", "pss MiB end", "conn/s"]
            keys = [("conns", 0), ("errors", 0), ("user", 0), ("kernel", 0)]
            keys += [("start", 1), ("end", 1), ("rate", 0)]
            body = [[s, *(f"{m[key]:.{digits}f}" for key, digits in keys)] for s, m in med.items()]
        else:
            head = ["server", "req/s", "+-%", "err", "p50 ms", "p99 ms", "cpu us", "both us"]
            head += ["cap/s", "xbase", "srv%", "wrk%", "pss MiB", "noise%"]
            body = [
                self.load_row(s, m, rows[s], rows[base])
                for s, m in sorted(med.items(), key=lambda x: -x[1]["cap"])
            ]
        print(table(head, body), flush=True)

    def load_row(self, name: str, m: measure.Figures, own: list, base: list) -> list[str]:
        rps = [r["rps"] for r in own]
        spread = 50 * (max(rps) - min(rps)) / max(m["rps"], 1e-9)
        ratio = statistics.median(a["cap"] / b["cap"] for a, b in zip(own, base))
        mark = "!" if m["noise"] > self.args.max_noise else ""
        return [
            name,
            f"{m['rps']:.0f}",
            f"{spread:.0f}",
            f"{m['errors']:.0f}",
            f"{m['p50']:.3f}",
            f"{m['p99']:.3f}",
            f"{m['cpu_us']:.2f}",
            f"{m['both_us']:.2f}",
            f"{m['cap']:.0f}",
            f"{ratio:.2f}",
            f"{m['srv']:.0f}",
            f"{m['wrk']:.0f}",
            f"{m['pss']:.1f}",
            f"{m['noise']:.0f}{mark}",
        ]

    def dump(self, path: str) -> None:
        data = [
            {"scenario": a, "server": b, "rounds": r} for (a, b), r in self.rounds.items()
        ]
        Path(path).write_text(json.dumps(data, indent=1) + "\n")


# ------------------------------------------------------------------ commands


def against_nginx(bench: Bench) -> None:
    """One ratio of requests per server CPU second for each round, then their median."""
    scenario, pair = "small-64", [of_lab("reactor"), of_lab("nginx-tuned")]
    sc, args = SCENARIOS[scenario], bench.args
    print(
        f"a file of {sc.size} bytes, {sc.conns} keep-alive connections, "
        f"{args.seconds} s each: requests per server CPU second"
    )
    ratios = []
    for i in range(args.rounds):
        found = {}
        for server in pair[::-1] if i % 2 else pair:
            try:
                r = bench.round(scenario, server)
            except (Failed, OSError, RuntimeError) as e:
                sys.exit(f"{server.name} could not be measured: {e}")
            if r["errors"]:
                sys.exit(f"{server.name} could not be measured: {r['errors']:.0f} failed requests")
            found[server.name] = r
        ours, theirs = (found[server.name] for server in pair)
        ratios.append(ours["cap"] / theirs["cap"])
        noisy = max(ours["noise"], theirs["noise"]) > args.max_noise
        print(
            f"round {i + 1}: loadline {ours['cap']:.0f}, nginx {theirs['cap']:.0f}, "
            f"ratio {ratios[-1]:.3f}" + (" (others used the machine)" if noisy else ""),
            flush=True,
        )
    print(
        f"median ratio {statistics.median(ratios):.3f}, "
        f"from {min(ratios):.3f} to {max(ratios):.3f} over {len(ratios)} rounds"
    )


def among_peers(bench: Bench) -> None:
    """A table for each scenario."""
    args = bench.args
    servers = []
    for s in map(pick_server, args.servers or DEFAULT):
        if s.is_installed():
            servers.append(s)
        else:
            print(f"{s.name} left out: not installed", file=sys.stderr)
    if not servers:
        sys.exit("no server to run")
    bench.run(servers, args.scenario)


def arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    common = argparse.ArgumentParser(add_help=False)
    o = common.add_argument
    o("-r", "--rounds", type=int, help="default 5 for nginx, 3 for peers")
    o("-d", "--seconds", type=int, default=4, help="load per round (default 4)")
    o("-w", "--warmup", type=int, default=1, help="unmeasured load before it (default 1)")
    o("--server-core", type=cores_of, default="1", metavar="CPU", help="default 1")
    o("--client-core", type=cores_of, default="0", metavar="CPU", help="default 0")
    o("--port", type=int, default=21000, help="ports used lie above this one (default 21000)")
    o(
        "--max-noise",
        type=float,
        default=5,
        metavar="PERCENT",
        help="foreign CPU that makes a round be repeated (default 5)",
    )
    o("--retries", type=int, default=2, help="how often it is repeated (default 2)")
    o(
        "--quiet-wait",
        type=float,
        default=20,
        metavar="SECONDS",
        help="longest wait for a quiet machine (default 20)",
    )
    o("--bin", action="append", default=[], metavar="DIR", help="more folders with programs")
    o("--json", metavar="FILE", help="write every round's figures")
    o("-v", "--verbose", action="store_true", help="print every round to stderr")
    commands = p.add_subparsers(dest="command", required=True)
    commands.add_parser("nginx", parents=[common], help="Loadline against nginx")
    q = commands.add_parser("peers", parents=[common], help="a table of many servers")
    q.add_argument(
        "servers",
        nargs="*",
        metavar="SERVER",
        help="cmd:LABEL:COMMAND or a server of lab/compare.toml (default: "
        f"{', '.join(DEFAULT)}, as far as they are installed)",
    )
    q.add_argument(
        "-s",
        "--scenario",
        nargs="+",
        choices=SCENARIOS,
        default=list(SCENARIOS),
        metavar="NAME",
        help="default all: " + ", ".join(SCENARIOS),
    )
    q.add_argument(
        "--base",
        default="nginx-tuned",
        metavar="SERVER",
        help="what the ratios refer to (default nginx-tuned)",
    )
    args = p.parse_args()
    if args.rounds is None:  # the parsers share their options, so not by a default of each
        args.rounds = 5 if args.command == "nginx" else 3
    return args


def main() -> None:
    args = arguments()
    BIN_DIRS[:0] = args.bin
    require_programs("wrk", *(["nginx", "loadline"] if args.command == "nginx" else []))
    become_reaper(args.client_core)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        cores = (args.server_core, args.client_core)
        rig = Rig(Path(folder), args.port, *cores, args.quiet_wait)
        bench = Bench(args, rig)
        try:
            against_nginx(bench) if args.command == "nginx" else among_peers(bench)
        finally:
            if args.json:
                bench.dump(args.json)


if __name__ == "__main__":
    main()
