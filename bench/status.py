"""Asks a server's own pages."""

import json
import socket
from pathlib import Path


def ask(s: socket.socket, target: str, fields: str = "") -> str:
    """The content of a response over this connection, which the server closes."""
    s.sendall(f"GET {target} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n{fields}\r\n".encode())
    data = b""
    while part := s.recv(1 << 16):
        data += part
    head, found, content = data.partition(b"\r\n\r\n")
    if not found or not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"{target}: {head[:80]!r}")
    return content.decode()


def status_at(port: int) -> dict:
    """The status page at a port of this machine."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
        return json.loads(ask(s, "/-/status"))


def status(listener: Path) -> dict:
    """The status page at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(str(listener))
        return json.loads(ask(s, "/-/status"))
