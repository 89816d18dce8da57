"""What is counted of one server: memory of idle connections, and system calls. Each starts a fresh
server and returns figures by name."""

import re
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from load import IdleCrowd, wrk
from peers import Scenario, Server
from processes import NOFILE, kernel_bytes, pss_bytes, tree
from rig import Failed, Rig

Figures = dict[str, float]


def can_hold(sc: Scenario) -> str | None:
    """Why so many connections can't be held, or None. Each end is a process with the same limit, and
    servers keep some descriptors for files: Loadline an eighth."""
    needed = sc.conns * 5 // 4
    if NOFILE >= needed:
        return None
    return f"a process may open {NOFILE:,} descriptors; {needed:,} would do (ulimit -Hn {needed})"


def idle(rig: Rig, server: Server, sc: Scenario) -> Figures:
    """Memory with many connections that have had one answer each and say nothing more."""
    rig.wait_quiet()
    with rig.running(server, sc, rest_seconds=0.5) as (proc, url):
        port = port_of(url)
        IdleCrowd(port, replace(sc, conns=10)).close()
        time.sleep(1)
        pss0, kernel0 = pss_bytes(proc.pid), kernel_bytes()
        crowd = IdleCrowd(port, sc)
        time.sleep(2)
        n, lost = sc.conns, crowd.closed()
        pss, kernel = pss_bytes(proc.pid), kernel_bytes()
        crowd.close()
    return {
        "errors": crowd.errors + lost,
        "user": (pss - pss0) / n,
        "kernel": (kernel - kernel0) / n,
        "start": rig.start_bytes / 2**20,
        "few": pss0 / 2**20,
        "end": pss / 2**20,
    }


def calls(rig: Rig, server: Server, sc: Scenario, seconds: int) -> Figures:
    """System calls a request, counted by the kernel while the server works undisturbed: a tracer
    that stops the process for each call would have more requests wait at each wake-up."""
    with rig.running(server, sc) as (proc, url):
        wrk(url, sc, 1, rig.client_cores, rig.script)
        rig.wait_quiet()
        log = rig.scratch() / "calls"
        counting = count_calls([pid for pid, _ in tree(proc.pid)], log)
        try:
            r = wrk(url, sc, seconds, rig.client_cores, rig.script)
        finally:
            counting.send_signal(signal.SIGINT)
            counting.wait(10)
    found = re.findall(r"^(\d+),,\w+:sys_enter(\w*),", log.read_text(), re.M)
    counts = {name: int(count) for count, name in found}
    if "" not in counts:
        raise Failed(f"perf counted nothing: {log.read_text()[-500:]}")
    n = max(r["requests"], 1)
    return {
        "errors": r["errors"],
        "all": counts[""] / n,
        "waits": sum(count for name, count in counts.items() if "epoll" in name) / n,
        "enters": counts["_io_uring_enter"] / n,
    }


WAITS = ["epoll_wait", "epoll_pwait", "epoll_pwait2", "io_uring_enter"]
COUNTED = ["raw_syscalls:sys_enter", *(f"syscalls:sys_enter_{name}" for name in WAITS)]


def can_count_calls() -> str | None:
    """Why system calls can't be counted, or None."""
    for program in ["perf", "unshare"]:
        if not shutil.which(program):
            return f"{program} is not installed"
    trial = subprocess.run(
        in_own_mounts(["perf", "stat", "-e", ",".join(COUNTED), "--", "true"]),
        capture_output=True,
        text=True,
    )
    return None if trial.returncode == 0 else f"perf: {trial.stderr.strip()[-300:]}"


def in_own_mounts(argv: list[str]) -> list[str]:
    """perf looks for the names of system calls in tracefs, which may not be mounted: so it gets one
    of its own."""
    mount = "[ -e /sys/kernel/tracing/events ] || mount -t tracefs none /sys/kernel/tracing"
    return ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *argv]


def count_calls(pids: list[int], log: Path) -> subprocess.Popen:
    argv = ["perf", "stat", "-x,", "-e", ",".join(COUNTED), "-o", str(log)]
    argv += ["-p", ",".join(map(str, pids))]
    counting = subprocess.Popen(in_own_mounts(argv), stdin=subprocess.DEVNULL)
    time.sleep(0.5)  # perf says nowhere that it has begun
    if counting.poll() is not None:
        raise Failed(f"perf ended at once, exit code {counting.returncode}")
    return counting


def port_of(url: str) -> int:
    return int(re.search(r":(\d+)/", url)[1])
