# SPDX-License-Identifier: GPL-2.0-only
"""Shared by the test programs: KTAP, nodrop's drivers, a device, senders, readers.

A test program runs as root in a guest that it shares with other programs. NODROP_MODULES and
NODROP_BIN are set. It prints KTAP and ends with kselftest's exit status.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from guestlib.failure import GuestError, Unsupported
from guestlib.netstats import driver_counters, link_counters
from guestlib.prepare import prepare_system
from guestlib.process import ip_batch
from guestlib.timing import scaled, time_limit
from guestlib.tundev import IFF_TAP, IFF_TUN, TunDevice, configure
from lab.variant import Variant
from nodrop.host import ethtool
from proof.late_drivers import LateDrivers

NAME = "ndtest0"
HERE, THERE = "198.18.0.1", "198.18.0.2"
SEND_TIMEOUT = struct.pack("ll", 0, 250_000)
"""Interval at which a blocked sender checks whether to stop, as a struct timeval."""
DEEP = "pfifo limit 20000"
"""A qdisc that never drops in a test; fq_codel's AQM would."""
PARAMETERS = {
    "nodrop": Path("/sys/module/tun/parameters/nodrop"),
    "guard_ms": Path("/sys/module/nodrop/parameters/guard_ms"),
    "target_us": Path("/sys/module/nodrop/parameters/target_us"),
}

drivers = LateDrivers(Path(os.environ["NODROP_MODULES"]))


class Skip(Exception):
    """This kernel or machine cannot run the case; the text is the reason."""


def check(condition: bool, text: str) -> None:
    """Fail the case with a text unless the condition holds."""
    if not condition:
        raise AssertionError(text)


def equal(got: object, wanted: object, what: str) -> None:
    """Fail the case unless both values are equal."""
    check(got == wanted, f"{what}: got {got}, wanted {wanted}")


def all_cases() -> list[Callable[[], None]]:
    """Return the functions case_... of the program, in the order of their definitions."""
    names = vars(sys.modules["__main__"])
    return [value for name, value in names.items() if name.startswith("case_")]


def run(
    *cases: Callable[[], None],
    vhost: Variant | None = None,
    tun: Variant | None = Variant.NODROP,
    at_end: Callable[[], None] = drivers.unload,
) -> None:
    """Run the cases, each with nodrop's driver loaded; print KTAP and exit.

    Args:
        cases: by default all of the program.
        vhost: the variant of vhost_net to load, too; None: none.
        tun: the variant of tun; None: the cases load modules themselves.
        at_end: unloads the modules, for the programs that follow.
    """
    cases = cases or tuple(all_cases())
    prepare_system()
    print("KTAP version 1", f"1..{len(cases)}", sep="\n", flush=True)
    failed = 0
    for number, case in enumerate(cases, start=1):
        name = case.__name__.removeprefix("case_")
        try:
            if tun:
                drivers.use(tun, vhost=vhost)
            case()
            print(f"ok {number} {name}", flush=True)
        except (Skip, Unsupported) as reason:
            print(f"ok {number} {name} # SKIP {reason}", flush=True)
        except Exception as error:
            failed += 1
            for line in traceback.format_exc().splitlines():
                print(f"# {line}")
            print(f"not ok {number} {name} # {error}", flush=True)
    try:
        at_end()
    except GuestError as error:
        failed += 1
        print(f"# {error}", flush=True)
    sys.exit(1 if failed else 0)


@contextmanager
def parameter(name: str | Path, value: str) -> Iterator[None]:
    """Set a parameter of nodrop's modules, or the one in a file, for the block."""
    path = PARAMETERS[name] if isinstance(name, str) else name
    before = path.read_text()
    path.write_text(value)
    try:
        yield
    finally:
        path.write_text(before)


@contextmanager
def tun(ring: int, *, flags: int = IFF_TUN, qdisc: str = DEEP) -> Iterator[TunDevice]:
    """Create a TUN or TAP device for the block: up, with an address and a route to THERE."""
    with TunDevice(NAME, flags) as device:
        configure(NAME, txqueuelen=ring, qdisc=qdisc, address=f"{HERE} peer {THERE}/32")
        if flags & IFF_TAP:
            ip_batch([f"neigh replace {THERE} lladdr 02:00:00:00:00:02 dev {NAME}"])
        yield device


@contextmanager
def backpressure_off() -> Iterator[None]:
    """Fill rings up to txqueuelen in the block, whatever their limit."""
    ethtool.set_private_flag(NAME, "nodrop", False)
    try:
        yield
    finally:
        ethtool.set_private_flag(NAME, "nodrop", True)


def counters(queue: int = 0, *, device: str = NAME, direction: str = "tx") -> dict[str, int]:
    """Return the driver's counters of one queue."""
    prefix = f"{direction}{queue}_"
    found = driver_counters(device)
    return {
        name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)
    }


def dropped() -> int:
    """Return the packets that the device dropped on transmit."""
    return link_counters(NAME).tx_dropped


def soon(
    condition: Callable[[], bool], text: str | Callable[[], str], timeout: float = 10.0
) -> None:
    """Fail the case unless the condition holds within time_limit(timeout)."""
    deadline = time.monotonic() + time_limit(timeout)
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(text if isinstance(text, str) else text())
        time.sleep(0.005)


def resize(ring: int) -> None:
    """Set the device's txqueuelen."""
    ip_batch([f"link set dev {NAME} txqueuelen {ring}"])


class Sender:
    """Send numbered datagrams from a blocking socket, in a thread.

    Args:
        packets: how many to send.
        port: the destination port.
        patient: count network errors, and continue.
    """

    def __init__(self, packets: int, *, port: int = 9, patient: bool = False) -> None:
        self.sent = 0
        self.errors = 0
        self.port = port
        self._packets = packets
        self._patient = patient
        self._stop = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._send()
        except Exception as error:
            self._failed = True
            text = f"# the sender to port {self.port} ended after {self.sent} packets: {error!r}\n"
            print(text, end="", flush=True)

    def _send(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SEND_TIMEOUT)
            while self.sent < self._packets and not self._stop.is_set():
                try:
                    sock.sendto(self.sent.to_bytes(4, "big") * 16, (THERE, self.port))
                except BlockingIOError:
                    continue
                except OSError:
                    if not self._patient:
                        raise
                    self.errors += 1
                    time.sleep(0.001)
                    continue
                self.sent += 1

    def finished(self, timeout: float) -> bool:
        """Return whether it has ended, without an error, within time_limit(timeout)."""
        self._thread.join(time_limit(timeout))
        return not self._thread.is_alive() and not self._failed

    def blocked(self, seconds: float) -> bool:
        """Return whether it is still sending after a time, seconds on a fast guest."""
        self._thread.join(scaled(seconds))
        return self._thread.is_alive()

    def stop(self) -> bool:
        """Stop sending; return whether the sender ended, without an error."""
        self._stop.set()
        return self.finished(5)


class Reader:
    """Read a tun file in a thread; a context manager.

    It polls without a timeout, so that a notification that the driver omits shows.

    Args:
        fd: the file; it becomes non-blocking.
        pause_s: sleep after each packet, s.
    """

    def __init__(self, fd: int, *, pause_s: float = 0.0) -> None:
        os.set_blocking(fd, False)
        self.packets = 0
        self._fd = fd
        self._pause_s = pause_s
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.eventfd_write(self._stop, 1)
        self._thread.join(time_limit(5))
        os.close(self._stop)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        while self._stop not in dict(poll.poll()):
            try:
                self.on_packet(os.read(self._fd, 65536))
            except BlockingIOError:
                continue
            except OSError as error:
                # The queue is detached, or its device deleted.
                if error.errno != errno.EBADFD:
                    raise
                time.sleep(0.001)
                continue
            self.packets += 1
            if self._pause_s:
                time.sleep(self._pause_s)

    def on_packet(self, packet: bytes) -> None:
        """Handle a packet; called in the thread."""

    def reaches(self, packets: int, timeout: float = 10.0) -> bool:
        """Return whether it has read ``packets`` packets within time_limit(timeout)."""
        deadline = time.monotonic() + time_limit(timeout)
        while self.packets < packets and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.packets >= packets
