# SPDX-License-Identifier: GPL-2.0-only
"""Installations that are cut short, twice in a row: no kernel is ever without a tun."""

from __future__ import annotations

from pathlib import Path

import pytest

from packages.conftest import build
from packages.root import Root
from packages.test_packages import dkms_of

KILL = """#!/bin/bash
# Stands in for a program that DKMS or we start, and kills who started it.
case "$*" in {pattern}) [ -z "{half}" ] || echo half >"${{@: -1}}"; kill -9 $PPID; sleep 9 ;; esac
exec /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin {program} "$@"
"""
MOMENTS = {
    "before the first copy": ("mkdir", "*updates*", ""),
    "while tun is copied": ("cp", "*/module/tun.ko*updates*", "half"),
    "after the last copy": ("depmod", "*", ""),
}
"""At which program's start, by its arguments; whether its last one is left half written."""
FULL = "mkdir -p {0}; mount -t tmpfs -o size=200k none {0}"


@pytest.fixture(scope="module")
def package() -> Path:
    """nodrop-dkms, just built."""
    return dkms_of(build())


def loads_something(root: Root, places: tuple[str, ...]) -> None:
    """Fail unless each kernel finds a whole tun in one of the places."""
    for kernel in root.releases:
        file = root.module(kernel, "tun")
        assert any(place in file for place in places), file
        assert root.succeed(f"modinfo -F vermagic {file}").startswith(kernel)
        for name in ("tun", "vhost_net", "tap"):
            for line in root.succeed(f"modprobe -S {kernel} --show-depends {name}").splitlines():
                root.succeed(f"modinfo -F vermagic {line.split()[1]} | grep -q .")


def purge(root: Root) -> None:
    root.succeed("dpkg --purge nodrop-dkms", 580)
    loads_something(root, ("/kernel/drivers/",))
    root.succeed("test ! -e /var/lib/dkms/nodrop")


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed(debian: Root, package: Path, moment: str) -> None:
    program, pattern, half = MOMENTS[moment]
    script = KILL.format(program=program, pattern=pattern, half=half)
    debian.succeed(
        f"mkdir -p /var/cut; cat >/var/cut/{program} <<'END'\n{script}END\n"
        f"chmod 755 /var/cut/{program}"
    )
    for _ in range(2):
        done = debian.run(f"PATH=/var/cut:$PATH dpkg -i {package}", 580)
        assert "Killed" in done.output, done.output
        loads_something(debian, ("/kernel/drivers/", "/updates/dkms/"))
    debian.succeed("rm -r /var/cut")
    purge(debian)


def test_full_disk(debian: Root, package: Path) -> None:
    full = "; ".join(FULL.format(f"/lib/modules/{kernel}/updates") for kernel in debian.releases)
    for _ in range(2):
        done = debian.run(f"{full}; dpkg -i {package}", 580)
        assert done.status != 0
        loads_something(debian, ("/kernel/drivers/",))
    purge(debian)


def test_whole_after_all(debian: Root, package: Path) -> None:
    """It needs no more than room and a little time."""
    debian.succeed(f"dpkg -i {package}", 580)
    loads_something(debian, ("/updates/dkms/",))
    purge(debian)
