# SPDX-License-Identifier: GPL-2.0-only
"""An echo probe beside bulk TCP flows, from one network namespace to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from bench.guest.scenarios.base import Metrics, Scenario
from bench.guest.vpn import netns_options
from guestlib.process import Service, finished, parse_last_json
from guestlib.timing import time_limit

PARAMETERS = frozenset({"buffer_bytes", "flows", "probe_interval_us", "traffic_cpu"})
"""What a scenario's file says about this traffic."""
WARM_UP_S = 0.4
"""From the TCP flows' start to the measured window, seconds."""
PROBE_GRACE_S = 0.1
END_GRACE_S = time_limit(15.0)

Counts = TypeVar("Counts")


def measure(
    scenario: Scenario, seconds: float, count: Callable[[], Counts]
) -> tuple[Metrics, Counts, Counts]:
    """Load the devices between the namespaces and probe them during the window.

    Args:
        scenario: its parameters.
        seconds: length of the window.
        count: returns a reader's counts.

    Returns:
        Latency, goodput and retransmits, and the reader's counts before and after the probe.
    """
    programs, ends = scenario.environment.bin, netns_options()
    pinned = ["taskset", "--cpu-list", scenario.text("traffic_cpu")]
    buffer = scenario.text("buffer_bytes")
    send = [*pinned, str(programs / "tcp_flows")]
    send += [*ends, "--flows", scenario.text("flows"), "--warm-up", str(WARM_UP_S)]
    send += ["--sndbuf", buffer, "--rcvbuf", buffer, "--seconds", str(seconds)]
    # The probe has priority over the load, so it measures queues and the reader, not the wait for
    # its turn on a busy CPU.
    probe = [*pinned, "chrt", "--fifo", "1", str(programs / "echo_probe"), *ends]
    probe += ["--grace", str(PROBE_GRACE_S)]
    probe += ["--interval-us", scenario.text("probe_interval_us")]
    # The load ends with the window, so the probe ends a little before.
    probe += ["--seconds", str(max(seconds - 2 * PROBE_GRACE_S, seconds / 2))]
    with Service(send) as service:
        first = count()
        echoed = finished(probe, timeout=seconds + END_GRACE_S)
        last = count()
        flows = parse_last_json(service.wait(seconds + END_GRACE_S), "tcp_flows")
    return _metrics(echoed, flows), first, last


def _metrics(probe: dict[str, Any], flows: dict[str, Any]) -> Metrics:
    return {
        "goodput_mbit_per_s": flows["bytes"] * 8 / flows["seconds"] / 1e6,
        "retransmits": flows["retransmits"],
        "latency_p50_ms": probe["distribution_ns"]["500"] / 1e6,
        "latency_p90_ms": probe["distribution_ns"]["900"] / 1e6,
        "latency_p99_ms": probe["distribution_ns"]["990"] / 1e6,
        "latency_p999_ms": probe["distribution_ns"]["999"] / 1e6,
        "probes": probe["sent"],
        "probes_lost": probe["lost"],
        "latest_probe_ms": probe["latest_send_ns"] / 1e6,
        "window_s": flows["seconds"],
    }
