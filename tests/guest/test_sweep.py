# SPDX-License-Identifier: GPL-2.0-only
"""The sweep (docs/testing.md): fixed rows, and all rows of the seeds in --seeds."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab import uml
from lab.guest import GuestRun
from lab.kernel import Artifacts, Kernel

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 330.0
"""For a guest; on an idle machine it takes a quarter of that."""
ROWS = (
    # Packets queued until a reader starts, and while it is slow: all rings, each kind of reader.
    *(
        f"kind=tun ring={ring} pace={pace}"
        for ring in (500, 5, 1, 0)
        for pace in ("burst", "flood")
    ),
    *(f"kind=tap reader=kernel ring={ring} pace=flood" for ring in (500, 5, 1)),
    *(f"kind=tap reader=vhost ring={ring} pace=flood" for ring in (500, 5, 1)),
    *(f"kind=tap reader={reader} ring=5 pace=burst" for reader in ("poll", "kernel", "vhost")),
    *(f"kind=tun reader=blocking ring={ring} pace=flood" for ring in (500, 33, 5)),
    # Bursts longer and shorter than the ring; without a qdisc they end in drops.
    "kind=tun reader=poll sender=gso",
    *(f"kind=tun reader=blocking ring={ring} sender=gso" for ring in (500, 5, 1)),
    "kind=tun reader=blocking ring=5 qdisc=noqueue sender=gso",
    # Events, with a full ring or under load.
    *(
        f"kind=tun ring={ring} event={event} pace={pace}"
        for ring, event in ((500, "down"), (2, "down"), (5, "netns"), (5, "resize"))
        for pace in ("burst", "flood")
    ),
    "kind=tun ring=2 event=reattach pace=burst",
    "kind=tun ring=2 event=reattach pace=flood neighbour=slow",
    "kind=tun ring=5 qdisc=mq event=resize pace=flood neighbour=slow",
    "kind=tun ring=5 event=killed pace=flood",
    *(f"kind=tap reader=vhost ring={ring} event=swap pace=flood" for ring in (500, 5, 1)),
    # XDP frames.
    *(f"kind=tap ring={ring} sender=xdp pace=flood" for ring in (5, 1)),
    # macvtap and ipvtap: charged frames exceed txqueuelen, whatever event happens.
    *(
        f"kind={kind} qdisc=noqueue ring=5 {more}"
        for kind, more in (
            ("ipvtap", "pace=burst"),
            ("ipvtap", "pace=flood"),
            ("macvtap", "sender=forwarded"),
            ("macvtap", "pace=flood sender=tcp"),
            ("macvtap", "pace=burst sender=gso"),
            ("macvtap", "pace=burst event=resize"),
            ("macvtap", "pace=flood event=resize"),
            ("macvtap", "pace=flood event=down"),
            ("macvtap", "pace=burst event=reattach"),
            ("macvtap", "pace=flood event=reattach neighbour=slow"),
            ("macvtap", "pace=burst reader=vhost event=swap"),
            ("macvtap", "pace=flood reader=vhost event=swap"),
        )
    ),
)
DROPPING = (
    "kind=tun ring=5 pace=burst sender=packet",
    "kind=tap ring=5 pace=burst sender=udp",
)
"""Rows in which the stock driver drops packets that the qdisc could queue."""


def sweep(kernel: Kernel, artifacts: Artifacts, out: Path, *words: str) -> GuestRun:
    command = [sys.executable, "-m", "proof.sweep", *words]
    env = {"PYTHONPATH": str(ROOT)}
    return uml.run(kernel, command, out=out, artifacts=artifacts, timeout=TIMEOUT_S, env=env)


def findings(run: GuestRun) -> str:
    """Return a run's output without comments."""
    return "\n".join(line for line in run.output.splitlines() if not line.startswith("# "))


def assert_holds(run: GuestRun) -> None:
    assert run.status == 0, findings(run)
    assert not run.splats, "\n".join(splat.text for splat in run.splats)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", metafunc.config.getoption("seeds").split(","))


@pytest.mark.parametrize("part", ["1/4", "2/4", "3/4", "4/4"])
def test_seed(kernel: Kernel, artifacts: Artifacts, tmp_path: Path, seed: str, part: str) -> None:
    number = f"{datetime.now(UTC):%Y%m%d}" if seed == "today" else seed
    assert_holds(sweep(kernel, artifacts, tmp_path, "--seed", number, "--part", part))


def test_rows(kernel: Kernel, artifacts: Artifacts, tmp_path: Path) -> None:
    words = [word for row in ROWS for word in ("--row", row)]
    assert_holds(sweep(kernel, artifacts, tmp_path, "--driver", "nodrop", *words))


@pytest.mark.parametrize("row", DROPPING)
def test_stock_drops_what_a_qdisc_can_queue(
    kernel: Kernel, artifacts: Artifacts, tmp_path: Path, row: str
) -> None:
    """The oracle finds the drops that nodrop avoids."""
    run = sweep(kernel, artifacts, tmp_path, "--driver", "stock", "--row", row)
    assert run.status == 1, run.output
    assert "FAILED stock: " in run.output
