# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from nodrop.guest.failure import GuestError
from nodrop.guest.iperf import goodput, listens, retransmits, wait_listening


def report(rates_mbit: list[float], **more: Any) -> str:
    intervals = [
        {
            "sum": {
                "start": index * 0.1,
                "end": (index + 1) * 0.1,
                "seconds": 0.1,
                "bytes": int(rate * 1e6 / 8 * 0.1),
                "retransmits": 2,
            }
        }
        for index, rate in enumerate(rates_mbit)
    ]
    return json.dumps({"intervals": intervals, **more})


def test_only_the_window_counts() -> None:
    text = report([9000, 9000, 9000, 100, 200, 300, 9000])
    found = goodput(text, skip_s=0.3, window_s=0.3)
    assert found.mbit_per_s == pytest.approx(200)
    assert found.window_s == pytest.approx(0.3)


def test_retransmits_of_the_whole_connection() -> None:
    assert retransmits(report([1, 1, 1], error="interrupt")) == 6


def test_a_window_without_intervals() -> None:
    with pytest.raises(GuestError, match="do not cover"):
        goodput(report([1, 1]), skip_s=5, window_s=1)


@pytest.mark.parametrize("text", ["", "[]", '{"error": "unable to connect"}'])
def test_no_result(text: str) -> None:
    with pytest.raises(GuestError, match="iperf3"):
        retransmits(text)


def test_listens() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert not listens(Path("/proc/net/tcp").read_text(), port)
        server.listen()
        assert listens(Path("/proc/net/tcp").read_text(), port)


def test_a_server_that_is_gone_is_not_waited_for() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(GuestError, match="does not listen"):
        wait_listening(child)
