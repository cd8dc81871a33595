# SPDX-License-Identifier: GPL-2.0-only
"""scripts/bootstrap on incomplete machines, imitated by a PATH with few programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from stubs import Done, programs, write

REPOSITORY = Path(__file__).parents[3]
USUAL = "/usr/sbin:/usr/bin:/sbin:/bin"
ALWAYS_THERE = "bash cat cmp dirname flock grep mktemp rm sed tail timeout"
VENV = """
import os, sys, pathlib
if __name__ == "__main__":
    python = pathlib.Path(sys.argv[1], "bin/python")
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\\nexit " + os.environ["PIP"])
    python.chmod(0o755)
"""
"""Replaces Python's module: creates an environment whose pip ends with the status PIP."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    place = tmp_path / "clone"
    shutil.copytree(REPOSITORY / "scripts", place / "scripts")
    shutil.copy(REPOSITORY / "pyproject.toml", place)
    write(tmp_path / "modules/venv.py", VENV)
    return place


def bootstrap(clone: Path, path: Path | str, pip: int = 0) -> Done:
    script = ["bash", str(clone / "scripts/bootstrap")]
    env = {"PATH": str(path), "PYTHONPATH": str(clone.parent / "modules"), "PIP": str(pip)}
    return subprocess.run(script, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("user", "apt", "calls"),
    [
        (1000, "exit 9", []),
        (0, "exit 100", ["install", "update"]),
        (0, "exit 0", ["install"]),
        (0, "", []),  # no apt at all
    ],
)
def test_missing_packages(
    clone: Path, tmp_path: Path, user: int, apt: str, calls: list[str]
) -> None:
    place = tmp_path / "bin"
    programs(place, {"id": f"echo {user}", "python3": "exit 1"})
    for name in ALWAYS_THERE.split():
        found = shutil.which(name)
        assert found, name
        (place / name).symlink_to(found)

    called = write(tmp_path / "calls")
    if apt:
        programs(place, {"apt-get": f'echo "$1" >>{called}\n{apt}'})
    done = bootstrap(clone, place)
    installs = apt == "exit 0"
    assert done.returncode == (0 if installs else 1)
    assert installs or "gcc" in done.stderr
    assert called.read_text().split() == calls
    assert (clone / ".venv").exists() is installs


def test_environment_is_rebuilt_when_pins_change(clone: Path) -> None:
    programs(clone / "bin", {"apt-get": "exit 9"})
    path = f"{clone}/bin:{USUAL}"
    assert bootstrap(clone, path, pip=1).returncode == 1
    assert not (clone / ".venv").exists()
    mark = clone / ".venv/mark"
    for pins, kept in (("", False), ("", True), ("other==1\n", False)):
        with (clone / "scripts/requirements.txt").open("a") as requirements:
            requirements.write(pins)
        assert bootstrap(clone, path).returncode == 0
        assert mark.exists() is kept
        mark.touch()
