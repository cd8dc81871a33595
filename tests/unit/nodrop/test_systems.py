# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop status`` and ``doctor`` on other distributions' kernels, before and after nodrop."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest
from hosts import SYSTEMS, load, recorded, system_tree
from stubs import write

from nodrop import cli
from nodrop.commands import doctor
from nodrop.doctor.findings import Verdict
from nodrop.doctor.observation import Record
from nodrop.host import modules, read, system
from nodrop.host.read import Raw, build
from nodrop.prometheus import collect

Capture = pytest.CaptureFixture[str]


class IdleHost:
    """A machine of SYSTEMS with an idle TUN device."""

    def __init__(self, root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._monkeypatch = root, monkeypatch
        self.release = system_tree(root, name)
        uname = os.uname()
        fake = (uname.sysname, uname.nodename, self.release, uname.version, uname.machine)
        monkeypatch.setattr(os, "uname", lambda: os.uname_result(fake))

    def install(self) -> None:
        """Install nodrop, and boot."""
        folder = self.root / "lib/modules" / self.release
        beside = "tun" if (self.root / "sys/module/tun").exists() else "nodrop_tun"
        write(folder / "updates/dkms/nodrop.ko")
        with (folder / "modules.dep").open("a") as file:
            file.write(f"updates/dkms/{beside}.ko: updates/dkms/nodrop.ko\n")
        for name in ("version", "initstate", "parameters/nodrop"):
            text = {"version": "1.0.0\n", "initstate": "live\n"}.get(name, "Y\n")
            write(self.root / f"sys/module/{beside}/{name}", text)
        write(self.root / f"sys/module/nodrop/holders/{beside}")

    @property
    def raw(self) -> Raw:
        """Return what the command reads of it."""
        sample = load("stock")["before"]
        files = {
            name: (self.root / name).read_text().strip()
            for name in read._MACHINE_FILES
            if (self.root / name).exists()
        }
        if (self.root / read.HOLDERS).exists():
            files[read.HOLDERS] = " ".join(one.name for one in (self.root / read.HOLDERS).iterdir())
        sample["machine"].update(files=files, release=self.release)
        return Raw.from_json(sample)

    def status(self, capsys: Capture) -> str:
        recorded(self._monkeypatch, self.raw)
        assert cli.main(["status"]) == 0
        return capsys.readouterr().out.splitlines()[0]

    def doctor(self) -> dict[str, Verdict]:
        both = Record(self.raw, self.raw, [], [], {}, system.read(self.root))
        return {one.id: one.verdict for one in doctor.examine(both.observation())}


BUILT_IN = ("Ubuntu 24.04", "Proxmox VE 9")


@pytest.mark.parametrize("name", SYSTEMS)
def test_system(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    machine = IdleHost(tmp_path, name, monkeypatch)
    assert modules.driver(tmp_path) == "stock"
    own = "tun stock, built in, vhost_net" if name in BUILT_IN else "tun stock, vhost_net"
    assert own in machine.status(capsys)
    found = machine.doctor()
    (fix,) = found["driver-stock"].fix
    if name.startswith("Ubuntu"):
        assert fix.endswith("nodrop install")
    else:
        # Proxmox has no package of its kernels' source, either.
        assert fix.startswith("# ")
        assert "nodrop install --source DIR" in fix
    assert str(found["headers-missing"].severity) == "ok"
    machine.install()
    way = ", beside the built-in one" if name in BUILT_IN else ""
    assert f"tun nodrop 1.0.0{way}, vhost_net" in machine.status(capsys)
    found = machine.doctor()
    states = {check: str(found[check].severity) for check in ("driver-stock", "default-off")}
    assert states == {"driver-stock": "ok", "default-off": "ok"}
    assert modules.driver(tmp_path) == "nodrop"
    assert ("built-in-open" in found) is (name in BUILT_IN)
    host = build(machine.raw)
    assert host.tun.built_in is (name in BUILT_IN)
    (info,) = (one for one in collect(host, host.devices, 0) if "module_info" in one.name)
    assert ("tun", "nodrop", "1.0.0") in info.samples
    write(tmp_path / "sys/kernel/livepatch/klp_7/tun/patched")
    assert "klp_7" in machine.doctor()["livepatch-other"].seen


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("Ubuntu 24.04", "linux-headers-6.8.0-88-generic"),
        ("Proxmox VE 9", "proxmox-headers-6.14.11-4-pve"),
        ("Arch", ""),
    ],
)
def test_package_of_headers(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = IdleHost(tmp_path, name, monkeypatch)
    (tmp_path / "lib/modules" / machine.release / "build/Module.symvers").unlink()
    asked: list[str] = []

    def offers(*words: str) -> object:
        asked.extend(words[-1:])
        return argparse.Namespace(stdout="Package: x")

    monkeypatch.setattr("nodrop.proc.ask", offers)
    found = machine.doctor()
    assert asked == [package] * bool(package)
    assert list(found["headers-missing"].commands) == [f"apt install {package}"] * bool(package)
