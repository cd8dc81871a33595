# SPDX-License-Identifier: GPL-2.0-only
"""nodrop's modules on disk and loaded, and what happens to loaded ones after an installation."""

from __future__ import annotations

import gzip
import lzma
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from stubs import before, process, programs, write

from nodrop.host import modules

Capture = pytest.CaptureFixture[str]
RELEASE = os.uname().release
NOTE = b"".join(n.to_bytes(4, "little") for n in (4, 20, 3)) + b"GNU\0"
OLD, NEW = "ab" * 20, "cd" * 20
"""Build IDs: of the loaded module, and of the file on disk."""
STUBS = {
    # Decrements the reference counts of the modules that it used.
    "rmmod": """echo "$1" >>"$HOST/asked"; rm -r "$HOST/sys/module/$1"
    for f in "$HOST"/sys/module/*/holders/"$1"; do
        [ ! -e "$f" ] || { rm "$f"; f=${f%/holders/*}/refcnt; echo $(($(cat "$f") - 1)) >"$f"; }
    done""",
    # It succeeds even if the kernel refuses nodrop_tun: dkms/modprobe.conf.
    "modprobe": 'echo "modprobe $*" >>"$HOST/asked"; [ -e "$HOST/refuses" ] || '
    '[ "$1" != nodrop_tun ] || mkdir -p "$HOST/sys/module/$1"',
    "lsinitramfs": 'cat "$1"',
    "update-initramfs": 'echo "initramfs $3" >>"$HOST/asked"',
}
INITRD = "usr/lib/modules/6.1/kernel/drivers/net/{}.ko.xz\n"


class ModulesRoot:
    """A root directory with modules on disk, loaded modules, and programs that note their use."""

    def __init__(self, root: Path, capsys: Capture) -> None:
        self.root, self.capsys = root, capsys
        programs(root / "bin", STUBS)
        for name in ("vhost_net", "tap", "tun", "nodrop"):
            self.store(name)
        (root / "dev/net").mkdir(parents=True)
        (root / "dev/net/tun").symlink_to("/dev/null")  # a character device, too
        (root / "proc/1").mkdir(parents=True)
        (root / "proc/1/root").symlink_to("/")

    def write(self, path: str, text: str | bytes = "") -> None:
        write(self.root / path, text)

    def without(self, name: str) -> None:
        """Remove a module from the disk."""
        dep = self.root / "lib/modules" / RELEASE / "modules.dep"
        dep.write_text(dep.read_text().replace(f"updates/dkms/{name}.ko.xz: x.ko\n", ""))

    def build_tun_in(self) -> None:
        self.without("tun")
        self.store("nodrop_tun")
        self.write("sys/class/misc/tun/dev", "10:200\n")

    def store(self, name: str, content: bytes = NOTE + bytes.fromhex(NEW)) -> None:
        folder = self.root / "lib/modules" / RELEASE
        write(folder / f"updates/dkms/{name}.ko.xz", lzma.compress(content))
        with (folder / "modules.dep").open("a") as file:
            file.write(f"kernel/net/core.ko:\nupdates/dkms/{name}.ko.xz: x.ko\n")

    def load(self, name: str, build_id: str, uses: int) -> None:
        self.write(f"sys/module/{name}/initstate", "live\n")
        note = NOTE + bytes.fromhex(build_id)
        self.write(f"sys/module/{name}/notes/.note.gnu.build-id", note)
        self.write(f"sys/module/{name}/refcnt", f"{uses}\n")

    def uses(self, module: str, *others: str) -> None:
        """Let a module use others, with a reference to each."""
        for other in others:
            self.write(f"sys/module/{other}/holders/{module}")
            count = self.root / f"sys/module/{other}/refcnt"
            count.write_text(f"{int(count.read_text()) + 1}\n")

    def open(self, pid: int, name: str, device: str, cgroup: str = "0::/\n") -> None:
        process(self.root / "proc", pid, {4: (device, "pos:\t0\n")}, name, cgroup)

    def settle(self) -> str:
        modules.settle(self.root)
        printed = self.capsys.readouterr()
        assert printed.out == ""
        return printed.err

    def asked(self) -> list[str]:
        path = self.root / "asked"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> ModulesRoot:
    monkeypatch.setenv("PATH", before(tmp_path / "bin"))
    monkeypatch.setenv("HOST", str(tmp_path))
    return ModulesRoot(tmp_path, capsys)


def test_loaded_modules_and_files(machine: ModulesRoot) -> None:
    def tun() -> modules.ModuleFile:
        (found,) = modules.read(machine.root, RELEASE, ["tun"])
        return found

    machine.load("tun", OLD, 0)
    assert (tun().loaded, tun().on_disk, tun().stale) == (OLD, NEW, True)
    machine.load("tun", NEW, 0)
    assert not tun().stale
    (tap,) = modules.read(machine.root, RELEASE, ["tap"])
    assert (tap.loaded, tap.on_disk, tap.stale) == ("", NEW, False)
    # A damaged file has no build ID.
    file = machine.root / "lib/modules" / RELEASE / tun().path
    file.write_bytes(file.read_bytes()[:40])
    assert tun().on_disk is None
    assert not tun().stale


def zstd(content: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc"], input=content, capture_output=True, check=True).stdout


NO_ZSTD = pytest.mark.skipif(not shutil.which("zstd"), reason="zstd is not installed")


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        ("", bytes),
        (".xz", lzma.compress),
        (".gz", gzip.compress),
        pytest.param(".zst", zstd, marks=NO_ZSTD),
    ],
)
def test_compressed_modules(
    machine: ModulesRoot, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    folder = machine.root / "lib/modules" / RELEASE
    write(folder / "modules.dep", f"kernel/drivers/vhost/vhost_net.ko{suffix}: x.ko\n")
    content = compress(NOTE + bytes.fromhex(NEW) + random.Random(1).randbytes(400_000))
    file = write(folder / f"kernel/drivers/vhost/vhost_net.ko{suffix}", content)
    machine.load("vhost_net", OLD, 0)
    (found,) = modules.read(machine.root, RELEASE, ["vhost_net"])
    assert (found.on_disk, found.stale) == (NEW, True)
    # Damaged, or cut short after the note.
    for damaged in (content[:12] + b"\xff" * 9 + content[21:], content[:-9]):
        file.write_bytes(damaged)
        (found,) = modules.read(machine.root, RELEASE, ["vhost_net"])
        assert not suffix or (found.on_disk, found.stale) == (None, False)


IDLE, IN_USE = (OLD, 0), (OLD, 1)
TUN_HAS_CORE = {"tun": ("nodrop",)}
VHOST_TOO = {"tun": ("nodrop",), "vhost_net": ("nodrop", "tun")}


@pytest.mark.parametrize(
    ("loaded", "uses", "removed"),
    [
        ({}, {}, []),
        ({"tun": (NEW, 0)}, {}, []),
        ({"tun": IN_USE}, {}, []),
        ({"tun": IDLE, "vhost_net": IDLE}, {}, ["vhost_net", "tun"]),
        ({"tap": IDLE}, {}, ["tap"]),
        ({"tap": IN_USE, "macvtap": IDLE}, {}, []),  # its devices would be deleted
        ({"nodrop": (NEW, 1), "tun": (NEW, 2), "vhost_net": IDLE}, {}, ["vhost_net"]),
        ({"nodrop": IDLE, "tun": IDLE}, TUN_HAS_CORE, ["tun", "nodrop"]),
        (
            {"nodrop": IDLE, "tun": IDLE, "vhost_net": IDLE},
            VHOST_TOO,
            ["vhost_net", "tun", "nodrop"],
        ),
        # A VPN uses tun, and tun the core: vhost_net must stay with them although it is unused.
        ({"nodrop": IDLE, "tun": IN_USE, "vhost_net": IDLE}, VHOST_TOO, []),
        ({"nodrop": IDLE, "tun": IDLE}, {**TUN_HAS_CORE, "kreader": ("nodrop",)}, []),
    ],
)
def test_unloaded_modules(
    machine: ModulesRoot,
    loaded: dict[str, tuple[str, int]],
    uses: dict[str, tuple[str, ...]],
    removed: list[str],
) -> None:
    for name, state in loaded.items():
        machine.load(name, *state)
    for name, others in uses.items():
        machine.uses(name, *others)
    output = machine.settle()
    assert machine.asked() == removed
    stale = [name for name, state in loaded.items() if state[0] == OLD and name != "macvtap"]
    assert bool(output) is (len(removed) < len(stale))


def test_core_is_unloaded_with_its_users(machine: ModulesRoot) -> None:
    """After a removal it is no longer on disk, where modprobe would look."""
    machine.without("nodrop")
    for name in ("tun", "nodrop"):
        machine.load(name, OLD, 0)
    assert machine.settle() == ""
    assert machine.asked() == ["tun", "nodrop"]


def test_users_are_named(machine: ModulesRoot) -> None:
    machine.load("tun", OLD, 2)
    machine.load("tap", OLD, 1)
    for pid, name, device in (
        (123, "openvpn", "/dev/net/tun"),
        (77, "qemu", "/dev/vhost-net"),
        (78, "qemu", "/dev/tap5"),
        (79, "vpn", "/srv/jail/dev/net/tun"),
        (9, "sh", "/dev/null"),
    ):
        machine.open(pid, name, device)
    machine.open(80, "openvpn", "/dev/net/tun", "0::/system.slice/-openvpn@a.service\n")
    machine.write("sys/class/net/tap0/tun_flags", "0x1802\n")
    machine.write("sys/class/net/tap1/tun_flags", "0x1002\n")
    machine.write("sys/devices/virtual/net/macvtap0/macvtap/tap5/uevent")
    link = machine.root / "sys/class/macvtap/tap5"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../devices/virtual/net/macvtap0/macvtap/tap5")
    output = machine.settle()
    assert set(re.findall(r"(\w+)\((\d+)\)", output)) == {
        ("openvpn", "123"),
        ("qemu", "77"),
        ("qemu", "78"),
        ("vpn", "79"),
    }
    assert set(re.findall(r"\b(?:mac)?v?tap\d\b", output)) == {"tap0", "macvtap0"}
    commands = [line.removeprefix("nodrop:     ") for line in output.splitlines()]
    assert [line for line in commands if not line.startswith(("nodrop", "#"))] == [
        "systemctl stop -- -openvpn@a.service",
        "modprobe -r macvtap ipvtap",
        "rmmod tap tun",
        "modprobe tun",
        "systemctl start -- -openvpn@a.service",
    ]
    assert machine.asked() == []


def test_more_processes_may_use_the_devices(
    machine: ModulesRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.load("tun", OLD, 1)
    machine.open(123, "openvpn", "/dev/net/tun")
    assert "could not be inspected" not in machine.settle()
    (machine.root / "proc/124").mkdir()
    (machine.root / "proc/124/fd").touch()  # not a directory: it cannot be inspected
    output = machine.settle()
    assert "1 process could not be inspected" in output
    assert "openvpn(123)" in output
    monkeypatch.setattr(modules, "USERS_S", -1.0)
    assert "openvpn(123)" not in machine.settle()


def test_reload_is_named_if_it_is_installed(machine: ModulesRoot) -> None:
    machine.load("tun", OLD, 1)
    machine.open(80, "openvpn", "/dev/net/tun", "0::/system.slice/-openvpn@a.service\n")
    machine.write("usr/local/bin/nodrop")
    lines = machine.settle().splitlines()
    assert lines[-1].split(maxsplit=1)[1] == "nodrop reload"
    assert not any("rmmod" in line for line in lines)


def test_nodrops_livepatch_keeps_the_drivers(machine: ModulesRoot) -> None:
    machine.load("tun", OLD, 0)
    machine.write("sys/kernel/livepatch/nodrop_live/enabled", "1\n")
    assert "nodrop livepatch unload" in machine.settle()
    assert machine.asked() == []


@pytest.mark.parametrize("uses", [0, 1])
def test_other_livepatches_are_named(machine: ModulesRoot, uses: int) -> None:
    machine.write("sys/kernel/livepatch/klp_7/vhost_net/patched", "1\n")
    machine.load("vhost_net", OLD, 1)
    machine.load("tun", OLD, uses)
    output = machine.settle()
    assert "klp_7 patches the kernel's own vhost_net" in output.splitlines()[0]
    # tun is nodrop's at its next load, vhost_net is not.
    assert "vhost_net 1" not in output
    assert ("tun 1" in output) is bool(uses)
    assert machine.asked() == ["tun"] * (not uses)


BESIDE = {"nodrop_tun": ("nodrop",), "vhost_net": ("nodrop", "nodrop_tun")}
LOAD = "modprobe nodrop_tun"


@pytest.mark.parametrize(
    ("loaded", "uses", "asked"),
    [
        ({}, {}, [LOAD]),
        ({"vhost_net": IDLE}, {}, ["vhost_net", LOAD]),
        ({"vhost_net": IN_USE}, {}, [LOAD]),
        ({"nodrop": (NEW, 0), "nodrop_tun": (NEW, 1)}, {"nodrop_tun": ("nodrop",)}, []),
        (
            {"nodrop": IDLE, "nodrop_tun": IDLE, "vhost_net": IDLE},
            BESIDE,
            ["vhost_net", "nodrop_tun", "nodrop", LOAD],
        ),
        ({"nodrop": IDLE, "nodrop_tun": IN_USE, "vhost_net": IDLE}, BESIDE, []),
    ],
)
def test_beside_a_built_in_tun(
    machine: ModulesRoot,
    loaded: dict[str, tuple[str, int]],
    uses: dict[str, tuple[str, ...]],
    asked: list[str],
) -> None:
    machine.build_tun_in()
    for name, state in loaded.items():
        machine.load(name, *state)
    for name, others in uses.items():
        machine.uses(name, *others)
    output = machine.settle()
    assert machine.asked() == asked
    in_use = IN_USE in loaded.values()
    assert (f"    {LOAD}\n" in output) is in_use
    assert ("rmmod" in output) is in_use


def test_who_keeps_the_built_in_tun_is_named(machine: ModulesRoot) -> None:
    machine.build_tun_in()
    machine.open(123, "vpn", "/srv/jail/dev/net/tun")
    machine.open(80, "openvpn", "/dev/net/tun", "0::/system.slice/-openvpn@a.service\n")
    machine.open(77, "kvm", "/dev/vhost-net")
    (line,) = machine.settle().splitlines()
    assert "vpn(123)" in line
    assert "systemctl stop -- -openvpn@a.service" in line
    assert "(77)" not in line
    (machine.root / "sys/module/nodrop_tun").rmdir()
    machine.write("refuses")
    (line,) = machine.settle().splitlines()
    assert "vpn(123)" not in line, "nodrop_tun could not be loaded"


def test_vhost_net_of_the_kernel_keeps_the_built_in_tun(machine: ModulesRoot) -> None:
    machine.build_tun_in()
    machine.open(80, "openvpn", "/dev/net/tun", "0::/system.slice/-openvpn@a.service\n")
    machine.load("vhost_net", OLD, 1)
    first, *rest = machine.settle().splitlines()
    assert "openvpn" not in first, "a restart alone does not help"
    assert any("rmmod vhost_net" in line for line in rest)
    assert machine.asked() == [LOAD]


def test_macvtap_does_not_keep_nodrop_tun_from_loading(machine: ModulesRoot) -> None:
    machine.build_tun_in()
    machine.load("tap", OLD, 1)
    machine.write("sys/class/macvtap/tap5/uevent")
    assert "rmmod tap" in machine.settle()
    assert machine.asked() == [LOAD]


def test_persistent_devices_of_the_built_in_tun(machine: ModulesRoot) -> None:
    machine.build_tun_in()
    machine.write("sys/class/net/tap0/tun_flags", "0x1802\n")
    machine.write("sys/class/net/tap1/tun_flags", "0x1002\n")
    (line,) = machine.settle().splitlines()
    assert machine.asked() == [LOAD]
    assert "tap0" in line
    assert "tap1" not in line


@pytest.mark.parametrize("uses", [0, 1])
def test_built_in_tun_is_alone_again(machine: ModulesRoot, uses: int) -> None:
    machine.build_tun_in()
    machine.load("nodrop", OLD, 0)
    machine.load("nodrop_tun", OLD, uses)
    machine.uses("nodrop_tun", "nodrop")
    machine.without("nodrop_tun")
    machine.without("nodrop")
    output = machine.settle()
    assert machine.asked() == ([] if uses else ["nodrop_tun", "nodrop"])
    assert ("rmmod nodrop_tun nodrop" in output) is bool(uses)
    assert "modprobe" not in output


def test_names_are_printable(machine: ModulesRoot) -> None:
    machine.load("tun", OLD, 1)
    machine.open(5, "qemu\x1b[2J\rx\x9b", "/dev/net/tun")
    machine.write("sys/class/net/tap\x1b[0/tun_flags", "0x1802\n")
    assert machine.settle().replace("\n", "").isprintable()


def test_initial_ram_disks_are_updated(machine: ModulesRoot) -> None:
    machine.write("boot/initrd.img-6.1", INITRD.format("tun"))
    machine.write("boot/initrd.img-6.12", INITRD.format("veth"))
    assert machine.settle() == ""
    assert machine.asked() == ["initramfs 6.1"]
    programs(machine.root / "bin", {"update-initramfs": "exit 1"})
    assert "update-initramfs -u -k 6.1" in machine.settle()


def test_device_node_is_restored(machine: ModulesRoot) -> None:
    """The device node is deleted with the module."""
    machine.load("tun", OLD, 0)
    (machine.root / "dev/net/tun").unlink()
    assert machine.settle() == ""
    assert machine.asked() == ["tun", "modprobe -q tun"]


def test_in_a_chroot_the_running_kernel_stays(machine: ModulesRoot) -> None:
    """The chroot has its modules, too, and the machine's /sys."""
    machine.load("tun", OLD, 0)
    machine.write("boot/initrd.img-6.1", INITRD.format("tun"))
    (machine.root / "dev/net/tun").unlink()
    root = machine.root / "proc/1/root"
    root.unlink()
    root.symlink_to(machine.root)
    assert machine.settle() == ""
    assert machine.asked() == ["initramfs 6.1"]
