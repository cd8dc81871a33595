# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop set``: actions, kept settings and errors.

proof/programs/cmd_set.py has them with a real kernel; here is what a guest cannot have.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import pytest
from hosts import device
from hosts import host as recorded
from schema import answer
from stubs import write

from nodrop.cli import main
from nodrop.commands import set as command
from nodrop.errors import NodropError
from nodrop.host import ethtool, netns, settings
from nodrop.host.settings import BACKPRESSURE, STALL_MS, Default, Rules
from nodrop.proc import quote
from nodrop.trace.tracefs import Tracefs

RELEASE = "6.12.1-test"
PARAMETER = "sys/module/tun/parameters/nodrop"
OFF = ["options tun nodrop=0", "options nodrop_tun nodrop=0"]
"""For kernels whose own tun is a module, and for those that have it built in."""
Capture = pytest.CaptureFixture[str]


class FakeHost:
    """A machine with devices: name -> whether backpressure is on; None: the stock driver."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.devices: dict[str, bool | None] = {"tun0": True, "tap1": False}
        self.refused: dict[str, int] = {}
        """Device whose flag cannot be set -> errno."""

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
        return self.root / "etc/modprobe.d/zz-nodrop-set.conf"

    @property
    def rules(self) -> list[str]:
        """The kept patterns with their values."""
        file = self.root / "etc/udev/rules.d/81-nodrop-set.rules"
        if not file.exists():
            return []
        lines = file.read_text().splitlines()[1:]
        return [re.sub(r'.*KERNEL=="(.*?)", RUN.* (on|off)"', r"\1 \2", line) for line in lines]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    made = FakeHost(tmp_path)
    monkeypatch.setattr(ethtool, "driver", made.driver)
    monkeypatch.setattr(ethtool, "private_flags", made.flags)
    monkeypatch.setattr(ethtool, "set_private_flag", made.set_flag)
    monkeypatch.setattr(
        settings, "device_names", lambda _: {**dict.fromkeys(made.devices, True), "lo": False}
    )

    monkeypatch.setattr(command, "Default", lambda which: Default(which, tmp_path, RELEASE))
    monkeypatch.setattr(command, "Rules", lambda: Rules(tmp_path))
    write(tmp_path / "run/udev/control")
    write(tmp_path / "usr/sbin/ethtool")
    (tmp_path / "sys/module/nodrop").mkdir(parents=True)
    return made


def flag(name: str, on: str) -> str:
    return f"ethtool --set-priv-flags {name} nodrop {on}"


def test_now(host: FakeHost, capsys: Capture) -> None:
    """Also if the value is the same: the device must not follow the default any more."""
    host.devices["tun2"] = None
    off = ("backpressure", "off")
    data = answer(capsys, "set", "--now", "--dry-run", "tun0", "tap1", "tun2", *off)
    assert [(one["was"], one["now"], one["switch"]) for one in data["devices"]] == [
        *(("on", "on", True), ("off", "off", True), ("off", "off", False))
    ]
    assert data["actions"] == [flag("tun0", "off"), flag("tap1", "off")]
    assert host.devices["tun0"] is True
    data = answer(capsys, "set", "--now", "tun0", "tap1", *off)
    assert [one["now"] for one in data["devices"]] == ["off", "off"]
    assert (data["default"], data["kept"]) == (None, None)
    answer(capsys, "set", "--now", "tap1", "backpressure", "on")
    assert host.devices == {"tun0": False, "tap1": True, "tun2": None}
    assert host.rules == [], "--now keeps nothing"
    assert main(["set", "--now", "tun2", "backpressure", "on"]) == 4


def test_kept_settings(host: FakeHost, capsys: Capture) -> None:
    """A missing device, a pattern, the order of settings, and a setting that is kept already."""
    assert main(["set", "vnet*", "tun7", "backpressure", "off"]) == 0
    assert host.rules == ["vnet* off", "tun7 off"]
    assert host.devices == {"tun0": True, "tap1": False}
    data = answer(capsys, "set", "--dry-run", "t*", "backpressure", "off")
    assert ([one["name"] for one in data["devices"]], len(data["actions"])) == (["tun0", "tap1"], 3)
    assert main(["set", "t*", "backpressure", "off"]) == 0
    assert host.devices == {"tun0": False, "tap1": False}
    data = answer(capsys, "set", "vnet*", "backpressure", "off")
    assert data["actions"] == [], "no later rule has another value"
    assert main(["set", "vnet*", "backpressure", "on"]) == 0
    assert host.rules == ["tun7 off", "t* off", "vnet* on"]
    kept = answer(capsys, "set", "tun7", "backpressure", "default")["kept"]
    assert kept == {"t*": "off", "vnet*": "on"}
    (host.root / "usr/sbin/ethtool").unlink()
    (host.root / "run/udev/control").unlink()
    for name in ("t*", "vnet*", "tun8"):
        assert main(["set", name, "backpressure", "default"]) == 0
    assert not list((host.root / "etc/udev/rules.d").iterdir())
    assert host.devices == {"tun0": False, "tap1": False}


def test_settings_without_effect_are_refused(host: FakeHost, capsys: Capture) -> None:
    """A stock driver that stays, and a pattern that matches nothing and is not kept."""
    assert main(["set", "--now", "tun0", "z*", "backpressure", "off"]) == 1
    assert host.devices["tun0"] is True
    (host.root / "sys/module/nodrop").rmdir()
    assert main(["set", "vnet*", "backpressure", "on"]) == 4
    assert host.rules == []
    write(host.root / f"lib/modules/{os.uname().release}/updates/dkms/nodrop.ko.zst")
    assert main(["set", "vnet*", "backpressure", "on"]) == 0
    assert "not loaded" in capsys.readouterr().out
    assert host.rules == ["vnet* on"]


def test_printed_commands_do_the_same(host: FakeHost, capsys: Capture) -> None:
    rules = host.root / "etc/udev/rules.d"
    assert main(["set", "a", "backpressure", "on"]) == 0
    assert main(["set", "--dry-run", "b*", "c", "backpressure", "off"]) == 0
    commands = capsys.readouterr().out.splitlines()[-1:]
    subprocess.run(["sh", "-c", *commands], check=True)
    assert host.rules == ["a on", "b* off", "c off"]
    assert [path.name for path in rules.iterdir()] == ["81-nodrop-set.rules"]


@pytest.mark.parametrize(
    "words",
    [
        "",
        "tun0",
        "tun0 backpressure",
        "tun0 backpressure maybe",
        "tun0 --now backpressure off",
        "--now tun0 backpressure default",
        "--default backpressure default",
        "--default tun0 backpressure on",
        "tun0 stall-ms 5",
        "--default stall-ms -5",
        "--default stall-ms 1e3",
        f"--default stall-ms {'9' * 5000}",
        "-n blue tun0 backpressure on",
        'a"b backpressure on',
        "a|b backpressure on",
        "[[:alpha:]] backpressure on",
        "..  backpressure on",
        "default backpressure on",
        "--now all backpressure on",
        "tun0 default backpressure default",
        "sixteencharacter backpressure on",
    ],
)
def test_usage(host: FakeHost, words: str) -> None:
    assert main(["set", *words.split()]) == 2
    assert host.rules == []


def test_rules_that_nothing_applies(host: FakeHost) -> None:
    assert main(["set", "lo", "backpressure", "off"]) == 1, "it is no TUN"
    (host.root / "usr/sbin/ethtool").unlink()
    assert main(["set", "tun0", "backpressure", "off"]) == 1
    write(host.root / "usr/sbin/ethtool")
    (host.root / "run/udev/control").unlink()
    assert main(["set", "tun0", "backpressure", "off"]) == 4
    write(host.root / "run/udev/control")
    for process in ("self", "1"):
        write(host.root / f"proc/{process}/ns/net")
    assert main(["set", "tun0", "backpressure", "off"]) == 4, "in another network namespace"
    assert main(["set", "lo", "backpressure", "off"]) == 4
    assert (host.devices["tun0"], host.rules) == (True, [])


def test_foreign_rules_stay(host: FakeHost) -> None:
    text = f"{settings.HEAD}\n# mine\n"
    theirs = write(host.root / "etc/udev/rules.d/80-nodrop.rules", text)
    assert main(["set", "tun0", "backpressure", "off"]) == 0
    assert (theirs.read_text(), host.rules) == (text, ["tun0 off"])
    file = write(theirs.with_name("81-nodrop-set.rules"), text)
    assert main(["set", "tun0", "backpressure", "on"]) == 1
    assert (file.read_text(), host.devices["tun0"]) == (text, False)


@pytest.mark.parametrize(("theirs", "set_to", "kept"), [("0", "on", True), ("N", "off", False)])
def test_defaults_beside_foreign_files(
    host: FakeHost, theirs: str, set_to: str, kept: bool
) -> None:
    """As docs/monitoring.md recommends; modprobe reads nodrop's file last."""
    write(host.root / PARAMETER, theirs)
    text = f"# mine\noptions tap guard_ms=5000\noptions tun nodrop={theirs} x=y\n"
    file = write(host.root / "etc/modprobe.d/nodrop.conf", text)
    assert file.name < host.file.name
    assert Default(BACKPRESSURE, host.root, RELEASE).next_load == "0"
    assert main(["set", "--default", "backpressure", set_to]) == 0
    want = "1" if kept else "0"
    assert Default(BACKPRESSURE, host.root, RELEASE).next_load == want
    lines = host.file.read_text().splitlines() if host.file.exists() else []
    assert ("options tun nodrop=1" in lines) is kept
    assert file.read_text() == text


def test_concurrent_commands(host: FakeHost) -> None:
    names = [f"tun{number}" for number in range(8)]
    rules = Rules(host.root)
    threads = [threading.Thread(target=rules.keep, args=([name], True)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(rules.read()) == names


@pytest.mark.parametrize(("number", "status"), [(errno.ENODEV, 1), (errno.EOPNOTSUPP, 4)])
def test_device_vanishes_or_changes_its_driver(
    host: FakeHost, capsys: Capture, number: int, status: int
) -> None:
    host.devices["tun2"] = True
    host.refused["tun2"] = number
    assert main(["set", "--now", "tun0", "tun2", "backpressure", "off"]) == status
    assert flag("tun0", "off") in capsys.readouterr().err.splitlines(), "what was done before"


@pytest.mark.parametrize(("user", "says"), [(0, "EPERM"), (1000, "as root")])
def test_refusals_name_the_error_to_root(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: Capture, user: int, says: str
) -> None:
    """Root lacks no permission: SELinux, a container or 'chattr +i' refuses."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    refusal = PermissionError(errno.EPERM, "Operation not permitted")
    host.refused["tun0"] = errno.EPERM
    assert main(["set", "--now", "tun0", "backpressure", "off"]) == 1
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=refusal))
    assert main(["set", "tun0", "backpressure", "off"]) == 1
    monkeypatch.setattr(netns, "_open", Mock(side_effect=netns._sentence("blue", errno.EPERM)))
    assert main(["-n", "blue", "status"]) == 1
    texts = [*capsys.readouterr().err.split("nodrop: ")[1:], str(Tracefs().refused(refusal))]
    assert len(texts) == 4
    assert all(says in text for text in texts)
    assert not any({"EPERM": "root can", "as root": "EPERM"}[says] in text for text in texts)


@pytest.mark.parametrize("name", ["a;id", "$(id)", "e\x1b[31mx"])
def test_printed_commands_are_quoted(host: FakeHost, capsys: Capture, name: str) -> None:
    host.devices[name] = True
    assert main(["set", "--now", "--dry-run", name, "backpressure", "off"]) == 0
    assert capsys.readouterr().out == flag(quote(name), "off") + "\n"
    assert main(["set", "--now", name, "backpressure", "off"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_default_off_and_on(host: FakeHost, capsys: Capture) -> None:
    parameter = write(host.root / PARAMETER, "Y\n")
    data = answer(capsys, "set", "--default", "--dry-run", "backpressure", "off")
    assert data["actions"] == [
        f"printf '%s\\n' {quote(settings.HEAD)} {' '.join(map(quote, OFF))} > {host.file}",
        f"echo 0 > {parameter}",
    ]
    assert (parameter.read_text(), host.file.exists()) == ("Y\n", False)
    mask = os.umask(0o077)
    try:
        data = answer(capsys, "set", "--default", "backpressure", "off")
    finally:
        os.umask(mask)
    states = [data["default"][f"{when}_now"] for when in ("loaded", "next_load")]
    assert states == ["off", "off"]
    assert host.file.read_text().splitlines() == [settings.HEAD, *OFF]
    assert host.file.stat().st_mode & 0o777 == 0o644, "it is readable by all users"
    assert list(host.file.parent.iterdir()) == [host.file]
    assert answer(capsys, "set", "--default", "backpressure", "off")["actions"] == []
    answer(capsys, "set", "--default", "backpressure", "on")
    assert not list(host.file.parent.iterdir())
    assert parameter.read_text().strip() == "1"


def test_default_of_a_driver_beside_the_built_in_one(host: FakeHost, capsys: Capture) -> None:
    write(host.root / "sys/class/misc/tun/dev", "10:200\n")
    parameter = write(host.root / "sys/module/nodrop_tun/parameters/nodrop", "Y\n")
    write(host.file, f"{settings.HEAD}\n{OFF[0]}\n")  # that of a kernel with another tun
    data = answer(capsys, "set", "--default", "backpressure", "off")["default"]
    assert (data["loaded_was"], data["loaded_now"]) == ("on", "off")
    assert (data["next_load_was"], data["next_load_now"]) == ("on", "off")
    assert parameter.read_text().strip() == "0"
    assert host.file.read_text().splitlines()[1:] == OFF
    host.devices["tun2"] = None
    assert main(["set", "--now", "tun2", "backpressure", "on"]) == 4
    assert "livepatch" not in capsys.readouterr().err
    assert main(["set", "--default", "backpressure", "on"]) == 0
    assert not host.file.exists()


def test_default_for_the_next_load_only(host: FakeHost) -> None:
    updates = host.root / "lib/modules" / RELEASE / "updates/dkms"
    write(updates / "tun.ko.xz")
    for word in ("on", "off"):
        assert main(["set", "--default", "backpressure", word]) == 4, (
            "another package's tun is not nodrop's"
        )
    assert not host.file.exists()
    core = write(updates / "nodrop.ko.xz")
    assert main(["set", "--default", "backpressure", "off"]) == 0
    assert host.file.exists()
    # A leftover file can be removed.
    core.unlink()
    assert main(["set", "--default", "backpressure", "on"]) == 0
    assert not host.file.exists()


@pytest.mark.parametrize(
    "text",
    [
        f"{settings.HEAD}\noptions nodrop x=5\n".encode(),
        f"{settings.HEAD}\noptions tun nodrop=2\n".encode(),
        b"options tun \xff\n",
    ],
)
def test_foreign_modprobe_file_stays(host: FakeHost, text: bytes) -> None:
    write(host.root / PARAMETER, "Y")
    write(host.file, text)
    for word in ("on", "off"):
        assert main(["set", "--default", "backpressure", word]) == 1
    assert host.file.read_bytes() == text


def test_the_livepatch_has_no_default(host: FakeHost) -> None:
    (host.root / "sys/kernel/livepatch/nodrop_live").mkdir(parents=True)
    assert main(["set", "--default", "backpressure", "off"]) == 4


def test_unwritable_files(host: FakeHost) -> None:
    (host.root / "etc").mkdir()
    (host.root / "etc/modprobe.d").symlink_to("/proc/1/nosuch")
    made = Default(BACKPRESSURE, host.root, RELEASE)
    with pytest.raises(NodropError):
        made.set_next_load("0")
    with pytest.raises(NodropError):
        made.set_loaded("0")
    assert not (host.root / PARAMETER).exists(), "an unloaded module gets no file"


def test_file_system_without_locks(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = OSError(errno.ENOLCK, "No locks available")
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=refused))
    assert main(["set", "tun0", "backpressure", "off"]) == 1
    assert (host.devices["tun0"], host.rules) == (True, [])


def test_lock(host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """Only root can open it: who can open a file can lock it for ever."""
    monkeypatch.setattr(settings, "LOCK_S", 0.1)
    with settings.locked(host.file, host.root):
        lock = host.root / settings.LOCK_FILE
        assert lock.stat().st_mode & 0o777 == 0o600
        assert main(["set", "tun0", "backpressure", "off"]) == 1
        assert str(lock) in capsys.readouterr().err
    folders = (host.root / settings.RULES_FILE).parent, lock.parent
    with ExitStack() as stack:
        for folder in folders:
            number = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, number)
            fcntl.flock(number, fcntl.LOCK_EX)
        assert main(["set", "tun0", "backpressure", "off"]) == 0


def test_pattern_that_python_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.9 does for [z-a]."""
    monkeypatch.setattr("fnmatch._compile_pattern", Mock(side_effect=re.error("bad range")))
    assert not settings.matches("[z-a]", "tun0")
    assert not device(recorded("spaces"), "tun0").named(["[z-a]"])


def test_stall_ms(host: FakeHost, capsys: Capture) -> None:
    """Together with the other default in one file."""
    parameter = write(host.root / "sys/module/nodrop/parameters/guard_ms", "1000\n")
    write(host.root / PARAMETER, "Y\n")
    assert main(["set", "--default", "backpressure", "off"]) == 0
    data = answer(capsys, "set", "--default", "stall-ms", "0250")["default"]
    assert (data["loaded_was"], data["loaded_now"], data["next_load_now"]) == (1000, 250, 250)
    assert parameter.read_text().startswith("250")
    kept = [*OFF, "options nodrop guard_ms=250"]
    assert host.file.read_text().splitlines()[1:] == kept
    assert main(["set", "--default", "--now", "stall-ms", "0"]) == 0
    assert parameter.read_text().startswith("0")
    assert Default(STALL_MS, host.root).next_load == "250"
    assert main(["set", "--default", "stall-ms", "1000"]) == 0
    assert host.file.read_text().splitlines()[1:] == OFF


def test_names_that_udev_spells_otherwise(host: FakeHost, capsys: Capture) -> None:
    """A "!" in a name is a "/" in udev."""
    assert host.rules == []
    assert settings.can_keep("[!a]*")
    assert not settings.can_keep("a!b")
    for key in (("backpressure", "off"), ("qdisc", "fq_codel")):
        assert main(["set", "--dry-run", "a!b", *key]) == 2
        assert "udev" not in capsys.readouterr().err
        assert main(["set", "--dry-run", "a!b", key[0], "default"]) == 0, "nothing is kept"
    assert settings.applied({"a*": True}, "ab") is True
    assert settings.applied({"a*": True}, "a!b") is None
