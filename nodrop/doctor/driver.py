# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the drivers, which are loaded and how they are set, and of what could be seen."""

from __future__ import annotations

from nodrop.doctor import fixes
from nodrop.doctor.finding import MACHINE, Verdict, ok, skipped, warn
from nodrop.doctor.look import Look
from nodrop.host.model import Driver
from nodrop.host.rules import applied

_STOCK = "a full ring drops, and no qdisc sees a queue"


@MACHINE("driver-stock")
def driver_stock(look: Look) -> Verdict | None:
    """The loaded tun is the kernel's own, and no other is installed."""
    host, running = look.host, look.system.running
    if not host.tun.loaded:
        return None
    if host.tun.driver is not Driver.STOCK:
        return ok(f"tun is nodrop's ({host.tun.version or 'livepatch'})")
    if running and running.nodrop:
        return None  # module-old
    seen = "tun is the kernel's own, and nodrop is not installed for this kernel"
    if host.tun.built_in:
        seen = "tun is built into this kernel: nothing can replace it"
    return warn(seen, _STOCK, *fixes.install(look))


@MACHINE("module-old")
def module_old(look: Look) -> Verdict | None:
    """Another module is in memory than the one on disk."""
    host, system = look.host, look.system
    if host.tun.driver is Driver.LIVE or host.moving or not host.tun.loaded:
        return None
    if system.container:
        return skipped("this is a container: its kernel's modules are not here")
    stale = [one.name for one in system.modules if one.stale]
    if not stale:
        known = [one for one in system.modules if one.loaded]
        return ok("the modules in memory are those on disk") if known else None
    names = " and ".join(stale)
    installed = system.running is not None and system.running.nodrop
    if installed and host.tun.driver is Driver.STOCK:
        seen = f"nodrop is installed, but {names} in memory is still the kernel's own"
        cost = f"until the next boot or a restart of the readers {_STOCK}"
    elif installed:
        seen, cost = f"{names} in memory is of an older nodrop", "what was repaired is not in use"
    else:
        seen = f"nodrop was removed, but its {names} is still in memory"
        cost = "it stays until the next boot or a restart of the readers"
    patch = installed and system.livepatch and host.tun.driver is Driver.STOCK
    live = ("nodrop livepatch load",) if patch else ()
    return warn(seen, cost, *live, *fixes.restart(look))


@MACHINE("default-off")
def default_off(look: Look) -> Verdict | None:
    """nodrop is there and off for applications that do not ask."""
    if look.host.default_on is None:
        return None
    if look.host.default_on:
        return ok("nodrop is on for every application")
    return warn(
        "nodrop is off for applications that do not ask for it",
        "none of today's asks: their rings drop",
        "nodrop set --default backpressure on",
    )


@MACHINE("kept-settings")
def kept_settings(look: Look) -> Verdict | None:
    """What 'nodrop set' keeps is not what devices have, or nothing applies it."""
    kept, tun, obstacle = look.system.kept, look.host.tun, look.system.obstacle
    if not kept or not tun.loaded or obstacle == "netns":
        return None
    cost = f"what is kept for {', '.join(kept)} has no effect"
    if obstacle:
        fix = "apt install ethtool" if obstacle == "ethtool" else "# have udev run"
        return warn(f"{obstacle}, which applies kept settings, is missing", cost, fix)
    if tun.driver is Driver.STOCK and not look.host.moving:
        return warn("settings are kept, and tun is the kernel's own", cost, *fixes.install(look))
    for link in look.links:
        device, on = link.now, applied(kept, link.now.name)
        # udev has the machine's own devices alone, and may take a moment.
        ours = device.driver in (Driver.NODROP, Driver.LIVE) and not (device.direct or device.netns)
        if ours and on is not None and {link.before.enabled, device.enabled} == {not on}:
            has, word = ("off", "on") if on else ("on", "off")
            return warn(
                f"{word} is kept for {device.name}, which is {has}",
                "it was set with --now or by another program, or udev did not apply it",
                fixes.backpressure(device, word, keep=False),
                f"# or keep what it is: {fixes.backpressure(device, has)}",
            )
    return ok("devices have the settings that are kept for them")


@MACHINE("guard-off")
def guard_off(look: Look) -> Verdict | None:
    """The guard is switched off."""
    if look.host.guard_ms is None:
        return None
    if look.host.guard_ms:
        return ok(f"the guard waits for {look.host.guard_ms} ms")
    return warn(
        "the guard is off (guard_ms is 0)",
        "a reader that never reads holds its senders for ever",
        "nodrop set --default stall-ms 1000",
    )


@MACHINE("livepatch-moving")
def livepatch_moving(look: Look) -> Verdict | None:
    """The livepatch is on its way in or out."""
    if not look.host.moving:
        return ok("the livepatch is in") if look.host.tun.driver is Driver.LIVE else None
    names = ", ".join(look.system.waiting[:5]) or "the kernel's idle tasks"
    return warn(
        f"nodrop's livepatch is on its way in or out; it waits for {names}",
        "the drivers behave as stock until it is over",
        "# wait; when it takes minutes:",
        "nodrop livepatch unload",
    )


@MACHINE("livepatch-and-package")
def livepatch_and_package(look: Look) -> Verdict | None:
    """The livepatch is in, and nodrop's modules are on disk as well."""
    host = look.host
    if host.tun.driver is not Driver.LIVE and not host.moving:
        return None
    running = look.system.running
    if running is None or not running.nodrop:
        return ok("the livepatch is the only nodrop here")
    return warn(
        "the livepatch is in, and nodrop's modules are installed as well",
        "while it is in, the kernel loads no other tun: once tun is unloaded, no VPN starts",
        "# before anything unloads tun, and before its readers restart:",
        "nodrop livepatch unload",
    )


@MACHINE("namespaces")
def namespaces(look: Look) -> Verdict | None:
    """Some namespaces were not looked into."""
    unread = look.host.unread
    if look.host.unreached:
        return skipped(f"no time for {len(unread) + look.host.unreached} namespaces")
    if not unread:
        return None
    names = ", ".join(sorted(unread)[:5]) + (" ..." if len(unread) > 5 else "")
    if look.host.root:
        return skipped(f"namespaces that went away: {names}")
    return skipped(f"needs root (to enter the namespaces {names})")
