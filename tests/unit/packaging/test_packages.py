# SPDX-License-Identifier: GPL-2.0-only
"""What the packages contain, and the script that dpkg runs after nodrop-dkms was unpacked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from stubs import programs, write

from lab.sources import REPOSITORY

IMPORTS = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import nodrop
assert list(nodrop.__path__) == [sys.argv[1] + "/nodrop"]
for module in pkgutil.walk_packages(nodrop.__path__, "nodrop."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
found = {name.split(".")[0] for name in sys.modules}
assert not found & {"bench", "lab", "matplotlib", "proof"}, found
"""


LAY = REPOSITORY / "packaging/lay"


def test_installed_command_is_complete(tmp_path: Path) -> None:
    folder, start = tmp_path / "share", tmp_path / "bin/nodrop"
    subprocess.run([LAY, "command", folder, start], check=True, timeout=60)
    subprocess.run([sys.executable, "-I", "-c", IMPORTS, folder], check=True, timeout=60)
    listed = subprocess.run([start, "--help"], check=True, capture_output=True, timeout=60)
    assert b"status" in listed.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["dkms", "kmod", "nodrop"]


def test_sources_for_dkms_are_complete(tmp_path: Path) -> None:
    subprocess.run([LAY, "modules", tmp_path], check=True, timeout=60)
    needed = "import sys; sys.path.insert(0, sys.argv[1]); import nodrop.host.modules"
    subprocess.run([sys.executable, "-IB", "-c", needed, tmp_path], check=True, timeout=60)
    assert "#MODULE_VERSION#" not in (tmp_path / "dkms.conf").read_text()
    assert not (tmp_path / "kmod/flow/test").exists()


NOTED = 'echo "${0##*/} $*"'


@pytest.mark.parametrize(
    ("call", "dkms", "finish", "ran", "status"),
    [
        ("configure", 0, 0, ["install finish"], 0),
        ("configure", 0, 1, ["install finish"], 1),
        ("configure", 6, 1, ["install check"], 6),
        ("abort-upgrade", 0, 0, ["install finish"], 0),
        ("abort-remove", 6, 0, [], 0),
    ],
)
def test_postinst(
    tmp_path: Path, call: str, dkms: int, finish: int, ran: list[str], status: int
) -> None:
    """Modules that DKMS copied in part are removed; a failed upgrade builds again."""
    programs(tmp_path / "dkms", {"install": f"{NOTED}; exit {finish}"})
    text = (REPOSITORY / "debian/nodrop-dkms.postinst").read_text(encoding="utf-8")
    text = text.replace("/usr/src/nodrop-#VERSION#", str(tmp_path)).replace("#VERSION#", "1")
    text = text.replace("#DEBHELPER#", f'case "$1" in configure) (exit {dkms}) ;; esac')
    script = write(tmp_path / "postinst", text)
    done = subprocess.run(["sh", script, call, "2"], capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.returncode) == (ran, status)
