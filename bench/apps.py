#!/usr/bin/env python3
"""Apps under each architecture of Loadline, and beside axum's own `serve`.

  ./x bench apps                  everything: about 20 minutes on an idle machine
  ./x bench apps hello rate       some parts
  ./x bench apps busy -r 3        fewer rounds
  ./x bench apps --show           what was measured last, without measuring
  ./x bench apps --publish        the same, into docs/apps-results.md and docs/figures.md

Parts:
  hello   the smallest axum route, 64 keep-alive connections in a closed loop (wrk): requests/s and
          CPU time a request, beside the same app under axum::serve
  rate    the same at a common rate in an open loop: p99
  busy    p99 of a static file while an app beside it keeps whoever polls it busy

The programs are crates/tower/examples/hello.rs and busy.rs, built as releases. axum::serve has as
many threads as Loadline has loops, one, on the same CPU. Rounds are interleaved (A B C C B A ...),
each with a fresh server; for `hello` all servers stay up and are loaded for a second each in turn,
which shows differences of a few hundredths. Results are kept in target/bench/apps.json: a part that
is measured again takes the place of its earlier self.
"""

import argparse
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import page
from load import loadline_load
from measure import Figures
from parts import COST, LATENCY, SHARES, Column, Part, Row, Settings, by_the_clock
from peers import SMALL, Scenario, Server, command
from processes import REPOSITORY, find_program, spawn, stop
from results import Results, unique
from rig import Failed, Rig, require_programs
from rounds import measure_and_show, round_options
from slices import slices

PAGE = REPOSITORY / "docs" / "apps-results.md"
BEGIN, END = "<!-- ./x bench apps --publish -->", "<!-- end of what it writes -->"
FIGURES = REPOSITORY / "docs/figures.md"
EXAMPLES = REPOSITORY / "target" / "release" / "examples"

AXUM, AXUM_ONE = "axum-serve", "axum-serve-current-thread"
LOOPS = {
    "reactor": "reactor --workers 0",
    "reactor-2-workers": "reactor --workers 2",
    "proactor": "proactor --workers 0",
    "proactor-2-workers": "proactor --workers 2",
}
THREADS = {
    "thread-per-connection": "thread-per-connection",
    "thread-pool-64": "thread-pool --threads 64",
}
ALONE = {"sequential": "sequential"}
SERVES = {AXUM: "axum", AXUM_ONE: "axum-current-thread"}

HELLO_ANSWER = len("hello")
CONNECTIONS = 64
# Of what the slowest does in a closed loop, where both sides handle requests by the dozen. By the
# clock each comes alone and costs up to twice as much: this is some 60 % of what the slowest can do
# then, and as much as the client can send on one CPU without being the limit.
RATE_SHARE = 0.33

BUSY_CLIENTS = 32
BUSY_SECONDS_BEFORE = 0.5
FILE_RATE = 600  # twice as many in a phase as a p99 asks for
FILE_CONNECTIONS_MAX = 4000
PHASES = {
    "alone": "the app idle",
    "wait": "it awaits a timer",
    "block": "it blocks its thread",
    "compute": "it computes",
}


def example(name: str, label: str, architecture: str, more: str = "") -> Server:
    program = str(EXAMPLES / name)
    line = f"{program} --listen 127.0.0.1:{{port}} --architecture {architecture} {more}"
    return Server(label, command(line), program)


def rows(name: str, servers: dict[str, str], scenario: Scenario, more: str = "") -> list[Row]:
    return [Row(k, example(name, k, options, more), scenario) for k, options in servers.items()]


# --------------------------------------------------------- hello and rate


def in_turns(rig: Rig, rows: list[Row], settings: Settings) -> Iterator[tuple[str, int, Figures]]:
    """Servers that stay up, each loaded for a second in turn: they differ by less than one server
    does from one start to the next."""
    servers, scenario = [row.server for row in rows], rows[0].scenario
    rig.wait_quiet()
    for found in slices(rig, servers, scenario, settings.turns, 1):
        run = found.run
        figures = {key: run[key] for key in ("errors", "p50", "p99")}
        share = 100 * found.us * run["requests"] / 1e6 / run["seconds"]
        figures |= {"rps": found.rps, "cpu_us": found.us, "cap": 1e6 / found.us, "srv": share}
        figures["wrk"] = 100 * run["wrk_cpu"] / run["seconds"]
        yield found.name, found.number, figures


def beside_axum(head: str, key: str) -> list[Column]:
    return [
        Column(f"{head} x {base}", key, 2, base, interval=True) for base in (AXUM, AXUM_ONE)
    ]


def library_versions(_: Rig, __: Settings) -> dict:
    """What axum::serve is made of, as it was built."""
    lock = (REPOSITORY / "Cargo.lock").read_text()
    found = {}
    for name in ["axum", "hyper", "tokio"]:
        found[name] = re.search(rf'^name = "{name}"\nversion = "(.*)"$', lock, re.M)[1]
    return {"libraries": found}


HELLO = Part(
    "hello",
    f"The smallest axum route, {CONNECTIONS} connections, closed loop",
    rows("hello", SERVES | LOOPS | THREADS | ALONE, Scenario("/", HELLO_ANSWER, CONNECTIONS)),
    None,
    [
        Column("req/s", "rps"),
        *COST[:1],
        *beside_axum("requests a CPU second,", "cap"),
        Column("the same, all turns", "cap", 2, AXUM, spread=True),
        *beside_axum("req/s,", "rps"),
        Column("errors", "errors"),
        *LATENCY,
        *SHARES,
    ],
    f"`sequential` answers one connection at a time, so of the {CONNECTIONS} only one: its requests "
    "are those of one client, which wait for nobody. Its p99 says nothing of the other 63, who get "
    "no answer.",
    together=in_turns,
    prepare=library_versions,
)


def rate_part(results: Results | None) -> Part:
    """At a rate that all but `sequential` can carry: so `hello` comes first."""

    def common_rate(_: Rig, __: Settings) -> dict:
        hello = results and results.get(HELLO.name)
        found = [hello.figures(row.name, "rps") for row in able] if hello else []
        slowest = min((statistics.median(rps) for rps in found if rps), default=None)
        if not slowest:
            raise Failed("the rate is a share of what `./x bench apps hello` finds: measure it first")
        return {"rate": round(slowest * RATE_SHARE, -2)}

    able = rows("hello", SERVES | LOOPS | THREADS, Scenario("/", HELLO_ANSWER, CONNECTIONS))
    return Part(
        "rate",
        "The same in an open loop",
        able,
        by_the_clock,
        [
            Column("p50 ms", "p50", 3),
            Column("p99 ms", "p99", 3, spread=True),
            Column(f"p99, x {AXUM}", "p99", 2, AXUM, True),
            Column(f"p99, x {AXUM_ONE}", "p99", 2, AXUM_ONE, True),
            Column("completed/s", "rps"),
            Column("errors", "errors"),
            Column("cpu us", "cpu_us", 2),
            Column("client late, ms", "late", 3),
        ],
        f"`loadline load --rate`, Poisson arrivals, at most {CONNECTIONS} connections; latency from "
        f"when a request was due. The rate is {RATE_SHARE:.0%} of what the slowest did in the closed "
        "loop, where requests come by the dozen and cost less than one by one. *Client late*: how much "
        "later than due one request in a hundred was sent though a connection was free, which is the "
        "machine's part in every p99. Not `sequential`, which answers one connection of them.",
        prepare=common_rate,
    )


# ------------------------------------------------------------------ busy


def beside_busy(rig: Rig, row: Row, settings: Settings, _: dict) -> Figures:
    """A static file by the clock, first alone, then beside each kind of busy app."""
    seconds = max(settings.seconds // 2, 2)
    figures: Figures = {"errors": 0.0, "noise": 0.0}
    with rig.running(row.server, row.scenario) as (_, url):
        for phase in PHASES:
            rig.wait_quiet()
            app = None if phase == "alone" else busy_clients(rig, url, phase, seconds)
            try:
                # A file is asked for as by someone who comes for the first time, and each is due
                # whatever became of the others.
                options = (f"--rate={FILE_RATE}", f"--connections={FILE_CONNECTIONS_MAX}")
                options += ("--new-connection", "--timeout=20s")
                r = loadline_load(url, options, seconds, rig.client_cores, rig.dir)
            finally:
                if app:
                    stop(app)
            if not r["p99"]:
                raise Failed(f"{row.name}, {phase}: {r['requests']:.0f} answers are no p99")
            figures |= {f"p50_{phase}": r["p50"], f"p99_{phase}": r["p99"]}
            figures["errors"] += r["errors"]
    return figures


def busy_clients(rig: Rig, url: str, kind: str, seconds: int) -> subprocess.Popen:
    """More clients than any row has workers; each asks again when it is answered."""
    target = re.sub(r"/[^/]*$", f"/app/{kind}", url)
    argv = [find_program("loadline"), "load", target, f"--connections={BUSY_CLIENTS}"]
    argv += ["--new-connection", f"--duration={seconds + 60}s", "--quiet", "--timeout=20s"]
    proc = spawn(argv, rig.client_cores, subprocess.DEVNULL)
    time.sleep(BUSY_SECONDS_BEFORE)
    if proc.poll() is not None:
        raise Failed(f"{shlex.join(argv)}: exit code {proc.returncode}")
    return proc


BUSY = Part(
    "busy",
    "p99 of a static file while the app beside it is busy",
    rows(
        "busy",
        ALONE
        | {"thread-pool-8": "thread-pool --threads 8"}
        | THREADS
        | LOOPS,
        Scenario("/small.html", SMALL, CONNECTIONS),
        "--root {root}",
    ),
    beside_busy,
    [Column(f"p99 ms, {said}", f"p99_{phase}", 2, spread=True) for phase, said in PHASES.items()]
    + [Column("errors", "errors")],
    f"One server has both (`Mounts`). {BUSY_CLIENTS} clients keep the app busy, each request of "
    "which takes 50 ms, spent as the column says: on a timer that is awaited, asleep without giving "
    "its thread away, or computing. The file is asked for "
    f"{FILE_RATE} times a second whatever is answered (`loadline load --rate`), latency from when "
    "it was due. Every request, of both, has a connection of its own: over connections that stay, "
    "`sequential` and a thread pool whose threads are all taken would not answer the file at all.",
)


# ----------------------------------------------------------- the command


def parts_by_name(results: Results | None) -> dict[str, Part]:
    return {part.name: part for part in [HELLO, rate_part(results), BUSY]}


INTRODUCTION = """# Apps: results

One axum app under each architecture of Loadline, and under axum's own `serve` on tokio; and how long a
static file waits while an app beside it is busy. [apps.md](apps.md) explains how apps are served.

- Server and client have one CPU each. `axum-serve` is `axum::serve` on tokio's multi-thread runtime
  with one thread, as many as Loadline has loops; `axum-serve-current-thread` on tokio's runtime for
  one thread. Loadline's limits, timers and counters are on.
- Names ending in *workers*: the app runs on them. `reactor` and `proactor` without: the loop itself
  polls the app.
- **cpu us** is the server's CPU time for a request, *requests a CPU second* its inverse, as a ratio
  in the same round: above 1, Loadline needs less. Of p99 ratios less is better. Figures are medians;
  in brackets behind ratios of the closed loop stands a 95 % bootstrap interval of the median, elsewhere
  (and under *all turns*) the lowest and the highest round.

This page is written by `./x bench apps --publish` from what `./x bench apps` measured last.
"""


def render(results: Results) -> str:
    hello = results.get(HELLO.name)
    libraries = (hello.data["info"] if hello else {}).get("libraries", {})
    said = ", ".join(f"{name} {version}" for name, version in libraries.items())
    machines = "; ".join(results.machines())
    lines = [f"{machines}. {said}." if said else f"{machines}.", ""]
    for name, part in parts_by_name(results).items():
        result = results.get(name)
        if not result:
            continue
        if rate := result.data["info"].get("rate"):
            part = replace(part, title=f"{part.title}: {rate:,.0f} requests/s")
        lines.append(page.part_section(part, result))
    return "\n".join(lines)


def summary(results: Results) -> str:
    """What docs/figures.md shows: an architecture a row."""
    hello, rate = results.get(HELLO.name), results.get("rate")
    names = [row.name for row in HELLO.rows if hello.figures(row.name, "rps")]
    asked = f"{rate.data['info']['rate']:,.0f}/s" if rate else ""
    body = []
    for name in names:
        row = [f"{statistics.median(hello.figures(name, 'rps')):,.0f}"]
        row += [f"{statistics.median(hello.figures(name, 'cpu_us')):.2f}"]
        row += [page.cell(hello, name, HELLO.columns[2], 0)]
        p99 = rate.figures(name, "p99") if rate else []
        row += [page.spread(p99, 1) if p99 else ""]
        body.append([name, *row])
    head = ["`hello`", "requests/s", "server CPU us a request", f"requests a CPU second, x {AXUM}"]
    return page.table([*head, f"p99 ms at {asked}"], body)


def busy_summary(results: Results) -> str:
    busy = results.get(BUSY.name)
    if not busy:
        return ""
    body = []
    for row in BUSY.rows:
        cells = [busy.figures(row.name, f"p99_{phase}") for phase in PHASES]
        if all(cells):
            body.append([row.name, *(f"{statistics.median(found):.1f}" for found in cells)])
    return page.table(["p99 ms of a static file", *PHASES.values()], body)


def figures_block(results: Results) -> str:
    days = unique(part.data["when"][:10] for part in results.parts.values())
    lines = [
        BEGIN,
        "",
        summary(results),
        "",
        busy_summary(results),
        "",
        f"{' and '.join(days)}; {'; '.join(results.machines())}; server and client one CPU each. "
        "Medians of interleaved rounds; in brackets a 95 % interval of the median, behind p99 the "
        "lowest and the highest round. "
        f"`{AXUM}` is the same app under `axum::serve` with one thread. "
        "[All figures, and how they were taken](apps-results.md).",
        "",
        END,
    ]
    return "\n".join(lines)


def publish(results: Results) -> list[Path]:
    if not results.get(HELLO.name):
        sys.exit("nothing to publish: run ./x bench apps hello first")
    PAGE.write_text(INTRODUCTION + "\n" + render(results))
    put_in_figures(figures_block(results))
    return [PAGE, FIGURES]


def put_in_figures(block: str) -> None:
    """The block has its own marks, and goes where docs/figures.md has them."""
    before, found, rest = FIGURES.read_text().partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not found or not ends:
        raise ValueError(f"{FIGURES.name} has no place for the table: {BEGIN} ... {END}")
    FIGURES.write_text(before + block + after)


def arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="./x bench apps", description=__doc__, formatter_class=raw)
    p.add_argument("parts", nargs="*", metavar="PART", help="hello, rate, busy (default all)")
    o = p.add_argument
    o("--rows", nargs="+", metavar="ROW", help="only these servers")
    o("--turns", type=int, default=20, help="of hello, a second for each row (default 20)")
    o("--show", action="store_true", help="print what was measured last")
    o("--publish", action="store_true", help="write it into docs/apps-results.md and docs/figures.md")
    round_options(p)
    args = p.parse_args()
    args.command_line = shlex.join(["./x", "bench", "apps", *sys.argv[1:]])
    known = parts_by_name(None)
    for name in args.parts:
        if name not in known:
            p.error(f"{name}: no such part; right would be one of {', '.join(known)}")
    names = unique(row.name for part in known.values() for row in part.rows)
    for name in args.rows or []:
        if name not in names:
            p.error(f"{name}: no such row; right would be one of {', '.join(names)}")
    args.parts = args.parts or list(known)
    folder = REPOSITORY / "target" / "bench"
    args.json = args.json or folder / ("apps-some.json" if args.rows else "apps.json")
    args.markdown = args.markdown or args.json.with_suffix(".md")
    args.rounds, args.seconds = args.rounds or 5, args.seconds or 4
    return args


def parts_asked(args: argparse.Namespace, results: Results) -> list[Part]:
    require_programs(*(str(EXAMPLES / name) for name in ("hello", "busy")))
    parts = parts_by_name(results)
    return [parts[name] for name in args.parts]


def main() -> None:
    args = arguments()
    measure_and_show(args, lambda results: parts_asked(args, results), render, publish)


if __name__ == "__main__":
    main()
