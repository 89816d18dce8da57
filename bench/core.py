#!/usr/bin/env python3
"""Counts that do not depend on the machine's mood, beside those on record.

  ./x bench core             instructions, system calls, allocations, sizes, beside the record
  ./x bench core --record    the same, and they become the record (bench/recorded.json)
  ./x bench core --check     the same, and exit code 1 if something costs more than the record

Instructions are of the program, not of the kernel, counted by callgrind: of a request through the
HTTP core in memory, and of turns of a loop that finds 64 requests, or one, each a file of 600 bytes
in the cache. System calls of the same turns are counted by strace. Both are the difference between
runs that have those turns and runs that do not, so start-up, connections and warm-up cancel out.
"""

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from page import table
from processes import REPOSITORY
from rig import require_programs

RECORDED = REPOSITORY / "bench" / "recorded.json"

CORE_REQUESTS = 1000
TURN_ROUNDS = 200
BATCHES = [64, 1]
ARCHITECTURES = ["reactor", "proactor"]
MORE_MAX = 0.01
GRIND_SECONDS_MAX = 45


def build() -> dict[str, str]:
    """Paths of the programs that are counted."""
    argv = "cargo bench --no-run -p loadline-proto --bench counts -p loadline-server --bench turns"
    argv = [*argv.split(), "--message-format", "json-render-diagnostics"]
    run = subprocess.run(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(run.returncode)
    messages = map(json.loads, run.stdout.splitlines())
    found = {m["target"]["name"]: m["executable"] for m in messages if m.get("executable")}
    return {name: found[name] for name in ("counts", "turns")}


def run(argv: list[str], folder: Path) -> str:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(argv)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def instructions(argv: list[str]) -> dict[int, int] | None:
    """By thread, in the order in which they were started. `None`, and says why, where this valgrind
    does not know a system call that the program needs."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        grind = ["valgrind", "--tool=callgrind", "--separate-threads=yes", "--quiet"]
        grind += [f"--callgrind-out-file={folder}/out", *argv]
        try:
            limit = GRIND_SECONDS_MAX
            done = subprocess.run(grind, cwd=folder, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            print(f"{shlex.join(argv)}: instructions not counted, since this valgrind does not")
            print(f"come to an end within {limit} s; a newer one may", flush=True)
            return None
        if done.returncode != 0:
            unknown = re.findall(r"unhandled .*syscall: (\d+)", done.stderr)
            if not unknown:
                sys.exit(f"{shlex.join(grind)}: {done.stderr[-2000:]}")
            calls = " and ".join(dict.fromkeys(unknown))
            print(f"{shlex.join(argv)}: instructions not counted, since this valgrind does not")
            print(f"know the system calls {calls}; a newer one may", flush=True)
            return None
        found = {}
        for file in folder.glob("out*"):
            text = file.read_text()
            thread = re.search(r"^thread: (\d+)$", text, re.M)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.M)
            if total:
                found[int(thread[1]) if thread else 1] = int(total[1])
        return found


def system_calls(argv: list[str]) -> float:
    """Of the loop's thread, which the program names, in the median of all rounds: a round begins
    with its one call of gettid."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        said = run(["strace", "-ff", "-qq", "-o", f"{folder}/out", *argv], folder)
        thread = re.search(r"^loop: (\d+)$", said, re.M)[1]
        rounds = (folder / f"out.{thread}").read_text().split("\ngettid(")
    counts = [len(re.findall(r"^\w+\(", text, re.M)) for text in rounds]
    return statistics.median(counts[-TURN_ROUNDS:-1])


def of_the_loop(more: dict[int, int], less: dict[int, int]) -> int:
    """What the loop's thread did more: of those that the program started, the one that differs
    most. The first thread is the client's side."""
    differences = [count - less.get(thread, 0) for thread, count in more.items() if thread > 1]
    return max(differences)


def count_core(program: str) -> dict[str, float]:
    counts = {}
    sent = {
        "wrk": "a request as wrk sends it",
        "browser": "a request as browser sends it",
        "http2": "a request of HTTP/2",
        "http2_32": "32 requests of HTTP/2 at once",
    }
    for name, what in sent.items():
        found = [
            instructions([program, name, str(count)])
            for count in (CORE_REQUESTS, 2 * CORE_REQUESTS)
        ]
        if all(found):
            few, many = (sum(threads.values()) for threads in found)
            each = (many - few) / CORE_REQUESTS
            counts[f"instructions in the core, {what}"] = each
    for line in run([program], REPOSITORY).splitlines():
        name, value = line.rsplit(": ", 1)
        counts[name] = float(value)
    return counts


def count_turns(program: str, architecture: str) -> dict[str, float]:
    def argv(batch: int) -> list[str]:
        return [program, architecture, str(batch), str(TURN_ROUNDS)]

    counts: dict[str, float] = {}
    bare, bare_calls = instructions(argv(0)), system_calls(argv(0))
    allocated = run(argv(64), REPOSITORY)
    for batch in BATCHES:
        requests = batch * TURN_ROUNDS
        where = f"{architecture}, a turn of {batch}"
        if bare and (busy := instructions(argv(batch))):
            more = of_the_loop(busy, bare)
            counts[f"instructions a request, {where}"] = more / requests
        calls = system_calls(argv(batch)) - bare_calls
        counts[f"system calls a request, {where}"] = calls / batch
    found = re.search(r"^allocations: (\d+)$", allocated, re.M)
    name = f"allocations of {64 * TURN_ROUNDS} requests, {architecture}"
    counts[name] = float(found[1])
    return counts


def show(now: dict[str, float], recorded: dict) -> list[str]:
    """Prints both; names what costs more than it did."""
    before = recorded.get("counts", {})
    body, more = [], []
    for name, count in now.items():
        old = before.get(name)
        change = "" if old is None else "0" if count == old else f"{count - old:+.6g}"
        if old:
            change += f" ({100 * (count - old) / old:+.2f} %)" if count != old else ""
        if old is not None and count > old * (1 + MORE_MAX):
            more.append(name)
        body.append([name, f"{count:.6g}", "" if old is None else f"{old:.6g}", change])
    print(table(["count", "now", "recorded", "change"], body))
    if before:
        print(f"\nrecorded {recorded['when']} with {recorded['compiler']}")
    return more


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="./x bench core", description=__doc__, formatter_class=raw)
    p.add_argument("--record", action="store_true", help="make it the record")
    p.add_argument("--check", action="store_true", help="exit code 1 if something costs more")
    args = p.parse_args()
    require_programs("valgrind", "strace")
    programs = build()
    now = count_core(programs["counts"])
    for architecture in ARCHITECTURES:
        now |= count_turns(programs["turns"], architecture)
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    more = show(now, recorded)
    if args.record:
        compiler = run(["rustc", "--version"], REPOSITORY).split(" (")[0].strip()
        when = time.strftime("%Y-%m-%d", time.gmtime())
        counts = {name: round(count, 4) for name, count in now.items()}
        record = {"when": when, "compiler": compiler, "counts": counts}
        RECORDED.write_text(json.dumps(record, indent=1) + "\n")
        print(f"\nwritten: {os.path.relpath(RECORDED)}")
    elif args.check and more:
        sys.exit("costs more than recorded: " + "; ".join(more))


if __name__ == "__main__":
    main()
