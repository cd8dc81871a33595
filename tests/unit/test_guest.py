# SPDX-License-Identifier: GPL-2.0-only
"""What runs in a guest: what it reads off the kernel and programs, and how packets add up."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from nodrop import proc
from nodrop.guest import cputime, drivers, iperf, kselftest
from nodrop.guest.account import Account
from nodrop.guest.counters import (
    LinkCounters,
    QdiscCounters,
    parse_ethtool,
    parse_link,
    parse_qdisc,
)
from nodrop.guest.drivers import ON_TOP, OPTIONAL, Drivers, modules
from nodrop.guest.failure import GuestError
from nodrop.guest.kforwarder import Counts as Forwarded
from nodrop.guest.kforwarder import Way, rates
from nodrop.guest.kmeter import PATTERN, Sample, pairs
from nodrop.guest.kreader import Counts
from nodrop.guest.modules import ModuleFiles
from nodrop.guest.payload import Payload
from nodrop.guest.pktgen import PktgenResult, parse_device
from nodrop.guest.plan import Variant
from nodrop.guest.scenarios.base import DeviceCounts
from nodrop.guest.scenarios.esp import Said, esp_metrics
from nodrop.guest.scenarios.flood import flood_metrics
from nodrop.guest.scenarios.scale import delivered_pps
from nodrop.guest.scenarios.shaping import shaper
from nodrop.guest.scenarios.tcp import VhostReader
from nodrop.guest.scenarios.vpnhost import parse_udp
from nodrop.guest.scenarios.vpntcp import parse_dropped
from nodrop.guest.scenarios.vpnvideo import video_metrics
from nodrop.guest.shares import Arrival, due, parse_log, percentile, window
from nodrop.guest.tunnels.kinds import KINDS, frame
from nodrop.guest.ureader import switches
from nodrop.guest.vhost import VhostClient, VhostCounts

SAMPLES = Path(__file__).with_name("samples")
STOCK, UPSTREAM, NODROP = Variant


def counts(
    read: int, lost: int, given: int = 0, drops: int = 0, queued: int = 0, kind: str = "fq_codel"
) -> DeviceCounts:
    return DeviceCounts(
        LinkCounters(tx_packets=read, tx_bytes=0, tx_dropped=lost),
        QdiscCounters(kind, packets=given, drops=drops, requeues=0, queued=queued),
    )


@pytest.mark.parametrize(("delivered", "unaccounted"), [(3, 0), (2, 1), (4, -1)])
def test_every_packet_is_somewhere(delivered: int, unaccounted: int) -> None:
    account = Account(offered=2043, delivered=delivered, queued=88, lost=2, qdisc_drops=1950)
    assert account.unaccounted == unaccounted


def test_a_drop_without_a_qdisc_is_no_loss() -> None:
    for kind, lost, unqueued in (("noqueue", 0, 3), ("fq_codel", 3, 0)):
        read = Counts(0, 0, 0, 0, 0, 0, 0, 1, 0), Counts(7, 420, 10**9, 0, 0, 0, 0, 1, 0)
        sent = [PktgenResult(accepted=7, refused=3, active_s=1.0)]
        found = flood_metrics("reader", sent, read, 7, counts(7, 3, kind=kind))
        assert (found["lost"], found["unqueued"], found["unaccounted"]) == (lost, unqueued, 0)


@pytest.mark.parametrize(
    ("device", "offered", "drained"),
    [
        (counts(7, 1, given=8, drops=2), 10, True),
        (counts(6, 1, given=8, drops=2), 10, False),
        (counts(6, 1, given=7, drops=2, queued=1), 10, False),
        # Past the qdisc: it has counted nothing.
        (counts(9, 1), 10, True),
        (counts(7, 1, given=8, drops=2), None, True),
        (counts(7, 0, given=8, drops=2), None, False),
        (counts(7, 1, given=8, drops=2, queued=1), None, False),
    ],
)
def test_drained(device: DeviceCounts, offered: int | None, drained: bool) -> None:
    assert device.is_drained(offered) is drained


def test_what_the_kernel_counted() -> None:
    text = (SAMPLES / "ip-link.json").read_text()
    assert parse_link(text) == LinkCounters(0, 0, 0)
    text = text.replace('"tx":{"bytes":0,"packets":0', '"tx":{"bytes":9,"packets":2')
    text = text.replace('"dropped":0,"carrier_errors"', '"dropped":7,"carrier_errors"')
    assert parse_link(text) == LinkCounters(tx_packets=2, tx_bytes=9, tx_dropped=7)
    fq_codel = parse_qdisc((SAMPLES / "tc-fq_codel.json").read_text())
    assert fq_codel == QdiscCounters("fq_codel", packets=4, drops=1950, requeues=1, queued=89)
    noqueue = parse_qdisc((SAMPLES / "tc-noqueue.json").read_text())
    assert noqueue == QdiscCounters("noqueue", 0, 0, 0, 0)
    ethtool = parse_ethtool((SAMPLES / "ethtool-nodrop.txt").read_text())
    assert (ethtool["tx0_stops"], ethtool["tx0_guard_trips"]) == (1, 0)
    pktgen = parse_device((SAMPLES / "pktgen.txt").read_text())
    assert (pktgen.accepted, pktgen.refused, pktgen.active_s) == (2000, 39, 0.002144)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", '[{"root": true}]', "not JSON"])
def test_unknown_output_is_an_error(text: str) -> None:
    for parse in (parse_qdisc, parse_link, parse_device, parse_dropped, parse_udp, iperf.parse):
        if (parse, text) != (iperf.parse, "{}"):
            with pytest.raises(GuestError):
                parse(text)


def test_drops_at_the_other_places() -> None:
    stats = {"rx": {"packets": 9, "dropped": 3}, "tx": {"packets": 8, "dropped": 4}}
    assert parse_dropped(json.dumps([{"stats64": stats}])) == 7
    udp = "Udp: InDatagrams InErrors SndbufErrors\nUdp: 100 7 2\nUdpLite: InErrors\nUdpLite: 0\n"
    assert parse_udp(udp) == {"InDatagrams": 100, "InErrors": 7, "SndbufErrors": 2}


def test_cpu_time_of_a_process_and_its_children() -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass\n"
    child_words = [sys.executable, "-c", f"{busy}print(flush=True)\ninput()"]
    parent = f"{busy}import subprocess\nsubprocess.run({child_words})"
    words = [sys.executable, "-c", parent]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        (_, child) = cputime.family(process.pid)
        assert cputime.family_seconds(process.pid) >= 0.4
        assert cputime.family_seconds(child) >= 0.2
        process.stdin.close()
    assert cputime.family_seconds(process.pid) == 0
    assert cputime.process_ns(os.getpid()) <= time.process_time_ns() + 60 * 10**9


VHOST = [OPTIONAL, "stock/vhost_iotlb.ko", "stock/vhost.ko"]
OURS = ["nodrop/nodrop.ko", "nodrop/tun.ko"]


@pytest.mark.parametrize(
    ("tun", "vhost", "wanted"),
    [
        (STOCK, None, ["stock/tun.ko", *ON_TOP]),
        (NODROP, None, [*OURS, *ON_TOP]),
        (UPSTREAM, UPSTREAM, [*VHOST, "stock/tun.ko", *ON_TOP, "stock/vhost_net.ko"]),
        (NODROP, STOCK, [*VHOST, *OURS, *ON_TOP, "stock/vhost_net.ko"]),
        (STOCK, NODROP, [*VHOST, OURS[0], "stock/tun.ko", *ON_TOP, "nodrop/vhost_net.ko"]),
    ],
)
def test_modules_of_a_pair(tun: Variant, vhost: Variant | None, wanted: list[str]) -> None:
    assert modules(tun, vhost) == wanted


def test_only_what_is_in_the_way_is_unloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in {name for a in Variant for b in Variant for name in modules(a, b)}:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    done: list[str] = []

    def tool(argv: list[str]) -> str:
        done.append(f"{argv[0]} {argv[1].removeprefix(f'{tmp_path}/')}")
        return ""

    monkeypatch.setattr(drivers, "tool", tool)
    loader = Drivers(tmp_path)
    loader.use(NODROP, vhost=NODROP)
    done.clear()
    for _ in range(2):
        loader.use(NODROP, vhost=STOCK)
    assert done == ["insmod stock/vhost_net.ko"]
    with pytest.raises(GuestError):
        Drivers(tmp_path / "none").use(STOCK)


def test_modules_are_found_where_debian_has_them(tmp_path: Path) -> None:
    tun, ours = "kernel/drivers/net/tun.ko.xz", "updates/dkms/tun.ko.xz"
    installed = tmp_path / "installed"
    for name in (tun, "kernel/drivers/net/tunnel.ko.xz", ours):
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).touch()
    files = ModuleFiles(tmp_path, installed)
    assert files.find("stock/tun.ko") == installed / tun
    assert files.find("nodrop/tun.ko") == installed / ours
    assert files.find("stock/nodrop.ko") is files.find("kreader.ko") is None
    # The lab's own folder comes first.
    (tmp_path / "stock").mkdir()
    (tmp_path / "stock/tun.ko").touch()
    assert files.find("stock/tun.ko") == tmp_path / "stock/tun.ko"


USAGE = {"cpu_seconds": 0.001, "voluntary_switches": 10, "involuntary_switches": 20}
ERRORS = {"eagain": 0, "enobufs": 0, "other_errors": 0}


def test_esp_accounts_for_the_whole_way() -> None:
    sender = {"sent": 1000, "seconds": 0.5, "longest_send_ns": 2_000_000, **ERRORS, **USAGE}
    near = {"sealed": {"packets": 698, "refused": 2, "polls": 11}, **USAGE}
    device = counts(700, 250, given=950, drops=47, queued=3)
    for packets, unaccounted in ((685, 0), (684, 1)):
        sink = {"packets": packets, "socket_drops": 8, "active_seconds": 0.4, **USAGE}
        found = esp_metrics(Said(sender, near, sink), device, 5, 1400)
        assert found["unaccounted"] == unaccounted
    assert (found["lost"], found["qdisc_drops"], found["lost_elsewhere"]) == (250, 47, 2 + 5 + 8)
    assert found["sent_mbit_per_s"] == pytest.approx(1000 * 1400 * 8 / 0.5 / 1e6)
    assert found["vpn_cpu_us_per_packet"] == pytest.approx(1000 / 684)


def test_video_counts_from_when_the_qdisc_was_new() -> None:
    said = {"sent": 200, "received": 140, "send_errors": 0, "pictures": 8, "damaged": 2}
    said |= {f"{name}_ns": 9_000_000 for name in ("p50", "p99", "max", "latest_send")}
    for lost, unaccounted in ((53, 0), (52, 1)):
        found = video_metrics(said, counts(7, 3), counts(152, lost, drops=5))
        assert found["unaccounted"] == unaccounted
    assert (found["delivered"], found["qdisc_drops"], found["lost_elsewhere"]) == (145, 5, 5)
    assert (found["lost_percent"], found["damaged_frames_percent"]) == (30, 25)


def interval(start: float, end: float, *flows: int) -> dict[str, Any]:
    streams = [{"socket": 5 + index, "bytes": count} for index, count in enumerate(flows)]
    return {"sum": {"start": start, "end": end, "seconds": end - start}, "streams": streams}


def sent(start: float, end: float, retransmits: int, *rtts_us: int) -> dict[str, Any]:
    whole = {"start": start, "end": end, "retransmits": retransmits}
    return {"sum": whole, "streams": [{"rtt": rtt_us} for rtt_us in rtts_us]}


SENT = {"intervals": [sent(0.0, 0.5, 9, 700_000, 900_000), sent(0.5, 1.0, 3, 120_000, 140_000)]}


def test_iperf_counts_what_lies_after_the_warm_up() -> None:
    came = [interval(0.0, 0.3, 900, 900), interval(0.3, 0.4, 90, 90), interval(0.35, 0.9, 5, 7)]
    found = iperf.Flows.from_data(SENT, {"intervals": came}, warm_up_s=0.4)
    assert (found.bytes, found.smallest_flow_bytes) == (12, 5)
    assert (found.retransmits, found.rtt_ms) == (3, 130)
    assert found.window_s == pytest.approx(0.55)
    early: dict[str, Any] = {"intervals": came[:1]}
    nothing: dict[str, Any] = {"intervals": []}
    failed = {**SENT, "error": "unable to connect"}
    for sides in ((SENT, early), (nothing, {"intervals": came}), (failed, early), (SENT, {})):
        with pytest.raises(GuestError):
            iperf.Flows.from_data(*sides, warm_up_s=0.4)
    assert iperf.parse('warning: odd\n{"end": {}}\n') == {"end": {}}


@pytest.mark.parametrize(
    ("port", "state", "listens"), [(5201, "0A", True), (5201, "01", False), (655, "0A", False)]
)
def test_who_listens(port: int, state: str, listens: bool) -> None:
    table = f"  sl  local_address\n   0: 020012C6:{port:04X} 00000000:0000 {state} 0:0 00:0 0 0\n"
    assert iperf.is_listening(table) is listens


@pytest.mark.parametrize(
    ("packets", "segments", "acks", "lost", "unaccounted"),
    [
        (10, 400, 6, 0, 0),
        # A packet that vhost's client did not get, an ACK that vhost did not take.
        (9, 400, 6, 0, 1),
        (10, 400, 5, 0, 1),
        # A segment that nobody lost; two packets that were lost, of 1 to 64 segments each.
        (10, 399, 6, 0, 1),
        (10, 398, 6, 2, 0),
        (10, 272, 6, 2, 0),
        (10, 399, 6, 2, 1),
        (10, 271, 6, 2, 1),
    ],
)
def test_large_packets_are_accounted_for(
    packets: int, segments: int, acks: int, lost: int, unaccounted: int
) -> None:
    class Client:
        pid = os.getpid()

        def end(self) -> VhostCounts:
            return VhostCounts(packets, 0, 0, segments, 0, acks, 0, 0, 0, 0, 0)

    reader = VhostReader(cast(VhostClient, Client()))
    ends = counts(10, lost, given=400), counts(6, 0, given=6)
    assert reader.metrics(ends)["unaccounted"] == unaccounted


def test_rates_are_those_between_two_moments() -> None:
    first = Forwarded(Way(1000, 0, 1), Way(500, 0, 2), 5 * 10**9, 10**9, 7, 70)
    last = Forwarded(Way(3000, 0, 1), Way(1500, 0, 2), 7 * 10**9, 15 * 10**8, 17, 90)
    found = rates(first, last)
    assert (found["forwarded_pps"], found["reader_idle_share"]) == (1500, 0.25)
    assert (found["reader_busy_us_per_packet"], found["reader_sleeps_per_s"]) == (500, 5)
    begin, end = (Counts(n, 0, n * 10**6, 0, 0, 0, 0, 1, 0) for n in (0, 500))
    assert delivered_pps([begin, begin], [end, end]) == 2000
    status = "voluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t{}\n"
    assert switches([status.format(3, 40), status.format(5, 60)]) == (8, 100)


def test_payloads() -> None:
    plain, one, many = map(Payload.parse, ("1472", "1x1472", "44x1472"))
    assert (plain.bytes, one.bytes, many.bytes) == (1472, 1472, 64768)
    assert (plain.offloads, one.offloads) == (0, many.offloads)
    for text in ("", "x1472", "0x1472", "44x", "4.5", "44x0"):
        with pytest.raises(GuestError):
            Payload.parse(text)


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
def test_what_is_not_asked_for_goes_to_the_others(
    weights: tuple[float, ...], demands: tuple[float, ...], wanted: tuple[float, ...]
) -> None:
    assert due(100, weights, demands) == pytest.approx(wanted)


def test_shares_are_taken_while_both_classes_send() -> None:
    assert parse_log("0 10 15\n3 11 17\n") == [Arrival(0, 10, 15), Arrival(3, 11, 17)]
    first = [Arrival(0, at, at + 5) for at in (100, 200, 300)]
    rest = [Arrival(1, at, at + 5) for at in (150, 250, 350)]
    assert window((first, rest), 0.2) == (180, 300)
    for other in ([], [Arrival(1, 900, 901), Arrival(1, 950, 951)]):
        with pytest.raises(GuestError):
            window((first, other), 0.0)
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1)] == [50, 99, 100]


def test_shapers() -> None:
    htb = shaper("htb", 1000, (1, 4), is_bottleneck=False)
    rates = [line.split("rate ")[1].split()[0] for line in htb.below]
    assert (htb.weights, rates) == ((80, 20), ["1000kbit", "800kbit", "200kbit"])
    for priority, line in zip(htb.priorities, htb.below[1:], strict=True):
        assert f"classid {priority >> 16:x}:{priority & 0xFFFF:x} " in line
    own = shaper("htb-own", 1000, (1, 4), is_bottleneck=False)
    assert own.below[1] == htb.below[1].removesuffix(" quantum 12000")
    assert shaper("cake", 1000, (1, 4), is_bottleneck=True).weights == (1, 4)
    with pytest.raises(GuestError):
        shaper("red", 1000, (1, 4), is_bottleneck=False)


def test_what_drifts_drifts_for_both_variants() -> None:
    # 10 cycles more with each slot, and 7 less with the second variant; another CPU is apart, and
    # a group that is not complete does not count.
    def sample(slot: int, cycles: int, cpu: int = 0) -> Sample:
        return Sample(slot, cpu, 10, 0, cycles * 10)

    samples = [sample(slot, 1000 + 10 * slot - 7 * PATTERN[slot % 4]) for slot in range(11)]
    samples += [sample(slot, 300, 1) for slot in range(4, 8)]
    assert [before - after for before, after in pairs(samples)] == [7, 7, 0]


def test_frames_are_what_their_tunnels_carry() -> None:
    for name, kind in KINDS.items():
        packet = frame(kind)
        version = packet.data[packet.network] >> 4
        assert version == (6 if packet.protocol == 0x86DD else 4), name
        if version == 4:
            header = packet.data[packet.network : packet.network + 20]
            total = sum(int.from_bytes(header[at : at + 2], "big") for at in range(0, 20, 2))
            assert (total & 0xFFFF) + (total >> 16) == 0xFFFF, name


def test_the_kernels_own_tests_have_their_dialects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "TAP version 13\nok 1 a\nnot ok 2 - b\n# ok 3 c # SKIP no tool\nnot okay\nis it ok?\n"
    text += "  TEST: d (received 101/100)   [ OK ]\n\x1b[32mTEST: e\x1b[0m  [FAIL]\nPASS: f\n"
    assert kselftest.parse(text) == [
        *(("a", "ok"), ("b", "not ok"), ("c", "SKIP")),
        *(("TEST: d", "OK"), ("TEST: e", "FAIL"), ("f", "PASS")),
    ]
    argv = [sys.executable, "-uc", "print('ok 1 it'); raise SystemExit(4)"]
    found, _ = kselftest.results(argv, tmp_path, 60.0)
    assert found == [("it", "ok"), (kselftest.EXIT_STATUS, kselftest.SKIPPED)]
    late = proc.Completed(kselftest._LATE, "ok 1 it\n", 0.0)
    monkeypatch.setattr(proc, "run", lambda *_args, **_words: late)
    found, _ = kselftest.results(argv, tmp_path, 60.0)
    assert found == [("it", "ok"), (kselftest.EXIT_STATUS, kselftest.STOPPED)]
