# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the machine: loaded drivers, their settings, installed kernels, namespaces."""

from __future__ import annotations

from nodrop.doctor import fixes
from nodrop.doctor.findings import MACHINE, Verdict, note, ok, skipped, warn
from nodrop.doctor.observation import Observation
from nodrop.host import modules
from nodrop.host.model import Driver
from nodrop.host.qdisc import SERVICE
from nodrop.host.settings import applied
from nodrop.host.system import InstalledKernel, System, order

MANAGED_QDISCS = frozenset({"fq_codel", "cake", "fq", "fq_pie", "codel", "pie", "cake_mq"})
"""Qdiscs that keep their queue short, or give each flow a queue."""
_STOCK = "a full ring drops packets, and the qdisc never queues"


def _dropped(observation: Observation) -> bool:
    """Return whether a device with a ring, or its qdisc, ever dropped a packet."""
    devices = [device for device in observation.host.devices if not device.tunnel]
    return any(device.tx_dropped or device.qdisc.drops for device in devices)


def _other_vhost(observation: Observation) -> bool:
    """Return whether the kernel's own vhost_net keeps nodrop_tun from new opens."""
    host = observation.host
    beside = host.tun.built_in and host.tun.driver is Driver.NODROP
    return beside and host.vhost_net.loaded and host.vhost_net.driver is Driver.STOCK


@MACHINE("driver-stock")
def driver_stock(observation: Observation) -> Verdict | None:
    host, running = observation.host, observation.system.running
    if not host.tun.loaded:
        return None
    if _other_vhost(observation):
        return None  # module-old
    if host.tun.driver is not Driver.STOCK:
        return ok(f"tun is nodrop's ({host.tun.version or 'livepatch'})")
    if running and running.nodrop:
        return None  # module-old
    seen = "tun is the stock driver, and nodrop is not installed for this kernel"
    if host.tun.built_in:
        seen = "tun is built into this kernel, and nodrop's is not installed beside it"
    if host.tun.built_in and host.vhost_net.built_in:
        seen = (
            "tun and vhost_net are both built into this kernel, which nodrop does not support: "
            "such a vhost_net refuses the devices of nodrop's tun"
        )
    judge = warn if _dropped(observation) else note
    return judge(seen, _STOCK, *fixes.install(observation))


@MACHINE("module-old")
def module_old(observation: Observation) -> Verdict | None:
    """A loaded module differs from the one on disk."""
    host, system = observation.host, observation.system
    if host.tun.driver is Driver.LIVE or host.moving or not host.tun.loaded:
        return None
    if system.container:
        return skipped("this is a container, which does not have its kernel's modules")
    installed = system.running is not None and system.running.nodrop
    own = modules.replaceable(system.modules, system.livepatches if installed else {})
    stale = [module.name for module in own if module.stale]
    if not stale and modules.to_load(system.modules):
        seen = f"nodrop is installed, but {modules.BESIDE} is not loaded beside the built-in tun"
        return warn(seen, _STOCK, *fixes.restart(observation))
    unread = [module.path for module in own if module.loaded and module.on_disk is None]
    if not stale and any(unread):
        files = ", ".join(filter(None, unread))
        return skipped(f"{files} cannot be read (for .zst, the program zstd is needed)")
    if not stale:
        known = [module for module in system.modules if module.loaded]
        return ok("the loaded modules are those on disk") if known else None
    names = f"{' and '.join(stale)} {'are' if stale[1:] else 'is'}"
    if _other_vhost(observation):
        seen = "the kernel's own vhost_net is loaded, so the built-in tun gets all new opens"
        if others := ", ".join(name for name in stale if name != "vhost_net"):
            seen += f"; also not those on disk: {others}"
        cost = f"until all guests have been shut down and it is replaced, {_STOCK}"
    elif installed and host.tun.driver is Driver.STOCK:
        seen = f"nodrop is installed, but the stock {names} still loaded"
        cost = f"until the next boot or a restart of the readers, {_STOCK}"
    elif installed:
        seen, cost = f"an older nodrop's {names} loaded", "later fixes are not in effect"
    else:
        seen = f"nodrop was removed, but its {names} still loaded"
        cost = "this lasts until the next boot or a restart of the readers"
    patch = installed and host.tun.driver is Driver.STOCK
    live = fixes.livepatch(observation) if patch else ()
    return warn(seen, cost, *fixes.restart(observation), *live)


@MACHINE("built-in-open")
def built_in_open(observation: Observation) -> Verdict | None:
    """The built-in tun still serves a device."""
    tun = observation.host.tun
    if not tun.built_in or tun.driver is not Driver.NODROP or _other_vhost(observation):
        return None
    left = [link.now for link in observation.links if link.now.driver is Driver.STOCK]
    left = [device for device in left if not device.direct]
    if not left:
        return ok("the built-in tun serves none of these devices")
    names = ", ".join(device.label for device in left)
    return warn(
        f"the built-in tun still serves {names}",
        f"a device keeps the driver that opened it: {_STOCK}",
        *fixes.reopen(left),
        devices=len(left),
    )


@MACHINE("livepatch-other")
def livepatch_other(observation: Observation) -> Verdict | None:
    """Another vendor's livepatch patches a driver that nodrop replaces."""
    system, patches = observation.system, observation.system.livepatches
    if not patches:
        return ok("no other livepatch patches the drivers") if system.livepatch else None
    installed = system.running is not None and system.running.nodrop
    judge = warn if installed else note
    return judge(
        "; ".join(f"the livepatch {name} patches {', '.join(of)}" for name, of in patches.items()),
        f"while it is loaded, modprobe loads that driver of the kernel, not nodrop's: {_STOCK}",
        "# boot a kernel that does not need the livepatch",
    )


@MACHINE("default-off")
def default_off(observation: Observation) -> Verdict | None:
    if observation.host.default_on is None:
        return None
    if observation.host.default_on:
        return ok("backpressure is on by default")
    return warn(
        "backpressure is off by default",
        "a full ring drops, except on devices that were switched on by name",
        fixes.command("set", "--default", "backpressure", "on"),
    )


@MACHINE("kept-settings")
def kept_settings(observation: Observation) -> Verdict | None:
    """Devices do not have the settings that 'nodrop set' keeps, or nothing applies these."""
    system, tun = observation.system, observation.host.tun
    kept, obstacle = system.rules, system.obstacle
    if system.rules_unread:
        return skipped(system.rules_unread)
    if not kept or not tun.loaded or obstacle == "netns":
        return None
    cost = f"what is kept for {', '.join(kept)} has no effect"
    if obstacle:
        fix = "apt install ethtool" if obstacle == "ethtool" else "# start udev"
        return warn(f"{obstacle}, which applies kept settings, is missing", cost, fix)
    if tun.driver is Driver.STOCK and not observation.host.moving:
        return warn(
            "settings are kept, but tun is the stock driver", cost, *fixes.install(observation)
        )
    for link in observation.links:
        device, on = link.now, applied(kept, link.now.name)
        # udev covers the machine's own network namespace only, and may take a moment.
        ours = device.ours and not (device.direct or device.netns)
        if ours and on is not None and {link.before.enabled, device.enabled} == {not on}:
            has, word = ("off", "on") if on else ("on", "off")
            return warn(
                f"backpressure {word} is kept for {device.name}, but it is {has}",
                "it was set with --now or by another program, or udev did not apply it",
                fixes.backpressure(device, word, keep=False),
                f"# or keep the present state: {fixes.backpressure(device, has)}",
            )
    return ok("devices have the settings that are kept for them")


@MACHINE("kept-qdiscs")
def kept_qdiscs(observation: Observation) -> Verdict | None:
    """The service that gives devices their kept qdiscs does not run, or did not for one."""
    system = observation.system
    if system.qdisc_rules_unread:
        return skipped(system.qdisc_rules_unread)
    wanted = [pattern for pattern, on in system.qdisc_rules.items() if on]
    if not wanted or system.qdisc_obstacle == "netns":
        return None
    log = f"# its log: journalctl -u {SERVICE}"
    if system.qdisc_obstacle:
        state = "is disabled" if system.qdisc_obstacle == "disabled" else "does not run"
        cost = f"new devices do not get the qdisc that is kept for {', '.join(wanted)}"
        return warn(f"{SERVICE} {state}", cost, f"systemctl enable --now {SERVICE}", log)
    left = [
        link.now
        for link in observation.links
        if link.now.up and not (link.now.direct or link.now.tunnel or link.now.netns)
        if link.before.qdisc.kind == link.now.qdisc.kind == "noqueue"
        if applied(system.qdisc_rules, link.now.name)
    ]
    if not left:
        return ok("devices have the qdiscs that are kept for them")
    names = ", ".join(device.name for device in left[:5]) + (" ..." if left[5:] else "")
    return warn(
        f"a qdisc is kept for {names}, but there is none (noqueue)",
        f"{SERVICE} did not replace it: it does not run, or could not",
        *(fixes.qdisc(device) for device in left[:5]),
        log,
        devices=len(left),
    )


@MACHINE("guard-off")
def guard_off(observation: Observation) -> Verdict | None:
    if observation.host.guard_ms is None:
        return None
    if observation.host.guard_ms:
        return ok(f"the stall guard trips after {observation.host.guard_ms} ms")
    return warn(
        "the stall guard is off (guard_ms is 0)",
        "a reader that stops reading blocks its senders for ever",
        fixes.command("set", "--default", "stall-ms", "1000"),
    )


@MACHINE("livepatch-moving")
def livepatch_moving(observation: Observation) -> Verdict | None:
    if not observation.host.moving:
        return ok("the livepatch is loaded") if observation.host.tun.driver is Driver.LIVE else None
    names = ", ".join(observation.system.waiting[:5]) or "the kernel's idle tasks"
    return warn(
        f"nodrop's livepatch is in transition; it waits for {names}",
        "the drivers behave as stock until the transition ends",
        "# wait; if it takes minutes:",
        fixes.command("livepatch", "unload"),
    )


@MACHINE("livepatch-and-package")
def livepatch_and_package(observation: Observation) -> Verdict | None:
    host = observation.host
    if host.tun.driver is not Driver.LIVE and not host.moving:
        return None
    running = observation.system.running
    if running is None or not running.nodrop:
        return ok("nodrop's modules are not installed besides the livepatch")
    return warn(
        "the livepatch is loaded, and nodrop's modules are installed as well",
        "while it is loaded, the kernel loads no other tun: once tun is unloaded, no VPN starts",
        "# before tun is unloaded, and before its readers restart:",
        fixes.command("livepatch", "unload"),
    )


@MACHINE("namespaces")
def namespaces(observation: Observation) -> Verdict | None:
    unread = observation.host.unread
    if observation.host.unreached:
        return skipped(
            f"{len(unread) + observation.host.unreached} namespaces were not read in time"
        )
    if not unread:
        return None
    names = ", ".join(sorted(unread)[:5]) + (" ..." if len(unread) > 5 else "")
    if observation.host.root:
        return skipped(f"these namespaces could not be read: {names}")
    return skipped(f"needs root (to enter the namespaces {names})")


@MACHINE("headers-missing")
def headers_missing(observation: Observation) -> Verdict | None:
    system = observation.system
    running = system.running
    if (
        system.container
        or (running and running.nodrop)
        or observation.host.tun.driver is Driver.NODROP
    ):
        return None
    if running and running.headers:
        return ok("the running kernel's headers are installed")
    judge = warn if system.tree or _dropped(observation) else note
    return judge(
        f"the headers of the running kernel {system.release} are missing",
        "nodrop cannot be built for it",
        *fixes.headers(system, system.release),
    )


@MACHINE("not-built")
def not_built(observation: Observation) -> Verdict | None:
    """nodrop is installed, but not for the running kernel, or not for the newest."""
    system = observation.system
    if not system.tree or system.container:
        return None
    wanted = {kernel.release: kernel for kernel in (system.running, system.newest) if kernel}
    without = [kernel for kernel in wanted.values() if not kernel.nodrop]
    if not without:
        return ok(
            f"nodrop is built for {' and '.join(wanted) or 'no kernel: none is installed here'}"
        )
    kernel = without[0]
    return warn(
        f"nodrop is not built for {_name(system, kernel)}"
        + (f": {kernel.why_not}" if kernel.why_not else ""),
        "that kernel loads the stock tun, which drops",
        *(() if kernel.headers else fixes.headers(system, kernel.release)),
        f"dkms autoinstall -k {kernel.release}",
        f"# the log of the build: /var/log/nodrop/{kernel.release}.log",
    )


def _name(system: System, kernel: InstalledKernel) -> str:
    which = "running" if kernel.release == system.release else "newest"
    return f"the {which} kernel {kernel.release}"


@MACHINE("kernel-pending")
def kernel_pending(observation: Observation) -> Verdict | None:
    """The next boot uses another kernel."""
    system = observation.system
    if system.container:
        return None
    newest = system.newest
    if newest is None or order(newest.release) <= order(system.release):
        return ok("the newest installed kernel is running")
    has = "has nodrop" if newest.nodrop else "does not have nodrop: its tun drops"
    build = () if newest.nodrop else (f"dkms autoinstall -k {newest.release}",)
    if not newest.nodrop and not system.tree:
        build = (fixes.install_command(system),)
    # Without nodrop and without drops, it is any host's ordinary update.
    here = system.running is not None and system.running.nodrop
    judge = warn if (here and not newest.nodrop) or _dropped(observation) else note
    return judge(
        f"{newest.release} is installed, but {system.release} is running",
        f"the next boot uses the newer one, which {has}",
        *build,
        "reboot",
    )


@MACHINE("default-qdisc")
def default_qdisc(observation: Observation) -> Verdict | None:
    """New devices get a qdisc that does not keep its queue short."""
    kind = observation.host.default_qdisc
    if not kind:
        return skipped("only the initial network namespace has net.core.default_qdisc")
    if kind in MANAGED_QDISCS:
        return ok(f"new devices get {kind}")
    judge = warn if _dropped(observation) else note
    return judge(
        f"new devices get {kind}",
        "a plain queue: one bulk flow delays all others by the whole queue",
        "sysctl -w net.core.default_qdisc=fq_codel",
        "echo net.core.default_qdisc=fq_codel >/etc/sysctl.d/90-qdisc.conf",
    )
