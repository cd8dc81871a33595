#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's selftests of tun and tap: nodrop's modules and the stock ones give equal results.

The tests come from the running kernel's source package (lab/machines.py). Failures with both
drivers are due to the kernel or to this small guest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "proof/programs"))

from harness import Skip, check, drivers, equal, run

from guestlib.kselftest import EXIT_STATUS, SKIPPED, results
from lab.variant import Variant

FOLDER = Path(os.environ["LAB_BIN"]).parent / "upstream/net"
TIMEOUT_S = 20
"""Timeout of a test, before patience()."""


def alike(program: str) -> None:
    if not (FOLDER / program).exists():
        raise Skip(f"this kernel's source has no {program}, or it needs more than a compiler")
    outcomes = {}
    for variant in (Variant.STOCK, Variant.NODROP):
        drivers.use(variant)
        outcomes[variant], _ = results([str(FOLDER / program)], FOLDER, TIMEOUT_S)
    stock, ours = outcomes.values()
    for name, outcome in ours:
        print(f"# {name}: {outcome}")
    for result, expected in zip(ours, stock, strict=False):
        equal(result, expected, "results with nodrop's driver and with stock")
    equal(len(ours), len(stock), "results")
    if stock == [(EXIT_STATUS, SKIPPED)]:
        raise Skip(f"{program} was skipped: it needs something that is not here")
    good = sum(outcome in ("ok", "OK", "PASS", "0") for _, outcome in stock)
    check(good > 0, f"no test passed with the stock driver: {stock}")


def case_of(program: str) -> Callable[[], None]:
    def case() -> None:
        alike(program)

    case.__name__ = f"case_{program}"
    return case


run(case_of("tun"), case_of("tap"), tun=None)
