# SPDX-License-Identifier: GPL-2.0-only
"""Run the command in a guest: in this process, which is fast, or in one of its own."""

from __future__ import annotations

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

from guestlib.environment import time_limit
from guestlib.process import as_user
from nodrop import cli

REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = 65534
FINE = (0, 3)
"""Exit statuses of commands that only read; 3: doctor has findings."""
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
        user: the uid to run as, in a process of its own.
    """
    if user:
        process = start(*words, user=user)
        out, err = process.communicate(timeout=time_limit(60))
        ran = Ran(process.returncode, out, err)
    else:
        ran = _here(words)
    wanted = (status,) if isinstance(status, int) else status
    text = ran.stdout + ran.stderr
    check("Traceback" not in text and ran.status in wanted, f"nodrop {words}: {ran.status}: {text}")
    return ran


def _here(words: tuple[str, ...]) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = cli.main(words)
    return Ran(status, out.getvalue(), err.getvalue())


def as_json(*words: str, status: int | Collection[int] = 0, user: int = 0) -> dict[str, Any]:
    """Run ``nodrop -j WORDS`` and return the JSON object that it prints."""
    found = json.loads(command("-j", *words, status=status, user=user).stdout)
    assert isinstance(found, dict), found
    return found


def start(*words: str, by: tuple[str, ...] = (), user: int = 0) -> subprocess.Popen[str]:
    """Start ``nodrop WORDS`` in a process of its own.

    Args:
        by: a program that runs it, with its options.
        user: the uid and gid to run as.
    """
    return subprocess.Popen(
        [*by, sys.executable, "-m", "nodrop", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        **as_user(user),
    )


def ended(process: subprocess.Popen[str], *statuses: int) -> tuple[str, str]:
    """Wait for a process; fail unless its status is one of these; return stdout and stderr."""
    out, err = process.communicate(timeout=time_limit(60))
    fine = "Traceback" not in err and process.returncode in statuses
    check(fine, f"{process.returncode}: {err}")
    return out, err
