#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop test``: what it measures with a slow reader, what it restores, what it refuses.

::

    nodrop test --> qdisc --> NAME --> slow relay --> PEER in ndpeer, whose kernel replies
                              NAME <----- relay <---- PEER
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from command import ended, start
from devices import DEEP, HERE, NAME, THERE, tun
from harness import check, drivers, each, equal, run, soon
from traffic import Reader

from guestlib.environment import set_sysctls, time_limit
from guestlib.namespaces import inside, namespaces
from guestlib.process import ip_batch
from guestlib.tundev import IFF_TUN, TunDevice, configure
from lab.variant import Variant
from nodrop.host import ethtool, netns

PEER, AWAY, BLUE = "ndpeer0", "ndpeer", "ndblue"
RING = 50
PAUSE_S = 0.001
QUICK = ("--yes", "--rate", "20", "--seconds", "1")
"""Some 1,700 packets a second, of which the relay takes at most 900."""
PORT = 5000


class Relay(Reader):
    """Forward between two devices' files, slowly in the first direction."""

    def __init__(self, near: int, far: int) -> None:
        super().__init__(near)
        self._ways = {near: far, far: near}

    def _run(self) -> None:
        while self._stop not in (ready := select.select([*self._ways, self._stop], [], [])[0]):
            for source in ready:
                try:
                    os.write(self._ways[source], os.read(source, 65536))
                except OSError as error:
                    # A device was deleted, or the other one is not up yet.
                    if error.errno not in (errno.EBADFD, errno.EIO):
                        raise
                    time.sleep(PAUSE_S)
                if source == self._fd:
                    time.sleep(PAUSE_S)


@contextmanager
def tunnel(flags: int = IFF_TUN, where: str | None = None) -> Iterator[None]:
    """Create both devices for the block.

    Args:
        where: the namespace of NAME; None: this one.
    """
    with ExitStack() as stack:
        stack.enter_context(namespaces(AWAY))
        files = [stack.enter_context(TunDevice(name, flags)) for name in (NAME, PEER)]
        for name, space in ((PEER, AWAY), (NAME, where)):
            if space:
                ip_batch([f"link set dev {name} netns {space}"])
        for name, space, own, other in ((NAME, where, HERE, THERE), (PEER, AWAY, THERE, HERE)):
            address = f"{own} peer {other}/32"
            configure(name, txqueuelen=RING, qdisc=DEEP, address=address, netns=space)
        stack.enter_context(Relay(*(file.fd for file in files)))
        yield


def flag(where: str | None = None) -> bool:
    found: bool = netns.run_inside(where, lambda: ethtool.private_flags(NAME)["nodrop"])
    return found


def left_behind() -> list[str]:
    """Return the command lines of processes of 'nodrop test'."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"nodrop" in words and b"test" in words:
                lines.append(b" ".join(words).decode())
    return lines


def equal_flag(wanted: bool, where: str | None = None) -> None:
    """Check what a test has left: the flag, and no process."""
    equal(flag(where), wanted, "the flag afterwards")
    soon(lambda: not left_behind(), lambda: f"processes are left: {left_behind()}")


def measured(*words: str, where: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Run the command to its end, check its JSON, and return the phases."""
    out, _ = ended(start("-q", "-j", *where, "test", NAME, *words), 0)
    found = json.loads(out)
    phases: list[dict[str, Any]] = found["phases"]
    for one in [found["idle"], *phases]:
        print(f"# {one}")
        check(one["round_trip_p50_ms"] > 0, "no round trip")
    equal([one["backpressure"] for one in phases], ["off", "on", "off"], "phases")
    for one in phases:
        check(one["delivered_packets"] > 0, "nothing was delivered")
    equal(phases[1]["driver_dropped_packets"], 0, "driver drops with backpressure")
    return phases


def check_drops(phases: list[dict[str, Any]]) -> None:
    for number in (0, 2):
        check(phases[number]["driver_dropped_packets"] > 0, "no drops without backpressure")
    check(phases[1]["stops"] > 0, "the queue was not stopped")


@each(True, False)
def case_measures_and_restores(on: bool) -> None:
    with tunnel():
        ethtool.set_private_flag(NAME, "nodrop", on)
        check_drops(measured(THERE, *QUICK))
        equal_flag(on)


@each("fd00", "fe80")
def case_ipv6_as_text(prefix: str) -> None:
    here, there = f"{prefix}::1", f"{prefix}::2"
    with tunnel():
        for name, space, own, to in ((NAME, None, here, there), (PEER, AWAY, there, here)):
            with inside(space):
                set_sysctls({f"net/ipv6/conf/{name}/disable_ipv6": "0"})
            ip_batch([f"address add {own} peer {to} dev {name} nodad"], netns=space)
        out, err = ended(start("test", NAME, there, *QUICK), 0)
        for line in (out + err).splitlines():
            print(f"# {line}")
        check("####" in out and NAME in err, "no bars, or no announcement")
        equal_flag(True)


def case_tcp() -> None:
    with tunnel():
        with inside(AWAY):
            server = socket.create_server((THERE, PORT))
        end = threading.Thread(target=discard, args=[server], daemon=True)
        end.start()
        for one in measured(THERE, "--yes", "--seconds", "1", "--tcp", str(PORT)):
            check(one["acked_mbit_per_s"] > 0, "no goodput")
        equal_flag(True)
        server.shutdown(socket.SHUT_RDWR)
        end.join(time_limit(5))
        server.close()
        words = ("--yes", "--seconds", "1", "--tcp", str(PORT))
        ended(start("test", NAME, THERE, *words), 1)
        equal_flag(True)


def discard(server: socket.socket) -> None:
    """Accept connections, and discard what they send, until the server is shut down."""
    with suppress(OSError):
        while True:
            client = server.accept()[0]
            with client, suppress(ConnectionError):
                while client.recv(65536):
                    pass


def case_other_namespace() -> None:
    with namespaces(BLUE), tunnel(where=BLUE):
        check_drops(measured(THERE, *QUICK, where=("-n", BLUE)))
        equal_flag(True, BLUE)
        for again in (False, True):
            interrupt(begin("-n", BLUE, where=BLUE), signal.SIGINT, again=again)
            equal_flag(True, BLUE)


def begin(*words: str, where: str | None = None) -> subprocess.Popen[str]:
    """Start a test in a session of its own; return when backpressure is off."""
    process = start("test", NAME, THERE, *QUICK, *words, by=("setsid",))
    soon(lambda: flag(where) is False, "backpressure is not switched off")
    return process


def interrupt(process: subprocess.Popen[str], number: int, *, again: bool = False) -> None:
    """Send a signal to all processes of a test, as a terminal does.

    Args:
        again: repeat it until the test has ended, also while it restores. Then Python itself may be
            interrupted at its end, so output and exit status do not matter.
    """
    os.killpg(process.pid, number)
    while again and process.poll() is None:
        time.sleep(0.01)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
    if again:
        process.communicate(timeout=time_limit(60))
    else:
        ended(process, 130)


@each("SIGINT", "SIGTERM", "SIGHUP")
def case_restores_after(name: str) -> None:
    with tunnel():
        for pause_s in (0.0, 0.7):
            for again in (False, True):
                process = begin()
                time.sleep(pause_s)
                interrupt(process, signal.Signals[name], again=again)
                equal_flag(True)


def case_killed() -> None:
    """Then the setting stays, but the load ends."""
    with tunnel():
        process = begin("--seconds", "60")
        soon(lambda: len(left_behind()) == 2, "the load has no process")
        process.kill()
        process.wait(time_limit(60))
        soon(lambda: not left_behind(), "the load continues", 1)
        process.communicate()
        equal(flag(), False, "the flag")


def case_device_is_deleted() -> None:
    with tunnel():
        process = begin()
        ip_batch([f"link delete {NAME}"])
        with TunDevice(NAME, IFF_TUN):
            ended(process, 1)
            equal_flag(True)


def case_device_is_renamed() -> None:
    with tunnel():
        process = begin()
        ip_batch([f"link set dev {NAME} name ndnew0"])
        ended(process, 0)
        ip_batch([f"link set dev ndnew0 name {NAME}"])
        equal_flag(True)


def case_stock_driver() -> None:
    drivers.use(Variant.STOCK)
    with tun(RING):
        ended(start("test", NAME, THERE, "--yes"), 4)


run()
