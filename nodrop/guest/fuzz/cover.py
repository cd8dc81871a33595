# SPDX-License-Identifier: GPL-2.0-only
"""Which code of our modules was executed, by whomever (traffic/kreader/kcover.c)."""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

MODULES = ("nodrop", "tun", "vhost_net")
DEVICE = Path("/dev/nodrop-kcover")
_MOST_BYTES = 8 * 16384

Places = dict[str, dict[str, list[int]]]
"""Module -> section -> offsets."""


class Cover:
    """Takes what was executed; nothing where nobody tells."""

    def __init__(self) -> None:
        self._fd = os.open(DEVICE, os.O_RDONLY) if DEVICE.exists() else -1

    @property
    def there(self) -> bool:
        """Whether somebody tells."""
        return self._fd >= 0

    def take(self) -> set[int]:
        """Return the addresses that were passed since the last time."""
        if not self.there:
            return set()
        data = os.read(self._fd, _MOST_BYTES)
        return set(struct.unpack(f"{len(data) // 8}Q", data))

    def close(self) -> None:
        """Let the module go."""
        if self.there:
            os.close(self._fd)
            self._fd = -1


def sections(sys: Path = Path("/sys/module")) -> list[tuple[int, str, str]]:
    """Return (address, module, section) of the code of our modules, by address."""
    found = []
    for module in MODULES:
        for path in (sys / module / "sections").glob(".*text*"):
            found.append((int(path.read_text(), 16), module, path.name))
    return sorted(found)


def places(addresses: Iterable[int], known: list[tuple[int, str, str]]) -> Places:
    """Return where addresses are; what is in front of all sections is left out."""
    bases = [base for base, _, _ in known]
    found: Places = {}
    for address in sorted(addresses):
        at = bisect_right(bases, address) - 1
        if at >= 0:
            base, module, section = known[at]
            found.setdefault(module, {}).setdefault(section, []).append(address - base)
    return found


def addresses(found: Places, known: list[tuple[int, str, str]]) -> set[int]:
    """Return where places are in this guest; sections that it has not got are left out."""
    bases = {(module, section): base for base, module, section in known}
    return {
        bases[module, section] + offset
        for module, sections_of in found.items()
        for section, offsets in sections_of.items()
        if (module, section) in bases
        for offset in offsets
    }
