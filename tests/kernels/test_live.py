# SPDX-License-Identifier: GPL-2.0-only
"""The livepatch on Debian's own kernels: built in their root, proved, in and out under load.

Needs root, for the Debian roots. NODROP_ROUNDS says how often it goes in and out under load.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodrop.kernel.artifacts import REPOSITORY, content_hash
from nodrop.lab import layering, qemu
from nodrop.lab.machine import TOOLS
from nodrop.lab.roots import ensure_kernel
from nodrop.progress import Progress

KERNELS = ("6.1", "6.12")
ROUNDS = int(os.environ.get("NODROP_ROUNDS", "5"))
ROUND_S = 2.0
CASES_S = 60.0

_BUILD = """\
mkdir /tmp/source
tar -xf /usr/src/linux-source-{series}.tar.xz -C /tmp/source --strip-components=1 --wildcards \
	'linux-source-*/Makefile' 'linux-source-*/drivers/net/tun*' 'linux-source-*/drivers/vhost/*'
make -C {kmod} KSRC=/tmp/source KOBJ=/lib/modules/{release}/build OUT={tools}/modules \
	LIVE=/lib/modules/{release}/kernel
mkdir {tools}/modules/twin
cp {tools}/modules/build/twin/tun.ko {tools}/modules/twin/
rm -rf {tools}/modules/build
make -C {traffic} OUT={tools}/bin programs
"""

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("name", KERNELS)
def test_livepatch(name: str, tmp_path: Path) -> None:
    """A running stock driver becomes lossless and stock again."""
    kmod, traffic = REPOSITORY / "kmod", REPOSITORY / "traffic"
    with Progress() as progress:
        kernel = ensure_kernel(name, progress)
        with progress.step(f"Build the livepatch for {kernel.release}"):
            layer = layering.ensure_layer(
                kernel.root,
                _BUILD.format(
                    series=name, release=kernel.release, kmod=kmod, traffic=traffic, tools=TOOLS
                ),
                inputs=[content_hash(kmod), content_hash(traffic)],
                share=[kmod, traffic],
            )
    result = qemu.run(
        kernel,
        [REPOSITORY / "tests/kernels/live/livepatch"],
        out=tmp_path,
        layers=[layer],
        share=[REPOSITORY],
        timeout=CASES_S + ROUNDS * ROUND_S,
        env={
            "NODROP_MODULES": f"{TOOLS}/modules",
            "NODROP_BIN": f"{TOOLS}/bin",
            "NODROP_ROUNDS": str(ROUNDS),
        },
    )
    print(result.output)
    assert result.status == 0, result.output
    assert not result.splats, "\n".join(splat.text for splat in result.splats)
