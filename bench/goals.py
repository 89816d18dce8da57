#!/usr/bin/env python3
"""What the hot path is held to, and whether it gets there: tables, and a verdict on each goal.

  ./x bench goals                          everything: two hours on an idle machine, half of them for idle-*
  ./x bench goals small-64 idle            some parts
  ./x bench goals small-64 -n 5            fewer slices: a minute
  ./x bench goals --show                   what was measured last, without measuring
  ./x bench goals --publish                the same, into docs/goals.md, where parts that are not kept
                                           here stay as they are

Parts:
  small-64, small-1000, small-10000, new
               CPU time of a request beside bare loops, in slices: a file of 600 bytes over
               keep-alive connections, and over a connection for each request
  idle         memory with 10,000 idle connections
  idle-tls-2000, idle-tls-10000
               the same over TLS 1.3, beside nginx, h2o and Caddy
  idle-h2-2000, idle-h2-10000, idle-h2c-2000, idle-h2c-10000
               the same with HTTP/2, over TLS 1.3 and in plain text
  h2-32, h2-1, h2c-32, h2c-1
               CPU time of a request over HTTP/2, beside nginx and h2o, and in plain text Caddy: as
               many streams at one time on each of 64 connections, over TLS 1.3 and in plain text
               (needs h2load)
  small-tls-64, big-tls-64
               CPU time of a request over TLS 1.3, beside nginx, h2o and Caddy: a file of 600 bytes,
               and one of 1 MiB
  calls, calls-new
               system calls a request (needs perf, and to be root)
  lab          all other goals, which lab/compare.toml has: `loadline lab compare`, into
               runs/compare (or $RUNS/compare); a run that is complete is shown again

Connections of idle-* are opened one after the other by one client: with 10,000 over TLS a round of a
server takes about half a minute, and so a part with six servers about 15 minutes. After two minutes
without all of them a round ends. A server that cannot do what it should, such as hold 10,000
connections, is left out of the part from then on, and the part says why.

Results are kept in target/bench/goals.json; a part that is measured again takes the place of its
earlier self. A system service that a package has started (nginx, apache2, lighttpd, h2o) must be
stopped first; a server that is not installed is left out. Any servers beside each other:
`./x bench slices`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import counts
from core import RECORDED
from page import between, middle, middle_of_slices, table, write_between
from peers import SCENARIOS, Scenario, Server, of_lab
from processes import ENVIRONMENT, PROFILED, REPOSITORY, TARGET, find_program, measured_here
from rig import Failed, Rig, chosen, options, require_programs, rigged
from slices import shown, slices

PAGE = REPOSITORY / "docs" / "goals.md"
BEGIN, END = "<!-- ./x bench goals --publish -->", "<!-- end of what it writes -->"
KEPT = TARGET / "bench" / "goals.json"
LAB = Path(os.environ.get("RUNS", REPOSITORY / "runs"))
LAB /= "compare-profiled" if PROFILED in os.environ else "compare"

CEILING = {"reactor": "ceil-epoll", "proactor": "ceil-uring"}
PEERS = ["nginx-tuned", "h2o", "lighttpd"]
OWN_TLS = ["reactor-tls", "proactor-tls", "thread-pool-tls"]
PEERS_TLS = ["nginx-tls", "h2o-tls", "caddy-tls"]
OWN = ["reactor", "proactor"]
PEERS_H2C = ["nginx-h2c", "h2o-h2c", "caddy-h2c"]
H2 = {  # servers of Loadline, and others
    "h2-32": (OWN_TLS[:2], ["nginx-tls", "h2o-tls"]),
    "h2-1": (OWN_TLS[:2], ["nginx-tls", "h2o-tls"]),
    "h2c-32": (OWN, PEERS_H2C),
    "h2c-1": (OWN, PEERS_H2C),
}
TLS = {"small-tls-64": "600 bytes", "big-tls-64": "1 MiB"}
IDLE = {
    "idle-tls-2000": (OWN_TLS, PEERS_TLS),
    "idle-tls-10000": (OWN_TLS, PEERS_TLS),
    "idle-h2-2000": (OWN_TLS, PEERS_TLS),
    "idle-h2-10000": (OWN_TLS, PEERS_TLS),
    "idle-h2c-2000": (OWN, PEERS_H2C),
    "idle-h2c-10000": (OWN, PEERS_H2C),
}
BESIDE = ["ceil-epoll", "reactor", "ceil-uring", "proactor"]


@dataclass(frozen=True)
class Part:
    title: str
    scenario: str
    servers: list[str]
    kind: str = "slices"  # or "idle" or "calls": what is counted


def protocols(sc: Scenario) -> str:
    return " over ".join(["HTTP/2" if sc.streams else "HTTP/1.1", *(["TLS 1.3"] if sc.tls else [])])


def idle_title(sc: Scenario) -> str:
    return f"Memory with {sc.conns:,} idle connections of {protocols(sc)}"


def h2_title(sc: Scenario) -> str:
    streams = "one stream" if sc.streams == 1 else f"{sc.streams} streams"
    return f"CPU time of a file of 600 bytes by {protocols(sc)}, {sc.conns} connections of {streams}"


SMALL = "CPU time of a file of 600 bytes, {} connections"
PARTS = {
    "small-64": Part(SMALL.format("64"), "small-64", BESIDE),
    "small-1000": Part(SMALL.format("1,000"), "small-1000", BESIDE),
    "small-10000": Part(SMALL.format("10,000"), "small-10000", BESIDE),
    "new": Part(
        "CPU time of a file of 600 bytes, a new connection for each request, accepted with it",
        "close-64",
        ["ceil-epoll-eager", "reactor", "proactor"],
    ),
    "idle": Part(
        "Memory with 10,000 idle keep-alive connections", "idle-10000", list(CEILING), "idle"
    ),
    **{
        name: Part(idle_title(SCENARIOS[name]), name, own + others, "idle")
        for name, (own, others) in IDLE.items()
    },
    **{
        name: Part(h2_title(SCENARIOS[name]), name, others[::-1] + own)
        for name, (own, others) in H2.items()
    },
    **{
        name: Part(
            f"CPU time of a file of {size} over TLS 1.3, 64 connections",
            name,
            ["h2o-tls", "nginx-tls", "caddy-tls", *OWN_TLS[:2]],
        )
        for name, size in TLS.items()
    },
    "calls": Part(
        "System calls of a keep-alive request, 64 connections",
        "small-64",
        [*CEILING, *PEERS, *CEILING.values()],
        "calls",
    ),
    "calls-new": Part(
        "System calls of a request with a connection of its own",
        "close-64",
        ["reactor", "reactor-undeferred", "proactor", *PEERS, "ceil-epoll-eager", "ceil-uring"],
        "calls",
    ),
}
# Columns of what is counted: figure, head, digits.
COLUMNS = [
    ("user", "user bytes a connection", 0),
    ("kernel", "kernel bytes a connection", 0),
    ("start", "Pss MiB at start", 2),
    ("few", "Pss MiB after ten requests", 2),
    ("end", "Pss MiB with all", 2),
    ("all", "system calls a request", 3),
    ("waits", "waits of epoll", 3),
    ("enters", "io_uring_enter", 3),
]

HEAD = ["goal", "bound", "measured: middle (range)", "verdict"]

Values = dict[str, list[float]]  # of a figure, by server


# ------------------------------------------------------------- measuring


def measure(name: str, args: argparse.Namespace, rig: Rig) -> dict:
    """A part: what it has of each server, by figure, and which servers could not do it."""
    part = PARTS[name]
    sc = SCENARIOS[part.scenario]
    if part.kind == "calls" and (why := counts.can_count_calls()):
        raise Failed(why)
    if part.kind == "idle" and (why := counts.can_hold(sc)):
        raise Failed(why)
    servers = [server for server in map(of_lab, part.servers) if server.is_installed()]
    figures: dict[str, Values] = {}
    left_out: dict[str, str] = {}
    if part.kind == "slices":
        for one in slices(rig, servers, sc, args.slices, 1):
            figures.setdefault("us", {}).setdefault(one.name, []).append(one.us)
    else:
        for number in range(args.rounds):
            for server in servers[::-1] if number % 2 else servers:
                if server.name in left_out:
                    continue
                turn = f"{name}, {number + 1}/{args.rounds}, {server.name}"
                try:
                    found = count(part, rig, server, sc, args.seconds)
                except (Failed, OSError, RuntimeError) as error:
                    print(f"{turn}: left out: {error}", file=sys.stderr)
                    left_out[server.name] = str(error).partition("\n")[0]
                    continue
                shown_briefly = ", ".join(f"{key} {value:,.2f}" for key, value in found.items())
                print(f"{turn}: {shown_briefly}", flush=True)
                for key, value in found.items():
                    figures.setdefault(key, {}).setdefault(server.name, []).append(value)
    if not figures:
        raise Failed("no server could do it")
    origin = f"{measured_here()}: `{args.command_line}`"
    return {"origin": origin, "figures": figures, "left_out": left_out}


def count(part: Part, rig: Rig, server: Server, sc: Scenario, seconds: int) -> counts.Figures:
    if part.kind == "idle":
        return counts.idle(rig, server, sc)
    return counts.calls(rig, server, sc, seconds)


def measure_lab() -> None:
    """Ctrl-C ends it in good order; the same command goes on."""
    argv = [find_program("loadline"), "lab", "compare", f"--out={LAB}"]
    run = subprocess.run(argv, env=ENVIRONMENT)
    if run.returncode:
        sys.exit(run.returncode)


def measure_all(args: argparse.Namespace, results: dict) -> None:
    require_programs("loadline", "wrk")
    with rigged(args) as rig:
        for name in args.parts:
            if name == "lab":
                os.sched_setaffinity(0, args.server_cores | args.client_cores)
                measure_lab()
                continue
            try:
                results[name] = measure(name, args, rig)
            except (Failed, OSError, RuntimeError) as error:
                print(f"{name} left out: {error}", file=sys.stderr)
                continue
            KEPT.parent.mkdir(parents=True, exist_ok=True)
            KEPT.write_text(json.dumps(results, indent=1) + "\n")
            print(f"\n{section(name, results[name])}", flush=True)


# ----------------------------------------------------------------- goals


def goals(results: dict) -> list[list[str]]:
    """Rows: what, the bound, what was measured, the verdict."""

    def values(part: str, key: str, server: str) -> list[float]:
        return results.get(part, {}).get("figures", {}).get(key, {}).get(server, [])

    def add(text: str, found: list[float], said=middle, least=None, most=None) -> None:
        bound = f"at least {least:g}" if most is None else f"at most {most:g}" if most else "none"
        value = statistics.median(found) if found else None
        is_met = found and (value >= least if most is None else value <= most)
        verdict = "met" if is_met else "**not met**" if found else "not measured"
        rows.append([text, bound, said(found) if found else "", verdict])

    def over(part: str, server: str, base: str, least: float) -> None:
        pairs = zip(values(part, "us", base), values(part, "us", server))
        text = f"{part}: requests per CPU second of {server} over {base}'s"
        add(text, [theirs / own for theirs, own in pairs], middle_of_slices, least=least)

    def best(part: str, others: list[str]) -> str:
        cost = {peer: found for peer in others if (found := values(part, "us", peer))}
        return min(cost, key=lambda peer: statistics.median(cost[peer]), default=others[1])

    rows: list[list[str]] = []
    for part, least in [("small-64", 0.94), ("small-1000", 0.93), ("small-10000", 0.9)]:
        for server, base in CEILING.items():
            over(part, server, base, least)
    over("small-64", "proactor", "reactor", 1)
    for server, base in CEILING.items():
        pairs = zip(values("small-64", "us", server), values("small-64", "us", base))
        text = f"small-64: CPU us a request of {server} above {base}'s"
        add(text, [own - theirs for own, theirs in pairs], middle_of_slices, most=0.5)
    for server in CEILING:
        over("new", server, "ceil-epoll-eager", 0.9)
    of_idle = [("user bytes of each of 10,000 idle", "user", 256), ("MiB with them", "end", 4)]
    for text, key, most in [*of_idle, ("MiB at start", "start", 2)]:
        add(f"idle: {text}, reactor", values("idle", key, "reactor"), most=most)
    for part, (own, others) in IDLE.items():
        peers = [values(part, "user", peer) for peer in others]
        least = min((statistics.median(found) for found in peers if found), default=0)
        for server in own:
            text = f"{part}: user bytes of {server} over those of the best of the others"
            add(text, [mine / least for mine in values(part, "user", server) if least], most=1)
    for part, (own, others) in H2.items():
        for server in own:
            over(part, server, best(part, others), 0.9)
            if part == "h2-32":
                over(part, server, others[0], 6)
    for server in OWN_TLS[:2]:
        over("small-tls-64", server, "nginx-tls", 1.2)
        over("small-tls-64", server, "h2o-tls", 1)
        over("big-tls-64", server, best("big-tls-64", PEERS_TLS), 0.95)
    text = "calls: system calls a request, reactor, as wrk batches them"
    add(text, values("calls", "all", "reactor"), most=2.05)
    enters = [values("calls", "enters", server) for server in ["proactor", "ceil-uring"]]
    text = "calls: io_uring_enter of a request, proactor over ceil-uring"
    add(text, [own / max(base, 1e-9) for own, base in zip(*enters)], most=1.5)
    recorded = json.loads(RECORDED.read_text())["counts"]
    text = "core: system calls a request, reactor, 64 in a turn"
    add(text, [recorded["system calls a request, reactor, a turn of 64"]], most=2.05)
    allocations = [n for name, n in recorded.items() if name.startswith("allocations of ")]
    add("core: allocations of keep-alive requests", [max(allocations)], most=0)
    return rows + goals_of_lab()


def goals_of_lab() -> list[list[str]]:
    """As `loadline lab compare` has judged them."""
    file = LAB / "compare.json"
    found = json.loads(file.read_text()).get("goals", []) if file.exists() else []
    verdict = {True: "met", False: "**not met**", None: "not measured"}
    return [[one["name"], one["bound"], one["measured"], verdict[one["is_met"]]] for one in found]


# ------------------------------------------------------------------ page


def section(name: str, result: dict) -> str:
    figures = result["figures"]
    if "us" in figures:
        text = shown("server", [figures["us"]])
    else:
        columns = [column for column in COLUMNS if column[0] in figures]
        head = ["server", *(head for _, head, _ in columns), "errors"]
        body = []
        for server, errors in figures["errors"].items():
            row = [f"{statistics.median(figures[key][server]):.{n}f}" for key, _, n in columns]
            body.append([server, *row, f"{sum(errors):.0f}"])
        text = table(head, body)
    left_out = [f"Left out: {server}, {why}." for server, why in result.get("left_out", {}).items()]
    return "\n\n".join([f"## {PARTS[name].title}", text, *left_out, f"{result['origin']}\n"])


def sections_of(text: str) -> dict[str, str]:
    """What the page has, by title."""
    sections = [part.strip() for part in text.split("\n## ")[1:]]
    return {part.partition("\n")[0]: f"## {part}\n" for part in sections}


def with_earlier(rows: list[list[str]], goals_of_page: str) -> list[list[str]]:
    """Goals that were not measured stand as they do on the page, unless their bounds are others now."""
    lines = [line for line in goals_of_page.splitlines() if line.startswith("| ")]
    earlier = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    known = {tuple(row[:2]): row for row in earlier}
    return [known.get(tuple(row[:2]), row) if row[-1] == "not measured" else row for row in rows]


def render(results: dict, page: str = "") -> str:
    """The goals, then everything that was measured here; of the rest what the page has of it."""
    earlier = sections_of(page)
    rows = with_earlier(goals(results), earlier.get("Goals", ""))
    lines = ["## Goals", "", table(HEAD, rows), ""]
    for name, part in PARTS.items():
        if name in results:
            lines.append(section(name, results[name]))
        elif part.title in earlier:
            lines.append(earlier[part.title])
    recorded = json.loads(RECORDED.read_text())
    body = [[name, f"{count:g}"] for name, count in recorded["counts"].items()]
    text = f"Deterministic, recorded {recorded['when']} by `./x bench core --record`."
    lines += ["## Counts", "", text, "", table(["count", "recorded"], body)]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    p = options(__doc__, "./x bench goals")
    p.add_argument("parts", nargs="*", metavar="PART", help="default all")
    o = p.add_argument
    o("--show", action="store_true", help="print what was measured last")
    o("--publish", action="store_true", help="write it into docs/goals.md")
    o("-n", "--slices", type=int, default=20, help="of a second, for each server (default 20)")
    o("-r", "--rounds", type=int, default=5, help="of what is counted (default 5)")
    o("-d", "--seconds", type=int, default=4, help="load while calls are counted (default 4)")
    args = p.parse_args()
    args.parts = chosen(p, "part", args.parts, [*PARTS, "lab"])
    return args


def main() -> None:
    args = arguments()
    results = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if "form" in results:  # of an earlier version
        results = {}
    if args.publish:
        write_between(PAGE, BEGIN, END, render(results, between(PAGE, BEGIN, END)))
    elif args.show:
        print(render(results))
    else:
        measure_all(args, results)
        measured = [row for row in goals(results) if row[-1] != "not measured"]
        print("\n" + table(HEAD, measured))


if __name__ == "__main__":
    main()
