# SPDX-License-Identifier: GPL-2.0-only
"""Mutation tests: with each mutant of proof/mutants.toml, the test that it names must fail.

The modules are built once. A mutant rebuilds what depends on its file, runs its test, and is
reverted. The test must pass without the mutant.
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import pytest

from lab import uml
from lab.guest import BootTimeout, DiedAtBoot
from lab.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from lab.kernel.kbuild import make
from nodrop.errors import NodropError
from nodrop.progress import Progress
from proof.selftests import PROGRAMS, Report, find_kunit, run_kunit, run_selftest

ROOT = Path(__file__).resolve().parents[2]
BUILD_TIMEOUT_S = 300.0
TIMEOUT_S, MUTANT_S = 330.0, 150.0
"""Timeouts of a guest with the original modules, and with a mutant."""
KUNIT = "KUnit"
SWEEP = """
import sys
from proof.sweep import __main__ as sweep
sweep.SHRINK_S = 0.0
sys.exit(sweep.main(sys.argv[1:]))
"""
"""Failing rows are not shrunk."""


class Mutant(NamedTuple):
    """One change to the modules.

    Attributes:
        file: relative to kmod/.
        name: the fault.
        old: text that occurs exactly once in the file.
        new: its replacement.
        caught_by: KUNIT, a program of proof/programs or ``PROGRAM::CASE``, or a row of the sweep.
    """

    file: str
    name: str
    old: str
    new: str
    caught_by: str = KUNIT


_TABLE = tomllib.loads((ROOT / "proof/mutants.toml").read_text(encoding="utf-8"))
MUTANTS = tuple(Mutant(file, **row) for file, rows in _TABLE.items() for row in rows)


@dataclass
class BuildTree:
    kernel: Kernel
    artifacts: Artifacts
    folder: Path
    why: str = ""
    """Why the last test failed."""
    _unmodified: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("kmod", "dkms"):
            shutil.copytree(ROOT / name, self.folder / name)
        # A mutant may leave functions unused.
        kbuild = self.folder / "kmod/Kbuild"
        kbuild.write_text(re.sub(r"-Werror=\S+", "", kbuild.read_text(encoding="utf-8")))
        modules = self.folder / "modules"
        shutil.copytree(self.artifacts.modules, modules)
        self._out = modules / "nodrop"
        where = [f"KSRC={self.kernel.source}", f"KOBJ={self.kernel.objtree}"]
        self._make("-C", str(self.folder / "kmod"), *where, f"OUT={self._out}")
        self.artifacts = replace(self.artifacts, modules=modules)

    def _make(self, *words: str) -> None:
        make([*words, "ARCH=um"], what="A mutant", scratch=self.folder, timeout=BUILD_TIMEOUT_S)

    def build(self) -> None:
        """Rebuild the modules.

        Raises:
            NodropError: they do not compile.
        """
        build = self._out / "build"
        self._make("--no-print-directory", "-C", str(self.kernel.objtree), f"M={build}", "modules")
        for module in build.glob("*.ko"):
            shutil.copy(module, self._out)

    @contextmanager
    def broken(self, mutant: Mutant) -> Iterator[None]:
        path = self._out / "build" / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(mutated(mutant, text), encoding="utf-8")
        try:
            self.build()
            yield
        finally:
            path.write_text(text, encoding="utf-8")

    def passes(self, name: str, wait_s: float, least_s: int = 60) -> bool:
        """Return whether a test passes with the current modules.

        Args:
            name: as Mutant.caught_by.
            wait_s: timeout of the guest.
            least_s: LAB_LEAST_S: the shortest bound of a wait in it.
        """
        out = self.folder / "out"
        env = {"PYTHONPATH": str(ROOT), "LAB_LEAST_S": str(least_s)}
        common = (self.kernel, self.artifacts)
        try:
            if "=" in name:
                argv = [sys.executable, "-c", SWEEP, "--driver", "nodrop", "--row", name]
                row = uml.run(
                    self.kernel, argv, out=out, artifacts=self.artifacts, timeout=wait_s, env=env
                )
                self.why = row.log
                return row.status == 0 and not row.splats
            if name == KUNIT:
                tests = find_kunit(self.artifacts)
                return all(self._ok(run_kunit(*common, module, out, wait_s)) for module in tests)
            program, *cases = name.split("::")
            return self._ok(
                run_selftest(*common, PROGRAMS / program, out, cases=cases, env=env, timeout=wait_s)
            )
        except (DiedAtBoot, BootTimeout):
            raise  # not due to the mutant
        except NodropError as error:
            self.why = str(error)
            return False  # the guest died or timed out

    def _ok(self, report: Report) -> bool:
        failed = [f"{name}: {case.reason}" for name, case in report.cases if name in report.failed]
        self.why = "\n".join([*failed, *report.complaints])
        return report.ok

    def passes_unmodified(self, name: str) -> bool:
        """Return whether a test passes with the original modules; run each test once."""
        if name not in self._unmodified:
            self.build()
            self._unmodified[name] = self.passes(name, TIMEOUT_S)
        return self._unmodified[name]


def mutated(mutant: Mutant, text: str) -> str:
    assert text.count(mutant.old) == 1, f"{mutant.old!r} is not in kmod/{mutant.file} once"
    return text.replace(mutant.old, mutant.new)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildTree]:
    folder = tmp_path_factory.mktemp("mutants")
    with Progress() as progress:
        kernel = ensure_kernel(progress, "debug")
        artifacts = ensure_artifacts(kernel, progress)
    yield BuildTree(kernel, artifacts, folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.name}")
def test_is_caught(mutant: Mutant, tree: BuildTree) -> None:
    with tree.broken(mutant):
        assert not tree.passes(mutant.caught_by, MUTANT_S, 15), (
            f"{mutant.caught_by} does not catch it"
        )
    assert tree.passes_unmodified(mutant.caught_by), (
        f"{mutant.caught_by} fails without it: {tree.why}"
    )
