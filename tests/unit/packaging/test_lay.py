# SPDX-License-Identifier: GPL-2.0-only
"""``packaging/lay`` installs complete directories."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lab.kernel.artifacts import REPOSITORY

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


def test_installed_command_is_complete(tmp_path: Path) -> None:
    folder, start = tmp_path / "share", tmp_path / "bin/nodrop"
    subprocess.run([REPOSITORY / "packaging/lay", "command", folder, start], check=True, timeout=60)
    subprocess.run([sys.executable, "-I", "-c", IMPORTS, folder], check=True, timeout=60)
    listed = subprocess.run([start, "--help"], check=True, capture_output=True, timeout=60)
    assert b"status" in listed.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["kmod", "nodrop", "packaging"]
