"""Tables of Markdown, where they stand in a page, and the statistic of slices."""

import os
import random
import statistics
import sys
from pathlib import Path

RESAMPLES = 5000


def write_between(page: Path, begin: str, end: str, text: str) -> None:
    """Puts the text in the place of what stands between two marks of a page."""
    before, found, rest = page.read_text().partition(begin)
    _, ends, after = rest.partition(end)
    if not found or not ends:
        sys.exit(f"{page.name} has no place for the tables: {begin} ... {end}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")
    print("written:", os.path.relpath(page))


def between(page: Path, begin: str, end: str) -> str:
    """What stands between two marks of a page."""
    return page.read_text().partition(begin)[2].partition(end)[0]


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


def interval(values: list[float]) -> tuple[float, float]:
    """A 95 % bootstrap interval of the median."""
    chance = random.Random(1)
    medians = sorted(
        statistics.median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    return medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


def middle(values: list[float], digits: int = 2) -> str:
    """The median, with the lowest and the highest."""
    text = f"{statistics.median(values):.{digits}f}"
    if len(values) > 1:
        text += f" ({min(values):.{digits}f} to {max(values):.{digits}f})"
    return text


def middle_of_slices(values: list[float], digits: int = 3) -> str:
    """The median, with its interval."""
    low, high = interval(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
