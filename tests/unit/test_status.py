# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop status`` of machines that were recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hosts import ALL, device, host, raw
from schema import validate

from nodrop import cli
from nodrop.commands import status
from nodrop.host.model import Device
from nodrop.host.raw import Raw


def recorded(monkeypatch: pytest.MonkeyPatch, found: Raw) -> None:
    monkeypatch.setattr("nodrop.commands.where.read", lambda *_args, **_words: found)


def cells(one: Device, *, hidden: bool = False) -> list[str]:
    return [cell if isinstance(cell, str) else cell[0] for cell in status.row(one, hidden=hidden)]


def test_json_is_what_the_schema_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ALL:
        recorded(monkeypatch, raw(name))
        assert cli.main(["-j", "status"]) == 0
        shown = json.loads(capsys.readouterr().out)
        validate("status", shown)
        assert shown["devices"]


def test_rows() -> None:
    one = device(host("nodrop"), "ndtest0")
    owner = f"python({one.owners[0].pid})"
    assert cells(one)[:7] == ["ndtest0", "tun", "nodrop", owner, "1", "20", "pfifo"]
    assert cells(one)[7:] == ["3981", "0", "1", "1", "0"]
    with_vhost = replace(one.owners[0], vhost=True, name="qemu", pid=7)
    off = cells(replace(one, enabled=False, owners=(with_vhost, with_vhost)))
    assert (off[2] != "nodrop", off[3]) == (True, "qemu(7)+vhost +1")
    assert cells(device(host("spaces"), "vx0"))[2:5] == ["-", "kernel", "-"]


@pytest.mark.parametrize(
    ("kind", "hidden", "unknown"),
    [("macvtap", False, False), ("macvtap", True, True), ("tap", False, True)],
)
def test_whether_anybody_may_have_it_open(kind: str, hidden: bool, unknown: bool) -> None:
    """A macvtap's carrier is the lower device's, and says nothing."""
    one = device(host("stock"), "ndtest0")
    made = replace(one, kind=kind, owners=(), queues=0, carrier=True)
    assert (cells(made, hidden=hidden)[3] == "?") is unknown


def test_names(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def found(*names: str) -> list[tuple[Any, Any]]:
        assert cli.main(["-j", "status", *names]) == 0
        devices = json.loads(capsys.readouterr().out)["devices"]
        return [(one["netns"], one["name"]) for one in devices]

    recorded(monkeypatch, raw("spaces"))
    assert found("tun0") == [(None, "tun0"), ("blue", "tun0")]
    assert found("red/moved0", "vx0") == [(None, "vx0"), ("red", "moved0")]
    assert cli.main(["status", "nix"]) == 1
    recorded(monkeypatch, replace(raw("stock"), namespaces=[]))
    assert cli.main(["status"]) == 0
