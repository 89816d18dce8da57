#!/usr/bin/env python3
"""Compare load generators side by side: what they cost, and how exact their figures are.

  ./x bench load                     everything: about 45 minutes
  ./x bench load count cost closed   only these parts
  ./x bench load http2 http2-open -r 11 -d 2 --publish   up to 10 minutes; the tables go into
                                     docs/measuring.md, too
  ./x bench load http2 http2-open --quick                a minute or two

Parts:
  count   requests that `loadline load` completed against the lines of nginx's own log
  cost    requests per CPU second of the client against wrk's, same nginx, 64 to 10000 connections
  http2   the same over HTTP/2 beside h2load, same Loadline server, 1 and 32 streams a connection,
          in the clear and over TLS 1.3 with the same cipher
  http2-open  as open, over HTTP/2, in the clear and over TLS
  memory  what 10000 connections take in the client
  closed  requests/s, p50 and p99 against wrk's, closed loop, where the server is the limit
  open    completed requests, p50 and p99 against h2load's, open loop, at one rate
  truth   what wrk, h2load and Loadline report of a responder whose latency is programmed
  mm1     mean time in an M/M/1 queue against theory: 1 / (service rate - arrival rate)

Rounds are interleaved (A B B A ...); medians are printed with the lowest and the highest round. The
server is pinned to one core, the client to another, each a single thread. The tables are Markdown;
--json keeps every round. Needs two cores, Python 3.11, nginx, wrk, h2load, and the release builds
of loadline and loadline-stub.
"""

import argparse
import json
import math
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from load import H2LOAD_TLS, MEASURED, LoadRun, h2load, loaded, run_client, wrk
from page import interval, middle, middle_of_slices, write_between
from page import table as markdown
from peers import SCENARIOS, Ctx, Scenario, Server, of_lab
from processes import REPOSITORY, find_program, machine, measured_here, pss_bytes, spawn, stop
from rig import Failed, Rig, chosen, options, require_programs, rigged

CONNECTIONS = [64, 1000, 10000]
PAGE = REPOSITORY / "docs" / "measuring.md"
BEGIN, END = "<!-- ./x bench load --publish -->", "<!-- end of what it writes -->"
PUBLISHED = {
    "http2": "CPU time of the client, us a request, by connections x streams of each:",
    "http2-open": "Open loop, {rate}/s evenly spaced over {connections} connections, each with up "
    "to {streams} requests at a time (h2load's times begin where it sends, not where it is due):",
}
QUICK_ROUNDS, QUICK_SECONDS = 2, 1
# Over HTTP/2: the scenario, connections, and streams of each.
CLEAR, SECURE = "h2c-32", "h2-32"
WHERE = {CLEAR: "in the clear", SECURE: "over TLS"}
STREAMS = [(CLEAR, 64, 1), (CLEAR, 64, 32), (CLEAR, 1000, 1), (SECURE, 64, 1), (SECURE, 64, 32)]
# What h2load offers by H2LOAD_TLS.
LOADLINE_TLS = ["--insecure", "--tls-key-exchange=x25519", "--tls-cipher=aes-128-gcm"]
# Some 200 MB of times in the stub: more than it answers in a round.
RECORDED_MAX = 4_000_000
CAPACITY = ["--latency", "4ms", "--servers", "40"]
OPEN_RATE, OPEN_CONNECTIONS = 4000, 50
OPEN_HTTP2 = (10, 10)  # connections, and streams of each
COMPARED = [("rate", "completed/s"), ("p50_us", "p50 us"), ("p99_us", "p99 us")]


@dataclass(frozen=True)
class Truth:
    """A responder's latency, and the load it is asked with."""

    latency: str  # of the responder's options
    theory_ms: tuple[float, float]  # p50 and p99 from due, open loop, with enough connections
    clients: int = 20  # of the closed loops
    rate: int = 2000  # of the open ones, over so many connections
    connections: int = 200
    seconds: int = 0  # 0: as asked for


def exponential(mean_ms: int, clients: int = 20) -> Truth:
    theory_ms = (mean_ms * math.log(2), mean_ms * math.log(100))
    return Truth(f"exp:{mean_ms}ms --strata 1000", theory_ms, clients)


TRUTHS = {
    "at once": Truth("0ms", (0, 0), clients=64),
    "exponential, mean 1 ms": exponential(1, clients=64),
    "constant 5 ms": Truth("5ms", (5, 5)),
    "exponential, mean 5 ms": exponential(5),
    "1 ms, of 5 % 20 ms": Truth("bimodal:1ms,20ms,5% --strata 1000", (1, 20)),
    # A tenth of the requests meets the stall and waits for what is left of it, evenly from 0 to
    # 1000 ms: one in a hundred more than 900 ms.
    "1 ms, and a stall of 1 s every 10 s": Truth("1ms --stall 1s/10s", (1, 901), 10, 1000, 2000, 20),
}


def nginx_logged(c: Ctx) -> list[str]:
    """Tuned, but for a log; and connections are accepted as they come."""
    argv = of_lab("nginx-tuned").argv(c)
    file = c.dir / "configuration"
    log = f"access_log {c.dir}/access.log;"
    file.write_text(file.read_text().replace("access_log off;", log).replace(" deferred", ""))
    return argv


LOGGED = Server("nginx-logged", nginx_logged, "nginx")
DEFAULT, TUNED = of_lab("nginx-default"), of_lab("nginx-tuned")


def table(head: list[str], rows: list[list[str]]) -> None:
    print(markdown(head, rows), flush=True)


def figures(runs: list[dict], key: str) -> list[float]:
    return [run[key] for run in runs]


class Generators:
    """Each generator asked for the same thing."""

    def __init__(self, rig: Rig):
        self.rig, self.serial = rig, 0

    def file(self, suffix: str) -> Path:
        self.serial += 1
        return self.rig.dir / f"client-{self.serial}{suffix}"

    def wrk(self, url: str, connections: int, seconds: int) -> dict:
        cores, script = self.rig.client_cores, self.rig.script
        return wrk(url, Scenario("", 0, connections), seconds, cores, script)

    def h2load(self, url: str, connections: int, rate: float, seconds: int, *options: str) -> dict:
        """In an open loop, over HTTP/1.1 or as the options say."""
        log = self.file(".tsv")
        argv = ["h2load", *(options or ["--h1"]), f"-c{connections}", f"-D{seconds}"]
        argv.append(f"--log-file={log}")
        argv += [f"--rps={rate / connections:g}", url]
        _, cpu = run_client(argv, self.rig.client_cores)
        lines = [line.split("\t") for line in log.read_text().splitlines()]
        times = sorted(int(line[2]) for line in lines)
        errors = sum(line[1] != "200" for line in lines)
        at = lambda q: float(times[min(int(len(times) * q), len(times) - 1)])  # noqa: E731
        return loaded(len(times), seconds, errors, at(0.5), at(0.99), cpu)

    def loadline(self, url: str, *options: str, seconds: int) -> dict:
        out = self.file(".json")
        argv = [find_program("loadline"), "load", url, f"--duration={seconds}s", "--quiet"]
        argv += ["--allow-client-limited", "--threads=1", f"--json={out}", *options]
        _, cpu = run_client(argv, self.rig.client_cores)
        record = json.loads(out.read_text().splitlines()[-1])
        total = record["groups"][0]["total"]
        tally, percentiles = total["tally"], total["latency"]["percentiles"]
        result = loaded(
            tally["completed"],
            total["seconds"],
            sum(tally["errors"].values() if isinstance(tally["errors"], dict) else tally["errors"]),
            percentiles["p50"] or 0,
            percentiles["p99"] or 0,
            cpu,
        )
        # The whole of the run, as the client's CPU time is.
        everything = record["everything"]["completed"]
        return {**result, "per_cpu": everything / cpu, "record": record}


class Bench:
    """The parts."""

    def __init__(self, args: argparse.Namespace, rig: Rig):
        self.args, self.rig = args, rig
        self.generators = Generators(rig)
        self.figures: dict[str, object] = {}

    # ------------------------------------------------------------ servers

    def nginx(self, server: Server) -> AbstractContextManager[tuple[subprocess.Popen, str]]:
        return self.rig.running(server, SCENARIOS["small-64"])

    @contextmanager
    def stub(self, options: list[str]) -> Iterator[tuple[str, dict[str, float]]]:
        """A responder's URL, and what it recorded of itself, which is there when it has ended."""
        out = self.generators.file(".stub")
        argv = [find_program("loadline-stub"), "--times", str(RECORDED_MAX), *options]
        with open(out, "wb") as log:
            proc = spawn(argv, self.rig.server_cores, log)
        recorded: dict[str, float] = {}
        try:
            yield self.stub_url(out), recorded
        finally:
            stop(proc)
        if found := re.search(r"^true-us p50 (\S+) p99 (\S+)", out.read_text(), re.M):
            recorded.update(p50_us=float(found[1]), p99_us=float(found[2]))

    @staticmethod
    def stub_url(out: Path) -> str:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if found := re.search(r"127\.0\.0\.1:\d+", out.read_text()):
                return f"http://{found[0]}/"
            time.sleep(0.02)
        raise Failed(f"loadline-stub did not start: {out.read_text()}")

    def rounds(self, runs: dict[str, Callable[[], dict]]) -> dict[str, list]:
        """What each run returned in each round; every other round goes backwards."""
        found: dict[str, list] = {name: [] for name in runs}
        for number in range(self.args.rounds):
            for name in list(runs) if number % 2 == 0 else list(runs)[::-1]:
                self.rig.wait_quiet()
                found[name].append(runs[name]())
        return found

    def beside_wrk(self, url: str, connections: int, *options: str) -> dict[str, list]:
        """Rounds of both in a closed loop against the same server."""
        g, seconds = self.generators, self.args.seconds
        return self.rounds(
            {
                "loadline": lambda: g.loadline(url, f"-c{connections}", *options, seconds=seconds),
                "wrk": lambda: g.wrk(url, connections, seconds),
            }
        )

    def beside(self, name: str, runs: dict[str, list], other: str) -> tuple[list[float], list[str]]:
        """Ratios of requests per CPU second; and us a request of both, and errors, as text."""
        both = [figures(runs[generator], "per_cpu") for generator in ("loadline", other)]
        self.figures[name] = ratios = [own / theirs for own, theirs in zip(*both)]
        us = (middle([1e6 / one for one in per_cpu]) for per_cpu in both)
        return ratios, [*us, f"{sum(figures(runs['loadline'], 'errors'))}"]

    # -------------------------------------------------------------- parts

    def count(self) -> None:
        """Nginx's log is written when it ends, so it is complete."""
        print("\n### Counted by the client and by nginx\n")
        rows = []
        kinds = {
            "closed loop, 64 connections": ["-c", "64"],
            "a new connection each": ["-c", "64", "--new-connection"],
            "open loop, 5000/s": ["-c", "200", "--rate", "5000"],
            "3 processes": ["-c", "300", "--processes", "3"],
        }
        for name, options in kinds.items():
            with self.nginx(LOGGED) as (_, url):
                run = self.generators.loadline(url, *options, seconds=self.args.seconds)
            lines = sum(1 for _ in open(self.rig.scratch() / "access.log", "rb"))
            lines -= 1  # that it was checked with
            completed = run["record"]["everything"]["completed"]
            unfinished = run["record"]["everything"]["unfinished"]
            rows.append([name, f"{completed}", f"{lines}", f"{lines - completed}", f"{unfinished}"])
            self.figures[f"count: {name}"] = {"completed": completed, "logged": lines}
        table(["load", "completed", "logged by nginx", "difference", "given up"], rows)

    def cost(self) -> None:
        print("\n### Requests per CPU second of the client, as a ratio to wrk's\n")
        rows = []
        for connections in CONNECTIONS:
            with self.nginx(TUNED) as (_, url):
                runs = self.beside_wrk(url, connections)
            ratios, cells = self.beside(f"cost: {connections}", runs, "wrk")
            ratio = f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"
            rows.append([f"{connections}", ratio, *cells])
        head = ["connections", "ratio", "us a request", "wrk's", "errors"]
        table(head, rows)

    def over_http2(
        self, scenario: str, connections: int, streams: int
    ) -> tuple[Server, Scenario, list[str]]:
        """The server, what it is asked for, and options of `loadline load`."""
        sc = replace(SCENARIOS[scenario], conns=connections, streams=streams)
        own = ["--http2", f"-c{connections}", f"--streams={streams}"]
        if sc.tls:
            return of_lab("reactor-tls"), sc, own + LOADLINE_TLS
        return of_lab("reactor"), sc, own

    def http2(self) -> str:
        print("\n### Over HTTP/2: CPU time of the client, us a request\n")
        rows, cores, seconds = [], self.rig.client_cores, self.args.seconds
        for scenario, connections, streams in STREAMS:
            server, sc, own = self.over_http2(scenario, connections, streams)
            with self.rig.running(server, sc) as (_, url):
                runs = self.rounds(
                    {
                        "loadline": lambda: self.generators.loadline(url, *own, seconds=seconds),
                        "h2load": lambda: h2load(url, sc, seconds, cores),
                    }
                )
            name = f"{WHERE[scenario]}, {connections} x {streams}"
            ratios, (own_us, others_us, errors) = self.beside(f"http2: {name}", runs, "h2load")
            goal = "met" if interval(ratios)[0] >= 1 else "**not met**"
            rows.append([name, own_us, others_us, middle_of_slices(ratios, 2), goal, errors])
        head = ["", "loadline", "h2load", "requests per CPU second, ratio", "goal: 1", "errors"]
        table(head, rows)
        return markdown(head, rows)

    def http2_open(self) -> str:
        print(f"\n### Open loop over HTTP/2, {OPEN_RATE}/s evenly spaced: h2load beside it\n")
        g, seconds, (connections, streams) = self.generators, self.args.seconds, OPEN_HTTP2
        rows = []
        for scenario, where in WHERE.items():
            server, sc, own = self.over_http2(scenario, connections, streams)
            own += [f"--rate={OPEN_RATE}", "--arrivals=constant"]
            theirs = [f"-m{streams}", *(H2LOAD_TLS if sc.tls else [])]
            with self.rig.running(server, sc) as (_, url):
                runs = self.rounds(
                    {
                        "loadline": lambda: g.loadline(url, *own, seconds=seconds),
                        "h2load": lambda: g.h2load(url, connections, OPEN_RATE, seconds, *theirs),
                    }
                )
            rows += self.compared(f"{where}, ", runs)
        head = ["", "loadline", "h2load", "ratio"]
        table(head, rows)
        return markdown(head, rows)

    def memory(self) -> None:
        print("\n### Memory of the client\n")
        rows = []
        for connections in CONNECTIONS:
            peak = 0
            with self.nginx(TUNED) as (_, url):
                argv = [url, f"-c{connections}", f"--duration={self.args.seconds}s", "--threads=1"]
                run = LoadRun(argv, self.generators.file(""), self.rig.client_cores)
                while run.is_running():
                    peak = max(peak, pss_bytes(run.proc.pid))
                    time.sleep(0.5)
                run.record(MEASURED)
            rows.append([f"{connections}", f"{peak / 2**20:.1f}"])
            self.figures[f"memory: {connections}"] = peak
        table(["connections", "Pss, MiB"], rows)

    def compared(self, what: str, runs: dict[str, list]) -> list[list[str]]:
        """A row for each figure, by this name: loadline's, the other's, and the ratio."""
        other = next(one for one in runs if one != "loadline")
        rows = []
        for key, label in COMPARED:
            ours, theirs = figures(runs["loadline"], key), figures(runs[other], key)
            ratios = [a / max(b, 1e-9) for a, b in zip(ours, theirs)]
            rows.append([what + label, middle(ours, 0), middle(theirs, 0), middle(ratios, 3)])
            self.figures[f"{other}: {what}{label}"] = ratios
        return rows

    def agreement(self, name: str, runs: dict[str, list]) -> None:
        """A table of loadline, by this name, beside the other."""
        other = next(one for one in runs if one != "loadline")
        table(["", name, other, "ratio"], self.compared("", runs))

    def closed(self) -> None:
        """nginx as the distribution has it: it logs, opens each file, and so is the limit."""
        for options in [[], ["--no-coalescing"]]:
            name = " ".join(["loadline", *options])
            print(f"\n### Closed loop, 64 connections, nginx is the limit: wrk beside {name}\n")
            with self.nginx(DEFAULT) as (_, url):
                self.agreement(name, self.beside_wrk(url, 64, *options))
        self.capacity()

    def capacity(self) -> None:
        """A responder whose capacity does not depend on its client."""
        print("\n### Closed loop, 64 connections, a responder of 10,000/s: 64 / 10,000 s is 6.4 ms\n")
        with self.stub(CAPACITY) as (url, _):
            found = self.beside_wrk(url, 64)
        rows = [["truth", "10000", "6400", "6400"]]
        for name, runs in found.items():
            keys = ("rate", "p50_us", "p99_us")
            rows.append([name, *(middle(figures(runs, key), 0) for key in keys)])
        table(["", "completed/s", "p50 us", "p99 us"], rows)
        self.figures["capacity"] = {name: figures(runs, "rate") for name, runs in found.items()}

    def open(self) -> None:
        print(f"\n### Open loop, {OPEN_RATE}/s evenly spaced: h2load beside it\n")
        g, seconds = self.generators, self.args.seconds
        options = ["-c", str(OPEN_CONNECTIONS), "--rate", str(OPEN_RATE), "--arrivals", "constant"]
        with self.nginx(DEFAULT) as (_, url):
            runs = self.rounds(
                {
                    "loadline": lambda: g.loadline(url, *options, seconds=seconds),
                    "h2load": lambda: g.h2load(url, OPEN_CONNECTIONS, OPEN_RATE, seconds),
                }
            )
        self.agreement("loadline", runs)

    def truth(self) -> None:
        print("\n### Reported of a responder with a programmed latency (and recorded by it), us\n")
        for name, truth in TRUTHS.items():
            runs = self.truth_runs(truth).items()
            found = self.rounds(
                {name: lambda r=run, t=truth: self.truth_round(t, r) for name, run in runs}
            )
            rows = []
            for generator, rounds in found.items():
                rows.append([generator])
                for key in ["p50_us", "p99_us"]:
                    reported, recorded = ([f[side][key] for f in rounds] for side in (0, 1))
                    medians = [statistics.median(side) for side in (reported, recorded)]
                    excess = [a - b for a, b in zip(reported, recorded)]
                    rows[-1] += ["{:.0f} ({:.0f})".format(*medians), middle(excess, 0)]
                    self.figures[f"truth: {name}: {generator}: {key}"] = [reported, recorded]
            p50, p99 = truth.theory_ms
            load = f"closed: {truth.clients} connections; open: {truth.rate}/s over "
            print(f"\n**{name}** (p50 {p50:.2f} ms, p99 {p99:.2f} ms; {load}{truth.connections})\n")
            table(["", "p50", "too much", "p99", "too much"], rows)

    def truth_runs(self, truth: Truth) -> dict[str, Callable[[str], dict]]:
        g, seconds = self.generators, truth.seconds or self.args.seconds
        clients, rate, connections = truth.clients, truth.rate, truth.connections
        ours = ["-c", str(connections), "--rate", str(rate)]
        return {
            "wrk, closed": lambda url: g.wrk(url, clients, seconds),
            "loadline, closed": lambda url: g.loadline(url, "-c", str(clients), seconds=seconds),
            "h2load, open": lambda url: g.h2load(url, connections, rate, seconds),
            "loadline, open": lambda url: g.loadline(url, *ours, seconds=seconds),
            "loadline, open, --spin": lambda url: g.loadline(url, *ours, "--spin", seconds=seconds),
        }

    def truth_round(self, truth: Truth, run: Callable[[str], dict]) -> tuple[dict, dict]:
        """What was reported, and what the responder recorded of the same run."""
        with self.stub(["--latency", *truth.latency.split()]) as (url, recorded):
            reported = run(url)
        if not recorded:
            raise Failed("loadline-stub said nothing of the times that it took")
        return {key: reported[key] for key in ["p50_us", "p99_us"]}, recorded

    def mm1(self) -> None:
        print("\n### Mean time in an M/M/1 queue, in ms (service 2 ms, exponential)\n")
        rows = []
        for rate in [100, 250, 400]:
            means = []
            for seed in range(self.args.rounds):
                drawn = ["--seed", f"{seed + 1}"]
                with self.stub(["--latency", "exp:2ms", "--servers", "1", *drawn]) as (url, _):
                    options = ["-c", "200", "--rate", f"{rate}", *drawn]
                    run = self.generators.loadline(url, *options, seconds=20)
                total = run["record"]["groups"][0]["total"]
                means.append(total["latency"]["mean_us"] / 1e3)
            theory_ms = 1000 / (500 - rate)
            rows.append([f"{rate}/s", f"{theory_ms:.2f}", middle(means)])
            self.figures[f"mm1: {rate}"] = means
        table(["arrivals", "theory", "measured"], rows)


def arguments() -> argparse.Namespace:
    p = options(__doc__, "./x bench load", 23000)
    parts = ["count", "cost", "http2", "memory", "closed", "open", "http2-open", "truth", "mm1"]
    p.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts) + " (default all)")
    o = p.add_argument
    o("-r", "--rounds", type=int, default=5, help="default 5")
    o("-d", "--seconds", type=int, default=4, help="load per round (default 4)")
    o("--quiet-wait", type=float, default=20, metavar="SECONDS", help="longest wait for quiet")
    o("--json", metavar="FILE", help="write every round's figures")
    quick = f"{QUICK_ROUNDS} rounds of {QUICK_SECONDS} s, which show that it works, and little else"
    o("--quick", action="store_true", help=quick)
    publish = f"write the tables of {' and '.join(PUBLISHED)} into docs/measuring.md, too"
    o("--publish", action="store_true", help=publish)
    args = p.parse_args()
    args.parts = chosen(p, "part", args.parts, parts)
    if args.publish and (args.quick or not PUBLISHED.keys() <= set(args.parts)):
        p.error(f"--publish: only with {' and '.join(PUBLISHED)}, and without --quick")
    if args.quick:
        args.rounds, args.seconds = QUICK_ROUNDS, QUICK_SECONDS
    return args


def published(args: argparse.Namespace, tables: dict[str, str]) -> str:
    """The tables with what they are of, and how they were measured."""
    connections, streams = OPEN_HTTP2
    load = {"rate": OPEN_RATE, "connections": connections, "streams": streams}
    text = [f"{what.format(**load)}\n\n{tables[part]}" for part, what in PUBLISHED.items()]
    origin = f"{measured_here()}: `{args.command_line}`; {args.rounds} rounds of {args.seconds} s: "
    origin += "medians with the lowest and the highest, ratios of CPU time with a 95 % interval."
    return "\n\n".join([*text, origin])


def main() -> None:
    args = arguments()
    require_programs("loadline", "loadline-stub", "nginx", "wrk", "h2load")
    rounds = f"medians of {args.rounds} rounds of {args.seconds} s (lowest to highest)"
    print(f"{machine()}; {rounds}.")
    with rigged(args, args.quiet_wait) as rig:
        bench = Bench(args, rig)
        try:
            run = {part: getattr(bench, part.replace("-", "_"))() for part in args.parts}
        finally:
            if args.json:
                Path(args.json).write_text(json.dumps(bench.figures, indent=1))
    if args.publish:
        write_between(PAGE, BEGIN, END, published(args, run))


if __name__ == "__main__":
    main()
