# SPDX-License-Identifier: GPL-2.0-only
"""What will happen: rounds of bouts of events, a pure function of the seed.

A round has one device, its senders and readers. A bout is a series of events under load, at whose
end all packets are accounted for. Each round is made from the seed and its own number, so that
any of them can be had without those before it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

EVENTS_PER_ROUND = 160


class Mode(StrEnum):
    """What a round may lose."""

    STEADY = "steady"
    """Nothing: no event that lets anybody drop a packet."""
    HELD = "held"
    """What the network core drops with a qdisc; the driver nothing for want of room."""
    WILD = "wild"
    """All that is counted: no qdisc, switched off."""
    GUARD = "guard"
    """The same, and readers that are gone for longer than the guard waits."""
    REBIRTH = "rebirth"
    """As WILD; the device goes under load and comes again."""


class Shape(StrEnum):
    """The device."""

    TUN = "tun"
    TAP = "tap"
    TUN_QUEUES = "tun queues"
    TAP_QUEUES = "tap queues"

    @property
    def tap(self) -> bool:
        """Whether it is an Ethernet device."""
        return self in (Shape.TAP, Shape.TAP_QUEUES)

    @property
    def several(self) -> bool:
        """Whether it has several queues."""
        return self in (Shape.TUN_QUEUES, Shape.TAP_QUEUES)


@dataclass(frozen=True)
class Event:
    """One event.

    Attributes:
        number: counts from 1 through all rounds.
        kind: its name in :mod:`nodrop.guest.torture.events`.
        value: what the event chooses by, a large number.
        span: what it does is undone after so many further events.
        gap_ms: pause after it.
    """

    number: int
    kind: str
    value: int
    span: int
    gap_ms: float


@dataclass(frozen=True)
class Round:
    """A device, who uses it, and what happens to it.

    Attributes:
        flood: pktgen and readers in the kernel, and time between events: most packets are sent
            here.
        readers: kinds, one for each queue.
        senders: kinds; the first is always "udp".
        pktgen: "", "queue" (through the qdisc) or "direct" (past it).
        bouts: the events of each.
    """

    number: int
    mode: Mode
    shape: Shape
    ring: int
    qdisc: str
    guard_ms: int
    flood: bool
    readers: tuple[str, ...]
    senders: tuple[str, ...]
    pktgen: str
    bouts: tuple[tuple[Event, ...], ...]


MODES = (Mode.STEADY,) * 3 + (Mode.HELD,) * 4 + (Mode.WILD,) * 2 + (Mode.GUARD, Mode.REBIRTH)
SHAPES = (Shape.TUN, Shape.TAP, Shape.TAP, Shape.TUN_QUEUES, Shape.TAP_QUEUES)
FLOODS = 0.3
"""Of the rounds with an Ethernet device."""
GAPS_MS, FLOOD_GAPS_MS = (0, 0, 0.5, 2, 5), (2, 10, 20, 50)
RINGS = (1, 2, 5, 16, 31, 32, 33, 64, 100, 500, 1000)
PROGRAMS = ("blocking", "poll", "uring")
"""Readers that are processes of their own."""
IN_KERNEL = ("kernel", "vhost")
"""Those that keep up with a flood."""
QUIET_MS, SHORT_MS = 120_000, 100
"""The guard's time in a round where nobody is to be taken for gone, and where somebody is. So long
that the guard's looks, which make the qdisc run, come too late to hide that nobody else did."""

CALM = ("calm",)
READER = ("pause", "swap", "kill")
STEADY = (*CALM, *READER, "limit", "offload", "sndbuf", "stats", "write")
MANY = ("steer", "detach", "close")
VHOST = ("vhost_swap", "vhost_pause") * 2
CORE = ("txqueuelen",) * 3 + ("qdisc", "filter", "xdp", "txfilter")
STOPS = ("down", "carrier", "namespace")
OFF = ("flag", "default", "noqueue")
"""Which events there are, by what they may cost; some are there more than once, because it takes
several of them to make trouble. After STOPS pktgen would send no more."""
UNLIKE_TCP = frozenset({*STOPS, "offload", "xdp", "close"})
"""Events after which its packets, sent back, are thrown away on their way in, or come twice."""


def event_kinds(
    mode: Mode, shape: Shape, readers: tuple[str, ...], senders: tuple[str, ...], pktgen: str
) -> list[str]:
    """Return the events that may happen in such a round."""
    kinds = _allowed(mode, shape, readers, pktgen)
    if "tcp" in senders:
        kinds = [kind for kind in kinds if kind not in UNLIKE_TCP]
    return kinds


def _allowed(mode: Mode, shape: Shape, readers: tuple[str, ...], pktgen: str) -> list[str]:
    kinds = list(STEADY)
    vhost = "vhost" in readers
    if vhost:
        kinds += VHOST
    if mode is Mode.STEADY:
        # What vhost-net has in its hand is lost when its queue or its client is taken from it.
        if vhost:
            return [kind for kind in kinds if kind != "kill"]
        return kinds + (list(MANY) if shape.several else [])
    kinds += CORE
    if shape.several:
        kinds += MANY
    if not pktgen:
        kinds += STOPS if shape.several else (*STOPS, "close")
    if mode in (Mode.WILD, Mode.GUARD, Mode.REBIRTH):
        kinds += OFF
    if mode is Mode.GUARD:
        kinds.append("gone")
    if mode is Mode.REBIRTH:
        # A killed reader's count may be one short, and a device that is gone has none.
        kinds = [kind for kind in kinds if kind != "kill"] + ["rebirth"] * 2
    return kinds


def _readers(choice: random.Random, shape: Shape, flood: bool) -> tuple[str, ...]:
    kinds = [*PROGRAMS]
    if flood:
        return tuple(choice.choice(IN_KERNEL) for _ in range(3 if shape.several else 1))
    kinds += ["kernel", "kernel"] + (["vhost"] * 2 if shape.tap else [])
    return tuple(choice.choice(kinds) for _ in range(3 if shape.several else 1))


def _senders(
    choice: random.Random, mode: Mode, shape: Shape, readers: tuple[str, ...], flood: bool
) -> tuple[tuple[str, ...], str]:
    """Return the senders' kinds and how pktgen sends."""
    kinds = ["udp", "packet", "bypass"]
    pktgen = ""
    if flood:
        past = mode is Mode.STEADY or choice.random() < 0.7
        return ("udp",), "direct" if past else "queue"
    if mode in (Mode.HELD, Mode.WILD) and set(readers) <= set(PROGRAMS) and choice.random() < 0.6:
        return ("udp", "tcp", choice.choice(("tcp", "packet"))), pktgen
    if shape.tap:
        kinds.append("xdp")
        if mode is not Mode.REBIRTH and choice.random() < 0.6:
            pktgen = "direct" if mode is Mode.STEADY else choice.choice(("queue", "direct"))
    others = [choice.choice(kinds) for _ in range(choice.randint(0, 1 if pktgen else 2))]
    if mode is Mode.REBIRTH:
        # A packet past the qdisc to a device that has just gone: packet_pick_tx_queue() divides
        # by the number of its txqs, which is 0 then, in all kernels.
        others = ["packet" if kind == "bypass" else kind for kind in others]
    return ("udp", *others), pktgen


def _qdisc(choice: random.Random, mode: Mode, shape: Shape) -> str:
    if mode is Mode.STEADY:
        return "pfifo 1000000"
    kinds = ["pfifo 1000", "pfifo 50", "fq_codel", "htb"]
    # By default a device of several queues has a qdisc for each of the 256 that it could have.
    return choice.choice(kinds if shape.several else [*kinds, "default"])


def make_round(seed: int, number: int) -> Round:
    """Return a round, which depends on nothing but the seed and its number."""
    choice = random.Random(f"nodrop-torture {seed} {number}")
    mode, shape = choice.choice(MODES), choice.choice(SHAPES)
    flood = shape.tap and mode is not Mode.REBIRTH and choice.random() < FLOODS
    readers = _readers(choice, shape, flood)
    senders, pktgen = _senders(choice, mode, shape, readers, flood)
    kinds = event_kinds(mode, shape, readers, senders, pktgen)
    first = number * EVENTS_PER_ROUND + 1
    events = [
        Event(
            number=first + place,
            kind=choice.choice(kinds),
            value=choice.getrandbits(48),
            span=choice.choice((0, 0, 1, 2, 5)),
            gap_ms=choice.choice(FLOOD_GAPS_MS if flood else GAPS_MS),
        )
        for place in range(EVENTS_PER_ROUND)
    ]
    # pktgen takes a tenth of a second to start and as long to stop.
    length = EVENTS_PER_ROUND // (1 if pktgen else 4)
    return Round(
        number=number,
        mode=mode,
        shape=shape,
        ring=choice.choice(RINGS),
        qdisc=_qdisc(choice, mode, shape),
        guard_ms=SHORT_MS if mode is Mode.GUARD else QUIET_MS,
        flood=flood,
        readers=readers,
        senders=senders,
        pktgen=pktgen,
        bouts=tuple(tuple(events[at : at + length]) for at in range(0, EVENTS_PER_ROUND, length)),
    )


def rounds(seed: int, first: int = 0) -> Iterator[Round]:
    """Give all rounds from one on, without an end."""
    number = first
    while True:
        yield make_round(seed, number)
        number += 1
