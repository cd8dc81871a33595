# SPDX-License-Identifier: GPL-2.0-only
"""Run the programs of proof/programs and tests/compat, and the KUnit modules, in guests.

Each of their results is a subtest here. Programs share a few guests; those that did not end there
run again in guests of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from accounting import account
from sharing import PROGRAMS, guest_of

from guest.conftest import FLAVOUR
from lab.kernel import Artifacts, Kernel
from proof.selftests import Report, find_kunit, run_kunit, run_selftest, run_together


@pytest.fixture(scope="module")
def ran(
    kernel: Kernel,
    artifacts: Artifacts,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Path], Report]:
    """Return a function that returns a program's report; all programs of a guest run at once."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    chosen = [
        Path(str(item.callspec.params["program"]))
        for item in items
        if "program" in item.fixturenames
    ]
    reports: dict[Path, Report] = {}
    tried: set[int] = set()

    def get(program: Path) -> Report:
        guest = guest_of(program.name)
        programs = [one for one in chosen if guest_of(one.name) == guest]
        if guest not in tried and len(programs) > 1:
            out = tmp_path_factory.mktemp("together")
            reports.update(run_together(kernel, artifacts, programs, out))
        tried.add(guest)
        out = tmp_path_factory.mktemp(program.name)
        return reports.get(program) or run_selftest(kernel, artifacts, program, out)

    return get


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_selftest(ran: Callable[[Path], Report], program: Path, subtests: pytest.Subtests) -> None:
    account(ran(program), subtests, FLAVOUR)


def test_three_cpus(
    kernel: Kernel, artifacts: Artifacts, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """A third CPU, on which neither the reader runs nor the sender ran before."""
    program = next(path for path in PROGRAMS if path.name == "tun_move")
    account(run_selftest(kernel, artifacts, program, tmp_path, cpus=3), subtests, FLAVOUR)


def test_kunit(
    kernel: Kernel, artifacts: Artifacts, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    modules = find_kunit(artifacts)
    if not modules:
        pytest.skip("kmod/ builds no KUnit module")
    for module in modules:
        account(run_kunit(kernel, artifacts, module, tmp_path), subtests, FLAVOUR)
