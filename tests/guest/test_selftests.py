# SPDX-License-Identifier: GPL-2.0-only
"""Run the programs of proof/programs and tests/compat, and the KUnit modules, in guests.

Each case of a program is a test, ``PROGRAM::CASE``; a program runs the chosen ones. Programs share
a few guests; those that did not end there run again in guests of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from accounting import account, check_case, check_report
from conftest import FLAVOUR

from guest.conftest import PROGRAMS, guest_of
from lab.kernel import Artifacts, Kernel
from proof.selftests import Report, find_cases, find_kunit, run_kunit, run_selftest, run_together

Run = Callable[[Path], tuple[Report, list[str]]]
CASES = [(program, case) for program in PROGRAMS for case in find_cases(program)]


@pytest.fixture(scope="module")
def ran(
    kernel: Kernel,
    artifacts: Artifacts,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """Return a function that returns a program's report, and its chosen cases.

    All programs of a guest run at once.
    """
    chosen: dict[Path, list[str]] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.originalname == "test_case":
            program, case = map(str, item.callspec.params.values())
            chosen.setdefault(Path(program), []).append(case)
    reports: dict[Path, Report] = {}
    tried: set[int] = set()

    def get(program: Path) -> tuple[Report, list[str]]:
        guest = guest_of(program.name)
        programs = {path: cases for path, cases in chosen.items() if guest_of(path.name) == guest}
        if guest not in tried and len(programs) > 1:
            out = tmp_path_factory.mktemp("together")
            reports.update(run_together(kernel, artifacts, programs, out))
        tried.add(guest)
        if program not in reports:
            out = tmp_path_factory.mktemp(program.name)
            reports[program] = run_selftest(kernel, artifacts, program, out, cases=chosen[program])
        return reports[program], chosen[program]

    return get


@pytest.mark.parametrize(
    ("program", "case"), CASES, ids=[f"{program.name}::{case}" for program, case in CASES]
)
def test_case(ran: Run, program: Path, case: str) -> None:
    report, chosen = ran(program)
    results = dict(report.cases)
    # What is wrong with the whole program fails its first test, and those without a result.
    if case == chosen[0] or case not in results:
        check_report(report)
    if case not in results:
        tail = "\n".join(report.run.output.splitlines()[-60:])
        pytest.fail(f"{program.name} ended with {report.run.status}, without this case:\n{tail}")
    check_case(report, case, results[case], FLAVOUR)


def test_kunit(
    kernel: Kernel, artifacts: Artifacts, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    modules = find_kunit(artifacts)
    if not modules:
        pytest.skip("kmod/ builds no KUnit module")
    for module in modules:
        account(run_kunit(kernel, artifacts, module, tmp_path), subtests, FLAVOUR)
