# SPDX-License-Identifier: GPL-2.0-only
"""``python3 -m tunnels.hazards [--fault NAME] TYPE ...``: use borrowed routes in every way.

For a kernel that finds bugs. Each tunnel's packets are sent as for a record (record.py), and then
by two senders while the routes, policies and devices of each case come and go under them.
``mcroute`` lets packets wait for a multicast route, ``iptfs`` in an IPTFS state's queue. ``netns-``
with a type deletes the network namespace of the tunnel's routes.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from guestlib.environment import GuestError, prepare_system
from tunnels import faults, queues, record
from tunnels.cases import LONG, cases
from tunnels.links import BEARERS, KINDS, LinkKind
from tunnels.packets import few
from tunnels.topology import BELOW, NAME, mtu, packet_socket, tunnel
from tunnels.vanish import VANISHING, vanish

_SENDERS = 2
_FEWEST = 200
"""Packets that both send at least, while some twenty cases come and go."""


def _send(kind: LinkKind, end: threading.Event) -> None:
    """Send a few packets again and again; routes may be missing and the device full."""
    probes = few(kind, LONG)
    with packet_socket(NAME, mark=kind.mark) as sock:
        while not end.is_set():
            for probe in probes:
                with suppress(OSError):
                    probe.send(sock, NAME)


def _left() -> int:
    path = Path(f"/sys/class/net/{BELOW}/statistics/tx_packets")
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
        before = _left()
        with _senders(kind):
            for case in cases(kind, mtu()):
                case.make()
                case.revert()
        if _left() - before < _FEWEST:
            raise GuestError(f"only {_left() - before} packets left the machine")


ENDS: dict[str, Callable[[], None]] = {
    "mcroute": queues.resolve_late,
    "iptfs": queues.lose_dst,
    **{f"netns-{name}": partial(vanish, name, _senders) for name in VANISHING},
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
