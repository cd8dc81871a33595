# SPDX-License-Identifier: GPL-2.0-only
"""Install nodrop's modules for a kernel, and remove them, by the installer dkms/install."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from nodrop import proc
from nodrop.errors import INTERRUPTED, NodropError, UnsupportedError
from nodrop.host import modules
from nodrop.screen import clean

QUERY_TIMEOUT_S = 60.0
PACKAGE = "nodrop-dkms"
INSTALLER = "dkms/install"
_NOT_BUILT = 77
"""Exit status of DKMS and dkms/install for a kernel that nodrop does not support."""

_PREFIX = "nodrop: "
_REPOSITORY = Path(__file__).resolve().parents[2]


class Installation:
    """The modules on disk, and the installer of this clone, or of the sources in ``usr/src``.

    Args:
        root: parent of ``usr``, ``lib`` and ``sys``.
        repository: where this command runs from.
        release: kernel release; None: the running kernel's; "all": every kernel with headers.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        repository: Path = _REPOSITORY,
        release: str | None = None,
    ) -> None:
        self._root = root
        self._own_installer = repository / INSTALLER
        self._clone = (repository / "packaging/lay").exists()
        self.kernel = release or os.uname().release

    @property
    def packaged(self) -> bool:
        """Whether the package is installed, possibly in part."""
        try:
            done = _query(["dpkg-query", "-W", "-f", "${db:Status-Abbrev}", PACKAGE])
        except NodropError:  # not Debian
            return False
        return done.status == 0 and done.output[1:2] in set("iUFHWt")

    @property
    def installed(self) -> bool:
        """Whether the kernel (of "all": any kernel) finds nodrop's modules."""
        return modules.installed(self._root, "*" if self.kernel == "all" else self.kernel)

    @property
    def loaded(self) -> str | None:
        """The loaded tun (:func:`modules.driver`)."""
        return modules.driver(self._root)

    def to_install(self, source: Path | None = None) -> list[str]:
        """Return the command that installs the modules for the kernel.

        Args:
            source: source tree of the kernel; None: dkms/source finds it.

        Raises:
            UnsupportedError: the sources of the modules are not here.
        """
        if source is not None and not source.is_dir():
            raise NodropError(f"There is no directory {source}.", "--source needs a source tree.")
        installer = self._own_installer
        if not self._clone or self.packaged:
            found = list((self._root / "usr/src").glob(f"nodrop-*/{INSTALLER}"))
            if not found:
                raise UnsupportedError(
                    f"The sources of nodrop's modules are missing; the package {PACKAGE} has them.",
                    f"Run 'apt install ./{PACKAGE}_*_all.deb', which 'make deb' builds in a clone, "
                    "or 'make install' in a clone.",
                )
            installer = max(found, key=lambda path: path.stat().st_mtime)
        proc.require("dkms", "dkms")
        given = [] if source is None else ["-s", str(source.absolute())]
        return [str(installer), "-k", self.kernel, *given]

    def to_uninstall(self) -> list[str]:
        """Return the command that removes the modules for every kernel; [] if none is installed.

        Raises:
            UnsupportedError: a package installed them.
            NodropError: this copy of nodrop is incomplete.
        """
        if self.packaged:
            raise UnsupportedError(
                f"The package {PACKAGE} installed the modules.",
                f"Run 'apt purge {PACKAGE}', which also reports what to restart.",
            )
        left = ("usr/local/bin/nodrop", "usr/local/lib/nodrop", "usr/src/nodrop-[0-9]*")
        if not any(any(self._root.glob(pattern)) for pattern in left) and not modules.installed(
            self._root, "*"
        ):
            return []
        if not self._own_installer.exists():
            raise NodropError(f"{self._own_installer} is missing.", "Use 'make uninstall'.")
        return [str(self._own_installer), "-u"]

    def dry_run(self, command: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the commands that the installer would run, and its sentences.

        Raises:
            NodropError: the installer refuses, with its reason.
            UnsupportedError: nodrop does not support the kernel.
        """
        installer, *words = command
        output = _checked(command, _query([installer, "-n", *words]))
        lines = output.splitlines()
        return [line for line in lines if not line.startswith(_PREFIX)], sentences(output)

    def run(self, command: Sequence[str], on_line: Callable[[str], None]) -> tuple[list[str], bool]:
        """Run the installer.

        A signal ends it until it begins to change modules, on disk or loaded. From then on it
        completes its work, so that the modules are checked and what to restart is reported.

        Args:
            on_line: called with each line of output.

        Returns:
            The sentences of nodrop's scripts, and whether a signal arrived.

        Raises:
            KeyboardInterrupt: a signal ended it.
            NodropError: it failed; the hint is its message.
            UnsupportedError: nodrop does not support the kernel.
        """
        done, interrupted = proc.run_uninterrupted(command, on_line=on_line)
        if interrupted and done.status in (INTERRUPTED, -signal.SIGINT):
            raise KeyboardInterrupt
        return sentences(_checked(command, done)), interrupted


def sentences(output: str) -> list[str]:
    """Return the sentences of nodrop's own scripts in the output of commands."""
    lines = (clean(line.strip()) for line in output.splitlines())
    ours = [line for line in lines if line.startswith(_PREFIX)]
    return [line.removeprefix(_PREFIX) for line in dict.fromkeys(ours)]


def reason(output: str) -> str:
    """Return why a command failed: its sentences, or its last lines."""
    return "\n".join(sentences(output)) or proc.tail(output, 8)


def _query(argv: Sequence[str]) -> proc.Completed:
    return proc.run(argv, timeout=QUERY_TIMEOUT_S)


def _checked(command: Sequence[str], done: proc.Completed) -> str:
    """Return the output of the installer, or raise its error."""
    if done.status == 0:
        return done.output
    why = reason(done.output)
    if done.status == _NOT_BUILT:
        raise UnsupportedError("nodrop does not support this kernel, which keeps its own.", why)
    raise NodropError(f"'{shlex.join(command)}' failed.", why)
