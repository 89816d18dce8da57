#!/usr/bin/env python3
"""Has an instrumented Loadline do what servers do, so that a build can be guided by how often each part
of it ran (profile-guided optimisation): `./x release` and `./x bench --profiled` call it.

  bench/train.py PROGRAM     about a minute; the program writes its profile where it was built to

Every architecture serves the pages of site/ and a large file: to connections that stay and to new
ones, to requests as programs send them and as browsers do, found, not found and unchanged. The
client is the same program's load generator, at full speed and at a rate."""

import random
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SITE = Path(__file__).parent.parent / "site"
END_SECONDS_MAX = 20
LOAD_SECONDS_MAX = 60
LARGE = 1 << 20

ARCHITECTURES = [
    ["reactor", "--loops", "1", "--workers", "0"],
    ["proactor", "--loops", "1", "--workers", "0"],
    ["reactor", "--loops", "2", "--workers", "2"],
    ["proactor", "--loops", "2", "--workers", "2"],
    ["thread-pool", "--threads", "64"],
    ["thread-per-connection"],
]
BROWSER = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en-US,en;q=0.5",
    "Accept-Encoding": "gzip, deflate, br, zstd",
    "Referer": "http://127.0.0.1/index.html",
    "Upgrade-Insecure-Requests": "1",
    "Sec-Fetch-Dest": "document",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Site": "same-origin",
    "Priority": "u=0, i",
}


def fields(of: dict[str, str]) -> list[str]:
    return [word for name, value in of.items() for word in ("-H", f"{name}: {value}")]


# How requests come, after the pages that are asked for; each for a second or two.
LOADS = [
    ("pages", ["-c", "64", "-d", "2s"]),
    ("pages", ["-c", "64", "-d", "2s", *fields(BROWSER)]),
    ("pages", ["-c", "300", "-d", "1s"]),
    ("pages", ["-c", "16", "-d", "1s", "--new-connection"]),
    ("pages", ["-c", "64", "-d", "1s", "--rate", "3000"]),
    ("pages", ["-c", "8", "-d", "500ms", "-H", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"]),
    ("missing", ["-c", "8", "-d", "500ms"]),
    ("large", ["-c", "16", "-d", "1s"]),
]


def announced(server: subprocess.Popen) -> str:
    """The address that a server says it listens at."""
    for line in server.stderr:
        if found := re.search(r"http://\S+?:\d+", line):
            return found[0]
    sys.exit("train: the server ended before it served")


def train(program: str, root: Path, architecture: list[str]) -> None:
    command = [program, "serve", str(root), "--listen", "127.0.0.1:0", "--architecture"]
    server = subprocess.Popen(command + architecture, stderr=subprocess.PIPE, text=True)
    try:
        base = announced(server)
        pages = [f"{base}/{page.relative_to(root)}" for page in sorted(root.rglob("*.html"))]
        urls = {"pages": pages, "missing": [f"{base}/nowhere.html"], "large": [f"{base}/large.bin"]}
        for kind, options in LOADS:
            load = [program, "load", *urls[kind], *options, "--allow-client-limited", "--quiet"]
            subprocess.run(load, stdout=subprocess.DEVNULL, timeout=LOAD_SECONDS_MAX, check=True)
    finally:
        server.send_signal(signal.SIGTERM)  # its profile is written at its end
        server.communicate(timeout=END_SECONDS_MAX)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: bench/train.py PROGRAM")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for page in SITE.rglob("*.html"):
            (root / page.relative_to(SITE)).parent.mkdir(parents=True, exist_ok=True)
            (root / page.relative_to(SITE)).write_bytes(page.read_bytes())
        (root / "large.bin").write_bytes(random.Random(1).randbytes(LARGE))
        for architecture in ARCHITECTURES:
            print("train:", *architecture, file=sys.stderr)
            train(sys.argv[1], root, architecture)


if __name__ == "__main__":
    main()
