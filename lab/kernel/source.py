# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's source tree: the newest on the mirror, fetched once and kept in the cache.

Trees with this repository's patches are copies that share all unpatched files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lab.kernel import cache
from lab.kernel.apt import Candidate, PrivateApt, choose
from lab.sources import REPOSITORY
from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError
from nodrop.progress import Progress

MINIMUM = (6, 19)
"""The first release in which UML supports several CPUs."""

_PATTERN = r"^linux-source-[0-9.]+$"
_RECIPE = 2
_UNPACK_TIMEOUT_S = 600.0
_PATCH_TIMEOUT_S = 300.0

# Never built for UML, and two thirds of the source. Kconfig files and makefiles stay, because they
# include each other.
_LEFT_OUT = (
    *("arch/[!ux]*", "arch/xtensa", "Documentation", "samples", "sound", "rust"),
    *("tools/perf", "tools/testing", "drivers/accel", "drivers/clk", "drivers/crypto"),
    *("drivers/gpu", "drivers/iio", "drivers/infiniband", "drivers/media"),
    *("drivers/net/ethernet", "drivers/net/wireless", "drivers/pinctrl", "drivers/platform"),
    *("drivers/scsi", "drivers/staging", "drivers/usb", "drivers/video"),
)
_LEFT_OUT_SUFFIXES = ("c", "h", "S", "dts", "dtsi", "dtso", "rst", "yaml", "rs", "txt", "json")


@dataclass(frozen=True)
class Source:
    """A source tree and its origin.

    Attributes:
        tree: its directory; never written to.
        package: Debian package, version and suite, to be displayed.
        sha256: of the package's file.
    """

    tree: Path
    package: str
    sha256: str


def ensure_source(progress: Progress) -> Source:
    """Return the source tree, fetched if the cache has none.

    It stays until the cache is removed, so a new version on the mirror does not change results
    between two runs.

    Raises:
        NodropError: the mirror, the disk or the package failed.
        UnsupportedError: no suite has a kernel that is new enough.
    """
    store = cache.Cache("sources", keep=2)
    if chosen := find_source():
        return chosen

    def make(temporary: Path, final: Path) -> None:
        state = temporary / "apt"
        state.mkdir()
        apt = PrivateApt(state, _PATTERN)
        with progress.step("Look for the newest kernel on the mirror"):
            apt.update()
            candidate = choose(apt.candidates(), MINIMUM)
        if candidate is None:
            wanted = ".".join(map(str, MINIMUM))
            raise UnsupportedError(
                f"No suite of this machine's Debian mirror has linux-source {wanted} or newer.",
                "UML needs it for several CPUs; use a complete Debian mirror.",
            )
        label = f"{candidate.package} {candidate.version} ({candidate.suite})"
        with progress.step(f"Fetch {label}"):
            deb = apt.download(candidate)
        with deb.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        with progress.step("Unpack the kernel's source"):
            _unpack(deb, candidate, temporary / "linux")
        proc.run(["rm", "-rf", state], timeout=60.0)
        source = Source(final / "linux", label, checksum)
        record = asdict(source) | {"tree": str(source.tree)}
        (temporary / "source.json").write_text(json.dumps(record, indent=1), encoding="utf-8")

    store.get(f"linux-{_RECIPE}", make)
    source = find_source()
    assert source is not None
    return source


def find_source() -> Source | None:
    """Return the source that an earlier run fetched; None if there is none."""
    entry = cache.Cache("sources", keep=2).find(f"linux-{_RECIPE}")
    if entry is None:
        return None
    record = json.loads((entry / "source.json").read_text(encoding="utf-8"))
    return Source(Path(record["tree"]), record["package"], record["sha256"])


def _unpack(deb: Path, candidate: Candidate, tree: Path) -> None:
    """Unpack the source in a linux-source package into a directory.

    Raises:
        NodropError: the package has another form than expected, or the disk is full.
    """
    tree.mkdir()
    tarball = f"./usr/src/{candidate.package}.tar.xz"
    top = candidate.package
    patterns = [f"--exclude={top}/{d}/*.{s}" for d in _LEFT_OUT for s in _LEFT_OUT_SUFFIXES]
    stages = [
        ["dpkg-deb", "--fsys-tarfile", str(deb)],
        ["tar", "-xO", tarball],
        ["xz", "-dc", f"-T{os.cpu_count() or 1}"],
        [
            "tar",
            "-x",
            "--strip-components=1",
            "--anchored",
            "--wildcards",
            *patterns,
            "-C",
            str(tree),
        ],
    ]
    for tool, package in (("dpkg-deb", "dpkg"), ("xz", "xz-utils"), ("tar", "tar")):
        proc.require(tool, package)
    script = "set -o pipefail; " + " | ".join(shlex.join(stage) for stage in stages)
    result = proc.run(["bash", "-c", script], timeout=_UNPACK_TIMEOUT_S)
    if result.status != 0:
        if cache.free_bytes(tree) < 64 << 20:
            raise cache.full(tree)
        raise NodropError(
            f"Cannot unpack {deb.name}.", "Its tools printed:\n" + proc.tail(result.output, 8)
        )
    if not (tree / "arch/um/Kconfig").exists():
        raise NodropError(f"{deb.name} lacks the source of User-Mode Linux.")


def patches(folders: Sequence[str]) -> list[Path]:
    """Return a flavour's patches in order: ``NNNN-*.patch`` of each directory.

    Args:
        folders: relative to the repository; cover letters (``0000-``) are left out.

    Raises:
        NodropError: the directories have no patches.
    """
    found: list[Path] = []
    for folder in folders:
        inside = sorted((REPOSITORY / folder).glob("[0-9][0-9][0-9][0-9]-*.patch"))
        found += [path for path in inside if not path.name.startswith("0000-")]
    if folders and not found:
        raise NodropError(
            f"There are no patches in {', '.join(folders)}.",
            "Run nodrop from a complete clone of its repository.",
        )
    return found


def fingerprint(folders: Sequence[str]) -> str:
    """Return a hash of the patches without their messages."""
    texts = [path.read_text(encoding="utf-8") for path in patches(folders)]
    return cache.digest([text[max(0, text.find("\ndiff --git ")) :] for text in texts])


def ensure_patched(source: Source, folders: Sequence[str], progress: Progress) -> Source:
    """Return the patched source; the source itself if there are no patches.

    Raises:
        NodropError: a patch does not apply.
    """
    if not folders:
        return source
    key = cache.digest(source.sha256, str(source.tree), fingerprint(folders))

    def make(temporary: Path, _final: Path) -> None:
        with progress.step(f"Patch the kernel's source ({', '.join(folders)})"):
            copy = temporary / "linux"
            # Hard links: git apply replaces the files that it changes, all others stay shared.
            _checked(["cp", "-al", str(source.tree), str(copy)], "Cannot copy the kernel's source.")
            apply(patches(folders), copy)

    entry = cache.Cache("patched", keep=8).get(f"linux-{key}", make)
    return replace(source, tree=entry / "linux")


def apply(files: Sequence[Path], tree: Path) -> None:
    """Apply patches, but to what the lab's sources lack: documentation and tests.

    Raises:
        NodropError: one does not apply.
    """
    left_out = ("--exclude=Documentation/*", "--exclude=tools/testing/*")
    for path in files:
        argv = ["git", "apply", "--whitespace=nowarn", *left_out, str(path)]
        _checked(argv, f"{path.name} does not apply to {tree}.", tree)


def _checked(argv: list[str], wrong: str, cwd: Path | None = None) -> None:
    # git must not find a repository above the cache.
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(cwd.parent)} if cwd else None
    result = proc.run(argv, timeout=_PATCH_TIMEOUT_S, cwd=cwd, env=env)
    if result.status != 0:
        raise NodropError(wrong, "Its tools printed:\n" + proc.tail(result.output, 8))
