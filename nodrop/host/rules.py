# SPDX-License-Identifier: GPL-2.0-only
"""What a device gets when it comes: rules for udev, a line for each name or pattern.

udev runs ethtool for a device that matches, and nothing for any other. It looks at devices of
the machine's own network namespace alone.
"""

from __future__ import annotations

import re
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError, UsageError
from nodrop.host import etc

RELOAD_TIMEOUT_S = 10.0
FILE = "etc/udev/rules.d/80-nodrop.rules"
_LINE = re.compile(
    r'ACTION=="add", SUBSYSTEM=="net", TEST=="tun_flags", KERNEL=="(?P<pattern>[^"]+)", '
    r'RUN\+="(?P<ethtool>\S+) --set-priv-flags \$name nodrop (?P<word>on|off)"'
)
_PATTERN = re.compile(r"[A-Za-z0-9_.:@+*?\[\]!-]{1,64}")
_GLOB = re.compile(r"[*?\[]")


def is_pattern(name: str) -> bool:
    """Whether a name stands for several devices."""
    return bool(_GLOB.search(name))


def matches(pattern: str, name: str) -> bool:
    """Whether udev takes a pattern for a device."""
    return fnmatchcase(name, pattern)


class Rules:
    """The file with the rules. Of several that match a device the last one counts.

    Args:
        root: where ``etc`` and ``usr`` are.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.file = root / FILE
        self._root = root

    def read(self) -> dict[str, bool]:
        """Return what is kept: pattern -> whether backpressure is on, in the file's order.

        Raises:
            NodropError: the file is not as nodrop makes it.
        """
        return {one["pattern"]: one["word"] == "on" for one in etc.read(self.file, _LINE)}

    def require(self, pattern: str) -> None:
        """Refuse what cannot be kept.

        Raises:
            UsageError: udev would read the pattern otherwise.
            UnsupportedError: there is no ethtool, or no udev.
            NodropError: the file is not as nodrop makes it.
        """
        if not _PATTERN.fullmatch(pattern):
            raise UsageError(f"'{pattern}' cannot be kept.", "Say --now.")
        self._ethtool()
        if not (self._root / "etc/udev").is_dir():
            raise UnsupportedError("There is no udev here, which applies settings.", "Say --now.")
        self.read()

    def line(self, pattern: str, on: bool) -> str:
        """Return the rule for a pattern."""
        return (
            f'ACTION=="add", SUBSYSTEM=="net", TEST=="tun_flags", KERNEL=="{pattern}", '
            f'RUN+="{self._ethtool()} --set-priv-flags $name nodrop {"on" if on else "off"}"'
        )

    def keep(self, pattern: str, on: bool | None) -> None:
        """Keep a setting, as the last one; None: forget it.

        Raises:
            NodropError: the right is missing, or the file is not as nodrop makes it.
        """
        kept = self.read()
        kept.pop(pattern, None)
        if on is not None:
            kept[pattern] = on
        etc.write(self.file, [self.line(*one) for one in kept.items()])
        # By itself it looks every three seconds.
        if (self._root / "run/udev/control").exists():
            with suppress(NodropError):
                proc.run(["udevadm", "control", "--reload"], timeout=RELOAD_TIMEOUT_S)

    def _ethtool(self) -> str:
        for name in ("/usr/sbin/ethtool", "/sbin/ethtool"):
            if (self._root / name[1:]).exists():
                return name
        raise NodropError("ethtool is missing, which applies settings.", "apt-get install ethtool")
