"""What can be measured of one server: under load, idle, beside an idle crowd, by the clock, and how
many system calls it makes. Each starts a fresh server and returns figures by name."""

import re
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from load import IdleCrowd, loadline_load, wrk
from peers import Scenario, Server
from processes import cpu_seconds, kernel_bytes, machine_busy, pss_bytes, tree
from rig import Failed, Rig

Figures = dict[str, float]


def middle(values: Iterable[float]) -> float:
    return statistics.median(list(values))


def load(
    rig: Rig,
    server: Server,
    sc: Scenario,
    seconds: int,
    warm_up: int = 1,
    server_cores: set[int] | None = None,
    client_cores: set[int] | None = None,
) -> Figures:
    """wrk as fast as both together can."""
    clients = client_cores or rig.client_cores
    with rig.running(server, sc, server_cores) as (proc, url):
        few = Scenario(sc.path, sc.size, min(sc.conns, 64), sc.close)
        wrk(url, few, warm_up, clients, rig.script)
        time.sleep(0.2)
        rig.wait_quiet()
        wall, busy, cpu = time.monotonic(), machine_busy(), cpu_seconds(proc.pid)
        r = wrk(url, sc, seconds * sc.stretch, clients, rig.script)
        pss, cpu = pss_bytes(proc.pid), cpu_seconds(proc.pid) - cpu
        busy, wall = machine_busy() - busy, time.monotonic() - wall
    n = max(r["requests"], 1)
    return {
        "rps": r["requests"] / r["seconds"],
        "errors": r["errors"],
        "p50": r["p50"],
        "p99": r["p99"],
        "cpu_us": cpu / n * 1e6,
        "both_us": (cpu + r["wrk_cpu"]) / n * 1e6,
        "cap": n / max(cpu, 1e-9),
        "srv": 100 * cpu / r["seconds"],
        "wrk": 100 * r["wrk_cpu"] / r["seconds"],
        "pss": pss / 2**20,
        "noise": max(0.0, 100 * (busy - cpu - r["wrk_cpu"]) / wall),
    }


def idle(rig: Rig, server: Server, sc: Scenario) -> Figures:
    """Memory with many connections that have had one answer each and say nothing more."""
    rig.wait_quiet()
    with rig.running(server, sc, rest_seconds=0.5) as (proc, url):
        port = port_of(url)
        IdleCrowd(port, Scenario(sc.path, sc.size, 10)).close()
        time.sleep(1)
        pss0, kernel0 = pss_bytes(proc.pid), kernel_bytes()
        crowd = IdleCrowd(port, sc)
        time.sleep(2)
        n, lost = max(len(crowd.socks), 1), crowd.closed()
        pss, kernel = pss_bytes(proc.pid), kernel_bytes()
        crowd.close()
    return {
        "conns": n,
        "errors": crowd.errors + lost,
        "user": (pss - pss0) / n,
        "kernel": (kernel - kernel0) / n,
        "start": rig.start_bytes / 2**20,
        "few": pss0 / 2**20,
        "end": pss / 2**20,
        "rate": n / crowd.seconds,
        "noise": 0.0,
    }


def crowd(rig: Rig, server: Server, sc: Scenario, idlers: int, seconds: int) -> Figures:
    """The same busy connections without and with many idle ones beside them: two servers that stay
    up, loaded for a second each in turn, since one answer in a hundred waits for whatever the machine
    does meanwhile. Medians over the seconds; the ratio is that of neighbours."""
    with rig.running(server, sc) as (_, alone), rig.running(server, sc) as (_, beside):
        others = IdleCrowd(port_of(beside), Scenario(sc.path, sc.size, idlers))
        runs: dict[str, list[dict]] = {alone: [], beside: []}
        for number in range(-1, seconds):
            rig.wait_quiet()
            for url in [alone, beside] if number % 2 else [beside, alone]:
                run = wrk(url, sc, 1, rig.client_cores, rig.script)
                if number >= 0:  # the first warms up
                    runs[url].append(run)
        lost = others.closed()
        others.close()
    every = runs[alone] + runs[beside]
    return {
        "errors": sum(run["errors"] for run in every) + others.errors + lost,
        "p99_alone": middle(run["p99"] for run in runs[alone]),
        "p99_beside": middle(run["p99"] for run in runs[beside]),
        "ratio": middle(
            with_them["p99"] / max(without["p99"], 1e-9)
            for without, with_them in zip(runs[alone], runs[beside])
        ),
        "rps_alone": middle(run["requests"] / run["seconds"] for run in runs[alone]),
        "rps_beside": middle(run["requests"] / run["seconds"] for run in runs[beside]),
        "noise": 0.0,
    }


def open_loop(rig: Rig, server: Server, sc: Scenario, rate: float, seconds: int) -> Figures:
    """Requests by the clock, whatever the server does."""
    with rig.running(server, sc) as (proc, url):
        wrk(url, sc, 1, rig.client_cores, rig.script)
        rig.wait_quiet()
        cpu = cpu_seconds(proc.pid)
        options = (f"--connections={sc.conns}", "--timeout=10s", f"--rate={rate:.0f}")
        r = loadline_load(url, options, seconds, rig.client_cores, rig.dir)
        cpu = cpu_seconds(proc.pid) - cpu
    return {**r, "cpu_us": cpu / max(r["requests"], 1) * 1e6, "noise": 0.0}


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
        "rps": r["requests"] / r["seconds"],
        "all": counts[""] / n,
        "waits": sum(count for name, count in counts.items() if "epoll" in name) / n,
        "enters": counts["_io_uring_enter"] / n,
        "noise": 0.0,
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
    that nobody else sees."""
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
