#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The packages on a system that systemd has booted, with two VPNs as services of Debian's package.

::

                       init's namespace    netns ndfar
    sshd <-- ndtest0 <-- openvpn@near ----- openvpn@far <-- ndfar0 <-- ssh nodrop reload
                             ndveth0 ======= ndveth1

systemd is process 1 of a PID namespace, with mounts of its own. It ends with that process, and can
boot again.
"""

from __future__ import annotations

import lzma
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "proof/programs"))

from devices import NAME
from harness import check, each, equal, run
from vnet import becomes, tap

from guestlib.drivers import module_file, unload_all
from guestlib.environment import GuestError, time_limit, wait_until
from guestlib.process import tool
from guestlib.vpns import DEFAULT, FAR, NEAR, VETH, OpenVpn
from nodrop.host import ethtool, modules

CONFIG = Path("/etc/openvpn")
UNITS = Path("/etc/systemd/system")
COMMAND = "/usr/share/nodrop"
SLOW_RULE = Path("/etc/udev/rules.d/10-slow.rules")
METRICS = Path("/var/lib/prometheus/node-exporter")
HOLD = CONFIG / "hold"
"""While it exists, the near VPN does not start."""
KEY = Path("/root/.ssh/id_ed25519")
VPNS = ("openvpn@near.service", "openvpn@far.service")
BOOT = """\
mount -t tmpfs -o mode=755 run /run
exec env -i PATH=$PATH /lib/systemd/systemd --show-status=no
"""
NETNS = f"""\
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=ip netns add {FAR.netns}
ExecStart=ip link add {VETH[0]} type veth peer name {VETH[1]} netns {FAR.netns}
ExecStart=ip address add {NEAR.outer}/24 dev {VETH[0]}
ExecStart=ip link set dev {VETH[0]} up
ExecStart=ip -n {FAR.netns} address add {FAR.outer}/24 dev {VETH[1]}
ExecStart=ip -n {FAR.netns} link set dev {VETH[1]} up
"""
DROP_IN = """\
[Unit]
Requires=netns.service
After=netns.service
[Service]
TimeoutStartSec=infinity
"""
WAITS = f"ExecStartPre=/bin/sh -c 'while [ -e {HOLD} ]; do sleep 1; done'\n"
MOVES = f"NetworkNamespacePath=/run/netns/{FAR.netns}\n"
SSHD = "ClientAliveInterval 10\nClientAliveCountMax 2\n"
"""A session ends some seconds after its VPN."""
STUCK = """\
[Service]
ExecStart=/bin/sh -c "trap '' TERM; exec 3<>/dev/net/tun; while :; do sleep 1; done"
TimeoutStopSec=infinity
"""
UNPRIVILEGED = """\
[Service]
User=daemon
ExecStart=/bin/sh -c "exec 3<>/dev/net/tun; exec sleep infinity"
"""
FAILS_WITH_NODROP = """\
[Service]
ExecStart=/bin/sh -c "exec 3<>/dev/net/tun; sleep 0.2; \\
  [ ! -e /sys/module/tun/parameters/nodrop ] || exit 1; exec sleep infinity"
"""
MASKED = ("ldconfig", "systemd-journal-catalog-update", "console-getty", "getty@tty1")
"""Slow, or in the way of the kernel's log."""
IMPATIENT = f"""\
import sys
sys.path.insert(0, "{COMMAND}")
from nodrop import cli
from nodrop.host import reload
reload.STEP_TIMEOUT_S = 30
sys.exit(cli.main(["reload", "--yes"]))
"""


def until(condition: Callable[[], bool], text: str, timeout: float = 60.0) -> None:
    """Fail unless the condition, which takes time to find out, holds within the time limit."""
    check(wait_until(condition, timeout, step_s=0.3), text)


def show(text: str) -> None:
    """Print diagnostics."""
    for line in text.splitlines():
        print("#", line, flush=True)


class BootedSystem:
    """A booted systemd."""

    def __init__(self) -> None:
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._process = subprocess.Popen([*words, "sh", "-c", BOOT], stdin=subprocess.DEVNULL)
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        until(lambda: bool(children.read_text()), "unshare starts no process")
        self._pid = children.read_text().strip()
        states = ("running", "degraded")
        until(lambda: self.state in states, "systemd does not boot")

    @property
    def state(self) -> str:
        return self.ask("systemctl", "is-system-running").stdout.strip()

    def enter(self, *words: str) -> list[str]:
        """Return the command that runs a program in the system, with the installed nodrop."""
        enter = ["nsenter", "--target", self._pid, "--mount", "--pid", "--"]
        return [*enter, "env", "-u", "PYTHONPATH", *words]

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program as root; return its exit status and output."""
        return subprocess.run(
            self.enter(*words),
            capture_output=True,
            text=True,
            check=False,
            timeout=time_limit(60),
        )

    def run(self, *words: str, status: int = 0) -> str:
        """Run a program; fail unless its exit status is the expected one; return its output."""
        done = self.ask(*words)
        text = done.stdout + done.stderr
        fine = "Traceback" not in text and done.returncode == status
        check(fine, f"{words}: {done.returncode}: {text}")
        return text

    def activity(self, unit: str) -> str:
        return self.ask("systemctl", "is-active", unit).stdout.strip()

    def journal(self, unit: str) -> str:
        return self.run("journalctl", "--no-pager", "-o", "cat", "-u", unit)

    def end(self) -> None:
        """Kill it and all that it has started; wait until their devices are gone."""
        os.kill(int(self._pid), signal.SIGKILL)
        self._process.wait(time_limit(10))
        gone = (Path("/sys/class/net", name) for name in (NAME, VETH[0]))
        until(lambda: not any(map(Path.exists, gone)), "devices stay")


@cache
def configure() -> None:
    """Write the VPNs' configurations and units, and keys for SSH."""
    vpn = OpenVpn((NEAR, FAR), CONFIG, DEFAULT)
    near_print, far_print = vpn.make_key(NEAR), vpn.make_key(FAR)
    configs = {
        "near": (vpn.arguments(NEAR, FAR, "server", far_print), WAITS),
        "far": (vpn.arguments(FAR, NEAR, "client", near_print), MOVES),
    }
    for name, (words, own) in configs.items():
        (CONFIG / f"{name}.conf").write_text(" ".join(words).replace(" --", "\n") + "\n")
        folder = UNITS / f"openvpn@{name}.service.d"
        folder.mkdir()
        (folder / "test.conf").write_text(DROP_IN + own)
    for name in MASKED:
        (UNITS / f"{name}.service").symlink_to("/dev/null")
    (UNITS / "netns.service").write_text(NETNS)
    (UNITS / "stuck.service").write_text(STUCK)
    (UNITS / "unprivileged.service").write_text(UNPRIVILEGED)
    (UNITS / "late.service").write_text(FAILS_WITH_NODROP)
    Path("/etc/ssh/sshd_config.d/test.conf").write_text(SSHD)
    KEY.parent.mkdir(mode=0o700, exist_ok=True)
    tool(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(KEY)])
    (KEY.parent / "authorized_keys").write_text(KEY.with_suffix(".pub").read_text())
    METRICS.mkdir(parents=True)


@cache
def booted() -> BootedSystem:
    configure()
    system = BootedSystem()
    until(passes, "the VPN does not start")
    return system


def end() -> None:
    if booted.cache_info().currsize:
        booted().end()
        booted.cache_clear()


def reboot() -> BootedSystem:
    """Boot with no module of nodrop's loaded."""
    end()
    unload_all()
    return booted()


def passes() -> bool:
    try:
        tool(["ping", "-n", "-q", "-c", "1", "-W", "5", FAR.inner])
    except GuestError:
        return False
    return True


def driver() -> str | None:
    return modules.driver(Path("/"))


def with_stock() -> BootedSystem:
    """Let the VPNs use the stock driver."""
    system = booted()
    system.run("systemctl", "stop", *VPNS)
    unload_all()
    # So that the kernel makes it, as if tun were there before systemd-tmpfiles: it goes with tun.
    Path("/dev/net/tun").unlink(missing_ok=True)
    file = module_file(Path(os.environ["LAB_MODULES"]), "stock/tun.ko")
    tool(["insmod", str(file)])
    system.run("udevadm", "settle")
    system.run("systemctl", "start", *VPNS)
    until(passes, "the VPN does not start")
    equal(driver(), "stock", "the driver before")
    return system


def works(system: BootedSystem, wanted: str) -> None:
    until(passes, "the VPN does not come back")
    equal([system.activity(unit) for unit in VPNS], ["active"] * 2, "the VPNs")
    equal(driver(), wanted, "the driver")


def case_boot() -> None:
    """The first VPN loads tun; doctor finds nothing."""
    system = reboot()
    equal((driver(), system.state), ("nodrop", "running"), "driver and state")
    show(system.run("nodrop", "status", "--all-namespaces"))
    show(system.run("nodrop", "doctor", "--all-namespaces"))


def case_reload_through_the_vpn() -> None:
    """The session ends while the VPN is stopped, and the VPN starts only then."""
    system = with_stock()
    HOLD.touch()
    ssh = ["ssh", "-tt", "-i", str(KEY), "-o", "StrictHostKeyChecking=no", f"root@{NEAR.inner}"]
    words = ["ip", "netns", "exec", str(FAR.netns), *ssh, "nodrop", "reload", "--yes"]
    client = subprocess.Popen(
        system.enter(*words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until(lambda: driver() == "nodrop" or client.poll() is not None, "nothing is replaced")
        session = ["pgrep", "-f", "sshd-session: root"]
        until(lambda: system.ask(*session).returncode == 1, "the session does not end")
        # logind's KillUserProcesses= does this.
        system.run("pkill", "--signal", "KILL", "-f", "bin/nodrop reload|systemd-run --collect")
        equal(system.activity("nodrop-reload"), "activating", "the script after the session's end")
        HOLD.unlink()
        until(lambda: system.activity("nodrop-reload") == "inactive", "the script does not end")
    finally:
        client.kill()
        show(client.communicate()[0])
        HOLD.unlink(missing_ok=True)
        show(Path("/var/log/nodrop/reload.log").read_text())
        show(system.journal("nodrop-reload.service"))
    works(system, "nodrop")
    equal(ethtool.private_flags(NAME), {"nodrop": True}, "the new device's flag")


def case_reload_without_dbus() -> None:
    system = with_stock()
    system.run("systemctl", "stop", "dbus.socket", "dbus.service")
    try:
        system.run("nodrop", "reload", "--yes")
    finally:
        system.run("systemctl", "start", "dbus.socket", "dbus.service")
    works(system, "nodrop")


def case_reload_of_an_unprivileged_service() -> None:
    """udev lets it open /dev/net/tun only some time after tun was loaded."""
    system = with_stock()
    unit = "unprivileged.service"
    system.run("systemctl", "start", unit)
    equal(system.activity(unit), "active", "the service before")
    SLOW_RULE.write_text('KERNEL=="tun", PROGRAM="/bin/sleep 10"\n')
    try:
        system.run("udevadm", "control", "--reload")
        system.run("nodrop", "reload", "--yes")
        works(system, "nodrop")
        show(system.journal(unit))
        equal(system.activity(unit), "active", "the service")
    finally:
        SLOW_RULE.unlink()
        system.run("udevadm", "control", "--reload")
        system.run("systemctl", "stop", unit)


def case_reload_of_a_service_that_fails_with_nodrop() -> None:
    """systemctl starts it without an error; it ends later."""
    system, unit = with_stock(), "late.service"
    system.run("systemctl", "start", unit)
    time.sleep(1)
    equal(system.activity(unit), "active", "the service before")
    try:
        text = system.run("nodrop", "reload", "--yes", status=1)
        check(f"{unit} is not active" in text, text)
        works(system, "nodrop")
    finally:
        system.run("systemctl", "reset-failed", unit)
        system.ask("systemctl", "stop", unit)


@each("refuses", "cannot read")
def case_the_kernel(what: object) -> None:
    system = with_stock()
    file = Path(tool(["modinfo", "--field", "filename", "tun"]).strip())
    good = file.read_bytes()
    bad = lzma.decompress(good).replace(b" SMP preempt ", b" SMP preempT ")
    packed = lzma.compress(bad, check=lzma.CHECK_CRC32)
    file.write_bytes(packed if what == "refuses" else packed[: len(packed) // 2])
    try:
        show(system.run("nodrop", "reload", "--yes", status=1))
    finally:
        file.write_bytes(good)
    works(system, "stock")


def case_reload_of_what_does_not_stop() -> None:
    system = with_stock()
    system.run("systemctl", "start", "stuck.service")
    try:
        show(system.run("python3", "-c", IMPATIENT, status=1))
        works(system, "stock")
    finally:
        system.run("systemctl", "stop", "--no-block", "stuck.service")
        system.run("systemctl", "kill", "--signal=KILL", "stuck.service")
        until(lambda: system.activity("stuck.service") != "active", "it is not killed")


def case_qdiscs() -> None:
    unit = "nodrop-qdisc.service"
    system = booted()

    def state() -> tuple[str, str]:
        values = [
            system.ask("systemctl", word, unit).stdout.strip()
            for word in ("is-enabled", "is-active")
        ]
        return values[0], values[1]

    equal(state(), ("disabled", "inactive"), "the service before")
    show(system.run("nodrop", "set", "vnet*", "qdisc", "fq_codel"))
    equal(state(), ("enabled", "active"), "the service")
    with tap("vnet0"):
        becomes("vnet0", "fq_codel")
        check("vnet0" in system.journal(unit), "the journal does not tell")
    for words in (["restart"], ["reset-failed"]):
        system.run("systemctl", *words, unit)
        with tap("vnet1"):
            becomes("vnet1", "fq_codel")
    equal(state(), ("enabled", "active"), "the service")
    system.run("systemctl", "stop", unit)
    system.run("nodrop", "set", "tap*", "qdisc", "fq_codel")
    equal(state(), ("enabled", "active"), "the service, which was stopped")
    show(system.run("systemd-analyze", "security", "--no-pager", unit).splitlines()[-1])
    for name in ("vnet*", "tap*"):
        system.run("nodrop", "set", name, "qdisc", "default")
    equal(state(), ("disabled", "inactive"), "the service without settings")
    show(system.journal(unit))


def case_export() -> None:
    unit, file = "nodrop-export", METRICS / "nodrop.prom"
    system = booted()
    system.run("systemctl", "start", f"{unit}.service")
    text = file.read_text()
    show(text)
    file.unlink()
    system.run("systemctl", "enable", "--now", f"{unit}.timer")
    until(file.exists, "the timer starts nothing")
    system.run("systemctl", "disable", "--now", f"{unit}.timer")
    show(system.journal(f"{unit}.service"))
    show(
        system.run("systemd-analyze", "security", "--no-pager", f"{unit}.service").splitlines()[-1]
    )


def case_boot_with_kept_settings() -> None:
    """They apply to the device of a VPN that starts at boot, and to a later one."""
    system = booted()
    system.run("nodrop", "set", NAME, "backpressure", "off")
    system.run("nodrop", "set", "vnet*", "qdisc", "fq_codel")
    system = reboot()
    equal(system.state, "running", "the system's state")
    until(lambda: not ethtool.private_flags(NAME)["nodrop"], "the kept setting is not applied")
    with tap("vnet0"):
        becomes("vnet0", "fq_codel")
    show(system.run("nodrop", "doctor", "--all-namespaces", "--ignore", "nodrop-off"))
    system.run("nodrop", "set", NAME, "backpressure", "default")
    system.run("nodrop", "set", "vnet*", "qdisc", "default")


def case_removal() -> None:
    """An upgrade restarts the service that 'set' has enabled, and a removal stops it."""
    unit = "nodrop-qdisc.service"
    system = booted()
    system.run("nodrop", "set", "vnet*", "qdisc", "fq_codel")
    before = system.run("systemctl", "show", "--property=MainPID", unit)
    system.run("/var/lib/dpkg/info/nodrop.postinst", "configure", "0.1")
    equal(system.activity(unit), "active", "the service after an upgrade")
    check(before != system.run("systemctl", "show", "--property=MainPID", unit), "the same process")
    system.run("dpkg", "--purge", "nodrop")
    equal(system.activity(unit), "inactive", "the service")
    equal(list(UNITS.rglob("nodrop*")), [], "left behind")
    equal(system.run("systemctl", "--failed", "--no-legend"), "", "failed units")


run(tun=None, at_end=end)
