# SPDX-License-Identifier: GPL-2.0-only
"""What check refuses of the modules for a kernel that has tun built in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from stubs import programs, run, write

from lab.sources import REPOSITORY

KERNEL = "6.8.0-51-generic"
STUBS = {
    # Here an object is the list of the symbols that it uses.
    "nm": 'cat "$2"',
    "modinfo": "echo 6.8.0-51-generic SMP",
    "depmod": "exit 0",
}
FLOW = REPOSITORY / "kmod/flow"
HEADER = (FLOW / "nodrop_flow.h").read_text(encoding="utf-8")
EXPORTED = re.compile(r"^EXPORT_SYMBOL_GPL\((\w+)\);$", re.MULTILINE)
# What the modules may use: the names that the core exports.
CORE = [
    *re.findall(r"^#define nodrop_check (\w+)$", HEADER, re.MULTILINE),
    *sorted({name for path in FLOW.glob("*.c") for name in EXPORTED.findall(path.read_text())}),
]


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """Modules that fit."""
    programs(tmp_path / "bin", STUBS)
    tree = tmp_path / "lib/modules" / KERNEL
    write(
        tree / "build/Module.symvers",
        "0x1\ttun_get_socket\tvmlinux\tEXPORT_SYMBOL_GPL\t\n"
        "0x2\ttap_get_socket\tdrivers/net/tap\tEXPORT_SYMBOL_GPL\t\n",
    )
    write(tree / "kernel/drivers/net/veth.ko.zst")
    write(tree / "modules.dep")
    folder = tmp_path / "build"
    write(folder / "flow/nodrop_flow.h", HEADER)
    write(folder / "Module.symvers", SYMVERS)
    write(folder / "nodrop_tun.ko", "\n".join(CORE))
    write(folder / "vhost_net.ko", "\n".join((*CORE, "nodrop_tun_get_socket")))
    return folder


SYMVERS = "0x3\tnodrop_tun_get_socket\t/b/nodrop_tun\tEXPORT_SYMBOL_GPL\t\n" + (
    "0x2\ttap_get_socket\t/b/tap\tEXPORT_SYMBOL_GPL\t\n"
)


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("nodrop_tun.ko", "\n".join(CORE), ""),
        ("nodrop_tun.ko", "\n".join({*CORE} - {"nodrop_queue_create"}), "nodrop_queue_create"),
        ("vhost_net.ko", "\n".join(CORE), "nodrop_tun_get_socket"),
        ("Module.symvers", f"{SYMVERS}0x1\ttun_get_socket\t/b/x\tX\t\n", "tun_get_socket"),
        ("Module.symvers", SYMVERS.replace("0x2", "0x4"), "tap_get_socket"),
    ],
)
def test_check(tmp_path: Path, build: Path, file: str, text: str, why: str) -> None:
    write(build / file, text)
    words = (REPOSITORY / "dkms/check", build, KERNEL)
    done = run(tmp_path / "bin", *words, NODROP_ROOT=tmp_path)
    assert (done.returncode == 0) is (not why)
    assert why in done.stderr
