# SPDX-License-Identifier: GPL-2.0-only
"""A context manager for a character device's file, and the numbers of its ioctls."""

from __future__ import annotations

import os
from typing import Self

IOC_WRITE = 1
IOC_READ = 2


def ioc(direction: int, number: int, size: int) -> int:
    """Return the number of one of our modules' ioctls, as the kernel's _IOC() does.

    Args:
        direction: IOC_WRITE or IOC_READ, as seen by the caller.
        size: of the structure, bytes.
    """
    return direction << 30 | size << 16 | ord("K") << 8 | number


class DeviceFile:
    """An open character device; a context manager.

    Args:
        path: the device's file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def _set_up(self) -> None:
        """Configure the open file; if this raises, the file is closed."""

    def __enter__(self) -> Self:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the kernel removes what was set up through it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
