# SPDX-License-Identifier: GPL-2.0-only
"""The traffic programs on the loopback, and their agreement with the Python side."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nodrop.guest import kforwarder, kreader
from nodrop.guest.command import Service, parse_last_json, tool
from nodrop.guest.failure import GuestError

REPOSITORY = Path(__file__).resolve().parents[2]
TRAFFIC = REPOSITORY / "traffic"
TIMEOUT_S = 120
SLOWLY = ("--dest", "127.0.0.1", "--rate", "20")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("traffic")
    subprocess.run(
        ["make", "-s", "-C", str(TRAFFIC), f"OUT={out}", "programs", "ciphers"],
        check=True,
        timeout=TIMEOUT_S,
    )
    return out


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def result(program: Path, *arguments: str) -> dict[str, Any]:
    return parse_last_json(tool([str(program), *arguments]), program.name)


def test_what_makes_no_sense_is_refused(programs: Path) -> None:
    for name, words in (
        ("udp_sender", ""),
        ("udp_sender", "--dest nowhere"),
        ("udp_sender", "--dest 127.0.0.1 --size 1"),
        ("udp_sender", "--dest 127.0.0.1 --segments 45 --size 1472"),
        ("udp_sender", "--speed 9"),
        ("tun_reader", "--flags magic"),
        ("packet_cost", "--device 2"),
        ("packet_cost", "--device 3,4,5,6,7,8,9,10,11"),
        ("packet_cost", "--device 3,4 --local 127.0.0.1 --remote 127.0.0.1"),
        ("vhost_client", "--slots 3"),
        ("vhost_client", "--fd 0 --far-fd 9 --rate 1"),
        ("tcp_flows", "--address 127.0.0.1 --flows 65"),
    ):
        done = run(programs / name, *words.split())
        assert (done.returncode, done.stdout) == (2, ""), (name, words)


def test_udp_sender_marks_and_counts(programs: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(TIMEOUT_S)
        port = str(receiver.getsockname()[1])
        sent = result(
            programs / "udp_sender", "--dest", "127.0.0.1", "--port", port, "--packets", "20"
        )
        got = [receiver.recv(2000) for _ in range(20)]
    assert sent["sent"] == 20
    assert sent["payload_bytes"] == 20 * 64
    assert {len(packet) for packet in got} == {64}
    assert [int.from_bytes(packet[16:24], "little") for packet in got] == list(range(20))


def test_udp_sender_sends_segments(programs: Path) -> None:
    """What it gives at once is one packet, which the receiver gets in pieces."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(TIMEOUT_S)
        port = str(receiver.getsockname()[1])
        words = ["--dest", "127.0.0.1", "--port", port, "--packets", "5", "--segments", "4"]
        sent = result(programs / "udp_sender", *words)
        got = [receiver.recv(2000) for _ in range(20)]
    assert sent["sent"] == 5
    assert sent["payload_bytes"] == 5 * 4 * 64
    assert {len(packet) for packet in got} == {64}
    assert [int.from_bytes(packet[16:24], "little") for packet in got[::4]] == list(range(5))


def test_udp_sender_tells_its_class(programs: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(TIMEOUT_S)
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        port = str(receiver.getsockname()[1])
        sent = result(
            programs / "udp_sender",
            *("--dest", "127.0.0.1", "--port", port, "--packets", "5"),
            *("--senders", "2", "--first", "3", "--tos", "184", "--priority", "6"),
        )
        got = [receiver.recvmsg(2000, 100) for _ in range(10)]
    assert {int.from_bytes(packet[8:16], "little") for packet, *_ in got} == {3, 4}
    assert {data[0] for _, rest, *_ in got for _, _, data in rest} == {184}
    assert 0 < sent["cpu_seconds"] < TIMEOUT_S


def test_udp_sink_counts_what_comes_in_batches(programs: Path) -> None:
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


def test_udp_sink_counts_what_its_socket_drops(programs: Path) -> None:
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


def patiently(
    measure: Callable[[str], dict[str, Any]], whole: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Measure anew with a longer grace until it is whole: on a busy machine packets come late."""
    for grace in ("0.2", "5", "60"):
        if whole(found := measure(grace)):
            break
    return found


def stream(programs: Path, sizes: Path, *more: str) -> dict[str, Any]:
    words = ["--address", "127.0.0.1", "--port", free_port(), "--pictures", str(sizes)]
    return result(programs / "video", *words, *more)


def test_video_knows_damaged_pictures(programs: Path, tmp_path: Path) -> None:
    """What leaves in one burst is more than the receiver's socket holds."""
    sizes = tmp_path / "sizes"
    sizes.write_text("2800000\n500\n", encoding="utf-8")
    words = ["--rate", "10", "--seconds", "0.2", "--rcvbuf", "4096"]
    found = patiently(
        lambda grace: stream(programs, sizes, *words, "--grace", grace),
        lambda found: found["received"] + found["socket_drops"] == found["sent"],
    )
    assert found["pictures"] == 2
    assert found["sent"] == 2001
    assert found["received"] + found["socket_drops"] == 2001
    assert found["socket_drops"] > 0
    assert found["damaged"] == 1


def test_echo_probe_finds_its_own_echo(programs: Path) -> None:
    words = ["--address", "127.0.0.1", "--interval-us", "1000", "--seconds", "0.2"]
    found = patiently(
        lambda grace: result(
            programs / "echo_probe", *words, "--port", free_port(), "--grace", grace
        ),
        lambda found: not found["lost"],
    )
    assert found["sent"] == found["received"] == 200
    assert found["lost"] == 0
    assert 0 < found["p50_ns"] <= found["p90_ns"] <= found["p99_ns"] <= found["max_ns"]
    shares = found["distribution_ns"]
    assert list(shares.values()) == sorted(shares.values())
    told = [shares["500"], shares["900"], shares["990"], shares["999"]]
    assert told == [found[f"p{name}_ns"] for name in ("50", "90", "99", "999")]


def test_tcp_flows_count_what_arrives_in_the_window(programs: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.bind(("127.0.0.1", 0))
        port = str(holder.getsockname()[1])
    command = [str(programs / "tcp_flows"), "--address", "127.0.0.1", "--port", port]
    command += ["--flows", "3", "--size", "1000", "--warm-up", "0.1", "--seconds", "0.2"]
    for _ in range(60):
        ready, last = tool(command).splitlines()
        assert json.loads(ready) == {"ready": True}
        found = json.loads(last)
        assert found["seconds"] >= 0.2
        if found["smallest_flow_bytes"]:
            break
    assert 0 < 3 * found["smallest_flow_bytes"] <= found["bytes"]


def test_a_service_is_stopped_and_gives_its_result(programs: Path) -> None:
    sender = [str(programs / "udp_sender"), *SLOWLY, "--seconds", "30"]
    with (
        Service(sender, announces=False) as service,
        pytest.raises(GuestError),
    ):
        service.wait(0.3)  # it is to run out
    with Service([*sender[:-1], "0.2"], announces=False) as service:
        assert parse_last_json(service.wait(60), "udp_sender")["seconds"] >= 0.2


def test_a_service_that_takes_orders() -> None:
    answer = 'read order && echo "{\\"got\\": \\"$order\\"}"'
    with Service(["sh", "-c", answer], announces=False) as service:
        assert service.ask("one") == {"got": "one"}
        assert service.wait(60) == ""
    with (
        Service(["sh", "-c", "exit 0"], announces=False) as service,
        pytest.raises(GuestError),
    ):
        service.ask("two")


@pytest.mark.parametrize("module", [kreader, kforwarder])
def test_the_modules_headers_numbers(tmp_path: Path, module: ModuleType) -> None:
    name = module.__name__.rpartition(".")[2]
    flag = {"kreader": "FIFO", "kforwarder": "ONE_WAY"}[name]
    names = ("IOC_START", "IOC_READ", "IOC_STOP", f"FLAG_{flag}")
    wanted = [getattr(module, one) for one in names]
    header, prefix = f"{name}.h", f"{name.upper()}_"
    program = tmp_path / "numbers"
    program.with_suffix(".c").write_text(
        f'#include <stdio.h>\n#include "{header}"\nint main(void) {{\n'
        + "".join(
            f'printf("%u\\n", (unsigned)({prefix}{one.removeprefix("FLAG_")}));\n' for one in names
        )
        + "}\n"
    )
    subprocess.run(
        ["cc", f"-I{TRAFFIC / 'kreader'}", "-o", program, program.with_suffix(".c")],
        check=True,
        timeout=TIMEOUT_S,
    )
    out = subprocess.check_output([program], timeout=TIMEOUT_S)
    assert [int(one) for one in out.split()] == wanted


@pytest.mark.parametrize("batch", [0, 8])
def test_packet_cost_counts_what_is_read(programs: Path, batch: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        device.bind(("127.0.0.1", 0))
        words = ["--device", str(device.fileno()), "--port", str(device.getsockname()[1])]
        words += ["--local", "127.0.0.1", "--remote", "127.0.0.1", "--batch", str(batch)]
        words += ["--packets", "100", "--rounds", "3"]
        output = tool([str(programs / "packet_cost"), *words], pass_fds=[device.fileno()])
        device.setblocking(False)
        with pytest.raises(BlockingIOError):
            device.recv(1)
    loop, *rounds, whole = map(json.loads, output.splitlines())
    assert loop["loop_instructions"] == 20_000_000
    assert len(rounds) == 3
    assert all(100 <= one["delivered"] < 100 + max(1, batch) for one in rounds)
    assert all(one["ticks"] > 0 for one in rounds)
    # Two processes: the socket may have been too full.
    assert sum(one["delivered"] for one in rounds) < whole["delivered"] <= whole["sent"]
    assert whole["delivered"] == whole["sent"] or not batch


def test_packet_cost_reads_all_queues(programs: Path) -> None:
    """Each socket has a port of its own, by which the kernel chooses between the two."""
    with ExitStack() as stack:
        queues = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2)
        ]
        port = 0
        for queue in queues:
            queue.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            queue.bind(("127.0.0.1", port))
            port = queue.getsockname()[1]
        fds = [queue.fileno() for queue in queues]
        words = ["--device", ",".join(map(str, fds)), "--port", str(port), "--flows", "64"]
        words += ["--local", "127.0.0.1", "--remote", "127.0.0.1", "--batch", "64"]
        words += ["--packets", "640", "--rounds", "2"]
        output = tool([str(programs / "packet_cost"), *words], pass_fds=fds)
    *_, whole = map(json.loads, output.splitlines())
    assert whole["used_queues"] == 2
    assert whole["delivered"] == whole["sent"] >= 1280
