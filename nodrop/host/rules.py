# SPDX-License-Identifier: GPL-2.0-only
"""Kept settings of devices: udev rules, one line for each name or pattern.

udev runs ethtool for each new device that matches, and nothing for other devices. It only
covers the machine's own network namespace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError, UsageError
from nodrop.host import etc

FILE = "etc/udev/rules.d/80-nodrop.rules"
ETHTOOL = "/usr/sbin/ethtool"
RELOAD_TIMEOUT_S = 10.0
MOST_NAME = 15
"""Maximum length of a device's name."""
_NAMES = r"(?:[A-Za-z0-9_.@+*?\[\]-]|(?<=\[)!){1,64}"
"""Of names and patterns. A device whose name contains "!" has another name in udev."""
_LINE = re.compile(
    r'ACTION=="add\|move", SUBSYSTEM=="net", TEST=="tun_flags", TEST=="/sys/module/nodrop", '
    rf'KERNEL=="(?P<pattern>{_NAMES})", RUN\+="\S+ --set-priv-flags \$name nodrop (?:on|off)", '
    r'RUN\+="\S+ --set-priv-flags \$name nodrop (?P<word>on|off)"'
)


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern."""
    return bool(re.search(r"[*?\[]", name))


def can_keep(name: str) -> bool:
    """Return whether a udev rule can express a name or pattern."""
    plain = re.fullmatch(_NAMES, name) and "[[" not in name and name not in (".", "..")
    return bool(plain and (is_pattern(name) or len(name) <= MOST_NAME))


def matches(pattern: str, name: str) -> bool:
    """Return whether a pattern matches a device in udev."""
    return fnmatchcase(name, pattern)


def applied(kept: Mapping[str, bool], name: str) -> bool | None:
    """Return the kept setting of a device; None: none."""
    found = [on for pattern, on in kept.items() if "!" not in name and matches(pattern, name)]
    return found[-1] if found else None


def changed(kept: Mapping[str, bool], names: Sequence[str], on: bool | None) -> dict[str, bool]:
    """Return the kept settings after ``names`` were set, as the last ones; None forgets them.

    Raises:
        UsageError: a udev rule cannot express a name.
    """
    for name in names:
        if not can_keep(name):
            raise UsageError(f"No udev rule can name '{name}', so it is not kept.", "Use --now.")
    order = list(kept)
    if on is not None and {*names} <= {*kept}:
        first = min(map(order.index, names))
        if all(kept[name] == on for name in order[first:]):
            return dict(kept)
    others = {name: one for name, one in kept.items() if name not in names}
    return others if on is None else {**others, **dict.fromkeys(names, on)}


def line(pattern: str, on: bool) -> str:
    """Return the rule for a pattern.

    It sets the opposite value first: ethtool does not set a flag that has the wanted value, and
    the device would continue to follow the default.
    """
    words = [f'RUN+="{ETHTOOL} --set-priv-flags $name nodrop {one}"' for one in _words(on)]
    tests = 'ACTION=="add|move", SUBSYSTEM=="net", TEST=="tun_flags", TEST=="/sys/module/nodrop"'
    return ", ".join([tests, f'KERNEL=="{pattern}"', *words])


def _words(on: bool) -> tuple[str, str]:
    return ("off", "on") if on else ("on", "off")


class Rules:
    """The file with the rules. If several match a device, the last one applies.

    Args:
        root: parent of ``etc``, ``run`` and ``usr``.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.file = root / FILE
        self._root = root

    def read(self) -> dict[str, bool]:
        """Return the kept settings: pattern -> whether backpressure is on, in the file's order.

        Raises:
            NodropError: the file has other lines than nodrop's.
        """
        kept: dict[str, bool] = {}
        for one in etc.read(self.file, _LINE):
            kept.pop(one["pattern"], None)
            kept[one["pattern"]] = one["word"] == "on"
        return kept

    def obstacle(self) -> str:
        """Return why no rule is applied: "udev", "netns" or "ethtool"; "": rules are applied."""
        if not (self._root / "run/udev/control").exists():
            return "udev"
        with suppress(OSError):
            own, first = (os.stat(self._root / f"proc/{who}/ns/net") for who in ("self", "1"))
            if own.st_ino != first.st_ino:
                return "netns"
        return "" if (self._root / ETHTOOL[1:]).exists() else "ethtool"

    def require(self) -> None:
        """Check that kept settings are applied.

        Raises:
            UnsupportedError: udev does not run, or covers another network namespace.
            NodropError: ethtool is missing.
        """
        obstacle = self.obstacle()
        if obstacle == "ethtool":
            raise NodropError(
                "ethtool, which applies kept settings, is missing.", "apt install ethtool"
            )
        if obstacle:
            why = "udev only covers the machine's own network namespace."
            if obstacle == "udev":
                why = "udev, which applies kept settings, does not run here."
            raise UnsupportedError(why, "Use --now to set the device without keeping the setting.")

    def lines(self, kept: Mapping[str, bool]) -> list[str]:
        """Return the file's lines for the settings."""
        return [line(*one) for one in kept.items()]

    def keep(self, names: Sequence[str], on: bool | None) -> None:
        """Change the file atomically, and make udev read it.

        Raises:
            NodropError: permission is missing, or the file has other lines than nodrop's.
        """
        with etc.locked(self.file):
            etc.write(self.file, self.lines(changed(self.read(), names, on)))
        # By itself, udev checks its files every three seconds.
        if self._root == Path("/"):
            with suppress(NodropError):
                proc.run(["udevadm", "control", "--reload"], timeout=RELOAD_TIMEOUT_S)
