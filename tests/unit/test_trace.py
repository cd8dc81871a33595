# SPDX-License-Identifier: GPL-2.0-only
"""What tracers print, what it means, and the kernel's files that they use."""

from __future__ import annotations

import errno
import os
import struct
from collections import Counter
from pathlib import Path

import pytest

from nodrop.errors import NodropError, UnsupportedError
from nodrop.trace import bpftrace, choose, hist, reasons, ring
from nodrop.trace.btf import Btf, BtfError, load
from nodrop.trace.model import Site, Target, of_virtual_links
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
    ("name", "path", "said"),
    [
        ("nix", "dev", "no struct nix"),
        ("sk_buff", "nix", "has no nix"),
        ("sk_buff", "dev.name", r"has no dev\.name"),
        ("net_device", "flags", "bit field"),
        ("net_device", "wild", "bit field"),
    ],
)
def test_members_that_are_not_there(name: str, path: str, said: str) -> None:
    with pytest.raises(BtfError, match=said):
        small().offset(name, path)


def test_types_that_cannot_be_read(tmp_path: Path) -> None:
    whole = (SAMPLES / "small.btf").read_bytes()
    for data in (b"", b"\0" * 100, whole[:20], whole[:60]):
        with pytest.raises(BtfError):
            Btf(data).offset("net", "ns.inum")
    # A kind that came after us.
    with pytest.raises(BtfError, match="kind 100"):
        Btf(whole[:24] + struct.pack("=III", 0, 100 << 24, 0) + whole[36:])
    with pytest.raises(BtfError, match="No such file"):
        load(tmp_path)


@pytest.mark.skipif(not Path("/sys/kernel/btf/vmlinux").exists(), reason="no BTF here")
def test_types_of_this_kernel() -> None:
    types = load()
    assert types.offset("sk_buff", "next") == 0
    assert 0 < types.offset("sk_buff", "dev") < 64
    line = hist.probe("group", types, has_reason=True)
    assert line.startswith(f"e:group/drop {EVENT} ifindex=+")
    assert line.endswith(":u32 where=$location:x64 reason=$reason:u32")


def test_probe_follows_the_pointers() -> None:
    assert hist.probe("g", small(), has_reason=False) == (
        "e:g/drop skb/kfree_skb ifindex=+32(+16($skbaddr)):s32 "
        "netns=+24(+48(+16($skbaddr))):u32 where=$location:x64"
    )


def test_names_of_reasons() -> None:
    assert REASONS["6.1"][55] == "FULL_RING"
    assert REASONS["6.1"][66] == "MAX"
    assert REASONS["7.3"][78] == "FULL_RING"
    assert reason_names("print fmt: nothing") == {}


def test_histogram() -> None:
    counted = hist.parse((SAMPLES / "hist-6.1.txt").read_text(), REASONS["6.1"])
    assert counted.packets == Counter({FULL: 991})
    assert counted.unseen == 0
    counted = hist.parse((SAMPLES / "hist-7.3.txt").read_text(), REASONS["7.3"])
    assert counted.packets == Counter({Site("tun_net_xmit+0x2e1", "tun", "FULL_RING"): 100})


def test_histogram_that_was_too_small_or_is_strange() -> None:
    text = (SAMPLES / "hist-6.1.txt").read_text()
    assert hist.parse(text.replace("Dropped: 0", "Dropped: 7"), {}).unseen == 7
    assert hist.parse(text, {}).packets == Counter({Site(FULL.where, "tun", "55"): 991})
    with pytest.raises(NodropError, match="new form"):
        hist.parse(text.replace("where:", "nix:"), {})
    # No module: the kernel itself. No reason: before 5.17.
    text = "{ where: [ffffffff81] ip_rcv+0x1/0x2      } hitcount:   3\n"
    assert hist.parse(text, {}).packets == Counter({Site("ip_rcv+0x1", "", ""): 3})


def test_bpftrace_output() -> None:
    counts = bpftrace.parse((SAMPLES / "bpftrace-0.17.json").read_text())
    assert counts == {(0xFFFFFFFFC08583C1, 78): 300}
    assert bpftrace.parse('{"type": "attached_probes", "data": {"probes": 2}}\n') == {}
    for text in ("nix", '{"type": "map", "data": {"@drops": {"1": 2}}}'):
        with pytest.raises(NodropError, match="unknown"):
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


def test_bpftrace_program() -> None:
    text = bpftrace.program(TARGET, has_reason=True)
    assert "$device->ifindex == 2 &&" in text
    assert "ns.inum == 4026531840" in text
    assert "args->reason" in text
    assert "args->reason" not in bpftrace.program(TARGET, has_reason=False)


def test_events() -> None:
    found = ring.parse((SAMPLES / "events-7.3.txt").read_text() + "\nnix\n")
    assert found == Counter({Site("tun_net_xmit+0x3a7", "tun", "FULL_RING"): 2})


@pytest.mark.parametrize(
    ("where", "module", "ours"),
    [
        ("tun_net_xmit+0x1", "tun", True),
        ("handle_rx+0x1", "vhost_net", True),
        ("tun_net_xmit+0x1", "", True),
        ("ip_rcv+0x1", "", False),
        ("veth_xmit+0x1", "veth", False),
    ],
)
def test_drivers_of_virtual_links(where: str, module: str, ours: bool) -> None:
    assert of_virtual_links(Site(where, module, "")) is ours


@pytest.mark.parametrize(
    ("reason", "where", "way", "word"),
    [
        ("FULL_RING", "tun_net_xmit+0x2c5", Way.TRANSMIT, "slower than its senders"),
        ("FULL_RING", "stock_tun_net_xmit+0x2c5", Way.TRANSMIT, "slower than its senders"),
        ("FULL_RING", "tun_net_xmit.cold+0x2", Way.TRANSMIT, "slower than its senders"),
        ("FULL_RING", "veth_xmit+0x1", Way.TRANSMIT, "receiving driver"),
        ("DEV_READY", "tun_net_xmit+0x2c5", Way.TRANSMIT, "Nobody has the queue open"),
        ("DEV_READY", "tun_get_user+0x1", Way.RECEIVE, "while the device was down"),
        ("TAP_TXFILTER", "tun_net_xmit+0x1", Way.TRANSMIT, "TUNSETTXFILTER"),
        ("NOT_SPECIFIED", "tun_do_read+0x1", Way.TRANSMIT, "buffer"),
        ("NOT_SPECIFIED", "tun_queue_purge+0x1", None, "reader closed it"),
        ("QDISC_DROP", "__dev_xmit_skb+0x1", Way.TRANSMIT, "over its limit"),
        ("QDISC_DROP", "__tcf_kfree_skb_list+0x1", Way.TRANSMIT, "over its limit"),
        ("NOT_SPECIFIED", "fq_codel_dequeue+0x1", Way.TRANSMIT, "AQM"),
        ("XDP", "tun_xdp_one+0x1", Way.RECEIVE, "XDP"),
        ("NETFILTER_DROP", "nf_hook_slow+0x1", None, "firewall"),
        ("NO_SOCKET", "udp_queue_rcv+0x1", Way.RECEIVE, "nobody listens"),
        ("IP_CSUM", "ip_rcv_core+0x33d", Way.RECEIVE, "damaged"),
    ],
)
def test_meanings(reason: str, where: str, way: Way | None, word: str) -> None:
    site = Site(where, "", reason)
    rule = reasons.explain(site)
    assert rule is not None
    assert word in rule.meaning
    assert reasons.way(site) is way


def test_reasons_without_words() -> None:
    assert reasons.explain(Site("new_function+0x1", "", "NEW_REASON")) is None
    assert reasons.way(Site("new_function+0x1", "", "NEW_REASON")) is None


def test_every_usual_reason_of_the_kernel_that_a_tun_device_gives_has_words() -> None:
    for reason in (
        "DEV_READY",
        "TAP_TXFILTER",
        "TAP_FILTER",
        "NOMEM",
        "SKB_UCOPY_FAULT",
        "FULL_RING",
    ):
        assert reason in REASONS["7.3"].values()
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
    with pytest.raises(UnsupportedError, match="no tracing files"):
        Tracefs(tmp_path / "nix").open()
    (root / "sys/kernel/tracing/events" / EVENT / "format").unlink()
    with pytest.raises(UnsupportedError, match="skb:kfree_skb"):
        Tracefs(root).open()


def test_why_the_kernel_refuses(root: Path) -> None:
    files = Tracefs(root)
    assert "Only root" in files.refused(PermissionError(errno.EPERM, "x")).message
    assert files.refused(OSError(errno.ENODEV, "x")).status == 4
    other = files.refused(OSError(errno.ENOSPC, "No space", "trigger"))
    assert "No space (trigger)" in other.message
    lockdown = root / "sys/kernel/security/lockdown"
    lockdown.parent.mkdir(parents=True)
    lockdown.write_text("none [integrity] confidentiality\n")
    assert "Only root" in files.refused(PermissionError(errno.EPERM, "x")).message
    lockdown.write_text("none integrity [confidentiality]\n")
    refused = files.refused(PermissionError(errno.EPERM, "x"))
    assert isinstance(refused, UnsupportedError)
    assert "locked down" in refused.message


def test_others_lines_stay(root: Path) -> None:
    files = Tracefs(root)
    events = root / "sys/kernel/tracing/dynamic_events"
    events.write_text("p:somebody/else\n")
    files.append("dynamic_events", "e:ours/drop")
    assert events.read_text() == "p:somebody/else\ne:ours/drop\n"


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
    with pytest.raises(NodropError, match="cannot be removed"):
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


def test_a_bpftrace_that_fails(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin/bpftrace"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'ERROR: no such thing' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(NodropError, match="ended too early") as caught:
        bpftrace.BpftraceTracer(Tracefs(root), TARGET).__enter__()
    assert "no such thing" in caught.value.hint


def test_a_bpftrace_that_never_begins(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin/bpftrace"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(NodropError, match="not ready within 0 s"):
        bpftrace.BpftraceTracer(Tracefs(root), TARGET, 0.2).__enter__()


def test_a_bpftrace_that_counts(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (SAMPLES / "bpftrace-0.17.json").read_text()
    first, rest = said.split("\n", 1)
    (tmp_path / "first").write_text(first + "\n")
    program = tmp_path / "bin/bpftrace"
    program.parent.mkdir()
    (tmp_path / "rest").write_text(rest)
    program.write_text(
        f"#!/bin/sh\ntrap 'cat {tmp_path}/rest; exit 0' INT\ncat {tmp_path}/first\n"
        "while :; do sleep 0.05; done\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    (root / "proc/kallsyms").write_text("ffffffffc08580e0 t tun_net_xmit\t[tun]\n")
    with bpftrace.BpftraceTracer(Tracefs(root), TARGET) as tracer:
        tracer.poll()
        counted = tracer.finish()
    assert counted.packets == Counter({Site("tun_net_xmit+0x2e1", "tun", "FULL_RING"): 300})
