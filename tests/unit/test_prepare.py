# SPDX-License-Identifier: GPL-2.0-only
"""kmod/prepare refuses what the modules must not be built for, with a sentence."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

PREPARE = Path(__file__).resolve().parents[2] / "kmod/prepare"
SIX_ONE_TWO = 0x06010C
"""LINUX_VERSION_CODE of 6.1.12."""


class Trees:
    """A kernel's source and build tree with no more than what is looked at."""

    def __init__(self, folder: Path) -> None:
        self.source, self.build, self.out = folder / "source", folder / "build", folder / "out"
        for name in ("net/tun.c", "net/tap.c", "vhost/net.c"):
            self.write(f"source/drivers/{name}", "")
        self.write("source/Makefile", "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 12\n")
        version = "build/include/generated/uapi/linux/version.h"
        self.write(version, f"#define LINUX_VERSION_CODE {SIX_ONE_TWO}\n")
        self.write("build/include/config/auto.conf", "CONFIG_PREEMPT=y\n")

    def write(self, name: str, text: str) -> None:
        path = self.out.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def refused(self) -> str:
        """Run it; return what it says. It has left nothing behind."""
        words = [PREPARE, self.source, self.build, self.out]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert not self.out.exists()
        return done.stderr


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path)


def test_realtime(trees: Trees) -> None:
    assert "IFF_ONE_QUEUE" in trees.refused()
    trees.write("build/include/config/auto.conf", "CONFIG_PREEMPT_RT=y\n")
    assert "PREEMPT_RT" in trees.refused()


def test_source_of_another_version(trees: Trees) -> None:
    trees.write("source/Makefile", "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 13\n")
    said = trees.refused()
    assert f"the source in {trees.source} is 6.1.13 but the build tree" in said
    assert said.endswith("is 6.1.12: get the source of that version\n")


def test_way_into_the_ring_that_no_hook_knows(trees: Trees) -> None:
    trees.write("source/drivers/net/tap.c", "ptr_ring_consume_irq(ring);\n")
    assert "reaches its ring by ptr_ring_consume_irq(), which no hook knows" in trees.refused()


@pytest.mark.parametrize(
    ("file", "access"),
    [
        ("net/tun.c", "tfile->tx_ring.queue"),
        ("net/tun.c", "ring->producer"),
        ("net/tap.c", "q->ring.consumer_head"),
        ("net/tap.c", "rings[i]->batch"),
    ],
)
def test_access_past_the_rings_functions(trees: Trees, file: str, access: str) -> None:
    trees.write(f"source/drivers/{file}", f"spin_lock(&q->ring.consumer_lock);\nx = {access};\n")
    assert f"({access.removeprefix('tfile->').removeprefix('q->')})" in trees.refused()


def test_locks_and_the_size_are_known(trees: Trees) -> None:
    text = "spin_lock(&tfile->tx_ring.producer_lock);\nx = tfile->tx_ring.size;\n"
    trees.write("source/drivers/net/tun.c", text)
    assert "IFF_ONE_QUEUE" in trees.refused()


def test_vhost_that_reaches_into_its_ring(trees: Trees) -> None:
    trees.write("source/drivers/vhost/net.c", "len = nvq->rx_ring->size;\n")
    said = trees.refused()
    assert "in a way that no hook knows" in said
    assert "1:len = nvq->rx_ring->size;" in said


def test_no_source(trees: Trees) -> None:
    (trees.source / "drivers/net/tap.c").unlink()
    assert trees.refused() == (
        f"nodrop: {trees.source} is no kernel source: drivers/net/tap.c is missing\n"
    )
