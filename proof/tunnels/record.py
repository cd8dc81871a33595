# SPDX-License-Identifier: GPL-2.0-only
"""``python3 -m proof.tunnels.record TYPE ...``: all that tunnels send, byte for byte.

    here                              ndfar
    ndin0     ---------------------- ndin1
    ndtunnel0 ...................... ndtunnel0
    ndbelow0  ---------------------- ndbelow1

Packets are put into ndtunnel0, or come in by ndin0 and are forwarded. What leaves by ndbelow0 is
seen as it comes in at ndbelow1, and errors for the sender at ndin1. Nothing in ndfar answers.
The same packets are sent in the same order on every kernel; ``record-TYPE.txt`` in NODROP_OUT
has them as text, so that two kernels' files are compared with ``diff``.
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

from lab.guest.failure import GuestError
from lab.guest.prepare import prepare_system
from lab.guest.process import ip_batch, tool
from lab.guest.timing import time_limit
from proof.tunnels import bearers, packets
from proof.tunnels.kinds import BEARERS, INNER4, INNER6, IPV4, IPV6, KINDS, MAC, Kind
from proof.tunnels.masked import Masker
from proof.tunnels.packets import OWN4, OWN6, OWN_MAC, Shot, few, fitting
from proof.tunnels.topology import BEYOND, FAR, NAME, speaks_ipv6, tunnel
from proof.tunnels.ways import ways
from proof.tunnels.wire import be_quiet, counters, packet_socket, take

_IN_HERE, _IN_FAR = "ndin0", "ndin1"
_IN_MAC, _SOURCE_MAC = "02:00:00:00:06:01", "02:00:00:00:06:02"
_SOURCE4, _SOURCE6 = "198.18.6.2", "fd00:6::2"
_AT4, _AT6 = (_SOURCE4, INNER4), (_SOURCE6, INNER6)
_FORWARDING = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")
_QUIET_S, _QUIET_SEALED_S = 0.015, 0.05
"""Seconds without a frame after which a packet has had all its effects. Encryption is a thread's
work; everything else has happened when the sending system call returns."""
_SETTLE_S = 0.4
_WAKE_S = 12.0


@dataclass
class _Stage:
    """A tunnel, ready to be recorded, and what was recorded."""

    kind: Kind
    inject: socket.socket
    source: socket.socket
    seen: Sequence[socket.socket]
    lines: list[str] = field(default_factory=list)

    @property
    def quiet(self) -> float:
        return _QUIET_SEALED_S if self.kind.sealed else _QUIET_S

    def send(self, shot: Shot, *, forward: bool = False) -> None:
        """Send a packet, and record its error and the frames that it causes."""
        sock, device = (self.source, _IN_FAR) if forward else (self.inject, NAME)
        result = ""
        try:
            sock.sendto(shot.vnet + shot.data, (device, shot.protocol, 0, 0, shot.data[:6]))
        except OSError as error:
            result = f" {errno.errorcode[error.errno or 0]}"
        self.lines.append(f"{'forwarded ' if forward else ''}{shot.name}{result}")
        masker = Masker(self.kind)
        for where, frames in zip(("out", "back"), take(self.seen, self.quiet), strict=True):
            texts = [masker.line(frame, vnet) for vnet, frame in frames]
            self.lines += [f"  {where} {text}" for text in texts if text]


def _forwarded(kind: Kind, size: int) -> Iterator[Shot]:
    """Give packets that come from elsewhere and are routed into the tunnel."""
    link = bytes.fromhex((_IN_MAC + _SOURCE_MAC).replace(":", ""))
    for length in (100, size):
        if IPV4 in kind.carries:
            for word, fragment in (("", 0), ("df ", 0x4000)):
                packet = packets.ip4(packets.udp(length - 28), fragment=fragment, ttl=9, at=_AT4)
                yield Shot(f"4 {word}{length}", link + b"\x08\0" + packet, IPV4)
        if IPV6 in kind.carries:
            packet = packets.ip6(packets.udp(length - 48), ttl=9, at=_AT6)
            yield Shot(f"6 {length}", link + b"\x86\xdd" + packet, IPV6)


def _record(on: _Stage) -> None:
    """Send everything on each way."""
    mtu = min(1500, int(Path(f"/sys/class/net/{NAME}/mtu").read_text(encoding="ascii")))
    for shot in fitting(on.kind, mtu):
        on.send(shot)
    for way in ways(on.kind, mtu):
        on.lines.append(f"# {way.name}")
        before = counters()
        for command in way.do.splitlines():
            tool(command.split())
        for shot in few(on.kind, way.long):
            on.send(shot)
        for shot in _forwarded(on.kind, way.long):
            on.send(shot, forward=True)
        if not on.kind.sealed:
            more = ((name, value - before.get(name, 0)) for name, value in counters().items())
            on.lines += [f"{name} {value}" for name, value in sorted(more) if value]
        for command in way.undo.splitlines():
            tool(command.split())
        take(on.seen, 0.1)


def _wake(on: _Stage) -> None:
    """Let the ends of an encrypted tunnel find each other: the first packet asks for it.

    Raises:
        GuestError: they do not.
    """
    first = few(on.kind)[2]
    on.inject.sendto(first.vnet + first.data, (NAME, first.protocol, 0, 0, first.data[:6]))
    deadline = time.monotonic() + time_limit(_WAKE_S)
    while time.monotonic() < deadline:
        # A handshake's messages are shorter than the packet that waits for it.
        if any(len(frame) > len(first.data) for _, frame in take(on.seen, _QUIET_S)[0]):
            return
    raise GuestError("the ends of the tunnel do not find each other")


def _neighbours(kind: Kind) -> None:
    """Give the devices here addresses, and neighbours that need no asking."""
    speaks_ipv6(NAME)
    speaks_ipv6(_IN_HERE)
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
def _stage(kind: Kind) -> Iterator[_Stage]:
    be_quiet(more=_FORWARDING)
    with ExitStack() as stack:
        stack.enter_context(tunnel(kind))
        be_quiet(FAR)
        pair = f"link add {_IN_HERE} address {_IN_MAC} type veth"
        ip_batch([f"{pair} peer name {_IN_FAR} address {_SOURCE_MAC} netns {FAR}"])
        stack.callback(ip_batch, [f"link delete {_IN_HERE}"])
        ip_batch([f"link set {_IN_FAR} mtu 9000 up"], netns=FAR)
        ip_batch([f"link set {_IN_HERE} mtu 9000 up"])
        if kind.ethernet:
            ip_batch([f"link set {NAME} address {OWN_MAC.hex(':')}"])
        _neighbours(kind)
        places = ((NAME, None, False), (_IN_FAR, FAR, False), (BEYOND, FAR, True))
        inject, source, below, back = (
            stack.enter_context(packet_socket(device, netns, sees=sees))
            for device, netns, sees in (*places, (_IN_FAR, FAR, True))
        )
        made = _Stage(kind, inject, source, (below, back))
        if kind.sealed:
            _wake(made)
        time.sleep(_SETTLE_S)
        take(made.seen, 0.1)
        yield made


def main(names: Sequence[str]) -> int:
    """Record the tunnels of these types, and print how many lines each has."""
    out = Path(os.environ["NODROP_OUT"])
    prepare_system()
    for name in names:
        if name in BEARERS:
            lines = bearers.record(name)
        else:
            with _stage(KINDS[name]) as made:
                _record(made)
                lines = made.lines
        (out / f"record-{name}.txt").write_text("\n".join(lines) + "\n", encoding="ascii")
        print(f"{name}: {len(lines)} lines", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
