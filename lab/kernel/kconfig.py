# SPDX-License-Identifier: GPL-2.0-only
"""Kernel flavours: their configuration fragments, patches and command lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from nodrop.errors import NodropError, UsageError

CONFIGS = Path(__file__).with_name("configs")
FLAVOURS: Mapping[str, tuple[str, ...]] = {
    "perf": ("common", "uml", "perf"),
    "debug": ("common", "uml", "debug", "macvtap"),
    "kasan": ("common", "uml", "kasan", "macvtap"),
    "kcsan-uml": ("common", "uml", "kcsan", "kcsan-uml", "macvtap"),
    "tunnel-stock": ("common", "uml", "perf", "tunnel", "kselftest"),
    "tunnel": ("common", "uml", "perf", "tunnel", "kselftest"),
    "tunnel-ab": ("common", "uml", "perf", "tunnel"),
    "tunnel-debug": ("common", "uml", "debug", "tunnel"),
    "tunnel-kasan": ("common", "uml", "kasan", "tunnel"),
    "tap": ("common", "uml", "perf", "macvtap"),
}
"""By flavour: its fragments."""

_KASAN = ("lab/kernel/patches/kasan",)
_TUNNELS = tuple(f"series/{part}" for part in ("fixes", "references", "id"))
PATCHES: Mapping[str, tuple[str, ...]] = {
    "kasan": _KASAN,
    "kcsan-uml": ("lab/kernel/patches/kcsan-uml",),
    "tunnel": _TUNNELS,
    "tunnel-ab": (*_TUNNELS, "series/measure"),
    "tunnel-debug": (*_TUNNELS, "series/faults"),
    "tunnel-kasan": (*_KASAN, *_TUNNELS, "series/faults"),
}
"""By flavour: directories of patches to its source, in order."""

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    # Without SLUB's per-CPU arrays of free objects: kmemleak takes stale pointers in them for uses.
    "kasan": ("slab_debug=F",),
    "tunnel-kasan": ("slab_debug=F",),
}
"""By flavour: further arguments of its command line."""

IPIMASK = frozenset(FLAVOURS) - {"perf"}
"""Flavours that mask IPIs without system calls (ipimask.c). Not ``perf``: its published results
were measured without."""

_SET = re.compile(r'^CONFIG_(\w+)=("[^"]*"|\S+)\s*(?:#\s*(.*))?$')
_UNSET = re.compile(r"^# CONFIG_(\w+) is not set\s*(?:#\s*(.*))?$")


def parse(text: str) -> dict[str, str]:
    """Return symbol -> value of a fragment or of a ``.config``; unset symbols are ``n``.

    Raises:
        ValueError: a line is neither an assignment nor a comment.
    """
    values: dict[str, str] = {}
    for line in text.splitlines():
        if match := _SET.match(line):
            values[match[1]] = match[2]
        elif match := _UNSET.match(line):
            values[match[1]] = "n"
        elif line.strip() and not line.startswith("#"):
            raise ValueError(f"not a configuration line: {line!r}")
    return values


def fragment(flavour: str) -> str:
    """Return the text of a flavour's fragments, concatenated.

    Raises:
        UsageError: there is no such flavour.
    """
    if flavour not in FLAVOURS:
        raise UsageError(
            f"There is no kernel flavour {flavour!r}.", f"Use one of: {', '.join(FLAVOURS)}."
        )
    files = (CONFIGS / f"{name}.config" for name in FLAVOURS[flavour])
    return "".join(path.read_text(encoding="utf-8") for path in files)


def render(values: Mapping[str, str]) -> str:
    """Return a file in Kconfig's syntax, which has no comments after a value."""
    return "".join(
        f"# CONFIG_{name} is not set\n" if value == "n" else f"CONFIG_{name}={value}\n"
        for name, value in values.items()
    )


def check(wanted: Mapping[str, str], config: str) -> None:
    """Check that a finished ``.config`` has every wanted value.

    Raises:
        NodropError: Kconfig dropped or changed values; the hint lists them.
    """
    got = parse(config)
    wrong = [
        f"CONFIG_{name}: wanted {value}, got {got.get(name, 'n')}"
        for name, value in wanted.items()
        if got.get(name, "n") != value
    ]
    if wrong:
        raise NodropError(
            f"Kconfig changed {len(wrong)} of {len(wanted)} values of the kernel's configuration.",
            "A dependency is missing in lab/kernel/configs:\n" + "\n".join(wrong),
        )
