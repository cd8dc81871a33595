# SPDX-License-Identifier: GPL-2.0-only
"""A device file that is open for the length of a block, and the numbers of its ioctls."""

from __future__ import annotations

import os
from typing import Self

IOC_WRITE = 1
IOC_READ = 2


def ioc(direction: int, number: int, size: int) -> int:
    """Return the number of an ioctl of ours, as the kernel's _IOC() makes it.

    Args:
        direction: IOC_WRITE or IOC_READ, as the caller sees it.
        size: of the structure, bytes.
    """
    return direction << 30 | size << 16 | ord("K") << 8 | number


class DeviceFile:
    """A character device and what is set up through it; a context manager.

    Args:
        path: the device's file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def _set_up(self) -> None:
        """Do what is to be done once the file is open; on an error it is closed again."""

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
        """Close the file; what was set up through it goes with it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
