"""Results as Markdown: tables, the lines of the goals, the page in docs/."""

import json
import statistics
from pathlib import Path

from bounds import RECORDED, judge_all
from parts import PARTS, Column, Part
from processes import REPOSITORY
from results import PartResult, Results
from slices import interval

PAGE = REPOSITORY / "docs" / "goals.md"
NOISE_MARKED = 5  # percent

INTRODUCTION = """# What the hot path is held to

Loadline beside bare loops (ceil-...) that parse nothing and answer every read with the same bytes:
what those cost is what the kernel's TCP and one event loop cost; and beside other servers, where a
goal names them ([results](results.md) has all of them, by the laboratory). The [goals](#goals)
come last. Each server runs on one core and wrk on the other, a fresh server for each round, the
rounds of all servers interleaved (A B C C B A ...). Loadline serves files from a directory, with
all of its limits, timers and counters on. The figures are medians; ratios are of the same round.

- **cpu us** is the server's CPU time for a request: the figure that does not depend on which of the
  two, server or wrk, was the bottleneck. The columns headed *x ...* are requests for each second of
  CPU time as a ratio to that server's, higher is better. **both us** has the client's time in it.
- Absolute figures of different tables, or of another day, are not to be compared: the same server
  differs by 10 to 20 % from one run to the next. Ratios are good to about 8 %.
- *noise %*: CPU time that others used on the machine. Noisy rounds are repeated; those that stay so
  are kept, and marked with an exclamation mark.

This page is written by `./x bench goals --publish`, from what `./x bench goals` has measured last;
`./x bench goals --help` says how to repeat a part. With `--profiled` it is the program that
`./x release` builds, with a profile of itself; without, that of `cargo build --release`.
"""


def table(head: list[str], body: list[list[str]]) -> str:
    width = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]

    def line(cells: list[str]) -> str:
        first, *rest = zip(cells, width)
        cells = [first[0].ljust(first[1]), *(cell.rjust(w) for cell, w in rest)]
        return "| " + " | ".join(cells) + " |"

    rule = (
        "|" + "|".join("-" * (w + 2 - bool(i)) + ":" * bool(i) for i, w in enumerate(width)) + "|"
    )
    return "\n".join([line(head), rule, *map(line, body)])


def cell(result: PartResult, row: str, column: Column, noise_max: float) -> str:
    if column.base:
        found = result.ratios(row, column.base, column.key)
    else:
        found = result.figures(row, column.key)
    if not found:
        return ""
    middle = statistics.median(found)
    if column.key == "errors" and not column.base:
        middle = sum(found)  # of all rounds: an error in one of five is an error
    if column.interval:
        low, high = interval(found)
        return f"{middle:.{column.digits}f} ({low:.{column.digits}f} to {high:.{column.digits}f})"
    if column.spread:
        return spread(found, column.digits)
    mark = "!" if column.key == "noise" and middle > noise_max else ""
    return f"{middle:.{column.digits}f}{mark}"


def part_table(part: Part, result: PartResult) -> str:
    noise_max = max(NOISE_MARKED, part.noise_max)
    names = [row.name for row in part.rows if result.data["rows"].get(row.name)]
    # Rows of servers that only this run had.
    names += [name for name in result.data["rows"] if name not in names]
    columns = [c for c in part.columns if any(cell(result, n, c, noise_max) for n in names)]
    body = [[name, *(cell(result, name, c, noise_max) for c in columns)] for name in names]
    return table(["server", *(c.head for c in columns)], body)


def part_section(part: Part, result: PartResult) -> str:
    data = result.data
    lines = [f"## {part.title}", ""]
    lines += [part_table(part, result), ""]
    if part.note:
        lines += [part.note, ""]
    info = data["info"]
    if "capacity" in info:
        text = (
            f"Tuned nginx did {info['capacity']:.0f} requests/s; the rate was {info['rate']:.0f}/s."
        )
        lines += [text, ""]
    for row, reason in data["failed"].items():
        lines += [f"Not measured: {row}: {reason}", ""]
    rounds = "1 round" if result.rounds() == 1 else f"{result.rounds()} rounds"
    text = f"{data['when']} UTC, {rounds} of {data['seconds']} s, revision "
    lines += [f"{text}{data['revision']}: `{data['command']}`", ""]
    return "\n".join(lines)


def goal_lines(results: Results, only_measured: bool = False) -> str:
    head = ["goal", "bound", "measured: median (lowest to highest)", "verdict"]
    body = []
    for judged in judge_all(results):
        if only_measured and judged.verdict == "not measured":
            continue
        verdict = {"not met": "**not met**"}.get(judged.verdict, judged.verdict)
        body.append([judged.goal.text, judged.goal.bound(), judged.measured, verdict])
    return "\n".join(["## Goals", "", table(head, body), ""])


def spread(found: list[float], digits: int = 2) -> str:
    text = f"{statistics.median(found):.{digits}f}"
    if len(found) > 1:
        text += f" ({min(found):.{digits}f} to {max(found):.{digits}f})"
    return text


def render(results: Results) -> str:
    """Everything that was measured, the goals last."""
    lines = []
    machines = results.machines()
    if machines:
        lines += ["; ".join(machines) + ". " + results.versions() + ".", ""]
    measured = [(part, results.get(name)) for name, part in PARTS.items()]
    lines += [part_section(part, result) for part, result in measured if result]
    if core := core_section():
        lines += [core]
    lines += [goal_lines(results)]
    return "\n".join(lines)


def core_section() -> str:
    if not RECORDED.exists():
        return ""
    recorded = json.loads(RECORDED.read_text())
    body = [[name, f"{count:g}"] for name, count in recorded["counts"].items()]
    text = f"Deterministic, recorded {recorded['when']} by `./x bench core --record`."
    return "\n".join(["## Counts", "", text, "", table(["count", "recorded"], body), ""])


def publish(results: Results) -> Path:
    PAGE.write_text(INTRODUCTION + "\n" + render(results))
    return PAGE
