# SPDX-License-Identifier: GPL-2.0-only
"""Without a kernel: the text of a frame hides differences that two kernels may have, and no others;
the page's tables.
"""

from __future__ import annotations

import shlex
import struct
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from guestlib.environment import Environment
from guestlib.packets import checksum, summed, udp
from lab.sources import REPOSITORY
from tunnels.links import HERE4, KINDS, MAC, THERE4
from tunnels.masked import Masker
from tunnels.meter import workers_ns
from tunnels.packets import VNET, ip4
from tunnels.topology import pmtu_message

HERE = Path(__file__).resolve().parents[1]
NOWHERE = Environment(Path("/out"), Path("/modules"), Path("/bin"))

LINK = MAC + bytes(6) + b"\x08\x00"
INSIDE = LINK + ip4(udp(64))
UDP_AT = 14 + 20
PLAIN = VNET.pack(0, 0, 0, 0, 0, 0)


def outer(
    ident: int, port: int, inside: bytes = INSIDE, *, df: bool = False, ttl: int = 9
) -> bytes:
    """Return a vxlan packet as on the wire, with a checksum."""
    data = struct.pack("!4H", port, 4789, 16 + len(inside), 0) + bytes((8, 0, 0, 0, 0, 0, 1, 0))
    packet = ip4(data + inside, fragment=0x4000 if df else 0, ttl=ttl, at=(HERE4, THERE4))
    packet = packet[:4] + struct.pack("!H", ident) + packet[6:10] + bytes(2) + packet[12:]
    packet = packet[:10] + struct.pack("!H", checksum(packet[:20])) + packet[12:]
    return LINK + summed(packet)


def text(*frames: bytes) -> list[str]:
    masker = Masker(KINDS["vxlan"])
    return [masker.line(frame, PLAIN) for frame in frames]


def test_id_and_port_may_differ() -> None:
    assert text(outer(77, 40001)) == text(outer(78, 50002))


def test_nothing_else_may_differ() -> None:
    stock = text(outer(77, 40001))
    for at in range(len(outer(77, 40001))):
        frame = bytearray(outer(77, 40001))
        frame[at] ^= 0x12
        assert text(bytes(frame)) != stock, at
    for other in (
        outer(77, 40001, ttl=8),
        outer(77, 40001, df=True),
        outer(77, 40001, INSIDE + b"\0"),
    ):
        assert text(other) != stock


def test_shared_ids_and_ports() -> None:
    assert text(outer(1, 4), outer(1, 4)) == text(outer(2, 5), outer(2, 5))
    assert text(outer(1, 4), outer(1, 4)) != text(outer(1, 4), outer(2, 4))
    assert text(outer(1, 4), outer(1, 4)) != text(outer(1, 4), outer(1, 5))


def test_an_id_with_df_is_seen() -> None:
    assert "df:0" in text(outer(0, 4, df=True))[0]
    assert " df:1" in text(outer(9, 4, df=True))[0]
    segments = Masker(KINDS["vxlan"], gso=True)
    assert "gso-df:1" in segments.line(outer(9, 4, df=True), PLAIN)


def test_icmp_message_about_a_smaller_mtu() -> None:
    sent = pmtu_message("198.18.4.1", "198.18.4.2", 1400)
    assert checksum(sent) == 0
    assert sent[:2] == b"\x03\x04"
    assert int.from_bytes(sent[6:8]) == 1400
    # About an echo reply: the kernel accepts that without a socket.
    assert sent[8 + 9] == 1
    assert sent[8 + 20] == 0


def _table(name: str) -> list[str]:
    lines = (HERE / f"results/{name}/table.md").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith(("|", "**Tunnels:"))]


def test_page_has_the_tables_of_the_results() -> None:
    names = ("instructions", "churn", "cycles", "throughput")
    wanted = [line for name in names for line in _table(name)]
    page = (HERE / "README.md").read_text(encoding="utf-8").splitlines()
    first = page.index(wanted[0])
    assert [line for line in page[first:] if line.startswith(("|", "**Tunnels:"))] == wanted


def test_a_check_runs_each_test() -> None:
    """scripts/checks.toml selects the tests of guests by words in their names."""
    checks = tomllib.loads((REPOSITORY / "scripts/checks.toml").read_text())["check"].values()
    file = "tunnels/tests/test_guests.py"
    words = [shlex.split(check["run"]) for check in checks if file in check["run"]]
    rest = " and ".join(f"not ({run[run.index('-k') + 1]})" for run in words)
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", file, "-k", rest]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout


def test_worker_that_ends_is_left_out(tmp_path: Path) -> None:
    for pid, name in ((1, "kworker/0:1"), (2, "ksoftirqd/0"), (3, "kworker/1:0"), (4, "sh")):
        (tmp_path / f"{pid}").mkdir()
        (tmp_path / f"{pid}/comm").write_text(f"{name}\n")
        if pid != 3:
            (tmp_path / f"{pid}/schedstat").write_text(f"{pid}000 5 6\n")
    assert workers_ns(tmp_path) == 3000
