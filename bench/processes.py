"""Finding servers and clients, starting them on cores of their own, ending them; what they used."""

import ctypes
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
NOFILE = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

REPOSITORY = Path(__file__).resolve().parent.parent
TARGET = REPOSITORY / "target"
PROFILED = "LOADLINE_PROFILED"  # where `./x bench --profiled` has built the program
BUILT = os.environ.get(PROFILED) or str(TARGET / "release")
# Searched before PATH.
BIN_DIRS = [BUILT, *(str(TARGET / name) for name in ["ceilings", "overload-peers/release"])]
ENVIRONMENT = {**os.environ, "PATH": os.pathsep.join([*BIN_DIRS, os.environ.get("PATH", os.defpath)])}
BENCH = "./x bench --profiled" if PROFILED in os.environ else "./x bench"

AUTOGROUP = Path("/proc/self/autogroup")

libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def find_program(name: str) -> str | None:
    return shutil.which(name, path=ENVIRONMENT["PATH"])


def spawn(argv: list[str], cores: set[int], log, yields: bool = False) -> subprocess.Popen:
    """`yields`: any other program comes before it."""

    def setup():  # in the child
        os.sched_setaffinity(0, cores)
        if yields:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            if AUTOGROUP.exists():  # each session is a group of its own for the scheduler
                AUTOGROUP.write_text("19")
        resource.setrlimit(resource.RLIMIT_NOFILE, (NOFILE, NOFILE))
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        preexec_fn=setup,
        start_new_session=True,
    )


def stat_fields(pid: int) -> list[str] | None:
    """/proc/PID/stat from the state on: [0] state, [1] ppid, [11..14] times, [19] start."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def tree(root: int) -> list[tuple[int, str]]:
    """(pid, start time) of root and all its descendants."""
    children: dict[int, list[int]] = {}
    start: dict[int, str] = {}
    for p in Path("/proc").iterdir():
        if p.name.isdigit() and (f := stat_fields(int(p.name))) and f[0] != "Z":
            children.setdefault(int(f[1]), []).append(int(p.name))
            start[int(p.name)] = f[19]
    out, todo = [], [root]
    while todo:
        pid = todo.pop()
        if pid in start:
            out.append((pid, start[pid]))
        todo += children.get(pid, [])
    return out


def cpu_seconds(root: int) -> float:
    """User + system time of the tree, reaped children included."""
    ticks = 0
    for pid, _ in tree(root):
        if f := stat_fields(pid):
            ticks += sum(map(int, f[11:15]))
    return ticks / TICKS_PER_SECOND


def pss_bytes(root: int) -> int:
    total = 0
    for pid, _ in tree(root):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        if m := re.search(r"^Pss:\s+(\d+) kB", text, re.M):
            total += int(m[1]) * 1024
    return total


def kernel_bytes() -> int:
    """Kernel memory of the whole machine that grows with connections and threads."""
    info = dict(re.findall(r"^(\w+):\s+(\d+)", Path("/proc/meminfo").read_text(), re.M))
    return sum(int(info[k]) for k in ("SUnreclaim", "KernelStack", "PageTables")) * 1024


def machine_busy() -> float:
    """CPU seconds used on all cores since boot, stolen ones included."""
    f = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    user, nice, system, _idle, _iowait, irq, softirq, steal = f
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND


def machine() -> str:
    """Where it was measured."""
    model = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    return (
        f"{os.cpu_count()} CPUs of {model[1] if model else 'an unknown kind'}, "
        f"Linux {platform.release()}, loopback, congestion control {congestion}"
    )


def measured_here() -> str:
    """When and where, and of which revision."""
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return f"{when}, {machine()}, revision {revision()}"


def revision() -> str:
    """The last commit, with a mark if files have been changed since."""
    git = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty=+", "--exclude=*"]
    run = subprocess.run(git, capture_output=True, text=True)
    return run.stdout.strip() or "unknown"


def stop(proc: subprocess.Popen) -> None:
    """End a process and its descendants, by pid and only if still the same process."""
    mine = tree(proc.pid)
    proc.terminate()
    try:
        proc.wait(3)
    except subprocess.TimeoutExpired:
        pass
    for pid, start in mine:
        f = stat_fields(pid)
        if f and f[19] == start and f[0] != "Z":
            os.kill(pid, signal.SIGKILL)
    proc.wait()
    while True:  # orphans come to us (child subreaper): reap them
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break


def become_reaper(cores: set[int]) -> None:
    """Prepares this process: descriptors, the client's cores, orphans of servers come to us."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (NOFILE, NOFILE))
    os.sched_setaffinity(0, cores)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
