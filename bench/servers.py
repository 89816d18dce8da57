#!/usr/bin/env python3
"""Compare HTTP servers side by side on one machine, one core each.

  bench/servers.py nginx                       Loadline against nginx: one ratio a round
  bench/servers.py peers                       every installed server, all scenarios
  bench/servers.py peers loadline nginx-tuned h2o -s small-64 close-64
  bench/servers.py peers loadline 'cmd:mine:./mine --port {port} --root {root}' -s small-64
  bench/servers.py peers nginx-tuned caddy --tls -s small-64 close-64

Every round starts a fresh server on its own port, pinned to one core, loads it
with wrk pinned to another, and stops it.  Rounds are interleaved (A B C C B A A
B C ...) so that drift of the machine, and what a server leaves behind (sockets
in TIME_WAIT), hit every server alike; the tables hold medians.  Needs Python
3.11, wrk and, for --tls, openssl.  A system service that a package has started
(nginx, apache2, lighttpd, h2o) must be stopped first.

An own server is  cmd:LABEL:COMMAND ; in COMMAND {port} {root} {size} are filled
in, and with --tls {cert} {key} too.  ROOT holds small.html (600 bytes) and
big.bin (1 MiB); {size} is the body size the scenario asks for.  LABEL must not
hold a colon.  Ports count up from --port, a fresh one for each start.

The ceilings (ceil-epoll, ceil-epoll-eager, ceil-uring) answer any read that ends
in an empty line with one prebuilt answer and parse nothing: what they cost is
what the kernel's TCP and one event loop cost.  "peers" builds them with gcc;
ceil-uring needs liburing-dev.

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
import os
import shlex
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from load import WRK_DONE, IdleCrowd, fetch, wrk
from peers import BIG, PEERS, SCENARIOS, SMALL, Ctx, Scenario, Server, pick_server
from processes import become_reaper, cpu_seconds, kernel_bytes, machine_busy, pss_bytes, spawn, stop

REPOSITORY = Path(__file__).resolve().parent.parent
CEILINGS = REPOSITORY / "target" / "ceilings"
BIN_DIRS = [str(REPOSITORY / "target" / "release"), str(CEILINGS)]  # searched after PATH


@dataclass
class Bench:
    args: argparse.Namespace
    dir: Path
    port: int
    rounds: dict = field(default_factory=dict)  # (scenario, server) -> list of results

    def prepare(self) -> None:
        self.dir.chmod(0o755)  # Apache's worker is not root
        self.root = self.dir / "root"
        self.root.mkdir()
        (self.root / "small.html").write_bytes(b"x" * SMALL)
        (self.root / "big.bin").write_bytes(b"x" * BIG)
        self.script = self.dir / "done.lua"
        self.script.write_text(WRK_DONE)
        self.cert = self.key = None
        if self.args.tls:
            self.cert, self.key = self.dir / "cert.pem", self.dir / "key.pem"
            subprocess.run(
                [
                    "openssl",
                    "req",
                    "-x509",
                    "-newkey",
                    "ec",
                    "-pkeyopt",
                    "ec_paramgen_curve:P-256",
                    "-nodes",
                    "-days",
                    "30",
                    "-subj",
                    "/CN=localhost",
                    "-addext",
                    "subjectAltName=IP:127.0.0.1,DNS:localhost",
                    "-keyout",
                    self.key,
                    "-out",
                    self.cert,
                ],
                check=True,
                capture_output=True,
            )

    def free_port(self) -> int:
        """The next port that no earlier client connection lingers on."""
        while True:
            self.port += 1
            with socket.socket() as s:  # without SO_REUSEADDR: sockets in TIME_WAIT count
                try:
                    s.bind(("127.0.0.1", self.port))
                    return self.port
                except OSError:
                    continue

    def start(self, server: Server, sc: Scenario) -> tuple[subprocess.Popen, int]:
        port, scratch = self.free_port(), self.dir / f"run-{self.port}"
        scratch.mkdir()
        argv = server.argv(
            Ctx(port, self.root, scratch, sc.size, self.args.tls, self.cert, self.key)
        )
        argv[0] = find_program(argv[0]) or argv[0]
        with open(scratch / "output", "wb") as log:
            proc = spawn(argv, self.args.server_core, log)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and proc.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return proc, port
            except OSError:
                time.sleep(0.02)
        stop(proc)
        raise RuntimeError(
            f"{server.name} did not start: {shlex.join(argv)}\n"
            + (scratch / "output").read_text(errors="replace")[-2000:]
        )

    def check(self, port: int, sc: Scenario) -> None:
        """Only a server that answers correctly is worth measuring."""
        with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
            if self.args.tls:
                trust = ssl.create_default_context(cafile=self.cert)
                s = trust.wrap_socket(s, server_hostname="127.0.0.1")
            if wrong := fetch(s, sc):
                raise RuntimeError(wrong)

    def wait_quiet(self) -> None:
        """Wait (a while) until nobody else uses the machine."""
        deadline = time.monotonic() + self.args.quiet_wait
        while True:
            busy = machine_busy()
            time.sleep(0.3)
            if (machine_busy() - busy) / 0.3 < 0.1 or time.monotonic() > deadline:
                return

    def load(self, server: Server, sc: Scenario) -> dict:
        proc, port = self.start(server, sc)
        try:
            self.check(port, sc)
            url = f"{'https' if self.args.tls else 'http'}://127.0.0.1:{port}{sc.path}"
            seconds = self.args.seconds * sc.stretch
            wrk(
                url,
                Scenario(sc.path, sc.size, min(sc.conns, 64), sc.close),
                self.args.warmup,
                self.args.client_core,
                self.script,
            )
            time.sleep(0.2)
            self.wait_quiet()
            wall, busy, cpu = time.monotonic(), machine_busy(), cpu_seconds(proc.pid)
            r = wrk(url, sc, seconds, self.args.client_core, self.script)
            pss, cpu = pss_bytes(proc.pid), cpu_seconds(proc.pid) - cpu
            busy, wall = machine_busy() - busy, time.monotonic() - wall
        finally:
            stop(proc)
        n = max(r["requests"], 1)
        return {
            "rps": r["requests"] / r["seconds"],
            "errors": r["errors"],
            "p50": r["p50"],
            "p99": r["p99"],
            "cpu_us": cpu / n * 1e6,
            "both_us": (cpu + r["wrk_cpu"]) / n * 1e6,
            "cap": n / max(cpu, 1e-9),
            "srv": 100 * cpu / r["seconds"],
            "wrk": 100 * r["wrk_cpu"] / r["seconds"],
            "pss": pss / 2**20,
            "noise": max(0.0, 100 * (busy - cpu - r["wrk_cpu"]) / wall),
        }

    def idle(self, server: Server, sc: Scenario) -> dict:
        self.wait_quiet()
        proc, port = self.start(server, sc)
        try:
            warm = IdleCrowd(port, Scenario(sc.path, sc.size, 10))
            warm.close()
            time.sleep(1)
            pss0, kernel0 = pss_bytes(proc.pid), kernel_bytes()
            crowd = IdleCrowd(port, sc)
            time.sleep(2)
            n, lost = max(len(crowd.socks), 1), crowd.closed()
            pss, kernel = pss_bytes(proc.pid), kernel_bytes()
            crowd.close()
        finally:
            stop(proc)
        return {
            "conns": n,
            "errors": crowd.errors + lost,
            "user": (pss - pss0) / n,
            "kernel": (kernel - kernel0) / n,
            "start": pss0 / 2**20,
            "end": pss / 2**20,
            "rate": n / crowd.seconds,
            "noise": 0.0,
        }

    def round(self, name: str, server: Server) -> dict:
        sc = SCENARIOS[name]
        measure = self.idle if sc.idle else self.load
        for attempt in range(self.args.retries + 1):
            r = measure(server, sc)
            if r["noise"] <= self.args.max_noise:
                break
        return r

    def run(self, servers: list[Server], scenarios: list[str]) -> None:
        for name in scenarios:
            sc = SCENARIOS[name]
            if sc.idle and self.args.tls:
                print(f"{name}: not over TLS, left out", file=sys.stderr)
                continue
            group = [s for s in servers if sc.size == SMALL or not s.only_small]
            for i in range(self.args.rounds):
                for server in group[::-1] if i % 2 else list(group):
                    try:
                        r = self.round(name, server)
                    except (RuntimeError, OSError) as e:
                        print(f"{name}: {server.name} left out: {e}", file=sys.stderr)
                        group.remove(server)
                        continue
                    self.rounds.setdefault((name, server.name), []).append(r)
                    if self.args.verbose:
                        print(
                            f"{name} round {i + 1} {server.name}: "
                            + " ".join(f"{k}={v:.4g}" for k, v in r.items()),
                            file=sys.stderr,
                            flush=True,
                        )
            self.table(name, [s.name for s in group])

    # -------------------------------------------------------------- output

    def table(self, name: str, servers: list[str]) -> None:
        rows = {s: self.rounds[name, s] for s in servers if (name, s) in self.rounds}
        if not rows:
            return
        med = {s: {k: statistics.median(r[k] for r in rs) for k in rs[0]} for s, rs in rows.items()}
        base = self.args.base if self.args.base in med else next(iter(med))
        title = name + (" TLS" if self.args.tls else "")
        print(f"\n### {title}  (base {base}, medians of {self.args.rounds} rounds)\n")
        if SCENARIOS[name].idle:
            head = [
                "server",
                "conns",
                "err",
                "user B/conn",
                "kernel B/conn",
                "pss MiB start",
                "pss MiB end",
                "conn/s",
            ]
            body = [
                [
                    s,
                    f"{m['conns']:.0f}",
                    f"{m['errors']:.0f}",
                    f"{m['user']:.0f}",
                    f"{m['kernel']:.0f}",
                    f"{m['start']:.1f}",
                    f"{m['end']:.1f}",
                    f"{m['rate']:.0f}",
                ]
                for s, m in med.items()
            ]
        else:
            head = [
                "server",
                "req/s",
                "+-%",
                "err",
                "p50 ms",
                "p99 ms",
                "cpu us",
                "both us",
                "cap/s",
                "xbase",
                "srv%",
                "wrk%",
                "pss MiB",
                "noise%",
            ]
            body = []
            for s, m in sorted(med.items(), key=lambda x: -x[1]["cap"]):
                rps = [r["rps"] for r in rows[s]]
                spread = 50 * (max(rps) - min(rps)) / max(m["rps"], 1e-9)
                ratio = statistics.median(a["cap"] / b["cap"] for a, b in zip(rows[s], rows[base]))
                mark = "!" if m["noise"] > self.args.max_noise else ""
                body.append(
                    [
                        s,
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
                )
        print_table(head, body)

    def dump(self, path: str) -> None:
        data = [
            {"scenario": a, "server": b, "tls": self.args.tls, "rounds": r}
            for (a, b), r in self.rounds.items()
        ]
        Path(path).write_text(json.dumps(data, indent=1) + "\n")


def print_table(head: list[str], body: list[list[str]]) -> None:
    width = [max(len(r[i]) for r in [head, *body]) for i in range(len(head))]

    def line(cells):
        print(
            "| "
            + " | ".join(
                c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, width))
            )
            + " |"
        )

    line(head)
    print(
        "|"
        + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(width))
        + "|"
    )
    for row in body:
        line(row)
    sys.stdout.flush()


def find_program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join(BIN_DIRS)) or shutil.which(name)


# ------------------------------------------------------------------ commands


def against_nginx(bench: Bench) -> None:
    """One ratio of requests per server CPU second for each round, then their median."""
    scenario, pair = "small-64", [PEERS["loadline"], PEERS["nginx-tuned"]]
    sc = SCENARIOS[scenario]
    print(
        f"a file of {sc.size} bytes, {sc.conns} keep-alive connections, "
        f"{bench.args.seconds} s each: requests per server CPU second"
    )
    ratios = []
    for i in range(bench.args.rounds):
        found = {}
        for server in pair[::-1] if i % 2 else pair:
            try:
                r = bench.round(scenario, server)
            except (RuntimeError, OSError) as e:
                sys.exit(f"{server.name} could not be measured: {e}")
            if r["errors"]:
                sys.exit(f"{server.name} could not be measured: {r['errors']:.0f} failed requests")
            found[server.name] = r
            bench.rounds.setdefault((scenario, server.name), []).append(r)
        ours, theirs = (found[server.name] for server in pair)
        ratios.append(ours["cap"] / theirs["cap"])
        noisy = max(ours["noise"], theirs["noise"]) > bench.args.max_noise
        print(
            f"round {i + 1}: loadline {ours['cap']:.0f}, nginx {theirs['cap']:.0f}, "
            f"ratio {ratios[-1]:.3f}" + (" (others used the machine)" if noisy else ""),
            flush=True,
        )
    print(
        f"median ratio {statistics.median(ratios):.3f}, "
        f"from {min(ratios):.3f} to {max(ratios):.3f} over {len(ratios)} rounds"
    )


def build_ceilings() -> None:
    """Compiles bench/ceilings into target/ceilings, as far as the machine can."""
    CEILINGS.mkdir(parents=True, exist_ok=True)
    for source in sorted((REPOSITORY / "bench" / "ceilings").glob("*.c")):
        program = CEILINGS / source.stem
        if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
            continue
        libraries = ["-luring"] if "uring" in source.stem else []
        argv = ["gcc", "-O2", "-o", str(program), str(source), *libraries]
        try:
            subprocess.run(argv, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            print(f"could not build: {shlex.join(argv)}", file=sys.stderr)


def among_peers(bench: Bench) -> None:
    """A table for each scenario."""
    args = bench.args
    if not args.servers or any(name.startswith("ceil-") for name in args.servers):
        build_ceilings()
    servers = []
    for s in map(pick_server, args.servers or PEERS):
        if not find_program(s.program):
            print(f"{s.name} left out: {s.program} is not installed", file=sys.stderr)
        elif args.tls and not s.tls:
            print(f"{s.name} left out: no TLS", file=sys.stderr)
        else:
            servers.append(s)
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
    o("--server-core", type=int, default=1, help="default 1")
    o("--client-core", type=int, default=0, help="default 0")
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
    n = commands.add_parser("nginx", parents=[common], help="Loadline against nginx")
    n.set_defaults(tls=False)
    q = commands.add_parser("peers", parents=[common], help="a table of many servers")
    q.add_argument(
        "servers",
        nargs="*",
        metavar="SERVER",
        help=f"cmd:LABEL:COMMAND or one of {', '.join(PEERS)} (default: all installed)",
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
    q.add_argument("--tls", action="store_true", help="with a self-signed P-256 certificate")
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
    needed = ["wrk"] if args.command == "peers" else ["wrk", "nginx", "loadline"]
    for program in needed:
        if not find_program(program):
            hint = "build it: cargo build --release" if program == "loadline" else "install it"
            sys.exit(f"{program} is not there; {hint}")
    cores = os.sched_getaffinity(0)
    if not {args.server_core, args.client_core} <= cores:
        sys.exit(f"needs two cores, may use {sorted(cores)}: see --server-core, --client-core")
    become_reaper(args.client_core)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with tempfile.TemporaryDirectory(prefix="bench-") as d:
        bench = Bench(args, Path(d), args.port)
        bench.prepare()
        try:
            against_nginx(bench) if args.command == "nginx" else among_peers(bench)
        finally:
            if args.json:
                bench.dump(args.json)


if __name__ == "__main__":
    main()
