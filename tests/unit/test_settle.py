# SPDX-License-Identifier: GPL-2.0-only
"""What kmod/settle does with modules in memory, and what it says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SETTLE = Path(__file__).resolve().parents[2] / "kmod/settle"
MODINFO = """#!/bin/sh
[ "$1" = -n ] && exit
[ "$2" = version ] && echo 0.3.0
exit 0
"""
MODPROBE = """#!/bin/sh
echo "$2" >>"$NODROP_SYS/asked"
rm -r "$NODROP_SYS/module/$2"
"""


class Machine:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.sys = place / "sys"
        for name, text in (("modinfo", MODINFO), ("modprobe", MODPROBE)):
            path = place / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)

    def write(self, path: str, text: str) -> None:
        (self.place / path).parent.mkdir(parents=True, exist_ok=True)
        (self.place / path).write_text(text)

    def load(self, name: str, version: str, uses: int) -> None:
        self.write(f"sys/module/{name}/version", f"{version}\n")
        self.write(f"sys/module/{name}/refcnt", f"{uses}\n")

    def open(self, pid: int, name: str, device: str) -> None:
        self.write(f"proc/{pid}/comm", f"{name}\n")
        (self.place / f"proc/{pid}/fd").mkdir()
        (self.place / f"proc/{pid}/fd/4").symlink_to(device)

    def settle(self, how: str = "in") -> str:
        environment = {
            "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}",
            "NODROP_SYS": str(self.sys),
            "NODROP_PROC": str(self.place / "proc"),
        }
        done = subprocess.run(
            [SETTLE, how], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0
        assert done.stdout == ""
        return done.stderr

    def asked(self) -> list[str]:
        path = self.sys / "asked"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_nothing_loaded(machine: Machine) -> None:
    assert machine.settle() == ""
    assert machine.asked() == []


def test_right_one_stays(machine: Machine) -> None:
    machine.load("tun", "0.3.0", 0)
    assert machine.settle() == ""
    assert machine.asked() == []


def test_unused_is_taken_out(machine: Machine) -> None:
    machine.load("tun", "0.2.0", 0)
    machine.load("vhost_net", "0.2.0", 0)
    assert machine.settle() == ""
    assert machine.asked()[:2] == ["vhost_net", "tun"]


@pytest.mark.parametrize(("how", "which"), [("in", "The new modules"), ("out", "The kernel's own")])
def test_holders_are_named(machine: Machine, how: str, which: str) -> None:
    machine.load("tun", "0.2.0", 2)
    machine.open(123, "openvpn", "/dev/net/tun")
    machine.open(77, "qemu", "/dev/vhost-net")
    machine.open(9, "sh", "/dev/null")
    machine.write("sys/class/net/tap0/tun_flags", "0x1802\n")
    machine.write("sys/class/net/tap1/tun_flags", "0x1002\n")
    said = machine.settle(how)
    assert "openvpn (pid 123)" in said
    assert "qemu (pid 77)" in said
    assert "sh (pid 9)" not in said
    assert "persistent devices tap0 are" in said
    assert which in said
    assert "tun" not in machine.asked()


@pytest.mark.parametrize(
    ("state", "said"), [("none [integrity] confidentiality", True), ("[none] integrity", False)]
)
def test_lockdown(machine: Machine, state: str, said: bool) -> None:
    machine.write("sys/kernel/security/lockdown", f"{state}\n")
    assert ("mokutil --import" in machine.settle()) is said


@pytest.mark.parametrize("on", [0, 1])
def test_secure_boot(machine: Machine, on: int) -> None:
    name = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    machine.write(name, "")
    (machine.place / name).write_bytes(bytes([6, 0, 0, 0, on]))
    assert ("mokutil --import" in machine.settle()) is bool(on)
