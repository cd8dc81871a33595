# SPDX-License-Identifier: GPL-2.0-only
"""Metadata of a result: machine, kernel and source."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import source
from lab.kernel import Kernel
from lab.kernel.artifacts import REPOSITORY
from lab.kernel.other import git
from nodrop.errors import NodropError


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
    """Return what identifies the guest's kernel."""
    return {
        "release": kernel.release,
        "package": kernel.package,
        "build_id": kernel.build_id,
    }


def describe_source() -> dict[str, Any]:
    """Return nodrop's version, its source's digests and, in a clone, its commit.

    Unknown values are left out.
    """
    found: dict[str, Any] = {}
    try:
        found["version"] = (REPOSITORY / "kmod/VERSION").read_text(encoding="utf-8").strip()
        if digest := source.digest(REPOSITORY):
            found["digest"] = digest
        found["measured_by"] = source.digest(REPOSITORY, source.GUEST)
    except OSError:
        pass
    with suppress(NodropError):
        if commit := git("rev-parse", "HEAD").strip():
            found |= {"commit": commit, "modified": bool(git("status", "--porcelain"))}
    return found


def now_utc() -> str:
    """Return the time in ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _field(path: Path, name: str) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
