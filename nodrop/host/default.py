# SPDX-License-Identifier: GPL-2.0-only
"""What devices do that nobody set by name: parameters of the modules, now and at the next load."""

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
    """A parameter of a module.

    Attributes:
        module: its name.
        name: the parameter's.
        usual: its value, where nothing is set.
    """

    module: str
    name: str
    usual: str


BACKPRESSURE = Parameter("tun", "nodrop", "1")
STALL_MS = Parameter("nodrop", "guard_ms", "1000")
_SAID = {"Y": "1", "N": "0"}
"""Values as sysfs prints them."""


class Default:
    """The machine's default.

    Args:
        parameter: of which module.
        root: where ``sys``, ``etc`` and ``lib`` are.
        release: the running kernel's; None: what uname says.
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
        """Its value in the module that is loaded; None: that has no such parameter."""
        try:
            said = self.parameter.read_text().strip()
        except OSError:
            return None
        return _SAID.get(said, said)

    @property
    def next_load(self) -> str:
        """Its value when nodrop's module is loaded next.

        Raises:
            NodropError: the file for modprobe is not as nodrop makes it.
        """
        return self._read().get((self._known.module, self._known.name), self._known.usual)

    @property
    def installed(self) -> bool:
        """Whether the running kernel would load nodrop's tun next. It has a core beside it."""
        return any(self._updates.rglob("nodrop.ko*"))

    def require(self, value: str) -> None:
        """Refuse a machine where the default cannot be set.

        Raises:
            UnsupportedError: nodrop's modules are neither loaded nor installed.
            NodropError: the file for modprobe is not as nodrop makes it.
        """
        forgets = value == self._known.usual and self.next_load != value
        if self._patch.present and self._known == BACKPRESSURE and not forgets:
            raise UnsupportedError(
                "The livepatch has no default: it is on for all devices that nobody set by name.",
                "Set devices by name, or unload it: 'nodrop livepatch unload'.",
            )
        if self.loaded is None and not self.installed and not forgets:
            raise UnsupportedError(
                "nodrop's modules are neither loaded nor installed for this kernel.",
                "'nodrop install' installs them.",
            )
        self._read()

    def set_loaded(self, value: str) -> None:
        """Set it in the module that is loaded.

        Raises:
            NodropError: the right is missing, or the module has gone.
        """
        try:
            # Opened as it is: a module that has gone must not get a file.
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
        """Make, change or remove the file for modprobe, all of it or nothing.

        Raises:
            NodropError: the right is missing.
        """
        with etc.locked(self.file):
            etc.write(self.file, self.lines(value))

    def _read(self) -> dict[tuple[str, str], str]:
        known = {(one.module, one.name) for one in (BACKPRESSURE, STALL_MS)}
        found = {(one["module"], one["name"]): one["value"] for one in etc.read(self.file, _LINE)}
        if not found.keys() <= known:
            raise NodropError(
                f"{self.file} is not as nodrop writes it.", "Edit it by hand, or remove it."
            )
        return found
