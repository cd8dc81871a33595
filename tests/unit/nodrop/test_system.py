# SPDX-License-Identifier: GPL-2.0-only
"""Installed kernels, and the scheduling of threads, from a directory of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stubs import write

from nodrop.host import procfs, system
from nodrop.host.system import Kernel

RELEASE = "6.12.41+deb13-amd64"


@pytest.fixture(autouse=True)
def running(monkeypatch: pytest.MonkeyPatch) -> None:
    uname = os.uname()
    fake = os.uname_result((uname.sysname, uname.nodename, RELEASE, uname.version, uname.machine))
    monkeypatch.setattr(os, "uname", lambda: fake)


def kernel(root: Path, release: str, tun: str) -> None:
    write(root / f"lib/modules/{release}/modules.dep", f"kernel/net/core.ko:\n{tun}: x.ko\n")
    write(root / f"boot/vmlinuz-{release}")


def test_kernels(tmp_path: Path) -> None:
    kernel(tmp_path, RELEASE, "updates/dkms/tun.ko.xz")
    write(tmp_path / f"lib/modules/{RELEASE}/updates/dkms/nodrop.ko.xz")
    kernel(tmp_path, "6.12.9+deb13-amd64", "kernel/drivers/net/tun.ko.xz")
    kernel(tmp_path, "6.12.41+deb13+1-amd64", "kernel/drivers/net/tun.ko.xz")
    kernel(tmp_path, "6.13.1+deb13-cloud-amd64", "kernel/drivers/net/tun.ko.xz")
    write(tmp_path / f"lib/modules/{RELEASE}/build/Module.symvers")
    write(tmp_path / "var/log/nodrop/6.12.9+deb13-amd64.log", "make: x\nnodrop: no gcc\n")
    found = system.read([], tmp_path)
    each = {one.release: one for one in found.kernels}
    assert each[RELEASE] == Kernel(RELEASE, image=True, headers=True, nodrop=True, why_not="")
    assert found.running == each[RELEASE]
    assert each["6.12.9+deb13-amd64"].why_not == "no gcc"
    assert not each["6.12.9+deb13-amd64"].nodrop
    # The cloud kernel is another flavour; 41 is more than 9, 41+1 more than 41.
    assert found.newest == each["6.12.41+deb13+1-amd64"]
    assert not each["6.12.41+deb13+1-amd64"].headers


def test_kernel_alternatives(tmp_path: Path) -> None:
    kernel(tmp_path, RELEASE, "kernel/drivers/net/ovpn/ovpn.ko.xz")
    command_lines = ("--config\0/a.conf\0--secret\0k\0", "b.conf\0", "--config\0/gone\0")
    for pid, words in enumerate(command_lines, 1):
        write(tmp_path / f"proc/{pid}/cmdline", f"openvpn\0{words}")
    write(tmp_path / "proc/1/root/a.conf", "# fragment\n\nroot:x:1\nfragment 1300\n")
    write(tmp_path / "proc/2/cwd/b.conf", "dev tun\n")
    found = system.read([1, 2, 3], tmp_path)
    assert found.in_kernel == ["ovpn"]
    assert found.openvpn == {1: ["fragment", "secret"], 2: [], 3: None}


def test_containers(tmp_path: Path) -> None:
    empty = system.read([], tmp_path)
    assert (empty.container, empty.kernels, empty.tree, empty.livepatch) == ("", [], False, False)
    write(tmp_path / "run/systemd/container", "lxc\n")
    write(tmp_path / "usr/src/nodrop-0.3.0/dkms.conf")
    found = system.read([], tmp_path)
    assert (found.container, found.tree) == ("lxc", True)


def thread(
    proc: Path, pid: int, tid: int, name: str, state: str = "S", *, schedstat: bool, flags: int = 0
) -> None:
    fields = [state, *["0"] * 5, str(flags), *["0"] * 4, "150", "50", "0", "0", "20", "-5"]
    fields += [*["0"] * 19, "3", "0", "5", "0"]
    stat = f"{tid} ({name}) {' '.join(fields)}\n"
    for folder in (proc / f"{pid}/task/{tid}", proc / f"{tid}"):
        write(folder / "stat", stat)
        write(folder / "comm", f"{name}\n")
    if schedstat:
        write(proc / f"{pid}/task/{tid}/schedstat", "1500000000 250000000 9\n")


def test_threads(tmp_path: Path) -> None:
    thread(tmp_path, 7, 7, "qemu) R (", schedstat=True)
    thread(tmp_path, 7, 9, "CPU 0/KVM", "R", schedstat=False)
    thread(tmp_path, 7, 10, "vhost-9", schedstat=False, flags=0x4040)
    thread(tmp_path, 30, 30, "vhost-9", schedstat=True, flags=0x208040)
    thread(tmp_path, 31, 31, "vhost-70", schedstat=True, flags=0x208040)
    thread(tmp_path, 32, 32, "vhost-7", schedstat=True)  # a program that chose that name
    found = {one.tid: one for one in procfs.read_threads([7, 4711], tmp_path)}
    assert set(found) == {7, 9, 10, 30}
    assert (found[7].name, found[7].run_s, found[7].wait_s) == ("qemu) R (", 1.5, 0.25)
    assert (found[7].policy, found[7].nice) == (5, -5)
    assert (found[7].state, found[9].state) == ("S", "R")
    assert (found[9].run_s, found[9].wait_s) == (200 / os.sysconf("SC_CLK_TCK"), None)
    assert [(one.pid, one.cpu) for one in found.values() if one.vhost] == [(7, 3), (7, 3)]
    assert dict(procfs.ready_threads(found.values(), tmp_path)) == {9: 1}
