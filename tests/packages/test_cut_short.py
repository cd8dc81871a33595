# SPDX-License-Identifier: GPL-2.0-only
"""Installations that are interrupted, twice in a row: no kernel is ever without tun."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.host.modules import REPLACED
from packages.conftest import WritableRoot, build
from packages.test_packages import dkms_of

KILL = """#!/bin/bash
# Replaces a program that DKMS or the package starts, and kills its parent.
case "$*" in {pattern}) [ -z "{half}" ] || echo half >"${{@: -1}}"; kill -9 $PPID; sleep 9 ;; esac
exec /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin {program} "$@"
"""
MOMENTS = {
    "before the first copy": ("mkdir", "-p?/lib/modules/*updates*", ""),
    "while tun is copied": ("cp", "*/module/tun.ko*updates*", "half"),
    "after the last copy": ("ln", "-s[!f]*/nodrop/kernel-*", ""),
}
"""Moment -> program, pattern of its arguments, and whether its last argument is half written."""
FILL = """#!/bin/bash
# Replaces cp. Fills the disk but for a part of tun, after the check for free space.
case "$*" in */module/tun.ko*updates*)
    place=$(dirname "${@: -1}"); cat /dev/zero >"$place/filler"; truncate -s -12K "$place/filler"
esac 2>/dev/null
/usr/bin/cp "$@" || { echo "$*" >>/var/cut/failed; exit 1; }
"""
ROOM = "mkdir -p {0}; mount -t tmpfs -o size=16M none {0}"


@pytest.fixture(scope="module")
def package() -> Path:
    return dkms_of(build())


def loads_something(root: WritableRoot, places: tuple[str, ...]) -> None:
    """Fail unless each kernel finds an intact tun in one of the places."""
    for kernel in root.releases:
        file = root.module(kernel, "tun")
        assert any(place in file for place in places), file
        assert root.succeed(f"modinfo -F vermagic {file}").startswith(kernel)
        for name in REPLACED:
            for line in root.succeed(f"modprobe -S {kernel} --show-depends {name}").splitlines():
                root.succeed(f"modinfo -F vermagic {line.split()[1]} | grep -q .")


def stand_in(root: WritableRoot, program: str, script: str) -> None:
    file = f"/var/cut/{program}"
    root.succeed(f"mkdir -p /var/cut; cat >{file} <<'END'\n{script}END\nchmod 755 {file}")


def purge(root: WritableRoot) -> None:
    root.succeed("dpkg --purge nodrop-dkms", 580)
    loads_something(root, ("/kernel/drivers/",))
    root.succeed("test ! -e /var/lib/dkms/nodrop")


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed(debian: WritableRoot, package: Path, moment: str) -> None:
    program, pattern, half = MOMENTS[moment]
    stand_in(debian, program, KILL.format(program=program, pattern=pattern, half=half))
    for _ in range(2):
        done = debian.run(f"PATH=/var/cut:$PATH dpkg -i {package}", 580)
        assert "Killed" in done.output, done.output
        loads_something(debian, ("/kernel/drivers/", "/updates/dkms/"))
    debian.succeed("rm -r /var/cut")
    purge(debian)


def test_full_disk(debian: WritableRoot, package: Path) -> None:
    stand_in(debian, "cp", FILL)
    script = "; ".join(ROOM.format(f"/lib/modules/{one}/updates") for one in debian.releases)
    script += f"; PATH=/var/cut:$PATH dpkg -i {package} && exit 1"
    for kernel in debian.releases:
        script += f"; grep -q {kernel}/updates /var/cut/failed || exit 1; depmod {kernel}"
        for name in REPLACED:
            script += f"; modinfo -k {kernel} -n {name} | grep /kernel/drivers/ || exit 1"
    for _ in range(2):
        debian.succeed(f"{script}; rm /var/cut/failed", 580)
        loads_something(debian, ("/kernel/drivers/",))
    debian.succeed("rm -r /var/cut")
    purge(debian)


def test_installation_succeeds_afterwards(debian: WritableRoot, package: Path) -> None:
    debian.succeed(f"dpkg -i {package}", 580)
    loads_something(debian, ("/updates/dkms/",))
    purge(debian)
