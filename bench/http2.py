"""One checked request over HTTP/2 (RFC 9113), in Python: of a crowd of connections each asks once."""

import socket
import struct
from collections.abc import Iterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0x0, 0x1, 0x4
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
STREAM = 1

# Fields of the static table, by their index (RFC 7541, appendix A).
METHOD_GET, SCHEME_HTTP, SCHEME_HTTPS = b"\x82", b"\x86", b"\x87"
NAME_OF_AUTHORITY, NAME_OF_PATH = b"\x01", b"\x04"
STATUS_200 = 0x88


def fetch(s: socket.socket, path: str, size: int, is_tls: bool) -> str | None:
    """The first GET of an open connection; what is wrong with the answer, or None."""
    scheme = SCHEME_HTTPS if is_tls else SCHEME_HTTP
    fields = METHOD_GET + scheme + literal(NAME_OF_AUTHORITY, "localhost") + literal(NAME_OF_PATH, path)
    asked = frame(HEADERS, END_STREAM | END_HEADERS, STREAM, fields)
    s.sendall(PREFACE + frame(SETTINGS, 0, 0, b"") + asked)
    length = 0
    for kind, flags, stream, payload in frames(s):
        if kind == SETTINGS and not flags & ACK:
            s.sendall(frame(SETTINGS, ACK, 0, b""))
        elif kind == HEADERS and STATUS_200 not in payload[:4]:  # behind new sizes of the table
            return f"answered with fields that begin with {payload[:8].hex()}"
        elif kind == DATA:
            length += len(payload)
        elif kind not in (HEADERS, SETTINGS) and stream == STREAM:
            return f"answered with a frame of type {kind}"
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            return None if length == size else f"{length} bytes of content"
    return "connection closed within the answer"


def literal(name: bytes, value: str) -> bytes:
    """A field that is not kept in the table, of a known name; at most 126 bytes, not Huffman-coded."""
    return name + bytes([len(value)]) + value.encode()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def frames(s: socket.socket) -> Iterator[tuple[int, int, int, bytes]]:
    """Type, flags, stream and payload of each, until the server closes."""
    data = b""
    while part := s.recv(1 << 16):
        data += part
        while len(data) >= 9 and len(data) >= (end := 9 + int.from_bytes(data[:3], "big")):
            kind, flags, stream = struct.unpack(">BBI", data[3:9])
            yield kind, flags, stream & 0x7FFFFFFF, data[9:end]
            data = data[end:]
