# SPDX-License-Identifier: GPL-2.0-only
"""Replace a file atomically."""

from __future__ import annotations

import stat
from pathlib import Path

from nodrop.errors import NodropError
from nodrop.host import etc


def replace(path: Path, content: bytes) -> None:
    """Replace a file atomically, readable by all users.

    Raises:
        NodropError: it cannot be written, or the path is not a regular file. The old file is
            unchanged, and no temporary file is left.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError as error:
        raise _cannot(path, error) from error
    if stat.S_ISLNK(mode):
        # The owner of the link could choose which file root overwrites.
        raise NodropError(f"{path} is a symbolic link.", "Name the file itself.")
    if not stat.S_ISREG(mode):
        raise NodropError(f"{path} is not a regular file.", "Leave --out out to print to stdout.")
    try:
        etc.replace(path, content)
    except OSError as error:
        raise _cannot(path, error) from error


def _cannot(path: Path, error: OSError) -> NodropError:
    return NodropError(f"Cannot write {path}: {error.strerror}.")
