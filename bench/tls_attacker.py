#!/usr/bin/env python3
"""One address that does its worst to a server of TLS, until it is ended: for bench/tls_floods.py.

  python3 bench/tls_attacker.py KIND PORT
"""

import resource
import socket
import ssl
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator

from load import any_certificate

SOURCE = "127.0.0.2"
A_SECOND = 2000
BATCHES_A_SECOND = 100
HELD = 2000
IP_BIND_ADDRESS_NO_PORT = 24
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closed by a reset, and no port is left waiting
PLAIN = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


def hello() -> bytes:
    """A client's first message, as OpenSSL writes it."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = any_certificate().wrap_bio(received, sent)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return sent.read()


def connect(port: int) -> socket.socket | None:
    s = socket.socket()
    s.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    s.settimeout(1)
    try:
        s.bind((SOURCE, 0))
        s.connect(("127.0.0.1", port))
        s.setblocking(False)
        return s
    except OSError:
        s.close()
        return None


def say(s: socket.socket, data: bytes) -> bool:
    """Whether the connection is still good."""
    try:
        return s.send(data) > 0
    except BlockingIOError:
        return True
    except OSError:
        return False


def paced() -> Iterator[int]:
    """How many connections are due, batch by batch."""
    due = time.monotonic()
    while True:
        yield A_SECOND // BATCHES_A_SECOND
        due = max(due + 1 / BATCHES_A_SECOND, time.monotonic() - 0.1)
        time.sleep(max(0.0, due - time.monotonic()))


def abandoned(port: int, message: bytes) -> None:
    """Connections that send this, and leave a moment later: the server has begun by then."""
    last: deque[socket.socket] = deque()
    for count in paced():
        for _ in range(count):
            if s := connect(port):
                say(s, message)
                last.append(s)
        while len(last) > A_SECOND // 10:
            last.popleft().close()


def bursts(port: int) -> None:
    """Many connections whose first messages come at the same moment; after half a second, again."""
    message = hello()
    while True:
        crowd = [s for _ in range(HELD // 2) if (s := connect(port))]
        for s in crowd:
            say(s, message)
        time.sleep(0.5)
        for s in crowd:
            s.close()


def pieces(port: int) -> None:
    """Connections that send their first messages byte by byte."""
    message = hello()
    held: list[tuple[socket.socket, int] | None] = [None] * HELD
    while True:
        began = time.monotonic()
        for index, one in enumerate(held):
            s, sent = one or (connect(port), 0)
            if s is None:
                held[index] = None
            elif sent < len(message) and say(s, message[sent : sent + 1]):
                held[index] = (s, sent + 1)
            else:
                s.close()
                held[index] = None
        time.sleep(max(0.0, began + 0.1 - time.monotonic()))


KINDS = {
    "abandoned": lambda port: abandoned(port, hello()),
    "bursts": bursts,
    "pieces": pieces,
    "plain-text": lambda port: abandoned(port, PLAIN),
}


def main() -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    KINDS[sys.argv[1]](int(sys.argv[2]))


if __name__ == "__main__":
    main()
