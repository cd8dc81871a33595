# SPDX-License-Identifier: GPL-2.0-only
"""What happens to a tunnel's packets on their way: routes, neighbours, hooks, policies, errors."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nodrop.guest.command import ip_batch, netns_path, tool
from nodrop.guest.failure import GuestError
from nodrop.guest.tunnels.kinds import (
    HERE4,
    HERE6,
    IPV4,
    IPV6,
    THERE4,
    THERE6,
    checksum,
)
from nodrop.guest.tunnels.packets import (
    ICMP,
    ICMPV6,
    UDP,
    Shot,
    few,
    ip4,
    ip6,
    large,
    pseudo,
    summed,
    udp,
)
from nodrop.guest.tunnels.stage import (
    IN_MAC,
    SOURCE4,
    SOURCE6,
    SOURCE_MAC,
    Stage,
)
from nodrop.guest.tunnels.topology import BELOW, BEYOND, FAR, NAME
from nodrop.guest.tunnels.wire import Inject

_FAR_MAC = "02:00:00:00:04:02"
_GATE4, _GATE6, _GATE_MAC = "198.18.4.3", "fd00:4::3", "02:00:00:00:04:03"
_SEGMENTATION = (
    *("tx", "sg", "tso", "gso", "tx-udp-segmentation", "tx-udp_tnl-segmentation"),
    *("tx-udp_tnl-csum-segmentation", "tx-gre-segmentation", "tx-gre-csum-segmentation"),
    *("tx-ipxip4-segmentation", "tx-ipxip6-segmentation"),
)
_KEY = "0x" + "11" * 20


def _set_offloads(value: str) -> None:
    words = [word for name in _SEGMENTATION for word in (name, value)]
    tool(["ethtool", "-K", BELOW, *words])


def offloads(on: Stage) -> None:
    """Large packets over a device that takes none, nor unfinished checksums."""
    _set_offloads("off")
    try:
        for shot in few(on.kind):
            on.step(f"no offloads {shot.name}", [on.inject.send(shot)])
    finally:
        _set_offloads("on")


def forwarded(on: Stage, mtu: int, prefix: str = "") -> None:
    """Packets that come from elsewhere and are routed into the tunnel."""
    shots = []
    for size in (100, mtu, mtu + 1, 2000):
        if IPV4 in on.kind.carries:
            for word, field in (("", 0), ("df ", 0x4000)):
                packet = ip4(udp(size - 28), fragment=field, source=SOURCE4, ttl=9)
                shots.append((f"4 {word}{size}", packet, IPV4))
        if IPV6 in on.kind.carries:
            packet = summed(ip6(udp(size - 48), source=SOURCE6, ttl=9), 40, 6, UDP)
            shots.append((f"6 {size}", packet, IPV6))
    if IPV4 in on.kind.carries:
        shots.append(("4 last hop", ip4(udp(64), source=SOURCE4, ttl=1), IPV4))
    link = IN_MAC + SOURCE_MAC
    for name, packet, protocol in shots:
        shot = Shot(name, link + struct.pack("!H", protocol) + packet, protocol)
        on.step(f"{prefix}forwarded {name}", [on.source.send(shot)])


def tall(on: Stage, mtu: int) -> None:
    """Let both ends' devices take packets that do not fit into the one below."""
    result = ""
    try:
        for netns in (None, FAR):
            ip_batch([f"link set {NAME} mtu {mtu}"], netns=netns)
    except GuestError as error:
        result = str(error).splitlines()[-1]
    on.step("tall", [result])


@dataclass(frozen=True)
class _Way:
    """Something that is so for some packets, and undone after them: lines of ``ip``."""

    name: str
    do: Sequence[str]
    undo: Sequence[str]


def _routes(there: str, gate: str) -> list[_Way]:
    full = f"{there}/{128 if ':' in there else 32}"
    gone = [f"route delete {full}"]
    ways = [
        _Way("route", [f"route add {full} dev {BELOW}"], gone),
        _Way("gateway", [f"route add {full} via {gate} dev {BELOW}"], gone),
        _Way("route mtu", [f"route add {full} dev {BELOW} mtu 1300"], gone),
        _Way("route mtu lock", [f"route add {full} dev {BELOW} mtu lock 1300"], gone),
        _Way("route hoplimit", [f"route add {full} dev {BELOW} hoplimit 33"], gone),
        *(
            _Way(kind, [f"route add {kind} {full}"], [f"route delete {kind} {full}"])
            for kind in ("unreachable", "blackhole", "prohibit")
        ),
    ]
    if ":" not in there:
        words = f"route add {full} via inet6 {_GATE6} dev {BELOW}"
        ways.append(_Way("gateway of the other protocol", [words], gone))
    return ways


def _policies(here: str, there: str) -> list[_Way]:
    keys = f"proto esp spi 0x99 reqid 1 aead rfc4106(gcm(aes)) {_KEY} 128"
    ways = []
    for mode in ("transport", "tunnel"):
        outer = f"tmpl src {here} dst {there} proto esp reqid 1 mode {mode}"
        select = f"src {here} dst {there} dir out"
        ways.append(
            _Way(
                f"ipsec {mode}",
                [
                    f"xfrm state add src {here} dst {there} {keys} mode {mode}",
                    f"xfrm policy add {select} {outer}",
                ],
                [
                    f"xfrm policy delete {select}",
                    f"xfrm state delete src {here} dst {there} proto esp spi 0x99",
                ],
            )
        )
    select = f"src {here} dst {there} dir out"
    ways.append(
        _Way(
            "policy blocks",
            [f"xfrm policy add {select} action block"],
            [f"xfrm policy delete {select}"],
        )
    )
    return ways


def below(on: Stage) -> None:
    """Send some packets on each way below the tunnel."""
    here, there, gate = (HERE6, THERE6, _GATE6) if on.kind.outer6 else (HERE4, THERE4, _GATE4)
    known = f"neigh replace {there} lladdr {_FAR_MAC} dev {BELOW} nud permanent"
    gates = [
        f"neigh replace {one} lladdr {_GATE_MAC} dev {BELOW} nud permanent"
        for one in (_GATE4, _GATE6)
    ]
    asked = _Way("neighbour asked for", [f"neigh delete {there} dev {BELOW}"], [known])
    stale = _Way(
        "neighbour stale",
        [f"neigh replace {there} lladdr {_FAR_MAC} dev {BELOW} nud stale"],
        [known],
    )
    failed = _Way(
        "neighbour noarp",
        [f"neigh replace {there} lladdr {_FAR_MAC} dev {BELOW} nud noarp"],
        [known],
    )
    ip_batch(gates)
    for way in (*_routes(there, gate), asked, stale, failed, *_policies(here, there)):
        ip_batch(way.do)
        try:
            _send_few(on, way.name)
        finally:
            ip_batch(way.undo)
            on.clear()
    _hooks(on)
    _path_mtu(on, here, there)
    _smaller(on)


def _send_few(on: Stage, name: str) -> None:
    for shot in [*few(on.kind), *large(on.kind, 1280)[:3]]:
        on.step(f"{name}: {shot.name}", [on.inject.send(shot)])


def _hooks(on: Stage) -> None:
    """Hooks of netfilter, which a packet must not get around."""
    family = "ip6" if on.kind.outer6 else "ip"
    ttl = "ip6 hoplimit" if on.kind.outer6 else "ip ttl"
    address = f"{family} daddr {THERE6 if on.kind.outer6 else THERE4}"
    for hook, rule in (
        ("postrouting", "counter"),
        ("postrouting", f"{ttl} set 7"),
        ("output", f"{ttl} set 8"),
        ("output", "drop"),
        ("postrouting", "drop"),
    ):
        chain = f"type filter hook {hook} priority 0;"
        text = f"table {family} nd {{\nchain c {{\n{chain}\n{address} {rule}\n}}\n}}\n"
        tool(["nft", "-f", "-"], text=text)
        try:
            _send_few(on, f"{hook} {rule}")
        finally:
            tool(["nft", "delete", "table", family, "nd"])
            on.clear()


def _path_mtu(on: Stage, here: str, there: str) -> None:
    """A router on the way tells that a packet was too long."""
    seen = on.step("path mtu: before", [on.inject.send(few(on.kind)[0])])
    sent = [one.data[14:] for one in seen["out"] if one.data[14] >> 4 == (6 if ":" in here else 4)]
    if not sent:
        raise GuestError("there is no packet that an error could be about")
    if ":" in here:
        body = b"\x02\0\0\0" + struct.pack("!I", 1300) + sent[0][:400]
        packet = ip6(body, ICMPV6, source=there, target=here)
        over = pseudo(packet, ICMPV6, len(body))
        packet = packet[:42] + struct.pack("!H", checksum(over + body)) + packet[44:]
    else:
        body = b"\x03\x04\0\0\0\0" + struct.pack("!H", 1300) + sent[0][:400]
        body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
        packet = ip4(body, ICMP, source=there, target=here)
    protocol = IPV6 if ":" in here else IPV4
    link = bytes.fromhex(_own_mac()) + bytes.fromhex(_FAR_MAC.replace(":", ""))
    shot = Shot("error", link + struct.pack("!H", protocol) + packet, protocol)
    with Inject(BEYOND, netns_path(FAR)) as far:
        on.step("path mtu: error", [far.send(shot)])
    _send_few(on, "path mtu: after")
    tool(["ip", "-6" if ":" in here else "-4", "route", "flush", "cache"])
    _send_few(on, "path mtu: forgotten")


def _own_mac() -> str:
    address = Path(f"/sys/class/net/{BELOW}/address").read_text(encoding="ascii")
    return address.strip().replace(":", "")


def _smaller(on: Stage) -> None:
    """The device below takes less than before; it goes down and comes back."""
    ip_batch([f"link set {BELOW} mtu 1300"])
    _send_few(on, "smaller below")
    ip_batch([f"link set {BELOW} mtu 1500"])
    _send_few(on, "as before")
    ip_batch([f"link set {BELOW} down"])
    _send_few(on, "down below")
