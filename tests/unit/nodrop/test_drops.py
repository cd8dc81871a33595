# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop drops`` and ``nodrop monitor``: tracers, explanations, conclusions and output."""

from __future__ import annotations

import argparse
import errno
import os
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, call

import pytest
from schema import answer, validate
from stubs import before, programs, write

from nodrop import cli, screen, start
from nodrop.commands import drops, monitor
from nodrop.commands.drops import DropReport, explained, start_tracer
from nodrop.errors import NodropError, UnsupportedError, UsageError
from nodrop.host import netns, settings
from nodrop.host.counters import Counters
from nodrop.trace import pcap, reasons, tracers
from nodrop.trace.headers import Headers, Packet
from nodrop.trace.reasons import Way
from nodrop.trace.tracefs import EVENT, Tracefs, reason_names, resolve
from nodrop.trace.tracers import (
    BpftraceTracer,
    Counted,
    EventsTracer,
    Site,
    Target,
    Tracer,
    counts_of,
    parse_events,
)

Capture = pytest.CaptureFixture[str]
FORMATS = {
    release: (Path(__file__).parents[1] / f"samples/format-{release}").read_text()
    for release in ("6.1", "7.3")
}
"""Formats of skb:kfree_skb in Debian's kernels; 6.1's list of reasons is shortened."""
EVENT_OF_TUN, EVENT_OF_IP = (
    f" python3-69 [000] b..4. 9.170000: kfree_skb: skbaddr=000000004a201123 "
    f"rx_sk=0000000000000000 protocol=2048 location={where} reason: {reason}"
    for where, reason in (
        ("tun_net_xmit+0x3a7/0x9e0 [tun]", "FULL_RING"),
        ("ip_rcv_core+0x33d/0x470", "IP_CSUM"),
    )
)
PACKETS = "".join(
    f'{{"type": "printf", "data": "5 ffffffffc08583c1 4e 800 10 {sizes} {header}\\n"}}\n'
    for sizes, header in (
        ("1c 1c", "45 10012c600001140 900a00f020012c6 0 0 0 0 0"),
        ("2c 2c", "45 10012c600001140 900a10f020012c6 0 0 0 0 0"),
    )
)
"""Of two UDP packets, of 28 and 44 bytes."""
READY = '{"type": "printf", "data": "ready\\n"}\n'
COUNTED = """

{"type": "map", "data": {"@drops": {"-1064991807,78": 300}}}
{"type": "map", "data": {"@on": 1}}
"""
"""What bpftrace 0.17 printed on 7.3, at its start and at its end."""
TARGET = Target("tun0", 2, 4026531840)
REASONS = {release: reason_names(text) for release, text in FORMATS.items()}
FULL = Site("tun_net_xmit+0x2c5", "tun", "FULL_RING")
QDISC = Site("__dev_xmit_skb+0x2c5", "", "QDISC_DROP")
SOCKET = Site("udp_queue_rcv_one_skb+0x9", "", "NO_SOCKET")
STRANGE = Site("0xffffffff81000000", "", "NEW_REASON")


def counters(
    tx: int = 0, rx: int = 0, qdisc: int = 0, over_limit: int | None = 0, **stats: int
) -> Counters:
    """Return counters of drops; ``stats`` are those of the first queue."""
    drops = {"drops": qdisc} if over_limit is None else {"drops": qdisc, "over_limit": over_limit}
    link = {"tx_dropped": tx, "rx_dropped": rx}
    return Counters(link=link, qdisc=drops, queues={0: stats}, qdisc_kind="fq_codel")


NONE = counters()
HEADERS = Headers()
for port in range(12):
    header = bytes.fromhex("4500001c00000000401100000a0000010a000002") + port.to_bytes(4, "big")
    HEADERS.add(Packet(0, 1, 1, 28, header), "")


def report_of(
    packets: dict[Site, int],
    result: Counters | None = NONE,
    *,
    known: bool = True,
    unseen: int = 0,
    causes: dict[str, int] | None = None,
    headers: Headers | None = None,
    written: int | None = None,
) -> DropReport:
    return DropReport(
        target=TARGET,
        netns="",
        tracer="bpftrace",
        device_known=known,
        interval_s=5.0,
        drops=explained(Counted(Counter(packets)), "tun0", causes or {}),
        unseen=unseen,
        headers=headers,
        written=written,
        counters=result,
    )


def test_counted_and_not_traced() -> None:
    lost = counters(tx=100, qdisc=50, rx=30)
    result = report_of({FULL: 90, QDISC: 10}, lost)
    assert result.unexplained(Way.TRANSMIT) == 50
    assert result.unexplained(Way.RECEIVE) == 30
    # Trace and counters do not start at the same time.
    assert report_of({FULL: 145, SOCKET: 30}, lost).unexplained(Way.TRANSMIT) == 0
    assert report_of({FULL: 142, SOCKET: 30}, lost).unexplained(Way.TRANSMIT) == 8
    # The direction of a packet without a rule is unknown.
    assert report_of({FULL: 120, STRANGE: 30}, lost).unexplained(Way.RECEIVE) == 0
    assert report_of({FULL: 1}, None).unexplained(Way.TRANSMIT) is None
    assert report_of({FULL: 1}, lost, known=False).unexplained(Way.TRANSMIT) is None
    filtered = Headers(lambda _: True)
    assert report_of({FULL: 1}, lost, headers=filtered).unexplained(Way.TRANSMIT) is None


@pytest.mark.parametrize(
    "result",
    [
        report_of({}),
        report_of({FULL: 3, STRANGE: 1}, counters(tx=3, over_limit=None)),
        report_of({Site("a+0x1", "", ""): 3}, None, unseen=4),
        report_of({FULL: 3}, counters(drop_off=3, guard_trips=1)),
        report_of({FULL: 3}, known=False),
        report_of({FULL: 3}, headers=HEADERS, written=2),
        report_of({}, headers=Headers(lambda _: False), unseen=2),
    ],
)
def test_output(result: DropReport) -> None:
    """JSON matches the schema, and the table copes with unknown values."""
    validate("drops", {"schema": start.SCHEMA, "command": "drops", **result.to_json()})
    drops.show(screen.console(argparse.Namespace(color="never")), result)


def test_difference_of_counters() -> None:
    before = counters(tx=5, qdisc=7, over_limit=2, stops=1)
    now = counters(tx=9, qdisc=17, over_limit=3, stops=4, ring=2)
    after = replace(now, queues={**now.queues, 1: {"stops": 2}})
    grown = after.since(before, from_zero=True)
    assert (grown.link["tx_dropped"], grown.qdisc) == (4, {"drops": 10, "over_limit": 1})
    assert grown.queues == {0: {"stops": 3}, 1: {"stops": 2}}
    # Another qdisc starts at 0.
    other = replace(after, qdisc_kind="fq", qdisc={"drops": 17})
    assert other.since(before, from_zero=True).qdisc == {"drops": 17}


def test_qdisc() -> None:
    noqueue = [{"kind": "noqueue", "root": True, "drops": 0}]
    assert drops.root_qdisc(noqueue) == ("noqueue", {"drops": 0})
    codel = {"kind": "fq_codel", "root": True, "drops": 1900, "drop_overlimit": 1893}
    expected = {"drops": 1900, "over_limit": 1893}
    assert drops.root_qdisc([codel]) == ("fq_codel", expected)
    assert drops.root_qdisc([]) == ("noqueue", {"drops": 0})


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """A machine with a tracer that counts one packet."""
    made = Mock(spec=Tracer, device_known=True)
    made.name = "bpftrace"
    made.finish.return_value = Counted(Counter({FULL: 1}))
    monkeypatch.setattr("nodrop.commands.drops.start_tracer", lambda *_: made)
    monkeypatch.setattr(tracers, "bpftrace_available", lambda _: True)
    monkeypatch.setattr(Tracefs, "open", lambda _: None)
    monkeypatch.setattr("nodrop.commands.drops.read_counters", lambda *_: (TARGET, NONE))
    monkeypatch.setattr(settings, "real_names", lambda _, names: names)
    return made


def test_run(tracer: Mock, capsys: Capture) -> None:
    result = answer(capsys, "-n", "blue", "drops", "tun0", "--seconds", "0.15")
    assert (result["netns"], result["packets"]) == ("blue", 1)
    assert result["interval_s"] >= 0.15
    assert tracer.method_calls[-2:] == [call.finish(), call.close()]
    assert call.poll() in tracer.method_calls


def test_another_device_of_that_name(
    tracer: Mock, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    reads = Mock(side_effect=[(replace(TARGET, ifindex=index), NONE) for index in (2, 2, 3)])
    monkeypatch.setattr("nodrop.commands.drops.read_counters", reads)
    assert answer(capsys, "drops", "tun0", "--seconds", "0.1")["counters"] is None
    assert call.finish() in tracer.method_calls


def test_failing_tracer_is_closed(tracer: Mock) -> None:
    tracer.poll.side_effect = NodropError("bpftrace ended too early.")
    assert cli.main(["-q", "drops", "tun0"]) == 1
    assert tracer.method_calls[-1] == call.close()


@pytest.mark.parametrize(
    ("causes", "advice"),
    [
        ({}, "nodrop install"),
        ({"noqueue": 0, "off": 0}, "nodrop install"),
        ({"noqueue": 30}, "nodrop set tun0 qdisc fq_codel"),
        ({"off": 30}, "nodrop set tun0 backpressure on"),
    ],
)
def test_advice_by_nodrops_cause(causes: dict[str, int], advice: str) -> None:
    assert advice in report_of({FULL: 30}, causes=causes).drops[0].advice
    # Drops outside of the ring have their own advice.
    assert advice not in report_of({QDISC: 30}, causes=causes).drops[0].advice


def test_names_of_reasons() -> None:
    assert REASONS["6.1"][55] == "FULL_RING"
    assert REASONS["6.1"][66] == "MAX"
    assert REASONS["7.3"][78] == "FULL_RING"
    assert reason_names("print fmt: nothing") == {}
    for usual in ("DEV_READY", "TAP_TXFILTER", "TAP_FILTER", "NOMEM", "SKB_UCOPY_FAULT"):
        assert usual in REASONS["7.3"].values()
        assert reasons.explain(Site("tun_net_xmit+0x1", "tun", usual)), usual


def test_bpftrace_output() -> None:
    def data(key: str) -> dict[str, object]:
        return {"type": "map", "data": {"@drops": {key: 300}}}

    assert counts_of([data("-1064991807,78")]) == {(0xFFFFFFFFC08583C1, 78): 300}
    assert counts_of([{"type": "map", "data": {"@on": 1}}]) == {}
    for message in (data("1"), {"type": "map"}):
        with pytest.raises(NodropError):
            counts_of([message])


def test_functions_of_addresses() -> None:
    lines = [
        "ffffffff81000000 T _text\n",
        "ffffffffc0858000 t tun_get_user\t[tun]\n",
        "ffffffffc08580e0 t tun_net_xmit\t[tun]\n",
        "ffffffffc0858300 d tun_data\t[tun]\n",
        "ffffffffc0859000 t tun_other\t[tun]\n",
    ]
    address = 0xFFFFFFFFC08583C1
    assert resolve(lines, {address}) == {address: ("tun_net_xmit+0x2e1", "tun")}
    # kernel.kptr_restrict=2 hides all addresses
    assert resolve(["0000000000000000 T _text\n"], {address}) == {}


def test_events() -> None:
    lines = [EVENT_OF_TUN, EVENT_OF_TUN, EVENT_OF_IP, "nix"]
    kernels = Site("ip_rcv_core+0x33d", "", "IP_CSUM")
    ours = Site("tun_net_xmit+0x3a7", "tun", "FULL_RING")
    assert parse_events(lines) == Counter({ours: 2, kernels: 1})
    older = EVENT_OF_TUN.replace("tun_net_xmit+0x3a7/0x9e0 [tun]", "ffffffffc08583c1")
    assert parse_events([older]) == Counter({Site("ffffffffc08583c1", "", "FULL_RING"): 1})


def test_direction() -> None:
    """The meaning of a reason depends on the site; an unknown one has no direction."""
    for reason, where, way in (
        ("FULL_RING", "tun_net_xmit+0x2c5", Way.TRANSMIT),
        ("DEV_READY", "tun_net_xmit.cold+0x2", Way.TRANSMIT),
        ("DEV_READY", "tun_get_user+0x1", Way.RECEIVE),
        ("NOT_SPECIFIED", "tun_do_read+0x1", Way.TRANSMIT),
        ("NOT_SPECIFIED", "stock_tun_queue_purge+0x1", None),
        ("NOT_SPECIFIED", "tun_ptr_free+0x1", None),
        ("QDISC_DROP", "__dev_xmit_skb+0x1", Way.TRANSMIT),
        ("NOT_SPECIFIED", "fq_codel_dequeue+0x1", Way.TRANSMIT),
        ("XDP", "tun_xdp_one+0x1", Way.RECEIVE),
        ("NETFILTER_DROP", "nf_hook_slow+0x1", None),
        ("NO_SOCKET", "udp_queue_rcv+0x1", Way.RECEIVE),
    ):
        site = Site(where, "", reason)
        assert reasons.way(site) is way, site
        assert reasons.explain(site), site
    ring, veth = (Site(f"{name}_xmit+0x1", "", "FULL_RING") for name in ("tun_net", "veth"))
    assert reasons.explain(ring) != reasons.explain(veth)
    new = Site("new_function+0x1", "", "NEW_REASON")
    assert (reasons.explain(new), reasons.way(new)) == (None, None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    events = tmp_path / "sys/kernel/tracing/events" / EVENT
    events.mkdir(parents=True)
    (events / "format").write_text(FORMATS["7.3"])
    (tmp_path / "sys/kernel/tracing/instances").mkdir()
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").touch()
    return tmp_path


def test_tracing_files_are_mounted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As perf does; an ordinary user cannot."""
    tracing, away = root / "sys/kernel/tracing", root / "away"
    tracing.rename(away)
    tracing.mkdir()
    programs(root / "bin", {"mount": f'rmdir "${{!#}}" && mv {away} "${{!#}}"'})
    monkeypatch.setenv("PATH", before(root / "bin"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NodropError) as caught:
        Tracefs(root).open()
    assert caught.value.status == 1
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    Tracefs(root).open()
    (tracing / "events").rename(root / "events")
    with pytest.raises(UnsupportedError):
        Tracefs(root).open()


def test_no_tracing(tmp_path: Path, root: Path) -> None:
    with pytest.raises(UnsupportedError):
        Tracefs(tmp_path / "nix").open()
    (root / "sys/kernel/tracing/events" / EVENT / "format").unlink()
    with pytest.raises(UnsupportedError):
        Tracefs(root).open()


def test_refusals_of_the_kernel(root: Path) -> None:
    files = Tracefs(root)
    lockdown = root / "sys/kernel/security/lockdown"
    for state, number, status in (
        ("", errno.EPERM, 1),
        ("", errno.ENODEV, 4),
        ("", errno.ENOSPC, 1),
        ("none [integrity] confidentiality\n", errno.EPERM, 1),
        ("none integrity [confidentiality]\n", errno.EPERM, 4),
    ):
        write(lockdown, state)
        assert files.refused(OSError(number, "x")).status == status, (state, number)


def test_leftovers_of_killed_runs(root: Path) -> None:
    files = Tracefs(root)
    space = (root / "proc/self/ns/pid").stat().st_ino
    gone, alive = f"nodrop_why_77_{space}", f"nodrop_why_78_{space}"
    elsewhere = f"nodrop_why_77_{space + 1}"
    (root / "proc/78").mkdir()
    instances = root / "sys/kernel/tracing/instances"
    for name in (gone, alive, elsewhere, "other"):
        (instances / name).mkdir()
    files.sweep()
    left = {path.name for path in instances.iterdir()}
    assert left == {alive, elsewhere, "other"}


def test_choice(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """bpftrace with type information; the events without, or if bpftrace fails."""
    programs(tmp_path / "bin", {"bpftrace": "exit 1"})
    monkeypatch.setenv("PATH", before(tmp_path / "bin"))
    monkeypatch.setattr(EventsTracer, "start", lambda _: None)
    notes: list[str] = []
    assert start_tracer("auto", Tracefs(root), TARGET, notes.append).name == "events"
    with pytest.raises(UnsupportedError):
        start_tracer("bpftrace", Tracefs(root), TARGET, notes.append)
    write(root / "sys/kernel/btf/vmlinux", "")
    assert start_tracer("tracefs", Tracefs(root), TARGET, notes.append).name == "events"
    assert notes == []
    assert start_tracer("auto", Tracefs(root), TARGET, notes.append).name == "events"
    assert len(notes) == 1
    with pytest.raises(NodropError):
        start_tracer("bpftrace", Tracefs(root), TARGET, notes.append)


def test_a_failed_start_leaves_nothing(root: Path) -> None:
    """It fails in the middle without the instance's files, which the kernel would create."""
    with pytest.raises(NodropError):
        start_tracer("tracefs", Tracefs(root), TARGET, lambda _: None)
    assert list((root / "sys/kernel/tracing/instances").iterdir()) == []


@pytest.fixture
def bpf(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    monkeypatch.setenv("PATH", before(tmp_path / "bin"))
    write(root / "proc/kallsyms", "ffffffffc08580e0 t tun_net_xmit\t[tun]\n")
    return lambda text: programs(tmp_path / "bin", {"bpftrace": text})


def test_failing_bpftrace(root: Path, bpf: Callable[[str], None]) -> None:
    for text, ready_s, hint in (
        ("echo 'ERROR: no such thing' >&2\nexit 1", 60.0, "no such thing"),
        ("exec sleep 600", 0.2, ""),
    ):
        bpf(text)
        tracer = BpftraceTracer(Tracefs(root), TARGET, ready_s)
        with closing(tracer), pytest.raises(NodropError) as caught:
            tracer.start()
        assert hint in caught.value.hint


@pytest.mark.parametrize("filtered", [False, True])
def test_counting_bpftrace(
    filtered: bool, root: Path, tmp_path: Path, bpf: Callable[[str], None]
) -> None:
    """With a filter, only matching packets count; those whose headers were not read are unseen."""
    write(tmp_path / "first", READY)
    write(tmp_path / "rest", PACKETS + COUNTED)
    ends = f"trap 'cat {tmp_path}/rest; exit 0' INT\ncat {tmp_path}/first\n"
    bpf(f"{ends}while :; do sleep 0.05; done")
    headers = Headers((lambda packet: packet.length == 28) if filtered else None)
    with closing(BpftraceTracer(Tracefs(root), TARGET, headers=headers)) as tracer:
        tracer.start()
        tracer.poll()
        counted = tracer.finish()
    site = Site("tun_net_xmit+0x2e1", "tun", "FULL_RING")
    assert counted.packets == Counter({site: 1 if filtered else 300})
    assert counted.unseen == (298 if filtered else 0)
    assert counted.headers is headers
    ports = [flow.ports for flow in headers.flows]
    assert ports == ([(4000, 9)] if filtered else [(4000, 9), (4001, 9)])


def test_reading_bpftrace_does_not_block_it(
    root: Path, tmp_path: Path, bpf: Callable[[str], None]
) -> None:
    """What it prints at its end exceeds the pipe."""
    write(tmp_path / "rest", PACKETS * 5000 + COUNTED)
    write(tmp_path / "first", READY)
    ends = f"trap 'cat {tmp_path}/rest; exit 0' INT\ncat {tmp_path}/first\n"
    bpf(f"{ends}while :; do sleep 0.05; done")
    headers = Headers()
    with closing(BpftraceTracer(Tracefs(root), TARGET, headers=headers)) as tracer:
        tracer.start()
        tracer.finish()
    assert headers.seen == 10_000


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--filter", "udp", "--tracer", "tracefs"], 2),
        (["--write", "x", "--tracer", "tracefs"], 2),
        (["--filter", "udp"], 4),
        (["--write", "nix/x"], 1),
    ],
)
def test_filter_and_file_are_refused(
    words: list[str], status: int, tracer: Mock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before anything is traced."""
    monkeypatch.setattr(pcap, "_LIBRARIES", ())
    monkeypatch.chdir(tmp_path)
    assert cli.main(["-q", "drops", "tun0", *words]) == status
    assert tracer.method_calls == []
    assert list(tmp_path.iterdir()) == []


def test_file_needs_bpftrace(
    tracer: Mock, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    used: list[str] = []

    def start(kind: str, *_: object) -> Mock:
        used.append(kind)
        return tracer

    monkeypatch.setattr("nodrop.commands.drops.start_tracer", start)
    words = ("--seconds", "0.1", "--write", str(tmp_path / "x"))
    assert answer(capsys, "drops", "tun0", *words)["written_packets"] == 0
    assert used == ["bpftrace"]
    assert (tmp_path / "x").stat().st_size > 0


def test_file_of_before_stays_without_bpftrace(
    tracer: Mock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tracers, "bpftrace_available", lambda _: False)
    file = write(tmp_path / "x", "packets")
    assert cli.main(["-q", "drops", "tun0", "--seconds", "0.1", "--write", str(file)]) == 4
    assert file.read_text() == "packets"
    assert tracer.method_calls == []


def test_lines_of_nodrops_tracepoints() -> None:
    """As the kernel prints them; lost events are reported, other lines ignored."""
    line = " x-7 [001] b..4. 12.5: nodrop_stop: dev=tun0 queue=1 held=48/48 max=500 cpu=3"
    more = {"queue": 1, "held": 48, "limit": 48, "max": 500, "cpu": 3}
    assert monitor.parse(line, 100.0) == monitor.FlowEvent(112.5, "stop", "tun0", more)
    early = monitor.parse(line.replace("cpu=3", "cpu=-1"), 100.0)
    assert early == monitor.FlowEvent(112.5, "stop", "tun0", {**more, "cpu": -1})
    lost = monitor.parse("CPU:1 [LOST 12 EVENTS]", 0.0)
    assert lost
    assert (lost.kind, lost.more) == ("lost", {"events": 12})
    assert monitor.parse("# tracer: nop", 0.0) is None


def test_monitor_needs_the_core(root: Path) -> None:
    with pytest.raises(UnsupportedError):
        monitor.Monitor(Tracefs(root), [], monitor.EVENTS)
    (root / "sys/kernel/tracing/events/nodrop").mkdir()
    with pytest.raises(UsageError):
        monitor.Monitor(Tracefs(root), ['a"b'], monitor.EVENTS)


def test_a_name_that_is_not_utf8(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is spelled as everywhere else, so that a device has one name."""
    (root / "sys/kernel/tracing/events/nodrop").mkdir()
    reader, writer = os.pipe()
    os.write(
        writer, b" x-7 [001] b..4. 12.5: nodrop_kick: dev=a\xffb queue=1 held=4/8 max=9 cpu=3\n"
    )
    made = monitor.Monitor(Tracefs(root), [], monitor.EVENTS)
    monkeypatch.setattr(made._instance, "pipe", reader)
    assert [event.device for event in made.traced()] == ["a\udcffb"]
    os.close(writer)
    os.close(reader)


def test_drops_are_counted_from_zero_in_a_new_queue(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vhost-net puts packets back, which decreases "taken" of the same queue."""
    (root / "sys/kernel/tracing/events/nodrop").mkdir()
    samples = (
        {"tx0_drop_guard": 5, "tx0_taken": 9},
        {"tx0_drop_guard": 7, "tx0_taken": 8, "tx1_drop_off": 2},
        {"tx0_drop_guard": 1, "tx0_taken": 0, "tx1_drop_off": 2},
    )
    monkeypatch.setattr("nodrop.host.ethtool.stats", Mock(side_effect=samples))
    made = monitor.Monitor(Tracefs(root), ["tun0"], ["drop"])
    made._drops = made._counted()
    first, second = ([dict(event.more) for event in made._dropped()] for _ in range(2))
    guard = {"queue": 0, "cause": "guard"}
    assert first == [{**guard, "packets": 2}, {"queue": 1, "cause": "off", "packets": 2}]
    assert second == [{**guard, "packets": 1}]


def test_missing_device_is_noted(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(monitor, "Monitor", lambda *_: Mock(events=lambda _: []))
    monkeypatch.setattr(Tracefs, "open", lambda _: None)
    monkeypatch.setattr(settings, "device_names", lambda _: {"tun0": True})
    assert cli.main(["monitor", "tun0", "tnu0"]) == 0
    out, err = capsys.readouterr()
    assert (out, "tnu0" in err, "tun0" in err) == ("", True, False)


def test_alternative_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracepoints and /sys have the device's name only."""
    asked: list[list[str]] = []

    def end(_: object, names: str | list[str], *_more: object) -> None:
        asked.append([names] if isinstance(names, str) else names)
        raise NodropError("enough")

    monkeypatch.setattr(settings, "real_names", lambda _, names: ["tun0" for _ in names])
    monkeypatch.setattr(Tracefs, "open", lambda _: None)
    monkeypatch.setattr(monitor, "Monitor", end)
    monkeypatch.setattr(drops, "read_counters", lambda name, where: end(where, name))
    assert cli.main(["monitor", "a-longer-name-of-tun0"]) == 1
    assert cli.main(["drops", "a-longer-name-of-tun0"]) == 1
    assert asked == [["tun0"], ["tun0"]]


def test_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is said, and not that there is no such device."""
    monkeypatch.setattr(netns, "_OWN", "/nosuch/ns/net")
    with pytest.raises(NodropError, match="/proc"):
        drops.read_counters("nosuch0")
