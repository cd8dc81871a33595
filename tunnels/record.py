# SPDX-License-Identifier: GPL-2.0-only
"""``python3 -m tunnels.record TYPE ...``: record all frames that tunnels send.

    here                              ndfar
    ndin0     ---------------------- ndin1
    ndtunnel0 ...................... ndtunnel0
    ndbelow0  ---------------------- ndbelow1

Packets are sent into ndtunnel0, or arrive at ndin0 and are forwarded. Frames that leave by ndbelow0
are recorded at ndbelow1, and ICMP errors for the sender at ndin1. Nothing in ndfar replies.
The packets and their order are the same on every kernel. ``record-TYPE.txt`` in LAB_OUT has the
frames as text, to compare two kernels' files with ``diff``.

The guest has one CPU, and this program is SCHED_IDLE: once a packet is sent, workers (encryption)
and ksoftirqd run first, however slow the machine is. So a frame never counts for a later packet.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from guestlib.environment import GuestError, prepare_system, time_limit
from guestlib.packets import ip4, ip6, udp
from guestlib.process import ip_batch
from tunnels import bearers
from tunnels.cases import LONG, cases
from tunnels.links import BEARERS, INNER4, INNER6, IPV4, IPV6, KINDS, MAC, LinkKind
from tunnels.masked import Masker
from tunnels.packets import OWN4, OWN6, OWN_MAC, VNET, Probe, few, fitting
from tunnels.topology import (
    BEYOND,
    FAR,
    NAME,
    counters,
    enable_ipv6,
    mtu,
    packet_socket,
    prepare,
    take,
    tunnel,
)

_IN_HERE, _IN_FAR = "ndin0", "ndin1"
_IN_MAC, _SOURCE_MAC = "02:00:00:00:06:01", "02:00:00:00:06:02"
_SOURCE4, _SOURCE6 = "198.18.6.2", "fd00:6::2"
_AT4, _AT6 = (_SOURCE4, INNER4), (_SOURCE6, INNER6)
_FORWARDING = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")
_QUIET_S = 0.015
"""Seconds without a frame after which all frames that a packet causes are there."""
_SETTLE_S = 0.4
_HANDSHAKE_S = 12.0


@dataclass
class _Stage:
    """A tunnel that is set up, and its record."""

    kind: LinkKind
    inject: socket.socket
    source: socket.socket
    seen: Sequence[socket.socket]
    lines: list[str] = field(default_factory=list)

    def send(self, probe: Probe, *, forward: bool = False) -> None:
        """Send a packet; record its error and the frames that it causes."""
        sock, device = (self.source, _IN_FAR) if forward else (self.inject, NAME)
        result = ""
        try:
            probe.send(sock, device)
        except OSError as error:
            result = f" {errno.errorcode[error.errno or 0]}"
        self.lines.append(f"{'forwarded ' if forward else ''}{probe.name}{result}")
        masker = Masker(self.kind, gso=VNET.unpack(probe.vnet)[1] != 0)
        for where, frames in zip(("out", "back"), take(self.seen, _QUIET_S), strict=True):
            texts = [masker.line(frame, vnet) for vnet, frame in frames]
            self.lines += [f"  {where} {text}" for text in texts if text]


def _forwarded(kind: LinkKind, size: int) -> Iterator[Probe]:
    """Yield packets from another host that are routed into the tunnel."""
    link = bytes.fromhex((_IN_MAC + _SOURCE_MAC).replace(":", ""))
    for length in (100, size):
        if IPV4 in kind.carries:
            for df, fragment in (("", 0), ("df ", 0x4000)):
                packet = ip4(udp(length - 28), fragment=fragment, ttl=9, at=_AT4)
                yield Probe(f"4 {df}{length}", link + b"\x08\0" + packet, IPV4)
        if IPV6 in kind.carries:
            packet = ip6(udp(length - 48), ttl=9, at=_AT6)
            yield Probe(f"6 {length}", link + b"\x86\xdd" + packet, IPV6)


def _record(stage: _Stage) -> None:
    """Send and record all packets, and some of them in each case."""
    size = mtu()
    for probe in fitting(stage.kind, size):
        stage.send(probe)
    for case in cases(stage.kind, size):
        stage.lines.append(f"# {case.name}")
        before = counters()
        case.make()
        for probe in few(stage.kind, case.long):
            stage.send(probe)
        for probe in _forwarded(stage.kind, case.long):
            stage.send(probe, forward=True)
        if not stage.kind.sealed:
            grown = ((name, value - before.get(name, 0)) for name, value in counters().items())
            stage.lines += [f"{name} {value}" for name, value in sorted(grown) if value]
        case.revert()
        take(stage.seen, 0.1)


def _handshake(stage: _Stage) -> None:
    """Complete an encrypted tunnel's handshake, which the first packet starts.

    Raises:
        GuestError: it does not complete.
    """
    first = few(stage.kind, LONG)[2]
    first.send(stage.inject, NAME)
    deadline = time.monotonic() + time_limit(_HANDSHAKE_S)
    while time.monotonic() < deadline:
        # Handshake messages are shorter than the packet.
        if any(len(frame) > len(first.data) for _, frame in take(stage.seen, _QUIET_S)[0]):
            return
    raise GuestError("the tunnel's handshake does not complete")


def _neighbours(kind: LinkKind) -> None:
    """Give the near devices addresses and permanent neighbours."""
    enable_ipv6(NAME)
    enable_ipv6(_IN_HERE)
    lines = [f"address add {OWN4}/24 dev {NAME}", f"address add {OWN6}/64 dev {NAME} nodad"]
    if kind.ethernet:
        for address in (INNER4, INNER6):
            mac = MAC.hex(":")
            lines.append(f"neigh replace {address} lladdr {mac} dev {NAME} nud permanent")
    lines += [f"address add 198.18.6.1/24 dev {_IN_HERE}"]
    lines += [f"address add fd00:6::1/64 dev {_IN_HERE} nodad"]
    for address in (_SOURCE4, _SOURCE6):
        lines.append(f"neigh replace {address} lladdr {_SOURCE_MAC} dev {_IN_HERE} nud permanent")
    ip_batch(lines)


@contextmanager
def _stage(kind: LinkKind) -> Iterator[_Stage]:
    prepare(more=_FORWARDING)
    with ExitStack() as cleanup:
        cleanup.enter_context(tunnel(kind))
        prepare(FAR)
        pair = f"link add {_IN_HERE} address {_IN_MAC} type veth"
        ip_batch([f"{pair} peer name {_IN_FAR} address {_SOURCE_MAC} netns {FAR}"])
        cleanup.callback(ip_batch, [f"link delete {_IN_HERE}"])
        ip_batch([f"link set {_IN_FAR} mtu 9000 up"], netns=FAR)
        ip_batch([f"link set {_IN_HERE} mtu 9000 up"])
        if kind.ethernet:
            ip_batch([f"link set {NAME} address {OWN_MAC.hex(':')}"])
        _neighbours(kind)
        inject, source, below, back = (
            cleanup.enter_context(packet_socket(device, netns, receive=receive, mark=mark))
            for device, netns, receive, mark in (
                *((NAME, None, False, kind.mark), (_IN_FAR, FAR, False, 0)),
                *((BEYOND, FAR, True, 0), (_IN_FAR, FAR, True, 0)),
            )
        )
        stage = _Stage(kind, inject, source, (below, back))
        if kind.sealed:
            _handshake(stage)
        time.sleep(_SETTLE_S)
        take(stage.seen, 0.1)
        yield stage


def record(names: Sequence[str]) -> None:
    """Record tunnels of these types; print the number of lines of each."""
    out = Path(os.environ["LAB_OUT"])
    for name in names:
        if name in BEARERS:
            lines = bearers.record(name)
        else:
            with _stage(KINDS[name]) as stage:
                _record(stage)
                lines = stage.lines
        (out / f"record-{name}.txt").write_text("\n".join(lines) + "\n", encoding="ascii")
        print(f"{name}: {len(lines)} lines", flush=True)


def main(names: Sequence[str]) -> int:
    """Record tunnels of these types, so that a record can be compared with another one."""
    prepare_system()
    if os.cpu_count() != 1:
        raise GuestError("workers could run late: the guest must have one CPU")
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    record(names)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
