# SPDX-License-Identifier: GPL-2.0-only
"""The litmus tests, and herd7, the simulator that the kernel's memory model is written for.

Debian's newest suite has the required version; this machine's suite may have neither it nor
its C library. So herd7 is fetched with its libraries and started by their own loader. It
installs nothing on this machine.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lab.kernel import cache
from lab.kernel.apt import PrivateApt, choose
from lab.kernel.source import ensure_source
from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError
from nodrop.progress import Progress

VERSION = (7, 58)
"""Required by the memory model of Linux 7.3 (its README, "REQUIREMENTS")."""

JUDGE_TIMEOUT_S = 60.0

_PACKAGE = "herdtools7"
_RECIPE = 2
_UNPACK_TIMEOUT_S = 120.0
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_LOADER = f"{_LIBRARIES}/ld-linux-x86-64.so.2"
_PROGRAM = "usr/bin/herd7"
_MODELS = "usr/share/herdtools7/herd"
_VERDICT = re.compile(r"^Observation (\S+) (Never|Sometimes|Always) \d+ \d+$", re.MULTILINE)


@dataclass(frozen=True)
class Herd:
    """herd7 and the memory model of a kernel.

    Attributes:
        tree: the root of the unpacked packages.
        model: the kernel's ``tools/memory-model``.
    """

    tree: Path
    model: Path

    def judge(self, litmus: Path) -> str:
        """Return the model's verdict on a test: Never, Sometimes or Always.

        Raises:
            NodropError: herd7 printed no verdict: the test or the tool is broken.
        """
        command: list[str | Path] = [
            self.tree / _LOADER,
            *("--library-path", self.tree / _LIBRARIES),
            self.tree / _PROGRAM,
            *("-set-libdir", self.tree / _MODELS),
            *("-conf", "linux-kernel.cfg"),
            litmus.absolute(),
        ]
        result = proc.run(command, timeout=JUDGE_TIMEOUT_S, cwd=self.model)
        found = [
            verdict for name, verdict in _VERDICT.findall(result.output) if name == litmus.stem
        ]
        if result.status != 0 or len(found) != 1:
            raise NodropError(
                f"herd7 has no verdict on {litmus.name}.",
                "It printed:\n" + (proc.tail(result.output) or "nothing"),
            )
        return str(found[0])


def ensure_herd(progress: Progress) -> Herd:
    """Return herd7 with the memory model of the lab's kernel; fetch herd7 if it is not cached.

    Raises:
        NodropError: the mirror is unreachable, the disk is full, or a package is broken.
        UnsupportedError: no suite has this version.
    """
    model = ensure_source(progress).tree / "tools" / "memory-model"
    store = cache.Cache("herd", keep=2)

    def make(temporary: Path, _final: Path) -> None:
        state = temporary / "apt"
        state.mkdir()
        apt = PrivateApt(state, f"^{_PACKAGE}$")
        wanted = ".".join(map(str, VERSION))
        with progress.step(f"Look for herd7 {wanted} on the mirror"):
            apt.update()
            fit = [found for found in apt.candidates() if found.upstream == VERSION]
            candidate = choose(fit, VERSION)
        if candidate is None:
            raise UnsupportedError(
                f"No suite of this machine's Debian mirror has {_PACKAGE} {wanted}.",
                "The kernel's memory model needs this version; use a full Debian mirror.",
            )
        label = f"{candidate.package} {candidate.version} ({candidate.suite})"
        with progress.step(f"Fetch {label} and its libraries"):
            packages = apt.download_all(candidate)
        scratch = temporary / "scratch"
        _unpack(packages, scratch, temporary)
        for rest in (state, scratch):
            shutil.rmtree(rest)

    return Herd(store.get(cache.digest(_RECIPE, VERSION), make), model)


def _unpack(packages: Iterable[Path], scratch: Path, tree: Path) -> None:
    """Extract the program, its models and all libraries from packages.

    Raises:
        NodropError: a package is broken or lacks a file, or the disk is full.
    """
    for package in packages:
        command = ["dpkg-deb", "-x", str(package), str(scratch)]
        result = proc.run(command, timeout=_UNPACK_TIMEOUT_S)
        if result.status != 0:
            words = "dpkg-deb printed:\n" + proc.tail(result.output)
            raise NodropError(f"{package.name} could not be unpacked.", words)
    for name in (_PROGRAM, _MODELS, _LIBRARIES):
        if not (scratch / name).exists():
            raise NodropError(f"herd7's packages contain no {name}.")
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).rename(tree / name)


LITMUS = {path.stem: path for path in sorted((Path(__file__).parent / "litmus").glob("*.litmus"))}
"""The litmus tests: name -> file."""


class Twin(NamedTuple):
    """One change to a litmus test.

    Attributes:
        test: the test.
        name: of the changed test.
        why: it can fail.
        edits: text that occurs exactly once in the test's code, and its replacement.
    """

    test: str
    name: str
    why: str
    edits: list[tuple[str, str]]


_TABLE = tomllib.loads((Path(__file__).parent / "litmus/twins.toml").read_text(encoding="utf-8"))
TWINS = tuple(
    Twin(one["test"], one["name"], one["why"], [(e["old"], e["new"]) for e in one["edits"]])
    for one in _TABLE["twin"]
)


def code(test: str) -> str:
    """Return what follows the comment of a litmus test."""
    return LITMUS[test].read_text(encoding="utf-8").partition("*)\n")[2]


def twin_text(twin: Twin) -> str:
    """Return the litmus test that a twin is."""
    text = code(twin.test)
    for old, new in twin.edits:
        assert text.count(old) == 1, f"{twin.name}: {old!r} occurs {text.count(old)} times"
        text = text.replace(old, new)
    return f"C {twin.name}\n{text}"
