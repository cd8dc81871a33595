# SPDX-License-Identifier: GPL-2.0-only
"""The traffic programs on the loopback, and their agreement with the Python side."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodrop.guest import kforwarder, kreader
from nodrop.guest.command import Service, parse_last_json, tool
from nodrop.guest.failure import GuestError

REPOSITORY = Path(__file__).resolve().parents[2]
TRAFFIC = REPOSITORY / "traffic"
TIMEOUT_S = 120
PROGRAMS = ("echo_probe", "forwarder", "tcp_flows", "tun_reader", "udp_sender", "vhost_client")
SLOWLY = ("--dest", "127.0.0.1", "--rate", "20")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("traffic")
    subprocess.run(
        ["make", "-s", "-C", str(TRAFFIC), f"OUT={out}", "programs"], check=True, timeout=TIMEOUT_S
    )
    return out


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def result(program: Path, *arguments: str) -> dict[str, Any]:
    return parse_last_json(tool([str(program), *arguments]), program.name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_fits_a_screen(programs: Path, name: str) -> None:
    done = run(programs / name, "--help")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("udp_sender", [], "--dest is required"),
        ("udp_sender", ["--dest", "nowhere"], "IPv4 address"),
        ("udp_sender", ["--dest", "127.0.0.1", "--size", "1"], "--size must be"),
        ("udp_sender", ["--seconds", "-1"], "seconds"),
        ("udp_sender", ["--speed", "9"], "unknown option --speed"),
        ("tun_reader", ["--mode", "bridge"], "tun or tap"),
        ("tun_reader", ["--flags", "magic"], "unknown flag 'magic'"),
        ("echo_probe", ["--address"], "needs a value"),
        ("forwarder", ["now"], "unexpected argument"),
        ("vhost_client", ["--slots", "3"], "a power of two"),
        ("vhost_client", ["--rate"], "needs a value"),
        ("tcp_flows", ["--flows", "2"], "--address is required"),
        ("tcp_flows", ["--address", "127.0.0.1", "--flows", "65"], "--flows must be"),
    ],
)
def test_usage(programs: Path, name: str, arguments: list[str], says: str) -> None:
    done = run(programs / name, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"{name}: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_udp_sender_marks_and_counts(programs: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        port = str(receiver.getsockname()[1])
        sent = result(
            programs / "udp_sender", "--dest", "127.0.0.1", "--port", port, "--packets", "20"
        )
        got = [receiver.recv(2000) for _ in range(20)]
    assert sent["sent"] == 20
    assert sent["payload_bytes"] == 20 * 64
    assert {len(packet) for packet in got} == {64}
    assert [int.from_bytes(packet[16:24], "little") for packet in got] == list(range(20))


def test_udp_sender_keeps_its_rate(programs: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        port = str(receiver.getsockname()[1])
        sent = result(
            programs / "udp_sender",
            *("--dest", "127.0.0.1", "--port", port),
            *("--rate", "200", "--seconds", "0.5", "--senders", "2"),
        )
    assert 150 <= sent["sent"] <= 202


def test_echo_probe_finds_its_own_echo(programs: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", 0))
        port = str(holder.getsockname()[1])
    found = result(
        programs / "echo_probe",
        *("--address", "127.0.0.1", "--port", port),
        *("--interval-us", "1000", "--seconds", "0.2", "--grace", "0.2"),
    )
    assert found["sent"] == found["received"] == 200
    assert found["lost"] == 0
    assert 0 < found["p50_ns"] <= found["p90_ns"] <= found["p99_ns"] <= found["max_ns"]


def test_tcp_flows_count_what_arrives_in_the_window(programs: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.bind(("127.0.0.1", 0))
        port = str(holder.getsockname()[1])
    command = [str(programs / "tcp_flows"), "--address", "127.0.0.1", "--port", port]
    command += ["--flows", "3", "--size", "1000", "--warm-up", "0.1", "--seconds", "0.2"]
    ready, last = tool(command).splitlines()
    assert json.loads(ready) == {"ready": True}
    found = json.loads(last)
    assert 0.2 <= found["seconds"] < 1
    assert 0 < 3 * found["smallest_flow_bytes"] <= found["bytes"]


def test_a_service_is_stopped_and_gives_its_result(programs: Path) -> None:
    sender = [str(programs / "udp_sender"), *SLOWLY, "--seconds", "30"]
    with (
        Service(sender, announces=False) as service,
        pytest.raises(GuestError, match="did not end"),
    ):
        service.wait(0.3)
    with Service([*sender[:-1], "0.2"], announces=False) as service:
        assert parse_last_json(service.wait(10), "udp_sender")["seconds"] >= 0.2


def test_a_service_is_given_time_and_then_stopped(programs: Path) -> None:
    for seconds, grace in (("0.2", 20.0), ("60", 0.3)):
        sender = [str(programs / "udp_sender"), *SLOWLY, "--seconds", seconds]
        with Service(sender, announces=False) as service:
            assert parse_last_json(service.finish(grace), "udp_sender")["seconds"] < 30


def test_a_service_that_fails_says_why(programs: Path) -> None:
    with (
        pytest.raises(GuestError, match="unknown flag"),
        Service([str(programs / "tun_reader"), "--flags", "magic"]),
    ):
        pass


def test_a_service_that_takes_orders() -> None:
    answer = 'read order && echo "{\\"got\\": \\"$order\\"}"'
    with Service(["sh", "-c", answer], announces=False) as service:
        assert service.ask("one") == {"got": "one"}
        assert service.wait(10) == ""
    with (
        Service(["sh", "-c", "exit 0"], announces=False) as service,
        pytest.raises(GuestError, match=r"without a result|takes no orders"),
    ):
        service.ask("two")


def header_numbers(tmp_path: Path, header: str, *names: str) -> list[int]:
    """The values of a header's constants, as the compiler sees them."""
    program = tmp_path / "numbers"
    program.with_suffix(".c").write_text(
        f'#include <stdio.h>\n#include "{header}"\nint main(void) {{\n'
        + "".join(f'printf("%u\\n", (unsigned)({name}));\n' for name in names)
        + "}\n"
    )
    subprocess.run(
        ["cc", f"-I{TRAFFIC / 'kreader'}", "-o", program, program.with_suffix(".c")],
        check=True,
        timeout=TIMEOUT_S,
    )
    return [int(line) for line in subprocess.check_output([program], timeout=TIMEOUT_S).split()]


def test_kreader_has_the_headers_numbers(tmp_path: Path) -> None:
    names = [f"KREADER_{name}" for name in ("IOC_START", "IOC_READ", "IOC_STOP", "FIFO")]
    wanted = [kreader.IOC_START, kreader.IOC_READ, kreader.IOC_STOP, kreader.FLAG_FIFO]
    assert header_numbers(tmp_path, "kreader.h", *names) == wanted


def test_kforwarder_has_the_headers_numbers(tmp_path: Path) -> None:
    names = [f"KFORWARDER_{name}" for name in ("IOC_START", "IOC_READ", "IOC_STOP", "ONE_WAY")]
    wanted = [
        kforwarder.IOC_START,
        kforwarder.IOC_READ,
        kforwarder.IOC_STOP,
        kforwarder.FLAG_ONE_WAY,
    ]
    assert header_numbers(tmp_path, "kforwarder.h", *names) == wanted
