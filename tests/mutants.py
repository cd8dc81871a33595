# SPDX-License-Identifier: GPL-2.0-only
"""Break the kernel code on purpose, one place at a time, and see which tests notice.

``make mutants`` (or ``python tests/mutants.py [NAME ...]``) prints one line for each
mutant: the tests that fail with it. It ends with status 1 when one is not noticed, or
when its text is no longer found in the sources. Takes about a minute for each.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from mutant import Mutant
from mutants_core import CORE
from mutants_events import EVENTS
from mutants_front import FRONT
from mutants_tap import TAP

from nodrop.errors import NodropError
from nodrop.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from nodrop.lab.selftests import find_kunit, find_selftests, run_kunit, run_selftest
from nodrop.progress import Progress

ROOT = Path(__file__).resolve().parents[1]
BUILD_TIMEOUT_S = 300


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


def noticed(mutant: Mutant, kernel: Kernel, artifacts: Artifacts, folder: Path) -> list[str]:
    """Return the names of the tests that fail, with what they say when it is no case.

    The driver's tests run only when the core's have noticed nothing: they take longer.
    """
    found = []
    for module in () if mutant.program else find_kunit(artifacts):
        try:
            report = run_kunit(kernel, artifacts, module, folder / module.stem)
            found += [f"{report.name}: {text}" for text in (*report.failed, *report.complaints)]
        except NodropError as error:
            found.append(f"{module.name}: {str(error).splitlines()[0]}")
    for program in find_selftests(ROOT / "tests/selftests"):
        if found:
            break
        if mutant.program not in ("", program.name):
            continue
        try:
            report = run_selftest(kernel, artifacts, program, folder / program.name)
            found += [f"{report.name}: {text}" for text in (*report.failed, *report.complaints)]
        except NodropError as error:
            found.append(f"{program.name}: {str(error).splitlines()[0]}")
    return found


def main(names: list[str]) -> int:
    """Run all mutants, or those whose name starts with one of the words given.

    Those of macvtap, whose names start with "tap", need another kernel and are run when asked for.
    """
    chosen = [m for m in (*CORE, *FRONT, *EVENTS) if not names or m.name.startswith(tuple(names))]
    taps = [m for m in TAP if m.name.startswith(tuple(names))]
    missed = run_all(chosen, "perf") if chosen else 0
    missed += run_all(taps, "tap") if taps else 0
    return 1 if missed else 0


def run_all(mutants: list[Mutant], flavour: str) -> int:
    """Run mutants on a kernel; return how many nothing noticed."""
    missed = 0
    with Progress() as progress:
        kernel = ensure_kernel(progress, flavour)
        artifacts = ensure_artifacts(kernel, progress)
    for mutant in mutants:
        with tempfile.TemporaryDirectory(prefix="nodrop-mutant-") as name:
            folder = Path(name)
            try:
                tests = noticed(mutant, kernel, build(mutant, kernel, artifacts, folder), folder)
            except NodropError as error:
                print(f"ERROR   {error}", flush=True)
                missed += 1
                continue
        missed += not tests
        print("noticed" if tests else "MISSED ", mutant.name, flush=True)
        cases = dict.fromkeys(test.splitlines()[0].partition("/ring of")[0] for test in tests)
        for case in cases:
            print(f"          {case[:110]}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
