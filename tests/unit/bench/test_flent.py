# SPDX-License-Identifier: GPL-2.0-only
"""What the lab adds to flent's tests, and what it takes from their results."""

from __future__ import annotations

from typing import Any

import pytest

from bench.guest import flent
from guestlib.environment import GuestError

PINGS = "Ping (ms) ICMP"
WAYS = flent.WAYS["rrul_be"]


def result(flows: dict[str, tuple[float, float, float]]) -> dict[str, Any]:
    """Return what flent writes of flows with a rate from one time to another, and of pings.

    A ping takes 1 ms before 6.5 s, then 5 ms, and 9 ms after 10 s.
    """
    times = [step / 10 for step in range(121)]
    results: dict[str, list[float | None]] = {
        name: [rate if first <= when <= last else None for when in times]
        for name, (rate, first, last) in flows.items()
    }
    results[PINGS] = [1 if when < 6.5 else 5 if when <= 10 else 9 for when in times]
    results["TCP upload sum"] = [999 for when in times]
    meta = {name: {"RUNNER": "IperfCsvRunner"} for name in flows}
    meta |= {PINGS: {"RUNNER": "PingRunner"}, "TCP upload sum": {"RUNNER": "SumRunner"}}
    return {"x_values": times, "results": results, "metadata": {"SERIES_META": meta}}


def test_only_the_time_with_all_flows_counts() -> None:
    flows = {"TCP upload BE": (100.0, 0.2, 10.0), "TCP download BE": (40.0, 6.0, 11.0)}
    metrics = flent.latency_under_load(result(flows), WAYS, 1)
    assert metrics == {
        "latency_p50_ms": 5,
        "latency_p99_ms": 5,
        "goodput_mbit_per_s": 100,
        "download_mbit_per_s": 40,
    }


@pytest.mark.parametrize("values", [None, []])
def test_a_flow_without_values(values: list[float] | None) -> None:
    flows = {"TCP upload BE": (100.0, 0.2, 10.0), "TCP download BE": (40.0, 6.0, 11.0)}
    measured = result(flows)
    measured["results"].pop("TCP download BE")
    if values is not None:
        measured["results"]["TCP download BE"] = [None for _ in measured["x_values"]]
    with pytest.raises(GuestError, match="not all of 2 times 1 flows"):
        flent.latency_under_load(measured, WAYS, 1)


def test_changes_of_a_test() -> None:
    """iperf sends uploads and downloads; there are no UDP pings; the rest is as it was."""
    sets = {
        "up": {"runner": "netperf_demo", "test": "TCP_STREAM", "host": "far"},
        "down": {"runner": "netperf_demo", "test": "TCP_MAERTS", "host": "far"},
        "udp": {"runner": "udp_rtt", "host": "far"},
        "icmp": {"runner": "ping", "host": "far"},
    }
    exec(flent.TEST_END, {"DATA_SETS": sets, "STEP_SIZE": 0.05, "IP_VERSION": 4})
    hosts = {name: (entry["runner"], entry["host"]) for name, entry in sets.items()}
    assert hosts == {
        "up": ("iperf_csv", "far"),
        "down": ("iperf_csv", "far --reverse"),
        "icmp": ("ping", "far"),
    }
