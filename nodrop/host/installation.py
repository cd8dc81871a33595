# SPDX-License-Identifier: GPL-2.0-only
"""Install nodrop's modules for a kernel, and remove them.

In a clone, packaging/install does it. Elsewhere DKMS does, with the sources of the package
nodrop-dkms or of an earlier ``make install``.
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
"""Exit status of DKMS and packaging/install for a kernel that nodrop does not support."""

_PREFIX = "nodrop: "
_REPOSITORY = Path(__file__).resolve().parents[2]


class Installation:
    """The modules on disk.

    Args:
        root: parent of ``usr``, ``lib`` and ``sys``.
        repository: where this command runs from.
        release: kernel release; None: the running kernel's; "all" in a clone.
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
        """Whether the package is installed, possibly in part."""
        try:
            done = _query(["dpkg-query", "-W", "-f", "${db:Status-Abbrev}", PACKAGE])
        except NodropError:  # not Debian
            return False
        return done.status == 0 and done.output[1:2] in set("iUFHWt")

    @property
    def tree(self) -> Path | None:
        """Directory of the newest sources for DKMS; None: none."""
        found = [conf.parent for conf in (self._root / "usr/src").glob("nodrop-*/dkms.conf")]
        return max(found, key=lambda path: path.stat().st_mtime, default=None)

    @property
    def installed(self) -> bool:
        """Whether the kernel (of "all": any kernel) finds nodrop's modules."""
        which = "*" if self.kernel == "all" else self.kernel
        modules = self._root / "lib/modules"
        return any(modules.glob(f"{which}/updates/**/nodrop.ko*"))

    @property
    def loaded(self) -> str | None:
        """The loaded tun: "stock", "live" or "nodrop"; None: none."""
        modules = self._root / "sys/module"
        if not (modules / "tun").exists():
            # A built-in tun has no directory there.
            return "stock" if (self._root / "sys/class/misc/tun").exists() else None
        if (modules / "tun/parameters/nodrop").exists():
            return "nodrop"
        return "live" if (self._root / "sys/kernel/livepatch/nodrop_live").exists() else "stock"

    def to_install(self, source: Path | None = None) -> list[list[str]]:
        """Return the commands that install the modules for the kernel.

        Args:
            source: source tree of the kernel; None: kmod/source finds it.

        Raises:
            UnsupportedError: the sources of the modules are not here.
            UsageError: "all" outside of a clone.
        """
        if source is not None and not source.is_dir():
            raise NodropError(f"There is no directory {source}.", "--source needs a source tree.")
        given = [] if source is None else [str(source.absolute())]
        if self._clone and not self.packaged:
            proc.require("dkms", "dkms")
            words = [str(self._script), "-k", self.kernel]
            return [[*words, "-s", *given] if given else words]
        tree = self.tree
        if tree is None:
            raise UnsupportedError(
                f"The sources of nodrop's modules are missing; the package {PACKAGE} has them.",
                f"Run 'apt install ./{PACKAGE}_*_all.deb', which 'make deb' builds in a clone, "
                "or 'make install' in a clone.",
            )
        if self.kernel == "all":
            raise UsageError("'--kernel all' needs a clone.", "Name one kernel, or none.")
        version = tree.name.removeprefix("nodrop-")
        which = ["-m", "nodrop", "-v", version]
        proc.require("dkms", "dkms")
        steps = []
        known = _query(["dkms", "status", *which]).output
        if version not in known:
            steps.append(["dkms", "add", *which])
        if given:
            steps.append([str(tree / "fit"), "--source", *given, self.kernel])
        if given or "installed" not in _query(["dkms", "status", *which, "-k", self.kernel]).output:
            steps.append(["dkms", "install", *which, "-k", self.kernel])
        return [*steps, [str(tree / "verify"), version, self.kernel], [str(tree / "settle"), "in"]]

    def to_uninstall(self) -> list[list[str]]:
        """Return the commands that remove the modules for every kernel; none if none is installed.

        Raises:
            UnsupportedError: a package installed them.
            NodropError: this copy of nodrop is incomplete.
        """
        if self.packaged:
            raise UnsupportedError(
                f"The package {PACKAGE} installed the modules.",
                f"Run 'apt purge {PACKAGE}', which also reports what to restart.",
            )
        if self.tree is None and not self.installed:
            return []
        if not self._script.exists():
            raise NodropError(f"{self._script} is missing.", "Run 'make uninstall' in a clone.")
        return [[str(self._script), "-u"]]

    def as_text(self, steps: Sequence[Sequence[str]]) -> list[str]:
        """Return the commands as text; packaging/install lists its own.

        Raises:
            NodropError: packaging/install refuses, with its reason.
        """
        lines = []
        for step in steps:
            if step[0] == str(self._script):
                lines += _ran([step[0], "-n", *step[1:]], QUERY_TIMEOUT_S, None).splitlines()
            else:
                lines.append(shlex.join(step))
        return lines

    def run(self, steps: Sequence[Sequence[str]], on_line: Callable[[str], None]) -> list[str]:
        """Run the commands in order and return the sentences of nodrop's own scripts.

        Args:
            on_line: called with each line of output.

        Raises:
            NodropError: a command failed; the hint is its message.
            UnsupportedError: nodrop does not support the kernel.
        """
        output = []
        for step in steps:
            try:
                output.append(_ran(step, None if self._changes(step) else BUILD_TIMEOUT_S, on_line))
            except NodropError:
                if step[:2] == ["dkms", "install"]:
                    for check in filter(_is_verify, steps):
                        proc.run_whole(check)  # removes modules that were copied in part
                raise
        return sentences("\n".join(output))

    def _changes(self, step: Sequence[str]) -> bool:
        """Whether a command changes modules, on disk or loaded, and so must not be interrupted."""
        if step[0] in ("dkms", str(self._script)):
            return True
        return Path(step[0]).name == "settle" or _is_verify(step)


def sentences(output: str) -> list[str]:
    """Return the sentences of nodrop's own scripts in the output of commands."""
    lines = (clean(line.strip()) for line in output.splitlines())
    ours = [line for line in lines if line.startswith(_PREFIX)]
    return [line.removeprefix(_PREFIX) for line in dict.fromkeys(ours)]


def _is_verify(step: Sequence[str]) -> bool:
    return Path(step[0]).name == "verify"


def _query(argv: Sequence[str]) -> proc.Completed:
    return proc.run(argv, timeout=QUERY_TIMEOUT_S)


def _ran(argv: Sequence[str], timeout: float | None, on_line: Callable[[str], None] | None) -> str:
    """Run a command and return its output; without a timeout it cannot be interrupted."""
    if timeout is None:
        done = proc.run_whole(argv, on_line=on_line)
    else:
        done = proc.run(argv, timeout=timeout, on_line=on_line)
    if done.status == 0:
        return done.output
    reason = "\n".join(sentences(done.output)) or proc.tail(done.output, 8)
    if done.status == _NOT_BUILT:
        raise UnsupportedError("nodrop does not support this kernel, which keeps its own.", reason)
    raise NodropError(f"'{shlex.join(argv)}' failed.", reason)
