#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""QEMU with a TAP of four queues and vhost-net: it starts, and its firmware sends and receives.

::

    ndtest0 (TAP, 4 queues) --> vhost_net --> virtio-net of a machine that boots from the network
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "proof/programs"))

from devices import DEEP, HERE, NAME, THERE, dropped
from harness import Skip, check, drivers, equal, run, soon
from traffic import Sender

from guestlib.environment import time_limit
from guestlib.netstats import driver_counters
from guestlib.process import ip_batch, tool
from guestlib.tundev import configure
from lab.variant import Variant

QEMU = "qemu-system-x86_64"
QUEUES = 4
PACKETS = 2000
START_S, BOOT_S = 30.0, 60.0


class QemuMonitor:
    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(time_limit(10))
        soon(lambda: self._connected(path), "QEMU does not start", START_S)
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._lines.readline()
        self.execute("qmp_capabilities")

    def _connected(self, path: str) -> bool:
        try:
            self._socket.connect(path)
        except OSError:
            return False
        return True

    def execute(self, what: str) -> Any:
        """Run a command and return its result; skip events."""
        self._socket.sendall(json.dumps({"execute": what}).encode())
        while True:
            answer = json.loads(self._lines.readline())
            check("error" not in answer, f"{what}: {answer}")
            if "return" in answer:
                return answer["return"]


@contextmanager
def machine(*words: str) -> Iterator[QemuMonitor]:
    """Run a virtual machine whose only device is a network card with four queues."""
    if not shutil.which(QEMU):
        raise Skip(f"there is no {QEMU}")
    with tempfile.TemporaryDirectory(prefix="nodrop-compat-") as folder:
        path = f"{folder}/monitor"
        argv = [QEMU, "-nodefaults", "-display", "none", "-no-user-config", "-m", "64"]
        argv += ["-accel", "tcg", "-qmp", f"unix:{path},server=on,wait=off"]
        argv += [
            "-netdev",
            f"tap,id=n,ifname={NAME},queues={QUEUES},vhost=on,script=no,downscript=no",
        ]
        argv += ["-device", f"virtio-net-pci,netdev=n,mq=on,vectors={2 * QUEUES + 2}"]
        with subprocess.Popen([*argv, *words], stderr=subprocess.PIPE) as process:
            try:
                yield QemuMonitor(path)
            except AssertionError:
                process.kill()
                assert process.stderr is not None
                print(f"# QEMU printed: {process.stderr.read().decode(errors='replace')}")
                raise
            finally:
                process.kill()


def queues() -> int:
    """Return the device's queues, including those that the machine has not yet enabled."""
    link = json.loads(tool(["ip", "-j", "-d", "link", "show", "dev", NAME]))[0]
    info = link["linkinfo"]["info_data"]
    return int(info["numqueues"]) + int(info["numdisabled"])


def received() -> int:
    return int(Path("/sys/class/net", NAME, "statistics/rx_packets").read_text())


def with_both(case: Callable[[], None]) -> None:
    for variant in (Variant.STOCK, Variant.NODROP):
        drivers.use(variant, vhost=variant)
        case()
        soon(lambda: not Path("/sys/class/net", NAME).exists(), "the device is not deleted")


def case_firmware_sends_and_receives() -> None:
    """Its boot loader sends DHCP requests, and receives a flood that exceeds its ring."""

    def boot() -> None:
        with machine("-boot", "n") as monitor:
            equal(monitor.execute("query-status")["status"], "running", "the machine's state")
            equal(queues(), QUEUES, "queues")
            configure(NAME, txqueuelen=5, qdisc=DEEP, address=f"{HERE} peer {THERE}/32")
            ip_batch([f"neigh replace {THERE} lladdr ff:ff:ff:ff:ff:ff dev {NAME}"])
            soon(lambda: received() > 0, "the machine sends nothing", BOOT_S)
            lost = dropped()

            def full() -> bool:
                check(Sender(PACKETS).finished(30), "the sender hangs")
                counted = driver_counters(NAME).items()
                stops = sum(value for name, value in counted if name.endswith("_stops"))
                return bool(stops) if counted else dropped() > lost

            soon(full, "the machine is too fast: its ring is never full")
            if driver_counters(NAME):
                equal(dropped(), lost, "packets dropped")

    with_both(boot)


run(tun=None)
