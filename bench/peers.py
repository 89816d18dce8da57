"""The servers that are compared, and what is asked of them.

Who they are, how each is started and configured is said in lab/compare.toml and in the lab, which
prints it: `loadline lab server`. Servers of one's own are commands."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from processes import ENVIRONMENT, find_program

SMALL, BIG = 600, 1 << 20


@dataclass(frozen=True)
class Scenario:
    path: str
    size: int
    conns: int
    close: bool = False
    idle: bool = False
    stretch: int = 1  # times --seconds: many connections take long to set up
    tls: bool = False
    streams: int = 0  # of HTTP/2, at one time on each connection; 0: HTTP/1.1


SCENARIOS = {
    "small-64": Scenario("/small.html", SMALL, 64),
    "small-1000": Scenario("/small.html", SMALL, 1000),
    "small-10000": Scenario("/small.html", SMALL, 10000, stretch=2),
    "big-64": Scenario("/large.bin", BIG, 64),
    "close-64": Scenario("/small.html", SMALL, 64, close=True),
    "small-tls-64": Scenario("/small.html", SMALL, 64, tls=True),
    "big-tls-64": Scenario("/large.bin", BIG, 64, tls=True),
    "idle-10000": Scenario("/small.html", SMALL, 10000, idle=True),
    "idle-tls-2000": Scenario("/small.html", SMALL, 2000, idle=True, tls=True),
    "idle-tls-10000": Scenario("/small.html", SMALL, 10000, idle=True, tls=True),
    "idle-h2-2000": Scenario("/small.html", SMALL, 2000, idle=True, tls=True, streams=1),
    "idle-h2-10000": Scenario("/small.html", SMALL, 10000, idle=True, tls=True, streams=1),
    "idle-h2c-2000": Scenario("/small.html", SMALL, 2000, idle=True, streams=1),
    "idle-h2c-10000": Scenario("/small.html", SMALL, 10000, idle=True, streams=1),
    "h2-32": Scenario("/small.html", SMALL, 64, tls=True, streams=32),
    "h2-1": Scenario("/small.html", SMALL, 64, tls=True, streams=1),
    "h2c-32": Scenario("/small.html", SMALL, 64, streams=32),
    "h2c-1": Scenario("/small.html", SMALL, 64, streams=1),
    "hello": Scenario("/", len("hello"), 64),  # crates/tower/examples/hello.rs
}


@dataclass
class Ctx:
    """What a server's command line and configuration may depend on."""

    port: int
    root: Path
    dir: Path  # scratch, fresh for each start
    path: str
    size: int


@dataclass(frozen=True)
class Server:
    name: str
    argv: Callable[[Ctx], list[str]]  # writes the configuration, too
    program: str | None = None  # what has to be installed; None: a server of the lab

    def is_installed(self) -> bool:
        return bool(find_program(self.program)) if self.program else lab_servers()[self.name]


def ask_lab(*words: str):
    """What `loadline lab server` prints."""
    program = find_program("loadline")
    if not program:
        sys.exit("loadline is not there, and says how servers are started: cargo build --release")
    argv = [program, "lab", "server", *words]
    run = subprocess.run(argv, capture_output=True, text=True, env=ENVIRONMENT)
    if run.returncode:
        raise RuntimeError(f"{shlex.join(argv)}: {run.stderr.strip()}")
    return json.loads(run.stdout)


@cache
def lab_servers() -> dict[str, bool]:
    """Names of the servers that the lab knows, and whether they are installed."""
    return {server["name"]: server["is_installed"] for server in ask_lab()}


def of_lab(name: str) -> Server:
    def argv(c: Ctx) -> list[str]:
        place = [f"--port={c.port}", f"--root={c.root}", f"--dir={c.dir}", f"--path={c.path}"]
        return ask_lab(name, *place)["command"]

    return Server(name, argv)


def command(template: str) -> Callable[[Ctx], list[str]]:
    def argv(c: Ctx) -> list[str]:
        names = r"\{(port|root|dir|path|size)\}"
        words = shlex.split(template)  # first: a path may have a space
        return [re.sub(names, lambda m: str(getattr(c, m[1])), word) for word in words]

    return argv


def loadline(name: str, options: str, address: str = "127.0.0.1:{port}") -> Server:
    """Loadline with these options."""
    return Server(name, command(f"loadline serve {{root}} --listen {address} {options}"))


def pick_server(spec: str) -> Server:
    if spec in lab_servers():
        return of_lab(spec)
    if spec.startswith("cmd:") and spec.count(":") >= 2:
        _, label, template = spec.split(":", 2)
        return Server(label, command(template), shlex.split(template)[0])
    sys.exit(f"unknown server {spec!r}; known: {', '.join(lab_servers())}, cmd:LABEL:COMMAND")
