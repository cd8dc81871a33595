# SPDX-License-Identifier: GPL-2.0-only
"""Rows: a value for each parameter, and which combinations there cannot be."""

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
"""By parameter: what it may be; the plainest first."""
NAMES = tuple(VALUES)
CHARGED_MOST = 4080
"""Packets that wait beyond the ring of a macvtap or ipvtap at the most."""


@dataclass(frozen=True)
class Row:
    """What is tried, see VALUES."""

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
        """Whether it is a device above another one, which has no qdisc: macvtap, ipvtap."""
        return self.kind in ABOVE

    @property
    def vhost(self) -> bool:
        """Whether vhost-net reads."""
        return self.reader in ("vhost", "busyloop")

    @property
    def has_qdisc(self) -> bool:
        """Whether a qdisc stands between all senders and the ring."""
        return not self.above and self.qdisc != "noqueue" and self.sender not in ("bypass", "xdp")

    @property
    def charged(self) -> bool:
        """Whether packets wait beyond such a ring, since a socket is charged with each of them."""
        return (
            self.above
            and self.slots < CHARGED_MOST
            and self.sender in ("udp", "packet", "bypass", "gso", "zerocopy")
        )


def parse(text: str) -> Row:
    """Read what a row is printed as; what is left out is plain.

    Raises:
        ValueError: there is no such parameter or value, or no such combination.
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
    """A combination that cannot be.

    Attributes:
        why: the reason.
        holds: whether it cannot be, given the values of the parameters that it names.
    """

    why: str
    holds: Callable[..., bool]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that it depends on."""
        return self.holds.__code__.co_varnames


EXCLUSIONS = (
    Exclusion(
        "a qdisc stands before a device that sends; macvtap's ring is behind a receive handler",
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
        "the kernel's reader takes tun's sockets only",
        lambda kind, reader: kind in ABOVE and reader == "kernel",
    ),
    Exclusion(
        "vhost-net takes Ethernet only",
        lambda kind, reader: kind == "tun" and reader in ("vhost", "busyloop"),
    ),
    Exclusion(
        "bridges and VLANs are Ethernet's",
        lambda kind, neighbour: kind == "tun" and neighbour in ("bridge", "vlan"),
    ),
    Exclusion(
        "bridged frames come over a bridge",
        lambda sender, neighbour: sender == "bridged" and neighbour != "bridge",
    ),
    Exclusion(
        "XDP redirects to tap only: tun has no Ethernet, macvlan takes no frames of XDP",
        lambda kind, sender: kind != "tap" and sender == "xdp",
    ),
    Exclusion(
        "TCP needs a reader that answers",
        lambda reader, sender: reader in _COUNT and sender == "tcp",
    ),
    Exclusion(
        "TCP sends no more than its peer's answers let it",
        lambda sender, pace: sender == "tcp" and pace == "burst",
    ),
    Exclusion(
        "the answer to TCP's first packet is charged to nobody: without a qdisc it needs a ring",
        lambda qdisc, ring, sender: qdisc == "noqueue" and ring == "0" and sender == "tcp",
    ),
    Exclusion(
        "while an ipvtap is down or has no queue its host has its address, and resets connections",
        lambda kind, sender, event: (
            (kind, sender) == ("ipvtap", "tcp") and event in ("down", "reattach")
        ),
    ),
    Exclusion(
        "who only counts cannot tell IPv6 packets of ours from the kernel's",
        lambda reader, sender: reader in _COUNT and sender == "multicast",
    ),
    Exclusion(
        "ipvtap has no receive filter for groups that nobody joined",
        lambda kind, sender: kind == "ipvtap" and sender == "multicast",
    ),
    Exclusion(
        "a thread of the kernel cannot be killed",
        lambda reader, event: reader == "kernel" and event == "killed",
    ),
    Exclusion(
        "the backend of vhost-net is swapped",
        lambda reader, event: reader not in ("vhost", "busyloop") and event == "swap",
    ),
    Exclusion(
        "a device that moves leaves its bridge, its VLAN and its lower device's namespace",
        lambda kind, event, neighbour: (
            event == "netns" and (neighbour in ("bridge", "vlan") or kind in ABOVE)
        ),
    ),
    Exclusion(
        "a second reader that is slow is a program",
        lambda reader, neighbour: reader in _COUNT and neighbour == "slow",
    ),
    Exclusion(
        "who answers TCP twice is no peer",
        lambda sender, neighbour: sender == "tcp" and neighbour == "slow",
    ),
)


def excluded(given: dict[str, str], last: str = "") -> str:
    """Return why values cannot be together, those of some parameters or of all; "": they can.

    Args:
        last: the parameter that came last: the others are known to go together.
    """
    for rule in RULES.get(last, EXCLUSIONS):
        if all(name in given for name in rule.names) and rule.holds(
            *(given[name] for name in rule.names)
        ):
            return rule.why
    return ""


RULES = {name: [rule for rule in EXCLUSIONS if name in rule.names] for name in NAMES}
