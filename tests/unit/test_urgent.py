# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodrop.lab import sandbox

ASK = """
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
import sandbox
sandbox.be_urgent()
group = pathlib.Path("/proc/self/autogroup")
print(os.getpriority(os.PRIO_PROCESS, 0), group.read_text() if group.exists() else "none")
"""


def ask() -> str:
    """What a session of its own gets; without the right to, that is nothing, silently."""
    return subprocess.run(
        [sys.executable, "-c", ASK, str(Path(sandbox.__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        start_new_session=True,
    ).stdout


def test_urgency_is_asked_for_and_never_insisted_on() -> None:
    niceness = int(ask().split()[0])
    assert niceness in (os.getpriority(os.PRIO_PROCESS, 0), sandbox.URGENT_NICE)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_gets_it_for_the_whole_session() -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel does not schedule sessions as groups")
    assert f"nice {sandbox.URGENT_NICE}" in ask()
