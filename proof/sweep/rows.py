# SPDX-License-Identifier: GPL-2.0-only
"""Rows: a value for each parameter, and the combinations that are impossible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

VALUES: dict[str, tuple[str, ...]] = {
    "kind": ("tun", "tap", "macvtap", "ipvtap"),
    "reader": (
        *("poll", "blocking", "epoll", "threads", "uring", "multishot"),
        *("kernel", "vhost", "busyloop"),
    ),
    "ring": tuple(map(str, (500, 0, 1, 2, 5, 15, 16, 17, 31, 32, 33, 100, 1000, 5000))),
    "qdisc": ("fq_codel", "noqueue", "pfifo_fast", "mq", "htb", "cake", "tbf", "netem"),
    "sender": (
        *("udp", "tcp", "packet", "bypass", "bridged", "forwarded", "xdp", "icmp"),
        *("multicast", "gso", "zerocopy"),
    ),
    "pace": ("one", "burst", "flood"),
    "event": ("none", "resize", "reattach", "down", "killed", "requdisc", "netns", "swap"),
    "neighbour": ("none", "bridge", "vlan", "slow"),
}
"""Parameter -> its values, the plainest first."""
NAMES = tuple(VALUES)
CHARGED_MOST = 4080
"""Most charged frames of a macvtap's or ipvtap's ring."""


@dataclass(frozen=True)
class Row:
    """A combination of VALUES."""

    kind: str = "tun"
    reader: str = "poll"
    ring: str = "500"
    qdisc: str = "fq_codel"
    sender: str = "udp"
    pace: str = "one"
    event: str = "none"
    neighbour: str = "none"

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in asdict(self).items())

    @property
    def slots(self) -> int:
        """The device's txqueuelen."""
        return int(self.ring)

    @property
    def above(self) -> bool:
        """Whether the device is above another one and has no qdisc: macvtap, ipvtap."""
        return self.kind in ABOVE

    @property
    def vhost(self) -> bool:
        """Whether vhost-net reads."""
        return self.reader in ("vhost", "busyloop")

    @property
    def has_qdisc(self) -> bool:
        """Whether a qdisc is between all senders and the ring."""
        return not self.above and self.qdisc != "noqueue" and self.sender not in ("bypass", "xdp")

    @property
    def charged(self) -> bool:
        """Whether frames may exceed txqueuelen, as each is charged to a socket."""
        return (
            self.above
            and self.slots < CHARGED_MOST
            and self.sender in ("udp", "packet", "bypass", "gso", "zerocopy")
        )


def parse(text: str) -> Row:
    """Parse a row as it is printed; missing parameters are plain.

    Raises:
        ValueError: unknown parameter or value, or an impossible combination.
    """
    given = dict(word.partition("=")[::2] for word in text.split())
    for name, value in given.items():
        if value not in VALUES.get(name, ()):
            raise ValueError(f"there is no {name}={value}")
    row = Row(**given)
    if why := excluded(asdict(row)):
        raise ValueError(f"there is no such row: {why}")
    return row


ABOVE = ("macvtap", "ipvtap")
_COUNT = ("kernel", "vhost", "busyloop")


@dataclass(frozen=True)
class Exclusion:
    """A rule for impossible combinations.

    Attributes:
        why: the reason.
        holds: return whether the values of its parameters are impossible together.
    """

    why: str
    holds: Callable[..., bool]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that the rule depends on."""
        return self.holds.__code__.co_varnames


EXCLUSIONS = (
    Exclusion(
        "macvtap's ring is fed by a receive handler, not by a qdisc",
        lambda kind, qdisc: kind in ABOVE and qdisc != "noqueue",
    ),
    Exclusion(
        "there is no qdisc to replace",
        lambda qdisc, event: qdisc == "noqueue" and event == "requdisc",
    ),
    Exclusion(
        "pfifo_fast refuses a txqueuelen of 0",
        lambda qdisc, ring: qdisc in ("pfifo_fast", "mq") and ring == "0",
    ),
    Exclusion(
        "the kernel's reader takes only tun's sockets",
        lambda kind, reader: kind in ABOVE and reader == "kernel",
    ),
    Exclusion(
        "bridges and VLANs need Ethernet",
        lambda kind, neighbour: kind == "tun" and neighbour in ("bridge", "vlan"),
    ),
    Exclusion(
        "bridged frames need a bridge",
        lambda sender, neighbour: sender == "bridged" and neighbour != "bridge",
    ),
    Exclusion(
        "XDP redirects only to tap: tun has no Ethernet, macvlan takes no XDP frames",
        lambda kind, sender: kind != "tap" and sender == "xdp",
    ),
    Exclusion(
        "TCP needs a reader that writes packets back",
        lambda reader, sender: reader in _COUNT and sender == "tcp",
    ),
    Exclusion(
        "TCP's window limits its bursts",
        lambda sender, pace: sender == "tcp" and pace == "burst",
    ),
    Exclusion(
        "TCP's SYN-ACK is not charged to a socket: without a qdisc it needs a ring",
        lambda qdisc, ring, sender: qdisc == "noqueue" and ring == "0" and sender == "tcp",
    ),
    Exclusion(
        "while an ipvtap is down or has no queue, its host has its address and resets connections",
        lambda kind, sender, event: (
            (kind, sender) == ("ipvtap", "tcp") and event in ("down", "reattach")
        ),
    ),
    Exclusion(
        "readers that only count cannot tell test packets in IPv6 from the kernel's",
        lambda reader, sender: reader in _COUNT and sender == "multicast",
    ),
    Exclusion(
        "ipvtap has no receive filter for groups without members",
        lambda kind, sender: kind == "ipvtap" and sender == "multicast",
    ),
    Exclusion(
        "a kernel thread cannot be killed",
        lambda reader, event: reader == "kernel" and event == "killed",
    ),
    Exclusion(
        "only vhost-net's backend can be swapped",
        lambda reader, event: reader not in ("vhost", "busyloop") and event == "swap",
    ),
    Exclusion(
        "a moved device loses its bridge, its VLAN and its lower device's namespace",
        lambda kind, event, neighbour: (
            event == "netns" and (neighbour in ("bridge", "vlan") or kind in ABOVE)
        ),
    ),
    Exclusion(
        "a slow second reader is a program",
        lambda reader, neighbour: reader in _COUNT and neighbour == "slow",
    ),
    Exclusion(
        "two readers would write TCP packets back twice",
        lambda sender, neighbour: sender == "tcp" and neighbour == "slow",
    ),
)


def excluded(given: dict[str, str], last: str = "") -> str:
    """Return why values are impossible together, of some parameters or all; "": they are possible.

    Args:
        last: the parameter added last; the others are known to be possible together.
    """
    for rule in RULES.get(last, EXCLUSIONS):
        if all(name in given for name in rule.names) and rule.holds(
            *(given[name] for name in rule.names)
        ):
            return rule.why
    return ""


RULES = {name: [rule for rule in EXCLUSIONS if name in rule.names] for name in NAMES}
