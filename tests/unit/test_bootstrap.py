# SPDX-License-Identifier: GPL-2.0-only
"""scripts/bootstrap on machines that lack something, made of a PATH with few programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from stubs import Done, programs, write

REPOSITORY = Path(__file__).parents[2]
USUAL = "/usr/sbin:/usr/bin:/sbin:/bin"
ALWAYS_THERE = "bash cat cmp dirname flock grep mktemp rm sed tail timeout"
NO_INDEX = {
    "PIP_INDEX_URL": "http://127.0.0.1:9/",
    "PIP_RETRIES": "0",
    "PIP_CONFIG_FILE": "/dev/null",
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    place = tmp_path / "clone"
    shutil.copytree(REPOSITORY / "scripts", place / "scripts")
    shutil.copy(REPOSITORY / "pyproject.toml", place)
    return place


def bootstrap(clone: Path, path: Path | str = USUAL) -> Done:
    script = ["bash", str(clone / "scripts/bootstrap")]
    env = {"PATH": str(path), **NO_INDEX}
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
def test_packages_that_are_missing(
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
    assert done.returncode == 1
    assert apt == "exit 0" or "gcc" in done.stderr
    assert called.read_text().split() == calls
    assert not (clone / ".venv").exists()


def test_index_that_cannot_be_reached_leaves_no_environment(clone: Path) -> None:
    assert bootstrap(clone).returncode == 1
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize("current", [True, False])
def test_the_environment_is_made_again_when_pins_changed(clone: Path, current: bool) -> None:
    text = (clone / "scripts/bootstrap").read_text(encoding="utf-8")
    wanted = text[text.index("wanted() {") : text.index("mapfile -t missing")]
    argv = ["bash", "-c", f"{wanted}\nwanted"]
    stamp = subprocess.run(argv, cwd=clone, capture_output=True, timeout=60, check=True).stdout
    write(clone / ".venv/.complete", stamp if current else b"other pins\n")
    mark = write(clone / ".venv/mark")
    assert bootstrap(clone).returncode == (0 if current else 1)
    assert mark.exists() is current
