# SPDX-License-Identifier: GPL-2.0-only
"""What is read off iperf3's results, and the account of large packets."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest

from nodrop.guest import iperf
from nodrop.guest.counters import LinkCounters, QdiscCounters
from nodrop.guest.failure import GuestError
from nodrop.guest.scenarios.base import DeviceCounts
from nodrop.guest.scenarios.tcp import VhostReader, outside
from nodrop.guest.vhost import VhostClient, VhostCounts

LISTENING = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 020012C6:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0
"""


def interval(start: float, end: float, *counts: int) -> dict[str, Any]:
    streams = [{"socket": 5 + index, "bytes": count} for index, count in enumerate(counts)]
    whole = {"start": start, "end": end, "seconds": end - start, "bytes": sum(counts)}
    return {"sum": whole, "streams": streams}


def sent(start: float, end: float, retransmits: int, *rtts_us: int) -> dict[str, Any]:
    whole = {"start": start, "end": end, "retransmits": retransmits}
    return {"sum": whole, "streams": [{"rtt": rtt_us} for rtt_us in rtts_us]}


SENT = {"intervals": [sent(0.0, 0.5, 9, 700_000, 900_000), sent(0.5, 1.0, 3, 120_000, 140_000)]}


def flows(*intervals: dict[str, Any]) -> iperf.Flows:
    return iperf.Flows.from_data(SENT, {"intervals": list(intervals)}, warm_up_s=0.4)


def test_the_warm_up_is_not_counted() -> None:
    found = flows(
        interval(0.0, 0.3, 900, 900), interval(0.3, 0.4, 90, 90), interval(0.4, 0.9, 5, 7)
    )
    assert (found.bytes, found.smallest_flow_bytes) == (12, 5)
    assert (found.retransmits, found.rtt_ms) == (3, 130)
    assert found.window_s == pytest.approx(0.5)


def test_an_interval_counts_where_most_of_it_lies() -> None:
    found = flows(interval(0.3, 1.1, 8), interval(1.1, 1.2, 1))
    assert found.bytes == 9
    assert found.window_s == pytest.approx(0.9)


def test_nothing_counted_is_an_error() -> None:
    late = {"intervals": [interval(0.4, 0.9, 5)]}
    early: dict[str, Any] = {"intervals": [interval(0.0, 0.3, 1)]}
    nothing: dict[str, Any] = {"intervals": []}
    for sides in ((SENT, early), (nothing, late)):
        with pytest.raises(GuestError, match="nothing after the warm-up"):
            iperf.Flows.from_data(*sides, warm_up_s=0.4)


@pytest.mark.parametrize("failed", [0, 1])
def test_iperf_says_why_it_failed(failed: int) -> None:
    sides: list[dict[str, Any]] = [dict(SENT), {"intervals": [interval(0.4, 0.5, 1)]}]
    sides[failed]["error"] = "unable to connect"
    with pytest.raises(GuestError, match="iperf3: unable to connect"):
        iperf.Flows.from_data(*sides, warm_up_s=0.4)


def test_a_result_that_lacks_something() -> None:
    with pytest.raises(GuestError, match="lacks something: 'intervals'"):
        iperf.Flows.from_data(SENT, {}, warm_up_s=0.4)


def test_warnings_before_the_result() -> None:
    assert iperf.parse('warning: odd\n{"end": {}}\n') == {"end": {}}
    with pytest.raises(GuestError, match="without a result: taskset: no"):
        iperf.parse("taskset: no\n")


def test_who_listens() -> None:
    assert iperf.is_listening(LISTENING.format(port=iperf.PORT, state="0A"))
    assert not iperf.is_listening(LISTENING.format(port=iperf.PORT, state="01"))
    assert not iperf.is_listening(LISTENING.format(port=655, state="0A"))
    assert not iperf.is_listening("")


def test_outside() -> None:
    assert [outside(value, 2, 5) for value in (1, 2, 5, 9)] == [-1, 0, 0, 4]


class Client:
    """A client that has ended with so many packets, segments, and packets sent."""

    pid = os.getpid()

    def __init__(self, packets: int, segments: int, sent: int) -> None:
        self._counts = VhostCounts(packets, 0, 0, segments, 0, sent, 0, 0, 0, 0, 0)

    def end(self) -> VhostCounts:
        return self._counts


@pytest.mark.parametrize(
    ("packets", "segments", "sent", "lost", "unaccounted"),
    [
        (10, 400, 6, 0, 0),
        # A packet that the driver read, and that vhost's client did not get.
        (9, 400, 6, 0, 1),
        # An ACK that vhost did not take.
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
    packets: int, segments: int, sent: int, lost: int, unaccounted: int
) -> None:
    there = DeviceCounts(LinkCounters(10, 0, lost), QdiscCounters("fq_codel", 400, 0, 0, 0))
    back = DeviceCounts(LinkCounters(6, 0, 0), QdiscCounters("fq_codel", 6, 0, 0, 0))
    reader = VhostReader(cast("VhostClient", Client(packets, segments, sent)))
    assert reader.metrics((there, back))["unaccounted"] == unaccounted
