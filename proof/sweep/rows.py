# SPDX-License-Identifier: GPL-2.0-only
"""Rows: a value for each parameter; impossible combinations; the rows of a seed; shrinking."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
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
ABOVE = ("macvtap", "ipvtap")
_COUNT = ("kernel", "vhost", "busyloop")
"""Readers that only count packets."""
ROWS = 250
TRIES = 3
"""Candidates for each row."""
Pair = tuple[str, str, str, str]
"""Two parameters and their values."""
_PLACE = {name: place for place, name in enumerate(NAMES)}
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
        return int(self.ring)

    @property
    def above(self) -> bool:
        """Whether the device is above another one and has no qdisc: macvtap, ipvtap."""
        return self.kind in ABOVE

    @property
    def vhost(self) -> bool:
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


def _but(name: str, *values: str) -> tuple[str, ...]:
    """Return the values of a parameter but these."""
    return tuple(value for value in VALUES[name] if value not in values)


EXCLUSIONS: tuple[tuple[str, dict[str, tuple[str, ...]]], ...] = (
    (
        "macvtap's ring is fed by a receive handler, not by a qdisc",
        {"kind": ABOVE, "qdisc": _but("qdisc", "noqueue")},
    ),
    ("there is no qdisc to replace", {"qdisc": ("noqueue",), "event": ("requdisc",)}),
    ("pfifo_fast refuses a txqueuelen of 0", {"qdisc": ("pfifo_fast", "mq"), "ring": ("0",)}),
    ("the kernel's reader takes only tun's sockets", {"kind": ABOVE, "reader": ("kernel",)}),
    ("bridges and VLANs need Ethernet", {"kind": ("tun",), "neighbour": ("bridge", "vlan")}),
    (
        "bridged frames need a bridge",
        {"sender": ("bridged",), "neighbour": _but("neighbour", "bridge")},
    ),
    (
        "XDP redirects only to tap: tun has no Ethernet, macvlan takes no XDP frames",
        {"kind": _but("kind", "tap"), "sender": ("xdp",)},
    ),
    ("TCP needs a reader that writes packets back", {"reader": _COUNT, "sender": ("tcp",)}),
    ("TCP's window limits its bursts", {"sender": ("tcp",), "pace": ("burst",)}),
    (
        "TCP's SYN-ACK is not charged to a socket: without a qdisc it needs a ring",
        {"qdisc": ("noqueue",), "ring": ("0",), "sender": ("tcp",)},
    ),
    (
        "while an ipvtap is down or has no queue, its host has its address and resets connections",
        {"kind": ("ipvtap",), "sender": ("tcp",), "event": ("down", "reattach")},
    ),
    (
        "readers that only count cannot tell test packets in IPv6 from the kernel's",
        {"reader": _COUNT, "sender": ("multicast",)},
    ),
    (
        "ipvtap has no receive filter for groups without members",
        {"kind": ("ipvtap",), "sender": ("multicast",)},
    ),
    ("a kernel thread cannot be killed", {"reader": ("kernel",), "event": ("killed",)}),
    (
        "only vhost-net's backend can be swapped",
        {"reader": _but("reader", "vhost", "busyloop"), "event": ("swap",)},
    ),
    ("a moved device loses its lower device's namespace", {"kind": ABOVE, "event": ("netns",)}),
    (
        "a moved device loses its bridge and its VLAN",
        {"event": ("netns",), "neighbour": ("bridge", "vlan")},
    ),
    ("a slow second reader is a program", {"reader": _COUNT, "neighbour": ("slow",)}),
    (
        "two readers would write TCP packets back twice",
        {"sender": ("tcp",), "neighbour": ("slow",)},
    ),
)
"""Why values are impossible together, and those values by parameter."""
RULES = {name: [rule for rule in EXCLUSIONS if name in rule[1]] for name in NAMES}


def excluded(given: dict[str, str], last: str = "") -> str:
    """Return why values are impossible together, of some parameters or all; "": they are possible.

    Args:
        last: the parameter added last; the others are known to be possible together.
    """
    for why, values in RULES.get(last, EXCLUSIONS):
        if all(given.get(name) in impossible for name, impossible in values.items()):
            return why
    return ""


def _pair(one: str, first: str, other: str, second: str) -> Pair:
    if _PLACE[one] < _PLACE[other]:
        return (one, other, first, second)
    return (other, one, second, first)


def _gain(given: dict[str, str], name: str, value: str, wanted: dict[Pair, None]) -> int:
    """Return how many wanted pairs a value makes with the given ones."""
    return sum(_pair(name, value, *other) in wanted for other in given.items())


def _complete(
    given: dict[str, str], wanted: dict[Pair, None], chance: random.Random
) -> dict[str, str]:
    """Complete a row, with the value that makes most wanted pairs each time; {}: impossible."""
    # Parameters with most rules first: less backtracking.
    name = max(NAMES, key=lambda name: len(RULES[name]) * (name not in given))
    if name in given:
        free = [name for name in NAMES if name not in given]
        if not free:
            return given
        name = chance.choice(free)
    values = list(VALUES[name])
    chance.shuffle(values)
    if wanted:
        values.sort(key=lambda value: -_gain(given, name, value, wanted))
    for value in values:
        more = given | {name: value}
        if not excluded(more, name) and (whole := _complete(more, wanted, chance)):
            return whole
    return {}


def choose(seed: int) -> list[Row]:
    """Return a seed's rows, shuffled: all pairs, all rings for forwarded frames, random ones."""
    chance = random.Random(seed)
    # A dict, as the order of a set depends on the process.
    wanted: dict[Pair, None] = {}
    for one, other in itertools.combinations(NAMES, 2):
        for first, second in itertools.product(VALUES[one], VALUES[other]):
            if not excluded({one: first, other: second}):
                wanted[one, other, first, second] = None
    rows: list[Row] = []
    while wanted:
        one, other, first, second = next(iter(wanted))
        made = [_complete({one: first, other: second}, wanted, chance) for _ in range(TRIES)]

        def new(whole: dict[str, str]) -> int:
            return sum(_pair(*a, *b) in wanted for a, b in itertools.combinations(whole.items(), 2))

        best = max(made, key=new)
        # Without a row the pair is impossible: its other values exclude each other.
        wanted.pop((one, other, first, second))
        for a, b in itertools.combinations(best.items(), 2):
            wanted.pop(_pair(*a, *b), None)
        if best:
            rows.append(Row(**best))
    # Only the ring can queue uncharged frames: try each length.
    for kind, ring in itertools.product(ABOVE, VALUES["ring"]):
        given = {
            "kind": kind,
            "ring": ring,
            "sender": "forwarded",
            "pace": chance.choice(("one", "flood")),
        }
        rows.append(Row(**_complete(given, {}, chance)))
    kinds = itertools.cycle(VALUES["kind"])
    while len(rows) < ROWS:
        rows.append(Row(**_complete({"kind": next(kinds)}, {}, chance)))
    chance.shuffle(rows)
    return rows


def plainer(row: Row) -> Iterator[tuple[str, Row]]:
    """Yield each parameter and the row with it at its plainest value, where possible."""
    for name in NAMES:
        plain = asdict(row) | {name: VALUES[name][0]}
        if plain != asdict(row) and not excluded(plain):
            yield name, Row(**plain)


def shrink(row: Row, fails: Callable[[Row], bool]) -> Row:
    """Return a failing row with as many plain parameters as possible."""
    tried: set[str] = set()
    while True:
        left = [(name, other) for name, other in plainer(row) if name not in tried]
        if not left:
            return row
        name, other = left[0]
        tried.add(name)
        if fails(other):
            row = other
