# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the loaded drivers, their settings, and namespaces that were not read."""

from __future__ import annotations

from nodrop.doctor import fixes
from nodrop.doctor.finding import MACHINE, Verdict, ok, skipped, warn
from nodrop.doctor.look import Look
from nodrop.host.model import Driver
from nodrop.host.rules import applied

_STOCK = "a full ring drops packets, and the qdisc never queues"


@MACHINE("driver-stock")
def driver_stock(look: Look) -> Verdict | None:
    """The loaded tun is the stock driver, and nodrop is not installed."""
    host, running = look.host, look.system.running
    if not host.tun.loaded:
        return None
    if host.tun.driver is not Driver.STOCK:
        return ok(f"tun is nodrop's ({host.tun.version or 'livepatch'})")
    if running and running.nodrop:
        return None  # module-old
    seen = "tun is the stock driver, and nodrop is not installed for this kernel"
    if host.tun.built_in:
        seen = "tun is built into this kernel, so it cannot be replaced"
    return warn(seen, _STOCK, *fixes.install(look))


@MACHINE("module-old")
def module_old(look: Look) -> Verdict | None:
    """A loaded module differs from the one on disk."""
    host, system = look.host, look.system
    if host.tun.driver is Driver.LIVE or host.moving or not host.tun.loaded:
        return None
    if system.container:
        return skipped("this is a container, which does not have its kernel's modules")
    stale = [one.name for one in system.modules if one.stale]
    if not stale:
        known = [one for one in system.modules if one.loaded]
        return ok("the loaded modules are those on disk") if known else None
    names = f"{' and '.join(stale)} {'are' if stale[1:] else 'is'}"
    installed = system.running is not None and system.running.nodrop
    if installed and host.tun.driver is Driver.STOCK:
        seen = f"nodrop is installed, but the stock {names} still loaded"
        cost = f"until the next boot or a restart of the readers, {_STOCK}"
    elif installed:
        seen, cost = f"an older nodrop's {names} loaded", "later fixes are not in effect"
    else:
        seen = f"nodrop was removed, but its {names} still loaded"
        cost = "this lasts until the next boot or a restart of the readers"
    patch = installed and host.tun.driver is Driver.STOCK
    live = fixes.livepatch(look) if patch else ()
    return warn(seen, cost, *fixes.restart(look), *live)


@MACHINE("default-off")
def default_off(look: Look) -> Verdict | None:
    """nodrop's driver is loaded, but backpressure is off by default."""
    if look.host.default_on is None:
        return None
    if look.host.default_on:
        return ok("backpressure is on by default")
    return warn(
        "backpressure is off by default",
        "a full ring drops, except on devices that were switched on by name",
        fixes.command("set", "--default", "backpressure", "on"),
    )


@MACHINE("kept-settings")
def kept_settings(look: Look) -> Verdict | None:
    """Devices do not have the settings that 'nodrop set' keeps, or nothing applies these."""
    kept, tun, obstacle = look.system.kept, look.host.tun, look.system.obstacle
    if look.system.kept_unread:
        return skipped(look.system.kept_unread)
    if not kept or not tun.loaded or obstacle == "netns":
        return None
    cost = f"what is kept for {', '.join(kept)} has no effect"
    if obstacle:
        fix = "apt install ethtool" if obstacle == "ethtool" else "# start udev"
        return warn(f"{obstacle}, which applies kept settings, is missing", cost, fix)
    if tun.driver is Driver.STOCK and not look.host.moving:
        return warn("settings are kept, but tun is the stock driver", cost, *fixes.install(look))
    for link in look.links:
        device, on = link.now, applied(kept, link.now.name)
        # udev covers the machine's own network namespace only, and may take a moment.
        ours = device.driver in (Driver.NODROP, Driver.LIVE) and not (device.direct or device.netns)
        if ours and on is not None and {link.before.enabled, device.enabled} == {not on}:
            has, word = ("off", "on") if on else ("on", "off")
            return warn(
                f"backpressure {word} is kept for {device.name}, but it is {has}",
                "it was set with --now or by another program, or udev did not apply it",
                fixes.backpressure(device, word, keep=False),
                f"# or keep the present state: {fixes.backpressure(device, has)}",
            )
    return ok("devices have the settings that are kept for them")


@MACHINE("guard-off")
def guard_off(look: Look) -> Verdict | None:
    """The stall guard is off."""
    if look.host.guard_ms is None:
        return None
    if look.host.guard_ms:
        return ok(f"the stall guard trips after {look.host.guard_ms} ms")
    return warn(
        "the stall guard is off (guard_ms is 0)",
        "a reader that stops reading blocks its senders for ever",
        fixes.command("set", "--default", "stall-ms", "1000"),
    )


@MACHINE("livepatch-moving")
def livepatch_moving(look: Look) -> Verdict | None:
    """The livepatch is in transition."""
    if not look.host.moving:
        return ok("the livepatch is loaded") if look.host.tun.driver is Driver.LIVE else None
    names = ", ".join(look.system.waiting[:5]) or "the kernel's idle tasks"
    return warn(
        f"nodrop's livepatch is in transition; it waits for {names}",
        "the drivers behave as stock until the transition ends",
        "# wait; if it takes minutes:",
        fixes.command("livepatch", "unload"),
    )


@MACHINE("livepatch-and-package")
def livepatch_and_package(look: Look) -> Verdict | None:
    """The livepatch is loaded, and nodrop's modules are installed as well."""
    host = look.host
    if host.tun.driver is not Driver.LIVE and not host.moving:
        return None
    running = look.system.running
    if running is None or not running.nodrop:
        return ok("nodrop's modules are not installed besides the livepatch")
    return warn(
        "the livepatch is loaded, and nodrop's modules are installed as well",
        "while it is loaded, the kernel loads no other tun: once tun is unloaded, no VPN starts",
        "# before tun is unloaded, and before its readers restart:",
        fixes.command("livepatch", "unload"),
    )


@MACHINE("namespaces")
def namespaces(look: Look) -> Verdict | None:
    """Some namespaces were not read."""
    unread = look.host.unread
    if look.host.unreached:
        return skipped(f"{len(unread) + look.host.unreached} namespaces were not read in time")
    if not unread:
        return None
    names = ", ".join(sorted(unread)[:5]) + (" ..." if len(unread) > 5 else "")
    if look.host.root:
        return skipped(f"these namespaces could not be read: {names}")
    return skipped(f"needs root (to enter the namespaces {names})")
