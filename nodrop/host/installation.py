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
from nodrop.signals import deferred

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
        which += ["-k", self.kernel]
        state = _query(["dkms", "status", *which]).output
        if given:
            steps.append([str(tree / "fit"), "--source", *given, self.kernel])
            if "built" in state or "installed" in state:
                # Otherwise DKMS would keep what it has built before.
                steps.append(["dkms", "remove", *which])
        if given or "installed" not in state:
            steps.append(["dkms", "install", *which])
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
        left = (
            "usr/local/bin/nodrop",
            "usr/local/lib/nodrop",
            "usr/src/nodrop-[0-9]*",
            "lib/modules/*/updates/**/nodrop.ko*",
        )
        if not any(any(self._root.glob(pattern)) for pattern in left):
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
                lines += _checked(step, _query([step[0], "-n", *step[1:]])).splitlines()
            else:
                lines.append(shlex.join(step))
        return lines

    def run(
        self, steps: Sequence[Sequence[str]], on_line: Callable[[str], None]
    ) -> tuple[list[str], bool]:
        """Run the commands in order.

        A signal ends those that come before the first one that changes modules, on disk or loaded.
        From that one on it is deferred, so that the modules are checked and what to restart is
        reported.

        Args:
            on_line: called with each line of output.

        Returns:
            The sentences of nodrop's own scripts, and whether a signal was deferred.

        Raises:
            NodropError: a command failed; the hint is its message.
            UnsupportedError: nodrop does not support the kernel.
        """
        before = [step for step in steps if step[1] == "add" or _is(step, "fit")]
        output = [_ran(step, on_line) for step in before]
        with deferred() as interrupted:
            for step in steps[len(before) :]:
                try:
                    output.append(_ran(step, on_line))
                except NodropError:
                    if step[:2] == ["dkms", "install"]:
                        for check in (one for one in steps if _is(one, "verify")):
                            proc.run_whole(check)  # removes modules that were copied in part
                    raise
        return sentences("\n".join(output)), interrupted()


def sentences(output: str) -> list[str]:
    """Return the sentences of nodrop's own scripts in the output of commands."""
    lines = (clean(line.strip()) for line in output.splitlines())
    ours = [line for line in lines if line.startswith(_PREFIX)]
    return [line.removeprefix(_PREFIX) for line in dict.fromkeys(ours)]


def reason(output: str) -> str:
    """Return why a command failed: its sentences, or its last lines."""
    return "\n".join(sentences(output)) or proc.tail(output, 8)


def _is(step: Sequence[str], script: str) -> bool:
    return Path(step[0]).name == script


def _query(argv: Sequence[str]) -> proc.Completed:
    return proc.run(argv, timeout=QUERY_TIMEOUT_S)


def _ran(step: Sequence[str], on_line: Callable[[str], None]) -> str:
    """Run a command and return its output; only a build can be interrupted."""
    if _is(step, "fit"):
        return _checked(step, proc.run(step, timeout=BUILD_TIMEOUT_S, on_line=on_line))
    return _checked(step, proc.run_whole(step, on_line=on_line))


def _checked(step: Sequence[str], done: proc.Completed) -> str:
    """Return the output of a command, or raise its error."""
    if done.status == 0:
        return done.output
    why = reason(done.output)
    if done.status == _NOT_BUILT or _is(step, "fit"):
        raise UnsupportedError("nodrop does not support this kernel, which keeps its own.", why)
    raise NodropError(f"'{shlex.join(step)}' failed.", why)
