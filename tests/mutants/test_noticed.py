# SPDX-License-Identifier: GPL-2.0-only
"""Break the kernel code on purpose, one place at a time: some test must notice.

A test that fails with a mutant and passes without it has noticed it. Which ones did is in the
results as JUnit's XML. Takes half a minute for each mutant.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest
from mutant import Mutant
from mutants_core import CORE
from mutants_events import EVENTS
from mutants_front import FRONT
from mutants_tap import TAP

from nodrop import lab
from nodrop.errors import NodropError
from nodrop.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from nodrop.kernel.build import make
from nodrop.lab.selftests import find_kunit, find_selftests, run_kunit, run_selftest
from nodrop.progress import Progress

ROOT = Path(__file__).resolve().parents[2]
BUILD_TIMEOUT_S = 300.0
ROW_TIMEOUT_S = 330.0
"""For a guest with a row of the sweep; what does not come is waited for for a minute."""
SWEEP = """
import sys
from nodrop.guest.sweep import run
from nodrop.guest.sweep.__main__ import main
run.SHRINK_S = 0.0
sys.exit(main(sys.argv[1:]))
"""
"""A row that fails is not tried again, plainer."""


def build(mutant: Mutant, kernel: Kernel, artifacts: Artifacts, folder: Path) -> Artifacts:
    """Build the modules with one mutant; the other artifacts are the real ones.

    Raises:
        NodropError: it does not compile.
    """
    sources, modules = folder / "kmod", folder / "modules"
    shutil.copytree(ROOT / "kmod", sources)
    path = sources / mutant.file
    text = path.read_text(encoding="utf-8")
    for old, new in ((mutant.old, mutant.new), *mutant.wider):
        assert text.count(old) == 1, f"its text is not in kmod/{mutant.file} once"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    # A mutant may leave something unused.
    kbuild = sources / "Kbuild"
    relaxed = re.sub(r"-Werror=\S+", "", kbuild.read_text(encoding="utf-8"))
    kbuild.write_text(relaxed, encoding="utf-8")
    shutil.copytree(artifacts.modules, modules)
    target = [f"KSRC={kernel.source}", f"KOBJ={kernel.objtree}", "ARCH=um"]
    make(
        ["-C", str(sources), *target, f"OUT={modules / 'nodrop'}"],
        what="The mutant",
        scratch=folder,
        timeout=BUILD_TIMEOUT_S,
    )
    return replace(artifacts, modules=modules)


@dataclass(frozen=True)
class Tests:
    """The tests that may notice a mutant, on one kernel.

    Attributes:
        whole: the artifacts without a mutant. What fails with them notices nothing.
    """

    __test__ = False
    kernel: Kernel
    whole: Artifacts
    _control: dict[str, list[str]] = field(default_factory=dict)

    def noticing(self, mutant: Mutant, artifacts: Artifacts, folder: Path) -> list[str]:
        """Return the names of the tests that fail, with what they say when it is no case.

        The driver's tests run only when the core's have noticed nothing: they take longer.
        """
        found = []
        for module in () if mutant.program or mutant.row else find_kunit(artifacts):
            found += self._fresh(module.name, artifacts, folder / module.stem)
        for program in find_selftests(ROOT / "tests/selftests"):
            if found or mutant.row:
                break
            if mutant.program in ("", program.name):
                found += self._fresh(program.name, artifacts, folder / program.name)
        if mutant.row:
            found += self._fresh(mutant.row, artifacts, folder / "sweep")
        return found

    def _fresh(self, name: str, artifacts: Artifacts, folder: Path) -> list[str]:
        """Return what fails with a mutant and not without."""
        found = self._failing(name, artifacts, folder)
        if found and name not in self._control:
            self._control[name] = self._failing(name, self.whole, folder / "whole")
        return [words for words in found if words not in self._control[name]]

    def _failing(self, name: str, artifacts: Artifacts, folder: Path) -> list[str]:
        """Return what fails in one guest: cases of a program or a KUnit module, a sweep's row."""
        try:
            if "=" in name:
                return self._failing_row(name, artifacts, folder)
            if name.endswith(".ko"):
                module = next(path for path in find_kunit(artifacts) if path.name == name)
                report = run_kunit(self.kernel, artifacts, module, folder)
            else:
                program = ROOT / "tests/selftests" / name
                report = run_selftest(self.kernel, artifacts, program, folder)
        except NodropError as error:
            return [f"{name}: {str(error).splitlines()[0]}"]
        return [f"{report.name}: {text}" for text in (*report.failed, *report.complaints)]

    def _failing_row(self, row: str, artifacts: Artifacts, folder: Path) -> list[str]:
        result = lab.run(
            self.kernel,
            [sys.executable, "-c", SWEEP, "--driver", "nodrop", "--row", row],
            out=folder,
            artifacts=artifacts,
            timeout=ROW_TIMEOUT_S,
            env={"PYTHONPATH": str(ROOT)},
        )
        return [row] if result.status or result.splats else []


@cache
def on(flavour: str) -> Tests:
    with Progress() as progress:
        kernel = ensure_kernel(progress, flavour)
        return Tests(kernel, ensure_artifacts(kernel, progress))


@pytest.mark.parametrize("mutant", [*CORE, *FRONT, *EVENTS, *TAP], ids=lambda mutant: mutant.name)
def test_is_noticed(
    mutant: Mutant, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    tests = on("debug" if mutant in TAP or mutant.row else "perf")
    broken = build(mutant, tests.kernel, tests.whole, tmp_path)
    found = tests.noticing(mutant, broken, tmp_path)
    for words in found:
        record_property("noticed_by", words.splitlines()[0])
    assert found
