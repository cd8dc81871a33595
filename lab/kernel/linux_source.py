# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's source tree: the newest on the mirror, fetched once and kept in the cache."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.kernel import cache
from lab.kernel.apt import Candidate, PrivateApt, choose
from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError
from nodrop.progress import Progress

MINIMUM = (6, 19)
"""The first release in which UML supports several CPUs."""

_PATTERN = r"^linux-source-[0-9.]+$"
_RECIPE = 2
_UNPACK_TIMEOUT_S = 600.0

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
        checksum = apt.sha256(candidate)
        with progress.step(f"Fetch {label}"):
            deb = apt.download(candidate)
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
