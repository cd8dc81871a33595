# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop test``: arguments, results, what it restores; its traffic over the loopback device.

proof/programs/cmd_test.py has it with a slow reader.
"""

from __future__ import annotations

import io
import ipaddress
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from errno import EACCES, EHOSTUNREACH, EMSGSIZE, ENOPROTOOPT
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hosts import NAME, raw
from schema import answer

from nodrop.cli import main
from nodrop.commands import test as command
from nodrop.errors import NodropError, interrupt_on_signals
from nodrop.host import procfs, settings
from nodrop.host.rtnetlink import Requests
from nodrop.host.settings import Switch
from nodrop.traffic import echo, load
from nodrop.traffic.sockets import connected

Capture = pytest.CaptureFixture[str]
PEER = ("test", NAME, "10.1.2.3")
LOOPBACK = socket.if_nametoindex("lo")
LOCAL = [ipaddress.ip_address(one) for one in ("127.0.0.1", "::1")]


class EchoHost:
    """The recorded machine with nodrop's driver, and echo replies.

    Attributes:
        trips: of each measurement.
        switched: values of the flag, in order.
        at_phase: called at the start of each phase.
    """

    def __init__(self) -> None:
        self.raw = raw("nodrop")
        self.index: int = self.raw.namespaces[0].links[0]["ifindex"]
        self.route = self.index
        self.trips: list[float | None] = [1.0, 3.0, None, 2.0]
        self.switched: list[bool] = []
        self.exists = True

    def at_phase(self) -> None:
        pass

    def phase(self, *_: object) -> dict[str, Any]:
        self.at_phase()
        before = vars(self.raw.namespaces[0])
        link = dict(before["links"][0])
        stats = link["stats64"]
        grown = {"packets": 100, "bytes": 10**6, "dropped": 7}
        tx = {name: count + grown.get(name, 0) for name, count in stats["tx"].items()}
        link["stats64"] = {**stats, "tx": tx}
        after = {**before, "links": [link], "time_s": before["time_s"] + 2}
        return {"before": before, "after": after, "trips": self.trips, "done": 125_000}

    def turn(self, _where: str | None, _name: str, on: bool) -> None:
        self.switched.append(on)

    def name(self, _index: int) -> str:
        if not self.exists:
            raise OSError(6, "No such device or address")
        return NAME


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EchoHost:
    made = EchoHost()
    monkeypatch.setattr(command, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(command, "read", lambda _: made.raw)
    monkeypatch.setattr(command, "_phase", made.phase)
    monkeypatch.setattr(command, "round_trips", lambda *_: made.trips)
    monkeypatch.setattr(Requests, "route", lambda *_: made.route)
    monkeypatch.setattr(procfs, "capable", lambda _: True)
    monkeypatch.setattr(settings, "read_switches", lambda *_: [Switch(NAME, True, False, False)])
    monkeypatch.setattr(settings, "turn", made.turn)
    monkeypatch.setattr(socket, "if_indextoname", made.name)
    return made


def test_results(host: EchoHost, capsys: Capture) -> None:
    data = answer(capsys, *PEER, "--yes", "--tcp", "5001")
    phase = data["phases"][1]
    assert [one["backpressure"] for one in data["phases"]] == ["off", "on", "off"]
    assert (phase["round_trip_p50_ms"], phase["round_trip_p99_ms"]) == (2.0, 3.0)
    assert (phase["lost_echoes"], phase["duration_s"]) == (1, 2.0)
    assert (phase["delivered_packets"], phase["delivered_mbit_per_s"]) == (100, 4.0)
    assert phase["driver_dropped_packets"] == 7
    assert (phase["acked_mbit_per_s"], phase["offered_packets"]) == (0.5, None)
    assert host.switched == [False, True, False, True]
    data = answer(capsys, *PEER, "--yes")
    phase = data["phases"][0]
    assert (phase["acked_mbit_per_s"], phase["offered_packets"]) == (None, 125_000)


def test_progress_shows_the_phase_that_runs(host: EchoHost, capsys: Capture) -> None:
    shown: list[str] = []

    def show() -> None:
        shown.append(capsys.readouterr().err.splitlines()[-1])

    host.at_phase = show  # type: ignore[method-assign]
    assert main([*PEER, "--yes"]) == 0
    assert [line for line in shown if "done" in line] == []
    assert [one in line for one, line in zip(command.PHASES, shown, strict=True)] == [True] * 3


def test_bars(host: EchoHost, capsys: Capture) -> None:
    host.trips = [1.0, None]
    assert main([*PEER, "--yes"]) == 0
    out, err = capsys.readouterr()
    assert out.count("#" * command._BAR) == 4 + 4 + 4 + 3 + 3
    assert "10.1.2.3" in err, "it says what it will do"
    assert main(["-q", *PEER, "--yes"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("test", NAME), 2),
        (("test", NAME, "peer.example", "--yes"), 2),
        (("test", NAME, "224.0.0.1", "--yes"), 2),
        ((*PEER, "--yes", "--tcp", "65536"), 2),
        ((*PEER, "--yes", "--rate", "1" * 400), 2),
        ((*PEER, "--yes", "--tcp", "1", "--rate", "1"), 2),
        ((*PEER, "--yes", "--seconds", "0.1"), 2),
        (PEER, 2),
    ],
)
def test_wrong_arguments(
    host: EchoHost, words: tuple[str, ...], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main(words) == status
    assert host.switched == []


def test_refusals(host: EchoHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(status: int = 1) -> bool:
        return main([*PEER, "--yes"]) == status and host.switched == []

    host.route = host.index + 1
    assert refused()
    host.route = host.index
    host.trips = [None, None]
    assert refused()
    host.trips = [1.0]
    with command._alone():
        assert refused()
    for flags in (["LOWER_UP"], ["UP"]):
        link = {**host.raw.namespaces[0].links[0], "flags": flags}
        host.raw.namespaces[0].links[:] = [link]
        assert refused()
    monkeypatch.setattr(settings, "read_switches", lambda *_: [Switch(NAME, None, False, False)])
    assert refused(4)
    monkeypatch.undo()
    monkeypatch.setattr(settings, "read_switches", lambda *_: [Switch(NAME, True, False, False)])
    monkeypatch.setattr(procfs, "capable", lambda _: False)
    assert refused()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_restores_after_signals(
    host: EchoHost, number: int, monkeypatch: pytest.MonkeyPatch, handlers: None
) -> None:
    """Also if another one arrives while it restores."""
    assert handlers is None

    def turn(_where: str | None, _name: str, on: bool) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        host.switched.append(on)

    def interrupt() -> None:
        monkeypatch.setattr(settings, "turn", turn)
        os.kill(os.getpid(), number)
        time.sleep(60)

    host.at_phase = interrupt  # type: ignore[method-assign]
    assert main([*PEER, "--yes"]) == 130
    assert host.switched == [False, True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def handlers() -> Iterator[None]:
    numbers = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    interrupt_on_signals()
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_interrupt_just_before_it_restores(host: EchoHost, monkeypatch: pytest.MonkeyPatch) -> None:
    real = signal.signal
    sent: list[int] = []

    def late(number: int, handler: Any) -> Any:
        if handler is signal.SIG_IGN and not sent:
            sent.append(number)
            os.kill(os.getpid(), signal.SIGINT)
        return real(number, handler)

    monkeypatch.setattr(signal, "signal", late)
    assert main([*PEER, "--yes"]) == 130
    assert host.switched == [False, True, False, True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("typed", "status"), [("y\n", 0), ("\n", 1), ("", 1)])
def test_asks(
    host: EchoHost, typed: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    terminal = io.StringIO(typed)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    assert main(PEER) == status
    assert "[y/N]" in capsys.readouterr().err
    assert len(host.switched) == (0 if status else 4)


def test_restores_after_errors(host: EchoHost) -> None:
    def fail(error: Exception) -> None:
        raise error

    for error in (NodropError("It broke."), OSError(1, "No permission")):
        host.switched = []
        host.at_phase = partial(fail, error)  # type: ignore[method-assign]
        assert main([*PEER, "--yes"]) == 1
        assert host.switched == [False, True]


def test_deleted_device(host: EchoHost) -> None:
    """A new device may have its name: it must not be switched."""

    def delete() -> None:
        host.exists = False

    host.at_phase = delete  # type: ignore[method-assign]
    assert main([*PEER, "--yes"]) == 1
    assert host.switched == [False]


@pytest.mark.parametrize("version", [4, 6])
def test_echo_messages(version: int) -> None:
    head = b"\x45" + bytes(19) if version == 4 else b""
    sent = echo.request(version, 0x1234, 7)
    if version == 4:
        words = [int.from_bytes(sent[at : at + 2], "big") for at in range(0, len(sent), 2)]
        assert sum(words) % 0xFFFF == 0, "checksum"
    came = bytes([0 if version == 4 else 129]) + sent[1:]
    assert echo.reply(version, 0x1234, head + came) == 7
    for identifier, packet in ((0x1234, sent), (0x1235, came), (0x1234, came[:7]), (0x1234, b"")):
        assert echo.reply(version, identifier, head + packet) is None
    assert echo.reply(version, 0x1234, b"") is None


def here(address: Any) -> Any:
    """Skip the test if this machine lacks the address or the permission."""
    try:
        return echo.round_trips(LOOPBACK, address, 0.1)
    except OSError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("address", LOCAL)
def test_echoes_and_udp_of_the_loopback(address: Any) -> None:
    trips = here(address)
    assert trips.count(None) == 0
    begun = time.monotonic()
    sock = connected(LOOPBACK, address, socket.SOCK_DGRAM, port=load.DISCARD)
    with sock, load.running(partial(load.udp, 12), sock, 60) as control:
        while control.done < 100:
            time.sleep(0.001)
        # 1000 datagrams a second at most, and what it may be ahead.
        assert control.done <= (time.monotonic() - begun) * 1000 + 10


def test_udp_goes_on_after_icmp_errors() -> None:
    """A firewall may refuse the port in many ways, and a router the length."""
    control = load.Control()
    control._parent = os.getppid()  # it runs in this process
    answers = [EHOSTUNREACH, EACCES, ENOPROTOOPT, EMSGSIZE]
    lengths: list[int] = []

    def send(data: bytes) -> None:
        lengths.append(len(data))
        if answers and len(lengths) % 2:
            raise OSError(answers.pop(0), "answer")
        if len(lengths) > 20:
            control.end()

    sock = Mock(family=socket.AF_INET, send=send, getsockopt=lambda *_: 1400 if lengths else 1500)
    load.udp(1000, sock, control)
    assert control.done > 10
    assert lengths[-1] < lengths[0]
    control._shared[0] = 0
    sock.send = Mock(side_effect=OSError(EHOSTUNREACH, "no route"))
    with pytest.raises(OSError, match="no route"):
        load.udp(1000, sock, control)


def test_a_phase_waits_for_the_packets_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first had no time for a request.
    trips = [[], [None], [900.0], [30.0], [19.0], [1.0]]
    monkeypatch.setattr(command, "round_trips", lambda *_: trips.pop(0))
    command._drain(Mock(), LOCAL[0], 10.0)
    assert trips == [[1.0]]


def test_tcp_of_the_loopback() -> None:
    address = LOCAL[0]
    here(address)
    with socket.create_server((str(address), 0)) as server:
        port: int = server.getsockname()[1]

        def take() -> None:
            client, _ = server.accept()
            with client, suppress(ConnectionError):
                while client.recv(65536):
                    pass

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        sock = connected(LOOPBACK, address, socket.SOCK_STREAM, port=port)
        with sock, load.running(load.tcp, sock, 60) as control:
            while control.done < 1 << 20:
                time.sleep(0.001)
        thread.join()


def test_peer_that_closes_the_connection() -> None:
    address = LOCAL[0]
    here(address)
    with socket.create_server((str(address), 0)) as server:
        port: int = server.getsockname()[1]
        with connected(LOOPBACK, address, socket.SOCK_STREAM, port=port) as sock:
            server.accept()[0].close()
            with pytest.raises(ConnectionError), load.running(load.tcp, sock, 60):
                time.sleep(0.5)


def test_route() -> None:
    with Requests() as requests:
        assert requests.route(LOCAL[0].packed) == 0, "a local address"
