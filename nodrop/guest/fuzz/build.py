# SPDX-License-Identifier: GPL-2.0-only
"""Puts calls together so that they make sense: what a call needs is made before it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from nodrop.guest.bpf import XDP_DRV_MODE
from nodrop.guest.fuzz.calls_net import NET_CALLS
from nodrop.guest.fuzz.calls_tun import (
    DEVICES,
    MULTI,
    NO_PI,
    NONBLOCK,
    RDWR,
    TAP,
    TUN,
    TUN_CALLS,
    VNET,
)
from nodrop.guest.fuzz.calls_vhost import (
    DESC_WRITE,
    EVENT_IDX,
    IOMMU,
    MRG_RXBUF,
    NET_HDR,
    RX,
    SLOTS,
    TX,
    VERSION_1,
    VHOST_CALLS,
)
from nodrop.guest.fuzz.memory import MEMORY_LEN
from nodrop.guest.fuzz.program import (
    AWAY,
    HERE,
    NAMES,
    NO_FDS,
    Call,
    Data,
    Fd,
    Param,
    Program,
    Ref,
    Spec,
    Value,
)

SPECS: dict[str, Spec] = {spec.name: spec for spec in (*TUN_CALLS, *VHOST_CALLS, *NET_CALLS)}
MAKERS: dict[str, tuple[str, ...]] = {
    kind: tuple(spec.name for spec in SPECS.values() if spec.makes == kind)
    for kind in sorted({spec.makes for spec in SPECS.values() if spec.makes})
}
"""Kind -> the calls that make such a thing."""
MOST = 40
"""Calls of a program."""
_TIMES = (2, 5, 20, 70, 200)
_UP = 0x1


class Builder:
    """Appends calls.

    Args:
        names: the calls that may be chosen; empty: all.
    """

    def __init__(self, rng: Random, names: Sequence[str] = ()) -> None:
        self.rng = rng
        self.calls: list[Call] = []
        self._choice = [SPECS[name] for name in names or SPECS]
        self._weights = [spec.weight for spec in self._choice]

    def call(self, name: str, *values: Value, times: int = 1) -> Ref:
        """Append a call with these arguments."""
        self.calls.append(Call(name, values, times=times))
        return Ref(len(self.calls) - 1)

    def any_call(self) -> None:
        """Append a call of any kind, and in front of it what it needs."""
        self.spec_call(self.rng.choices(self._choice, self._weights)[0])

    def spec_call(self, spec: Spec) -> Ref:
        """Append a call of a kind, and in front of it what it needs."""
        values = tuple(self.value(param) for param in spec.params)
        times = self.rng.choice(_TIMES) if spec.repeats and self.rng.random() < 0.4 else 1
        aside = self.rng.random() < (0.03 if spec.makes else 0.14)
        where = self.rng.choice(("null", "bad", "edge")) if self.rng.random() < 0.03 else ""
        self.calls.append(Call(spec.name, values, aside, where, times))
        return Ref(len(self.calls) - 1)

    def value(self, param: Param) -> Value:
        """Return an argument; what it refers to may be appended for it."""
        if not isinstance(param, Fd):
            return param(self.rng)
        draw = self.rng.random()
        if draw < 0.02:
            return self.rng.choice(NO_FDS)
        if draw < 0.05:
            others = self.references(*MAKERS)
            return self.rng.choice(others) if others else -1
        there = self.references(*param.kinds)
        if there and draw < 0.95:
            return self.rng.choice(there)
        makers = [name for kind in param.kinds for name in MAKERS.get(kind, ())]
        if not makers or len(self.calls) >= MOST:
            return self.rng.choice(there) if there else -1
        return self.make(param.kinds)

    def references(self, *kinds: str) -> list[Ref]:
        """Return what there is of these kinds."""
        found = [Ref(at) for at, call in enumerate(self.calls) if SPECS[call.name].makes in kinds]
        return found + ([Ref(HERE), Ref(AWAY)] if "space" in kinds else [])

    def make(self, kinds: tuple[str, ...]) -> Ref:
        """Append what makes something of one of these kinds."""
        kind = self.rng.choice([kind for kind in kinds if kind in MAKERS])
        if kind == "tun":
            return self.device(self.rng.choice(NAMES))
        if kind == "vhost":
            return self.machine()
        return self.spec_call(SPECS[self.rng.choice(MAKERS[kind])])

    def one(self, kind: str) -> Ref:
        """Return something of a kind, made when there is none."""
        there = self.references(kind)
        return there[-1] if there else self.make((kind,))

    def device(self, name: str) -> Ref:
        """Append a device of any kind, with one open queue."""
        flags = DEVICES(self.rng)
        return self.queue(name, flags if isinstance(flags, int) else 0)

    def queue(self, name: str, flags: int) -> Ref:
        """Append an open queue of a device."""
        opened = self.call("open_tun", RDWR | (NONBLOCK if self.rng.random() < 0.8 else 0))
        self.call("tunsetiff", opened, name, flags)
        return opened

    def up(self, name: str, address: int = 0) -> None:
        """Append what brings a device up, so that packets for an address go there."""
        udp = self.one("udp")
        if self.rng.random() < 0.5:
            self.call("txqueuelen", udp, name, self.rng.choice((1, 2, 3, 8, 64)))
        self.call("address", udp, name, address)
        self.call("netmask", udp, name)
        self.call("link_flags", udp, name, _UP)

    def machine(self, queues: Sequence[Ref] = ()) -> Ref:
        """Append a vhost-net that is ready to be given a queue, and give it those."""
        rng = self.rng
        vhost = self.call("open_vhost", RDWR)
        self.call("set_owner", vhost)
        features = rng.choice(
            (0, NET_HDR, VERSION_1, *(VERSION_1 | bit for bit in (MRG_RXBUF, EVENT_IDX, IOMMU)))
        )
        if features & IOMMU:
            self.call("set_backend_features", vhost, 2)
        self.call("set_features", vhost, features)
        self.call("set_mem_table", vhost, 1, 0)
        if features & IOMMU:
            self.call("write_iotlb", vhost, 2, MEMORY_LEN)
        for ring in (RX, TX):
            self.call("set_vring_num", vhost, ring, rng.choice((SLOTS, SLOTS, 2, 8)))
            self.call("set_vring_base", vhost, ring, 0)
            self.call("set_vring_addr", vhost, ring, 0, 0)
            if rng.random() < 0.8:
                self.call("set_vring_kick", vhost, ring, self.one("event"))
            write = DESC_WRITE if ring == RX else 0
            self.call("offer", ring, rng.choice((1, 8, SLOTS)), 0x200, write, 0)
        for ring, queue in enumerate(queues):
            self.call("set_backend", vhost, ring % 2, queue)
        if queues and rng.random() < 0.7:
            self.call("signal", self.one("event"), 1)
        return vhost


def _bare(builder: Builder) -> None:
    """Nothing."""


def _device(builder: Builder) -> None:
    """A device that is up."""
    builder.device(NAMES[0])
    builder.up(NAMES[0])


def _loaded(builder: Builder) -> None:
    """A device whose ring is full, or nearly."""
    _device(builder)
    builder.call("sendto", builder.one("udp"), Data("zero", 60), 0, 0x40, times=80)


def _queues(builder: Builder) -> None:
    """A device of several queues that is up."""
    flags = builder.rng.choice((TAP, TUN)) | MULTI | NO_PI
    for _ in range(builder.rng.choice((2, 3))):
        builder.queue(NAMES[0], flags)
    builder.up(NAMES[0])


def _devices(builder: Builder) -> None:
    """Two devices that are up."""
    for address, name in enumerate(NAMES[:2]):
        builder.device(name)
        builder.up(name, address)


def _machine(builder: Builder) -> None:
    """A TAP that vhost-net reads."""
    flags = TAP | NO_PI | (VNET if builder.rng.random() < 0.5 else 0)
    queue = builder.queue(NAMES[0], flags)
    builder.up(NAMES[0])
    builder.machine([queue, queue][: builder.rng.choice((1, 2))])
    builder.call("sendto", builder.one("udp"), Data("zero", 60), 0, 0x40, times=20)


def _wire(builder: Builder) -> None:
    """A TAP that is up and a packet socket."""
    builder.queue(NAMES[0], TAP | NO_PI)
    builder.up(NAMES[0])
    index = builder.call("ifindex", builder.one("udp"), NAMES[0])
    builder.call("sendll", builder.one("packet"), index, Data("eth4", 100), 0x40, times=20)


def _frames(builder: Builder) -> None:
    """A device that sends back, or to itself, what is written to it."""
    queue = builder.device(NAMES[0])
    builder.up(NAMES[0])
    index = builder.call("ifindex", builder.one("udp"), NAMES[0])
    program = (
        builder.call("xdp_redirect", index)
        if builder.rng.random() < 0.5
        else builder.call("xdp_program", builder.rng.choice((1, 2, 3)))
    )
    builder.call("xdp_attach", program, index, XDP_DRV_MODE)
    builder.call("pwritev2", queue, Data("eth4", 100), 8, times=5)


SCENES = (
    *(_bare, _device, _device, _loaded, _queues, _queues, _devices),
    *(_machine, _machine, _wire, _frames),
)
"""What programs begin with, one of them each."""


def generate(rng: Random) -> Program:
    """Make up a program."""
    names: list[str] = []
    if rng.random() < 0.4:
        # Few kinds of calls, so that they meet often.
        names = rng.sample(sorted(SPECS), rng.randint(4, 12))
    builder = Builder(rng, names=names)
    rng.choice(SCENES)(builder)
    most = min(len(builder.calls) + rng.randint(3, 18), MOST)
    while len(builder.calls) < most:
        builder.any_call()
    return tuple(builder.calls[:MOST])
