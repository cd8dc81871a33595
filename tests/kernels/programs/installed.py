# SPDX-License-Identifier: GPL-2.0-only
"""What the programs for installed modules share: modprobe, modinfo, the kernel's log."""

from __future__ import annotations

from pathlib import Path

from harness import check, equal

from lab.guest.process import tool

OURS = ("vhost_net", "tap", "tun", "nodrop")
NEIGHBOURS = ("vhost_net", "vhost", "macvtap", "ipvtap", "tap")
REFUSALS = ("disagrees about version of symbol", "Unknown symbol", "Invalid module format")
"""What the kernel says about a module that does not fit the others."""


def loaded(module: str) -> bool:
    """Whether a module is in the kernel."""
    return Path("/sys/module", module).exists()


def load(*modules: str) -> None:
    """Load modules and all they need, as the administrator does."""
    for module in modules:
        tool(["modprobe", module])
        check(loaded(module), f"modprobe {module} ended well and loaded nothing")


def unload_all() -> None:
    """Unload the drivers and all that uses them, as far as they are loaded."""
    on_top = ("kreader", "macvtap", "ipvtap")
    for module in (*on_top, *OURS, "vhost", "vhost_iotlb"):
        if loaded(module):
            tool(["rmmod", module])


def place(module: str) -> str:
    """The folder of /lib/modules/RELEASE that modprobe takes a module from."""
    file = tool(["modinfo", "--field", "filename", module]).strip()
    folders = Path(file).parts
    equal(folders[:2], ("/", "lib"), f"{module}: the file {file}")
    return folders[folders.index("modules") + 2]


def log_length() -> int:
    """Lines of the kernel's log so far."""
    return len(tool(["dmesg"]).splitlines())


def no_refusals(since: int) -> None:
    """Fail when the kernel refused a module after so many lines of its log."""
    lines = tool(["dmesg"]).splitlines()[since:]
    found = [line for line in lines if any(text in line for text in REFUSALS)]
    equal(found, [], "the kernel's complaints")
