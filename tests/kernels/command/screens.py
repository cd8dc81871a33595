# SPDX-License-Identifier: GPL-2.0-only
"""Runs the command on a terminal of some width and collects what it shows."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time

from asked import Said, environment, tidy, words
from harness import check

from nodrop.guest.slow import patience

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


def on_terminal(*arguments: str, columns: int = 80, rows: int = 24) -> Said:
    """Run the command on a terminal; ``out`` is what it shows, without colours."""
    ours, theirs = os.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        env = environment({"TERM": "xterm"})
        env.pop("COLUMNS", None)
        process = subprocess.Popen(
            words(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd="/"
        )
        os.close(theirs)
        theirs = -1
        said = Said(0, _CODES.sub("", _all(ours, process)), "")
        said = Said(process.wait(), said.out, "")
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    tidy(said, f"nodrop {' '.join(arguments)}")
    return said


def _all(terminal: int, process: subprocess.Popen[bytes]) -> str:
    """What comes until the last process has closed the terminal."""
    data = b""
    deadline = time.monotonic() + patience(30)
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                new = os.read(terminal, 65536)
            except OSError:  # EIO: it is closed
                new = b""
            if not new:
                break
            data += new
    else:
        process.kill()
        process.wait()
        check(False, f"it does not end: {data[-500:]!r}")
    return data.decode()


def fits(said: Said, columns: int, begin: tuple[str, ...]) -> None:
    """Fail when a line of a table is longer than the terminal is wide: it would be wrapped.

    Args:
        begin: what its lines begin with.
    """
    table = [line for line in said.out.split("\n") if line.strip().startswith(begin)]
    check(len(table) > 1, f"there is no table: {said.out}")
    long = [line for line in table if len(line) > columns]
    check(not long, f"longer than {columns}: {long}")
