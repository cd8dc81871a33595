# SPDX-License-Identifier: GPL-2.0-only
"""Command lines that fix problems."""

from __future__ import annotations

import shutil
from pathlib import Path

from nodrop.doctor.look import Link, Look
from nodrop.host import cgroup
from nodrop.host.model import Device, Driver
from nodrop.host.netns import prefix
from nodrop.host.rules import can_keep
from nodrop.shell import join

_CLONE = (Path(__file__).parents[2] / "packaging/lay").exists()


def command(*words: str) -> str:
    """Return a nodrop command line that works here: a clone has no ``nodrop`` in PATH."""
    start = ("python3", "-m") if _CLONE and not shutil.which("nodrop") else ()
    return join(*start, "nodrop", *words)


def inside(device: Device, *words: str) -> str:
    """Return a command line that runs in the namespace of a device."""
    return prefix(device.netns or None) + join(*words)


def backpressure(device: Device, word: str = "on", *, keep: bool = True) -> str:
    """Return the command that switches backpressure; all macvtap and ipvtap share a switch."""
    if device.direct:
        return "echo Y >/sys/module/tap/parameters/nodrop"
    where = ["-n", device.netns] if device.netns else []
    now = [] if keep and can_keep(device.name) and not device.netns else ["--now"]
    return command(*where, "set", *now, device.name, "backpressure", word)


def txqueuelen(device: Device, packets: int) -> str:
    """Return the command that sets the length of a device's ring."""
    return inside(device, "ip", "link", "set", "dev", device.name, "txqueuelen", str(packets))


def fq_codel(device: Device) -> str:
    """Return the command that gives a device fq_codel, which keeps queues short.

    With several queues it is mq, which gives each queue net.core.default_qdisc: all queues would
    share the lock of a single fq_codel.
    """
    kind = "mq" if device.queues > 1 else "fq_codel"
    return inside(device, "tc", "qdisc", "replace", "dev", device.name, "root", kind)


def install(look: Look) -> tuple[str, ...]:
    """Return commands that give tun flow control; the livepatch is last, as an alternative."""
    host, system = look.host, look.system
    if host.tun.built_in:
        return ("# boot a kernel whose tun is a module (CONFIG_TUN=m)",)
    if system.container:
        return ("# on the host of this container: nodrop install",)
    if (running := system.running) and running.nodrop:
        return (*restart(look), *livepatch(look))
    return (command("install"), *livepatch(look))


def livepatch(look: Look) -> tuple[str, ...]:
    """Return a comment on the livepatch, if it can be loaded here."""
    if not look.system.livepatch or look.host.moving:
        return ()
    if not look.system.release.startswith(("6.1.", "6.12.")):
        return ()
    return (f"# or, only where nothing can be restarted: {command('livepatch', 'load')}",)


def restart(look: Look) -> tuple[str, ...]:
    """Return commands that replace the loaded modules by those on disk."""
    files = look.system.modules
    # macvtap and ipvtap use tap: leave it loaded unless it differs from the one on disk.
    loaded = [one.name for one in files if one.loaded != "" and (one.name != "tap" or one.stale)]
    units, others = [], []
    for holder in look.host_holders:
        if unit := cgroup.place(holder.cgroup).service:
            units.append(unit)
        else:
            others.append(f"{holder.name}({holder.pid})")
    names = join(*dict.fromkeys(units))
    lines = []
    if others:
        lines.append(f"# stop {', '.join(others)}, and start it again at the end")
    if kept := sorted(device.label for device in look.host.devices if device.persist):
        lines.append(f"# delete the persistent devices: {', '.join(kept)}")
    if names:
        lines.append(f"systemctl stop {names}")
    if "tap" in loaded:
        lines.append("# this deletes all macvtap and ipvtap devices: create them again afterwards")
        lines.append("modprobe -r macvtap ipvtap")
    lines += [f"rmmod {' '.join(loaded)}", "modprobe tun"]
    if names:
        lines.append(f"systemctl start {names}")
    return tuple(lines)


def flow_control(look: Look, link: Link) -> tuple[str, ...]:
    """Return commands that give one device backpressure."""
    device = link.now
    if device.driver in (Driver.NODROP, Driver.LIVE):
        return () if device.enabled else (backpressure(device),)
    if device.direct:
        return _exchange_tap(look)
    if look.host.tun.driver is Driver.NODROP:
        return (f"# delete {device.name} and create it again: it is older than nodrop's tun",)
    return install(look)


def _exchange_tap(look: Look) -> tuple[str, ...]:
    """Return commands that move the machine's macvtap and ipvtap devices to nodrop's tap."""
    system = look.system
    if system.container:
        return install(look)
    running = system.running
    return (
        *(() if running and running.nodrop else (command("install"),)),
        "# stop the programs that have macvtap and ipvtap devices open",
        "modprobe -r macvtap ipvtap tap",
        "# create the devices again, and start the programs",
    )


def unheld(link: Link) -> tuple[str, ...]:
    """Return a comment on drops that backpressure cannot prevent."""
    if not link.counted("drop_unheld"):
        return ()
    return ("# no local socket can wait for these packets: docs/macvtap.md lists the cases",)
