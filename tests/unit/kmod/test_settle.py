# SPDX-License-Identifier: GPL-2.0-only
"""kmod/settle's handling of loaded modules, and the machines that kmod/signed refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from stubs import Done, programs, run, write

KMOD = Path(__file__).resolve().parents[3] / "kmod"
OLD, NEW = "ab" * 20, "cd" * 20
"""Build IDs: of the loaded module, and of the file on disk."""
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
STUBS = {
    "modinfo": 'test -e "$NODROP_SYS/../disk/$2.ko" && echo "$NODROP_SYS/../disk/$2.ko"',
    "readelf": 'echo "    Build ID: $(cat "$2")"',
    # Decrements the reference counts of the modules that it used.
    "rmmod": """echo "$1" >>"$NODROP_SYS/asked"; rm -r "$NODROP_SYS/module/$1"
    for f in "$NODROP_SYS"/module/*/holders/"$1"; do
        [ ! -e "$f" ] || { rm "$f"; f=${f%/holders/*}/refcnt; echo $(($(cat "$f") - 1)) >"$f"; }
    done""",
    # A file's last lines stand for its signature.
    "insmod": """words="Required key not available" taken=$NODROP_SYS/taken
    ! tail -c "$(stat -c %s "$taken")" "$1" | cmp -s - "$taken" || words="Invalid module format"
    echo "insmod: ERROR: could not insert module $1: $words" >&2; exit 1""",
    "uname": "echo 6.12.99-amd64",
    "modprobe": 'echo "modprobe $*" >>"$NODROP_SYS/asked"',
    "lsinitramfs": 'cat "$1"',
    "update-initramfs": 'echo "initramfs $3" >>"$NODROP_SYS/asked"',
}
SIGN = '[ "$1" = sha256 ] && [ -s "$2" ] && [ -s "$3" ] && cat "$3" >>"$4"'


class Machine:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.sys = place / "sys"
        programs(place / "bin", STUBS)
        for name in ("tun", "vhost_net", "tap", "nodrop"):
            self.write(f"disk/{name}.ko", NEW)
        self.sys.mkdir()
        (place / "dev/net").mkdir(parents=True)
        (place / "dev/net/tun").symlink_to("/dev/null")  # a character device, too
        (place / "proc/1").mkdir(parents=True)
        (place / "proc/1/root").symlink_to("/")

    def write(self, path: str, text: str | bytes = "") -> None:
        write(self.place / path, text)

    def load(self, name: str, build_id: str, uses: int) -> None:
        note = bytes(16) + bytes.fromhex(build_id)
        self.write(f"sys/module/{name}/notes/.note.gnu.build-id", note)
        self.write(f"sys/module/{name}/refcnt", f"{uses}\n")

    def uses(self, module: str, *others: str) -> None:
        """Let a module use others, with a reference to each."""
        for other in others:
            self.write(f"sys/module/{other}/holders/{module}")
            count = self.sys / f"module/{other}/refcnt"
            count.write_text(f"{int(count.read_text()) + 1}\n")

    def open(self, pid: int, name: str, device: str) -> None:
        self.write(f"proc/{pid}/comm", f"{name}\n")
        (self.place / f"proc/{pid}/fd").mkdir()
        (self.place / f"proc/{pid}/fd/4").symlink_to(device)

    def run(self, *command: str, **more: str) -> Done:
        names = ("sys", "proc", "etc", "dkms", "dev", "boot", "modules")
        where = {f"NODROP_{name.upper()}": self.place / name for name in names}
        return run(self.place / "bin", KMOD / command[0], *command[1:], **where, **more)

    def settle(self, how: str = "in") -> str:
        done = self.run("settle", how)
        assert done.returncode == 0, "an installation is never undone here"
        assert done.stdout == ""
        return done.stderr

    def signed(self) -> bool:
        done = self.run("signed", "6.1")
        assert bool(done.stderr) is bool(done.returncode)
        assert "mokutil --import" in done.stderr or done.returncode == 0
        assert done.stdout == ""
        return done.returncode == 0

    def setting(self, *names: str) -> list[str]:
        return self.run("framework", *names).stdout.splitlines()

    def asked(self) -> list[str]:
        path = self.sys / "asked"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


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
    (machine.place / "disk/nodrop.ko").unlink()
    for name in ("tun", "nodrop"):
        machine.load(name, OLD, 0)
    assert machine.settle("out") == ""
    assert machine.asked() == ["tun", "nodrop"]


def test_holders_are_named(machine: Machine) -> None:
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
    machine.write("sys/class/net/tap0/tun_flags", "0x1802\n")
    machine.write("sys/class/net/tap1/tun_flags", "0x1002\n")
    machine.write("sys/devices/virtual/net/macvtap0/macvtap/tap5/uevent")
    link = machine.sys / "class/macvtap/tap5"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../devices/virtual/net/macvtap0/macvtap/tap5")
    output = machine.settle()
    assert set(re.findall(r"(\w+) \(pid (\d+)\)", output)) == {
        ("openvpn", "123"),
        ("qemu", "77"),
        ("qemu", "78"),
        ("vpn", "79"),
    }
    assert set(re.findall(r"\b(?:mac)?v?tap\d\b", output)) == {"tap0", "macvtap0"}
    assert "'rmmod tap tun && modprobe tun'" in output
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
    assert machine.settle().strip().isprintable()


@pytest.mark.parametrize("how", ["in", "out"])
def test_initial_ram_disks_are_updated(machine: Machine, how: str) -> None:
    machine.write("boot/initrd.img-6.1", "usr/lib/modules/6.1/kernel/drivers/net/tun.ko.xz\n")
    machine.write("boot/initrd.img-6.12", "usr/lib/modules/6.12/kernel/drivers/net/veth.ko\n")
    assert machine.settle(how) == ""
    assert machine.asked() == ["initramfs 6.1"]


def test_device_node_is_restored(machine: Machine) -> None:
    """The device node is deleted with the module."""
    machine.load("tun", OLD, 0)
    (machine.place / "dev/net/tun").unlink()
    assert machine.settle("out") == ""
    assert machine.asked() == ["tun", "modprobe -q tun"]


def test_in_a_chroot_the_running_kernel_stays(machine: Machine) -> None:
    """The chroot has its modules, too, and the machine's /sys."""
    machine.load("tun", OLD, 0)
    machine.write("boot/initrd.img-6.1", "usr/lib/modules/6.1/kernel/drivers/net/tun.ko.xz\n")
    (machine.place / "dev/net/tun").unlink()
    root = machine.place / "proc/1/root"
    root.unlink()
    root.symlink_to(machine.place)
    assert machine.settle() == ""
    assert machine.asked() == ["initramfs 6.1"]


@pytest.mark.parametrize(
    ("path", "text", "loads"),
    [
        ("sys/kernel/security/lockdown", "none [integrity] confidentiality\n", False),
        ("sys/kernel/security/lockdown", "[none] integrity\n", True),
        ("sys/module/module/parameters/sig_enforce", "Y\n", False),
        ("sys/module/module/parameters/sig_enforce", "N\n", True),
        (SECURE_BOOT, bytes([6, 0, 0, 0, 1]), False),
        (SECURE_BOOT, bytes([6, 0, 0, 0, 0]), True),
    ],
)
def test_signature_enforcement(machine: Machine, path: str, text: str | bytes, loads: bool) -> None:
    machine.write(path, text)
    assert machine.signed() is loads


@pytest.fixture
def strict(machine: Machine) -> Machine:
    """A machine that loads only signed modules; its kernel accepts DKMS's key."""
    machine.write("sys/module/module/parameters/sig_enforce", "Y\n")
    machine.write("modules/6.1/build/.config", 'CONFIG_MODULE_SIG_HASH="sha256"\n')
    programs(machine.place / "modules/6.1/build/scripts", {"sign-file": SIGN})
    for name in ("mok.key", "mok.pub"):
        machine.write(f"dkms/{name}", "DKMS's\n")
        (machine.place / "dkms" / name).chmod(0o600)
    machine.write("sys/taken", "DKMS's\n")
    return machine


def test_trusted_key(strict: Machine) -> None:
    assert strict.signed()
    strict.write("sys/taken", "another's\n")
    assert not strict.signed()


@pytest.mark.parametrize(("command", "status"), [("settle in", 0), ("signed 6.1", 1)])
def test_no_space_for_temporary_files(strict: Machine, command: str, status: int) -> None:
    strict.load("tun", OLD, 0)
    done = strict.run(*command.split(), TMPDIR="/nope")
    assert (done.returncode, strict.asked()) == (status, [])
    assert "nodrop: " in done.stderr


@pytest.mark.parametrize("missing", ["mok.key", "mok.pub"])
def test_new_key_can_be_enrolled(strict: Machine, missing: str) -> None:
    (strict.place / "dkms" / missing).unlink()
    assert not strict.signed()
    made = (strict.place / "dkms/mok.pub").read_bytes()
    assert not strict.signed()
    assert (strict.place / "dkms/mok.pub").read_bytes() == made
    assert (strict.place / "dkms/mok.key").stat().st_mode & 0o077 == 0
    strict.write("sys/taken", made)
    assert strict.signed()


@pytest.mark.parametrize(
    ("path", "program"),
    [
        ("modules/6.1/build/scripts/sign-file", "exit 1"),
        # The kernel refuses a file that is no module before it checks the signature.
        ("bin/uname", "echo 5.10.0-30-amd64"),
        ("bin/insmod", 'echo "insmod: ERROR: could not insert module x: Operation not permitted"'),
    ],
)
def test_unknown_is_refused(strict: Machine, path: str, program: str) -> None:
    file = strict.place / path
    programs(file.parent, {file.name: program})
    assert not strict.signed()


def test_configured_certificate(strict: Machine) -> None:
    own = strict.place / "own.der"
    (strict.place / "dkms/mok.pub").rename(own)
    strict.write("etc/dkms/framework.conf", "mok_certificate=/nope\n")
    strict.write("etc/dkms/framework.conf.d/own.conf", f'mok_certificate="{own}"\n')
    assert strict.signed()


@pytest.mark.parametrize(
    ("conf", "signed"),
    [
        ('sign_file="/usr/lib/linux-kbuild-${kernelver%.*}/scripts/sign-file$unknown"', True),
        ('sign_file="$dkms_tree/sign"', False),
        # The default certificate is in the default tree.
        ('dkms_tree="$dkms_tree/other"', True),
        ('mok_certificate="$dkms_tree/mok.pub"', True),
        ('mok_certificate="$dkms_tree/other.pub"', False),
    ],
)
def test_settings_that_use_variables(strict: Machine, conf: str, signed: bool) -> None:
    programs(strict.place / "dkms", {"sign": "exit 1"})
    strict.write("dkms/other.pub", "another's\n")
    strict.write("etc/dkms/framework.conf", f"{conf}\n")
    assert strict.signed() is signed


@pytest.mark.parametrize("system", ["ID=ubuntu\n", 'ID=linuxmint\nID_LIKE="ubuntu debian"\n'])
def test_ubuntu_signs_with_shims_key(strict: Machine, system: str) -> None:
    """Unless DKMS's settings name another key."""
    shim = "/var/lib/shim-signed/mok/MOK"
    strict.write("etc/os-release", system)
    assert strict.setting("mok_signing_key", "mok_certificate") == [f"{shim}.priv", f"{shim}.der"]
    strict.write("etc/dkms/framework.conf", "mok_signing_key=$dkms_tree/mok.key\n")
    assert strict.signed()
