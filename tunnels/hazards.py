# SPDX-License-Identifier: GPL-2.0-only
"""``python3 -m tunnels.hazards [--fault NAME] TYPE ...``: use cached routes in every way.

For a kernel that finds bugs. Each tunnel's packets are sent as for a record (record.py), and then
by two senders while the routes, policies and devices of each case come and go under them.
``mcroute`` lets packets wait for a multicast route, ``iptfs`` in an IPTFS state's queue. ``netns-``
with a type deletes the network namespace of the tunnel's routes::

    here           ndgone
    ndtunnel0 .... ndsink0
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from guestlib.environment import GuestError, prepare_system, wait_until
from guestlib.process import ip_batch
from tunnels import faults, queues, record
from tunnels.cases import LONG, cases, label
from tunnels.links import BEARERS, HERE4, HERE6, KINDS, LinkKind, ends
from tunnels.packets import few
from tunnels.topology import BELOW, NAME, SINK, enable_ipv6, mtu, packet_socket, tunnel

_SENDERS = 2
_FEWEST = 200
"""Packets that both send at least, while cases come and go or until a namespace ends."""
VANISHING = ("vxlan", "vxlan6", "geneve6", "ip6ip6", "ip6gre")
_GONE, _NEXT = "ndgone", "ndnext"
"""The memory of a namespace is freed when the next one ends."""
_TIMES, _SETTLE_S = 3, 3.0


def _send(kind: LinkKind, end: threading.Event) -> None:
    """Send a few packets again and again; routes may be missing and the device full."""
    probes = few(kind, LONG)
    with packet_socket(NAME, mark=kind.mark) as sock:
        while not end.is_set():
            for probe in probes:
                with suppress(OSError):
                    probe.send(sock, NAME)


def _sent(device: str) -> int:
    path = Path(f"/sys/class/net/{device}/statistics/tx_packets")
    return int(path.read_text(encoding="ascii"))


@contextmanager
def _senders(kind: LinkKind) -> Iterator[None]:
    end = threading.Event()
    threads = [threading.Thread(target=_send, args=(kind, end)) for _ in range(_SENDERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join()


def churn(kind: LinkKind) -> None:
    """Make and undo each case's change while packets are sent; then remove the tunnel.

    Raises:
        GuestError: too few packets left by the device below.
    """
    with tunnel(kind):
        before = _sent(BELOW)
        with _senders(kind):
            for case in (label(kind), *cases(kind, mtu())):
                case.make()
                case.revert()
        if (left := _sent(BELOW) - before) < _FEWEST:
            raise GuestError(f"only {left} packets left the machine")


def vanish(name: str) -> None:
    """Delete the namespace of a tunnel's routes, and with it the tunnel and its cache.

    Raises:
        GuestError: too few packets are sent, or the tunnel outlives the namespace.
    """
    kind = KINDS[name]
    for _ in range(_TIMES):
        ip_batch([f"netns add {_GONE}", f"netns add {_NEXT}"])
        ip_batch([f"link add {SINK} type dummy"], netns=_GONE)
        enable_ipv6(SINK, _GONE)
        link = kind.link.format(**ends(here=True))
        lines = [f"address add {HERE4}/24 dev {SINK}", f"address add {HERE6}/64 dev {SINK} nodad"]
        lines += [f"link set {SINK} up", f"link add {NAME} type {link}"]
        ip_batch([*lines, f"link set {NAME} netns {os.getpid()}"], netns=_GONE)
        ip_batch([f"link set {NAME} up"])
        with _senders(kind):
            if not wait_until(lambda: _sent(NAME) >= _FEWEST):
                raise GuestError(f"{name}: fewer than {_FEWEST} packets are sent")
            ip_batch([f"netns delete {_GONE}"])
            if not wait_until(lambda: not Path("/sys/class/net", NAME).exists()):
                raise GuestError(f"{name}: the device outlives the namespace of its routes")
            ip_batch([f"netns delete {_NEXT}"])
        time.sleep(_SETTLE_S)


ENDS: dict[str, Callable[[], None]] = {
    "mcroute": queues.resolve_late,
    "iptfs": queues.lose_dst,
    **{f"netns-{name}": partial(vanish, name) for name in VANISHING},
}
"""What ends a packet's route before the packet."""


def main(argv: list[str]) -> int:
    """Run the given types of tunnel; a fault shows in the kernel's log."""
    parser = argparse.ArgumentParser(prog="tunnels.hazards")
    parser.add_argument("--fault", choices=faults.FAULTS, default="none")
    parser.add_argument("types", nargs="+", choices=(*KINDS, *BEARERS, *ENDS), metavar="TYPE")
    options = parser.parse_args(argv)
    prepare_system()
    faults.make(options.fault)
    if options.fault != "none":
        faults.panic_on_report()
    for name in options.types:
        if name in ENDS:
            ENDS[name]()
            continue
        record.record([name])
        if name in KINDS:
            churn(KINDS[name])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
