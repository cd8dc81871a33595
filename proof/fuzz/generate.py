# SPDX-License-Identifier: GPL-2.0-only
"""Generate programs that make sense: a call's arguments are created before it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from proof.bpf import XDP_DRV_MODE
from proof.fuzz import calls_tun as tun
from proof.fuzz import calls_vhost as vhost
from proof.fuzz.calls_net import NET_CALLS
from proof.fuzz.program import AWAY, HERE, NAMES, Call, Data, Param, Program, Ref, Value

SPECS = {**tun.TUN_CALLS, **vhost.VHOST_CALLS, **NET_CALLS}
MAKERS = {
    kind: [name for name, spec in SPECS.items() if spec.makes == kind]
    for kind in dict.fromkeys(spec.makes for spec in SPECS.values() if spec.makes)
}
"""Kind -> the calls that create it."""
MOST = 40
"""Most calls of a program."""
_NO_FDS = (-1, 0, 9999)
"""Descriptors to use instead of an open file: closed, /dev/null, closed."""
_TIMES = (2, 5, 20, 70, 200)
_SCENES = (
    *("nothing", "device", "device", "full", "queues", "queues", "two devices", "vhost", "vhost"),
    *("wire", "frames", "macvtap"),
)


class _Maker:
    """Append calls to a program; ``names`` are those to choose from."""

    def __init__(self, rng: Random, names: Sequence[str]) -> None:
        self.rng = rng
        self.calls: list[Call] = []
        self._names = names
        self._weights = [SPECS[name].weight for name in names]

    def call(self, name: str, *values: Value, times: int = 1) -> Ref:
        """Append a call with the given arguments."""
        self.calls.append(Call(name, values, times=times))
        return Ref(len(self.calls) - 1)

    def any_call(self, name: str = "") -> Ref:
        """Append a call, by default any, and before it the calls that create its arguments."""
        name = name or self.rng.choices(self._names, self._weights)[0]
        spec = SPECS[name]
        values = tuple(self._value(param) for param in spec.params)
        times = self.rng.choice(_TIMES) if spec.repeats and self.rng.random() < 0.4 else 1
        background = self.rng.random() < (0.03 if spec.makes else 0.14)
        self.calls.append(Call(name, values, background, times))
        return Ref(len(self.calls) - 1)

    def _value(self, param: Param) -> Value:
        """Return an argument; append the call that creates it if need be."""
        if not isinstance(param, tuple):
            return param(self.rng)
        draw = self.rng.random()
        if draw < 0.02:
            return self.rng.choice(_NO_FDS)
        there = self._references(*(MAKERS if draw < 0.05 else param))
        if there and draw < 0.95:
            return self.rng.choice(there)
        kinds = [kind for kind in param if kind in MAKERS]
        if not kinds or len(self.calls) >= MOST:
            return self.rng.choice(there) if there else -1
        return self._make(self.rng.choice(kinds))

    def _references(self, *kinds: str) -> list[Ref]:
        """Return references to all results of these kinds."""
        found = [Ref(at) for at, call in enumerate(self.calls) if SPECS[call.name].makes in kinds]
        return found + ([Ref(HERE), Ref(AWAY)] if "space" in kinds else [])

    def _make(self, kind: str) -> Ref:
        if kind == "tun":
            return self.queue(self.rng.choice(NAMES), tun.DEVICES(self.rng))
        return self.vhost() if kind == "vhost" else self.any_call(self.rng.choice(MAKERS[kind]))

    def one(self, kind: str) -> Ref:
        """Return the last result of a kind; create one if there is none."""
        there = self._references(kind)
        return there[-1] if there else self._make(kind)

    def queue(self, name: str, flags: Value) -> Ref:
        """Append the calls that open a queue of a device."""
        opened = self.call("open_tun", tun.RDWR | self.rng.choice((0, *[tun.NONBLOCK] * 4)))
        self.call("tunsetiff", opened, name, flags)
        return opened

    def up(self, name: str, network: int = 0) -> None:
        """Append the calls that bring a device up and route a network to it."""
        udp = self.one("udp")
        if self.rng.random() < 0.5:
            self.call("txqueuelen", udp, name, self.rng.choice((1, 2, 3, 8, 64)))
        self.call("address", udp, name, 2, 0x0100090A | network << 16)
        self.call("netmask", udp, name, 2, 0xFFFFFF)
        self.call("link_flags", udp, name, 0x81)

    def vhost(self, queues: Sequence[Ref] = ()) -> Ref:
        """Append the set-up of a vhost-net, and give it these queues as backends."""
        made = self.call("open_vhost", tun.RDWR)
        self.call("owner", made, 1)
        modern = [vhost.VERSION_1 | bit for bit in (0, vhost.MRG_RXBUF, vhost.EVENT_IDX)]
        self.call("set_features", made, self.rng.choice((0, vhost.NET_HDR, *modern)))
        self.call("set_mem_table", made, 1)
        for ring in (vhost.RX, vhost.TX):
            self.call("vring_state", made, 0x10, ring, self.rng.choice((64, 64, 2, 8)))
            self.call("vring_state", made, 0x12, ring, 0)
            self.call("set_vring_addr", made, ring, 0, 0)
            if self.rng.random() < 0.8:
                self.call("set_vring_fd", made, 0x20, ring, self.one("event"))
            write = vhost.DESC_WRITE if ring == vhost.RX else 0
            self.call("offer", ring, self.rng.choice((1, 8, vhost.SLOTS)), 0x200, write, 0)
        for ring, queue in enumerate(queues):
            self.call("set_backend", made, ring, queue)
        if queues and self.rng.random() < 0.7:
            self.call("signal", self.one("event"), 1)
        return made


def _begin(make: _Maker, scene: str) -> None:
    """Append the beginning of a program: a device that is up, and the rest of its scene."""
    if scene == "nothing":
        return
    rng, flags, count = make.rng, tun.DEVICES(make.rng), 1
    if scene == "queues":
        flags, count = rng.choice((tun.TAP, tun.TUN)) | tun.MULTI | tun.NO_PI, rng.choice((2, 3))
    elif scene in ("vhost", "wire", "macvtap"):
        flags = tun.TAP | tun.NO_PI | (rng.choice((0, tun.VNET)) if scene == "vhost" else 0)
    queues = [make.queue(NAMES[0], flags) for _ in range(count)]
    make.up(NAMES[0])
    if scene == "two devices":
        make.queue(NAMES[1], tun.DEVICES(rng))
        make.up(NAMES[1], 1)
    elif scene == "vhost":
        make.vhost((queues * 2)[: rng.choice((1, 2))])
    elif scene == "wire":
        make.call("sendll", make.one("packet"), 2, Data("eth4", 100), 0x40, times=20)
    elif scene == "frames":
        # Frames written to the device are redirected to it or sent back, dropped or passed.
        program = make.call("xdp_redirect", 2)
        if rng.random() < 0.5:
            program = make.call("xdp_program", rng.choice((1, 2, 3)))
        make.call("xdp_attach", program, 2, XDP_DRV_MODE)
        make.call("pwritev2", queues[0], Data("eth4", 100), 1, 8, times=5)
    elif scene == "macvtap":
        make.call("macvtap", make.one("netlink"), NAMES[1], 2)
        make.call("open_tap", tun.RDWR | tun.NONBLOCK)
        make.up(NAMES[1], 1)
    if scene in ("full", "vhost", "macvtap"):
        network = int(scene == "macvtap")
        make.call("sendto", make.one("udp"), Data("zero", 60), network, 0x40, times=80)


def program_of(seed: int, number: int) -> Program:
    """Return a seed's program of a number: a pure function."""
    rng = Random(f"{seed}/{number}")
    names = list(SPECS)
    if rng.random() < 0.4:
        # Only a few kinds of calls, so that they race often.
        names = rng.sample(names, rng.randint(4, 12))
    make = _Maker(rng, names)
    _begin(make, rng.choice(_SCENES))
    most = min(len(make.calls) + rng.randint(3, 18), MOST)
    while len(make.calls) < most:
        make.any_call()
    return tuple(make.calls[:MOST])
