# SPDX-License-Identifier: GPL-2.0-only
"""Which kernels kmod/fit takes, and which modules it makes for them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

KMOD = Path(__file__).resolve().parents[2] / "kmod"
KERNEL = "6.12.99-amd64"
STUBS = {
    "signed": "exit 0",
    "source": 'mkdir -p "${@: -1}"; touch "${@: -1}/tun.c"',
    "check": "exit 0",
    "bin/gcc": "echo gcc 12",
    # What the kernel's build would make.
    "bin/make": """for word; do case $word in OUT=*) out=${word#*=} ;; KOBJ=*) obj=${word#*=};; esac
        done; [ "${out-}" ] || exit 1; mkdir -p "$out/build"; touch "$out/build/log"
    for name in nodrop tun vhost_net tap; do case $name in vhost_net | tap)
        grep -q "^CONFIG_${name^^}=m" "$obj/.config" || continue ;; esac
        echo "$name" >"$out/$name.ko"; done""",
}


class Machine:
    def __init__(self, place: Path) -> None:
        self.place = place
        shutil.copytree(KMOD, place / "kmod")
        for name, text in STUBS.items():
            path = place / ("" if name.startswith("bin/") else "kmod") / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/bash\n{text}\n")
            path.chmod(0o755)
        self.build = place / "modules" / KERNEL / "build"
        self.build.mkdir(parents=True)
        (self.build / "Module.symvers").touch()

    def fit(self, config: str, *folder: Path) -> subprocess.CompletedProcess[str]:
        (self.build / ".config").write_text(config)
        environment = {
            "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}",
            "NODROP_STORE": str(self.place / "store"),
            "NODROP_LOG": str(self.place / "log"),
            "NODROP_MODULES": str(self.place / "modules"),
        }
        words = [str(self.place / "kmod/fit"), KERNEL, *map(str, folder)]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    def made(self, config: str) -> tuple[set[str], str]:
        """Return the modules' names and what the check before said, as DKMS calls it twice."""
        before = self.fit(config)
        assert before.returncode == 0, before.stderr
        folder = self.place / "out"
        folder.mkdir()
        done = self.fit(config, folder)
        assert (done.returncode, done.stderr) == (0, "")
        return {path.stem for path in folder.iterdir()}, before.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_all_modules(machine: Machine) -> None:
    made, said = machine.made("CONFIG_TUN=m\nCONFIG_VHOST_NET=m\nCONFIG_TAP=m\n")
    assert (made, said) == ({"nodrop", "tun", "vhost_net", "tap"}, "")


@pytest.mark.parametrize("state", ["y", "n"])
@pytest.mark.parametrize("name", ["vhost_net", "tap"])
def test_what_is_no_module_is_left_out(machine: Machine, name: str, state: str) -> None:
    (other,) = {"vhost_net", "tap"} - {name}
    line = f"CONFIG_{name.upper()}=y\n" if state == "y" else ""
    made, said = machine.made(f"CONFIG_TUN=m\nCONFIG_{other.upper()}=m\n{line}")
    assert made == {"nodrop", "tun", other}
    assert len(said.splitlines()) == (1 if state == "y" else 0)
    assert (f"{name} is built into kernel {KERNEL}" in said) is (state == "y")


def test_realtime_is_refused(machine: Machine) -> None:
    config = "CONFIG_TUN=m\nCONFIG_VHOST_NET=m\nCONFIG_TAP=m\nCONFIG_PREEMPT_RT=y\n"
    done = machine.fit(config)
    assert done.returncode == 1
    assert "PREEMPT_RT" in done.stderr
    assert "not supported for now" in done.stderr


def test_built_in_tun_is_refused(machine: Machine) -> None:
    done = machine.fit("CONFIG_TUN=y\n")
    assert (done.returncode, "tun is no module" in done.stderr) == (1, True)
