# SPDX-License-Identifier: GPL-2.0-only
"""What devices do that nobody switched by name: a parameter of tun, now and at its next load."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from nodrop.errors import NodropError, UnsupportedError
from nodrop.host.livepatch import Livepatch

MADE = """\
# Made by 'nodrop disable --default'; 'nodrop enable --default' removes it.
options tun nodrop=0
"""
"""The file for modprobe. Whoever removes the modules for good removes it, too."""


class Default:
    """The machine's default.

    Args:
        root: where ``sys``, ``etc`` and ``lib`` are.
        release: the running kernel's; None: what uname says.
    """

    def __init__(self, root: Path = Path("/"), release: str | None = None) -> None:
        self.parameter = root / "sys/module/tun/parameters/nodrop"
        self.file = root / "etc/modprobe.d/nodrop.conf"
        self._updates = root / "lib/modules" / (release or os.uname().release) / "updates"
        self._patch = Livepatch(root)

    @property
    def loaded(self) -> bool | None:
        """Whether it is on in the tun that is loaded; None: that has no such parameter."""
        try:
            return self.parameter.read_text().strip() == "Y"
        except OSError:
            return None

    @property
    def next_load(self) -> bool:
        """Whether it is on when nodrop's tun is loaded next."""
        return not self.file.exists()

    @property
    def installed(self) -> bool:
        """Whether the running kernel would load nodrop's tun next. It has a core beside it."""
        return any(self._updates.rglob("nodrop.ko*"))

    def require(self, on: bool) -> None:
        """Refuse a machine where the default cannot be set.

        Raises:
            UnsupportedError: nodrop's tun is neither loaded nor installed.
            NodropError: the file for modprobe is not as nodrop makes it.
        """
        if self._patch.present:
            raise UnsupportedError(
                "The livepatch has no default: it is on for every device.",
                "Switch devices by name, or take it out: 'nodrop livepatch unload'.",
            )
        if self.loaded is None and not self.installed and (not on or self.next_load):
            raise UnsupportedError(
                "nodrop's tun is neither loaded nor installed for this kernel.",
                "'nodrop install' does that.",
            )
        try:
            text = self.file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        except OSError as error:
            raise _sentence(self.file, error) from error
        if text != MADE:
            raise NodropError(
                f"{self.file} is not as nodrop makes it.", "Change it by hand, or remove it."
            )

    def set_loaded(self, on: bool) -> None:
        """Set it in the tun that is loaded.

        Raises:
            NodropError: the right is missing, or the module has gone.
        """
        try:
            # Opened as it is: a module that has gone must not get a file.
            with self.parameter.open("r+") as file:
                file.write("Y" if on else "N")
        except OSError as error:
            raise _sentence(self.parameter, error) from error

    def set_next_load(self, on: bool) -> None:
        """Make or remove the file for modprobe, all of it or nothing.

        Raises:
            NodropError: the right is missing.
        """
        new = self.file.with_name(".nodrop.conf.new")
        try:
            if on:
                self.file.unlink(missing_ok=True)
                return
            self.file.parent.mkdir(exist_ok=True)
            new.write_text(MADE)
            new.chmod(0o644)
            new.rename(self.file)
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise _sentence(self.file, error) from error


def _sentence(path: Path, error: OSError) -> NodropError:
    if isinstance(error, PermissionError):
        return NodropError("Only root can set the default.", "Run this as root.")
    return NodropError(f"{path} cannot be changed: {error.strerror}.")
