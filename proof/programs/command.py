# SPDX-License-Identifier: GPL-2.0-only
"""Run the command in a guest: in this process, which is fast, or in one of its own."""

from __future__ import annotations

import ctypes
import io
import json
import os
import subprocess
import sys
from collections.abc import Collection
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import check

from guestlib.timing import time_limit
from nodrop import cli

REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = 65534
FINE = (0, 3)
"""Exit statuses of commands that only read; 3: doctor has findings."""
_PR_SET_DUMPABLE = 4
_MOST_FILES = 1024
# Other threads send and read meanwhile. With the default of 5 ms each system call of the command
# would wait for them so long.
sys.setswitchinterval(0.0002)


@dataclass(frozen=True)
class Ran:
    """Exit status and output of a run of the command."""

    status: int
    stdout: str
    stderr: str


def command(*words: str, status: int | Collection[int] = 0, user: int = 0) -> Ran:
    """Run ``nodrop WORDS``; fail unless its exit status is the expected one, or one of several.

    Args:
        user: the uid to run as, in a child process.
    """
    ran = _as_another(words, user) if user else _here(words)
    wanted = (status,) if isinstance(status, int) else status
    text = ran.stdout + ran.stderr
    check("Traceback" not in text and ran.status in wanted, f"nodrop {words}: {ran.status}: {text}")
    return ran


def _here(words: tuple[str, ...]) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = cli.main(words)
    return Ran(status, out.getvalue(), err.getvalue())


def _as_another(words: tuple[str, ...], user: int) -> Ran:
    """Run it in a child as another user, as if that user had started it."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            # Close the descriptors of this program.
            os.closerange(3, write_end)
            os.closerange(write_end + 1, _MOST_FILES)
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            # Otherwise its files in /proc belong to root.
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
            ran = _here(words)
            text = json.dumps([ran.status, ran.stdout, ran.stderr])
        except BaseException as error:
            text = json.dumps([-1, "", f"Traceback: {error!r}"])
        with os.fdopen(write_end, "w") as pipe:
            pipe.write(text)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        found = json.load(pipe)
    os.waitpid(child, 0)
    return Ran(*found)


def as_json(*words: str, status: int | Collection[int] = 0, user: int = 0) -> dict[str, Any]:
    """Run ``nodrop -j WORDS`` and return the JSON object that it prints."""
    found = json.loads(command("-j", *words, status=status, user=user).stdout)
    assert isinstance(found, dict), found
    return found


def start(*words: str, by: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start ``nodrop WORDS`` in a process of its own.

    Args:
        by: a program that runs it, with its options.
    """
    return subprocess.Popen(
        [*by, sys.executable, "-m", "nodrop", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )


def ended(process: subprocess.Popen[str], *statuses: int) -> tuple[str, str]:
    """Wait for a process; fail unless its status is one of these; return stdout and stderr."""
    out, err = process.communicate(timeout=time_limit(60))
    fine = "Traceback" not in err and process.returncode in statuses
    check(fine, f"{process.returncode}: {err}")
    return out, err
