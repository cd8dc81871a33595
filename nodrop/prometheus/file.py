# SPDX-License-Identifier: GPL-2.0-only
"""A file that is there as a whole, or as it was before."""

from __future__ import annotations

import stat
from pathlib import Path

from nodrop.errors import NodropError
from nodrop.host import etc


def replace(path: Path, content: bytes) -> None:
    """Write a file that everybody may read; who reads it meanwhile sees the old one or the new.

    Raises:
        NodropError: it cannot be written, or something else than a file is there. The old
            file is left as it was, and nothing beside it.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError as error:
        raise _cannot(path, error) from error
    if stat.S_ISLNK(mode):
        # Who made the link would choose the file.
        raise NodropError(
            f"{path} is a link.", "Name the file itself; without --out, stdout gets it."
        )
    if not stat.S_ISREG(mode):
        raise NodropError(f"{path} is no regular file.", "Without --out, stdout gets it all.")
    try:
        etc.replace(path, content)
    except OSError as error:
        raise _cannot(path, error) from error


def _cannot(path: Path, error: OSError) -> NodropError:
    return NodropError(f"Cannot write {path}: {error.strerror}.")
