# SPDX-License-Identifier: GPL-2.0-only
"""What was measured and where: source, machine, kernel.

The source's digest depends on names and contents only, so a measured tree is recognised without its
git history.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab import sources
from lab.kernel import Kernel
from lab.sources import REPOSITORY, code, git

TREES = ("kmod", "guestlib/traffic")
"""Drivers and traffic programs."""
GUEST = (
    *("bench/guest", "bench/plan.py", "bench/scenarios.toml", "bench/metrics.toml"),
    *("guestlib", "guestlib/traffic/Makefile", "tunnels"),
    *("series", "lab/kernel/series.py"),
)
"""The code and the parameters that set them up and measure them, and the patches."""
LENGTH = 16
"""Hexadecimal digits of a digest."""


def digest(repository: Path = REPOSITORY, trees: Sequence[str] = TREES) -> str:
    """Return the digest of the trees' C, Python and TOML files and patches, and of named files.

    It is empty when a tree is missing. Tests do not count, and neither do comments in C or what a
    build leaves.
    """
    files = []
    for tree in trees:
        top = repository / tree
        if not top.exists():
            return ""
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            name = path.relative_to(repository)
            left_out = {"test", "tests"} & {*name.parts} or name.match("*.mod.c")
            counts = path.suffix in (".c", ".h", ".py", ".toml", ".patch") or path == top
            if path.is_file() and counts and not left_out:
                # With Python's comments: docs name digests that were made so.
                content = code(path) if path.suffix in (".c", ".h") else path.read_bytes()
                files.append((str(name), content))
    return sources.digest(files)[:LENGTH]


def describe_machine() -> dict[str, Any]:
    return {
        "cpu": _field(Path("/proc/cpuinfo"), "model name") or platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "host_kernel": platform.release(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def describe_kernel(kernel: Kernel) -> dict[str, Any]:
    return {"release": kernel.release, "package": kernel.package, "build_id": kernel.build_id}


def describe_source() -> dict[str, Any]:
    """Return nodrop's version, its source's digests and, in a clone, its commit.

    Unknown values are left out.
    """
    source: dict[str, Any] = {}
    try:
        source["version"] = (REPOSITORY / "kmod/VERSION").read_text(encoding="utf-8").strip()
        if tree := digest(REPOSITORY):
            source["digest"] = tree
        source["measured_by"] = digest(REPOSITORY, GUEST)
    except OSError:
        pass
    if commit := git("rev-parse", "HEAD"):
        source |= {"commit": commit, "modified": bool(git("status", "--porcelain"))}
    return source


def now_utc() -> str:
    """Return the time in ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _field(path: Path, name: str) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
