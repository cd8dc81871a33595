# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop set DEV qdisc`` and its service without a kernel: when it acts, systemd, arguments.

proof/programs/cmd_qdisc.py has them with real devices.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from schema import answer
from stubs import before, programs, write

from nodrop.cli import main
from nodrop.commands import set_qdisc as command
from nodrop.errors import NodropError
from nodrop.host import qdisc, settings, system
from nodrop.host.qdisc import QdiscRules
from nodrop.host.rtnetlink import Link, Requests
from nodrop.host.settings import Switch

Capture = pytest.CaptureFixture[str]
ON, FORGET = ("qdisc", "fq_codel"), ("qdisc", "default")
ENABLE, DISABLE = (f"systemctl {verb} --now nodrop-qdisc.service" for verb in ("enable", "disable"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with systemd and the service, whose devices are vnet0 and eth0."""
    links = [Link(1, "vnet0", "tun", "pfifo", 1), Link(2, "vnet1", "bridge", "noqueue", 1)]
    monkeypatch.setattr(command, "QdiscRules", lambda: QdiscRules(tmp_path))
    monkeypatch.setattr(command, "_links", lambda _: links)
    monkeypatch.setattr(command, "_ours", lambda _: False)
    read = {"vnet0": Switch("vnet0", True, False, False)}
    monkeypatch.setattr(settings, "read_switches", lambda _, names: [read[name] for name in names])
    wants = f"{tmp_path}/etc/systemd/system/multi-user.target.wants"
    stub = f"""mkdir -p {wants}; case $1 in is-active) test ! -e {tmp_path}/stopped ;;
    enable) ln -sf x {wants}/$3; rm -f {tmp_path}/stopped ;; *) rm {wants}/$3 ;; esac"""
    programs(tmp_path / "bin", {"systemctl": stub})
    monkeypatch.setenv("PATH", before(tmp_path / "bin"))
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    write(tmp_path / "usr/lib/systemd/system/nodrop-qdisc.service")
    return tmp_path


def test_kept_qdiscs_enable_the_service(root: Path, capsys: Capture) -> None:
    dry = answer(capsys, "set", "--dry-run", "vnet*", *ON)
    data = answer(capsys, "set", "vnet*", *ON)
    assert dry["actions"] == data["actions"]
    assert data["actions"][1:] == [ENABLE]
    assert (dry["kept"], data["kept"]) == ({}, {"vnet*": "fq_codel"})
    (device,) = data["devices"]
    assert (device["name"], device["was"], device["now"]) == ("vnet0", "pfifo", "pfifo")
    assert answer(capsys, "set", "vnet*", *ON)["actions"] == []
    assert answer(capsys, "set", "vnet7", "qdisc", "off")["kept"]["vnet7"] == "off"
    assert QdiscRules(root).read() == {"vnet*": True, "vnet7": False}
    assert answer(capsys, "set", "vnet*", *FORGET)["actions"][1:] == [DISABLE]
    assert answer(capsys, "set", "vnet7", *FORGET)["kept"] == {}
    assert not (root / qdisc.FILE).exists()


def test_service_that_was_stopped_starts_again(root: Path, capsys: Capture) -> None:
    assert main(["-q", "set", "vnet*", *ON]) == 0
    capsys.readouterr()
    write(root / "stopped")
    assert answer(capsys, "set", "vnet*", *ON)["actions"] == [ENABLE]
    assert not (root / "stopped").exists()


def test_kernel_without_the_qdisc(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert root

    def lacks(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(command, "_links", lambda _: [Link(1, "vnet0", "tun", "noqueue", 1)])
    monkeypatch.setattr(Requests, "replace_root", lacks)
    assert main(["set", "--now", "vnet0", *ON]) == 4


def test_file_is_a_link(root: Path) -> None:
    (root / "etc").mkdir(exist_ok=True)
    (root / "real").mkdir()
    (root / qdisc.FILE).symlink_to(root / "real/kept")
    assert main(["set", "vnet*", *ON]) == 0
    assert (root / qdisc.FILE).is_symlink()
    assert QdiscRules(root).read() == {"vnet*": True}
    (root / qdisc.FILE).unlink()
    (root / qdisc.FILE).symlink_to(root / qdisc.FILE)
    assert main(["set", "vnet*", *ON]) == 1, "a link to itself"
    assert system.read(root).qdisc_rules_unread


@pytest.mark.usefixtures("root")
def test_pattern_without_a_device() -> None:
    """Bridges do not count; without --now the setting is kept for later devices."""
    for pattern in ("z*", "vnet1*"):
        assert main(["set", "--now", "vnet0", pattern, *ON]) == 1
    assert main(["set", "--now", "vnet*", *ON]) == 0
    assert main(["set", "z*", *ON]) == 0


def test_alternative_name(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """The service matches the device's name only."""
    found, long = Requests.named, "a-longer-name-of-vnet0"

    def named(requests: Requests, name: str) -> Link:
        return Link(1, "vnet0", "tun", "pfifo", 1) if name == long else found(requests, name)

    monkeypatch.setattr(Requests, "named", named)
    data = answer(capsys, "set", "--now", long, "vnet0", *ON)
    assert [device["name"] for device in data["devices"]] == ["vnet0"]
    assert answer(capsys, "set", long, "tap7", *ON)["kept"] == dict.fromkeys(
        ("vnet0", "tap7"), "fq_codel"
    )
    assert QdiscRules(root).read() == {"vnet0": True, "tap7": True}
    with Requests() as requests:
        assert requests.named("lo").kind == ""


def test_another_network_namespace(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service does not give its devices kept qdiscs; a kept one can be forgotten."""
    monkeypatch.setattr(settings, "elsewhere", lambda: True)
    assert main(["set", "vnet0", *ON]) == 4
    assert main(["set", "--dry-run", "vnet0", "qdisc", "off"]) == 4
    assert not (root / qdisc.FILE).exists()
    assert main(["set", "--now", "vnet0", *ON]) == 0
    assert main(["set", "vnet0", *FORGET]) == 0


def test_service_that_does_not_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As doctor sees it; without systemd another init may run it."""
    assert main(["set", "vnet*", *ON]) == 0
    stub = 'case $1 in is-active) exit "$(cat $HOST/status)"; esac'
    programs(root / "bin", {"systemctl": stub})
    monkeypatch.setenv("HOST", str(root))
    for status, obstacle in (("0", ""), ("3", "dead"), ("1", "")):
        write(root / "status", status)
        assert system.read(root).qdisc_obstacle == obstacle
    (root / "etc/systemd/system/multi-user.target.wants/nodrop-qdisc.service").unlink()
    assert system.read(root).qdisc_obstacle == "disabled"
    (root / "run/systemd/system").rmdir()
    found = system.read(root)
    assert (found.qdisc_rules, found.qdisc_obstacle) == ({"vnet*": True}, "")
    write(root / qdisc.FILE, "other\n")
    assert system.read(root).qdisc_rules_unread
    assert main(["set", "vnet*", *FORGET]) == 1


def test_without_systemd(root: Path, capsys: Capture) -> None:
    (root / "run/systemd/system").rmdir()
    assert main(["set", "vnet*", *ON]) == 0
    assert "keep-qdiscs" in capsys.readouterr().out
    assert QdiscRules(root).read() == {"vnet*": True}


@pytest.mark.parametrize(
    "words",
    [
        ("vnet0", "qdisc", "on"),
        ("--now", "vnet0", *FORGET),
        ("--default", *ON),
        ("-n", "blue", "vnet0", *ON),
        ON,
    ],
)
def test_wrong_arguments(root: Path, words: tuple[str, ...]) -> None:
    assert main(["set", *words]) == 2
    assert not (root / qdisc.FILE).exists()


class FakeRtnetlink:
    """Events and requests: the root qdisc of a device changes, at last without a further event.

    Args:
        states: its kinds, one for each event; the test ends when the device's qdisc is read, if
            that is not noqueue.
    """

    def __init__(self, *states: str) -> None:
        self._reader, self._writer = os.pipe()
        self._states = iter(states)
        self._now = "noop"
        self.set: list[str] = []
        os.write(self._writer, b"x" * len(states))

    def __enter__(self) -> FakeRtnetlink:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)

    def fileno(self) -> int:
        return self._reader

    def read(self) -> set[int]:
        os.read(self._reader, 1)
        self._now = next(self._states)
        return {1}

    def links(self) -> list[Link]:
        return []

    def link(self, index: int) -> Link:
        if self._now != "noqueue":
            raise KeyboardInterrupt
        return Link(index, "vnet0", "tun", self._now, 1)

    def replace_root(self, _index: int, kind: str, _handle: int, options: object) -> None:
        assert options == qdisc.OPTIONS.get(kind)
        self.set.append(kind)


def test_options_follow_the_kind() -> None:
    """As linux/pkt_sched.h has it; proof/programs/cmd_qdisc.py asks a kernel."""
    requests = Mock()
    requests._ask.return_value = ()
    Requests.replace_root(requests, 7, "fq_codel", qdisc.HANDLE, qdisc.OPTIONS["fq_codel"])
    Requests.replace_root(requests, 7, "mq", qdisc.HANDLE, None)
    head = struct.pack("=BxxxiIII", 0, 7, 0x6E640000, 0xFFFFFFFF, 0)
    options = struct.pack("=HHHHIHHI", 20, 2, 8, 1, 30_000, 8, 3, 300_000)
    assert [call.args[2] for call in requests._ask.call_args_list] == [
        head + b"\x0d\0\x01\0fq_codel\0\0\0\0" + options,
        head + b"\x07\0\x01\0mq\0\0",
    ]


class KeepQdiscs:
    """The service on a fake kernel, until it changes a device."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._patch = root, monkeypatch
        self.log: list[str] = []

    def line(self, text: str) -> None:
        self.log.append(text)
        if text.startswith("vnet0: "):
            raise KeyboardInterrupt

    def run(self, kernel: FakeRtnetlink) -> list[str]:
        """Return the qdiscs that it has set."""
        self._patch.setattr(qdisc, "Events", lambda: kernel)
        self._patch.setattr(qdisc, "Requests", lambda: kernel)
        with pytest.raises(KeyboardInterrupt):
            qdisc.keep(self.line, self.root)
        return kernel.set


@pytest.fixture
def service(root: Path, monkeypatch: pytest.MonkeyPatch) -> KeepQdiscs:
    QdiscRules(root).keep(["vnet*"], True)
    return KeepQdiscs(root, monkeypatch)


@pytest.mark.parametrize(
    ("states", "wanted"),
    [(("noqueue",), ["fq_codel"]), (("noqueue", "pfifo_fast", "htb"), [])],
)
def test_service_waits_until_a_device_is_calm(
    service: KeepQdiscs, states: tuple[str, ...], wanted: list[str]
) -> None:
    """libvirt sets noqueue, and may then delete the root qdisc and add a shaper."""
    with closing(FakeRtnetlink(*states)) as kernel:
        assert service.run(kernel) == wanted


def test_service_on_a_kernel_without_the_qdisc(service: KeepQdiscs) -> None:
    with closing(FakeRtnetlink("noqueue")) as kernel:
        kernel.replace_root = Mock(side_effect=FileNotFoundError(2, "No"))  # type: ignore[method-assign]
        service.run(kernel)
    assert "fq_codel" in service.log[-1]


def test_service_does_not_wait_for_ever(
    service: KeepQdiscs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that comes and goes changes the carrier all the time."""
    clock = itertools.count(step=0.01)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with closing(FakeRtnetlink(*["noqueue"] * 2000)) as kernel:
        assert service.run(kernel) == ["fq_codel"]
        assert next(kernel._states, None) == "noqueue", "events are left"


def cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let the next reads fail but the one at the start; return when the file is read."""
    read, times = QdiscRules.read, list[float]()

    def fail(file: QdiscRules) -> dict[str, bool]:
        times.append(time.monotonic())
        if 1 < len(times) < 5:
            raise NodropError("It cannot be read.")
        return read(file)

    monkeypatch.setattr(QdiscRules, "read", fail)
    return times


def test_settings_that_cannot_be_read_for_a_moment(
    service: KeepQdiscs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device keeps waiting for them."""
    cannot_be_read(monkeypatch)
    monkeypatch.setattr(qdisc, "RETRY_S", 0.01)
    with closing(FakeRtnetlink("noqueue")) as kernel:
        assert service.run(kernel) == ["fq_codel"]
    assert service.log[:-1] == ["It cannot be read."], "once"


def test_events_do_not_make_it_read_again(
    service: KeepQdiscs, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(step=0.01)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    times = cannot_be_read(monkeypatch)
    with closing(FakeRtnetlink(*["noqueue"] * 2000)) as kernel:
        assert service.run(kernel) == ["fq_codel"]
    assert len(times) == 5
    assert min(b - a for a, b in itertools.pairwise(times[1:])) >= qdisc.RETRY_S
