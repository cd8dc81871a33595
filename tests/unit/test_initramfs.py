# SPDX-License-Identifier: GPL-2.0-only
"""Which modules a Debian guest's first process loads, in which order."""

from __future__ import annotations

import gzip
import lzma
import shutil
import subprocess
from pathlib import Path

import pytest

from nodrop.errors import NodropError
from nodrop.lab import initramfs

DEP = """\
kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz
kernel/net/9p/9pnet.ko.xz: kernel/fs/netfs/netfs.ko.xz
kernel/fs/netfs/netfs.ko.xz:
kernel/fs/overlayfs/overlay.ko.xz:
kernel/drivers/virtio/virtio-blk.ko.xz: kernel/drivers/virtio/virtio.ko.xz
kernel/drivers/virtio/virtio.ko.xz:
"""


def test_what_a_module_needs_comes_first_and_once() -> None:
    order = initramfs.load_order(DEP, ["virtio_blk", "9p", "overlay"])
    assert [initramfs.module_name(path) for path in order] == [
        "virtio",
        "virtio_blk",
        "netfs",
        "9pnet",
        "9p",
        "overlay",
    ]


def test_modules_built_into_the_kernel_are_left_out() -> None:
    assert initramfs.load_order(DEP, ["squashfs"]) == []


def modules_folder(place: Path) -> Path:
    (place / "kernel/fs/overlayfs").mkdir(parents=True)
    (place / "modules.dep").write_text("kernel/fs/overlayfs/overlay.ko.xz:\n")
    (place / "kernel/fs/overlayfs/overlay.ko.xz").write_bytes(lzma.compress(b"overlay's code"))
    return place


@pytest.mark.skipif(
    not initramfs.BUSYBOX.exists() or not shutil.which("cpio"), reason="needs busybox-static, cpio"
)
def test_the_disk_holds_init_shell_modules_and_plan(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    disk = initramfs.pack(modules_folder(tmp_path / "modules"), "set -- true\n", scratch)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(
        ["cpio", "-i", "--quiet"],
        input=gzip.decompress(disk.read_bytes()),
        cwd=unpacked,
        check=True,
    )
    assert (unpacked / "lab/overlay.ko").read_bytes() == b"overlay's code"
    assert (unpacked / "lab/modules").read_text() == "overlay.ko\n"
    assert (unpacked / "lab/plan").read_text() == "set -- true\n"
    assert (unpacked / "init").stat().st_mode & 0o111
    assert (unpacked / "bin/busybox").stat().st_mode & 0o111


def test_no_busybox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initramfs, "BUSYBOX", tmp_path / "busybox")
    with pytest.raises(NodropError, match="apt-get install busybox-static"):
        initramfs.pack(tmp_path, "", tmp_path)
