# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop enable`` and ``disable``: what is done, said and refused."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nodrop.cli import main
from nodrop.commands import switch as command
from nodrop.errors import NodropError, UnsupportedError
from nodrop.host import default, ethtool, switch
from nodrop.host.default import MADE, Default
from nodrop.shell import quote

SCHEMAS = Path(command.__file__).parents[1] / "schemas"
RELEASE = "6.12.1-test"


class Host:
    """A machine with devices: name -> whether it is on; None: the kernel's own driver."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.devices: dict[str, bool | None] = {"tun0": True, "tap1": False}
        self.vanish = ""
        self.denied = False

    def driver(self, name: str) -> ethtool.Driver:
        if name == "lo":
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        if name not in self.devices and name != "eth0":
            raise OSError(errno.ENODEV, "No such device")
        return ethtool.Driver("tun" if name in self.devices else "e1000", "", "")

    def flags(self, name: str) -> dict[str, bool]:
        on = self.devices[name]
        return {} if on is None else {"nodrop": on}

    def set_flag(self, name: str, flag: str, on: bool) -> None:
        assert flag == "nodrop"
        if self.denied:
            raise OSError(errno.EPERM, "Operation not permitted")
        if name == self.vanish:
            raise OSError(errno.ENODEV, "No such device")
        self.devices[name] = on

    def load(self, value: str) -> None:
        path = self.root / "sys/module/tun/parameters/nodrop"
        path.parent.mkdir(parents=True)
        path.write_text(value)

    def install(self) -> None:
        path = self.root / "lib/modules" / RELEASE / "updates/dkms/tun.ko.xz"
        path.parent.mkdir(parents=True)
        path.touch()

    @property
    def file(self) -> Path:
        return self.root / "etc/modprobe.d/nodrop.conf"

    def everything(self) -> list[tuple[str, float, str]]:
        """All files, when they were changed, what they hold."""
        return [
            (str(p), p.stat().st_mtime_ns, p.read_text() if p.is_file() else "")
            for p in sorted(self.root.rglob("*"))
        ]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setattr(ethtool, "driver", made.driver)
    monkeypatch.setattr(ethtool, "private_flags", made.flags)
    monkeypatch.setattr(ethtool, "set_private_flag", made.set_flag)
    monkeypatch.setattr(switch, "_CLASS", tmp_path / "sys/class/net")
    monkeypatch.setattr(command, "Default", lambda: Default(tmp_path, RELEASE))
    (tmp_path / "etc").mkdir()
    return made


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(words)
    told = capsys.readouterr()
    return status, told.out, told.err


def tell(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    status, out, _ = run(capsys, "-j", *words)
    assert status == 0
    told = json.loads(out)
    schema = json.loads((SCHEMAS / f"{words[0]}.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(told)
    return told


def test_switches_what_is_not_as_wanted(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "enable", "tun0", "tap1") == (
        0,
        "tun0 is on already.\ntap1 is on until its program ends, and not after a reboot.\n",
        "",
    )
    assert host.devices == {"tun0": True, "tap1": True}


def test_a_persistent_device_is_told_of(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    path = host.root / "sys/class/net/tun0/tun_flags"
    path.parent.mkdir(parents=True)
    path.write_text("0x1801\n")
    assert "until it is deleted" in run(capsys, "disable", "tun0")[1]


def test_json_tells_what_was_and_is(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.devices["tun2"] = None
    told = tell(capsys, "disable", "--dry-run", "tun0", "tun2")
    first, second = told["devices"]
    assert (first["was"], first["now"], first["switch"]) == ("on", "on", True)
    assert (second["was"], second["now"], second["switch"]) == ("off", "off", False)
    told = tell(capsys, "disable", "tun0")
    assert (told["devices"][0]["now"], told["default"]) == ("off", None)
    assert told["actions"] == ["ethtool --set-priv-flags tun0 nodrop off"]


def test_dry_run_changes_nothing(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.load("Y")
    before = host.everything()
    wanted = "ethtool --set-priv-flags tun0 nodrop off\n"
    assert run(capsys, "disable", "--dry-run", "tun0", "tap1") == (0, wanted, "")
    assert host.devices["tun0"] is True
    status, out, _ = run(capsys, "disable", "--default", "--dry-run")
    assert (status, out.splitlines()) == (
        0,
        [
            f"echo 'options tun nodrop=0' > {host.file}",
            f"echo N > {host.root}/sys/module/tun/parameters/nodrop",
        ],
    )
    assert host.everything() == before


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["nosuch"], 1, "There is no device nosuch here."),
        (["tun0", "nosuch"], 1, "There is no device nosuch here."),
        (["eth0"], 1, "eth0 is no TUN or TAP device."),
        (["lo"], 1, "lo is no TUN or TAP device."),
        ([], 2, "Name devices, or say --default."),
        (["tun0", "--default"], 2, "Name devices, or say --default."),
    ],
)
def test_refused_before_anything_is_done(
    host: Host, capsys: pytest.CaptureFixture[str], words: list[str], status: int, sentence: str
) -> None:
    got, out, err = run(capsys, "disable", *words)
    assert (got, out) == (status, "")
    assert sentence in err
    assert host.devices == {"tun0": True, "tap1": False}


def test_a_device_that_vanishes(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.devices["tun2"] = True
    host.vanish = "tun2"
    status, _, err = run(capsys, "disable", "tun0", "tun2")
    assert status == 1
    assert "no device tun2" in err
    assert "Done before:\nethtool --set-priv-flags tun0 nodrop off" in err


def test_the_right_is_missing(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.denied = True
    status, _, err = run(capsys, "disable", "tun0")
    assert status == 1
    assert "Only root can switch tun0 (CAP_NET_ADMIN)." in err
    assert run(capsys, "enable", "tun0")[0] == 0


@pytest.mark.parametrize(("installed", "what"), [(True, "restart"), (False, "nodrop install")])
def test_stock_driver(
    host: Host, capsys: pytest.CaptureFixture[str], installed: bool, what: str
) -> None:
    host.devices["tun0"] = None
    if installed:
        host.install()
    status, _, err = run(capsys, "enable", "tun0")
    assert status == 4
    assert "the kernel's own tun" in err
    assert what in err
    assert run(capsys, "disable", "tun0")[:2] == (
        0,
        "tun0 is off already (the kernel's own driver).\n",
    )


@pytest.mark.parametrize("word", ["enable", "disable"])
def test_upstreams_flag(host: Host, capsys: pytest.CaptureFixture[str], word: str) -> None:
    host.devices["tun0"] = None
    path = host.root / "sys/class/net/tun0/tun_flags"
    path.parent.mkdir(parents=True)
    path.write_text("0x1081\n")
    status, _, err = run(capsys, word, "tun0")
    assert status == 4
    assert "only its application can switch" in err


def test_default_off_and_on(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.load("Y\n")
    told = tell(capsys, "disable", "--default")
    assert told["default"] == {
        "loaded_was": "on",
        "loaded_now": "off",
        "next_load_was": "on",
        "next_load_now": "off",
        "file": str(host.file),
    }
    assert host.file.read_text() == MADE
    assert host.file.stat().st_mode & 0o777 == 0o644
    assert run(capsys, "disable", "--default")[1] == "The default is off already.\n"
    assert "at once" in run(capsys, "enable", "--default")[1]
    assert not list(host.file.parent.iterdir())
    assert (host.root / "sys/module/tun/parameters/nodrop").read_text().strip() == "Y"


def test_default_for_the_next_load_only(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.install()
    assert "when nodrop's tun is loaded" in run(capsys, "disable", "--default")[1]
    assert host.file.exists()


def test_default_without_nodrop(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("enable", "disable"):
        status, _, err = run(capsys, word, "--default")
        assert status == 4
        assert "neither loaded nor installed" in err
    assert not host.file.exists()


def test_a_file_that_was_left_can_go(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.file.parent.mkdir()
    host.file.write_text(MADE)
    assert run(capsys, "enable", "--default")[0] == 0
    assert not host.file.exists()


def test_a_file_of_the_administrator_stays(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.load("Y")
    host.file.parent.mkdir()
    host.file.write_text(MADE + "options nodrop guard_ms=500\n")
    status, _, err = run(capsys, "enable", "--default")
    assert status == 1
    assert "by hand" in err
    assert "guard_ms" in host.file.read_text()


@pytest.mark.parametrize("value", ["0", "N", "n", "off"])
def test_another_file_of_the_administrator_is_read(
    host: Host, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    host.load("Y")
    host.file.parent.mkdir()
    other = host.file.with_name("zz.conf")
    other.write_text(f"# Ours\noptions tun debug=0 nodrop={value}\n")
    status, _, err = run(capsys, "enable", "--default")
    assert (status, "zz.conf says otherwise" in err) == (1, True)
    assert tell(capsys, "disable", "--default")["default"]["next_load_was"] == "off"
    other.write_text("options tun nodrop=1\n")
    assert run(capsys, "disable", "--default")[0] == 1


def test_the_file_is_for_everybody(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.load("Y")
    before = os.umask(0o077)
    try:
        assert run(capsys, "disable", "--default")[0] == 0
    finally:
        os.umask(before)
    assert host.file.stat().st_mode & 0o777 == 0o644
    assert list(host.file.parent.iterdir()) == [host.file]


@pytest.mark.parametrize(("flags", "persistent"), [("0x1802", True), ("0x1002", False)])
def test_how_long_it_lasts(
    host: Host, capsys: pytest.CaptureFixture[str], flags: str, persistent: bool
) -> None:
    path = host.root / "sys/class/net/tun0/tun_flags"
    path.parent.mkdir(parents=True)
    path.write_text(flags)
    assert tell(capsys, "disable", "tun0")["devices"][0]["persistent"] is persistent


def test_a_file_that_is_no_text(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.load("Y")
    host.file.parent.mkdir()
    host.file.write_bytes(b"options tun \xff\n")
    status, _, err = run(capsys, "disable", "--default")
    assert (status, "by hand" in err) == (1, True)


@pytest.mark.parametrize("name", ["a;id", "$(id)", "e\x1b[31mx"])
def test_what_is_printed_can_be_copied(
    host: Host, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    host.devices[name] = True
    _, out, _ = run(capsys, "disable", "--dry-run", name)
    assert out == f"ethtool --set-priv-flags {quote(name)} nodrop off\n"
    _, out, _ = run(capsys, "disable", name)
    assert "\x1b" not in out


def test_the_livepatch_has_no_default(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    (host.root / "sys/kernel/livepatch/nodrop_live").mkdir(parents=True)
    status, _, err = run(capsys, "disable", "--default")
    assert status == 4
    assert "on for every device" in err


def test_default_is_of_all_namespaces(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.load("Y")
    assert run(capsys, "-n", "blue", "disable", "--default")[0] == 2


def test_what_cannot_be_written_is_a_sentence(host: Host) -> None:
    host.load("Y")
    (host.root / "etc/modprobe.d").symlink_to("/proc/1/nosuch")
    made = Default(host.root, RELEASE)
    with pytest.raises(NodropError, match="cannot be changed"):
        made.set_next_load(False)
    (host.root / "sys/module/tun/parameters/nodrop").unlink()
    with pytest.raises(NodropError, match="cannot be changed"):
        made.set_loaded(False)
    assert not (host.root / "sys/module/tun/parameters/nodrop").exists()
    denied = default._sentence(host.file, PermissionError(errno.EACCES, "Permission denied"))
    assert "Only root" in denied.message


def test_no_switch_any_more(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(ethtool, "set_private_flag", gone)
    assert host.devices
    with pytest.raises(UnsupportedError, match="no switch any more"):
        switch.turn(None, "tun0", True)


def test_an_old_tun_without_a_switch(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """nodrop 0.1 has the default and no flag of a device: it is not off, and is not stock."""
    host.load("Y")
    host.devices["tun0"] = None
    for name in ("disable", "enable"):
        status, out, err = run(capsys, name, "tun0")
        assert (status, out) == (4, "")
        assert "an old tun of nodrop's" in err
    assert run(capsys, "disable", "--default")[0] == 0
    assert not Default(host.root, RELEASE).loaded
