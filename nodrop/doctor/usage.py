# SPDX-License-Identifier: GPL-2.0-only
"""Checks of how a program uses its device, and whether the kernel could replace the program."""

from __future__ import annotations

from nodrop.doctor.finding import RING, Verdict, note, ok, warn
from nodrop.doctor.look import Link, Look

_WIREGUARD = frozenset({"wireguard-go", "boringtun", "boringtun-cli", "tailscaled"})


@RING("several-queues")
def several_queues(look: Look, link: Link) -> Verdict | None:
    """A program reads several queues, so that it may put a flow's packets out of order."""
    device = link.now
    # The rps_cpus of the receive queues do not change the verdict. TUN assigns a flow to a queue
    # when the program writes. RPS comes later, and only selects the CPU for the packets: it can
    # neither keep a flow in its queue, nor restore the order in which threads wrote.
    if device.queues < 2 or not device.multi_queue or not device.owners or device.vhost:
        return None
    return note(
        f"{device.queues} queues; a flow comes out of the queue that its answers went into",
        "a program that moves flows, or whose threads share them, reorders TCP's packets",
        "# let one thread have all of a flow, both ways; one queue keeps the order by itself",
        queues=device.queues,
        reader_threads=len(look.loads(device)),
    )


@RING("offloads-left")
def offloads_left(_look: Look, link: Link) -> Verdict | None:
    """The kernel leaves checksums or segmentation to a reader without vnet_hdr."""
    device = link.now
    if not device.persist or device.vnet_hdr is not False or not device.queues:
        return None
    if not device.checksums:
        return ok("is persistent, and no earlier owner left offloads on")
    return warn(
        "is persistent; an earlier owner left offloads on, and this one uses no vnet_hdr",
        "its reader gets packets without a checksum, or larger than the MTU",
        "# have its program call TUNSETOFFLOAD with 0; or stop it, delete the device and start it",
    )


@RING("kernel-instead")
def kernel_instead(look: Look, link: Link) -> Verdict | None:
    """A VPN program does in user space what the kernel can do without a TUN device."""
    for owner in link.now.owners:
        module, how = "wireguard", "# wg-quick uses it unless a user-space program is configured"
        if owner.name == "tailscaled":
            how = "# tailscaled cannot use it; plain WireGuard can, between known addresses"
        elif owner.name == "openvpn" and link.now.kind == "tun":
            if options := look.system.openvpn.get(owner.pid):
                return ok(f"openvpn({owner.pid}) needs user space for {', '.join(options)}")
            module, how = "ovpn", "# OpenVPN 2.7 uses it automatically with AEAD ciphers"
            if options is None:
                how += ", but not with compression, fragment, proxies or static keys"
        elif owner.name not in _WIREGUARD:
            continue
        if module in look.system.in_kernel:
            return note(
                f"{owner.name}({owner.pid}) encrypts in user space, and this kernel has {module}",
                "each packet is copied to the program and back; the kernel's driver has no ring",
                how,
            )
    return None
