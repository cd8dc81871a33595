# SPDX-License-Identifier: GPL-2.0-only
"""Reads the configuration fragments and checks that the kernel took every line."""

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
    "tap": ("common", "uml", "perf", "macvtap"),
}
"""By flavour: its fragments."""

_SERIES = "series/series"
PATCHES: Mapping[str, tuple[str, ...]] = {
    "kasan": ("lab/kernel/patches/kasan",),
    "kcsan-uml": ("lab/kernel/patches/kcsan-uml",),
    "tunnel": (_SERIES,),
    "tunnel-ab": (_SERIES, "series/measure"),
}
"""By flavour: folders of patches that its source gets, in their order."""

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    # Without SLUB's arrays of free objects: kmemleak takes what they still name for used.
    "kasan": ("slab_debug=F",),
}
"""By flavour: what its command line has besides."""

IPIMASK = frozenset(FLAVOURS) - {"perf"}
"""Flavours that mask interrupts without system calls (ipimask.c). Not ``perf``: what was
published with it was measured without."""

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
    """Return the text of all fragments of a flavour, one after another.

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
    """Return a file that Kconfig understands; it takes no comments behind a value."""
    return "".join(
        f"# CONFIG_{name} is not set\n" if value == "n" else f"CONFIG_{name}={value}\n"
        for name, value in values.items()
    )


def check(wanted: Mapping[str, str], config: str) -> None:
    """Make sure that a finished ``.config`` holds every wanted value.

    Raises:
        NodropError: Kconfig dropped or changed some; names each.
    """
    got = parse(config)
    wrong = [
        f"CONFIG_{name}: wanted {value}, got {got.get(name, 'n')}"
        for name, value in wanted.items()
        if got.get(name, "n") != value
    ]
    if wrong:
        raise NodropError(
            f"The kernel's configuration did not take {len(wrong)} of {len(wanted)} values.",
            "A dependency is missing in lab/kernel/configs:\n" + "\n".join(wrong),
        )
