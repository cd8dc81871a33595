# SPDX-License-Identifier: GPL-2.0-only
"""Files below /etc that only nodrop writes, atomically."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from nodrop.errors import NodropError
from nodrop.shell import join

HEAD = "# Made by 'nodrop set', which changes it."
_HEAD = re.compile(r"# Made by 'nodrop .*")


def read(file: Path, line: re.Pattern[str]) -> list[re.Match[str]]:
    """Return the matches of the lines below the head; none if there is no file.

    Raises:
        NodropError: the file cannot be read, or a line does not match.
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
        raise NodropError(f"{file} has lines that nodrop did not write.", "Edit or remove it.")
    return [match for match in found if match]


def command(file: Path, lines: list[str]) -> str:
    """Return the shell command that does the same as :func:`write`."""
    if not lines:
        return join("rm", str(file))
    printed = join("printf", "%s\\n", HEAD, *lines)
    return f"{printed} > {join(str(file))}"


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Lock the file against other nodrop commands.

    Raises:
        NodropError: permission is missing, or the file system has no locks.
    """
    folder = file.parent
    with ExitStack() as stack:
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o755)
            lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise sentence(file, error) from error
        yield


def write(file: Path, lines: list[str]) -> None:
    """Replace the file by a head and lines; without lines, remove it.

    Raises:
        NodropError: permission is missing; the file is unchanged.
    """
    try:
        if lines:
            replace(file, "".join(f"{line}\n" for line in (HEAD, *lines)).encode())
        else:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise sentence(file, error) from error


def replace(file: Path, content: bytes) -> None:
    """Replace a file's content atomically; a failure leaves no temporary file.

    Raises:
        OSError: it cannot be written.
    """
    # The name must not end in .prom: Prometheus' collector would read the temporary file.
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
    """Return the error for a file that cannot be read or changed."""
    if isinstance(error, PermissionError):
        return NodropError(f"Only root can change {path}.", "Run this as root, or try --dry-run.")
    return NodropError(f"{path} cannot be read or changed: {error.strerror}.")
