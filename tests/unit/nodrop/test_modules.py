# SPDX-License-Identifier: GPL-2.0-only
"""nodrop's modules on disk and loaded, and what happens to loaded ones after an installation."""

from __future__ import annotations

import lzma
import os
import re
from pathlib import Path

import pytest
from stubs import before, programs, write

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
    "modprobe": 'echo "modprobe $*" >>"$HOST/asked"',
    "lsinitramfs": 'cat "$1"',
    "update-initramfs": 'echo "initramfs $3" >>"$HOST/asked"',
}
INITRD = "usr/lib/modules/6.1/kernel/drivers/net/{}.ko.xz\n"


class Machine:
    """A root directory with modules on disk, loaded modules, and programs that note their use."""

    def __init__(self, root: Path, capsys: Capture) -> None:
        self.root, self.capsys = root, capsys
        programs(root / "bin", STUBS)
        for name in modules.MODULES:
            self.store(name)
        (root / "dev/net").mkdir(parents=True)
        (root / "dev/net/tun").symlink_to("/dev/null")  # a character device, too
        (root / "proc/1").mkdir(parents=True)
        (root / "proc/1/root").symlink_to("/")

    def write(self, path: str, text: str | bytes = "") -> None:
        write(self.root / path, text)

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
        self.write(f"proc/{pid}/comm", f"{name}\n")
        self.write(f"proc/{pid}/cgroup", cgroup)
        (self.root / f"proc/{pid}/fd").mkdir()
        (self.root / f"proc/{pid}/fd/4").symlink_to(device)

    def settle(self) -> str:
        modules.settle(self.root)
        printed = self.capsys.readouterr()
        assert printed.out == ""
        return printed.err

    def asked(self) -> list[str]:
        path = self.root / "asked"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Machine:
    monkeypatch.setenv("PATH", before(tmp_path / "bin"))
    monkeypatch.setenv("HOST", str(tmp_path))
    return Machine(tmp_path, capsys)


def test_loaded_modules_and_files(machine: Machine) -> None:
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
    machine: Machine,
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


def test_core_is_unloaded_with_its_users(machine: Machine) -> None:
    """After a removal it is no longer on disk, where modprobe would look."""
    dep = machine.root / "lib/modules" / RELEASE / "modules.dep"
    dep.write_text(dep.read_text().replace("updates/dkms/nodrop.ko.xz: x.ko\n", ""))
    for name in ("tun", "nodrop"):
        machine.load(name, OLD, 0)
    assert machine.settle() == ""
    assert machine.asked() == ["tun", "nodrop"]


def test_users_are_named(machine: Machine) -> None:
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
    machine.open(80, "openvpn", "/dev/net/tun", "0::/system.slice/openvpn@a.service\n")
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
        "systemctl stop openvpn@a.service",
        "modprobe -r macvtap ipvtap",
        "rmmod tap tun",
        "modprobe tun",
        "systemctl start openvpn@a.service",
    ]
    assert machine.asked() == []


def test_livepatched_module_stays(machine: Machine) -> None:
    machine.load("tun", OLD, 0)
    machine.write("sys/kernel/livepatch/nodrop_live/enabled", "1\n")
    assert machine.settle()
    assert machine.asked() == []


def test_names_are_printable(machine: Machine) -> None:
    machine.load("tun", OLD, 1)
    machine.open(5, "qemu\x1b[2J\rx\x9b", "/dev/net/tun")
    machine.write("sys/class/net/tap\x1b[0/tun_flags", "0x1802\n")
    assert machine.settle().replace("\n", "").isprintable()


def test_initial_ram_disks_are_updated(machine: Machine) -> None:
    machine.write("boot/initrd.img-6.1", INITRD.format("tun"))
    machine.write("boot/initrd.img-6.12", INITRD.format("veth"))
    assert machine.settle() == ""
    assert machine.asked() == ["initramfs 6.1"]
    programs(machine.root / "bin", {"update-initramfs": "exit 1"})
    assert "update-initramfs -u -k 6.1" in machine.settle()


def test_device_node_is_restored(machine: Machine) -> None:
    """The device node is deleted with the module."""
    machine.load("tun", OLD, 0)
    (machine.root / "dev/net/tun").unlink()
    assert machine.settle() == ""
    assert machine.asked() == ["tun", "modprobe -q tun"]


def test_in_a_chroot_the_running_kernel_stays(machine: Machine) -> None:
    """The chroot has its modules, too, and the machine's /sys."""
    machine.load("tun", OLD, 0)
    machine.write("boot/initrd.img-6.1", INITRD.format("tun"))
    (machine.root / "dev/net/tun").unlink()
    root = machine.root / "proc/1/root"
    root.unlink()
    root.symlink_to(machine.root)
    assert machine.settle() == ""
    assert machine.asked() == ["initramfs 6.1"]
