#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop doctor``: its findings on real drivers and devices.

tests/unit/nodrop/test_doctor.py tests each check with data recorded in guests, and
tests/kernels/programs/vpns.py the checks for drops.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from command import FINE, as_json
from devices import DEEP, HERE, NAME, THERE, counters, until_stopped
from devices import tun as device
from harness import check, equal, parameter, repeating, run, soon
from traffic import Reader, Sender, packets, udp

from guestlib.packets import ip4
from guestlib.process import Service, tool
from guestlib.tundev import (
    IFF_TUN,
    MULTI_TUN,
    TSO_OFFLOADS,
    TUNSETPERSIST,
    TunDevice,
    configure,
)

SURE_S = "1"
"""A sample in which any sound reader reads."""
SEND_S = 0.25
"""Interval at which a blocked sender checks whether to stop."""
PAUSE_S = 0.2
"""Between two packets of a reader that is too slow for a guard_ms of 300, not for a long one."""


def diagnose(*words: str, seconds: str = "0.2") -> Any:
    return as_json("doctor", *words, "--seconds", seconds, "-q", status=FINE)


def severities(result: Any, name: str) -> dict[str, str]:
    """Return device -> severity, for the warnings and failures of one check."""
    return {
        entry["device"]: entry["severity"]
        for entry in result["checks"]
        if entry["id"] == name and entry["severity"] in ("warn", "fail")
    }


def finding(result: Any, name: str) -> dict[str, Any]:
    (only,) = (entry for entry in result["checks"] if entry["id"] == name)
    assert isinstance(only, dict)
    return only


def waits_for(condition: Callable[[Any], bool], text: str) -> Any:
    """Return doctor's findings as soon as they meet a condition."""
    results: list[Any] = []

    def meets() -> bool:
        results[:] = [diagnose(NAME, seconds=SURE_S)]
        return condition(results[0])

    soon(meets, lambda: f"{text}: {results}")
    return results[0]


def send(packets: int, port: int = 9) -> None:
    with udp() as sock:
        sock.setblocking(False)
        for _ in range(packets):
            sock.sendto(bytes(64), (THERE, port))


def flow_into(queue: int) -> socket.socket:
    """Return a socket whose packets go into a queue that no program reads; it has sent one."""
    for port in range(1000, 2000):
        before = counters(queue)["ring"]
        sock = udp()
        sock.connect((THERE, port))
        sock.settimeout(SEND_S)  # bound: it tries again
        sock.send(bytes(64))
        if counters(queue)["ring"] > before:
            return sock
        sock.close()
    raise AssertionError(f"no packet into queue {queue}")


def send_one(sock: socket.socket) -> None:
    with suppress(TimeoutError):
        sock.send(bytes(64))


def write_slowly(fd: int) -> None:
    """Write at most 700 kB a second."""
    os.write(fd, ip4(bytes(1400), at=(THERE, HERE)))
    time.sleep(0.002)


@contextmanager
def edge_reader(budget: int, *words: str) -> Iterator[Service]:
    """Run a program for the block that reads the device with EPOLLET; it waits for a line.

    Args:
        words: "company": another process has its file open, and a thread works.
    """
    with Service([sys.executable, __file__, "--reader", str(budget), *words]) as child:
        configure(NAME, txqueuelen=500, qdisc=DEEP, address=f"{HERE} peer {THERE}/32")
        try:
            yield child
        finally:
            child.kill()


def work() -> None:
    """Use about a fifth of a CPU, without end."""
    while True:
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass
        time.sleep(0.04)


def read_edges(budget: int, *, company: bool) -> None:
    """Read at most ``budget`` packets for each edge, without end."""
    with ExitStack() as stack:
        device = stack.enter_context(TunDevice(NAME, IFF_TUN))
        epoll = stack.enter_context(select.epoll())
        if company:
            # It ends with this process, which has the other end of its input.
            stack.enter_context(Service(["cat"], announces=False, pass_fds=[device.fd]))
            threading.Thread(target=work, daemon=True).start()
        print('{"ready": true}', flush=True)
        sys.stdin.readline()
        epoll.register(device.fd, select.EPOLLIN | select.EPOLLET)
        while epoll.poll():
            for _ in itertools.islice(packets(device.fd), budget):
                pass
            # Slower than any sender, so that packets wait beyond the budget.
            time.sleep(0.02)


def case_unread_queue_of_two() -> None:
    with ExitStack() as stack:
        stack.enter_context(parameter("guard_ms", "300"))
        first = stack.enter_context(device(500, flags=MULTI_TUN))
        reader = stack.enter_context(Reader(first.fd))
        send(3)
        check(reader.reaches(3), "packets are missing")
        stack.enter_context(TunDevice(NAME, MULTI_TUN))
        equal(severities(diagnose(NAME, seconds=SURE_S), "reader-stuck"), {}, "with an empty queue")

        sock = stack.enter_context(flow_into(1))
        idle = finding(diagnose(NAME, seconds=SURE_S), "reader-stuck")
        equal(idle["severity"], "warn", "a packet waits, and no other comes")
        numbers = idle["numbers"]
        equal((numbers["unread_queues"], numbers["ring_packets"]), (1, 1), "unread")
        check(numbers["queue1_unread_s"] >= 0.9, f"unread for {numbers}")

        with repeating(lambda: send_one(sock)):
            soon(lambda: counters(1)["stalled_ms"] > 1500, "the guard does not trip")
            stuck = finding(diagnose(NAME), "reader-stuck")
        equal(stuck["severity"], "fail", "its packets are dropped")
        numbers = stuck["numbers"]
        equal(numbers["unread_queues"], 1, "unread queues")
        check(numbers["queue1_stalled_s"] > 1.5, f"unread for {numbers}")
        check(str(os.getpid()) in stuck["seen"], f"the reader is not named: {stuck}")


def case_trickle() -> None:
    with parameter("guard_ms", "300"), device(500) as tun, Reader(tun.fd, pause_s=PAUSE_S):
        sender = Sender(10**7)
        result = waits_for(
            lambda result: severities(result, "guard-tripped") == {NAME: "fail"},
            "no stalled reader",
        )
        sender.stop()
        equal(severities(result, "reader-stuck"), {}, "a reader that takes packets")
        numbers = finding(result, "guard-tripped")["numbers"]
        check(0 < numbers["queue0_taken_packets_per_s"] <= 2 / PAUSE_S, f"rate: {numbers}")
        check(numbers["queue0_stalled_s"] > 0, f"since when: {numbers}")


def case_slow_link() -> None:
    """A reader that takes 20 packets a second has senders wait, which ``delay`` alone reports."""
    with parameter("guard_ms", "0"), device(500) as tun, Reader(tun.fd, pause_s=0.05):
        sender = Sender(10**7)
        until_stopped()
        waits_for(
            lambda result: (
                not {**severities(result, "reader-stuck"), **severities(result, "guard-tripped")}
            ),
            "a sound reader",
        )
        result = waits_for(
            lambda result: severities(result, "delay") == {NAME: "warn"}, "no long delay"
        )
        sender.stop()
        delay = finding(result, "delay")
        check(delay["numbers"]["qdisc_wait_ms"] > 0, f"in the qdisc: {delay}")
        check(f"({os.getpid()})" in delay["cost"], f"the reader is not named: {delay}")
        check(delay["numbers"]["ring_packets"] > 0, f"in the ring: {delay}")
        check(delay["numbers"]["ring_wait_ms"] >= 20, f"a ring of a slow reader: {delay}")


def case_nothing_moves() -> None:
    with parameter("guard_ms", "0"), device(500):
        sender = Sender(10**7)
        until_stopped()
        check(sender.blocked(0.5), "the sender does not block")
        result = diagnose(NAME, seconds=SURE_S)
        sender.stop()
        equal(severities(result, "reader-stuck"), {NAME: "fail"}, "reader-stuck")
        numbers = finding(result, "delay")["numbers"]
        check(numbers["ring_packets"] > 0 and numbers["qdisc_packets"] > 0, f"waiting: {numbers}")
        check(not numbers.keys() & {"ring_wait_ms", "qdisc_wait_ms"}, f"delays: {numbers}")


def case_sleeps_until_an_edge() -> None:
    with edge_reader(1) as child:
        send(3)
        child.send()
        result = waits_for(
            lambda result: severities(result, "reader-edge") == {NAME: "fail"}, "no reader-edge"
        )
        equal(severities(result, "reader-stuck"), {}, "two findings of one cause")
        equal(finding(result, "reader-edge")["numbers"]["ring_packets"], 2, "left packets")
        send(1)
        soon(lambda: counters()["taken"] == 2, "an edge does not wake it")


def case_sleeps_until_an_edge_in_company() -> None:
    """Nor does another holder of its file, or another thread, hide a reader that sleeps."""
    with edge_reader(1, "company") as child:
        send(3)
        child.send()
        result = waits_for(
            lambda result: severities(result, "reader-edge") == {NAME: "fail"}, "no reader-edge"
        )
        equal(severities(result, "reader-stuck"), {}, "two findings of one cause")
        edge = finding(result, "reader-edge")
        check(f"({child.pid})" in edge["seen"], f"the reader is not named: {edge}")
        check("cat(" not in edge["seen"], f"another process is named: {edge}")
        sender = Sender(10**7, patient=True)
        waits_for(lambda result: finding(result, "reader-edge")["severity"] == "note", "no note")
        sender.stop()


def case_takes_a_few_for_each_edge() -> None:
    with edge_reader(2) as child:
        sender = Sender(10**7, patient=True)
        child.send()
        result = waits_for(
            lambda result: finding(result, "reader-edge")["severity"] == "note", "no reader-edge"
        )
        check(
            finding(result, "reader-edge")["numbers"]["queue0_taken_packets_per_s"] > 0, "its rate"
        )
        equal(severities(result, "reader-stuck"), {}, "two findings of one cause")
        sender.stop()


def case_reads_until_eagain_and_is_stopped() -> None:
    with edge_reader(10**6) as child:
        send(3)
        child.send()
        soon(lambda: counters()["taken"] == 3, "packets are missing")
        equal(finding(diagnose(NAME, seconds=SURE_S), "reader-edge")["severity"], "ok", "its ring")
        os.kill(child.pid, signal.SIGSTOP)
        send(2)
        result = diagnose(NAME, seconds=SURE_S)
        equal(severities(result, "reader-edge"), {}, "a stopped process does not wait for an edge")
        stuck = finding(result, "reader-stuck")
        equal(stuck["commands"], [f"kill -CONT {child.pid}"], "the repair of a stopped process")
        tool(["sh", "-c", stuck["commands"][0]])
        soon(lambda: counters()["taken"] == 5, "the process does not continue")
        equal(severities(diagnose(NAME, seconds=SURE_S), "reader-stuck"), {}, "after the repair")


def case_unread_before_the_device() -> None:
    """A program that writes into the device slower than its other end sends."""
    with device(500) as tun, udp() as receiver, udp() as other_end:
        receiver.bind(("127.0.0.1", 0))
        with repeating(lambda: write_slowly(tun.fd)):
            equal(finding(diagnose(NAME), "vpn-queue")["severity"], "ok", "an empty socket")
            for _ in range(100):
                other_end.sendto(bytes(1000), receiver.getsockname())
            unread = finding(diagnose(NAME), "vpn-queue")
    equal((unread["severity"], unread["commands"]), ("note", []), "a full socket")
    check(f"({os.getpid()})" in unread["seen"], f"the reader is not named: {unread}")
    numbers = unread["numbers"]
    check(numbers["unread_bytes"] > 64_000 and numbers["unread_wait_ms"] > 20, f"unread: {unread}")


def case_noqueue() -> None:
    with device(5, qdisc="noqueue") as tun:
        with Reader(tun.fd, pause_s=0.002):
            sender = Sender(10**7, patient=True)
            soon(
                lambda: severities(diagnose(NAME), "noqueue") == {NAME: "fail"},
                "noqueue under load",
            )
            noqueue = finding(diagnose(NAME), "noqueue")
            sender.stop()
        for line in noqueue["commands"]:
            tool(line.split())
        equal(severities(diagnose(), "noqueue"), {}, "noqueue after the repair")


def case_offloads_of_an_earlier_owner() -> None:
    with TunDevice(NAME, IFF_TUN, offloads=TSO_OFFLOADS) as tun:
        fcntl.ioctl(tun.fd, TUNSETPERSIST, 1)
    with TunDevice(NAME, IFF_TUN) as tun:
        result = diagnose(NAME)
        fcntl.ioctl(tun.fd, TUNSETPERSIST, 0)
    equal(severities(result, "offloads-left"), {NAME: "warn"}, "offloads-left")


if sys.argv[1:2] == ["--reader"]:
    read_edges(int(sys.argv[2]), company="company" in sys.argv)
else:
    run()
