# SPDX-License-Identifier: GPL-2.0-only
"""Runs the command in a guest as people do, and checks how it behaves at its ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from nodrop.guest.slow import patience

REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = 65534


def command(
    *words: str,
    status: int = 0,
    user: int = 0,
    env: dict[str, str] | None = None,
    by: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run ``nodrop WORDS``; it must end with that exit status and show no traceback.

    Args:
        user: the number of the user who runs it.
        by: a program, and its options, that runs it.
    """
    done = subprocess.run(
        [*by, sys.executable, "-m", "nodrop", *words],
        capture_output=True,
        text=True,
        timeout=patience(30),
        check=False,
        user=user,
        extra_groups=[] if user else None,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})},
    )
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    assert done.returncode == status, f"nodrop {' '.join(words)}: {done.returncode}: {said}"
    return done


def answer(*words: str, status: int = 0, user: int = 0) -> dict[str, Any]:
    """Run ``nodrop -j WORDS`` and return the object that it prints."""
    found = json.loads(command("-j", *words, status=status, user=user).stdout)
    assert isinstance(found, dict), found
    return found
