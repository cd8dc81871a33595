# SPDX-License-Identifier: GPL-2.0-only
"""The initramfs of a Debian guest: busybox, the modules for its disks, and its plan."""

from __future__ import annotations

import gzip
import lzma
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError

INIT = Path(__file__).with_name("debian-init")
BUSYBOX = Path("/bin/busybox")
WANTED = ("virtio_pci", "virtio_blk", "squashfs", "overlay", "9pnet_virtio", "9p")
"""Modules that the guest's root needs; those built into the kernel are skipped."""

PACK_TIMEOUT_S = 60.0


def load_order(dep: str, wanted: Sequence[str]) -> list[str]:
    """Return the files of modules and of their dependencies, in load order.

    Args:
        dep: the text of modules.dep.
        wanted: names of modules; names without a file are skipped.
    """
    needs = dict(line.split(":", 1) for line in dep.splitlines() if ":" in line)
    files = {module_name(path): path for path in needs}
    order: list[str] = []
    for name in wanted:
        if path := files.get(name):
            # modules.dep lists the module to load first last.
            order += [*reversed(needs[path].split()), path]
    return list(dict.fromkeys(order))


def module_name(path: str) -> str:
    """Return the name by which the kernel knows a module's file."""
    return path.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def pack(modules: Path, plan: str, scratch: Path) -> Path:
    """Build an initramfs; return its file.

    Args:
        modules: the kernel's directory in /lib/modules.
        plan: the shell text for debian-init.
        scratch: an empty directory for the file.

    Raises:
        NodropError: busybox or cpio is missing.
    """
    if not BUSYBOX.exists():
        raise NodropError(
            f"{BUSYBOX} is missing.", "Install it with: apt-get install busybox-static"
        )
    tree = scratch / "initramfs"
    for folder in ("bin", "lab"):
        (tree / folder).mkdir(parents=True)
    shutil.copy(BUSYBOX, tree / "bin")
    (tree / "bin/sh").symlink_to("busybox")
    shutil.copy(INIT, tree / "init")
    (tree / "init").chmod(0o755)
    order = load_order((modules / "modules.dep").read_text(encoding="utf-8"), WANTED)
    for path in order:
        (tree / "lab" / f"{module_name(path)}.ko").write_bytes(_plain(modules / path))
    names = "".join(f"{module_name(path)}.ko\n" for path in order)
    (tree / "lab/modules").write_text(names, encoding="utf-8")
    (tree / "lab/plan").write_text(plan, encoding="utf-8")
    listing = b"".join(bytes(p.relative_to(tree)) + b"\0" for p in sorted(tree.rglob("*")))
    packed = subprocess.run(
        [proc.require("cpio", "cpio"), "--null", "--create", "--format=newc", "--quiet"],
        input=listing,
        cwd=tree,
        stdout=subprocess.PIPE,
        check=True,
        timeout=PACK_TIMEOUT_S,
    ).stdout
    result = scratch / "initramfs.gz"
    result.write_bytes(gzip.compress(packed, 1))
    return result


def _plain(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data
