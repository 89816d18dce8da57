"""Parts that are measured in interleaved rounds, and what becomes of what they find."""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import page
from parts import Part, Row, Settings
from peers import pick_server
from processes import BIN_DIRS, become_reaper
from results import PartResult, Results
from rig import Failed, Rig, cores_of, require_programs


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
        has = {row.name for row in part.rows}
        others = [pick_server(name) for name in getattr(self.args, "others", []) if name not in has]
        rows += [Row(server.name, server, scenario) for server in others]
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


def measure_and_show(
    args: argparse.Namespace,
    parts: Callable[[Results], list[Part]],
    render: Callable[[Results], str],
    publish: Callable[[Results], list[Path]],
    closing: Callable[[Results], str] = lambda _: "",
) -> None:
    """Measures, unless only what was measured before is asked for, and prints or publishes it."""
    BIN_DIRS[:0] = args.bin
    try:
        results = Results(args.json)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    if not args.show and not args.publish:
        measure_parts(args, results, parts(results))
    if not results.parts:
        sys.exit("nothing was measured")
    if args.publish:
        print("written:", *map(os.path.relpath, publish(results)))
    elif args.show:
        print(render(results))
    else:
        print(closing(results))
        args.markdown.parent.mkdir(parents=True, exist_ok=True)
        args.markdown.write_text(render(results))
        print(f"tables: {os.path.relpath(args.markdown)}, figures: {os.path.relpath(args.json)}")
