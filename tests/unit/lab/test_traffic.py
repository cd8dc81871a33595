# SPDX-License-Identifier: GPL-2.0-only
"""The traffic programs on the loopback device."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from guestlib.failure import GuestError
from guestlib.process import Service, parse_last_json, tool

REPOSITORY = Path(__file__).resolve().parents[3]
TRAFFIC = REPOSITORY / "guestlib/traffic"
TIMEOUT_S = 120
USED = ("udp_sender", "udp_sink")
SLOWLY = ("--dest", "127.0.0.1", "--rate", "20")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("traffic")
    # Without optimization they build in a third of the time.
    argv = ["make", "-s", "-C", str(TRAFFIC), f"OUT={out}", "CFLAGS=-O0"]
    subprocess.run([*argv, *(str(out / name) for name in USED)], check=True, timeout=TIMEOUT_S)
    return out


def result(program: Path, *arguments: str) -> dict[str, Any]:
    return parse_last_json(tool([str(program), *arguments]), program.name)


@pytest.mark.parametrize(("packets", "segments"), [(20, 1), (5, 4)])
def test_udp_sender_marks_and_counts(programs: Path, packets: int, segments: int) -> None:
    """Segments passed on at once are one packet; the receiver gets them separately."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(TIMEOUT_S)
        port = str(receiver.getsockname()[1])
        words = ["--packets", str(packets), "--segments", str(segments)]
        sent = result(programs / "udp_sender", "--dest", "127.0.0.1", "--port", port, *words)
        got = [receiver.recv(2000) for _ in range(20)]
    assert (sent["sent"], sent["payload_bytes"]) == (packets, 20 * 64)
    assert {len(packet) for packet in got} == {64}
    numbers = [int.from_bytes(packet[16:24], "little") for packet in got[::segments]]
    assert numbers == list(range(packets))


def test_udp_sink_counts_batches(programs: Path) -> None:
    port = free_port()
    with Service([str(programs / "udp_sink"), "--local", "127.0.0.1", "--port", port]) as sink:
        sent = result(
            programs / "udp_sender",
            *("--dest", "127.0.0.1", "--port", port, "--size", "100"),
            *("--packets", "96", "--batch", "32"),
        )
        came = sink.result()
    assert sent["sent"] == came["packets"] == 96
    assert came["payload_bytes"] == 9600
    assert came["socket_drops"] == 0


def test_udp_sink_counts_socket_drops(programs: Path) -> None:
    port = free_port()
    slow = [str(programs / "udp_sink"), "--local", "127.0.0.1", "--port", port]
    with Service([*slow, "--interval-us", "1000000"]) as sink:
        words = ["--dest", "127.0.0.1", "--port", port, "--size", "9000", "--packets", "640"]
        result(programs / "udp_sender", *words, "--batch", "64")
        came = sink.result()
    assert came["socket_drops"] > 0
    assert came["packets"] + came["socket_drops"] == 640


def free_port() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", 0))
        return str(holder.getsockname()[1])


def test_service_stops_with_result(programs: Path) -> None:
    sender = [str(programs / "udp_sender"), *SLOWLY, "--seconds", "30"]
    with (
        Service(sender, announces=False) as service,
        pytest.raises(GuestError),
    ):
        service.wait(0.3)  # bound: it must time out
    with Service([*sender[:-1], "0.2"], announces=False) as service:
        assert parse_last_json(service.wait(60), "udp_sender")["seconds"] >= 0.2
