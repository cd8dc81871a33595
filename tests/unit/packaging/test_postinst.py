# SPDX-License-Identifier: GPL-2.0-only
"""The script that dpkg runs after nodrop-dkms was unpacked, with a DKMS that may fail."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from stubs import programs, write

from lab.kernel.artifacts import REPOSITORY

NOTED = 'echo "${0##*/} $*"'


@pytest.mark.parametrize(
    ("call", "dkms", "verify", "ran", "status"),
    [
        ("configure", 0, 0, ["verify 1", "settle in"], 0),
        ("configure", 0, 1, ["verify 1", "settle in"], 1),
        ("configure", 6, 1, ["verify 1"], 6),
        ("abort-upgrade", 0, 0, ["verify 1", "settle in"], 0),
        ("abort-remove", 6, 0, [], 0),
    ],
)
def test_postinst(
    tmp_path: Path, call: str, dkms: int, verify: int, ran: list[str], status: int
) -> None:
    """Modules that DKMS copied in part are removed; a failed upgrade builds again."""
    programs(tmp_path, {"verify": f"{NOTED}; exit {verify}", "settle": NOTED})
    text = (REPOSITORY / "debian/nodrop-dkms.postinst").read_text(encoding="utf-8")
    text = text.replace("/usr/src/nodrop-#VERSION#", str(tmp_path)).replace("#VERSION#", "1")
    text = text.replace("#DEBHELPER#", f'case "$1" in configure) (exit {dkms}) ;; esac')
    script = write(tmp_path / "postinst", text)
    done = subprocess.run(["sh", script, call, "2"], capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.returncode) == (ran, status)
