# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hosts import device, host, raw
from schema import validate

from nodrop import cli
from nodrop.commands import status
from nodrop.host import build, read
from nodrop.host.model import Driver, Host
from nodrop.host.raw import Raw
from nodrop.kernel.artifacts import REPOSITORY

MANY = 500
_MANY = f"""
for number in $(seq {MANY}); do echo "tuntap add many$number mode tap"; done | ip -batch -
TIMEFORMAT="%U %S"
for round in 1 2 3; do time {sys.executable} -m nodrop -j status >status.json; done
"""


def recorded(monkeypatch: pytest.MonkeyPatch, found: Raw) -> None:
    monkeypatch.setattr("nodrop.commands.where.read", lambda *_args, **_words: found)


def cells(found: Host, label: str) -> list[str]:
    row = status.row(device(found, label))
    return [cell if isinstance(cell, str) else cell[0] for cell in row]


@pytest.mark.parametrize("name", ["stock", "upstream", "nodrop", "spaces"])
def test_json_is_what_the_schema_says(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(monkeypatch, raw(name))
    assert cli.main(["-j", "status"]) == 0
    shown = json.loads(capsys.readouterr().out)
    validate("status", shown)
    assert shown["devices"]


def test_rows() -> None:
    found = host("nodrop")
    one = device(found, "ndtest0")
    assert cells(found, "ndtest0")[:7] == [
        "ndtest0",
        "tun",
        "nodrop",
        f"python({one.owners[0].pid})",
        "1",
        "20",
        "pfifo",
    ]
    assert cells(found, "ndtest0")[9:] == ["1", "1", "0"]
    assert cells(host("spaces"), "vx0")[2:5] == ["-", "kernel", "-"]
    assert cells(host("spaces"), "gone0")[3] == "nobody"
    assert cells(host("spaces"), "red/moved0")[0] == "red/moved0"


def test_switched_off_and_with_vhost() -> None:
    found = host("nodrop")
    one = device(found, "ndtest0")
    owner = replace(one.owners[0], vhost=True, name="qemu", pid=7)
    changed = replace(one, enabled=False, owners=(owner, owner))
    row = status.row(changed)
    assert row[2:4] == (("nodrop off", "yellow"), "qemu(7)+vhost +1")


def test_who_may_have_a_macvtap_open() -> None:
    """Its carrier is the lower device's, and says nothing."""
    made = replace(
        device(host("stock"), "ndtest0"), kind="macvtap", owners=(), queues=0, carrier=True
    )
    assert status.row(made)[3] == ("nobody", "yellow")
    assert status.row(made, hidden=True)[3] == "?"
    assert status.row(replace(made, kind="tap"))[3] == "?"


def test_headline() -> None:
    text = status.headline(host("nodrop"))
    assert text == "Linux 7.3.4, tun nodrop 0.3.0, vhost_net not loaded, guard 1000 ms"
    found = replace(host("nodrop"), default_on=False, guard_ms=0)
    assert status.headline(found).endswith("guard off, off by default")


def test_remarks() -> None:
    found = replace(host("stock"), hidden_processes=9, unread={"green": "It is gone."})
    unowned = replace(device(found, "ndtest0"), owners=(), carrier=True)
    said = status.remarks(found, [unowned])
    assert "9 processes" in said[0]
    assert "green" in said[1]
    assert "ndtest0" in said[2]
    assert "doctor" in said[2]
    assert "-n 'a b' doctor'" in status.remarks(found, [unowned], "-n 'a b' doctor")[2]
    calm = replace(device(found, "ndtest0"), tx_dropped=0, driver=Driver.NODROP)
    assert status.remarks(replace(found, unread={}), [calm]) == []


def test_names(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(monkeypatch, raw("spaces"))
    assert cli.main(["-j", "status", "tun0"]) == 0
    found = json.loads(capsys.readouterr().out)["devices"]
    assert [one["netns"] for one in found] == [None, "blue"]
    assert cli.main(["-j", "status", "red/moved0", "vx0"]) == 0
    found = json.loads(capsys.readouterr().out)["devices"]
    assert [one["name"] for one in found] == ["vx0", "moved0"]
    assert cli.main(["status", "nix"]) == 1
    assert "no TUN, TAP, macvtap, ipvtap or tunnel device nix" in capsys.readouterr().err


def test_nothing_to_show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(monkeypatch, replace(raw("stock"), namespaces=[]))
    assert cli.main(["status"]) == 0
    assert "There is no TUN" in capsys.readouterr().out


def test_either_one_namespace_or_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-n", "blue", "status", "-A"]) == 2
    assert "either" in capsys.readouterr().err


def test_this_machine_is_read() -> None:
    assert build.build(read.read()).release == os.uname().release


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/net/tun").exists(), reason="makes devices, as root"
)
def test_many_devices_take_less_than_a_second(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--net", "bash", "-ec", _MANY],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Its own time, since others may have the processors: it sleeps nowhere.
    assert min(sum(map(float, line.split())) for line in done.stderr.splitlines()) < 1.0
    assert len(json.loads((tmp_path / "status.json").read_text())["devices"]) == MANY


@pytest.mark.parametrize(
    ("loaded", "older"), [("0.2.9", True), ("0.3.0", False), ("0.10.0", False), ("", False)]
)
def test_older_modules_are_told_of_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    loaded: str,
    older: bool,
) -> None:
    monkeypatch.setattr(status, "version", lambda: "0.3.0")
    found = raw("nodrop")
    found.machine.files["sys/module/nodrop/version"] = loaded
    recorded(monkeypatch, found)
    assert cli.main(["status"]) == 0
    said = "The modules in memory are nodrop 0.2.9, this command is 0.3.0: "
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith(said) for line in lines) == older
