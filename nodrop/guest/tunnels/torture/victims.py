# SPDX-License-Identifier: GPL-2.0-only
"""The tunnels that are tortured: how each is made again and again, changed, and what it carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodrop.guest.command import in_netns, tool
from nodrop.guest.failure import GuestError
from nodrop.guest.tunnels.kinds import IPV4, KINDS
from nodrop.guest.tunnels.torture import place, sockets

NAME = "ndtun"
NEAR_MAC, FAR_MAC = "02:00:00:00:05:01", "02:00:00:00:05:02"
INNER4, INNER6 = "198.18.5", "fd00:5:"
UDP, GRE, IPIP, SIT, ESP = 17, 47, 4, 41, 50
_WG_PORT = 51820


@dataclass(frozen=True)
class Inner:
    """What a tunnel carries.

    Attributes:
        ipv4, ipv6: packets of which family.
    """

    ipv4: bool = True
    ipv6: bool = False


@dataclass(frozen=True)
class Victim:
    """A kind of tunnel that is a device.

    Attributes:
        link: the end of ``ip link add NAME type ...``, of the near end.
        inner: what it carries.
        outer6: it goes over IPv6.
        ethernet: it carries Ethernet frames.
        far: the same of the far end; "": as ``link``, the other way round.
        encap: what a packet's route says of its way, where the device leaves that to it.
        protocol, port: of the outer packets; the port is UDP's.
        changes: ends of ``ip link change``; each is undone by the last one.
        receiver: a command of ip that the far end needs besides.
        sockets: it is no device, but what :mod:`sockets` knows by this name.
    """

    link: str
    inner: Inner = field(default_factory=Inner)
    outer6: bool = False
    ethernet: bool = False
    far: str = ""
    encap: str = ""
    protocol: int = UDP
    port: int = 0
    changes: Sequence[str] = ()
    receiver: str = ""
    sockets: str = ""

    @property
    def wireguard(self) -> bool:
        """Whether it has keys and peers besides."""
        return self.link == "wireguard"

    def create(self, apart: bool) -> None:
        """Make both ends, if they are gone, and set them up; may be repeated."""
        if self.sockets:
            sockets.set_up(self.sockets)
            return
        home = place.APART if apart else place.NEAR
        if not _is_there(home):
            self._make_near(home)
        if not _is_there(place.FAR):
            self._make_far()
        failed = place.lines(home, self._up(near=True)) + place.lines(
            place.FAR, self._up(near=False)
        )
        if failed:
            raise GuestError(f"the tunnel cannot be set up: {failed[0]}")

    def _make_near(self, home: str) -> None:
        commands = [f"link add {NAME} type {_ends(self.link, near=True)}"]
        if home != place.NEAR:
            commands.append(f"link set {NAME} netns {home}")
        self._must(place.NEAR, commands)
        if self.wireguard:
            _wireguard(home, near=True)

    def _make_far(self) -> None:
        link = self.far or self.link
        if self.receiver:
            place.lines(place.FAR, [self.receiver])
        self._must(place.FAR, [f"link add {NAME} type {_ends(link, near=False)}"])
        if self.wireguard:
            _wireguard(place.FAR, near=False)

    @staticmethod
    def _must(netns: str, commands: Sequence[str]) -> None:
        if failed := place.lines(netns, commands):
            raise GuestError(f"the tunnel cannot be made: {failed[0]}")

    def _up(self, *, near: bool) -> list[str]:
        here, there = (1, 2) if near else (2, 1)
        mac, other = (NEAR_MAC, FAR_MAC) if near else (FAR_MAC, NEAR_MAC)
        commands = [f"link set {NAME} nomaster"]
        if self.ethernet:
            commands.append(f"link set {NAME} address {mac}")
        commands.append(f"link set {NAME} up")
        encap = ""
        if self.encap and near:
            encap = _ends(f"encap {self.encap} ", near=True)
        if self.inner.ipv4:
            commands.append(f"address replace {INNER4}.{here}/32 dev {NAME}")
            commands.append(f"route replace {INNER4}.{there}/32 {encap}dev {NAME}")
        if self.inner.ipv6:
            commands.append(f"address replace {INNER6}:{here}/128 dev {NAME} nodad")
            commands.append(f"-6 route replace {INNER6}:{there}/128 {encap}dev {NAME}")
        if self.ethernet:
            for inside, address in (
                (self.inner.ipv4, INNER4 + "."),
                (self.inner.ipv6, INNER6 + ":"),
            ):
                if inside:
                    commands.append(
                        f"neigh replace {address}{there} lladdr {other} dev {NAME} nud permanent"
                    )
        return commands


def _is_there(netns: str) -> bool:
    return not place.lines(netns, [f"link show dev {NAME}"])


def _ends(text: str, *, near: bool) -> str:
    here, there = (place.HERE4, place.HERE6), (place.THERE4, place.THERE6)
    if not near:
        here, there = there, here
    return text.format(here4=here[0], here6=here[1], there4=there[0], there6=there[1])


_KEYS: list[tuple[str, str]] = []


def _keys() -> list[tuple[str, str]]:
    """Return the private and the public key of both ends, the same for the whole run."""
    while len(_KEYS) < 2:
        private = tool(["wg", "genkey"]).strip()
        _KEYS.append((private, tool(["wg", "pubkey"], text=private + "\n").strip()))
    return _KEYS


def _wireguard(netns: str, *, near: bool) -> None:
    mine, other = _keys() if near else reversed(_keys())
    there = place.THERE4 if near else place.HERE4
    words = ["wg", "set", NAME, "listen-port", str(_WG_PORT), "private-key", "/proc/self/fd/0"]
    words += ["peer", other[1], "endpoint", f"{there}:{_WG_PORT}"]
    words += ["allowed-ips", "0.0.0.0/0,::/0"]
    tool(in_netns(netns, words), text=mine[0] + "\n")


_BOTH = Inner(ipv6=True)
_SIX = Inner(ipv4=False, ipv6=True)
_4 = "local {here4} remote {there4}"
_6 = "local {here6} remote {there6}"
_IP4 = "ip id 1 src {here4} dst {there4}"
_IP6 = "ip6 id 1 src {here6} dst {there6}"
_VXLAN = "vxlan id 1 dstport 4789 nolearning"


def _plain(kind: str, protocol: int, port: int, *changes: str) -> Victim:
    known = KINDS[kind]
    inner = Inner(known.inner == IPV4, known.inner != IPV4)
    if known.ethernet or "gre" in kind or kind in ("ip6tnl", "wireguard"):
        inner = _BOTH
    return Victim(
        known.link,
        inner,
        known.outer6,
        known.ethernet,
        protocol=protocol,
        port=port,
        changes=changes,
    )


_V4 = tuple(f"{_4} {end}" for end in ("ttl 9", "tos 8", "ttl inherit tos inherit"))
_V6 = tuple(f"{_6} {end}" for end in ("hoplimit 9", "tclass 8", "hoplimit 64 tclass inherit"))


def _changes(kind: str, ends: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{kind} {end}" for end in ends)


def _elsewhere(six: bool) -> str:
    """Another far end, which is nobody's: a change that resets the cache and sends elsewhere."""
    return "local {here6} remote fd00:6::9" if six else "local {here4} remote 198.18.6.9"


def _ip(kind: str, head: str, six: bool) -> tuple[str, ...]:
    return _changes(f"{kind} {head}".strip(), [_elsewhere(six), *(_V6 if six else _V4)])


VICTIMS: Mapping[str, Victim] = {
    "vxlan": _plain("vxlan", UDP, 4789),
    "vxlan6": _plain("vxlan6", UDP, 4789),
    "vxlan-df": _plain("vxlan-df", UDP, 4789),
    "vxlan-md": Victim("vxlan external dstport 4789", _BOTH, ethernet=True, encap=_IP4, port=4789),
    "geneve": _plain(
        "geneve",
        UDP,
        6081,
        "geneve id 1 remote {there4} ttl 9",
        "geneve id 1 remote 198.18.6.9",
        "geneve id 1 remote {there4} ttl 0",
    ),
    "geneve6": _plain(
        "geneve6",
        UDP,
        6081,
        "geneve id 1 remote {there6} ttl 9",
        "geneve id 1 remote {there6} ttl 0",
    ),
    "geneve-md": Victim("geneve external", _BOTH, ethernet=True, encap=_IP4, port=6081),
    "bareudp": Victim("bareudp dstport 6635 ethertype ipv4", Inner(), encap=_IP4, port=6635),
    "bareudp6": Victim("bareudp dstport 6635 ethertype ipv4", Inner(), True, encap=_IP6, port=6635),
    "gre": _plain("gre", GRE, 0, *_ip("gre", "", six=False)),
    "gretap": _plain("gretap", GRE, 0, *_ip("gretap", "", six=False)),
    "gre-md": Victim("gre external", Inner(), far="gre external", encap=_IP4, protocol=GRE),
    "erspan": _plain(
        "erspan", GRE, 0, *_ip("erspan", "seq key 1 erspan_ver 1 erspan 1", six=False)
    ),
    "ipip": _plain("ipip", IPIP, 0, *_ip("ipip", "", six=False)),
    "ipip-md": Victim("ipip external", Inner(), encap=_IP4, protocol=IPIP),
    "ipip-fou": Victim(
        f"ipip {_4} encap fou encap-sport auto encap-dport 5555",
        port=5555,
        receiver="fou add port 5555 ipproto 4",
    ),
    "sit-fou": Victim(
        f"sit {_4} encap fou encap-sport auto encap-dport 5556",
        _SIX,
        port=5556,
        receiver="fou add port 5556 ipproto 41",
    ),
    "sit": _plain("sit", SIT, 0, *_ip("sit", "", six=False)),
    "ip6tnl": _plain("ip6tnl", SIT, 0, *_ip("ip6tnl", "mode any", six=True)),
    "ip6tnl-md": Victim("ip6tnl external", Inner(), True, encap=_IP6, protocol=IPIP),
    "ip6gre": _plain("ip6gre", GRE, 0, *_ip("ip6gre", "", six=True)),
    "ip6gretap": _plain("ip6gretap", GRE, 0, *_ip("ip6gretap", "", six=True)),
    "ip6erspan": Victim(
        f"ip6erspan seq key 1 erspan_ver 1 erspan 1 {_6}",
        _BOTH,
        True,
        ethernet=True,
        protocol=GRE,
    ),
    "wireguard": _plain("wireguard", UDP, _WG_PORT),
    "sctp": Victim("", port=sockets.SCTP_PORT, sockets="sctp"),
    "sctp6": Victim("", outer6=True, port=sockets.SCTP_PORT, sockets="sctp6"),
    "tipc": Victim("", port=sockets.TIPC_PORT, sockets="tipc"),
    "tipc6": Victim("", outer6=True, port=sockets.TIPC_PORT, sockets="tipc6"),
}
