# SPDX-License-Identifier: GPL-2.0-only
"""What tracers print, what it means, and the kernel's files that they use."""

from __future__ import annotations

import errno
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from stubs import before, programs, write

from nodrop.errors import NodropError, UnsupportedError
from nodrop.trace import bpftrace, choose, hist, reasons, ring
from nodrop.trace.btf import Btf, BtfError, load
from nodrop.trace.model import Site, Target
from nodrop.trace.reasons import Way
from nodrop.trace.tracefs import EVENT, Tracefs, reason_names

SAMPLES = Path(__file__).parent / "samples/trace"
TARGET = Target("tun0", 2, 4026531840)
REASONS = {
    release: reason_names((SAMPLES / f"format-{release}").read_text()) for release in ("6.1", "7.3")
}
FULL = Site("tun_net_xmit+0x2c5", "tun", "FULL_RING")


def small() -> Btf:
    return Btf((SAMPLES / "small.btf").read_bytes())


def test_members_of_structs() -> None:
    """As ``offsetof`` of the C file has them: past unions, bit fields, typedefs."""
    types = small()
    assert types.offset("sk_buff", "dev") == 16
    assert types.offset("net_device", "ifindex") == 32
    assert types.offset("net_device", "nd_net.net") == 48
    assert types.offset("net", "ns.inum") == 24


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("nix", "dev"),
        ("sk_buff", "nix"),
        ("sk_buff", "dev.name"),
        ("net_device", "flags"),  # a bit field
        ("net_device", "wild"),
    ],
)
def test_members_that_are_not_there(name: str, path: str) -> None:
    with pytest.raises(BtfError):
        small().offset(name, path)


def test_types_that_cannot_be_read(tmp_path: Path) -> None:
    whole = (SAMPLES / "small.btf").read_bytes()
    kind_after_us = whole[:24] + struct.pack("=III", 0, 100 << 24, 0) + whole[36:]
    for data in (b"", b"\0" * 100, whole[:20], whole[:60], kind_after_us):
        with pytest.raises(BtfError):
            Btf(data).offset("net", "ns.inum")
    with pytest.raises(BtfError):
        load(tmp_path)


def test_probe_follows_the_pointers() -> None:
    assert hist.probe("g", small(), has_reason=False) == (
        "e:g/drop skb/kfree_skb ifindex=+32(+16($skbaddr)):s32 "
        "netns=+24(+48(+16($skbaddr))):u32 where=$location:x64"
    )
    assert hist.probe("g", small(), has_reason=True).endswith(" reason=$reason:u32")


def test_names_of_reasons() -> None:
    assert REASONS["6.1"][55] == "FULL_RING"
    assert REASONS["6.1"][66] == "MAX"
    assert REASONS["7.3"][78] == "FULL_RING"
    assert reason_names("print fmt: nothing") == {}


def test_histogram() -> None:
    text = (SAMPLES / "hist-6.1.txt").read_text()
    counted = hist.parse(text, REASONS["6.1"])
    assert (counted.packets, counted.unseen) == (Counter({FULL: 991}), 0)
    counted = hist.parse((SAMPLES / "hist-7.3.txt").read_text(), REASONS["7.3"])
    assert counted.packets == Counter({Site("tun_net_xmit+0x2e1", "tun", "FULL_RING"): 100})
    # It was too small; a number without a name; another form.
    assert hist.parse(text.replace("Dropped: 0", "Dropped: 7"), {}).unseen == 7
    assert hist.parse(text, {}).packets == Counter({Site(FULL.where, "tun", "55"): 991})
    with pytest.raises(NodropError):
        hist.parse(text.replace("where:", "nix:"), {})
    # No module: the kernel itself. No reason: before 5.17.
    text = "{ where: [ffffffff81] ip_rcv+0x1/0x2      } hitcount:   3\n"
    assert hist.parse(text, {}).packets == Counter({Site("ip_rcv+0x1", "", ""): 3})


def test_bpftrace_output() -> None:
    counts = bpftrace.parse((SAMPLES / "bpftrace-0.17.json").read_text())
    assert counts == {(0xFFFFFFFFC08583C1, 78): 300}
    assert bpftrace.parse('{"type": "attached_probes", "data": {"probes": 2}}\n') == {}
    for text in ("nix", '{"type": "map", "data": {"@drops": {"1": 2}}}'):
        with pytest.raises(NodropError):
            bpftrace.parse(text)


def test_addresses_become_functions() -> None:
    lines = [
        "ffffffff81000000 T _text\n",
        "ffffffffc0858000 t tun_get_user\t[tun]\n",
        "ffffffffc08580e0 t tun_net_xmit\t[tun]\n",
        "ffffffffc0858300 d tun_data\t[tun]\n",
        "ffffffffc0859000 t tun_other\t[tun]\n",
    ]
    address = 0xFFFFFFFFC08583C1
    assert bpftrace.resolve(lines, {address}) == {address: ("tun_net_xmit+0x2e1", "tun")}
    # kernel.kptr_restrict=2 hides all
    assert bpftrace.resolve(["0000000000000000 T _text\n"], {address}) == {}


def test_events() -> None:
    found = ring.parse((SAMPLES / "events-7.3.txt").read_text() + "\nnix\n")
    assert found == Counter({Site("tun_net_xmit+0x3a7", "tun", "FULL_RING"): 2})


def test_which_way_it_was_going() -> None:
    """A reason means another thing at another place; what is not known goes no way."""
    for reason, where, way in (
        ("FULL_RING", "tun_net_xmit+0x2c5", Way.TRANSMIT),
        ("FULL_RING", "stock_tun_net_xmit+0x2c5", Way.TRANSMIT),
        ("DEV_READY", "tun_net_xmit.cold+0x2", Way.TRANSMIT),
        ("DEV_READY", "tun_get_user+0x1", Way.RECEIVE),
        ("NOT_SPECIFIED", "tun_do_read+0x1", Way.TRANSMIT),
        ("NOT_SPECIFIED", "tun_queue_purge+0x1", None),
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


def test_every_usual_reason_of_the_kernel_that_a_tun_device_gives_has_words() -> None:
    usual = ["DEV_READY", "TAP_TXFILTER", "TAP_FILTER", "NOMEM", "SKB_UCOPY_FAULT", "FULL_RING"]
    assert {*usual} <= {*REASONS["7.3"].values()}
    for reason in usual:
        assert reasons.explain(Site("tun_net_xmit+0x1", "tun", reason)), reason


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A kernel with tracing files."""
    events = tmp_path / "sys/kernel/tracing/events" / EVENT
    events.mkdir(parents=True)
    (events / "format").write_text((SAMPLES / "format-7.3").read_text())
    (tmp_path / "sys/kernel/tracing/instances").mkdir()
    (tmp_path / "sys/kernel/tracing/dynamic_events").touch()
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").touch()
    return tmp_path


def test_no_tracing(tmp_path: Path, root: Path) -> None:
    with pytest.raises(UnsupportedError):
        Tracefs(tmp_path / "nix").open()
    (root / "sys/kernel/tracing/events" / EVENT / "format").unlink()
    with pytest.raises(UnsupportedError):
        Tracefs(root).open()


def test_why_the_kernel_refuses(root: Path) -> None:
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
    for name in (gone, alive, elsewhere, "somebody"):
        files.make(name)
    probe = root / "sys/kernel/tracing/events" / gone / "drop"
    probe.mkdir(parents=True)
    (probe / "format").touch()
    files.sweep()
    left = {path.name for path in (root / "sys/kernel/tracing/instances").iterdir()}
    assert left == {alive, elsewhere, "somebody"}
    assert (root / "sys/kernel/tracing/dynamic_events").read_text() == f"-:{gone}/drop\n"


def test_triggers_are_taken_back(root: Path) -> None:
    """The kernel's instance would not go while its trigger counts."""
    files = Tracefs(root)
    name = files.own_name()
    trigger = files.make(name) / f"events/{name}/drop/trigger"
    trigger.parent.mkdir(parents=True)
    asked = "hist:keys=where.sym-offset:vals=hitcount:size=2048 if ifindex == 2"
    trigger.write_text(f"{asked} [active]\n")
    with pytest.raises(NodropError):
        files.remove(name)  # real files do not go by rmdir alone
    assert trigger.read_text().splitlines()[1] == f"!{asked}"


def started(kind: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tracers that are tried when none works."""
    tried = []

    def fail(tracer: object) -> None:
        tried.append(type(tracer).__name__)
        raise NodropError("No.")

    for kinds in (bpftrace.BpftraceTracer, hist.EprobeTracer, hist.HistTracer, ring.RingTracer):
        monkeypatch.setattr(kinds, "start", fail)
        monkeypatch.setattr(kinds, "close", lambda _: None)
    with pytest.raises(NodropError):
        choose.start(kind, Tracefs(root), TARGET, lambda _: None)
    return tried


def test_choice(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpftrace, "available", lambda: True)
    assert started("auto", root, monkeypatch) == ["RingTracer"]
    assert started("bpftrace", root, monkeypatch) == []
    (root / "sys/kernel/tracing/events" / EVENT / "hist").touch()
    assert started("auto", root, monkeypatch) == ["HistTracer"]
    types = root / "sys/kernel/btf/vmlinux"
    types.parent.mkdir()
    types.write_bytes((SAMPLES / "small.btf").read_bytes())
    assert started("auto", root, monkeypatch) == ["BpftraceTracer", "EprobeTracer", "HistTracer"]
    assert started("tracefs", root, monkeypatch) == ["EprobeTracer", "HistTracer"]
    assert started("bpftrace", root, monkeypatch) == ["BpftraceTracer"]
    types.write_bytes(b"nonsense")
    assert started("tracefs", root, monkeypatch) == ["HistTracer"]


def test_a_failed_start_leaves_nothing(root: Path) -> None:
    """Without the instance's files the kernel would have made, arming fails half-way."""
    (root / "sys/kernel/tracing/events" / EVENT / "hist").touch()
    with pytest.raises(NodropError):
        choose.start("tracefs", Tracefs(root), TARGET, lambda _: None)
    assert list((root / "sys/kernel/tracing/instances").iterdir()) == []


@pytest.fixture
def bpf(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a program in the place of bpftrace."""
    monkeypatch.setenv("PATH", before(tmp_path / "bin"))
    write(root / "proc/kallsyms", "ffffffffc08580e0 t tun_net_xmit\t[tun]\n")
    return lambda text: programs(tmp_path / "bin", {"bpftrace": text})


def test_a_bpftrace_that_fails(root: Path, bpf: Callable[[str], None]) -> None:
    bpf("echo 'ERROR: no such thing' >&2\nexit 1")
    with pytest.raises(NodropError) as caught:
        bpftrace.BpftraceTracer(Tracefs(root), TARGET).__enter__()
    assert "no such thing" in caught.value.hint
    bpf("exec sleep 600")
    with pytest.raises(NodropError):
        bpftrace.BpftraceTracer(Tracefs(root), TARGET, 0.2).__enter__()


def test_a_bpftrace_that_counts(root: Path, tmp_path: Path, bpf: Callable[[str], None]) -> None:
    first, rest = (SAMPLES / "bpftrace-0.17.json").read_text().split("\n", 1)
    write(tmp_path / "first", first + "\n")
    write(tmp_path / "rest", rest)
    ends = f"trap 'cat {tmp_path}/rest; exit 0' INT\ncat {tmp_path}/first\n"
    bpf(f"{ends}while :; do sleep 0.05; done")
    with bpftrace.BpftraceTracer(Tracefs(root), TARGET) as tracer:
        tracer.poll()
        counted = tracer.finish()
    assert counted.packets == Counter({Site("tun_net_xmit+0x2e1", "tun", "FULL_RING"): 300})
