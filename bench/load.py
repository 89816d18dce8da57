"""What loads a server: wrk, `loadline load`, one checked request, a crowd of idle connections."""

import json
import re
import resource
import selectors
import socket
import subprocess
import time
from pathlib import Path

from peers import Scenario
from processes import find_program, spawn

WRK_DONE = """
done = function(s, l, r)
  local e = s.errors
  io.write(string.format("RESULT %d %d %d %d %d %d %d %.3f %.3f\\n", s.requests, s.duration,
    e.connect, e.read, e.write, e.timeout, e.status,
    l:percentile(50) / 1000, l:percentile(99) / 1000))
end
"""


def wrk(url: str, sc: Scenario, seconds: int, cores: set[int], script: Path) -> dict:
    """As many threads as cores."""
    argv = ["wrk", f"-t{len(cores)}", f"-c{sc.conns}", f"-d{seconds}s", "--timeout", "10s"]
    argv += ["-s", str(script)]
    if sc.close:
        argv += ["-H", "Connection: close"]
    proc = spawn(argv + [url], cores, subprocess.PIPE)
    usage0 = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = proc.communicate(timeout=seconds + 60)[0].decode()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    m = re.search(r"^RESULT (.*)$", out, re.M)
    if not m:
        raise RuntimeError(f"wrk failed: {out.strip()}")
    f = [float(x) for x in m[1].split()]
    cpu = usage.ru_utime + usage.ru_stime - usage0.ru_utime - usage0.ru_stime
    return {
        "requests": f[0],
        "seconds": f[1] / 1e6,
        "errors": sum(f[2:7]),
        "p50": f[7],
        "p99": f[8],
        "wrk_cpu": cpu,
    }


def loadline_load(
    url: str, options: tuple[str, ...], seconds: int, cores: set[int], folder: Path
) -> dict:
    """`loadline load`; times in ms. `limited`: it says itself that it was the limit; `late`: how much
    later than due one request in a hundred was sent though a connection was free."""
    out = folder / "load.json"
    argv = ["loadline", "load", url, f"--duration={seconds}s", f"--threads={len(cores)}"]
    argv += ["--quiet", "--allow-client-limited", f"--json={out}", *options]
    argv[0] = find_program(argv[0]) or argv[0]
    proc = spawn(argv, cores, subprocess.PIPE)
    said = proc.communicate(timeout=seconds + 60)[0].decode()
    # 1: not one answer came, which is a result here.
    if proc.returncode not in (0, 1) or not out.exists():
        raise RuntimeError(f"{' '.join(argv)}: exit code {proc.returncode}: {said[-2000:]}")
    record = json.loads(out.read_text().splitlines()[-1])
    total = record["groups"][0]["total"]
    errors = total["tally"]["errors"]
    percentiles = total["latency"]["percentiles"]
    return {
        "requests": total["tally"]["completed"],
        "rps": total["tally"]["completed"] / total["seconds"],
        "errors": sum(errors.values() if isinstance(errors, dict) else errors),
        "p50": (percentiles["p50"] or 0) / 1e3,
        "p99": (percentiles["p99"] or 0) / 1e3,
        "limited": float(record["verdict"]["client_limited"]),
        "late": (record["verdict"]["lag_p99_us"] or 0) / 1e3,
    }


def fetch(s: socket.socket, sc: Scenario) -> str | None:
    """One GET on an open connection; what is wrong with the answer, or None."""
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


class IdleCrowd:
    """Many keep-alive connections, each of which has had one request answered."""

    def __init__(self, port: int, sc: Scenario):
        self.socks: list[socket.socket] = []
        self.errors = 0
        begin = time.monotonic()
        for _ in range(sc.conns):
            try:
                s = socket.create_connection(("127.0.0.1", port), timeout=10)
                self.errors += fetch(s, sc) is not None
                self.socks.append(s)
            except OSError:
                self.errors += 1
                if self.errors > 100:
                    break
        self.seconds = time.monotonic() - begin

    def closed(self) -> int:
        """How many the server has closed meanwhile."""
        with selectors.EpollSelector() as sel:
            for s in self.socks:
                sel.register(s, selectors.EVENT_READ)
            return len(sel.select(0))

    def close(self):
        for s in self.socks:
            s.close()
