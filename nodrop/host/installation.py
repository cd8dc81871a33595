# SPDX-License-Identifier: GPL-2.0-only
"""How nodrop's modules get onto this machine's disk for the running kernel, and off it again.

There are three places to do that from: DKMS has the modules' sources (by the package
nodrop-dkms, or an earlier ``make install``); this is a clone, whose packaging/install lays
them out; or there are none.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from nodrop import proc
from nodrop.columns import clean
from nodrop.errors import NodropError, UnsupportedError, UsageError

QUERY_TIMEOUT_S = 60.0
BUILD_TIMEOUT_S = 1800.0
PACKAGE = "nodrop-dkms"
_NOT_BUILT = 77
"""What DKMS says for a kernel that nodrop does not fit."""

_SAID = "nodrop: "
_REPOSITORY = Path(__file__).resolve().parents[2]


class Installation:
    """The modules on disk.

    Args:
        root: where ``usr``, ``lib`` and ``sys`` are.
        repository: where this command is from.
        release: the kernel's; None: that of the running one. For packaging/install also "all".
    """

    def __init__(
        self,
        root: Path = Path("/"),
        repository: Path = _REPOSITORY,
        release: str | None = None,
    ) -> None:
        self._root = root
        self._script = repository / "packaging/install"
        self._clone = (repository / "packaging/lay").exists()
        self.kernel = release or os.uname().release

    @property
    def packaged(self) -> bool:
        """Whether the package is installed, or half of it."""
        try:
            done = _ask(["dpkg-query", "-W", "-f", "${db:Status-Abbrev}", PACKAGE])
        except NodropError:  # no Debian
            return False
        return done.status == 0 and done.output[1:2] in set("iUFHWt")

    @property
    def tree(self) -> Path | None:
        """The modules' sources for DKMS, of the newest version; None: there are none."""
        found = [conf.parent for conf in (self._root / "usr/src").glob("nodrop-*/dkms.conf")]
        return max(found, key=lambda path: path.stat().st_mtime, default=None)

    @property
    def installed(self) -> bool:
        """Whether the kernel, or one of all, finds nodrop's modules."""
        which = "*" if self.kernel == "all" else self.kernel
        modules = self._root / "lib/modules"
        return any(modules.glob(f"{which}/updates/**/nodrop.ko*"))

    @property
    def loaded(self) -> str | None:
        """Whose tun is in memory: "stock", "live" or "nodrop"; None: nobody's."""
        modules = self._root / "sys/module"
        if not (modules / "tun").exists():
            # Built into the kernel it shows no module.
            return "stock" if (self._root / "sys/class/misc/tun").exists() else None
        if (modules / "tun/parameters/nodrop").exists():
            return "nodrop"
        return "live" if (self._root / "sys/kernel/livepatch/nodrop_live").exists() else "stock"

    def to_install(self, source: Path | None = None) -> list[list[str]]:
        """Return the commands that install the modules for the kernel.

        Args:
            source: the kernel's source; None: what kmod/source finds.

        Raises:
            UnsupportedError: there is nothing here to install them from.
            UsageError: DKMS would be asked for all kernels.
        """
        if source is not None and not source.is_dir():
            raise NodropError(f"There is no folder {source}.", "--source names a kernel's source.")
        given = [] if source is None else [str(source.absolute())]
        if self._clone and not self.packaged:
            proc.require("dkms", "dkms")
            words = [str(self._script), "-k", self.kernel]
            return [[*words, "-s", *given] if given else words]
        tree = self.tree
        if tree is None:
            raise UnsupportedError(
                "The modules are not on this machine: the package nodrop-dkms has them.",
                f"apt install ./{PACKAGE}_*_all.deb, which 'make deb' builds in a clone; "
                "or there: 'make install'.",
            )
        if self.kernel == "all":
            raise UsageError("DKMS does all kernels by itself.", "Name one, or leave --kernel out.")
        version = tree.name.removeprefix("nodrop-")
        which = ["-m", "nodrop", "-v", version]
        proc.require("dkms", "dkms")
        steps = []
        known = _ask(["dkms", "status", *which]).output
        if version not in known:
            steps.append(["dkms", "add", *which])
        if given:
            steps.append([str(tree / "fit"), "--source", *given, self.kernel])
        if given or "installed" not in _ask(["dkms", "status", *which, "-k", self.kernel]).output:
            steps.append(["dkms", "install", *which, "-k", self.kernel])
        return [*steps, [str(tree / "verify"), version, self.kernel], [str(tree / "settle"), "in"]]

    def to_uninstall(self) -> list[list[str]]:
        """Return the commands that remove the modules for every kernel; none: nothing is there.

        Raises:
            UnsupportedError: they belong to a package.
            NodropError: this copy of nodrop is not complete.
        """
        if self.packaged:
            raise UnsupportedError(
                f"The modules belong to the package {PACKAGE}.",
                f"apt purge {PACKAGE} removes them, and says what to restart.",
            )
        if self.tree is None and not self.installed:
            return []
        if not self._script.exists():
            raise NodropError(f"{self._script} is missing.", "Run 'make uninstall' in a clone.")
        return [[str(self._script), "-u"]]

    def told(self, steps: Sequence[Sequence[str]]) -> list[str]:
        """Return the commands as text; those of packaging/install one by one.

        Raises:
            NodropError: packaging/install refuses; the text says why.
        """
        lines = []
        for step in steps:
            if step[0] == str(self._script):
                lines += _ran([step[0], "-n", *step[1:]], QUERY_TIMEOUT_S, None).splitlines()
            else:
                lines.append(shlex.join(step))
        return lines

    def run(self, steps: Sequence[Sequence[str]], tell: Callable[[str], None]) -> list[str]:
        """Run the commands in order; return nodrop's own sentences.

        Args:
            tell: called with each line of output.

        Raises:
            NodropError: one failed; the hint is what it said.
            UnsupportedError: nodrop does not fit the running kernel.
        """
        output = []
        for step in steps:
            try:
                output.append(_ran(step, None if self._changes(step) else BUILD_TIMEOUT_S, tell))
            except NodropError:
                if step[:2] == ["dkms", "install"]:
                    for check in filter(_is_verify, steps):
                        proc.run_whole(check)  # clears what was left half-copied
                raise
        return sentences("\n".join(output))

    def _changes(self, step: Sequence[str]) -> bool:
        """Whether a command changes modules, on disk or loaded: half of it is worse than none."""
        if step[0] in ("dkms", str(self._script)):
            return True
        return Path(step[0]).name == "settle" or _is_verify(step)


def sentences(output: str) -> list[str]:
    """Return what nodrop's own scripts said among the output of others."""
    lines = (clean(line.strip()) for line in output.splitlines())
    said = [line for line in lines if line.startswith(_SAID)]
    return [line.removeprefix(_SAID) for line in dict.fromkeys(said)]


def _is_verify(step: Sequence[str]) -> bool:
    return Path(step[0]).name == "verify"


def _ask(argv: Sequence[str]) -> proc.Completed:
    return proc.run(argv, timeout=QUERY_TIMEOUT_S)


def _ran(argv: Sequence[str], timeout: float | None, tell: Callable[[str], None] | None) -> str:
    """Run a command and return its output; without a time limit nothing stops it."""
    if timeout is None:
        done = proc.run_whole(argv, on_line=tell)
    else:
        done = proc.run(argv, timeout=timeout, on_line=tell)
    if done.status == 0:
        return done.output
    reason = "\n".join(sentences(done.output)) or proc.tail(done.output, 8)
    if done.status == _NOT_BUILT:
        raise UnsupportedError("nodrop does not fit this kernel, which keeps its own.", reason)
    raise NodropError(f"'{shlex.join(argv)}' failed.", reason)
