# SPDX-License-Identifier: GPL-2.0-only
"""User-Mode Linux's IPIs, masked by a flag: delivered as by the host's kernel (ipimask.c)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nodrop.errors import NodropError
from nodrop.kernel import ipimask, kconfig

PROGRAM = Path(__file__).with_name("ipimask.c")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("ipimask") / "program"
    flags = ["-std=gnu2x", "-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread"]
    subprocess.run(["gcc", *flags, "-o", str(built), str(PROGRAM)], check=True, timeout=60)
    return built


def run(argv: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(
        argv, env=os.environ | env, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


def test_the_programs_expectations_are_those_of_the_hosts_kernel(program: Path) -> None:
    assert run([str(program)], {}) == "ok\n"


def test_masked_by_a_flag_all_is_the_same(program: Path) -> None:
    library = ipimask.ensure_ipimask("gcc")
    assert run([str(program), "lazy"], {"LD_PRELOAD": str(library)}) == "ok\n"


def test_what_does_not_build_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("this is no C\n", encoding="utf-8")
    monkeypatch.setattr(ipimask, "SOURCE", broken)
    with pytest.raises(NodropError, match=r"broken\.c failed to build"):
        ipimask.ensure_ipimask("gcc")


def test_measured_figures_are_without_it() -> None:
    assert "perf" not in kconfig.IPIMASK
