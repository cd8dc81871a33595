# SPDX-License-Identifier: GPL-2.0-only
"""The modules of another commit of this clone, to compare with."""

from __future__ import annotations

from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0


def resolve(commit: str) -> str:
    """Return the full hash of a commit that has modules.

    Raises:
        NodropError: this clone has no such commit, or the commit no modules.
    """
    found = git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").strip()
    if not found or not git("ls-tree", found, "kmod/Makefile"):
        raise NodropError(
            f"{commit} is no commit with modules.",
            "Name one of this clone's that has kmod/Makefile.",
        )
    return found


def unpack(commit: str, place: Path) -> Path:
    """Write a commit's modules below a new directory; return where they are.

    Raises:
        NodropError: they cannot be read or written.
    """
    place.mkdir(parents=True)
    archive = place / "kmod.tar"
    git("archive", "-o", str(archive), commit, "kmod")
    done = proc.run(["tar", "-C", str(place), "-xf", str(archive)], timeout=TIMEOUT_S)
    if done.status:
        raise NodropError(f"Cannot unpack the modules of {commit}: {proc.tail(done.output, 1)}")
    return place / "kmod"


def git(*arguments: str) -> str:
    """Run git in this clone; return its output, or "" if it fails.

    Raises:
        NodropError: git is not installed, or did not end in time.
    """
    done = proc.run(["git", "-C", str(REPOSITORY), *arguments], timeout=TIMEOUT_S)
    return "" if done.status else done.output
