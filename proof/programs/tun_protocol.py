#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""A driver does not load against a core of another protocol version, left by an upgrade."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from harness import check, drivers, run

from guestlib.drivers import tun_module, unload_all
from guestlib.environment import GuestError
from guestlib.process import tool
from lab.variant import Variant

FOLDER = Path(os.environ["LAB_MODULES"], "nodrop")
TUN = tun_module().name
STOCK = FOLDER.parent / "stock"
BELOW = [STOCK / f"{name}.ko" for name in ("tun", "tap", "vhost_iotlb", "vhost")]
PROTOCOL = re.compile(rb"(?<=protocol_)\d+")


def case_other_core() -> None:
    drivers.unload()
    core = (FOLDER / "nodrop.ko").read_bytes()
    check(PROTOCOL.search(core) is not None, "no symbol of the core names its protocol")
    try:
        with tempfile.TemporaryDirectory() as folder:
            other = Path(folder, "nodrop.ko")
            other.write_bytes(PROTOCOL.sub(lambda found: b"0" * len(found[0]), core))
            tool(["insmod", str(other)])
        for name in (TUN, "vhost_net"):
            if name == "vhost_net":
                for path in filter(Path.exists, BELOW):
                    tool(["insmod", str(path)])
            tool(["dmesg", "--clear"])
            try:
                tool(["insmod", str(FOLDER / f"{name}.ko")])
            except GuestError:
                named = PROTOCOL.search(tool(["dmesg"]).encode())
                check(named is not None, f"the log does not name the symbol that {name} misses")
            else:
                raise AssertionError(f"{name} loads against a core of another protocol")
    finally:
        unload_all()
    # And they still load normally.
    drivers.use(Variant.NODROP, vhost=Variant.NODROP)


run(tun=None)
