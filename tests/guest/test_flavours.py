# SPDX-License-Identifier: GPL-2.0-only
"""Each flavour of the kernel reports the faults that it is meant to find.

tests/flavours/broken.c makes them. A test fails if Kconfig dropped an option, or if the lab does
not recognize a report.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import FLAVOUR

from lab import guest, uml
from lab.kernel import Kernel
from lab.kernel.kbuild import make

SOURCES = Path(__file__).parents[1] / "flavours"
MAKE_TIMEOUT_S, GUEST_TIMEOUT_S = 120.0, 60.0

FOUND: dict[str, dict[str, tuple[str, str]]] = {
    "debug": {
        "lock_order": ("lockdep", "possible circular locking dependency detected"),
        "atomic_sleep": ("atomic sleep", "sleeping function called from invalid context"),
        "rcu": ("RCU usage", "suspicious RCU usage"),
        "timer_again": ("WARNING", "ODEBUG: init active"),
        "list_twice": ("WARNING", "list_add double add"),
    },
    "kasan": {
        "use_after_free": ("KASAN", "slab-use-after-free in broken_read"),
        "leak": ("leak", "broken_leak+"),
        "index": ("UBSAN", "array-index-out-of-bounds"),
    },
    "kcsan-uml": {
        "data_race": ("KCSAN", "data-race in broken_count"),
        "no_barrier": ("KCSAN", "data-race in broken_hand_over"),
    },
}
"""Flavour -> fault -> the splat's kind, and words in it."""


@pytest.fixture(scope="session")
def broken(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("broken")
    for source in SOURCES.iterdir():
        shutil.copy(source, place)
    make(
        ["-C", str(kernel.objtree), "ARCH=um", f"M={place}", "modules"],
        what="The module of mistakes",
        scratch=place,
        timeout=MAKE_TIMEOUT_S,
    )
    return place / "broken.ko"


def load(kernel: Kernel, broken: Path, mistake: str, out: Path) -> guest.GuestRun:
    command = ["insmod", str(broken), f"mistake={mistake}"]
    result = uml.run(kernel, command, out=out, timeout=GUEST_TIMEOUT_S)
    assert result.status == 0, result.output
    return result


@pytest.mark.parametrize("mistake", FOUND.get(FLAVOUR, {}))
def test_finds(kernel: Kernel, broken: Path, mistake: str, tmp_path: Path) -> None:
    kind, words = FOUND[FLAVOUR][mistake]
    result = load(kernel, broken, mistake, tmp_path)
    found = [(splat.kind, words in splat.text) for splat in result.splats]
    assert (kind, True) in found, f"{found}\n{result.log}"


def test_memory_far_apart_is_released(kernel: Kernel, broken: Path, tmp_path: Path) -> None:
    """Without lab/kernel/patches/kasan KASAN takes minutes and all of the host's memory."""
    result = load(kernel, broken, "none_far_apart", tmp_path)
    assert result.splats == ()
