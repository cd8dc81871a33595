# SPDX-License-Identifier: GPL-2.0-only
"""Finds the network namespaces of a machine: with a name, or with processes in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodrop.host import netns


@dataclass(frozen=True)
class Space:
    """A network namespace.

    Attributes:
        name: what people call it: its name, or the pid of its first process.
        path: the file that stands for it.
        inode: what the kernel knows it by.
    """

    name: str
    path: str
    inode: int


def find(proc: Path = Path("/proc")) -> list[Space]:
    """Return all that can be seen, each once; those with a name first."""
    found: dict[int, Space] = {}
    for space in (*_named(), *_of_processes(proc)):
        found.setdefault(space.inode, space)
    return list(found.values())


def _named() -> Iterator[Space]:
    for name in netns.named():
        path = netns.NAMED / name
        with suppress(OSError):
            yield Space(name, str(path), path.stat().st_ino)


def _of_processes(proc: Path) -> Iterator[Space]:
    with suppress(OSError):
        for pid in sorted(filter(str.isdigit, os.listdir(proc)), key=int):
            path = f"{proc}/{pid}/ns/net"
            with suppress(OSError):
                yield Space(pid, path, os.stat(path).st_ino)
