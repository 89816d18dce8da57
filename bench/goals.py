#!/usr/bin/env python3
"""What the hot path is held to, beside bare loops and the peers that a goal names, and whether it
gets there: tables, and a verdict on each goal. (`./x bench servers` compares with other servers.)

  ./x bench goals                          everything: about half an hour on an idle machine
  ./x bench goals --quick                  a subset: about 5 minutes
  ./x bench goals small-64 new -r 9        some parts, more rounds
  ./x bench goals small-64 --rows reactor ceil-epoll
  ./x bench goals small-64 --rows reactor 'cmd:mine:./mine --port {port} --root {root}'
  ./x bench goals --show                   what was measured last, without measuring
  ./x bench goals --publish                the same, into docs/goals.md
  ./x bench arms                           who reads and writes the sockets: three arms

Parts:
  small-64, small-1000, small-10000
               a file of 600 bytes over keep-alive connections
  new          a connection for each request
  big          a file of 1 MiB
  idle         memory with 10,000 idle connections
  crowd        p99 of 64 busy connections beside 10,000 idle ones
  calls, calls-new
               system calls a request (needs perf, and to be root)
  loops        two loops on two cores against one
  open         p99 in an open loop at 70 % of tuned nginx's capacity
  threads-64, threads-1000
               the threaded architectures against Apache's event MPM
Parts of arms:
  arms-new, arms-keep-alive, arms-work

Every round starts a fresh server on its own port, checks an answer, and loads it from another core.
Rounds are interleaved (A B C C B A ...); rounds in which others used the machine are repeated.
Results are kept in target/bench/goals.json: a part that is measured again takes the place of its
earlier self (with --add its rounds come on top), the others stay, so a table can be made in several
sittings; --quick and --rows keep theirs in target/bench/some.json instead. Each part's table is
printed when it is done, the goals at the end; Markdown of everything in the file is written beside
it. A system service that a package has started (nginx, apache2, lighttpd, h2o) must be stopped
first; a server that is not installed is left out.

Own servers are  cmd:LABEL:COMMAND  with {port} {root} {path} {size} filled in; the others are
those of lab/compare.toml.
"""

import argparse
import os
import shlex
import signal
import sys
import tempfile
from pathlib import Path

import page
from parts import ARM_PARTS, GOAL_PARTS, PARTS, QUICK_PARTS, QUICK_ROWS, Part, Row, Settings
from peers import pick_server
from processes import TARGET, become_reaper
from results import PartResult, Results
from rig import BIN_DIRS, Failed, Rig, cores_of, require_programs


class Bench:
    def __init__(self, args: argparse.Namespace, rig: Rig, results: Results):
        self.args, self.rig, self.results = args, rig, results
        cores = args.server_cores | args.client_cores
        self.settings = Settings(args.seconds, cores, getattr(args, "turns", Settings.turns))

    def run(self, part: Part) -> None:
        """All rounds of a part. What an earlier run found goes when the first round is there."""
        result = PartResult.begin(self.args.command_line, self.args.seconds)
        if self.args.add and (earlier := self.results.get(part.name)):
            if why := earlier.differs_from(result):
                sys.exit(f"{part.name}: --add would mix: {why}")
            result = earlier
        try:
            result.data["info"] = result.data["info"] or part.prepare(self.rig, self.settings)
        except (Failed, OSError, RuntimeError) as error:
            print(f"{part.name} left out: {one_line(error)}", file=sys.stderr)
            return
        rows = self.rows(part, result)
        if part.together:
            self.in_turns(part, rows, result)
        else:
            self.in_rounds(part, rows, result)
        print("\n" + page.part_section(part, result), flush=True)

    def in_turns(self, part: Part, rows: list[Row], result: PartResult) -> None:
        """Servers that stay up."""
        result.data["seconds"] = 1
        first = result.rounds()
        try:
            for name, turn, figures in part.together(self.rig, rows, self.settings):
                result.add(name, first + turn, figures)
                self.report(part, first + turn, name, figures)
        except (Failed, OSError, RuntimeError) as error:
            print(f"{part.name} left out: {one_line(error)}", file=sys.stderr)
            return
        self.results.parts[part.name] = result
        self.results.save()

    def in_rounds(self, part: Part, rows: list[Row], result: PartResult) -> None:
        """A fresh server for each round of each row."""
        first = result.rounds()
        for index in range(first, first + self.args.rounds):
            for row in rows[::-1] if index % 2 else list(rows):
                try:
                    figures = self.quiet_round(part, row, result.data["info"])
                except (Failed, OSError, RuntimeError) as error:
                    result.fail(row.name, one_line(error))
                    print(f"{part.name}: {row.name} left out: {error}", file=sys.stderr)
                    rows.remove(row)
                    continue
                result.add(row.name, index, figures)
                self.report(part, index, row.name, figures)
            self.results.parts[part.name] = result
            self.results.save()

    def rows(self, part: Part, result: PartResult) -> list[Row]:
        """Those asked for whose program is there."""
        wanted = self.args.rows
        rows = [row for row in part.rows if not wanted or row.name in wanted]
        scenario = part.rows[0].scenario
        own = [pick_server(name) for name in wanted or [] if name.startswith("cmd:")]
        rows += [Row(server.name, server, scenario) for server in own]
        for row in list(rows):
            if not row.server.is_installed():
                result.fail(row.name, "not installed")
                rows.remove(row)
        return rows

    def quiet_round(self, part: Part, row: Row, info: dict) -> dict:
        """A round, again while others use the machine."""
        for _ in range(self.args.retries + 1):
            figures = part.measure(self.rig, row, self.settings, info)
            if figures["noise"] <= max(self.args.max_noise, part.noise_max):
                break
        return figures

    def report(self, part: Part, index: int, name: str, figures: dict) -> None:
        text = " ".join(f"{key}={value:.4g}" for key, value in figures.items())
        if self.args.verbose:
            line = f"{part.name} round {index + 1} {name}: {text}"
            print(line, file=sys.stderr, flush=True)


def one_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]


def round_options(p: argparse.ArgumentParser) -> None:
    """How rounds are run, where, and where their results go."""
    o = p.add_argument
    o("--add", action="store_true", help="add rounds to those that a part has, do not replace them")
    o("-r", "--rounds", type=int, help="default 5")
    o("-d", "--seconds", type=int, help="load per round (default 4)")
    o("--server-cores", type=cores_of, default="1", metavar="CPUS", help="default 1")
    o("--client-cores", type=cores_of, default="0", metavar="CPUS", help="default 0")
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
    o("--json", type=Path, metavar="FILE", help="where results are kept (default: see above)")
    o("--markdown", type=Path, metavar="FILE", help="where tables go (default: beside them)")
    o("-v", "--verbose", action="store_true", help="print every round to stderr")


def arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="./x bench goals", description=__doc__, formatter_class=raw)
    p.add_argument("parts", nargs="*", metavar="PART", help="default all but those of arms")
    o = p.add_argument
    o("--quick", action="store_true", help="few parts and rows, 3 rounds of 2 s")
    o("--rows", nargs="+", metavar="ROW", help="only these servers, and own ones")
    o("--show", action="store_true", help="print what was measured last")
    o("--publish", action="store_true", help="write it into docs/goals.md")
    round_options(p)
    args = p.parse_args()
    args.command_line = shlex.join(["./x", "bench", "goals", *sys.argv[1:]])
    known = {**PARTS, "arms": None, "all": None}
    for name in args.parts:
        if name not in known:
            p.error(f"{name}: no such part; right would be one of {', '.join(known)}")
    if args.parts[:1] == ["arms"]:
        args.parts = args.parts[1:] or list(ARM_PARTS)
    elif args.parts == ["all"]:
        args.parts = list(PARTS)
    names = list(dict.fromkeys(row.name for part in PARTS.values() for row in part.rows))
    for name in args.rows or []:
        if name not in names and not name.startswith("cmd:"):
            p.error(f"{name}: no such row; right would be one of {', '.join(names)}")
    if not args.parts:
        args.parts = QUICK_PARTS if args.quick else list(GOAL_PARTS)
    some = args.quick or args.rows
    if args.quick and not args.rows:
        args.rows = QUICK_ROWS
    args.json = args.json or TARGET / "bench" / ("some.json" if some else "goals.json")
    args.markdown = args.markdown or args.json.with_suffix(".md")
    args.rounds = args.rounds or (3 if args.quick else 5)
    args.seconds = args.seconds or (2 if args.quick else 4)
    return args


def measure_parts(args: argparse.Namespace, results: Results, parts: list[Part]) -> None:
    require_programs("loadline", "wrk")
    become_reaper(args.client_cores)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        cores = (args.server_cores, args.client_cores)
        rig = Rig(Path(folder), args.port, *cores, args.quiet_wait)
        bench = Bench(args, rig, results)
        for part in parts:
            bench.run(part)


def main() -> None:
    args = arguments()
    BIN_DIRS[:0] = args.bin
    try:
        results = Results(args.json)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    if not args.show and not args.publish:
        measure_parts(args, results, [PARTS[name] for name in args.parts])
    if not results.parts:
        sys.exit("nothing was measured")
    text = page.render(results)
    if args.publish:
        print("written:", os.path.relpath(page.publish(results)))
    elif args.show:
        print(text)
    else:
        print(page.goal_lines(results, only_measured=True))
        args.markdown.parent.mkdir(parents=True, exist_ok=True)
        args.markdown.write_text(text)
        print(
            f"all tables: {os.path.relpath(args.markdown)}, figures: {os.path.relpath(args.json)}"
        )


if __name__ == "__main__":
    main()
