# SPDX-License-Identifier: GPL-2.0-only
"""flent's ``tcp_nup`` and ``rrul_be`` through a null VPN, for its data files and plots.

The flows are iperf's: netperf, which flent prefers, is not free software. What flent 2.1.1 and
Debian's iperf 2.1.8 lack to work together is written into the guest's memory: TEST_END makes a
test use iperf, and SHIM gives it the option by the name that flent knows. ``rrul_be`` has no UDP
pings: Debian's irtt starts a server on the host that it is installed on.
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
for name, entry in list(DATA_SETS.items()):
    if entry["runner"] == "netperf_demo":
        entry.update(runner="iperf_csv", interval=STEP_SIZE, ip_version=IP_VERSION)
        if entry["test"] == "TCP_MAERTS":
            entry["host"] += " --reverse"
    elif entry["runner"] == "udp_rtt":
        del DATA_SETS[name]
"""
SHIM = Path("/usr/local/bin/iperf")
SHIM_TEXT = """\
#!/bin/sh
case $1 in -h) echo --enhancedreports >&2; exit ;; esac
for word; do
	shift
	[ "$word" != --enhancedreports ] || word=--enhanced
	set -- "$@" "$word"
done
exec /usr/bin/iperf "$@"
"""
WAYS = {
    "tcp_nup": {"goodput_mbit_per_s": "TCP upload"},
    "rrul_be": {"goodput_mbit_per_s": "TCP upload", "download_mbit_per_s": "TCP download"},
}
"""Test -> metric -> how the names of the flows begin that it sums."""
DELAY_S = 1
"""Pings before and after the flows, seconds."""
STEP_S = 0.05
"""Between two pings, and two samples of a flow, seconds."""
SETTLED = 0.2
"""Share of the time with all flows after which they count."""
START_S = 60.0
"""For flent to start and to end, seconds."""
FOLDER = "flent"
"""Of flent's data files, in the run's directory."""


def latency_under_load(result: Mapping[str, Any], ways: Mapping[str, str], flows: int) -> Metrics:
    """Return the metrics of flent's result while all flows ran.

    Args:
        result: a data file's content.
        ways: metric -> how the names of its flows begin.
        flows: how many there must be, each way.

    Raises:
        GuestError: a flow or the pings are missing.
    """
    runners = {name: meta["RUNNER"] for name, meta in result["metadata"]["SERIES_META"].items()}
    series = {
        name: [pair for pair in zip(result["x_values"], values, strict=True) if pair[1] is not None]
        for name, values in result["results"].items()
    }
    sent = {name: series.get(name, []) for name in runners if runners[name] == "IperfCsvRunner"}
    if len(sent) != flows * len(ways) or not all(sent.values()):
        raise GuestError(f"flent measured not all of {len(ways)} times {flows} flows")
    first = max(values[0][0] for values in sent.values())
    last = min(values[-1][0] for values in sent.values())
    first += SETTLED * (last - first)

    def loaded(name: str) -> list[float]:
        return [value for when, value in series[name] if first <= when <= last]

    pings = loaded("Ping (ms) ICMP")
    if first >= last or len(pings) < 2:
        raise GuestError("there were no pings while all flows ran: measure for longer")
    metrics: Metrics = {
        "latency_p50_ms": median(pings),
        "latency_p99_ms": quantiles(pings, n=100, method="inclusive")[98],
    }
    for metric, start in ways.items():
        metrics[metric] = sum(fmean(loaded(name)) for name in sent if name.startswith(start))
    return metrics


class Flent(NullVpn):
    """Pings beside uploads, and with ``rrul_be`` as many downloads, as flent sees them."""

    parameters = (
        "cpus_sleep flows forwarded offloads qdisc test traffic_cpu txqueuelen vpn_cpu work_ns "
        "work_per_kb_ns"
    )

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        self._title = str(variant)
        self._test = self.choice("test", *WAYS)
        test = TESTS / f"{self._test}.conf"
        text = test.read_text(encoding="utf-8")
        if TEST_END not in text:
            test.write_text(text + TEST_END, encoding="utf-8")
            SHIM.write_text(SHIM_TEXT, encoding="utf-8")
            SHIM.chmod(0o755)
        metrics = super().measure(variant, seconds, stack)
        # The forwarder's rates include flent's start and end.
        wrong = ("forwarded", "reader")
        return {name: value for name, value in metrics.items() if not name.startswith(wrong)}

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
        with Service(in_netns(NETNS[1], [*cpu, SHIM.name, "-s"]), announces=False):
            first = count()
            limit = seconds + 2 * DELAY_S + START_S + END_GRACE_S
            output = tool(in_netns(self.senders, command), timeout=limit)
            last = count()
        made = {*folder.iterdir()} - before
        if not made:
            raise GuestError(f"flent wrote no data: {output.strip()}")
        result = json.loads(gzip.decompress(made.pop().read_bytes()))
        try:
            metrics = latency_under_load(result, WAYS[self._test], self.case.flows)
        except GuestError as error:
            raise GuestError(f"{output.strip()}\n{error}") from error
        return metrics, first, last
