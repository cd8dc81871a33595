# SPDX-License-Identifier: GPL-2.0-only
"""The life of the packages: installed, upgraded, removed; and make install without them."""

from __future__ import annotations

import pytest

from packages.conftest import build
from packages.root import Root

KERNELS = ("6.1.0-56-amd64", "6.12.117+deb12-amd64")


def symbols(root: Root, command: str) -> dict[str, str]:
    """Return name -> CRC from what modprobe prints."""
    lines = (line.split() for line in root.succeed(command).splitlines())
    return {name: crc for crc, name in lines}


@pytest.fixture(scope="module")
def installed(root: Root) -> Root:
    packages = [path for path in build() if "dkms" in path]
    root.succeed(f"dpkg -i {' '.join(packages)}", 580)
    return root


@pytest.mark.parametrize("kernel", KERNELS)
def test_ours_is_found(installed: Root, kernel: str) -> None:
    for name in ("nodrop", "tun", "vhost_net"):
        assert "/updates/dkms/" in installed.module(kernel, name)
    assert installed.succeed(f"modinfo -k {kernel} -F version vhost_net").strip() == "0.3.0"


@pytest.mark.parametrize("kernel", KERNELS)
def test_stock_vhost_net_finds_what_it_asks_for(installed: Root, kernel: str) -> None:
    """By the CRCs in the files themselves: the mixed pair loads."""
    stock = f"/lib/modules/{kernel}/kernel/drivers/vhost/vhost_net.ko*"
    asks = symbols(installed, f"modprobe -S {kernel} --dump-modversions {stock}")
    tun = installed.module(kernel, "tun")
    has = symbols(installed, f"modprobe -S {kernel} --show-exports {tun}")
    assert {"tun_get_socket", "tun_get_tx_ring"} <= has.keys()
    assert {name: asks[name] for name in has} == has


@pytest.mark.parametrize("kernel", KERNELS)
def test_modules_resolve(installed: Root, kernel: str) -> None:
    chain = installed.succeed(f"modprobe -S {kernel} --show-depends vhost_net")
    for ours in ("nodrop", "tun", "vhost_net"):
        assert f"/lib/modules/{kernel}/updates/dkms/{ours}.ko" in chain
    assert f"/lib/modules/{kernel}/kernel/drivers/vhost/vhost.ko" in chain
    for neighbour in ("vhost_vsock", "macvtap", "ipvtap"):
        installed.succeed(f"modprobe -S {kernel} --show-depends {neighbour}")


@pytest.mark.parametrize("kernel", KERNELS)
def test_signed_and_built_for_the_kernel(installed: Root, kernel: str) -> None:
    ours = installed.succeed(f"modinfo -k {kernel} -F vermagic tun")
    stock = installed.succeed(
        f"modinfo -F vermagic /lib/modules/{kernel}/kernel/drivers/net/tun.ko*"
    )
    assert ours == stock
    assert (
        installed.succeed(f"modinfo -k {kernel} -F signer tun").strip() == "DKMS module signing key"
    )


def test_make_install_leaves_packages_alone(installed: Root) -> None:
    done = installed.run(f"make -C /nodrop install KVER={KERNELS[0]}")
    assert done.returncode != 0
    assert "nodrop-dkms is installed" in done.stderr


def test_upgrade_and_purge(installed: Root) -> None:
    packages = [path for path in build("0.3.1~test1") if "dkms" in path]
    installed.succeed(f"dpkg -i {' '.join(packages)}", 580)
    for kernel in KERNELS:
        version = installed.succeed(f"modinfo -k {kernel} -F version tun").strip()
        assert version == "0.3.1~test1"
    assert installed.succeed("dkms status").count("nodrop/0.3.0") == 0
    installed.succeed("dpkg --purge nodrop-dkms")
    for kernel in KERNELS:
        for name in ("tun", "vhost_net"):
            assert "/kernel/drivers/" in installed.module(kernel, name)
        assert installed.run(f"modinfo -k {kernel} -n nodrop").returncode != 0
    installed.succeed("test ! -e /var/cache/nodrop -a ! -e /var/log/nodrop")
    installed.succeed('test -z "$(ls -d /usr/src/nodrop-* /var/lib/dkms/nodrop 2>/dev/null)"')


def test_make_install(installed: Root) -> None:
    kernel = KERNELS[0]
    install = f"make -s -C /nodrop install KVER={kernel}"
    assert f"is installed for kernel {kernel}" in installed.succeed(install)
    assert "/updates/dkms/" in installed.module(kernel, "tun")
    assert installed.succeed(install) == ""
    assert "is removed" in installed.succeed("make -s -C /nodrop uninstall")
    assert "/kernel/drivers/" in installed.module(kernel, "tun")
    assert installed.succeed("make -s -C /nodrop uninstall") == ""


def test_make_install_from_a_given_source(installed: Root) -> None:
    kernel = KERNELS[0]
    installed.succeed(
        "mkdir /var/tree; tar -C /var/tree -xJf /usr/src/linux-source-6.1.tar.xz --wildcards "
        "--strip-components=1 '*/Makefile' '*/drivers/net/tun.c' '*/drivers/vhost/*'; "
        "mv /usr/src/linux-source-6.1.tar.xz /var/"
    )
    installed.succeed(f"make -s -C /nodrop install KVER={kernel} SOURCE=/var/tree")
    assert "/updates/dkms/" in installed.module(kernel, "tun")
    installed.succeed("make -s -C /nodrop uninstall")
