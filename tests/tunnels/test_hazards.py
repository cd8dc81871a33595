# SPDX-License-Identifier: GPL-2.0-only
"""Borrowed routes on kernels that check locks, RCU and memory; and the faults that these find."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import on_terminal

from lab.channels import GuestDied
from lab.kernel import Kernel, ensure_kernel
from proof.tunnels.hazards import QUEUES
from proof.tunnels.links import BEARERS, KINDS

from .conftest import Side, boot

FLAVOURS = ("tunnel-debug", "tunnel-kasan")
TIMEOUT_S = 600.0
GUESTS = 8
"""For all kinds of tunnels; each scans for leaks once, at its end. TIPC starts once in each."""
_ALL = (*KINDS, *BEARERS, *QUEUES)
GROUPS = [_ALL[at::GUESTS] for at in range(GUESTS)]
FOUND = (
    ("leak", "tunnel-kasan", "gre", "rt_dst_alloc"),
    ("unowned", "tunnel-debug", "gre", "rcuref_put"),
    ("put", "tunnel-debug", "sit", "rcuref_put"),
    ("early", "tunnel-kasan", "vxlan", "slab-use-after-free"),
    *(("queued", "tunnel-kasan", queue, "slab-use-after-free") for queue in QUEUES),
)
"""Fault, the kernel that finds it, where, and words of its report."""


@pytest.fixture(scope="session")
def kernels(request: pytest.FixtureRequest) -> dict[str, Kernel]:
    with on_terminal(request) as progress:
        return {name: ensure_kernel(progress, name) for name in FLAVOURS}


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("kinds", GROUPS, ids="-".join)
def test_no_report(
    kernels: dict[str, Kernel], flavour: str, kinds: tuple[str, ...], tmp_path: Path
) -> None:
    argv = [sys.executable, "-m", "proof.tunnels.hazards", *kinds]
    Side(flavour, kernels[flavour]).run(argv, tmp_path, TIMEOUT_S)


@pytest.mark.parametrize(("fault", "flavour", "kind", "words"), FOUND)
def test_fault_is_found(
    kernels: dict[str, Kernel], fault: str, flavour: str, kind: str, words: str, tmp_path: Path
) -> None:
    argv = [sys.executable, "-m", "proof.tunnels.hazards", "--fault", fault, kind]
    try:
        run = boot(kernels[flavour], argv, tmp_path, TIMEOUT_S)
        text = "\n".join(splat.text for splat in run.splats)
    except GuestDied as died:
        text = died.hint
    assert words in text
