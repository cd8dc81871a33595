# SPDX-License-Identifier: GPL-2.0-only
"""Where a Debian root comes from and which kernel in it is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.errors import NodropError
from nodrop.lab import roots
from nodrop.lab.roots import Release, Root, sources_of

URIS = """\
'http://one.test/debian/dists/bookworm/InRelease' one.test_debian_dists_bookworm_InRelease 0
'http://one.test/debian/dists/bookworm-updates/InRelease' x 0
'http://two.test/debian-security/dists/bookworm-security/InRelease' y 0
'https://three.test/apt/dists/nodistro/InRelease' z 0
"""


def places(lines: list[str]) -> list[str]:
    return [line.split("] ")[1] for line in lines]


def test_sources_of_the_own_release() -> None:
    assert places(sources_of(URIS, "bookworm", "bookworm", backports=False)) == [
        "http://one.test/debian bookworm main",
        "http://one.test/debian bookworm-updates main",
        "http://two.test/debian-security bookworm-security main",
    ]


def test_sources_of_another_release_come_from_the_same_mirrors() -> None:
    assert places(sources_of(URIS, "bookworm", "trixie", backports=True)) == [
        "http://one.test/debian trixie-backports main",
        "http://one.test/debian trixie main",
        "http://one.test/debian trixie-updates main",
        "http://two.test/debian-security trixie-security main",
    ]


def test_sources_are_signed() -> None:
    lines = sources_of(URIS, "bookworm", "trixie", backports=True)
    assert all("[signed-by=/" in line for line in lines)


def test_no_mirror_no_sources() -> None:
    assert sources_of("", "bookworm", "trixie", backports=True) == []


def root_with(place: Path, *kernels: str) -> Root:
    for kernel in kernels:
        (place / "lib/modules" / kernel).mkdir(parents=True)
    return Root(place, place / "none", "key")


def test_the_newest_kernel_of_a_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = root_with(tmp_path, "6.1.0-9-amd64", "6.1.0-56-amd64", "6.12.117+deb12-amd64")

    def have(_release: Release, _progress: object) -> Root:
        return root

    monkeypatch.setattr(roots, "ensure_root", have)
    kernel = roots.ensure_kernel("6.1", None)  # type: ignore[arg-type]
    assert kernel.release == "6.1.0-56-amd64"
    assert kernel.vmlinuz == tmp_path / "boot/vmlinuz-6.1.0-56-amd64"
    assert roots.ensure_kernel("6.12", None).release == "6.12.117+deb12-amd64"  # type: ignore[arg-type]


def test_a_root_without_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = root_with(tmp_path, "6.12.117+deb12-amd64")
    monkeypatch.setattr(roots, "ensure_root", lambda _release, _progress: root)
    with pytest.raises(NodropError, match=r"has no kernel 6\.1"):
        roots.ensure_kernel("6.1", None)  # type: ignore[arg-type]


def test_unknown_kernels_are_told_with_the_known() -> None:
    with pytest.raises(NodropError, match=r"6\.1, 6\.12"):
        roots.ensure_kernel("2.6", None)  # type: ignore[arg-type]
