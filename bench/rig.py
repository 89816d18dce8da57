"""A place to measure in: documents, ports, servers that are started and checked, quiet."""

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from load import WRK_DONE, connect, fetch
from peers import BIG, SMALL, Ctx, Scenario, Server
from processes import BENCH, BIN_DIRS, become_reaper, find_program, machine_busy, pss_bytes, spawn, stop

START_SECONDS_MAX = 10


class Failed(Exception):
    """A program is not there, did not start, or did not do what it should."""


def require_programs(*names: str) -> None:
    for name in names:
        if not find_program(name):
            hint = "cargo build --release" if name.startswith("loadline") else "install it"
            sys.exit(f"{name} is not there (looked in {', '.join(BIN_DIRS)} and PATH): {hint}")


def cores_of(text: str) -> set[int]:
    """CPUs as people write them: 1 or 0,2."""
    cores = {int(word) for word in text.split(",")}
    if not cores <= os.sched_getaffinity(0):
        usable = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        raise ValueError(f"may only use CPUs {usable}")
    return cores


@dataclass
class Rig:
    """Where servers are started, and with which cores."""

    dir: Path
    port: int  # ports used lie above it
    server_cores: set[int]
    client_cores: set[int]
    quiet_wait: float = 20
    start_bytes: int = 0  # memory of the last server that was started, before anybody connected

    def __post_init__(self) -> None:
        self.dir.chmod(0o755)  # Apache's worker is not root
        self.root = self.dir / "root"
        self.root.mkdir()
        (self.root / "small.html").write_bytes(b"x" * SMALL)
        (self.root / "large.bin").write_bytes(b"x" * BIG)
        long_ago = time.time() - 3600  # not taken for files being written
        for file in self.root.iterdir():
            os.utime(file, (long_ago, long_ago))
        self.script = self.dir / "done.lua"
        self.script.write_text(WRK_DONE)

    def free_port(self) -> int:
        """The next port that no earlier client connection lingers on."""
        while True:
            self.port += 1
            with socket.socket() as s:  # without SO_REUSEADDR: sockets in TIME_WAIT count
                try:
                    s.bind(("127.0.0.1", self.port))
                    return self.port
                except OSError:
                    continue

    def scratch(self) -> Path:
        """A folder for the server that has the last port."""
        return self.dir / f"run-{self.port}"

    @contextmanager
    def running(
        self,
        server: Server,
        sc: Scenario,
        cores: set[int] | None = None,
        rest_seconds: float = 0,
    ) -> Iterator[tuple[subprocess.Popen, str]]:
        """A server that answers rightly, and the URL to ask for; stopped afterwards. It is left alone
        for so long before anybody connects."""
        port = self.free_port()
        scratch = self.scratch()
        scratch.mkdir()
        argv = server.argv(Ctx(port, self.root, scratch, sc.path, sc.size))
        argv[0] = find_program(argv[0]) or argv[0]
        with open(scratch / "output", "wb") as log:
            proc = spawn(argv, cores or self.server_cores, log)
        try:
            time.sleep(rest_seconds)
            self.start_bytes = pss_bytes(proc.pid)
            if wrong := self.await_start(proc, port) or self.check(port, sc):
                said = (scratch / "output").read_text(errors="replace")[-2000:]
                raise Failed(f"{server.name}: {wrong}: {shlex.join(argv)}\n{said}")
            yield proc, f"{'https' if sc.tls else 'http'}://127.0.0.1:{port}{sc.path}"
        finally:
            stop(proc)

    @staticmethod
    def await_start(proc: subprocess.Popen, port: int) -> str | None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline and proc.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return None
            except OSError:
                time.sleep(0.02)
        return "did not start"

    def check(self, port: int, sc: Scenario) -> str | None:
        """Only a server that answers correctly is worth measuring: what is wrong, or None."""
        try:
            with connect(port, sc, 5) as s:
                return fetch(s, sc)
        except OSError as error:
            return str(error)

    def wait_quiet(self) -> None:
        """Wait (a while) until the machine is otherwise idle."""
        deadline = time.monotonic() + self.quiet_wait
        while True:
            busy = machine_busy()
            time.sleep(0.3)
            if (machine_busy() - busy) / 0.3 < 0.1 or time.monotonic() > deadline:
                return


def options(
    doc: str | None,
    program: str | None = None,
    port: int = 21000,
    server_cores: str = "1",
    client_cores: str = "0",
) -> argparse.ArgumentParser:
    """With what every measurement can be told: where its servers and clients are."""
    raw = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog=program, description=doc, formatter_class=raw)
    o = p.add_argument_group("where").add_argument
    for name, cores in [("--server-cores", server_cores), ("--client-cores", client_cores)]:
        o(name, type=cores_of, default=cores, metavar="CPUS", help=f"default {cores}")
    o("--port", type=int, default=port, help=f"ports used lie above this one (default {port})")
    if program:
        words = [program.replace("./x bench", BENCH), shlex.join(sys.argv[1:])]
        p.set_defaults(command_line=" ".join(words).rstrip())
    return p


def chosen(p: argparse.ArgumentParser, what: str, given: list[str], known: list[str]) -> list[str]:
    """Those that were given, all of them known; or all."""
    for name in given:
        if name not in known:
            p.error(f"{name}: no such {what}; right would be one of {', '.join(known)}")
    return given or known


@contextmanager
def rigged(args: argparse.Namespace, quiet_wait: float = 20) -> Iterator[Rig]:
    """A place by those options; a failure in it ends the program with one line."""
    become_reaper(args.client_cores)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        cores = (args.server_cores, args.client_cores)
        try:
            yield Rig(Path(folder), args.port, *cores, quiet_wait)
        except (Failed, OSError, RuntimeError, subprocess.SubprocessError) as error:
            sys.exit(str(error))
