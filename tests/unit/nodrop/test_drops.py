# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop drops``: conclusions and output from traced and counted drops."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from schema import answer, validate

from nodrop import cli, screen
from nodrop.commands import common, drops
from nodrop.errors import NodropError
from nodrop.trace import counters
from nodrop.trace.counters import Counters
from nodrop.trace.reasons import Way
from nodrop.trace.tracefs import Tracefs
from nodrop.trace.tracer import Counted, Site, Tracer
from nodrop.trace.verdict import Verdict, conclude

SAMPLES = Path(__file__).parents[1] / "samples"
FULL = Site("tun_net_xmit+0x2c5", "tun", "FULL_RING")
QDISC = Site("__dev_xmit_skb+0x2c5", "", "QDISC_DROP")
SOCKET = Site("udp_queue_rcv_one_skb+0x9", "", "NO_SOCKET")
STRANGE = Site("0xffffffff81000000", "", "NEW_REASON")
NONE = Counters(2, 4026531840, 0, 0, "fq_codel", 0, 0)


def verdict(
    packets: dict[Site, int],
    found: Counters | None = NONE,
    *,
    known: bool = True,
    unseen: int = 0,
    causes: dict[str, int] | None = None,
) -> Verdict:
    return Verdict(
        target=NONE.target("tun0"),
        netns="",
        tracer="bpftrace",
        device_known=known,
        interval_s=5.0,
        drops=conclude(Counted(Counter(packets)), "tun0", causes or {}),
        unseen=unseen,
        counters=found,
    )


def test_counted_and_not_traced() -> None:
    lost = replace(NONE, tx_dropped=100, qdisc_drops=50, rx_dropped=30)
    found = verdict({FULL: 90, QDISC: 10}, lost)
    assert found.unexplained(Way.TRANSMIT) == 50
    assert found.unexplained(Way.RECEIVE) == 30
    # Trace and counters do not start at the same time.
    assert verdict({FULL: 145, SOCKET: 30}, lost).unexplained(Way.TRANSMIT) == 0
    assert verdict({FULL: 142, SOCKET: 30}, lost).unexplained(Way.TRANSMIT) == 8
    # The direction of a packet without a rule is unknown.
    assert verdict({FULL: 120, STRANGE: 30}, lost).unexplained(Way.RECEIVE) == 0
    assert verdict({FULL: 1}, None).unexplained(Way.TRANSMIT) is None
    assert verdict({FULL: 1}, lost, known=False).unexplained(Way.TRANSMIT) is None


@pytest.mark.parametrize(
    "found",
    [
        verdict({}),
        verdict({FULL: 3, STRANGE: 1}, replace(NONE, tx_dropped=3, qdisc_over_limit=None)),
        verdict({Site("a+0x1", "", ""): 3}, None, unseen=4),
        verdict({FULL: 3}, replace(NONE, driver={"tx0_drop_off": 3, "tx0_guard_trips": 1})),
        verdict({FULL: 3}, known=False),
    ],
)
def test_output(found: Verdict) -> None:
    """JSON matches the schema, and the table copes with unknown values."""
    validate("drops", {"schema": common.SCHEMA, "command": "drops", **found.to_json()})
    drops.show(screen.console(argparse.Namespace(color="never")), found)


def test_difference_of_counters() -> None:
    before = replace(NONE, tx_dropped=5, qdisc_drops=7, qdisc_over_limit=2, driver={"tx0_stops": 1})
    after = replace(before, tx_dropped=9, qdisc_drops=17, qdisc_over_limit=3)
    after = replace(after, driver={"tx0_stops": 4, "tx1_stops": 2})
    found = after.since(before)
    assert found is not None
    assert (found.tx_dropped, found.qdisc_drops, found.qdisc_over_limit) == (4, 10, 1)
    assert found.nodrop("stops") == 5
    assert found.nodrop("nix") is None
    # Another qdisc starts at 0; another device is not comparable.
    replaced = replace(after, qdisc="fq", qdisc_over_limit=None).since(before)
    assert replaced is not None
    assert replaced.qdisc_drops == 17
    assert replaced.qdisc_over_limit is None
    assert replace(after, ifindex=3).since(before) is None


def test_qdisc() -> None:
    noqueue = json.loads((SAMPLES / "tc-noqueue.json").read_text())
    assert counters.root_qdisc(noqueue)[:2] == ("noqueue", 0)
    codel = json.loads((SAMPLES / "tc-fq_codel.json").read_text())
    recorded = next(entry for entry in codel if entry.get("root"))
    expected = ("fq_codel", recorded["drops"], recorded["drop_overlimit"])
    assert counters.root_qdisc(codel) == expected
    assert counters.root_qdisc([]) == ("noqueue", 0, None)


class FakeTracer(Tracer):
    """Counts one drop, and records its calls."""

    name = "bpftrace"
    device_known = True

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def poll(self) -> None:
        self.calls.append("poll")

    def finish(self) -> Counted:
        self.calls.append("finish")
        return Counted(Counter({FULL: 1}))

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> FakeTracer:
    """A machine with a working tracer."""
    made = FakeTracer()
    monkeypatch.setattr("nodrop.commands.drops.start_tracer", lambda *_: made)
    monkeypatch.setattr(Tracefs, "open", lambda _: None)
    monkeypatch.setattr("nodrop.trace.counters.read", lambda *_: NONE)
    return made


def test_run(tracer: FakeTracer, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "-n", "blue", "drops", "tun0", "--seconds", "0.15")
    assert (found["netns"], found["packets"]) == ("blue", 1)
    assert found["interval_s"] >= 0.15
    assert tracer.calls[-2:] == ["finish", "close"]
    assert "poll" in tracer.calls


def test_failing_tracer_is_closed(tracer: FakeTracer, monkeypatch: pytest.MonkeyPatch) -> None:
    def die() -> None:
        raise NodropError("bpftrace ended too early.")

    monkeypatch.setattr(tracer, "poll", die)
    assert cli.main(["-q", "drops", "tun0"]) == 1
    assert tracer.calls[-1] == "close"


@pytest.mark.parametrize(
    ("causes", "advice"),
    [
        ({}, "nodrop install"),
        ({"noqueue": 0, "off": 0}, "nodrop install"),
        ({"noqueue": 30}, "tc qdisc replace dev tun0 root fq_codel"),
        ({"off": 30}, "nodrop set tun0 backpressure on"),
    ],
)
def test_advice_by_nodrops_cause(causes: dict[str, int], advice: str) -> None:
    assert advice in verdict({FULL: 30}, causes=causes).drops[0].advice
    # Drops outside of the ring have their own advice.
    assert advice not in verdict({QDISC: 30}, causes=causes).drops[0].advice
