# SPDX-License-Identifier: GPL-2.0-only
"""What kmod/settle does with modules in memory, and what it says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

KMOD = Path(__file__).resolve().parents[2] / "kmod"
OLD, NEW = "ab" * 20, "cd" * 20
"""Build ids: of what is in memory, and of what is on disk."""

STUBS = {
    "modinfo": 'test -e "$NODROP_SYS/../disk/$2.ko" && echo "$NODROP_SYS/../disk/$2.ko"',
    "readelf": 'echo "    Build ID: $(cat "$2")"',
    "rmmod": 'echo "$1" >>"$NODROP_SYS/asked"; rm -r "$NODROP_SYS/module/$1"',
    "mokutil": "echo no",
    "dkms": "exit 1",
    "modprobe": 'echo "modprobe $*" >>"$NODROP_SYS/asked"',
    "lsinitramfs": 'cat "$1"',
    "update-initramfs": 'echo "initramfs $3" >>"$NODROP_SYS/asked"',
}


class Machine:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.sys = place / "sys"
        for name, text in STUBS.items():
            path = place / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        for name in ("tun", "vhost_net", "tap", "nodrop"):
            self.write(f"disk/{name}.ko", NEW)
        self.sys.mkdir()
        (place / "dev/net").mkdir(parents=True)
        (place / "dev/net/tun").symlink_to("/dev/null")  # a character device, too

    def write(self, path: str, text: str) -> None:
        (self.place / path).parent.mkdir(parents=True, exist_ok=True)
        (self.place / path).write_text(text)

    def load(self, name: str, build_id: str, uses: int) -> None:
        note = f"sys/module/{name}/notes/.note.gnu.build-id"
        self.write(note, "")
        (self.place / note).write_bytes(bytes(16) + bytes.fromhex(build_id))
        self.write(f"sys/module/{name}/refcnt", f"{uses}\n")

    def uses(self, module: str, *others: str) -> None:
        """Module uses others; that counts as one use of each."""
        for other in others:
            self.write(f"sys/module/{other}/holders/{module}", "")
            count = self.sys / f"module/{other}/refcnt"
            count.write_text(f"{int(count.read_text()) + 1}\n")

    def open(self, pid: int, name: str, device: str) -> None:
        self.write(f"proc/{pid}/comm", f"{name}\n")
        (self.place / f"proc/{pid}/fd").mkdir()
        (self.place / f"proc/{pid}/fd/4").symlink_to(device)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}",
            "NODROP_SYS": str(self.sys),
            "NODROP_PROC": str(self.place / "proc"),
            "NODROP_ETC": str(self.place / "etc"),
            "NODROP_DKMS": str(self.place / "dkms"),
            "NODROP_DEV": str(self.place / "dev"),
            "NODROP_BOOT": str(self.place / "boot"),
        }
        words = [str(KMOD / command[0]), *command[1:]]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    def settle(self, how: str = "in") -> str:
        done = self.run("settle", how)
        assert done.returncode == 0
        assert done.stdout == ""
        return done.stderr

    def signed(self) -> bool:
        done = self.run("signed")
        assert ("mokutil --import" in done.stderr) is (done.returncode == 1)
        return done.returncode == 0

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
    machine.load("tun", NEW, 0)
    assert machine.settle() == ""
    assert machine.asked() == []


def test_unused_is_taken_out(machine: Machine) -> None:
    machine.load("tun", OLD, 0)
    machine.load("vhost_net", OLD, 0)
    assert machine.settle() == ""
    assert machine.asked()[:2] == ["vhost_net", "tun"]


@pytest.mark.parametrize(("how", "which"), [("in", "The new modules"), ("out", "The kernel's own")])
def test_holders_are_named(machine: Machine, how: str, which: str) -> None:
    machine.load("tun", OLD, 2)
    machine.open(123, "openvpn", "/dev/net/tun")
    machine.open(77, "qemu", "/dev/vhost-net")
    machine.open(9, "sh", "/dev/null")
    machine.write("sys/class/net/tap0/tun_flags", "0x1802\n")
    machine.write("sys/class/net/tap1/tun_flags", "0x1002\n")
    said = machine.settle(how)
    assert "openvpn (pid 123)" in said
    assert "qemu (pid 77)" in said
    assert "sh (pid 9)" not in said
    assert "the persistent devices tap0 is stopped" in said
    assert which in said
    assert "tun" not in machine.asked()


def test_the_core_goes_with_its_users(machine: Machine) -> None:
    """After a removal it is on disk no more, where modprobe would look for it."""
    (machine.place / "disk/nodrop.ko").unlink()
    for name in ("tun", "nodrop"):
        machine.load(name, OLD, 0)
    assert machine.settle("out") == ""
    assert machine.asked() == ["tun", "nodrop"]


def test_a_new_driver_gets_no_old_core(machine: Machine) -> None:
    """A VPN holds tun, and tun the core: vhost_net, which nobody uses, must stay with them."""
    for name in ("nodrop", "tun", "vhost_net"):
        machine.load(name, OLD, 0)
    machine.uses("tun", "nodrop")
    machine.uses("vhost_net", "nodrop", "tun")
    machine.write("sys/module/tun/refcnt", "2\n")
    said = machine.settle()
    assert machine.asked() == []
    assert "'rmmod vhost_net tun nodrop'" in said


def test_a_core_that_others_use_keeps_its_drivers(machine: Machine) -> None:
    for name in ("nodrop", "tun"):
        machine.load(name, OLD, 0)
    machine.uses("tun", "nodrop")
    machine.uses("kreader", "nodrop")
    machine.settle()
    assert machine.asked() == []


def test_drivers_go_with_a_core_that_only_they_use(machine: Machine) -> None:
    for name in ("nodrop", "tun", "vhost_net"):
        machine.load(name, OLD, 0)
    machine.uses("tun", "nodrop")
    machine.uses("vhost_net", "nodrop", "tun")
    machine.settle()
    assert machine.asked()[0] == "vhost_net"


def test_a_new_driver_comes_when_the_core_is_the_same(machine: Machine) -> None:
    machine.load("nodrop", NEW, 1)
    machine.load("tun", NEW, 2)
    machine.load("vhost_net", OLD, 0)
    assert machine.settle() == ""
    assert machine.asked() == ["vhost_net"]


def test_macvtap_and_its_devices_stay(machine: Machine) -> None:
    machine.load("tap", OLD, 1)
    machine.load("macvtap", OLD, 0)
    link = machine.sys / "class/macvtap/tap5"
    machine.write("sys/devices/virtual/net/macvtap0/macvtap/tap5/uevent", "")
    link.parent.mkdir(parents=True)
    link.symlink_to("../../devices/virtual/net/macvtap0/macvtap/tap5")
    machine.open(123, "qemu", "/dev/tap5")
    said = machine.settle()
    assert machine.asked() == []
    assert "tap in memory cannot be exchanged while in use (uses: tap 1)" in said
    assert "when qemu (pid 123) and the persistent devices macvtap0 is stopped" in said
    assert "'rmmod macvtap tap'" in said


def test_an_unused_tap_is_taken_out(machine: Machine) -> None:
    machine.load("tap", OLD, 0)
    assert machine.settle() == ""
    assert machine.asked() == ["tap"]


def test_what_is_patched_stays(machine: Machine) -> None:
    machine.load("tun", OLD, 0)
    machine.write("sys/kernel/livepatch/nodrop_live/enabled", "1\n")
    assert "nodrop uninstall --live" in machine.settle()
    assert machine.asked() == []


def test_nobody_to_be_seen(machine: Machine) -> None:
    machine.load("tun", OLD, 1)
    assert "when who uses them (nobody that can be seen here) is stopped" in machine.settle()


def test_what_to_run_names_what_is_loaded(machine: Machine) -> None:
    machine.load("tun", OLD, 1)
    machine.load("nodrop", OLD, 1)
    assert "'rmmod tun nodrop'" in machine.settle()


def test_names_are_no_commands_for_the_terminal(machine: Machine) -> None:
    machine.load("tun", OLD, 1)
    machine.open(5, "qemu\x1b[2J\rx\x9b", "/dev/net/tun")
    machine.write("sys/class/net/tap\x1b[0/tun_flags", "0x1802\n")
    said = machine.settle()
    assert said.strip().isprintable()
    assert "qemu?[2J?x" in said
    assert "tap?[0" in said


@pytest.mark.parametrize("how", ["in", "out"])
def test_initial_ram_disks_get_what_is_on_disk(machine: Machine, how: str) -> None:
    machine.write("boot/initrd.img-6.1", "usr/lib/modules/6.1/kernel/drivers/net/tun.ko.xz\n")
    machine.write("boot/initrd.img-6.12", "usr/lib/modules/6.12/kernel/drivers/net/veth.ko\n")
    assert machine.settle(how) == ""
    assert (machine.sys / "asked").read_text() == "initramfs 6.1\n"


def test_the_device_comes_back(machine: Machine) -> None:
    """It goes with the module."""
    machine.load("tun", OLD, 0)
    (machine.place / "dev/net/tun").unlink()
    assert machine.settle("out") == ""
    assert (machine.sys / "asked").read_text() == "tun\nmodprobe -q tun\n"


@pytest.mark.parametrize(
    ("state", "loads"), [("none [integrity] confidentiality", False), ("[none] integrity", True)]
)
def test_lockdown(machine: Machine, state: str, loads: bool) -> None:
    machine.write("sys/kernel/security/lockdown", f"{state}\n")
    assert machine.signed() is loads


@pytest.mark.parametrize("enforced", ["Y", "N"])
def test_enforced_signatures(machine: Machine, enforced: str) -> None:
    machine.write("sys/module/module/parameters/sig_enforce", f"{enforced}\n")
    assert machine.signed() is (enforced == "N")


@pytest.mark.parametrize("on", [0, 1])
def test_secure_boot(machine: Machine, on: int) -> None:
    name = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    machine.write(name, "")
    (machine.place / name).write_bytes(bytes([6, 0, 0, 0, on]))
    assert machine.signed() is (on == 0)


NAME = "DKMS module signing key"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """As DKMS makes one, and its subject key identifier."""
    place = tmp_path_factory.mktemp("key")
    words = f"openssl req -new -x509 -nodes -days 9 -newkey rsa:2048 -outform DER -out {place}/c"
    command = [*words.split(), "-subj", f"/CN={NAME}", "-keyout", "/dev/null"]
    subprocess.run(command, check=True, capture_output=True)
    made = (place / "c").read_bytes()
    shown = ["openssl", "x509", "-inform", "DER", "-noout", "-text"]
    text = subprocess.run(shown, input=made, check=True, capture_output=True).stdout.decode()
    after = text.partition("Subject Key Identifier:")[2].split()[0]
    return made, after.replace(":", "").lower()


@pytest.fixture
def strict(machine: Machine, certificate: tuple[bytes, str]) -> Machine:
    """It loads signed modules only; DKMS has its key."""
    machine.write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    machine.write("dkms/mok.pub", "")
    (machine.place / "dkms/mok.pub").write_bytes(certificate[0])
    return machine


def keys(name: str, identifier: str) -> str:
    return (
        f"1f2e3d4c I------     1 perm 1f010000     0     0 asymmetri {name}: {identifier}: "
        f"X509.rsa {identifier[-8:]} []\n"
    )


def test_key_that_the_kernel_has(strict: Machine, certificate: tuple[bytes, str]) -> None:
    strict.write("proc/keys", keys(NAME, certificate[1]))
    assert strict.signed()


def test_another_key_of_the_same_name(strict: Machine, certificate: tuple[bytes, str]) -> None:
    strict.write("proc/keys", keys(NAME, certificate[1][::-1]))
    assert not strict.signed()


def test_certificate_that_dkms_is_told_to_use(
    strict: Machine, certificate: tuple[bytes, str]
) -> None:
    own = strict.place / "own.der"
    (strict.place / "dkms/mok.pub").rename(own)
    strict.write("proc/keys", keys("Our own key", certificate[1]))
    assert not strict.signed()
    strict.write("etc/dkms/framework.conf", "mok_certificate=/nope\n")
    strict.write("etc/dkms/framework.conf.d/own.conf", f'mok_certificate="{own}"\n')
    assert strict.signed()


@pytest.mark.parametrize(
    ("said", "enrolled"),
    [("enrolled", True), ("in the enrollment request", False), ("in the built-in", False)],
)
def test_what_mokutil_says(strict: Machine, said: str, enrolled: bool) -> None:
    mokutil = strict.place / "bin/mokutil"
    mokutil.write_text(f"#!/bin/sh\necho mok.pub is already {said}\n")
    assert strict.signed() is enrolled


@pytest.mark.parametrize("enrolled", [True, False])
def test_without_openssl(strict: Machine, *, enrolled: bool) -> None:
    (strict.place / "bin/openssl").write_text("#!/bin/sh\nexit 127\n")
    (strict.place / "bin/openssl").chmod(0o755)
    strict.write("proc/keys", keys(NAME, "ab" * 20))
    if enrolled:
        (strict.place / "bin/mokutil").write_text("#!/bin/sh\necho it is already enrolled\n")
    assert strict.signed() is enrolled
