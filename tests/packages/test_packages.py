# SPDX-License-Identifier: GPL-2.0-only
"""The packages, installed, upgraded and removed; and make install without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.sources import REPOSITORY
from nodrop.host.modules import REPLACED
from packages.conftest import WritableRoot, build

OLDER, NEWER = range(2)
"""Indexes of the root's kernels."""
VERSION = (REPOSITORY / "kmod/VERSION").read_text().strip()
KEPT = "echo \"# Made by 'nodrop set', which changes it.\""


def dkms_of(packages: list[Path]) -> Path:
    (found,) = (path for path in packages if path.name.startswith("nodrop-dkms_"))
    return found


@pytest.fixture(scope="module")
def installed(root: WritableRoot) -> WritableRoot:
    root.succeed(f"dpkg -i {dkms_of(build())}", 580)
    return root


@pytest.mark.parametrize("which", [OLDER, NEWER])
def test_modules_are_found_signed_and_match_the_kernel(installed: WritableRoot, which: int) -> None:
    kernel = installed.releases[which]
    for name in ("nodrop", *REPLACED):
        assert "/updates/dkms/" in installed.module(kernel, name)
    assert installed.succeed(f"modinfo -k {kernel} -F version vhost_net").strip() == VERSION
    stock = f"/lib/modules/{kernel}/kernel/drivers/net/tun.ko*"
    ours = installed.succeed(f"modinfo -k {kernel} -F vermagic tun")
    assert ours == installed.succeed(f"modinfo -F vermagic {stock}")
    signer = installed.succeed(f"modinfo -k {kernel} -F signer tun").strip()
    assert signer == "DKMS module signing key"


def test_make_install_refuses_beside_the_package(installed: WritableRoot) -> None:
    done = installed.run(f"make -C {REPOSITORY} install KVER={installed.releases[OLDER]}")
    assert done.status != 0
    assert "nodrop-dkms" in done.output


def nodrop(root: WritableRoot, words: str, status: int = 0) -> str:
    """Run the command from this clone; check its exit status and return its output."""
    done = root.run(f"PYTHONPATH={REPOSITORY} python3 -m nodrop -q {words}", 580)
    assert done.status == status, done.output
    assert "Traceback" not in done.output
    return done.output


def state(root: WritableRoot) -> str:
    """Return names, times and sizes of all files that an installation may change."""
    places = "/lib/modules /usr/src /usr/local /etc /var/lib/dkms /var/cache /var/log"
    return root.succeed(f"find {places} -printf '%p %T@ %s\\n' 2>/dev/null | sort; true")


def test_the_command_and_the_package(installed: WritableRoot) -> None:
    kernel = installed.releases[OLDER]
    assert "apt purge nodrop-dkms" in nodrop(installed, "uninstall", 4)
    installed.succeed(f"dkms uninstall -m nodrop -v {VERSION} -k {kernel}")
    assert "/kernel/drivers/" in installed.module(kernel, "tun")
    before = state(installed)
    assert "dkms install" in nodrop(installed, f"install --kernel {kernel} --dry-run")
    assert state(installed) == before
    nodrop(installed, f"install --kernel {kernel}")
    assert "/updates/dkms/" in installed.module(kernel, "tun")


REMADE = r"""mkdir -p /tmp/cut; touch /boot/initrd.img-6.99; export PATH=/tmp/cut:$PATH
printf '#!/bin/sh\necho /tun.ko\n' >/tmp/cut/lsinitramfs
printf '#!/bin/sh\necho "$@" >>/tmp/remade\n' >/tmp/cut/update-initramfs
chmod 755 /tmp/cut/*
"""
"""Fake an initial RAM disk that contains tun.ko."""


def removal_fails(root: WritableRoot, command: str) -> None:
    """Remove nodrop while the newer kernel's tun is missing: all else is done, with advice."""
    kernel = root.releases[NEWER]
    folder = f"/lib/modules/{kernel}/kernel/drivers/net"
    done = root.run(
        f"{REMADE} mv {folder}/tun.ko* /var/; {command}; s=$?; "
        f"mv /var/tun.ko* {folder}/; rm /boot/initrd.img-6.99; cat /tmp/remade; exit $s"
    )
    assert done.status != 0
    assert kernel in done.output
    assert "--reinstall linux-image-" in done.output
    assert "-u -k 6.99" in done.output, "the initial RAM disk is made again"


def test_removal_notices_a_missing_tun(installed: WritableRoot) -> None:
    removal_fails(installed, "dpkg --purge nodrop-dkms")
    installed.succeed(f"dpkg --purge nodrop-dkms; dpkg -i {dkms_of(build())}", 580)


def test_failed_upgrade(installed: WritableRoot) -> None:
    """dpkg calls the old package's scripts: prerm, and then postinst."""
    scripts, call = "/var/lib/dpkg/info/nodrop-dkms", "upgrade 99"
    installed.succeed(f"{scripts}.prerm {call}; {scripts}.postinst abort-{call}", 580)
    for kernel in installed.releases:
        assert "/updates/dkms/" in installed.module(kernel, "tun")


def test_upgrade_and_purge(installed: WritableRoot) -> None:
    # As left by a version without tap.
    installed.succeed("rm -v $(ls -d /var/cache/nodrop/sources/*/drivers/net/tap.c | head -n 1)")
    installed.succeed(f"dpkg -i {dkms_of(build(f'{VERSION}.1'))}", 580)
    for kernel in installed.releases:
        version = installed.succeed(f"modinfo -k {kernel} -F version tun").strip()
        assert version == f"{VERSION}.1"
    assert installed.succeed("dkms status").count(f"nodrop/{VERSION},") == 0
    conf = "/etc/modprobe.d/zz-nodrop-set.conf"
    fallback = "/usr/lib/modprobe.d/zz-nodrop.conf"
    installed.succeed(f"{KEPT} >{conf}; test -e {fallback}")
    installed.succeed(f"dpkg --purge nodrop-dkms; test ! -e {conf} -a ! -e {fallback}")
    for kernel in installed.releases:
        for name in REPLACED:
            assert "/kernel/drivers/" in installed.module(kernel, name)
        assert installed.run(f"modinfo -k {kernel} -n nodrop").status != 0
    installed.succeed("test ! -e /var/cache/nodrop -a ! -e /var/log/nodrop")
    installed.succeed('test -z "$(ls -d /usr/src/nodrop-* /var/lib/dkms/nodrop 2>/dev/null)"')


@pytest.fixture
def bare(installed: WritableRoot) -> WritableRoot:
    installed.succeed("dpkg --purge nodrop-dkms")
    return installed


def test_make_install(bare: WritableRoot) -> None:
    kernel = bare.releases[OLDER]
    install = f"make -s -C {REPOSITORY} install KVER={kernel}"
    assert kernel in bare.succeed(install)
    assert "/updates/dkms/" in bare.module(kernel, "tun")
    page = "/usr/local/share/doc/nodrop/docs/guide.md"
    bare.succeed(f"test -f {page} -a -f /usr/local/lib/systemd/system/nodrop-qdisc.service")
    bare.succeed("test -f /etc/modprobe.d/zz-nodrop.conf")
    assert bare.succeed(install) == ""
    # nodrop was never installed for the newer kernel.
    removal_fails(bare, f"make -s -C {REPOSITORY} uninstall")
    assert "/kernel/drivers/" in bare.module(kernel, "tun")
    assert bare.succeed(f"make -s -C {REPOSITORY} uninstall") == ""
    bare.succeed("test ! -e /usr/local/share/doc/nodrop -a ! -e /etc/modprobe.d/zz-nodrop.conf")
    bare.succeed('test -z "$(ls /usr/local/lib/systemd/system 2>/dev/null)"')


STATUSES = {
    "status": (0,),
    "doctor": (0, 3),
    "top --count 1": (0,),
    "drops tun0": (1,),
    "set --now tun0 backpressure on": (1,),
}
"""Commands -> exit statuses, in a root without devices, nodrop's module or /sys."""


def test_package_of_the_command(debian: WritableRoot) -> None:
    """It has no further dependencies; documents are not compressed, and links are valid."""
    (package,) = (path for path in build() if path.name.startswith("nodrop_"))
    debian.succeed(f"dpkg -i {package}")
    for words, statuses in STATUSES.items():
        done = debian.run(f"nodrop {words}")
        assert done.status in statuses, f"{words}\n{done.output}"
        assert "bug in nodrop" not in done.output
    doc = "/usr/share/doc/nodrop"
    debian.succeed(f"test -f {doc}/README.md -a -f {doc}/docs/guide.md -a -f {doc}/docs/testing.md")
    units = "/usr/lib/systemd/system/nodrop-"
    debian.succeed(f"test -f {units}export.timer -a -f {units}qdisc.service")
    if debian.run("command -v systemctl").status == 0:  # not in Debian 12's root
        for unit in ("nodrop-export.timer", "nodrop-qdisc.service"):
            assert debian.run(f"systemctl is-enabled {unit}").output.strip() == "disabled"
        debian.succeed(
            f"systemd-analyze verify --man=no {units}export.service {units}qdisc.service"
        )
        debian.succeed("systemctl enable nodrop-qdisc.service")
    debian.succeed("nodrop --version; ls /usr/share/man/man1/nodrop-status.1.gz")
    debian.succeed("ls /usr/share/man/man8/nodrop-set.8.gz")
    debian.succeed("test -f /usr/share/bash-completion/completions/nodrop")
    debian.succeed("mkdir -p /etc/udev/rules.d")
    debian.succeed(f"{KEPT} >/etc/udev/rules.d/81-nodrop-set.rules")
    debian.succeed("touch /etc/nodrop-qdisc.conf")
    left = f"find /etc /usr /var -path {REPOSITORY} -prune -o -name '*nodrop*' -print"
    assert debian.succeed(f"dpkg --purge nodrop >/dev/null; {left}") == "", "removal leaves nothing"


def test_the_command_installs_and_removes(bare: WritableRoot) -> None:
    kernel = bare.releases[OLDER]
    nodrop(bare, "uninstall")
    before = state(bare)
    assert "dkms install" in nodrop(bare, f"install --kernel {kernel} --dry-run")
    assert state(bare) == before
    nodrop(bare, f"install --kernel {kernel}")
    assert "/updates/dkms/" in bare.module(kernel, "tun")
    # From here on run the installed command.
    conf = "/etc/modprobe.d/zz-nodrop-set.conf"
    bare.succeed(f"{KEPT} >{conf}")
    start = "cd /; /usr/local/bin/nodrop -q"
    # Let Python write its bytecode beside the command first.
    bare.succeed(f"{start} uninstall --dry-run; {start} install --kernel {kernel} --dry-run")
    before = state(bare)
    assert "dkms remove" in bare.succeed(f"{start} uninstall --dry-run")
    assert "verify" in bare.succeed(f"{start} install --kernel {kernel} --dry-run")
    assert state(bare) == before
    bare.succeed(f"{start} uninstall")
    assert "/kernel/drivers/" in bare.module(kernel, "tun")
    bare.succeed(
        f"test ! -e {conf} -a ! -e /usr/local/lib/nodrop -a ! -e /usr/src/nodrop-{VERSION}"
    )


def test_make_install_from_a_given_source(bare: WritableRoot) -> None:
    """The given source is built, also the second time."""
    kernel = bare.releases[OLDER]
    bare.succeed(
        "mkdir /var/tree; tar -C /var/tree -xJf /usr/src/linux-source-6.1.tar.xz --wildcards "
        "--strip-components=1 '*/Makefile' '*/drivers/net/t[ua][np].c' '*/drivers/vhost/*'; "
        "mv /usr/src/linux-source-6.1.tar.xz /var/"
    )
    try:
        install = f"make -s -C {REPOSITORY} install KVER={kernel} SOURCE=/var/tree"
        bare.succeed(install)
        assert "/updates/dkms/" in bare.module(kernel, "tun")
        mark = "a given source of our own"
        bare.succeed(f"echo 'MODULE_INFO(mark, \"{mark}\");' >>/var/tree/drivers/net/tun.c")
        bare.succeed(install)
        assert mark in bare.succeed(f"modinfo -k {kernel} tun")
        # The given source lacks a patch of the distribution.
        bare.succeed("sed -i 's/return -EINVAL;/return -EPERM;/' /var/tree/drivers/net/tun.c")
        done = bare.run(install)
        assert done.status != 0
        assert "does not make the kernel's own tun again" in done.output
        bare.succeed(f"make -s -C {REPOSITORY} uninstall")
        assert "/kernel/drivers/" in bare.module(kernel, "tun")
    finally:
        # Other tests that share this root need it.
        bare.succeed("mv /var/linux-source-6.1.tar.xz /usr/src/; rm -r /var/tree")


@pytest.mark.parametrize("name", ["*", ".", "6.1 ; true"])
def test_make_install_for_a_bad_kernel_name(bare: WritableRoot, name: str) -> None:
    done = bare.run(f"make -s -C {REPOSITORY} install KVER='{name}'")
    assert done.status != 0
    assert "is not the name of a kernel" in done.output
