"""What Loadline's hot path is held to, and whether it gets there: each goal is a ratio (or an
amount) in each round of one interleaved run, judged by its median."""

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from processes import REPOSITORY
from results import PartResult, Results

RECORDED = REPOSITORY / "bench" / "recorded.json"

Find = Callable[[PartResult], list[float]]


@dataclass(frozen=True)
class Goal:
    text: str
    part: str
    find: Find
    least: float | None = None
    most: float | None = None
    digits: int = 2

    def bound(self) -> str:
        if self.least is not None:
            return f"at least {number(self.least)}"
        return f"at most {number(self.most)}" if self.most else "none"

    def is_met_by(self, value: float) -> bool:
        if self.least is not None:
            return value >= self.least
        return value <= self.most


@dataclass(frozen=True)
class Judged:
    """A goal, and what came of it."""

    goal: Goal
    measured: str
    verdict: str  # "met", "not met" or "not measured"


def number(value: float) -> str:
    return f"{value:g}"


def judge(goal: Goal, results: Results) -> Judged:
    part = results.get(goal.part)
    found = goal.find(part) if part else []
    if not found:
        return Judged(goal, "", "not measured")
    middle, digits = statistics.median(found), goal.digits
    measured = f"{middle:.{digits}f}"
    if len(found) > 1:
        measured += f" ({min(found):.{digits}f} to {max(found):.{digits}f})"
    return Judged(goal, measured, "met" if goal.is_met_by(middle) else "not met")


def judge_all(results: Results) -> list[Judged]:
    counted = [
        ("allocations of a keep-alive request", "allocations of ", 0),
        ("system calls a request, reactor, 64 in a turn", CALLS_64, 2.05),
    ]
    judged = [judge(goal, results) for goal in goals()]
    return judged + [judge_recorded(*goal) for goal in counted]


CALLS_64 = "system calls a request, reactor, a turn of 64"


def judge_recorded(text: str, prefix: str, most: float) -> Judged:
    """Counted by `./x bench core`, which keeps a record."""
    goal = Goal(text, "core", lambda _: [], most=most)
    counts = json.loads(RECORDED.read_text())["counts"] if RECORDED.exists() else {}
    found = [count for name, count in counts.items() if name.startswith(prefix)]
    if not found:
        return Judged(goal, "", "not measured")
    return Judged(goal, f"{max(found):g}", "met" if max(found) <= most else "not met")


# -------------------------------------------------------------- figures


def of(row: str, key: str) -> Find:
    return lambda part: part.figures(row, key)


def over(row: str, base: str, key: str = "cap") -> Find:
    return lambda part: part.ratios(row, base, key)


def above(row: str, base: str, key: str) -> Find:
    return lambda part: part.differences(row, base, key)


def over_the_best(row: str, peers: list[str], key: str = "cap") -> Find:
    """Over the peer that was best in the median."""

    def find(part: PartResult) -> list[float]:
        middles = {peer: part.figures(peer, key) for peer in peers}
        best = {peer: statistics.median(found) for peer, found in middles.items() if found}
        return part.ratios(row, max(best, key=best.get), key) if best else []

    return find


def errors(*rows: str) -> Find:
    """Of all rounds together."""

    def find(part: PartResult) -> list[float]:
        found = [count for row in rows for count in part.figures(row, "errors")]
        return [sum(found)] if found else []

    return find


# ---------------------------------------------------------------- goals

PEERS = ["nginx-tuned", "h2o", "lighttpd"]
CEILING = {"reactor": "ceil-epoll", "proactor": "ceil-uring"}


def goals() -> list[Goal]:
    return [*keep_alive(), *new_connections(), *big_files(), *idle(), *calls(), *others()]


def keep_alive() -> list[Goal]:
    found = []
    for connections, share in [(64, 0.94), (1000, 0.93), (10_000, 0.90)]:
        part = f"small-{connections}"
        for row, base in CEILING.items():
            text = f"small file, {connections:,} connections: {row} over {base}"
            found.append(Goal(text, part, over(row, base), least=share))
    small = "small file, 64 connections: "
    text = small + "proactor over reactor"
    found.append(Goal(text, "small-64", over("proactor", "reactor"), least=1, digits=3))
    for row, base in CEILING.items():
        text = small + f"{row} over the best peer"
        found.append(Goal(text, "small-64", over_the_best(row, PEERS), least=1))
        text = small + f"us of {row} above {base}"
        found.append(Goal(text, "small-64", above(row, base, "cpu_us"), most=0.5))
    for row, base in CEILING.items():
        text = f"10,000 connections: p99 of {row} over {base}'s"
        found.append(Goal(text, "small-10000", over(row, base, "p99"), most=1.3))
        text = f"10,000 connections: MiB of {row} in all"
        found.append(Goal(text, "small-10000", of(row, "pss"), most=20, digits=1))
    text = "10,000 connections: errors of both"
    return [*found, Goal(text, "small-10000", errors(*CEILING), most=0, digits=0)]


def new_connections() -> list[Goal]:
    return [
        Goal(
            f"a new connection each: {row}, deferred accept, over ceil-epoll-eager",
            "new",
            over(f"{row}-deferred", "ceil-epoll-eager"),
            least=0.90,
        )
        for row in CEILING
    ]


def big_files() -> list[Goal]:
    found = []
    for row in CEILING:
        text = f"1 MiB: requests/s of {row} over ceil-epoll"
        found.append(Goal(text, "big", over(row, "ceil-epoll", "rps"), least=0.95))
        text = f"1 MiB: server and client CPU time of {row} over lighttpd's"
        found.append(Goal(text, "big", over(row, "lighttpd", "both_us"), most=1))
    return found


def idle() -> list[Goal]:
    found = [
        Goal("10,000 idle: user bytes each, reactor", "idle", of("reactor", "user"), most=256),
        Goal("10,000 idle: MiB in all, reactor", "idle", of("reactor", "end"), most=4),
        Goal("MiB at start, reactor", "idle", of("reactor", "start"), most=2),
    ]
    for row in CEILING:
        text = f"p99 of 64 busy beside 10,000 idle over alone, {row}"
        found.append(Goal(text, "crowd", of(row, "ratio"), most=1.2))
    return found


def calls() -> list[Goal]:
    enters = over("proactor", "ceil-uring", "enters")
    return [
        Goal(
            "system calls a request, reactor, as wrk batches them",
            "calls",
            of("reactor", "all"),
            most=2.05,
            digits=3,
        ),
        Goal("enters a request, proactor over ceil-uring", "calls", enters, most=1.5),
    ]


def others() -> list[Goal]:
    found = []
    for row in CEILING:
        text = f"2 loops over 1 on 2 cores, {row}"
        found.append(Goal(text, "loops", over(f"{row}-2-loops", row), least=0.9))
    for row in CEILING:
        text = f"p99 at 70 % of tuned nginx's capacity: {row} over nginx-tuned"
        found.append(Goal(text, "open", over(row, "nginx-tuned", "p99"), most=0.5))
    for row in ["thread-per-connection", "thread-pool-64"]:
        text = f"64 connections: {row} over apache-event"
        found.append(Goal(text, "threads-64", over(row, "apache-event"), least=3))
    for row in ["thread-per-connection", "thread-pool-1000"]:
        text = f"1000 connections: errors of {row}"
        found.append(Goal(text, "threads-1000", errors(row), most=0, digits=0))
    return found
