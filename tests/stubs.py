# SPDX-License-Identifier: GPL-2.0-only
"""Programs that replace those of the machine in a test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

Done = subprocess.CompletedProcess[str]


def write(path: Path, text: str | bytes = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def user_ids(real: int, others: int | None = None) -> str:
    """Return what /proc/PID/status has of the user IDs."""
    other = real if others is None else others
    return f"Name:\tqemu\nNgid:\t0\nUid:\t{real}\t{other}\t{other}\t{other}\nGid:\t0\t0\t0\t0\n"


def process(
    proc: Path,
    pid: int,
    files: Mapping[int, tuple[str, str]],
    name: str = "qemu-system-x86",
    cgroup: str = "0::/\n",
) -> None:
    """Create a process of this user in a directory that stands for /proc.

    Args:
        files: number -> what is open, and its file in fdinfo.
    """
    folder = proc / str(pid)
    for path, text in (
        ("comm", f"{name}\n"),
        ("status", user_ids(os.getuid())),
        ("cgroup", cgroup),
        ("cmdline", "qemu\0-name\0guest=a,,b,debug-threads=on\0-m\0\0"),
        ("ns/net", ""),
    ):
        write(folder / path, text)
    (folder / "fd").mkdir()
    for number, (target, info) in files.items():
        (folder / f"fd/{number}").symlink_to(target)
        write(folder / f"fdinfo/{number}", info)


def programs(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        write(folder / name, f"#!/bin/bash\n{text}\n").chmod(0o755)


def before(folder: Path) -> str:
    return f"{folder}:{os.environ['PATH']}"


def run(bin_: Path, *words: str | Path, **environment: str | Path) -> Done:
    """Run a program with that PATH and only this environment."""
    env = {"PATH": before(bin_), **{name: str(value) for name, value in environment.items()}}
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
