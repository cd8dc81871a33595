# SPDX-License-Identifier: GPL-2.0-only
"""What a result must tell about where it was made."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nodrop.kernel import Kernel

GIT_TIMEOUT_S = 10.0
REPOSITORY = Path(__file__).resolve().parents[2]


def describe_machine() -> dict[str, Any]:
    """Return the processor, the memory and the load of this machine."""
    return {
        "cpu": _field(Path("/proc/cpuinfo"), "model name") or platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "host_kernel": platform.release(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def describe_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return what names the guest's kernel."""
    return {
        "release": kernel.release,
        "package": kernel.package,
        "build_id": kernel.build_id,
    }


def describe_source() -> dict[str, Any]:
    """Return the commit of this clone; empty outside one."""
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return {}
    return {"commit": commit, "modified": bool(_git("status", "--porcelain"))}


class OtherWork:
    """Measures how much of this machine other programs took; a context manager.

    Attributes:
        share: of all CPU time between begin and end, what neither stood idle nor was spent
            by child processes that have ended; 0 to 1. Known at the end.
    """

    def __init__(self) -> None:
        self.share = 0.0
        self._before = (0.0, 0.0, 0.0)

    def __enter__(self) -> Self:
        self._before = _cpu_seconds()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        wall, busy, own = (
            after - before for after, before in zip(_cpu_seconds(), self._before, strict=True)
        )
        if wall > 0:
            self.share = round(min(max((busy - own) / wall, 0.0), 1.0), 3)


def _cpu_seconds() -> tuple[float, float, float]:
    """Return wall-clock seconds times CPUs, busy CPU seconds, those of ended children."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
    ticks = user + nice + system + irq + softirq + steal
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        time.monotonic() * (os.cpu_count() or 1),
        ticks / os.sysconf("SC_CLK_TCK"),
        children.ru_utime + children.ru_stime,
    )


def now_utc() -> str:
    """Return the time as ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(REPOSITORY), *arguments],
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _field(path: Path, name: str) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
