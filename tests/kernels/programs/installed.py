# SPDX-License-Identifier: GPL-2.0-only
"""Shared by the programs for installed modules: modprobe, modinfo, the log, and that tun works."""

from __future__ import annotations

from pathlib import Path

from devices import counters, dropped, tun
from harness import check, equal, soon
from traffic import Reader, Sender

from guestlib import drivers
from guestlib.process import tool
from nodrop.host.modules import MODULES, TUNS

TUN = drivers.tun_module().name
OURS = [name for name in MODULES if name not in TUNS or name == TUN]
NEIGHBOURS = ("vhost_net", "vhost", "macvtap", "ipvtap", "tap")
REFUSALS = ("disagrees about version of symbol", "Unknown symbol", "Invalid module format")
"""The kernel's messages about a module that does not match the others."""


def loaded(module: str) -> bool:
    return Path("/sys/module", module).exists()


def load(*modules: str) -> None:
    """Load modules by modprobe; nodrop's guard trips after none of their users' waits."""
    for module in modules:
        tool(["modprobe", module])
        check(loaded(module), f"modprobe {module} succeeded without loading it")
    drivers.postpone_guard()


def unload_all() -> None:
    drivers.unload_all("kreader", "macvtap", "ipvtap")


def place(module: str) -> str:
    """Return the folder of /lib/modules/RELEASE from which modprobe loads a module."""
    file = tool(["modinfo", "--field", "filename", module]).strip()
    folders = Path(file).parts
    equal(folders[:2], ("/", "lib"), f"{module}: the file {file}")
    return folders[folders.index("modules") + 2]


def pushes_back(packets: int = 500) -> None:
    """Fail unless the whole of nodrop's tun works."""
    with tun(5) as device:
        sender = Sender(packets)
        soon(lambda: counters()["stops"] > 0, "the queue was not stopped")
        with Reader(device.fd) as reader:
            check(sender.finished(10), "the sender hangs")
            check(reader.reaches(packets), "packets are missing")
        equal(dropped(), 0, "driver drops")


def log_length() -> int:
    return len(tool(["dmesg"]).splitlines())


def no_refusals(since: int) -> None:
    """Fail if the kernel's log has a refused module after its first ``since`` lines."""
    lines = tool(["dmesg"]).splitlines()[since:]
    found = [line for line in lines if any(text in line for text in REFUSALS)]
    equal(found, [], "refused modules")
