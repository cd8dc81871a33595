# SPDX-License-Identifier: GPL-2.0-only
"""TCP flows by iperf3 from one network namespace to another."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from guestlib.failure import GuestError
from guestlib.process import Service, in_netns
from guestlib.timing import time_limit

STEP_S = 0.1
"""iperf3's shortest reporting interval."""
LISTEN_TIMEOUT_S = time_limit(5.0)
END_GRACE_S = time_limit(15.0)
FAILED = 1
"""iperf3's exit status when its JSON result has the error."""

PORT = 5201
"""The server's port."""

_LISTENING = "0A"


def window_metrics(
    sender: Mapping[str, Any], receiver: Mapping[str, Any], *, warm_up_s: float
) -> dict[str, float]:
    """Return the results of the measured window, from the results (``-J``) of both sides.

    ``rtt_mean_ms`` is TCP's smoothed RTT, the mean of all flows. An interval counts if more than
    half of it lies after the warm-up.

    Raises:
        GuestError: one side failed, lacks a field, or counted nothing.
    """
    for side in (sender, receiver):
        if "error" in side:
            raise GuestError(f"iperf3: {side['error']}")
    try:
        sent, counted = (_after(side, warm_up_s) for side in (sender, receiver))
        window_s = sum(float(interval["sum"]["seconds"]) for interval in counted)
        if not (window_s and sent):
            raise GuestError("iperf3 counted nothing after the warm-up")
        received = sum(flow["bytes"] for interval in counted for flow in interval["streams"])
        rtts_us = [flow["rtt"] for interval in sent for flow in interval["streams"]]
        return {
            "goodput_mbit_per_s": received * 8 / window_s / 1e6,
            "retransmits": sum(int(interval["sum"]["retransmits"]) for interval in sent),
            "rtt_mean_ms": fmean(rtts_us) / 1e3,
            "window_s": window_s,
        }
    except (KeyError, TypeError, ValueError) as error:
        raise GuestError(f"iperf3's result lacks a field: {error}") from error


def _after(side: Mapping[str, Any], warm_up_s: float) -> list[Any]:
    """Return the intervals that lie mostly after the warm-up."""
    return [
        interval
        for interval in side["intervals"]
        if interval["sum"]["start"] + interval["sum"]["end"] > 2 * warm_up_s
    ]


def parse(output: str) -> dict[str, Any]:
    """Return the JSON object in iperf3's output, which may begin with warnings.

    Raises:
        GuestError: there is none.
    """
    try:
        result = json.loads(output[output.index("{") :])
    except ValueError as error:
        raise GuestError(f"iperf3 printed no result: {output.strip()}") from error
    if not isinstance(result, dict):
        raise GuestError("iperf3 printed no result")
    return result


def is_listening(table: str) -> bool:
    """Return whether a ``/proc/PID/net/tcp`` shows that iperf3's server listens.

    Other programs may listen in the same namespace.
    """
    rows = (line.split() for line in table.splitlines()[1:])
    return any(
        row[1].endswith(f":{PORT:04X}") and row[3] == _LISTENING for row in rows if len(row) > 3
    )


def run(
    netns: tuple[str, str],
    address: str,
    *,
    cpus: tuple[int, int],
    flows: int,
    warm_up_s: float,
    seconds: float,
    buffer_bytes: int = 0,
) -> dict[str, float]:
    """Send TCP from one namespace to the other and return the window's results.

    iperf3 takes whole seconds only, so the window may be longer than requested.

    Args:
        netns: the sender's, the receiver's.
        address: of the receiver.
        cpus: the sender's, the receiver's.
        flows: number of flows.
        warm_up_s: from the start to the window, seconds.
        seconds: length of the window, at least.
        buffer_bytes: fixed size of the socket buffers; 0: autotuning.

    Raises:
        GuestError: iperf3 is missing, failed or did not end.
    """
    sends, receives = (
        ["taskset", "--cpu-list", str(cpu), "iperf3", "-J", "-i", str(STEP_S)] for cpu in cpus
    )
    serve = in_netns(netns[1], [*receives, "-s", "-1", "-B", address])
    send = [*sends, "-c", address, "-P", str(flows)]
    send += ["-w", str(buffer_bytes)] if buffer_bytes else []
    length = math.ceil(warm_up_s + seconds)
    send = in_netns(netns[0], [*send, "-t", str(length)])
    with Service(serve, announces=False, stopped_status=FAILED) as server:
        wait_listening(server)
        with Service(send, announces=False, stopped_status=FAILED) as client:
            sent = parse(client.wait(length + END_GRACE_S))
        # A server without a client would wait for ever.
        received = sent if "error" in sent else parse(server.wait(END_GRACE_S))
    return window_metrics(sent, received, warm_up_s=warm_up_s)


def wait_listening(server: Service) -> None:
    """Wait until iperf3's server listens.

    Raises:
        GuestError: it does not within LISTEN_TIMEOUT_S.
    """
    deadline = time.monotonic() + LISTEN_TIMEOUT_S
    table = Path("/proc", str(server.pid), "net", "tcp")
    while not is_listening(table.read_text()):
        if time.monotonic() > deadline:
            raise GuestError(f"iperf3 did not listen within {LISTEN_TIMEOUT_S:g} s")
        time.sleep(STEP_S / 10)
