#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The livepatch adds nodrop to running stock drivers and removes it, under load.

Needs the distribution's own modules in /lib/modules. LAB_MODULES has nodrop.ko, nodrop_live.ko
and modules to refuse: nodrop's own tun.ko, twin/tun.ko (build/twin of the build). LAB_FOREIGN is a
livepatch of another vendor (foreign.ko).
LAB_ROUNDS is the number of rounds of case_rounds (10).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "proof/programs"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "programs"))

from command import command
from devices import DEEP, HERE, NAME, THERE, counters, dropped, resize, tun
from harness import check, equal, run, soon
from query import Bursts, device, query
from traffic import Reader, Sender

from guestlib.environment import Environment, GuestError, time_limit
from guestlib.namespaces import namespaces
from guestlib.netstats import qdisc_counters
from guestlib.process import in_netns, ip_batch, tool
from guestlib.tundev import IFF_MULTI_QUEUE, IFF_TAP, IFF_TUN, TunDevice, attach_queue
from guestlib.vhost_client import VhostClient
from nodrop.host.livepatch import Livepatch

MODULES = Path(os.environ["LAB_MODULES"])
FOREIGN = Path(os.environ["LAB_FOREIGN"])
PATCH = Livepatch()
TRANSITION_S = time_limit(20.0)
"""Longer than the 15 s after which the kernel signals tasks that delay the transition."""
ROUNDS = int(os.environ.get("LAB_ROUNDS", "10"))
FLOOD_S = 1.0
SIGNALED = "livepatch: signaling remaining tasks"
"""The kernel signals tasks that delay a transition for 15 s."""
FAR_FLOOD_S = 60.0 * float(os.environ.get("LAB_SLOW", "1"))
RING = 20
PAUSE_S = 0.001
SLOW_NS = 1_000_000
MULTI = IFF_TUN | IFF_MULTI_QUEUE
REFERENCES = Path("/sys/module/tun/refcnt")
PR_SET_NAME = 15
_libc = ctypes.CDLL(None, use_errno=True)


class Sleeper:
    """Read a tun file with blocking read() calls, in a thread, as a simple program does.

    It makes the system call itself: Python's read() retries after EINTR. The thread's name is
    invalid UTF-8: the command must be able to list it among the tasks that delay a transition.

    Args:
        fd: the file; it becomes blocking.
        pause_s: sleep after each packet, s.
    """

    def __init__(self, fd: int, *, pause_s: float = 0.0) -> None:
        os.set_blocking(fd, True)
        self.packets = 0
        self.errors: list[str] = []
        self._fd = fd
        self._pause_s = pause_s
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sleeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        Sender(1).finished(5)
        self._thread.join(time_limit(5))
        check(not self._thread.is_alive(), "the reader hangs")
        equal(self.errors, [], "errors of read()")

    def _run(self) -> None:
        _libc.prctl(PR_SET_NAME, b"\xff", 0, 0, 0)
        buffer = ctypes.create_string_buffer(65536)
        while not self._stop:
            if _libc.read(self._fd, buffer, len(buffer)) < 0:
                self.errors.append(os.strerror(ctypes.get_errno()))
                return
            self.packets += 1
            if self._pause_s:
                time.sleep(self._pause_s)


def load() -> float:
    """Load the livepatch, whose guard then never trips; return the transition's duration, s."""
    start = time.monotonic()
    PATCH.enter(MODULES, TRANSITION_S, lambda _: None)
    seconds = time.monotonic() - start
    Path("/sys/module/nodrop/parameters/guard_ms").write_text("0")
    return seconds


def unload() -> float:
    """Unload the livepatch; return the duration of the transition, s."""
    start = time.monotonic()
    PATCH.leave(TRANSITION_S, lambda _: None)
    return time.monotonic() - start


@contextmanager
def live() -> Iterator[None]:
    load()
    try:
        yield
    finally:
        unload()


Counting = Sleeper | Reader | VhostClient


def flood(reader: Counting, least: int = 0, *, stops: bool = False) -> int:
    """Send faster than the reader reads; return the drops.

    Args:
        least: send until there are so many drops.
        stops: send until the txq was stopped.
    """
    before, came = dropped(), reader.packets
    senders = [Sender(10**9, port=1000 + number) for number in range(2)]
    time.sleep(FLOOD_S)
    soon(lambda: reader.packets - came > 50, "hardly any packets arrive", 60)
    soon(lambda: dropped() - before >= least, "no drops: this is not the stock driver", 60)
    soon(lambda: not stops or counters()["stops"] > 0, "the txq is never stopped", 60)
    for sender in senders:
        check(sender.stop(), "a sender hangs")
    sent = sum(sender.sent for sender in senders)
    soon(
        lambda: reader.packets - came + dropped() - before >= sent,
        lambda: f"{sent} sent, {reader.packets - came} arrived, {dropped() - before} dropped",
        60,
    )
    print(f"# {sent} sent, {reader.packets - came} arrived", flush=True)
    equal(qdisc_counters(NAME).drops, 0, "packets that the qdisc dropped")
    return dropped() - before


def drops_only_without(reader: Counting) -> None:
    flood(reader, least=50)
    with live():
        equal(flood(reader, stops=True), 0, "packets dropped")
    flood(reader, least=50)


def case_vhost() -> None:
    tool(["modprobe", "vhost_net"])
    environment = Environment.from_environ()
    with (
        tun(RING, flags=IFF_TAP) as device,
        VhostClient(environment, device.fd, work_ns=SLOW_NS) as client,
    ):
        drops_only_without(client)
        with live():
            for _ in range(3):
                client.detach()
                client.attach()
            equal(flood(client), 0, "packets dropped after a backend change")
    tool(["rmmod", "vhost_net"])


def case_resize() -> None:
    with tun(RING) as device, Sleeper(device.fd, pause_s=PAUSE_S) as reader:
        resize(0)
        with live():
            for ring in (None, 1, 500, 0, 5):
                if ring is not None:
                    resize(ring)
                equal(flood(reader), 0, f"packets dropped, txqueuelen {ring}")


def case_queues() -> None:
    """Attach and detach queues; a detached queue's packets are dropped, as with stock."""
    with tun(RING, flags=MULTI) as device, Reader(device.fd, pause_s=PAUSE_S) as reader:
        with live(), Bursts(2 * RING, 0.02):
            for _ in range(5):
                with TunDevice(NAME, MULTI) as second, Reader(second.fd) as other:
                    soon(lambda: counters(1) != {}, "no counters of the second queue")
                    for attach in (False, True) * 2:
                        attach_queue(second.fd, attach)
                        time.sleep(0.05)
                    before = other.packets
                    senders = [Sender(10, port=2000 + number) for number in range(16)]
                    check(all(sender.finished(10) for sender in senders), "a sender hangs")
                    soon(
                        lambda other=other, before=before: other.packets > before,
                        "the second queue gets no packets",
                    )
        soon(lambda: qdisc_counters(NAME).queued == 0, "packets stay in the qdisc", 30)
        with live():
            equal(flood(reader), 0, "packets dropped")


def case_detached() -> None:
    """Resize rings with and without a queue: of four queues three are detached."""
    with tun(RING, flags=MULTI) as device, ExitStack() as stack:
        for _ in range(3):
            attach_queue(stack.enter_context(TunDevice(NAME, MULTI)).fd, False)
        with Sleeper(device.fd, pause_s=PAUSE_S) as reader, live():
            for ring in (500, 5, RING):
                resize(ring)
                equal(flood(reader), 0, f"packets dropped, txqueuelen {ring}")


NOT_BUILT_FOR = "is not the one that this was built for"
NO_FUNCTION = "not found in symbol table"
NOT_COMPATIBLE = "is not compatible with the already installed livepatches"


def case_module_reloaded() -> None:
    """Reload tun.ko while the livepatch is loaded; other builds are refused."""
    with live():
        tool(["rmmod", "tun"])
        refused("tun.ko", NO_FUNCTION)
        refused("twin/tun.ko", NOT_BUILT_FOR)
        tool(["modprobe", "tun"])
        with tun(RING) as device, Sleeper(device.fd, pause_s=PAUSE_S) as reader:
            equal(flood(reader), 0, "packets dropped")


def case_other_driver() -> None:
    """The livepatch refuses nodrop's own driver, and the same code from another build."""
    tool(["rmmod", "tun"])
    tool(["insmod", str(MODULES / "nodrop.ko")])
    try:
        for driver, why in (("tun.ko", NO_FUNCTION), ("twin/tun.ko", NOT_BUILT_FOR)):
            tool(["insmod", str(MODULES / driver)])
            refused("nodrop_live.ko", why)
            with tun(RING) as device, Sleeper(device.fd) as reader:
                Sender(5).finished(5)
                soon(lambda reader=reader: reader.packets >= 5, "the reader gets no packets")
            tool(["rmmod", "tun"])
    finally:
        tool(["rmmod", "nodrop"])
        tool(["modprobe", "tun"])


def refused(module: str | Path, why: str, *parameters: str) -> None:
    """Fail unless the kernel refuses a module, and logs the reason."""
    tool(["dmesg", "--clear"])
    try:
        tool(["insmod", str(MODULES / module), *parameters])
    except GuestError as error:
        print(f"# {error}", flush=True)
    else:
        raise AssertionError(f"{module} is not refused")
    check(why in tool(["dmesg"]), f"{module}: no reason in the log")


def case_cumulative() -> None:
    """The kernel refuses a cumulative livepatch beside this one, but not by itself."""
    other = Path("/sys/kernel/livepatch/foreign")
    parameters = ("function=version_proc_show", "result=0", "replace=1")
    with tun(RING) as device, Sleeper(device.fd, pause_s=PAUSE_S) as reader, live():
        refused(FOREIGN, NOT_COMPATIBLE, *parameters)
        equal(flood(reader, stops=True), 0, "packets dropped")
    tool(["insmod", str(FOREIGN), *parameters])
    soon(lambda: (other / "transition").read_text() == "0\n", "it is never loaded", 60)
    equal(Path("/proc/version").read_text(), "", "what it patches")
    (other / "enabled").write_text("0")
    soon(lambda: not other.exists(), "it is never unloaded", 60)
    tool(["rmmod", "foreign"])


def case_idle() -> None:
    """A reader that sleeps in the old function neither delays a transition nor notices it."""
    with tun(RING) as device, Sleeper(device.fd) as reader:
        time.sleep(0.2)
        signaled = []
        for _ in range(3):
            tool(["dmesg", "--clear"])
            before = reader.packets
            load_s = load()
            time.sleep(0.2)
            unload_s = unload()
            print(f"# in after {load_s:.2f} s, out after {unload_s:.2f} s", flush=True)
            signaled.append(SIGNALED in tool(["dmesg"]))
            Sender(5)
            soon(lambda before=before: reader.packets >= before + 5, "the reader gets no packets")
        # On a machine that stands still a transition may take that long without a cause.
        check(not all(signaled), "a sleeping reader delays the transition")


def case_stopped() -> None:
    """Unloading unblocks senders, and the ring keeps its packets."""
    with tun(RING) as device:
        with live():
            check(Sender(100).finished(10), "the sender hangs")
            check(counters()["stops"] > 0, "the txq was never stopped")
            check(qdisc_counters(NAME).queued > 0, "no packets in the qdisc")
        soon(lambda: qdisc_counters(NAME).queued == 0, "the txq is left stopped")
        with Reader(device.fd) as reader:
            soon(lambda: reader.packets >= RING, "packets in the ring are lost")


FAR = "ndfar"
FLOOD = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    for _ in range(2000):
        sock.sendto(bytes(100), ("%s", 1000))
"""


def far_flood() -> int:

    def lost() -> int:
        shown = tool(["ip", "-n", FAR, "-j", "-s", "link", "show", "dev", NAME])
        return int(json.loads(shown)[0]["stats64"]["tx"]["dropped"])

    before = lost()
    tool(in_netns(FAR, [sys.executable, "-c", FLOOD % THERE]), timeout=FAR_FLOOD_S)
    return lost() - before


def case_namespace() -> None:
    """A device in another network namespace: load, and unload while its txq is stopped."""
    with tun(RING) as device, namespaces(FAR), Sleeper(device.fd, pause_s=PAUSE_S) as reader:
        up = [f"address add {HERE} peer {THERE}/32 dev {NAME}", f"link set dev {NAME} up"]
        tool(["ip", "link", "set", NAME, "netns", FAR])
        ip_batch(up, netns=FAR)
        tool(in_netns(FAR, ["tc", "qdisc", "replace", "dev", NAME, "root", *DEEP.split()]))
        try:
            soon(lambda: far_flood() > 50, "the driver is not stock")
            with live():
                equal(far_flood(), 0, "packets dropped")
            soon(lambda: far_flood() > 50, "the driver is not stock again")
            before = reader.packets
            far_flood()
            soon(lambda: reader.packets > before, "the txq is left stopped")
        finally:
            tool(["ip", "-n", FAR, "link", "set", NAME, "netns", "1"])
            ip_batch(up)


def shown(driver: str) -> None:
    """Fail unless the command reports the driver, and the same drops as ip."""
    output = query("status", NAME)
    found = device(output, NAME)
    equal((found["driver"], output["tun"]["driver"]), (driver, driver), "driver")
    equal(found["backpressure"], driver == "live", "backpressure")
    equal(found["tx_dropped_packets"], dropped(), "packets dropped")
    equal(found["stops"], counters()["stops"] if driver == "live" else None, "stops")
    check(driver in command("status", NAME).stdout, "the text does not name the driver")


def case_command() -> None:
    """Load and unload by the command; a second time changes nothing."""
    built = ("--built", str(MODULES))

    def nodrop(*words: str) -> str:
        return command("-q", "livepatch", *words).stdout

    with tun(RING) as tested, Sleeper(tested.fd, pause_s=PAUSE_S) as reader:
        flood(reader, least=50)
        shown("stock")
        nodrop("load", *built, "--dry-run")
        check(not PATCH.loaded("nodrop_live"), "--dry-run changed something")
        nodrop("load", *built)
        equal(flood(reader, stops=True), 0, "packets dropped")
        shown("live")
        nodrop("load", *built)
        nodrop("unload", "--dry-run")
        check(PATCH.loaded("nodrop_live"), "--dry-run changed something")
        nodrop("unload")
        check(not PATCH.loaded("nodrop"), "a module is left")
        flood(reader, least=50)
        shown("stock")
        nodrop("unload")


def case_rounds() -> None:
    transitions: list[float] = []
    with tun(RING) as device, Sleeper(device.fd) as reader:
        references = REFERENCES.read_text()
        start = time.monotonic()
        with Bursts(2 * RING, 0.02):
            for number in range(ROUNDS):
                before = reader.packets
                transitions += [load(), unload()]
                soon(lambda before=before: reader.packets > before, f"round {number}: no packets")
        took = time.monotonic() - start
        equal(REFERENCES.read_text(), references, "references of tun.ko")
        print(f"# {ROUNDS} rounds, {took:.0f} s, at most {max(transitions):.2f} s each", flush=True)
        soon(lambda: qdisc_counters(NAME).queued == 0, "packets stay in the qdisc", 30)
        time.sleep(0.2)
        before, lost = reader.packets, dropped()
        Sender(10).finished(5)
        soon(lambda: reader.packets >= before + 10, "the txq is left stopped")
        equal(dropped(), lost, "packets dropped at the end")


def end() -> None:
    if PATCH.loaded("nodrop_live"):
        raise GuestError("the livepatch is still loaded")


tool(["modprobe", "tun"])
run(
    case_vhost,
    case_idle,
    case_resize,
    case_queues,
    case_detached,
    case_module_reloaded,
    case_other_driver,
    case_cumulative,
    case_stopped,
    case_namespace,
    case_command,
    case_rounds,
    tun=None,
    at_end=end,
)
