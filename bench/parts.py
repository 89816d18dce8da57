"""What `./x bench goals` consists of: which servers, under which load, and how their figures are
shown."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import measure
from measure import Figures
from peers import SCENARIOS, Scenario, Server, of_lab
from rig import Failed, Rig

ARCHITECTURES = ["reactor", "proactor"]
FIELD = ["nginx-tuned", "h2o", "lighttpd"]
CEILINGS = ["ceil-epoll", "ceil-uring"]

IDLERS = 10_000
OPEN_SHARE = 0.7  # of what tuned nginx can do
OPEN_CONNECTIONS = 256


@dataclass(frozen=True)
class Row:
    name: str
    server: Server
    scenario: Scenario


@dataclass(frozen=True)
class Column:
    head: str
    key: str
    digits: int = 0
    base: str | None = None  # the row that it is a ratio to, round by round
    spread: bool = False  # with the lowest and the highest round
    interval: bool = False  # with an interval of the median


@dataclass(frozen=True)
class Settings:
    """How long and with which cores."""

    seconds: int
    all_cores: set[int]
    turns: int = 20  # of servers that stay up


Measure = Callable[[Rig, Row, Settings, dict], Figures]
# All rows in one go: which row, in which turn, what.
Together = Callable[[Rig, list[Row], Settings], Iterator[tuple[str, int, Figures]]]


@dataclass(frozen=True)
class Part:
    name: str
    title: str
    rows: list[Row]
    measure: Measure | None
    columns: list[Column]
    note: str = ""
    # Noise that is no reason to repeat a round: the kernel's own work for this many connections.
    noise_max: float = 0
    # Instead of `measure`: in turns, in which all rows stay up.
    together: Together | None = None
    # Finds out what all rounds need to know.
    prepare: Callable[[Rig, Settings], dict] = field(default=lambda rig, settings: {})


def rows(names: list[str], scenario: Scenario) -> list[Row]:
    return [Row(name, of_lab(name), scenario) for name in names]


# ------------------------------------------------------------ under load

REQUESTS = [Column("req/s", "rps")]
COST = [Column("cpu us", "cpu_us", 2)]
LATENCY = [Column("p50 ms", "p50", 2), Column("p99 ms", "p99", 2)]
SHARES = [Column("server %", "srv"), Column("wrk %", "wrk")]
MEMORY = [Column("Pss MiB", "pss", 1), Column("noise %", "noise")]


def cost_columns(*bases: str) -> list[Column]:
    ratios = [Column(f"x {base}", "cap", 2, base) for base in bases]
    return COST + ratios + [Column("errors", "errors")] + LATENCY + REQUESTS + SHARES + MEMORY


def under_load(rig: Rig, row: Row, settings: Settings, _: dict) -> Figures:
    return measure.load(rig, row.server, row.scenario, settings.seconds)


def small(connections: int) -> Part:
    return Part(
        f"small-{connections}",
        f"A file of 600 bytes, {connections:,} connections",
        rows(
            [*ARCHITECTURES, *(FIELD if connections == 64 else []), *CEILINGS],
            SCENARIOS[f"small-{connections}"],
        ),
        under_load,
        cost_columns("ceil-epoll", "ceil-uring", "nginx-tuned"),
        noise_max=15 if connections > 1000 else 0,
    )


NEW = Part(
    "new",
    "A file of 600 bytes, a new connection for each request, 64 at a time",
    rows(["reactor-deferred", "proactor-deferred", "ceil-epoll-eager"], SCENARIOS["close-64"]),
    under_load,
    cost_columns("ceil-epoll-eager"),
    "All with deferred accept: connections come once their request is there.",
)

BIG = Part(
    "big",
    "A file of 1 MiB, 64 connections",
    rows([*ARCHITECTURES, "lighttpd", "ceil-epoll"], SCENARIOS["big-64"]),
    under_load,
    [
        *REQUESTS,
        Column("x ceil-epoll", "rps", 2, "ceil-epoll"),
        Column("both us", "both_us", 1),
        Column("both, x lighttpd", "both_us", 2, "lighttpd"),
        Column("cpu us", "cpu_us", 1),
        Column("errors", "errors"),
        *LATENCY,
        *SHARES,
        *MEMORY,
    ],
    "Only requests/s and the CPU time of server and client together say anything here: on the "
    "loopback much of a server's sending is done in its client's time.",
)


# ------------------------------------------------------ idle connections


def while_idle(rig: Rig, row: Row, _: Settings, __: dict) -> Figures:
    return measure.idle(rig, row.server, row.scenario)


IDLE = Part(
    "idle",
    f"Memory with {IDLERS:,} idle keep-alive connections",
    rows(ARCHITECTURES, SCENARIOS["idle-10000"]),
    while_idle,
    [
        Column("user bytes a connection", "user"),
        Column("kernel bytes a connection", "kernel"),
        Column("Pss MiB at start", "start", 2),
        Column("Pss MiB after ten requests", "few", 2),
        Column("Pss MiB with all", "end", 2),
        Column("errors", "errors"),
    ],
)


def beside_idlers(rig: Rig, row: Row, settings: Settings, _: dict) -> Figures:
    return measure.crowd(rig, row.server, row.scenario, IDLERS, settings.seconds)


CROWD = Part(
    "crowd",
    f"64 busy connections while {IDLERS:,} others idle",
    rows([*ARCHITECTURES, *CEILINGS], SCENARIOS["small-64"]),
    beside_idlers,
    [
        Column("p99 ms alone", "p99_alone", 3),
        Column("p99 ms beside them", "p99_beside", 3),
        Column("ratio", "ratio", 2),
        Column("req/s alone", "rps_alone"),
        Column("req/s beside them", "rps_beside"),
        Column("errors", "errors"),
    ],
    "Two servers that stay up, one of them with the idle connections, loaded for a second each in "
    "turn, as many seconds as a round has; medians of these.",
)


# ---------------------------------------------------- loops, open, calls


def on_all_cores(rig: Rig, row: Row, settings: Settings, _: dict) -> Figures:
    cores = settings.all_cores
    return measure.load(rig, row.server, row.scenario, settings.seconds, 1, cores, cores)


LOOPS = Part(
    "loops",
    "One loop and two, on two cores that the client shares",
    rows(
        [f"{name}{loops}" for name in ARCHITECTURES + CEILINGS for loops in ["", "-2-loops"]],
        SCENARIOS["small-64"],
    ),
    on_all_cores,
    cost_columns(*ARCHITECTURES, *CEILINGS),
    "Neither server nor wrk (two threads) is pinned to less than both cores. A second bare loop is a "
    "second process at the same port.",
)


def nginx_capacity(rig: Rig, settings: Settings) -> dict:
    server, sc = of_lab("nginx-tuned"), SCENARIOS["small-64"]
    found = [measure.load(rig, server, sc, settings.seconds)["rps"] for _ in range(3)]
    capacity = statistics.median(found)
    return {"capacity": capacity, "rate": capacity * OPEN_SHARE}


def by_the_clock(rig: Rig, row: Row, settings: Settings, info: dict) -> Figures:
    return measure.open_loop(rig, row.server, row.scenario, info["rate"], settings.seconds)


OPEN = Part(
    "open",
    f"Open loop at {OPEN_SHARE:.0%} of tuned nginx's capacity, Poisson arrivals",
    rows(
        [*ARCHITECTURES, "nginx-tuned", *CEILINGS],
        replace(SCENARIOS["small-64"], conns=OPEN_CONNECTIONS),
    ),
    by_the_clock,
    [
        Column("p50 ms", "p50", 3),
        Column("p99 ms", "p99", 3),
        Column("p99, x nginx-tuned", "p99", 2, "nginx-tuned"),
        Column("completed/s", "rps"),
        Column("errors", "errors"),
        Column("cpu us", "cpu_us", 2),
        Column("client was the limit", "limited", 1),
    ],
    f"`loadline load --rate` over at most {OPEN_CONNECTIONS} connections; latency from when a "
    "request was due. *Client was the limit*: the share of rounds in which `loadline load` says that "
    "it was late itself. Its CPU sleeps between requests, so p99 has its waking up in it, for every "
    "server alike, and is an upper bound; the laboratory's client does not sleep: "
    "[the same at two rates](results.md#latency-at-the-same-offered-rate).",
    prepare=nginx_capacity,
)


def threads(connections: int) -> Part:
    names = ["thread-per-connection", f"thread-pool-{connections}", "apache-event"]
    return Part(
        f"threads-{connections}",
        f"Threads: a file of 600 bytes, {connections:,} connections",
        rows(names, SCENARIOS[f"small-{connections}"]),
        under_load,
        cost_columns("apache-event"),
        "The pool has a thread for each connection; Apache's event MPM has 64, and hands idle "
        "connections to its listener.",
    )


def counted(rig: Rig, row: Row, settings: Settings, _: dict) -> Figures:
    return measure.calls(rig, row.server, row.scenario, settings.seconds)


def need_counter(_: Rig, __: Settings) -> dict:
    if why := measure.can_count_calls():
        raise Failed(why)
    return {}


def calls(name: str, title: str, names: list[str], scenario: str) -> Part:
    return Part(
        name,
        title,
        rows(names, SCENARIOS[scenario]),
        counted,
        [
            Column("system calls a request", "all", 3),
            Column("waits of epoll", "waits", 3),
            Column("io_uring_enter", "enters", 3),
            Column("enters, x ceil-uring", "enters", 2, "ceil-uring"),
            Column("errors", "errors"),
        ],
        "Counted by the kernel's tracepoints (perf), which do not stop the server.",
        prepare=need_counter,
    )


CALLS = calls(
    "calls",
    "System calls of a keep-alive request, 64 connections",
    [*ARCHITECTURES, *FIELD, *CEILINGS],
    "small-64",
)
CALLS_NEW = calls(
    "calls-new",
    "System calls of a request with a connection of its own",
    ["reactor", "reactor-deferred", "proactor", "nginx-tuned", "h2o", "lighttpd"]
    + ["ceil-epoll-eager", "ceil-uring"],
    "close-64",
)


PARTS = {
    part.name: part
    for part in [
        small(64),
        small(1000),
        small(10_000),
        NEW,
        BIG,
        IDLE,
        CROWD,
        CALLS,
        CALLS_NEW,
        LOOPS,
        OPEN,
        threads(64),
        threads(1000),
    ]
}
QUICK_PARTS = ["small-64", "new", "big", "idle"]
QUICK_ROWS = [*ARCHITECTURES, "reactor-deferred", "nginx-tuned", "lighttpd"]
QUICK_ROWS += ["ceil-epoll", "ceil-uring", "ceil-epoll-eager"]
