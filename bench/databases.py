"""A PostgreSQL of one's own, as crates/databases starts it: in a new folder, on a Unix socket."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from processes import spawn, stop

VERSIONS = Path("/usr/lib/postgresql")  # of Debian
NOBODY = 65534  # PostgreSQL refuses to be root
START_SECONDS_MAX = 30


def postgresql_programs() -> Path | None:
    """Where the newest version is."""
    found = [path.parent for path in VERSIONS.glob("*/bin/postgres")]
    return max(found, key=lambda path: float(path.parent.name), default=None)


class PostgreSql:
    """A server that runs."""

    def __init__(self, folder: Path, programs: Path):
        self.folder, self.programs, self.count = folder, programs, 0

    def argv(self, name: str, *words: str) -> list[str]:
        own = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
        env = ["env", "-C", str(self.folder), f"HOME={self.folder}"]
        return (own if os.geteuid() == 0 else []) + env + [str(self.programs / name), *words]

    def ask(self, sql: str) -> None:
        words = ["--no-psqlrc", "--quiet", "--host", str(self.folder), "--username", "tester"]
        argv = self.argv("psql", *words, "postgres", "--command", sql)
        subprocess.run(argv, check=True, capture_output=True)

    def new_database(self) -> str:
        """The URL of one that is empty."""
        self.count += 1
        name = f"sizes{self.count}"
        self.ask(f"CREATE DATABASE {name}")
        return f"postgres://tester@localhost/{name}?host={self.folder}"


@contextmanager
def postgresql(folder: Path, cores: set[int]) -> Iterator[PostgreSql]:
    """Made, started, and stopped afterwards."""
    programs = postgresql_programs()
    if programs is None:
        raise RuntimeError("PostgreSQL is not installed: apt install postgresql")
    folder.mkdir()
    if os.geteuid() == 0:
        shutil.chown(folder, NOBODY, NOBODY)
    server = PostgreSql(folder, programs)
    data = str(folder / "data")
    words = ["-D", data, "-A", "trust", "-U", "tester", "-E", "UTF8", "--locale=C", "--no-sync"]
    subprocess.run(server.argv("initdb", *words), check=True, capture_output=True)
    words = ["-D", data, "-k", str(folder), "-c", "listen_addresses=", "-c", "jit=off"]
    with open(folder / "log", "wb") as log:
        proc = spawn(server.argv("postgres", *words), cores, log)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                server.ask("SELECT 1")
                break
            except subprocess.CalledProcessError:
                if proc.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield server
    finally:
        stop(proc)
