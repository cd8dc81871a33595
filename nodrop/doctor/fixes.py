# SPDX-License-Identifier: GPL-2.0-only
"""Command lines that fix problems."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from nodrop.doctor.observation import DeviceChange, Observation
from nodrop.host import modules
from nodrop.host.model import Device, Driver
from nodrop.host.netns import prefix
from nodrop.host.qdisc import KIND, WORDS
from nodrop.host.settings import can_keep
from nodrop.host.system import APT, System, headers_package
from nodrop.proc import join

_PROGRAM = Path(__file__).absolute().parents[2]
"""The directory of this command, or its file nodrop.pyz."""
_CLONE = (_PROGRAM / "packaging/lay").exists()


def command(*words: str) -> str:
    """Return a nodrop command line that works here: PATH may have no ``nodrop``."""
    if _PROGRAM.is_file() and not shutil.which("nodrop"):
        return join(sys.executable, str(_PROGRAM), *words)
    start = ("python3", "-m") if _CLONE and not shutil.which("nodrop") else ()
    return join(*start, "nodrop", *words)


def inside(device: Device, *words: str) -> str:
    """Return a command line that runs in the namespace of a device."""
    return prefix(device.netns or None) + join(*words)


def backpressure(device: Device, word: str = "on", *, keep: bool = True) -> str:
    """Return the command that switches backpressure; all macvtap and ipvtap share a switch."""
    if device.direct:
        return "echo Y >/sys/module/tap/parameters/nodrop"
    return _set(device, "backpressure", word, keep=keep)


def qdisc(device: Device) -> str:
    """Return the command that replaces a device's noqueue, whenever it appears if possible."""
    return _set(device, "qdisc", KIND)


def _set(device: Device, *setting: str, keep: bool = True) -> str:
    where = [f"--netns={device.netns}"] if device.netns.startswith("-") else ["-n", device.netns]
    now = [] if keep and can_keep(device.name) and not device.netns else ["--now"]
    name = ["--", device.name] if device.name.startswith("-") else [device.name]
    return command(*(where if device.netns else []), "set", *now, *name, *setting)


def txqueuelen(device: Device, packets: int) -> str:
    """Return the command that sets the length of a device's ring."""
    return inside(device, "ip", "link", "set", "dev", device.name, "txqueuelen", str(packets))


def fq_codel(device: Device) -> str:
    """Return the command that gives a device fq_codel, which keeps queues short.

    With several queues it is mq, which gives each queue net.core.default_qdisc: all queues would
    share the lock of a single fq_codel.
    """
    words = ["mq"] if device.queues > 1 else WORDS.split()
    return inside(device, "tc", "qdisc", "replace", "dev", device.name, "root", *words)


def install(observation: Observation) -> tuple[str, ...]:
    """Return commands that give tun flow control; the livepatch is last, as an alternative."""
    host, system = observation.host, observation.system
    if system.container:
        return ("# on the host of this container: nodrop install",)
    if host.tun.built_in and host.vhost_net.built_in:
        return ("# boot a kernel whose vhost_net is a module (CONFIG_VHOST_NET=m)",)
    if (running := system.running) and running.nodrop:
        return (*restart(observation), *livepatch(observation))
    return (install_command(system), *livepatch(observation))


def install_command(system: System) -> str:
    """Return the command that installs nodrop; without a package of its source, from a tree."""
    if _PROGRAM.is_file():
        return "# install nodrop on this machine: nodrop.pyz has no modules"
    if not (_CLONE or system.tree):
        # With the package of the command alone, 'nodrop install' has no sources.
        return (
            "# install the package nodrop-dkms, which was built with this one: "
            "apt install ./nodrop-dkms_*_all.deb"
        )
    proxmox = system.release.endswith("-pve")
    if system.distribution in ("", *APT) and not proxmox:
        return command("install")
    from_source = command("install", "--source", "DIR")
    where = "Proxmox" if proxmox else system.distribution
    return f"# {from_source} (DIR: this kernel's source; not tried on {where})"


def headers(system: System, release: str) -> tuple[str, ...]:
    """Return the command that installs the headers of a kernel, or a comment."""
    if system.distribution not in APT:
        return (f"# install the package with the headers of {release}",)
    package = headers_package(release)
    if release == system.release and not system.headers_offered:
        return (
            f"# apt has no {package}: run 'apt update', or boot another",
            "# kernel; for a kernel of your own: make -C kmod KSRC=SOURCE KOBJ=BUILD OUT=DIR",
        )
    return (f"apt install {package}",)


def livepatch(observation: Observation) -> tuple[str, ...]:
    """Return a comment on the livepatch, if it can be loaded here."""
    if not observation.system.livepatch or observation.host.moving:
        return ()
    if observation.host.tun.built_in:
        return ()
    if not observation.system.release.startswith(("6.1.", "6.12.")):
        return ()
    return (f"# or, only where nothing can be restarted: {command('livepatch', 'load')}",)


def restart(observation: Observation) -> tuple[str, ...]:
    """Return commands that replace the loaded modules by those on disk."""
    users = modules.users_of(observation.host_holders)
    persistent = (device.label for device in observation.host.devices if device.persist)
    return modules.restart(observation.system.modules, users, persistent, command("reload"))


def flow_control(observation: Observation, link: DeviceChange) -> tuple[str, ...]:
    """Return commands that give one device backpressure."""
    device = link.now
    if device.ours:
        return () if device.enabled else (backpressure(device),)
    if device.direct:
        return _exchange_tap(observation)
    if observation.host.tun.driver is Driver.NODROP:
        return reopen([device])
    return install(observation)


def reopen(devices: Sequence[Device]) -> tuple[str, ...]:
    """Return what to do so that nodrop's tun serves devices of the built-in one.

    Stop all programs before any is started: while a device of the built-in tun has several queues,
    or waits for a program, that tun gets what is opened.
    """
    persistent = [device.label for device in devices if device.persist]
    owners = [owner for device in devices for owner in device.owners]
    units, others = modules.by_unit(
        modules.User(owner.name, owner.pid, owner.cgroup) for owner in owners
    )
    unknown = [device.label for device in devices if not (device.owners or device.persist)]
    programs = [others] * bool(others) + [f"the program that has {name} open" for name in unknown]
    lines = []
    if persistent:
        names = ", ".join(persistent)
        lines.append(f"# create {names} again: delete it while no program has it open")
    if programs:
        lines.append(f"# stop {', '.join(programs)}, and start it again at the end")
    if units:
        lines += [f"systemctl stop -- {units}", f"systemctl start -- {units}"]
    return tuple(lines)


def _exchange_tap(observation: Observation) -> tuple[str, ...]:
    """Return commands that move the machine's macvtap and ipvtap devices to nodrop's tap."""
    system = observation.system
    if system.container:
        return install(observation)
    running = system.running
    return (
        *(() if running and running.nodrop else (install_command(system),)),
        "# stop the programs that have macvtap and ipvtap devices open",
        "modprobe -r macvtap ipvtap tap",
        "# create the devices again, and start the programs",
    )


def unheld(link: DeviceChange) -> tuple[str, ...]:
    """Return a comment on drops that backpressure cannot prevent."""
    if not link.totals.get("drop_unheld", 0):
        return ()
    return ("# no local socket can wait for these packets: docs/macvtap.md lists the cases",)
