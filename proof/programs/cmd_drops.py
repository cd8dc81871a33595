#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""nodrop drops and monitor: they report what happens, and leave nothing behind.

::

    socket --> qdisc --> NAME --> slow reader          NAME in ndblue drops, too
"""

from __future__ import annotations

import errno
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from command import ended, start
from devices import DEEP, HERE, NAME, THERE, counters, dropped, tun, until_stopped
from harness import Skip, check, drivers, equal, parameter, run, soon
from traffic import Account, Reader, Sender, udp

from guestlib.namespaces import inside, namespaces
from guestlib.netstats import qdisc_counters
from guestlib.process import ip_batch
from guestlib.tracing import TRACING, mount_tracefs
from guestlib.tundev import IFF_TUN, TunDevice
from lab.variant import Variant

Report = dict[str, Any]
TYPED = Path("/sys/kernel/btf/vmlinux").exists()
"""Whether this kernel has BTF, which bpftrace needs to find a packet's device."""
HERE6, THERE6 = "fd00::1", "fd00::2"
FLOW = ("protocol", "source", "source_port", "destination", "destination_port")
INSTANCES = TRACING / "instances"
PAUSE_S = 0.002
PACKETS = 400


@contextmanager
def slow_reader(variant: Variant, ring: int, *, qdisc: str = DEEP) -> Iterator[None]:
    """Create a device with a slow reader for the block."""
    drivers.use(variant)
    with tun(ring, qdisc=qdisc) as device, Reader(device.fd, pause_s=PAUSE_S):
        yield


def burst() -> None:
    """Send until packets are dropped; all drops have happened at the end."""
    before = dropped() + qdisc_counters(NAME).drops
    soon(
        lambda: Sender(PACKETS).finished(20) and dropped() + qdisc_counters(NAME).drops > before,
        "the sender hangs, or nothing is dropped",
    )
    soon(lambda: qdisc_counters(NAME).queued == 0, "packets stay in the qdisc")


def watched(load: Callable[[], None], *words: str, tracer: str = "tracefs") -> tuple[str, str]:
    """Run the command during a load, and only then; return its stdout and stderr."""
    process = start_watching("--seconds", "0", *words, tracer=tracer)
    load()
    process.send_signal(signal.SIGINT)
    shown, err = ended(process, 0)
    check_clean()
    return shown, err


def traced(*words: str, load: Callable[[], None] = burst, tracer: str = "tracefs") -> Report:
    shown, _ = watched(load, "-j", *words, tracer=tracer)
    found: Report = json.loads(shown)
    equal(found["device_known"], tracer == "bpftrace", "device known")
    return found


def check_clean() -> None:
    """Fail if a run left a tracing instance behind."""
    equal(leftovers(), [], "left behind")


def leftovers() -> list[str]:
    mount_tracefs()
    return [str(path) for path in INSTANCES.glob("*")]


def full_ring(found: dict[str, Any], meaning: str = "reader is slower") -> None:
    """Check the report of a full ring."""
    drop = found["drops"][0]
    function = drop["location"].partition("+")[0]
    equal(
        (drop["reason"], function, drop["module"], drop["direction"]),
        ("FULL_RING", "tun_net_xmit", "tun", "transmit"),
        "the first drop",
    )
    check(meaning in drop["meaning"], drop["meaning"])
    counted = found["counters"]["tx_dropped_packets"]
    check(counted > 0, "nothing was counted")
    equal(found["packets"] + found["unseen_packets"], counted, "traced drops")
    if found["device_known"]:
        equal(found["unexplained"], {"transmit_packets": 0, "receive_packets": 0}, "unexplained")


def case_full_ring() -> None:
    with slow_reader(Variant.STOCK, 20):
        full_ring(traced())


def case_bpftrace() -> None:
    if not (TYPED and shutil.which("bpftrace")):
        raise Skip("no bpftrace, or the kernel has no types")
    drivers.use(Variant.STOCK)
    with tun(2), tempfile.TemporaryDirectory() as directory:
        with_ipv6()
        file = Path(directory) / "drops.pcapng"
        found = traced("--write", str(file), load=send_flows, tracer="bpftrace")
        size = file.stat().st_size
    equal(found["tracer"], "bpftrace", "tracer")
    full_ring(found)
    check_flows(found)
    equal(found["written_packets"], found["packets"], "packets in the file")
    check(size > found["written_packets"] * 64, f"{size} bytes")
    with slow_reader(Variant.NODROP, 20, qdisc="pfifo limit 10"):
        qdisc_dropped(traced(tracer="bpftrace"))


def with_ipv6() -> None:
    Path(f"/proc/sys/net/ipv6/conf/{NAME}/disable_ipv6").write_text("0")
    ip_batch([f"address add {HERE6}/64 dev {NAME} nodad"])


def check_flows(found: Report) -> None:
    """The flows are those of send_flows()."""
    flows = {tuple(flow[key] for key in FLOW): flow["packets"] for flow in found["flows"]}
    for flow, packets in (
        (("udp", HERE, 4000, THERE, 9), 20),
        (("udp", HERE6, 4001, THERE6, 9), 20),
        (("icmp", HERE, None, THERE, None), 20),
        # The later fragments of 20 datagrams have no ports.
        (("udp", HERE, 4003, THERE, 9), 20),
        (("udp", HERE, None, THERE, None), 40),
    ):
        equal(flows.get(flow), packets, f"packets of {flow}, of {flows}")
    check(flows.get(("tcp", HERE, 4002, THERE, 80), 0) > 0, f"no TCP in {flows}")
    equal(found["flow_packets"], found["packets"], "packets with a flow")
    equal(sum(flows.values()), found["packets"], "packets of flows")


def send_flows() -> None:
    """Fill the ring, which nobody reads, and then send packets that it drops."""
    with udp() as first:
        for _ in range(2):
            first.sendto(b"", (THERE, 1))
    echo = b"\x08\x00\xf7\xff" + bytes(4)
    for family, kind, protocol, near, far, data in (
        (socket.AF_INET, socket.SOCK_DGRAM, 0, (HERE, 4000), (THERE, 9), bytes(20)),
        (socket.AF_INET6, socket.SOCK_DGRAM, 0, (HERE6, 4001), (THERE6, 9), bytes(20)),
        (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP, (HERE, 0), (THERE, 0), echo),
        (socket.AF_INET, socket.SOCK_DGRAM, 0, (HERE, 4003), (THERE, 9), bytes(4000)),
    ):
        with socket.socket(family, kind, protocol) as sock:
            sock.bind(near)
            for _ in range(20):
                sock.sendto(data, far)
    with socket.socket() as sock:
        sock.bind((HERE, 4002))
        sock.setblocking(False)
        equal(sock.connect_ex((THERE, 80)), errno.EINPROGRESS, "connect")
        time.sleep(0.2)


def qdisc_dropped(found: dict[str, Any]) -> None:
    counted = found["counters"]["qdisc_dropped_packets"]
    check(counted > 0, "the qdisc counted nothing")
    equal(found["counters"]["tx_dropped_packets"], 0, "dropped by the driver")
    if not found["device_known"]:
        equal(found["drops"], [], "drops in the driver")
        return
    reasons = {drop["reason"] for drop in found["drops"]}
    check(reasons <= {"QDISC_DROP", "QDISC_OVERLIMIT", "OVERLIMIT"}, f"reasons {reasons}")
    equal(found["packets"], counted, "traced")


def case_qdisc() -> None:
    with slow_reader(Variant.NODROP, 20, qdisc="pfifo limit 10"):
        qdisc_dropped(traced())


def case_noqueue() -> None:
    """No qdisc can queue a packet, so nodrop drops, too, and the command reports why."""
    with slow_reader(Variant.NODROP, 20, qdisc="noqueue"):
        found = traced()
    equal(found["counters"]["qdisc"], "noqueue", "qdisc")
    counted = found["counters"]
    cause = counted["nodrop_dropped_packets"]["noqueue"]
    equal(cause, counted["tx_dropped_packets"], "dropped by cause")
    full_ring(found, "there is no qdisc")
    equal(found["drops"][0]["advice"], f"nodrop set {NAME} qdisc fq_codel", "advice")


def case_guard() -> None:
    drivers.use(Variant.NODROP)
    with parameter("guard_ms", "200"), tun(20):
        sender: list[Sender] = []

        def load() -> None:
            sender.append(Sender(10**9))
            soon(lambda: dropped() > 0, "the guard does not trip")

        output, _ = watched(load)
        sender[0].stop()
    check("stalled" in output, output)


def case_namespaces() -> None:
    """A device of the same name drops in another namespace."""
    tracer = "bpftrace" if TYPED and shutil.which("bpftrace") else "tracefs"
    drivers.use(Variant.STOCK)
    with namespaces("ndblue"), tun(5):
        ip_batch([f"link set dev {NAME} netns ndblue"])
        ip_batch(
            [f"address add {HERE} peer {THERE}/32 dev {NAME}", f"link set dev {NAME} up"],
            netns="ndblue",
        )
        with TunDevice(NAME, IFF_TUN):
            ip_batch([f"link set dev {NAME} up"])
            there = traced("-n", "ndblue", load=ping, tracer=tracer)
            here = traced(load=ping, tracer=tracer)
    check(there["packets"] > 0, "no drop of the device that drops")
    equal(there["netns"], "ndblue", "netns")
    if here["device_known"]:
        equal(here["packets"], 0, "drops of the other device")


def ping() -> None:
    """Send 100 datagrams in the other namespace."""
    with inside("ndblue"), udp() as sock:
        for _ in range(100):
            sock.sendto(bytes(64), (THERE, 9))


def case_ends() -> None:
    """A run leaves nothing behind; the next run removes what a killed one left."""
    with slow_reader(Variant.STOCK, 20):
        process = start_watching("--seconds", "600")
        process.terminate()
        ended(process, 130)
        check_clean()
        process = start_watching("--seconds", "600")
        process.kill()
        process.wait()
        check(leftovers() != [], "a killed run leaves something")
        shown, _ = watched(burst)
        for text in ("FULL_RING", "tun_net_xmit+0x", "tx_dropped", "nodrop install"):
            check(text in shown, f"{text}: {shown}")


def start_watching(*words: str, tracer: str = "tracefs") -> subprocess.Popen[str]:
    """Start a run; return when it has begun to count."""
    process = start("drops", NAME, "--tracer", tracer, *words)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("Watch"):
            break
    else:
        raise AssertionError("the command does not begin")
    check(leftovers() != [] or tracer != "tracefs", "it counts without an instance")
    return process


def start_monitor(*words: str) -> subprocess.Popen[str]:
    """Start a run; return when it records events."""
    process = start("-j", "monitor", *words)

    def ready() -> bool:
        enabled = INSTANCES.glob("nodrop_*/events/nodrop/nodrop_guard/enable")
        return any(path.read_text().strip() == "1" for path in enabled)

    soon(ready, lambda: f"the command does not begin: {process.poll()}")
    return process


def events_of(process: subprocess.Popen[str], kind: str) -> list[dict[str, Any]]:
    """Wait until a run has reported an event of a kind, interrupt it, and return all its events."""
    assert process.stdout
    pipe, printed = process.stdout.fileno(), b""

    def reported() -> bool:
        nonlocal printed
        if select.select([pipe], [], [], 0)[0]:
            printed += os.read(pipe, 1 << 16)
        return f'"{kind}"'.encode() in printed

    soon(reported, f"no {kind} is reported")
    process.send_signal(signal.SIGINT)
    out, _ = ended(process, 130)
    check_clean()
    return [json.loads(line) for line in (printed.decode() + out).splitlines()]


def case_monitor_stops_and_wakes() -> None:
    with tun(5) as device, TunDevice("ndother", IFF_TUN):
        process = start_monitor(NAME, "--events", "stop,wake,guard")
        sender = Sender(2000)
        until_stopped()
        with Reader(device.fd, Account(), pause_s=0.001):
            check(sender.finished(30), "the sender hangs")
        events = events_of(process, "wake")
        equal({one["event"] for one in events}, {"stop", "wake"}, "events")
        equal({one["device"] for one in events}, {NAME}, "devices")
        last = datetime.fromisoformat(events[-1]["time"]).timestamp()
        check(abs(time.time() - last) < 60, f"{last} is not now")


def case_monitor_guard_trips() -> None:
    """The guard's trip, and then the drops at the full ring."""
    with parameter("guard_ms", "300"), tun(5):
        process = start_monitor("--events", "guard,drop")
        sender = Sender(10**6)
        soon(lambda: counters()["drop_guard"] > 0, "nothing was dropped")
        events = events_of(process, "drop")
        check(sender.stop(), "the sender hangs")
        equal(events[0]["event"], "guard", "the first event")
        drops = [one for one in events if one["event"] == "drop"]
        check(len(drops) > 0, "no drop is reported")
        equal({one["cause"] for one in drops}, {"guard"}, "causes")
        equal(sum(one["packets"] for one in drops) <= counters()["drop_guard"], True, "packets")


run()
