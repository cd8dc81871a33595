# SPDX-License-Identifier: GPL-2.0-only
"""What is around a tunnel whose packets are recorded.

    ndsource              here                              ndfar
    ndin1 ----------- ndin0   ndtunnel0 ................ ndtunnel0
                              ndbelow0  ---------------- ndbelow1

Packets are put into ndtunnel0, sent by sockets here, or forwarded from ndsource. What leaves by
ndbelow0 is seen as it comes in at ndbelow1. The far end takes packets out of the tunnel, which is
counted, and then throws them away, so that nothing answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from nodrop.guest.command import in_netns, ip_batch, netns_path, tool
from nodrop.guest.failure import GuestError
from nodrop.guest.netns import namespaces
from nodrop.guest.slow import patience
from nodrop.guest.tunnels.kinds import INNER4, INNER6, MAC, Kind
from nodrop.guest.tunnels.packets import OWN4, OWN6, OWN_MAC, large
from nodrop.guest.tunnels.topology import BELOW, BEYOND, FAR, NAME, Lower, speaks_ipv6, tunnel
from nodrop.guest.tunnels.wire import Inject, Seen, Tap, wait_quiet

SOURCE, IN_HERE, IN_SOURCE = "ndsource", "ndin0", "ndin1"
SOURCE4, SOURCE6 = "198.18.6.2", "fd00:6::2"
_HOLE = "ndhole0"
IN_MAC, SOURCE_MAC = bytes.fromhex("020000000601"), bytes.fromhex("020000000602")
QUIET_S, QUIET_SEALED_S = 0.015, 0.05
"""Seconds without a packet after which a step has had all that it caused. Encryption is a
thread's work; everything else has happened when the sending system call returns."""
_SETTLE_S = 0.4
_WAKE_S = 12.0
SETTINGS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv6/conf/all/forwarding": "1",
    # Errors are part of what is compared: none is left out for having been too many.
    "net/ipv4/icmp_ratelimit": "0",
    "net/ipv4/icmp_msgs_per_sec": "1000000",
    "net/ipv6/icmp/ratelimit": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    # A flow's label would come from a hash whose seed is random.
    "net/ipv6/auto_flowlabels": "0",
    "net/ipv6/conf/default/accept_ra": "0",
    "net/ipv6/conf/default/router_solicitations": "0",
    "net/ipv6/conf/default/dad_transmits": "0",
    "net/ipv6/conf/default/addr_gen_mode": "1",
    "net/ipv6/mld_qrv": "1",
    "net/ipv6/conf/default/mldv2_unsolicited_report_interval": "1",
    "net/ipv4/igmp_qrv": "1",
    "net/ipv4/tcp_ecn": "0",
    # Nothing is lost, only late on a busy machine: nothing is sent again.
    "net/ipv4/tcp_early_retrans": "0",
    "net/ipv4/tcp_rto_min_us": "4000000",
}
_RX = ("bytes", "packets", "errs", "drop", "fifo", "frame", "compressed", "multicast")
_TX = ("bytes", "packets", "errs", "drop", "fifo", "colls", "carrier", "compressed")


@dataclass
class Stage:
    """A tunnel, ready to be recorded.

    Attributes:
        quiet: seconds, see QUIET_S.
        steps: what was recorded: name, results, frames, counters.
    """

    kind: Kind
    index: int
    inject: Inject
    source: Inject
    taps: dict[str, Tap]
    quiet: float
    steps: list[dict[str, Any]] = field(default_factory=list)

    def step(self, name: str, results: list[str]) -> dict[str, list[Seen]]:
        """Record what something caused that was just done.

        Args:
            results: of what was done: names of errors, or "".
        """
        found = wait_quiet(list(self.taps.values()), self.quiet)
        seen = dict(zip(self.taps, found, strict=True))
        step: dict[str, Any] = {"name": name, "results": results}
        for where, frames in seen.items():
            step[where] = [[one.vnet.pack().hex(), one.data.hex()] for one in frames]
        step["counters"] = counters()
        self.steps.append(step)
        return seen

    def clear(self) -> None:
        """Forget what comes until it is quiet."""
        wait_quiet(list(self.taps.values()), max(self.quiet, 0.1))


def counters() -> dict[str, int]:
    """Return what the devices and the IP layers have counted until now."""
    found: dict[str, int] = {}
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines()[2:]:
        device, values = line.split(":")
        if device.strip() in (NAME, BELOW, IN_HERE):
            names = [f"{device.strip()}.rx_{name}" for name in _RX]
            names += [f"{device.strip()}.tx_{name}" for name in _TX]
            found |= dict(zip(names, map(int, values.split()), strict=True))
    found |= _pairs(Path("/proc/net/snmp"), ("Ip", "Icmp", "IcmpMsg"))
    found |= _pairs(Path("/proc/net/netstat"), ("IpExt",))
    for line in Path("/proc/net/snmp6").read_text(encoding="ascii").splitlines():
        name, value = line.split()
        if name.startswith(("Ip6", "Icmp6")):
            found[name] = int(value)
    return found


def _pairs(path: Path, wanted: tuple[str, ...]) -> dict[str, int]:
    lines = path.read_text(encoding="ascii").splitlines()
    found = {}
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        layer, *keys = names.split()
        if layer.rstrip(":") in wanted:
            for key, value in zip(keys, values.split()[1:], strict=True):
                found[f"{layer}{key}"] = int(value)
    return found


def far_counters() -> dict[str, int]:
    """Return what the far end's tunnel has counted: it was able to read what came."""
    lines = tool(["ip", "-n", FAR, "-s", "-o", "link", "show", "dev", NAME]).split("\\")
    for names, values in pairwise(lines):
        if names.strip().startswith("RX:"):
            found = zip(names.split()[1:], values.split(), strict=False)
            return {f"far.{name}": int(value) for name, value in found}
    return {}


def far_drops(kind: Kind, on: bool) -> None:
    """Throw away what comes out of the tunnel at the far end, or do not."""
    where = ["dev", NAME, "ingress"]
    if not on:
        tool(in_netns(FAR, ["tc", "filter", "delete", *where]))
        return
    if not kind.metadata:
        tool(in_netns(FAR, ["tc", "qdisc", "replace", "dev", NAME, "clsact"]))
    words = ["mirred", "egress", "redirect", "dev", _HOLE]
    tool(in_netns(FAR, ["tc", "filter", "add", *where, "matchall", "action", *words]))


def set_sysctls(settings: dict[str, str], netns: str | None = None) -> None:
    """Set what this kernel has of some sysctls."""
    for name, value in settings.items():
        path = f"/proc/sys/{name}"
        if netns is not None:
            tool(in_netns(netns, ["sh", "-c", f"test ! -e {path} || echo {value} > {path}"]))
        elif Path(path).exists():
            Path(path).write_text(f"{value}\n", encoding="ascii")


def _addresses(kind: Kind) -> None:
    """Addresses in the tunnel, and neighbours that need no asking."""
    for netns, own4, own6, other4, other6, mac in (
        (None, OWN4, OWN6, INNER4, INNER6, MAC),
        (FAR, INNER4, INNER6, OWN4, OWN6, OWN_MAC),
    ):
        speaks_ipv6(NAME, netns)
        lines = [f"address add {own4}/24 dev {NAME}", f"address add {own6}/64 dev {NAME} nodad"]
        if kind.ethernet:
            for address in (other4, other6):
                lines.append(
                    f"neigh replace {address} lladdr {mac.hex(':')} dev {NAME} nud permanent"
                )
        ip_batch(lines, netns=netns)


@contextmanager
def _source() -> Iterator[None]:
    """Where forwarded packets come from."""
    with namespaces(SOURCE):
        set_sysctls(SETTINGS, SOURCE)
        ip_batch(
            [
                f"link add {IN_HERE} address {IN_MAC.hex(':')} type veth peer name {IN_SOURCE} "
                f"address {SOURCE_MAC.hex(':')} netns {SOURCE}",
                f"link set {IN_HERE} mtu 9000 up",
            ]
        )
        ip_batch([f"link set {IN_SOURCE} mtu 9000 up"], netns=SOURCE)
        speaks_ipv6(IN_HERE, None)
        lines = [
            f"address add 198.18.6.1/24 dev {IN_HERE}",
            f"address add fd00:6::1/64 dev {IN_HERE} nodad",
            f"neigh replace {SOURCE4} lladdr {SOURCE_MAC.hex(':')} dev {IN_HERE} nud permanent",
            f"neigh replace {SOURCE6} lladdr {SOURCE_MAC.hex(':')} dev {IN_HERE} nud permanent",
        ]
        ip_batch(lines)
        try:
            yield
        finally:
            ip_batch([f"link delete {IN_HERE}"])


def _wake(kind: Kind, tap: Tap, inject: Inject) -> None:
    """Let the ends of a sealed tunnel find each other: the first packet asks for it.

    Raises:
        GuestError: they do not.
    """
    if not kind.sealed:
        return
    first = large(kind, 1000)[0]
    inject.send(first)
    deadline = time.monotonic() + patience(_WAKE_S)
    while time.monotonic() < deadline:
        # A handshake's messages are shorter than a packet that is carried.
        if any(len(one.data) > len(first.data) for one in wait_quiet([tap], QUIET_S)[0]):
            return
    raise GuestError("the ends of the tunnel do not find each other")


@contextmanager
def stage(kind: Kind) -> Iterator[Stage]:
    """Set everything up for one kind of tunnel."""
    set_sysctls(SETTINGS)
    with ExitStack() as stack:
        index = stack.enter_context(tunnel(kind, Lower.VETH))
        stack.enter_context(_source())
        set_sysctls(SETTINGS, FAR)
        if kind.ethernet:
            ip_batch([f"link set {NAME} address {OWN_MAC.hex(':')}"])
        _addresses(kind)
        ip_batch([f"link add {_HOLE} up type dummy"], netns=FAR)
        far_drops(kind, True)
        taps = {
            "out": stack.enter_context(Tap(BEYOND, netns_path(FAR))),
            "back": stack.enter_context(Tap(NAME)),
            "forwarded-back": stack.enter_context(Tap(IN_SOURCE, netns_path(SOURCE))),
        }
        inject = stack.enter_context(Inject(NAME))
        source = stack.enter_context(Inject(IN_SOURCE, netns_path(SOURCE)))
        _wake(kind, taps["out"], inject)
        time.sleep(_SETTLE_S)
        made = Stage(kind, index, inject, source, taps, QUIET_SEALED_S if kind.sealed else QUIET_S)
        made.clear()
        yield made
