# SPDX-License-Identifier: GPL-2.0-only
"""Where a guest's modules are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.guest.modules import ModuleFiles


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The modules of a Debian root, compressed as newer ones are."""
    names = (
        "kernel/drivers/net/tun.ko.xz",
        "kernel/drivers/net/tunnel.ko.xz",
        "updates/dkms/tun.ko.xz",
        "updates/dkms/nodrop.ko",
    )
    for name in names:
        path = tmp_path / "installed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "installed"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("stock/tun.ko", "kernel/drivers/net/tun.ko.xz"),
        ("nodrop/tun.ko", "updates/dkms/tun.ko.xz"),
        ("nodrop/nodrop.ko", "updates/dkms/nodrop.ko"),
        ("stock/nodrop.ko", None),
        ("kreader.ko", None),
    ],
)
def test_installed(tmp_path: Path, installed: Path, name: str, wanted: str | None) -> None:
    found = ModuleFiles(tmp_path, installed).find(name)
    assert found == (installed / wanted if wanted else None)


def test_the_labs_folder_comes_first(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "stock").mkdir()
    (tmp_path / "stock/tun.ko").touch()
    files = ModuleFiles(tmp_path, installed)
    assert files.find("stock/tun.ko") == tmp_path / "stock/tun.ko"
    assert files.find("stock/vhost.ko") is None
    assert files.find("nodrop/tun.ko") == installed / "updates/dkms/tun.ko.xz"
