"""What loads a server: wrk, one checked request, a crowd of idle connections."""

import json
import os
import re
import select
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import http2
from peers import Scenario
from processes import REPOSITORY, find_program, spawn

# Exit codes of `loadline load`: the client's limit is a result, and so may be that nothing was good.
MEASURED, ACCEPTABLE = (0, 5), (0, 5, 6)

WRK_TLS = REPOSITORY / "bench" / "wrk.cnf"
# Of TLS 1.3, h2load offers what wrk offers by that file, and nothing else.
H2LOAD_TLS = ["--groups=X25519", "--tls13-ciphers=TLS_AES_128_GCM_SHA256"]
WRK_DONE = """
done = function(s, l, r)
  local e = s.errors
  io.write(string.format("RESULT %d %d %d %d %d %d %d %.3f %.3f\\n", s.requests, s.duration,
    e.connect, e.read, e.write, e.timeout, e.status, l:percentile(50), l:percentile(99)))
end
"""


def children_cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


def run_client(argv: list[str], cores: set[int]) -> tuple[str, float]:
    """Runs a client to its end; its output and CPU seconds."""
    cpu = children_cpu()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        code = spawn(argv, cores, output).wait()
        output.seek(0)
        text = output.read()
    if code != 0:
        raise RuntimeError(f"{' '.join(argv)}: exit code {code}: {text.strip()[-2000:]}")
    return text, children_cpu() - cpu


def loaded(requests, seconds, errors, p50_us, p99_us, cpu) -> dict:
    """What a load came to."""
    return {
        "requests": requests,
        "seconds": seconds,
        "rate": requests / seconds,
        "errors": errors,
        "p50_us": p50_us,
        "p99_us": p99_us,
        "per_cpu": requests / max(cpu, 1e-9),
    }


def wrk(url: str, sc: Scenario, seconds: int, cores: set[int], script: Path) -> dict:
    """As many threads as cores."""
    argv = ["wrk", f"-t{len(cores)}", f"-c{sc.conns}", f"-d{seconds}s", "--timeout", "10s"]
    argv += ["-s", str(script)]
    if sc.tls:
        argv = ["env", f"OPENSSL_CONF={WRK_TLS}", *argv]
    if sc.close:
        argv += ["-H", "Connection: close"]
    text, cpu = run_client([*argv, url], cores)
    found = re.search(r"^RESULT (.*)$", text, re.M)
    if not found:
        raise RuntimeError(f"wrk failed: {text.strip()}")
    f = [float(word) for word in found[1].split()]
    return loaded(f[0], f[1] / 1e6, sum(f[2:7]), f[7], f[8], cpu)


def h2load(url: str, sc: Scenario, seconds: int, cores: set[int]) -> dict:
    """As many threads as cores; it says nothing of percentiles."""
    argv = ["h2load", f"-t{len(cores)}", f"-c{sc.conns}", f"-m{sc.streams}", f"-D{seconds}"]
    if sc.tls:
        argv += H2LOAD_TLS
    text, cpu = run_client([*argv, url], cores)
    found = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored", text)
    if not found:
        raise RuntimeError(f"h2load failed: {text.strip()}")
    succeeded, failed, errored = map(int, found.groups())
    return loaded(succeeded, seconds, failed + errored, 0.0, 0.0, cpu)


class LoadRun:
    """A run of `loadline load`, from its start. What it writes is in files of this name."""

    def __init__(self, argv: list[str], files: Path, cores: set[int], yields: bool = False):
        self.json, self.log = files.with_suffix(".json"), files.with_suffix(".log")
        self.argv = [find_program("loadline"), "load", *argv, f"--json={self.json}"]
        with open(self.log, "wb") as log:
            self.proc = spawn(self.argv, cores, log, yields)

    def is_running(self) -> bool:
        return self.proc.poll() is None

    def record(self, codes: tuple[int, ...] = ACCEPTABLE) -> dict:
        """What was measured, once it has ended with one of these exit codes."""
        if (code := self.proc.wait()) not in codes:
            said = self.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(self.argv)}: exit code {code}: {said}")
        return json.loads(self.json.read_text())


@cache
def any_certificate(is_http2: bool = False) -> ssl.SSLContext:
    """A client's side of TLS that trusts every server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if is_http2:
        context.set_alpn_protocols(["h2"])
    return context


def connect(port: int, sc: Scenario, timeout: float) -> socket.socket:
    """A connection as the scenario has them. Without TCP_NODELAY a request waits behind the last message of
    its handshake until the server acknowledges that: 40 ms, if the server has nothing to say to it (Caddy)."""
    s = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return any_certificate(sc.streams > 0).wrap_socket(s) if sc.tls else s


def fetch(s: socket.socket, sc: Scenario) -> str | None:
    """One GET on an open connection; what is wrong with the answer, or None."""
    if sc.streams:
        return http2.fetch(s, sc.path, sc.size, sc.tls)
    close = "Connection: close\r\n" if sc.close else ""
    s.sendall(f"GET {sc.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{close}\r\n".encode())
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0 or len(data) < end + 4 + sc.size:
        part = s.recv(1 << 20)
        if not part:
            return "connection closed within the answer"
        data += part
    head = data[:end].lower()
    if not head.startswith(b"http/1.1 200"):
        return f"answered {data[:40]!r}"
    if len(data) != end + 4 + sc.size or f"content-length: {sc.size}".encode() not in head:
        return "body of the wrong length"
    if sc.close:
        s.settimeout(2)
        try:
            if s.recv(1):
                return "bytes after the answer"
        except TimeoutError:
            return "keeps the connection open against Connection: close"
    return None


class OutOfTime(Exception):
    """A limit of time has passed."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """After so long whatever the main thread waits for in here is given up: OutOfTime."""

    def give_up(*_):
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class IdleCrowd:
    """Many keep-alive connections, each of which has had one request answered. They are opened one after
    the other, which takes 2 to 3 ms each by TLS, most of it in this client."""

    ERRORS_MAX = 100

    def __init__(self, port: int, sc: Scenario):
        self.socks: list[socket.socket] = []
        self.errors = 0
        self.problem = "none"
        began, seconds_max = time.monotonic(), 20 + sc.conns // 100
        try:
            with within(seconds_max):
                self.open(port, sc)
        except OutOfTime:
            self.problem = f"{seconds_max} s are the limit"
        self.seconds = time.monotonic() - began
        if (count := len(self.socks)) < sc.conns:
            self.close()
            counts = f"{count:,} of {sc.conns:,} connections after {self.seconds:.0f} s"
            raise RuntimeError(f"{counts}, {self.errors} errors; the last problem: {self.problem}")

    def open(self, port: int, sc: Scenario) -> None:
        while len(self.socks) < sc.conns and self.errors <= self.ERRORS_MAX:
            try:
                s = connect(port, sc, 10)
                problem = fetch(s, sc)
            except OSError as error:
                problem = str(error)
            if problem is None:
                self.socks.append(s)
            else:
                self.errors += 1
                self.problem = problem

    def closed(self) -> int:
        """How many the server has closed meanwhile. Something to read is no end: a client need not have
        read all that belongs to a protocol."""
        with select.epoll() as poll:
            for s in self.socks:
                poll.register(s, select.EPOLLRDHUP)
            return len(poll.poll(0, max(len(self.socks), 1)))

    def close(self):
        for s in self.socks:
            s.close()
