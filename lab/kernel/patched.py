# SPDX-License-Identifier: GPL-2.0-only
"""Kernel source trees with this repository's patches: copies that share all unpatched files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from lab.kernel import cache
from lab.kernel.linux_source import Source
from nodrop import proc
from nodrop.errors import NodropError
from nodrop.progress import Progress

REPOSITORY = Path(__file__).resolve().parents[2]
KEEP = 6
_TIMEOUT_S = 300.0


def patches(folders: tuple[str, ...]) -> list[Path]:
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


def fingerprint(folders: tuple[str, ...]) -> str:
    """Return a hash of the patches without their messages."""
    texts = [path.read_text(encoding="utf-8") for path in patches(folders)]
    return cache.digest([text[max(0, text.find("\ndiff --git ")) :] for text in texts])


def ensure_patched(source: Source, folders: tuple[str, ...], progress: Progress) -> Source:
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
            _run(["cp", "-al", str(source.tree), str(copy)], "Cannot copy the kernel's source.")
            for path in patches(folders):
                argv = ["git", "apply", "--whitespace=nowarn", str(path)]
                _run(argv, f"{path.name} does not apply to {source.package}.", copy)

    entry = cache.Cache("patched", keep=KEEP).get(f"linux-{key}", make)
    return replace(source, tree=entry / "linux")


def _run(argv: list[str], wrong: str, cwd: Path | None = None) -> None:
    # git must not find a repository above the cache.
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(cwd.parent)} if cwd else None
    result = proc.run(argv, timeout=_TIMEOUT_S, cwd=cwd, env=env)
    if result.status != 0:
        raise NodropError(wrong, "Its tools printed:\n" + proc.tail(result.output, 8))
