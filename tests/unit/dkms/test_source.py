# SPDX-License-Identifier: GPL-2.0-only
"""The packages of Ubuntu and Debian in which source finds a kernel's source, and their versions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from stubs import Done, programs, run, write

from lab.sources import REPOSITORY

KERNEL = "6.8.0-51-generic"
FILES = ("drivers/net/tun.c", "drivers/net/tap.c", "drivers/vhost/net.c", "drivers/vhost/vhost.h")
STUBS = {
    # A file "installed" has lines of packages and versions; "archive" those that apt knows.
    "dpkg-query": """case $1 in
    -S) echo "linux-headers-$(basename "$(dirname "$(dirname "$2")")"): $2" ;;
    -W) awk -v name="${@: -1}" '$1 == name { print "ii " $2 }' "$NODROP_ROOT/installed" ;;
    esac""",
    "apt-cache": """case $1 in
    madison) awk -v name="$2" '$1 == name { print " " $1 " | " $2 " | an archive main" }' \
        "$NODROP_ROOT/archive" ;;
    show) grep -qx "${3%=*} ${3#*=}" "$NODROP_ROOT/archive" ;;
    esac""",
    "apt-get": """package=${@: -1}; echo "$package" >>"$NODROP_ROOT/downloads"
    echo "${package%=*}" >download.deb""",
    "dpkg-deb": 'tar -c -C "$NODROP_ROOT/packages/$(cat "$2")" .',
}


class HeadersHost:
    """A machine with the headers of one kernel."""

    def __init__(self, place: Path, system: str, kernel: str, headers: str) -> None:
        self.place, self.kernel = place, kernel
        programs(place / "bin", STUBS)
        write(place / "etc/os-release", system)
        build = place / "lib/modules" / kernel / "build"
        version_h = build / "include/generated/uapi/linux/version.h"
        write(version_h, f"#define LINUX_VERSION_CODE {0x06080C}\n")
        write(build / "Makefile")
        write(place / "installed", f"linux-headers-{kernel} {headers}\n")
        write(place / "archive")

    def package(self, name: str, where: str, level: int = 12) -> None:
        """Make the files of a source package."""
        archive = self.place / where
        tree = self.place / "made" / name
        for file in FILES:
            write(tree / file)
        write(tree / "Makefile", f"VERSION = 6\nPATCHLEVEL = 8\nSUBLEVEL = {level}\n")
        archive.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-caf", archive, "-C", tree.parent, name], check=True)

    def add(self, list_: str, package: str, *versions: str) -> None:
        with (self.place / list_).open("a") as file:
            file.writelines(f"{package} {version}\n" for version in versions)

    def source(self, *options: str | Path) -> Done:
        folder = self.place / "out"
        subprocess.run(["rm", "-rf", folder], check=True)
        words = (REPOSITORY / "dkms/source", *options, self.kernel, folder)
        return run(self.place / "bin", *words, NODROP_ROOT=self.place)

    def found(self) -> str:
        done = self.source()
        assert done.returncode == 0, done.stderr
        assert (self.place / "out/drivers/net/tun.c").exists()
        assert len(done.stderr.splitlines()) <= 1
        return done.stdout.split("(")[0].strip() + (" near" if done.stderr else "")


UBUNTU = "usr/src/linux-source-6.8.0/linux-source-6.8.0.tar.bz2"
PACKAGE = "linux-source-6.8.0"


@pytest.fixture
def ubuntu(tmp_path: Path) -> HeadersHost:
    return HeadersHost(tmp_path, "ID=ubuntu\n", KERNEL, "6.8.0-51.52")


def test_debian_takes_the_same_version_only(tmp_path: Path) -> None:
    machine = HeadersHost(tmp_path, "ID=debian\n", "6.8.12-amd64", "6.8.12-1")
    machine.package("linux-source-6.8", "usr/src/linux-source-6.8.tar.xz")
    machine.add("installed", "linux-source-6.8", "6.8.12-2")
    assert machine.source().returncode == 1
    (machine.place / "installed").write_text("linux-headers-6.8.12-amd64 6.8.12-1\n")
    machine.add("installed", "linux-source-6.8", "6.8.12-1")
    assert machine.found() == "linux-source-6.8 6.8.12-1"


@pytest.mark.parametrize(
    ("headers", "version", "level", "near"),
    [
        ("6.8.0-51.52", "6.8.0-51.52", 12, False),
        # A kernel of the next release, for an older one.
        ("6.8.0-51.52~22.04.1", "6.8.0-51.52", 12, False),
        ("6.8.0-51.52", "6.8.0-40.40", 12, True),
        ("6.8.0-51.52~22.04.1", "6.8.0-90.91", 12, True),
        ("6.8.0-51.52", "6.8.0-51.52", 4, True),
    ],
)
def test_ubuntus_installed_package(
    tmp_path: Path, headers: str, version: str, level: int, near: bool
) -> None:
    machine = HeadersHost(tmp_path, "ID=ubuntu\n", KERNEL, headers)
    machine.package(PACKAGE, UBUNTU, level)
    machine.add("installed", PACKAGE, version)
    assert machine.found() == f"{PACKAGE} {version}" + " near" * near


@pytest.mark.parametrize(
    ("known", "taken"),
    [
        (("6.8.0-31.31", "6.8.0-51.52", "6.8.0-90.91"), "6.8.0-51.52"),
        (("6.8.0-100.100", "6.8.0-31.31", "6.8.0-90.91"), "6.8.0-90.91"),
        (("6.8.0-31.31", "6.8.0-9.9"), "6.8.0-31.31"),
        ((), None),
    ],
)
def test_nearest_version_that_apt_knows(
    ubuntu: HeadersHost, known: tuple[str, ...], taken: str | None
) -> None:
    ubuntu.package(PACKAGE, f"packages/{PACKAGE}/{UBUNTU}")
    ubuntu.add("archive", PACKAGE, *known)
    if taken is None:
        done = ubuntu.source()
        assert done.returncode == 1
        assert f"apt-get source linux-headers-{KERNEL}" in done.stderr
        return
    near = " near" * (taken != "6.8.0-51.52")
    # The second time, from what was kept.
    for _ in range(2):
        assert ubuntu.found() == f"{PACKAGE} {taken}{near}"
    assert (ubuntu.place / "downloads").read_text() == f"{PACKAGE}={taken}\n"


def test_proxmox_has_no_source_package(tmp_path: Path) -> None:
    machine = HeadersHost(tmp_path, "ID=debian\n", "6.8.12-4-pve", "6.8.12-4")
    done = machine.source()
    assert done.returncode == 1
    assert "--source" in done.stderr
    assert "6.8.12" in done.stderr
    for level, near in ((12, 0), (9, 1)):
        machine.package("linux-6.8", "x.tar.xz", level)
        done = machine.source("--source", machine.place / "made/linux-6.8")
        assert done.returncode == 0
        assert len(done.stderr.splitlines()) == near


@pytest.mark.parametrize(
    ("kernel", "system"), [("6.8.12-4-pve", "ID=debian\n"), (KERNEL, "ID=ubuntu\n")]
)
def test_a_source_that_was_given_survives_an_update(
    tmp_path: Path, kernel: str, system: str
) -> None:
    machine = HeadersHost(tmp_path, system, kernel, "6.8.12-4")
    kept = tmp_path / "var/cache/nodrop/sources"
    for version, status in (("6.5.13", 1), ("6.8.9", 0), ("6.8.4", 0)):
        major, minor, sub = version.split(".")
        for file in FILES:
            write(kept / f"given-{version}" / file)
        text = f"VERSION = {major}\nPATCHLEVEL = {minor}\nSUBLEVEL = {sub}\n"
        write(kept / f"given-{version}/Makefile", text)
        done = machine.source()
        assert done.returncode == status
    assert "given-6.8.9" in done.stdout
    assert len(done.stderr.splitlines()) == 1
