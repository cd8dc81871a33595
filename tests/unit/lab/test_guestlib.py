# SPDX-License-Identifier: GPL-2.0-only
"""Code that runs in guests: parsers, accounts of packets, the traffic programs."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.guest.base import DeviceCounts
from bench.guest.pktgen import flood_metrics
from bench.guest.shaping import due
from guestlib import kselftest
from guestlib.environment import GuestError
from guestlib.kreader import Counts, Direction
from guestlib.netstats import LinkCounters, QdiscCounters, parse_link, parse_qdisc, parse_snmp
from guestlib.pktgen import PktgenResult, parse_device
from guestlib.process import Service, parse_last_json, tool
from guestlib.vhost_client import VhostCounts
from lab.sources import REPOSITORY
from nodrop import proc

FQ_CODEL = """[{"kind":"fq_codel","handle":"8001:","root":true,"options":{"limit":100,"flows":1024},
"bytes":296,"packets":4,"drops":1950,"overlimits":0,"requeues":1,"backlog":5370,"qlen":89}]"""
PKTGEN = """\
Params: count 2000  min_pkt_size: 60  max_pkt_size: 60
Current:
     pkts-sofar: 2000  errors: 39
     started: 860075us  stopped: 862219us idle: 0us
Result: OK: 2143(c2143+d0) usec, 2000 (60byte,-1frags)
  932947pps 447Mb/sec (447814560bps) errors: 39
"""
"""Printed for a TAP with three slots and no reader (Linux 7.3.4, iproute2 6.1), shortened."""


def counts(
    read: int, lost: int, given: int = 0, drops: int = 0, queued: int = 0, kind: str = "fq_codel"
) -> DeviceCounts:
    return DeviceCounts(
        LinkCounters(tx_packets=read, tx_bytes=0, tx_dropped=lost, rx_dropped=0),
        QdiscCounters(kind, packets=given, drops=drops, requeues=0, queued=queued),
    )


def test_drop_with_noqueue_is_not_lost() -> None:
    for kind, lost, unqueued in (("noqueue", 0, 3), ("fq_codel", 3, 0)):
        read = [Counts(Direction(7 * at), Direction(0), at * 10**9, 0, 0, 0, 0) for at in (0, 1)]
        sent = [PktgenResult(accepted=7, refused=3, active_s=1.0)]
        found = flood_metrics("reader", sent, (read[0], read[1]), 7, counts(7, 3, kind=kind))
        assert (found["lost"], found["unqueued"], found["unaccounted"]) == (lost, unqueued, 0)
        assert "worker_cpu_us_per_packet" not in found


def test_cpu_time_of_vhost_is_that_of_the_window() -> None:
    still = VhostCounts(**dict.fromkeys((field.name for field in fields(VhostCounts)), 0))
    read = [
        replace(still, packets=packets, now_ns=at * 10**9, worker_cpu_ns=cpu_ns)
        for at, packets, cpu_ns in ((1, 100, 10**9), (2, 600, 2 * 10**9))
    ]
    sent = [PktgenResult(accepted=700, refused=0, active_s=1.0)]
    found = flood_metrics("worker", sent, (read[0], read[1]), 700, counts(700, 0))
    assert found["worker_cpu_us_per_packet"] == 2000


@pytest.mark.parametrize(
    ("device", "offered", "drained"),
    [
        (counts(7, 1, given=8, drops=2), 10, True),
        (counts(6, 1, given=8, drops=2), 10, False),
        (counts(6, 1, given=7, drops=2, queued=1), 10, False),
        # Bypassing the qdisc, which has counted nothing.
        (counts(9, 1), 10, True),
        (counts(7, 1, given=8, drops=2), None, True),
        (counts(7, 0, given=8, drops=2), None, False),
        (counts(7, 1, given=8, drops=2, queued=1), None, False),
    ],
)
def test_drained(device: DeviceCounts, offered: int | None, drained: bool) -> None:
    assert device.is_drained(offered) is drained


def test_kernel_counters() -> None:
    stats = {"rx": {"dropped": 3}, "tx": {"packets": 8, "bytes": 9, "dropped": 4}}
    assert parse_link(json.dumps([{"stats64": stats}])) == LinkCounters(8, 9, 4, 3)
    udp = "Udp: InDatagrams InErrors SndbufErrors\nUdp: 100 7 2\nUdpLite: InErrors\nUdpLite: 0\n"
    assert parse_snmp(udp, "Udp") == {"InDatagrams": 100, "InErrors": 7, "SndbufErrors": 2}
    fq_codel = parse_qdisc(FQ_CODEL)
    assert fq_codel == QdiscCounters("fq_codel", packets=4, drops=1950, requeues=1, queued=89)
    pktgen = parse_device(PKTGEN)
    assert (pktgen.accepted, pktgen.refused, pktgen.active_s) == (2000, 39, 0.002144)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", '[{"root": true}]', "not JSON"])
def test_unknown_output_is_an_error(text: str) -> None:
    parse_udp = partial(parse_snmp, protocol="Udp")
    for parse in (parse_qdisc, parse_link, parse_device, parse_udp):
        with pytest.raises(GuestError):
            parse(text)


@pytest.mark.parametrize(
    ("weights", "demands", "wanted"),
    [
        ((80, 20), (math.inf, math.inf), (80, 20)),
        ((1, 4), (5, math.inf), (5, 95)),
        ((1, 4), (30, math.inf), (20, 80)),
        ((80, 20), (math.inf, 5), (95, 5)),
        ((1, 4), (10, 20), (10, 20)),
        ((1, 1, 2), (10, math.inf, math.inf), (10, 30, 60)),
    ],
)
def test_unused_share_is_divided(
    weights: tuple[float, ...], demands: tuple[float, ...], wanted: tuple[float, ...]
) -> None:
    assert due(100, weights, demands) == pytest.approx(wanted)


def test_kselftest_output_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "TAP version 13\nok 1 a\nnot ok 2 - b\n# ok 3 c # SKIP no tool\nnot okay\nis it ok?\n"
    text += "  TEST: d (received 101/100)   [ OK ]\n\x1b[32mTEST: e\x1b[0m  [FAIL]\nPASS: f\n"
    text += "\x1b[1m[+] NS0: g\n"
    assert kselftest.parse(text) == [
        *(("a", "ok"), ("b", "not ok"), ("c", "SKIP")),
        *(("TEST: d", "OK"), ("TEST: e", "FAIL"), ("f", "PASS"), ("NS0", "[+]")),
    ]
    argv = [sys.executable, "-uc", "print('ok 1 it'); raise SystemExit(4)"]
    found, _ = kselftest.results(argv, tmp_path, 60.0)
    assert found == [("it", "ok"), (kselftest.EXIT_STATUS, kselftest.SKIPPED)]
    late = proc.Completed(kselftest._LATE, "ok 1 it\n", 0.0)
    monkeypatch.setattr(proc, "run", lambda *_args, **_words: late)
    found, _ = kselftest.results(argv, tmp_path, 60.0)
    assert found == [("it", "ok"), (kselftest.EXIT_STATUS, kselftest.STOPPED)]


TRAFFIC = REPOSITORY / "guestlib/traffic"
TIMEOUT_S = 120
USED = ("udp_sender", "udp_sink", "tcp_flows")
SLOWLY = ("--dest", "127.0.0.1", "--rate", "20")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    out = tmp_path_factory.mktemp("traffic")
    # Without optimization they build in a third of the time.
    argv = ["make", "-s", "-C", str(TRAFFIC), f"OUT={out}", "CFLAGS=-O0"]
    subprocess.run([*argv, *(str(out / name) for name in USED)], check=True, timeout=TIMEOUT_S)
    return out


def result(program: Path, *arguments: str) -> dict[str, Any]:
    return parse_last_json(tool([str(program), *arguments]), program.name)


@pytest.mark.parametrize(("packets", "segments"), [(20, 1), (5, 4)])
def test_udp_sender_marks_and_counts(programs: Path, packets: int, segments: int) -> None:
    """Segments passed on at once are one packet; the receiver gets them separately."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(TIMEOUT_S)
        port = str(receiver.getsockname()[1])
        words = ["--packets", str(packets), "--segments", str(segments)]
        sent = result(programs / "udp_sender", "--dest", "127.0.0.1", "--port", port, *words)
        got = [receiver.recv(2000) for _ in range(20)]
    assert (sent["sent"], sent["payload_bytes"]) == (packets, 20 * 64)
    assert {len(packet) for packet in got} == {64}
    numbers = [int.from_bytes(packet[16:24], "little") for packet in got[::segments]]
    assert numbers == list(range(packets))


def test_tcp_flows_measure_a_window(programs: Path) -> None:
    words = ["--address", "127.0.0.1", "--flows", "2", "--warm-up", "0.1", "--seconds", "0.3"]
    last = str(max(os.sched_getaffinity(0)))
    came = result(programs / "tcp_flows", *words, "--sender-cpu", last, "--receiver-cpu", last)
    assert came["bytes"] > 0
    assert came["seconds"] == pytest.approx(0.3, abs=0.2)
    assert 0 < came["rtt_mean_us"] < 1e6
    with pytest.raises(GuestError, match="a CPU or any, not 'first'"):
        result(programs / "tcp_flows", *words, "--sender-cpu", "first")


def free_port() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", 0))
        return str(holder.getsockname()[1])


@pytest.mark.parametrize(
    ("size", "packets", "batch", "slow"),
    [(100, 96, 32, []), (9000, 640, 64, ["--interval-us", "1000000"])],
)
def test_udp_sink_counts_packets_and_socket_drops(
    programs: Path, size: int, packets: int, batch: int, slow: list[str]
) -> None:
    to = ["--dest", "127.0.0.1", "--port", free_port()]
    words = ["--size", str(size), "--packets", str(packets), "--batch", str(batch)]
    with Service([str(programs / "udp_sink"), "--local", *to[1:], *slow]) as sink:
        sent = result(programs / "udp_sender", *to, *words)
        came = sink.result()
    assert sent["sent"] == packets == came["packets"] + came["socket_drops"]
    assert came["payload_bytes"] == came["packets"] * size
    assert (came["socket_drops"] > 0) is bool(slow)


def test_service_stops_with_result(programs: Path) -> None:
    sender = [str(programs / "udp_sender"), *SLOWLY, "--seconds", "30"]
    with Service(sender, announces=False) as service, pytest.raises(GuestError):
        service.wait(0.3)  # bound: it must time out
    with Service([*sender[:-1], "0.2"], announces=False) as service:
        assert parse_last_json(service.wait(60), "udp_sender")["seconds"] >= 0.2
