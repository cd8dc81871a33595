# SPDX-License-Identifier: GPL-2.0-only
"""flent's ``tcp_nup`` and ``rrul_be`` through a null VPN, for its data files and plots.

The flows are iperf's: netperf, which flent prefers, is not free software. What flent 2.1.1 and
Debian's iperf 2.1.8 lack to work together is written into the guest's memory: TEST_END makes a
test use iperf, and SHIM gives it the option by the name that flent knows. flent cannot ask iperf
for a download; TEST_END asks for --nodelay instead, which nothing else uses.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

from bench.guest.base import END_GRACE_S, Metrics
from bench.guest.ends import ADDRESSES, NETNS
from bench.guest.tcp import Counts, NullVpn
from guestlib.environment import GuestError
from guestlib.process import Service, in_netns, tool
from lab.variant import Variant

TESTS = Path("/usr/share/flent/flent/tests")
TEST_END = """
# Added by nodrop's lab.
for entry in DATA_SETS.values():
    if entry["runner"] == "netperf_demo":
        entry.update(runner="iperf_csv", interval=STEP_SIZE, ip_version=IP_VERSION,
                     no_delay=entry["test"] == "TCP_MAERTS")
"""
SHIM = Path("/usr/local/bin/iperf")
SHIM_TEXT = """\
#!/bin/sh
case $1 in -h) echo --enhancedreports >&2; exit ;; esac
for word; do
	shift
	case $word in --enhancedreports) word=--enhanced ;; --nodelay) word=--reverse ;; esac
	set -- "$@" "$word"
done
exec /usr/bin/iperf "$@"
"""
SERVERS = {"tcp_nup": [["iperf", "-s"]], "rrul_be": [["iperf", "-s"], ["irtt", "server"]]}
"""Test -> what runs at the far end."""
FLOWS = {
    "tcp_nup": {"goodput_mbit_per_s": "TCP upload sum"},
    "rrul_be": {
        "goodput_mbit_per_s": "TCP upload sum",
        "download_mbit_per_s": "TCP download sum",
    },
}
"""Test -> metric -> flent's data series."""
RRUL_FLOWS = 4
"""Of rrul_be, each way."""
DELAY_S = 1
"""Pings before and after the flows, seconds."""
STEP_S = 0.05
"""Between two pings, and two samples of a flow, seconds."""
SETTLED = 0.2
"""Share of the flows' time after which they count."""
START_S = 60.0
"""For flent to start and to end, seconds."""
FOLDER = "flent"
"""Of flent's data files, in the run's directory."""


def loaded(result: Mapping[str, Any], name: str, seconds: float) -> list[float]:
    """Return the values of a data series while the flows ran."""
    pairs = zip(result["x_values"], result["results"][name], strict=True)
    first, last = DELAY_S + SETTLED * seconds, DELAY_S + seconds
    return [value for when, value in pairs if value is not None and first <= when <= last]


class Flent(NullVpn):
    """Pings beside uploads, and with ``rrul_be`` as many downloads, as flent sees them."""

    parameters = (
        "cpus_sleep flows forwarded offloads qdisc test traffic_cpu txqueuelen vpn_cpu work_ns "
        "work_per_kb_ns"
    )

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        self._title = str(variant)
        self._test = self.choice("test", *SERVERS)
        if self._test == "rrul_be" and self.case.flows != RRUL_FLOWS:
            raise GuestError(f"rrul_be has {RRUL_FLOWS} flows each way, not {self.case.flows}")
        test = TESTS / f"{self._test}.conf"
        text = test.read_text(encoding="utf-8")
        if TEST_END not in text:
            test.write_text(text + TEST_END, encoding="utf-8")
            SHIM.write_text(SHIM_TEXT, encoding="utf-8")
            SHIM.chmod(0o755)
        return super().measure(variant, seconds, stack)

    def measure_latency(
        self, seconds: float, count: Callable[[], Counts]
    ) -> tuple[Metrics, Counts, Counts]:
        folder = self.environment.out / FOLDER
        folder.mkdir(exist_ok=True)
        before = {*folder.iterdir()}
        cpu = ["taskset", "--cpu-list", str(self.case.traffic_cpu)]
        command = [
            *(*cpu, "flent", self._test, "--host", ADDRESSES[1], "--length", f"{seconds:.0f}"),
            *("--delay", str(DELAY_S), "--step-size", str(STEP_S), "--data-dir", str(folder)),
            *("--title-extra", self._title, "--test-parameter"),
            f"upload_streams={self.case.flows}",
        ]
        with ExitStack() as servers:
            for server in SERVERS[self._test]:
                far = in_netns(NETNS[1], [*cpu, *server])
                servers.enter_context(Service(far, announces=False))
            first = count()
            limit = seconds + 2 * DELAY_S + START_S + END_GRACE_S
            output = tool(in_netns(self.senders, command), timeout=limit)
            last = count()
        made = {*folder.iterdir()} - before
        if not made:
            raise GuestError(f"flent wrote no data: {output.strip()}")
        result = json.loads(gzip.decompress(made.pop().read_bytes()))
        metrics = {}
        for metric, name in FLOWS[self._test].items():
            if not (flows := loaded(result, name, seconds)):
                raise GuestError(f"flent measured no {name}: {output.strip()}")
            metrics[metric] = fmean(flows)
        pings = loaded(result, "Ping (ms) ICMP", seconds)
        if len(pings) < 2:
            raise GuestError(f"flent measured no pings: {output.strip()}")
        metrics["latency_p50_ms"] = median(pings)
        metrics["latency_p99_ms"] = quantiles(pings, n=100, method="inclusive")[98]
        return metrics, first, last
