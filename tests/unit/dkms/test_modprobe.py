# SPDX-License-Identifier: GPL-2.0-only
"""``dkms/modprobe.conf``: which driver modprobe takes if the kernel refuses nodrop's modules."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from dkms_tree import DKMS, STOCK
from stubs import write

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
KERNEL = "6.12.99-amd64"


@pytest.mark.skipif(not shutil.which("depmod", path=PATH), reason="needs kmod")
@pytest.mark.parametrize("tun", ["tun", "nodrop_tun"])
@pytest.mark.parametrize("asked", ["tun", "vhost_net"])
def test_stock_drivers_load_if_the_kernel_refuses_all(tmp_path: Path, tun: str, asked: str) -> None:
    """Also the core: modprobe loads what a module needs before it runs the module's command."""
    folder = tmp_path / "lib/modules" / KERNEL
    asked = tun if asked == "tun" else asked
    tree = {"nodrop": [], tun: ["nodrop"], "tap": [], "vhost_net": ["nodrop", tun, "tap"]}
    for name, needs in tree.items():
        # Not modules, so any kernel refuses them; depmod sees what they export and need.
        code = f'asm(".section __ksymtab_strings,\\"a\\"; .asciz \\"sym_{name}\\"; .previous");'
        code += "".join(f"extern int sym_{need}; int *of_{need} = &sym_{need};" for need in needs)
        file = write(folder / f"updates/dkms/{name}.ko")
        subprocess.run(["gcc", "-xc", "-c", "-", "-o", file], input=code, text=True, check=True)
    subprocess.run(["depmod", "-b", tmp_path, KERNEL], env={"PATH": PATH}, check=True)
    text = (DKMS / "modprobe.conf").read_text()
    arguments = ["-q", "-d", str(tmp_path), "-S", KERNEL, "-C", str(tmp_path / "conf")]
    text = text.replace("/sbin/modprobe", " ".join(["modprobe", *arguments]))
    text = text.replace("/sbin/insmod", f"echo >>{tmp_path}/loaded").replace("/dev/kmsg", "&2")
    write(tmp_path / "conf/zz-nodrop.conf", text)
    done = subprocess.run(["modprobe", *arguments, asked], env={"PATH": PATH}, check=False)
    assert done.returncode == 0
    file = tmp_path / "loaded"
    loaded = file.read_text() if file.exists() else ""
    names = {tun, "tap", "vhost_net"} if asked == "vhost_net" else {tun}
    # A built-in tun is there already.
    assert {name for name in STOCK if STOCK[name] in loaded} == names - {"nodrop_tun"}
