# SPDX-License-Identifier: GPL-2.0-only
"""Break the kernel code on purpose, one place at a time, and see which tests notice.

``make mutants`` (or ``python tests/mutants.py [--record] [NAME ...]``) prints one line for each
mutant: the tests that fail with it, and that pass without. It ends with status 1 when one is not
noticed, or when its text is no longer found in the sources. Takes about a minute for each.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from mutant import Mutant
from mutants_core import CORE
from mutants_events import EVENTS
from mutants_front import FRONT
from mutants_tap import TAP

from nodrop.bench.source import digest
from nodrop.errors import NodropError
from nodrop.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from nodrop.lab.selftests import find_kunit, find_selftests, run_kunit, run_selftest
from nodrop.progress import Progress

ROOT = Path(__file__).resolve().parents[1]
BUILD_TIMEOUT_S = 300
RECORD = "--record"
RESULTS = ROOT / "results/mutants.jsonl"


def build(mutant: Mutant, kernel: Kernel, artifacts: Artifacts, folder: Path) -> Artifacts:
    """Build the modules with one mutant; the other artifacts are the real ones.

    Raises:
        NodropError: the mutant's text is not there once, or it does not compile.
    """
    sources, modules = folder / "kmod", folder / "modules"
    shutil.copytree(ROOT / "kmod", sources)
    path = sources / mutant.file
    text = path.read_text(encoding="utf-8")
    for old, new in ((mutant.old, mutant.new), *mutant.wider):
        if text.count(old) != 1:
            raise NodropError(f"{mutant.name}: its text is not in kmod/{mutant.file} once")
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    # A mutant may leave something unused.
    kbuild = sources / "Kbuild"
    relaxed = re.sub(r"-Werror=\S+", "", kbuild.read_text(encoding="utf-8"))
    kbuild.write_text(relaxed, encoding="utf-8")
    shutil.copytree(artifacts.modules, modules)
    command = ["make", "-C", str(sources), f"KSRC={kernel.source}", f"KOBJ={kernel.objtree}"]
    command += [f"OUT={modules / 'nodrop'}", "ARCH=um"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise NodropError(f"{mutant.name}: does not compile: {done.stderr[-500:]}")
    return replace(artifacts, modules=modules)


@dataclass(frozen=True)
class Tests:
    """The tests that may notice a mutant, on one kernel.

    Attributes:
        whole: the artifacts without a mutant. What fails with them notices nothing.
    """

    kernel: Kernel
    whole: Artifacts
    _control: dict[str, list[str]] = field(default_factory=dict)

    def noticing(self, mutant: Mutant, artifacts: Artifacts, folder: Path) -> list[str]:
        """Return the names of the tests that fail, with what they say when it is no case.

        The driver's tests run only when the core's have noticed nothing: they take longer.
        """
        found = []
        for module in () if mutant.program else find_kunit(artifacts):
            found += self._fresh(module.name, artifacts, folder / module.stem)
        for program in find_selftests(ROOT / "tests/selftests"):
            if found:
                break
            if mutant.program in ("", program.name):
                found += self._fresh(program.name, artifacts, folder / program.name)
        return found

    def _fresh(self, name: str, artifacts: Artifacts, folder: Path) -> list[str]:
        """Return what fails with a mutant and not without."""
        found = self._failing(name, artifacts, folder)
        if found and name not in self._control:
            with tempfile.TemporaryDirectory(prefix="nodrop-control-") as control:
                self._control[name] = self._failing(name, self.whole, Path(control))
        return [words for words in found if words not in self._control[name]]

    def _failing(self, name: str, artifacts: Artifacts, folder: Path) -> list[str]:
        """Return what fails in one guest: a program's cases, or those of a module of the core's."""
        try:
            if name.endswith(".ko"):
                module = next(path for path in find_kunit(artifacts) if path.name == name)
                report = run_kunit(self.kernel, artifacts, module, folder)
            else:
                program = ROOT / "tests/selftests" / name
                report = run_selftest(self.kernel, artifacts, program, folder)
        except NodropError as error:
            return [f"{name}: {str(error).splitlines()[0]}"]
        return [f"{report.name}: {text}" for text in (*report.failed, *report.complaints)]


def main(argv: list[str]) -> int:
    """Run all mutants, or those whose name starts with one of the words given.

    Those of macvtap, whose names start with "tap", need another kernel and are run when asked for.
    With --record, a line of JSON for each is added to results/mutants.jsonl.
    """
    names = [word for word in argv if word != RECORD]
    record = RESULTS if RECORD in argv else None
    chosen = [m for m in (*CORE, *FRONT, *EVENTS) if not names or m.name.startswith(tuple(names))]
    taps = [m for m in TAP if m.name.startswith(tuple(names))]
    missed = run_all(chosen, "perf", record) if chosen else 0
    missed += run_all(taps, "debug", record) if taps else 0
    return 1 if missed else 0


def run_all(mutants: list[Mutant], flavour: str, record: Path | None) -> int:
    """Run mutants on a kernel; return how many nothing noticed."""
    missed = 0
    source = digest()
    with Progress() as progress:
        kernel = ensure_kernel(progress, flavour)
        artifacts = ensure_artifacts(kernel, progress)
    tests = Tests(kernel, artifacts)
    for mutant in mutants:
        with tempfile.TemporaryDirectory(prefix="nodrop-mutant-") as name:
            folder = Path(name)
            try:
                broken = build(mutant, kernel, artifacts, folder)
                found = tests.noticing(mutant, broken, folder)
            except NodropError as error:
                print(f"ERROR   {error}", flush=True)
                missed += 1
                continue
        missed += not found
        print("noticed" if found else "MISSED ", mutant.name, flush=True)
        cases = [*dict.fromkeys(name.splitlines()[0].partition("/ring of")[0] for name in found)]
        for case in cases:
            print(f"          {case[:110]}", flush=True)
        if record:
            line = {"mutant": mutant.name, "file": mutant.file, "source": source}
            with record.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({**line, "kernel": flavour, "noticed_by": cases}) + "\n")
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
