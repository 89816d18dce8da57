"""What loads a server: wrk, a single checked request, and a crowd of idle connections."""

import re
import resource
import selectors
import socket
import subprocess
import time
from pathlib import Path

from peers import Scenario
from processes import spawn

WRK_DONE = """
done = function(s, l, r)
  local e = s.errors
  io.write(string.format("RESULT %d %d %d %d %d %d %d %.3f %.3f\\n", s.requests, s.duration,
    e.connect, e.read, e.write, e.timeout, e.status,
    l:percentile(50) / 1000, l:percentile(99) / 1000))
end
"""


def wrk(url: str, sc: Scenario, seconds: int, core: int, script: Path) -> dict:
    argv = ["wrk", "-t1", f"-c{sc.conns}", f"-d{seconds}s", "--timeout", "10s", "-s", str(script)]
    if sc.close:
        argv += ["-H", "Connection: close"]
    proc = spawn(argv + [url], core, subprocess.PIPE)
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
