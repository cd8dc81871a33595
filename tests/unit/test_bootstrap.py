# SPDX-License-Identifier: GPL-2.0-only
"""scripts/bootstrap on machines that lack something, made of a PATH with few programs."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ALWAYS_THERE = (
    "bash",
    "cat",
    "cmp",
    "dirname",
    "flock",
    "grep",
    "mktemp",
    "rm",
    "sed",
    "tail",
    "timeout",
)
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


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    place = tmp_path / "bin"
    place.mkdir()
    for name in ALWAYS_THERE:
        found = shutil.which(name)
        assert found, name
        (place / name).symlink_to(found)
    return place


def fake(programs: Path, name: str, script: str) -> None:
    path = programs / name
    path.write_text(f"#!{programs}/bash\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def bootstrap(clone: Path, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(clone / "scripts/bootstrap")],
        env={"PATH": path, **NO_INDEX},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_ordinary_user_is_told_the_exact_command(clone: Path, programs: Path) -> None:
    fake(programs, "id", "echo 1000")
    fake(programs, "apt-get", "echo called >&2; exit 9")
    result = bootstrap(clone, str(programs))
    assert result.returncode == 1
    assert "Install them as root, then run this again: apt-get install gcc" in result.stderr
    assert "called" not in result.stderr
    assert not (clone / ".venv").exists()


def test_apt_that_fails_is_told_with_its_words(clone: Path, programs: Path) -> None:
    fake(programs, "id", "echo 0")
    fake(programs, "apt-get", "echo E: no mirror today; exit 100")
    result = bootstrap(clone, str(programs))
    assert result.returncode == 1
    assert "E: no mirror today" in result.stderr
    assert "apt could not install: gcc" in result.stderr


def test_lists_are_fetched_only_when_needed(clone: Path, programs: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    fake(programs, "id", "echo 0")
    fake(programs, "apt-get", f'echo "$1" >>{calls}')
    fake(programs, "python3", "exit 1")
    bootstrap(clone, str(programs))
    assert calls.read_text(encoding="utf-8").split() == ["install"]


def test_machine_without_apt(clone: Path, programs: Path) -> None:
    result = bootstrap(clone, str(programs))
    assert result.returncode == 1
    assert "this machine has no apt" in result.stderr


def test_index_that_cannot_be_reached_leaves_no_environment(clone: Path) -> None:
    found = shutil.which("gcc")
    assert found
    result = subprocess.run(
        ["bash", str(clone / "scripts/bootstrap")],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **NO_INDEX},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 1
    assert "check that its package index can be reached" in result.stderr
    assert not (clone / ".venv").exists()


def test_nothing_to_do_is_quick(clone: Path) -> None:
    script = (clone / "scripts/bootstrap").read_text(encoding="utf-8")
    wanted = script[script.index("wanted() {") : script.index("mapfile -t missing")]
    stamp = subprocess.run(
        ["bash", "-c", f"{wanted}\nwanted"], cwd=clone, capture_output=True, timeout=10, check=True
    )
    (clone / ".venv").mkdir()
    (clone / ".venv/.complete").write_bytes(stamp.stdout)
    (clone / ".venv/mark").touch()
    started = time.monotonic()
    result = bootstrap(clone, "/usr/sbin:/usr/bin:/sbin:/bin")
    assert time.monotonic() - started < 30
    assert result.returncode == 0, result.stderr
    assert (clone / ".venv/mark").exists()


def test_changed_pins_make_the_environment_again(clone: Path) -> None:
    (clone / ".venv").mkdir()
    (clone / ".venv/.complete").write_text("other pins\n", encoding="utf-8")
    result = bootstrap(clone, "/usr/sbin:/usr/bin:/sbin:/bin")
    assert "Making the virtual environment" in result.stderr


@pytest.mark.parametrize("name", ["packages.txt", "packages-kernels.txt"])
def test_every_package_has_its_sign_and_reason(name: str) -> None:
    text = (REPOSITORY / "scripts" / name).read_text(encoding="utf-8")
    rows = [line.split(maxsplit=2) for line in text.splitlines() if line and line[0] != "#"]
    assert len(rows) >= 10
    assert all(len(row) == 3 for row in rows)
