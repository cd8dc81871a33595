# SPDX-License-Identifier: GPL-2.0-only
"""Files below /etc that are nodrop's alone, written whole or not at all."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nodrop.errors import NodropError
from nodrop.shell import join

HEAD = "# Made by 'nodrop set', which changes it."
_HEAD = re.compile(r"# Made by 'nodrop .*")


def read(file: Path, line: re.Pattern[str]) -> list[re.Match[str]]:
    """Return the lines below the head, as a pattern takes them apart; none without a file.

    Raises:
        NodropError: it cannot be read, or has another line.
    """
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise sentence(file, error) from error
    head, *lines = text.splitlines() or [""]
    found = [line.fullmatch(one) for one in lines]
    if not _HEAD.fullmatch(head) or None in found:
        raise NodropError(f"{file} is not as nodrop writes it.", "Edit it by hand, or remove it.")
    return [match for match in found if match]


def command(file: Path, lines: list[str]) -> str:
    """Return what :func:`write` does, as a command line."""
    if not lines:
        return join("rm", str(file))
    printed = join("printf", "%s\\n", HEAD, *lines)
    return f"{printed} > {join(str(file))}"


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keep other commands of nodrop from changing the file for the block.

    Raises:
        NodropError: the right is missing.
    """
    folder = file.parent
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
        lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise sentence(file, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def write(file: Path, lines: list[str]) -> None:
    """Make a file with a head and lines; without lines remove it.

    Raises:
        NodropError: the right is missing; the file is what it was.
    """
    try:
        if lines:
            replace(file, "".join(f"{line}\n" for line in (HEAD, *lines)).encode())
        else:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise sentence(file, error) from error


def replace(file: Path, content: bytes) -> None:
    """Give a file other contents; a crash leaves the old or the new ones, and nothing beside.

    Raises:
        OSError: it cannot be written.
    """
    # Prometheus' collector takes what ends in .prom.
    number, new = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".tmp", dir=file.parent)
    try:
        with os.fdopen(number, "wb") as made:
            made.write(content)
            made.flush()
            os.fchmod(number, 0o644)
            os.fsync(number)
        Path(new).replace(file)
    except BaseException:
        with suppress(OSError):
            Path(new).unlink()
        raise


def sentence(path: Path, error: OSError) -> NodropError:
    """Return the error that tells a user why a file cannot be read or changed."""
    if isinstance(error, PermissionError):
        return NodropError(f"Only root can change {path}.", "Run this as root, or try --dry-run.")
    return NodropError(f"{path} cannot be read or changed: {error.strerror}.")
