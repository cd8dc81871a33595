# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop reload``: what it refuses, and its script, which always starts what it stopped.

proof/programs/cmd_reload.py has it with real modules and a terminal that hangs up.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hosts import device
from hosts import host as recorded
from schema import answer
from stubs import before, process, programs, write
from test_modules import NEW, NOTE, OLD, RELEASE

from nodrop.cli import main
from nodrop.commands import reload as command
from nodrop.errors import NodropError
from nodrop.host import procfs, reload
from nodrop.host.model import Device

Capture = pytest.CaptureFixture[str]
STUBS = {
    name: '[ "$1" != show ] || exec cat "$HOST/units"; M=$HOST/sys/module; '
    '[ "$1" != is-active ] || { ! grep -qxF -e "$4" "$HOST/dead"; exit; }; '
    f'echo "{name} $*" >>"$HOST/ran"; '
    f'case "{name} $*" in "$(cat "$HOST/fails")"*) exit 1 ;; esac; {text}'
    for name, text in {
        "systemctl": "",
        "rmmod": 'rm -r "$M/$1"',
        "modprobe": '[ ! -e "$M/tun" ] || exit 0; mkdir -p "$M/tun/notes" "$M/tun/parameters"; '
        'echo live >"$M/tun/initstate"; cp "$HOST/note" "$M/tun/notes/.note.gnu.build-id"; '
        'touch "$M/tun/parameters/nodrop"',
        "vpn": "",
        "udevadm": "",
        # It has options, then the command.
        "systemd-run": 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"',
    }.items()
}
VPN = "0::/system.slice/openvpn@a.service\n"
UNLOAD = ["rmmod vhost_net", "rmmod tun"]
STOP, START = (f"systemctl {verb} -- openvpn@a.service" for verb in ("stop", "start"))
LOAD = ["modprobe tun"]


class VpnHost:
    """A root directory with the stock tun loaded, nodrop's on disk, and a VPN."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.devices: list[Device] = []
        programs(root / "bin", STUBS)
        folder = root / "lib/modules" / RELEASE
        for name in ("tun", "nodrop", "vhost_net"):
            write(folder / f"updates/dkms/{name}.ko", NOTE + bytes.fromhex(NEW))
            with (folder / "modules.dep").open("a") as file:
                file.write(f"updates/dkms/{name}.ko:\n")
        write(root / "note", NOTE + bytes.fromhex(NEW))
        write(root / "fails", "nothing")
        write(root / "dead")
        write(root / "units")
        self.unit("openvpn@a.service")
        self.load("tun")
        self.load("vhost_net")
        self.open(81, "openvpn", VPN)

    def load(self, name: str) -> None:
        write(self.root / f"sys/module/{name}/initstate", "live\n")
        write(self.root / f"sys/module/{name}/refcnt", "1\n")
        note = NOTE + bytes.fromhex(OLD)
        write(self.root / f"sys/module/{name}/notes/.note.gnu.build-id", note)

    def open(self, pid: int, name: str, cgroup: str) -> None:
        process(self.root / "proc", pid, {4: ("/dev/net/tun", "pos:\t0\n")}, name, cgroup)

    def unit(self, name: str, **properties: str) -> None:
        """Let systemd have a unit, besides the others: it answers with all, whatever is asked."""
        file = write(self.root / f"units.d/{name}")
        known = {"Id": name, "ActiveState": "active", "LoadState": "loaded", "Transient": "no"}
        known |= {"FragmentPath": f"/{file.relative_to(self.root)}", **properties}
        with (self.root / "units").open("a") as units:
            units.write("".join(f"{key}={value}\n" for key, value in known.items()) + "\n")

    @property
    def ran(self) -> list[str]:
        file = self.root / "ran"
        return file.read_text().splitlines() if file.exists() else []


def link(name: str, pid: int = 0, **more: Any) -> Device:
    made = device(recorded("stock"), "ndtest0")
    owners = tuple(replace(owner, pid=pid) for owner in made.owners)
    return replace(made, name=name, owners=owners, **more)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VpnHost:
    made = VpnHost(tmp_path)
    monkeypatch.setenv("PATH", before(tmp_path / "bin"))
    monkeypatch.setenv("HOST", str(tmp_path))
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(procfs, "capable", lambda _: True)
    monkeypatch.setattr(reload, "_devices", lambda: made.devices)
    monkeypatch.setattr(reload, "_UNLOAD_TRIES", 1)
    monkeypatch.setattr(reload, "_SETTLE_S", 0)
    return made


def test_dry_run_prints_what_is_done(host: VpnHost, capsys: Capture) -> None:
    data = answer(capsys, "reload", "--dry-run")
    assert host.ran == []
    assert (data["ends"], data["loaded"]) == (["openvpn(81) of openvpn@a.service"], "stock")
    done = answer(capsys, "reload", "--yes")
    assert (done["changed"], done["loaded"]) == (True, "nodrop")
    assert host.ran == data["actions"] == done["actions"] == [STOP, *UNLOAD, *LOAD, START]
    assert "tun is nodrop's now" in (host.root / reload.LOG).read_text()
    assert answer(capsys, "reload")["changed"] is False


def test_in_a_unit_of_its_own(host: VpnHost) -> None:
    (host.root / "run/systemd/system").mkdir(parents=True)
    assert main(["-q", "reload", "--yes"]) == 0
    first, *rest = host.ran
    assert first.startswith("systemd-run ")
    assert "--unit=nodrop-reload" in first
    assert rest == [STOP, *UNLOAD, *LOAD, START]
    # systemd refuses a second unit of that name.
    host.load("tun")
    write(host.root / "fails", "systemd-run \n")
    assert main(["-q", "reload", "--yes"]) == 1
    assert STOP not in host.ran[len(rest) + 1 :]


@pytest.mark.parametrize(
    ("fails", "ran"),
    [
        ("systemctl ", [STOP, *LOAD, START]),
        ("rmmod ", [STOP, UNLOAD[0], *LOAD, START]),
        ("modprobe ", [STOP, *UNLOAD, *LOAD, *LOAD, START]),
        ("systemctl start", [STOP, *UNLOAD, *LOAD, START]),
    ],
)
def test_services_start_again_whatever_fails(
    host: VpnHost, capsys: Capture, fails: str, ran: list[str]
) -> None:
    write(host.root / "fails", f"{fails}\n")
    assert main(["-q", "reload", "--yes"]) == 1
    assert host.ran == ran
    assert "Traceback" not in capsys.readouterr().err


def test_services_that_end_after_their_start(host: VpnHost, capsys: Capture) -> None:
    """systemd calls one of Type=simple started as soon as it has forked."""
    host.open(82, "vpn", "0::/system.slice/vpn.service\n")
    host.unit("vpn.service", RequiredBy="once.service")
    host.unit("once.service")
    write(host.root / "dead", "once.service\n")
    assert main(["-q", "reload", "--yes"]) == 0, "not one that has no device open"
    host.load("tun")
    write(host.root / "dead", "vpn.service\n")
    assert main(["-q", "reload", "--yes"]) == 1
    log = capsys.readouterr().err
    assert "vpn.service is not active" in log
    assert "openvpn@a.service is" not in log


def test_programs_move_from_a_built_in_tun(host: VpnHost) -> None:
    """Only they are restarted; the modules stay."""
    for name in ("tun", "vhost_net"):
        shutil.rmtree(host.root / "sys/module" / name)
    write(host.root / "sys/class/misc/tun/dev")
    write(host.root / "sys/module/nodrop_tun/parameters/nodrop")
    host.open(82, "vpn", "0::/system.slice/vpn.service\n")
    host.unit("vpn.service")
    host.devices.append(link("tun0", pid=81))
    assert main(["-q", "reload", "--yes"]) == 1, "they are still there"
    assert host.ran == [STOP, START]
    host.devices.clear()
    assert main(["-q", "reload", "--yes"]) == 0
    assert host.ran == [STOP, START]


def test_commands_of_several_lines(host: VpnHost) -> None:
    """The script runs in any POSIX shell."""
    host.open(82, "vpn", "0::/user.slice/x.scope\n")
    begin, end = f"vpn a\n\techo >{host.root}/stopped", "vpn b\nvpn 'c d'"
    assert main(["-q", "reload", "--yes", "--stop", begin, "--start", end]) == 0
    assert (host.root / "stopped").exists()
    assert [line for line in host.ran if line.startswith("vpn")] == ["vpn a", "vpn b", "vpn c d"]


def test_command_that_is_not_utf8(host: VpnHost) -> None:
    host.open(82, "vpn", "0::/user.slice/x.scope\n")
    assert main(["-q", "reload", "--yes", "--stop", "vpn \udcff", "--start", "vpn b"]) == 0
    assert b"vpn \xff\n" in (host.root / "ran").read_bytes()


def test_another_driver_loads(host: VpnHost, capsys: Capture) -> None:
    """The kernel refuses nodrop's, and modprobe takes its own."""
    write(host.root / "note", NOTE + bytes.fromhex(OLD))
    assert main(["-q", "reload", "--yes"]) == 1
    assert host.ran[-1] == START
    assert "not those on disk" in capsys.readouterr().err


def test_kernel_that_nodrop_is_not_installed_for(host: VpnHost, capsys: Capture) -> None:
    """Without headers or an accepted key, for instance; after a removal, all is done."""
    shutil.rmtree(host.root / "lib/modules" / RELEASE / "updates")
    (host.root / "lib/modules" / RELEASE / "modules.dep").unlink()
    for name in ("tun", "vhost_net"):
        shutil.rmtree(host.root / "sys/module" / name)
    for options in ([], ["--dry-run"], ["--yes"]):
        assert "not installed" in answer(capsys, "reload", *options)["sentences"][0]
    sources = write(host.root / "usr/src/nodrop-1.0.0/dkms.conf")
    for options in ([], ["--dry-run"], ["--yes"]):
        assert main(["reload", *options]) == 1
        assert "nodrop doctor" in capsys.readouterr().err
    sources.unlink()
    assert host.ran == []


def test_udev_comes_before_the_services(host: VpnHost) -> None:
    """Until it has handled tun, only root can open /dev/net/tun."""
    write(host.root / "run/udev/control")
    assert main(["-q", "reload", "--yes"]) == 0
    assert [line.split()[0] for line in host.ran[-3:]] == ["modprobe", "udevadm", "systemctl"]


def test_module_that_cannot_be_read(host: VpnHost, capsys: Capture) -> None:
    """It is not known to be the loaded one."""
    write(host.root / f"lib/modules/{RELEASE}/updates/dkms/tun.ko", "cut off")
    assert main(["-q", "reload", "--yes"]) == 1
    assert "updates/dkms/tun.ko" in capsys.readouterr().err
    assert host.ran == []


@pytest.mark.parametrize("killed", [False, True])
def test_only_one_at_a_time(host: VpnHost, killed: bool) -> None:
    """The script goes on if its caller is killed; what it starts does not keep it locked."""
    files = [host.root / name for name in ("run/nodrop-reload.sh", reload.LOG, "waits", "daemon")]
    log, waits, daemon = files[1:]
    wait = f"touch {waits}; for _ in {{1..600}}; do [ -e $HOST/go ] || sleep 0.1; done"
    programs(host.root / "bin", {"modprobe": wait, "vpn": f"sleep 600 & echo $! >{daemon}"})
    plan = reload.plan(host.root, "true", "vpn")
    assert plan
    run = partial(reload.run, plan.script(host.root), lambda _: None, host.root)
    first = get_context("fork").Process(target=run)
    first.start()
    try:
        soon(waits.exists)
        made = [file.read_text() for file in files[:2]]
        if killed:
            first.kill()
            first.join()
        with pytest.raises(NodropError):
            run()
        assert [file.read_text() for file in files[:2]] == made
        log.unlink()
        write(host.root / "go")
        first.join(60)
        assert first.exitcode == (-signal.SIGKILL if killed else 0)
        soon(lambda: daemon.exists() and daemon.read_text())
        soon(lambda: can_lock(host.root / reload.LOCK))
    finally:
        write(host.root / "go")
        first.kill()
        if daemon.exists():
            os.kill(int(daemon.read_text()), signal.SIGKILL)


def soon(happened: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


def can_lock(file: Path) -> bool:
    with file.open() as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def test_what_cannot_be_started_again(host: VpnHost) -> None:
    host.open(90, "kvm", "0::/machine.slice/machine-qemu-1-web.scope\n")
    assert main(["reload", "--yes"]) == 1
    assert main(["reload", "--dry-run"]) == 1
    assert main(["reload", "--yes", "--stop", "vpn a"]) == 2
    assert host.ran == []
    assert main(["-q", "reload", "--yes", "--stop", "vpn a", "--start", "vpn b; vpn c"]) == 0
    assert host.ran == [STOP, "vpn a", *UNLOAD, *LOAD, START, "vpn b", "vpn c"]


def test_name_of_a_process_adds_no_line(host: VpnHost, capsys: Capture) -> None:
    """Any user may choose it."""
    host.open(90, "a\nrm -r b\n", "0::/user.slice/x.scope\n")
    assert main(["reload", "--yes"]) == 1
    assert main(["reload", "--dry-run", "--stop", "vpn a", "--start", "vpn b"]) == 0
    out, err = capsys.readouterr()
    assert [line for line in (out + err).splitlines() if line.startswith("rm -r b")] == []


@pytest.mark.parametrize(
    "properties",
    [
        {"Transient": "yes"},
        {"LoadState": "masked"},
        {"FragmentPath": "/etc/systemd/system/gone.service"},
        {"RefuseManualStart": "yes"},
        {"RefuseManualStop": "yes"},
    ],
)
@pytest.mark.parametrize("depends", [False, True])
def test_units_that_systemd_cannot_start_again(
    host: VpnHost, properties: dict[str, str], depends: bool
) -> None:
    """Neither a service with a device nor what stops with one; the administrator's commands can."""
    write(host.root / "units")
    needed = {"RequiredBy": "a.service"} if depends else properties
    host.unit("openvpn@a.service", **needed)
    if depends:
        host.unit("a.service", **properties)
    assert main(["reload", "--dry-run"]) == 1
    assert main(["-q", "reload", "--yes"]) == 1
    assert host.ran == []
    assert main(["-q", "reload", "--yes", "--stop", "vpn a", "--start", "vpn b"]) == 0
    stops, starts = ([STOP], [START]) if depends else ([], [])
    assert host.ran == [*stops, "vpn a", *UNLOAD, *LOAD, *starts, "vpn b"]


def test_units_that_systemd_does_not_know(host: VpnHost) -> None:
    write(host.root / "units")
    assert main(["reload", "--yes"]) == 1
    programs(host.root / "bin", {"systemctl": "exit 1"})
    assert main(["reload", "--yes"]) == 1
    assert host.ran == []


def test_running_units_that_stop_with_a_service(host: VpnHost, capsys: Capture) -> None:
    write(host.root / "units")
    host.unit("openvpn@a.service", RequiredBy="off.service web.service", BoundBy="web.service")
    host.unit("web.service", ConsistsOf="-part.service openvpn@a.service")
    host.unit("off.service", ActiveState="inactive", RequisiteOf="on.service")
    for name in ("-part.service", "on.service"):
        host.unit(name)
    done = answer(capsys, "reload", "--yes")
    words = "-- openvpn@a.service web.service on.service -part.service"
    assert host.ran[0] == f"systemctl stop {words}"
    assert host.ran[-1] == f"systemctl start {words}"
    assert done["ends"][1:] == [
        "web.service (needs openvpn@a.service)",
        "on.service (needs off.service)",
        "-part.service (needs web.service)",
    ]


def test_units_that_need_a_device(host: VpnHost, capsys: Capture) -> None:
    """It goes with the module, of which the service with the device has its own units."""
    host.devices = [link("tun-a"), link("tun1", netns="blue")]
    host.unit("sys-subsystem-net-devices-tun\\x2da.device", BoundBy="bound.service other.service")
    host.unit("sys-devices-virtual-net-tun\\x2da.device", BoundBy="openvpn@a.service")
    host.unit("sys-subsystem-net-devices-tun1.device", BoundBy="blue.service")
    host.unit("bound.service", RequiredBy="above.service")
    host.unit("other.service", ActiveState="inactive")
    for name in ("above.service", "blue.service"):
        host.unit(name)
    (host.root / "run/systemd/system").mkdir(parents=True)
    done = answer(capsys, "reload", "--dry-run")
    words = "-- openvpn@a.service bound.service above.service"
    assert done["actions"][0] == f"systemctl stop {words}"
    assert done["actions"][-1] == f"systemctl start {words}"
    assert done["ends"][1:] == [
        "bound.service (needs sys-subsystem-net-devices-tun\\x2da.device)",
        "above.service (needs bound.service)",
    ]
    (host.root / "run/systemd/system").rmdir()
    assert len(answer(capsys, "reload", "--dry-run")["ends"]) == 1


def test_refusals(host: VpnHost, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["reload"]) == 2, "stdin is no terminal"
    host.devices = [link("tap0", persist=True)]
    assert main(["reload", "--yes"]) == 1
    host.devices = []
    monkeypatch.setattr(procfs, "capable", lambda _: False)
    assert main(["reload", "--yes"]) == 4
    write(host.root / "sys/kernel/livepatch/nodrop_live/enabled")
    assert main(["reload", "--dry-run"]) == 1
    assert host.ran == []
