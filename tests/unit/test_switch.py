# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop enable`` and ``disable``: what is done and what is refused.

proof/programs/cmd_switch has them with a real kernel; here is what a guest cannot have.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from schema import answer
from stubs import write

from nodrop.cli import main
from nodrop.commands import switch as command
from nodrop.errors import NodropError
from nodrop.host import ethtool
from nodrop.host.default import MADE, Default
from nodrop.shell import quote

RELEASE = "6.12.1-test"
PARAMETER = "sys/module/tun/parameters/nodrop"
Capture = pytest.CaptureFixture[str]


class Host:
    """A machine with devices: name -> whether it is on; None: the kernel's own driver."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.devices: dict[str, bool | None] = {"tun0": True, "tap1": False}
        self.refused: dict[str, int] = {}
        """Devices whose flag cannot be set, and why: a number of errno."""

    def driver(self, name: str) -> str:
        if name == "lo":
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        if name not in self.devices and name != "eth0":
            raise OSError(errno.ENODEV, "No such device")
        return "tun" if name in self.devices else "e1000"

    def flags(self, name: str) -> dict[str, bool]:
        on = self.devices[name]
        return {} if on is None else {"nodrop": on}

    def set_flag(self, name: str, flag: str, on: bool) -> None:
        assert flag == "nodrop"
        if name in self.refused:
            raise OSError(self.refused[name], "It is refused")
        self.devices[name] = on

    @property
    def file(self) -> Path:
        return self.root / "etc/modprobe.d/nodrop.conf"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setattr(ethtool, "driver", made.driver)
    monkeypatch.setattr(ethtool, "private_flags", made.flags)
    monkeypatch.setattr(ethtool, "set_private_flag", made.set_flag)
    monkeypatch.setattr(command, "Default", lambda: Default(tmp_path, RELEASE))
    (tmp_path / "etc").mkdir()
    return made


def flag(name: str, on: str) -> str:
    return f"ethtool --set-priv-flags {name} nodrop {on}"


def test_switches_what_is_not_as_wanted(host: Host, capsys: Capture) -> None:
    host.devices["tun2"] = None
    told = answer(capsys, "disable", "--dry-run", "tun0", "tap1", "tun2")
    assert [(one["was"], one["now"], one["switch"]) for one in told["devices"]] == [
        *(("on", "on", True), ("off", "off", True), ("off", "off", False))
    ]
    assert told["actions"] == [flag("tun0", "off")]
    assert host.devices["tun0"] is True
    told = answer(capsys, "disable", "tun0", "tap1")
    assert [one["now"] for one in told["devices"]] == ["off", "off"]
    assert (told["actions"], told["default"]) == ([flag("tun0", "off")], None)
    assert answer(capsys, "enable", "tap1")["actions"] == [flag("tap1", "on")]
    assert host.devices == {"tun0": False, "tap1": True, "tun2": None}


@pytest.mark.parametrize(("number", "status"), [(errno.ENODEV, 1), (errno.EOPNOTSUPP, 4)])
def test_a_device_that_vanishes_or_gets_another_driver(
    host: Host, capsys: Capture, number: int, status: int
) -> None:
    host.devices["tun2"] = True
    host.refused["tun2"] = number
    assert main(["disable", "tun0", "tun2"]) == status
    assert flag("tun0", "off") in capsys.readouterr().err.splitlines(), "what was done before"


@pytest.mark.parametrize("name", ["a;id", "$(id)", "e\x1b[31mx"])
def test_what_is_printed_can_be_copied(host: Host, capsys: Capture, name: str) -> None:
    host.devices[name] = True
    assert main(["disable", "--dry-run", name]) == 0
    assert capsys.readouterr().out == flag(quote(name), "off") + "\n"
    assert main(["disable", name]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_default_off_and_on(host: Host, capsys: Capture) -> None:
    parameter = write(host.root / PARAMETER, "Y\n")
    told = answer(capsys, "disable", "--default", "--dry-run")
    assert told["actions"] == [
        f"echo 'options tun nodrop=0' > {host.file}",
        f"echo N > {parameter}",
    ]
    assert (parameter.read_text(), host.file.exists()) == ("Y\n", False)
    mask = os.umask(0o077)
    try:
        told = answer(capsys, "disable", "--default")
    finally:
        os.umask(mask)
    states = [told["default"][f"{when}_now"] for when in ("loaded", "next_load")]
    assert states == ["off", "off"]
    assert host.file.read_text() == MADE
    assert host.file.stat().st_mode & 0o777 == 0o644, "it is for everybody"
    assert list(host.file.parent.iterdir()) == [host.file]
    assert answer(capsys, "disable", "--default")["actions"] == []
    answer(capsys, "enable", "--default")
    assert not list(host.file.parent.iterdir())
    assert parameter.read_text().strip() == "Y"


def test_default_for_the_next_load_only(host: Host) -> None:
    updates = host.root / "lib/modules" / RELEASE / "updates/dkms"
    write(updates / "tun.ko.xz")
    for word in ("enable", "disable"):
        assert main([word, "--default"]) == 4, "another package's tun is not nodrop's"
    assert not host.file.exists()
    core = write(updates / "nodrop.ko.xz")
    assert main(["disable", "--default"]) == 0
    assert host.file.exists()
    # A file that was left can go.
    core.unlink()
    assert main(["enable", "--default"]) == 0
    assert not host.file.exists()


@pytest.mark.parametrize("text", [MADE.encode() + b"options nodrop x=5\n", b"options tun \xff\n"])
def test_a_file_of_the_administrator_stays(host: Host, text: bytes) -> None:
    write(host.root / PARAMETER, "Y")
    write(host.file, text)
    for word in ("enable", "disable"):
        assert main([word, "--default"]) == 1
    assert host.file.read_bytes() == text


def test_the_livepatch_has_no_default(host: Host) -> None:
    (host.root / "sys/kernel/livepatch/nodrop_live").mkdir(parents=True)
    assert main(["disable", "--default"]) == 4


def test_what_cannot_be_written(host: Host) -> None:
    (host.root / "etc/modprobe.d").symlink_to("/proc/1/nosuch")
    made = Default(host.root, RELEASE)
    with pytest.raises(NodropError):
        made.set_next_load(False)
    with pytest.raises(NodropError):
        made.set_loaded(False)
    assert not (host.root / PARAMETER).exists(), "a module that has gone gets no file"
