# SPDX-License-Identifier: GPL-2.0-only
"""Defaults for devices without a setting: module parameters, now and at the next load."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from nodrop.errors import NodropError, UnsupportedError
from nodrop.host import etc
from nodrop.host.livepatch import Livepatch

_LINE = re.compile(r"options (?P<module>\S+) (?P<name>\w+)=(?P<value>\d+)")


@dataclass(frozen=True)
class Parameter:
    """A module parameter.

    Attributes:
        module: name of the module.
        name: name of the parameter.
        usual: built-in value.
    """

    module: str
    name: str
    usual: str


BACKPRESSURE = Parameter("tun", "nodrop", "1")
STALL_MS = Parameter("nodrop", "guard_ms", "1000")
_BOOL = {"Y": "1", "N": "0"}
"""Boolean values as sysfs prints them."""


class Default:
    """The machine's default.

    Args:
        parameter: the module parameter that stores it.
        root: parent of ``sys``, ``etc`` and ``lib``.
        release: kernel release; None: the running kernel's.
    """

    def __init__(
        self, parameter: Parameter, root: Path = Path("/"), release: str | None = None
    ) -> None:
        self._known = parameter
        self.parameter = root / "sys/module" / parameter.module / "parameters" / parameter.name
        self.file = root / "etc/modprobe.d/nodrop.conf"
        self._updates = root / "lib/modules" / (release or os.uname().release) / "updates"
        self._patch = Livepatch(root)

    @property
    def loaded(self) -> str | None:
        """The value in the loaded module; None: there is no such parameter."""
        try:
            text = self.parameter.read_text().strip()
        except OSError:
            return None
        return _BOOL.get(text, text)

    @property
    def next_load(self) -> str:
        """The value at the next load of nodrop's module.

        Raises:
            NodropError: the file for modprobe has other lines than nodrop's.
        """
        return self._read().get((self._known.module, self._known.name), self._known.usual)

    @property
    def installed(self) -> bool:
        """Whether the next load of tun takes nodrop's: its core is in the same directory."""
        return any(self._updates.rglob("nodrop.ko*"))

    def require(self, value: str) -> None:
        """Check that the default can be set.

        Raises:
            UnsupportedError: nodrop's modules are neither loaded nor installed.
            NodropError: the file for modprobe has other lines than nodrop's.
        """
        forgets = value == self._known.usual and self.next_load != value
        if self._patch.present and self._known == BACKPRESSURE and not forgets:
            raise UnsupportedError(
                "The livepatch has no default: backpressure is on unless a device is set by name.",
                "Set devices by name, or unload it: 'nodrop livepatch unload'.",
            )
        if self.loaded is None and not self.installed and not forgets:
            raise UnsupportedError(
                "nodrop's modules are neither loaded nor installed for this kernel.",
                "'nodrop install' installs them.",
            )
        self._read()

    def set_loaded(self, value: str) -> None:
        """Set the value in the loaded module.

        Raises:
            NodropError: permission is missing, or the module was unloaded.
        """
        try:
            # Do not create the file if the module was unloaded.
            with self.parameter.open("r+") as file:
                file.write(value)
        except OSError as error:
            raise etc.sentence(self.parameter, error) from error

    def lines(self, value: str) -> list[str]:
        """Return the lines of the file for modprobe, with this value."""
        kept = self._read()
        kept.pop((self._known.module, self._known.name), None)
        if value != self._known.usual:
            kept[self._known.module, self._known.name] = value
        return [f"options {module} {name}={one}" for (module, name), one in kept.items()]

    def set_next_load(self, value: str) -> None:
        """Create, replace or remove the file for modprobe atomically.

        Raises:
            NodropError: permission is missing.
        """
        with etc.locked(self.file):
            etc.write(self.file, self.lines(value))

    def _read(self) -> dict[tuple[str, str], str]:
        known = {(one.module, one.name) for one in (BACKPRESSURE, STALL_MS)}
        found = {(one["module"], one["name"]): one["value"] for one in etc.read(self.file, _LINE)}
        switch = found.get((BACKPRESSURE.module, BACKPRESSURE.name), "1")
        if not found.keys() <= known or switch not in ("0", "1"):
            text = f"{self.file} has lines that nodrop did not write."
            raise NodropError(text, "Edit or remove it.")
        return found
