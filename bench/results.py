"""Results of parts, kept in a JSON file: a part that is measured again takes its own place, the
others stay. So a table can be made in several sittings; ratios never cross from one to another."""

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from measure import Figures
from processes import REPOSITORY, find_program

CAPTURED = {"capture_output": True, "text": True}

FORM = "loadline-bench 1"
VERSIONS = {
    "nginx": ["nginx", "-v"],
    "h2o": ["h2o", "--version"],
    "lighttpd": ["lighttpd", "-v"],
    "Apache": ["apache2", "-v"],
    "wrk": ["wrk", "-v"],
}


class PartResult:
    """Rounds of one part, by row."""

    def __init__(self, data: dict):
        self.data = data

    @classmethod
    def begin(cls, command: str, seconds: int) -> "PartResult":
        return cls(
            {
                "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
                "command": command,
                "revision": revision(),
                "machine": machine(),
                "versions": versions(),
                "seconds": seconds,
                "info": {},
                "rows": {},
                "failed": {},
            }
        )

    def differs_from(self, other: "PartResult") -> str | None:
        """Why rounds of both cannot stand in one table, or None."""
        for key in ["revision", "machine", "seconds"]:
            if self.data[key] != other.data[key]:
                return f"{key} was {self.data[key]}, is {other.data[key]}"
        return None

    def add(self, row: str, round_index: int, figures: Figures) -> None:
        self.data["rows"].setdefault(row, []).append({"round": round_index, **figures})

    def fail(self, row: str, reason: str) -> None:
        self.data["failed"][row] = reason

    def rounds(self) -> int:
        found = (figures["round"] + 1 for rows in self.data["rows"].values() for figures in rows)
        return max(found, default=0)

    def figures(self, row: str, key: str) -> list[float]:
        return [found[key] for found in self.data["rows"].get(row, [])]

    def ratios(self, row: str, base: str, key: str) -> list[float]:
        """Of rounds that both have."""
        bases = {found["round"]: found[key] for found in self.data["rows"].get(base, [])}
        own = self.data["rows"].get(row, [])
        return [f[key] / max(bases[f["round"]], 1e-9) for f in own if f["round"] in bases]

    def differences(self, row: str, base: str, key: str) -> list[float]:
        bases = {found["round"]: found[key] for found in self.data["rows"].get(base, [])}
        own = self.data["rows"].get(row, [])
        return [f[key] - bases[f["round"]] for f in own if f["round"] in bases]


class Results:
    """All parts that were ever measured into one file."""

    def __init__(self, path: Path):
        self.path = path
        self.parts: dict[str, PartResult] = {}
        if path.exists():
            data = json.loads(path.read_text())
            if data.get("form") != FORM:
                raise ValueError(f"{path} is no result of this version; move it away")
            self.parts = {name: PartResult(part) for name, part in data["parts"].items()}

    def save(self) -> None:
        data = {"form": FORM, "parts": {name: part.data for name, part in self.parts.items()}}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".part")
        unfinished.write_text(json.dumps(data, indent=1) + "\n")
        unfinished.replace(self.path)

    def get(self, name: str) -> PartResult | None:
        return self.parts.get(name)

    def machines(self) -> list[str]:
        return unique(part.data["machine"] for part in self.parts.values())

    def versions(self) -> str:
        found: dict[str, str] = {}
        for part in self.parts.values():
            found |= part.data["versions"]
        return ", ".join(f"{name} {version}" for name, version in found.items())


def unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def machine() -> str:
    info = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.*)$", info, re.M)
    kernel = ".".join(platform.release().split("-")[0].split(".")[:2])
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    virtual = "virtual " if re.search(r"^flags.*\bhypervisor\b", info, re.M) else ""
    name = re.sub(r"\((R|TM)\)|\s+Processor", "", model[1]).strip() if model else "unknown CPU"
    return (
        f"{os.cpu_count()} {virtual}cores of {name}, Linux {kernel}, loopback, "
        f"congestion control {congestion}"
    )


def versions() -> dict[str, str]:
    found = {}
    for name, argv in VERSIONS.items():
        program = find_program(argv[0])
        if not program:
            continue
        run = subprocess.run([program, *argv[1:]], capture_output=True, text=True)
        if number := re.search(r"\d+\.\d+(\.\d+)?", run.stdout + run.stderr):
            found[name] = number[0]
    return found


def revision() -> str:
    """The last commit that changed what is measured, with a mark if it has been changed since."""
    git = ["git", "-C", str(REPOSITORY)]
    paths = ["--", ":(glob)crates/*/src/**", "Cargo.toml", "Cargo.lock"]
    try:
        last = subprocess.run([*git, "log", "-1", "--format=%h", *paths], **CAPTURED)
        changed = subprocess.run([*git, "status", "--porcelain", *paths], **CAPTURED)
    except OSError:
        return "unknown"
    return (last.stdout.strip() or "unknown") + ("+" if changed.stdout.strip() else "")
