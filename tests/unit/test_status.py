# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop status`` of machines that were recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hosts import ALL, device, host, raw, recorded
from schema import answer

from nodrop import cli
from nodrop.commands import status
from nodrop.host.model import Device


def cells(one: Device, *, hidden: bool = False) -> list[str]:
    return [cell if isinstance(cell, str) else cell[0] for cell in status.row(one, hidden=hidden)]


def test_json_is_what_the_schema_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ALL:
        recorded(monkeypatch, raw(name))
        shown = answer(capsys, "status")
        assert shown["devices"]
        ours = {"nodrop": (20, None)}.get(name, (None, None))
        queues = [queue for one in shown["devices"] for queue in one["queue"]]
        assert (queues[0]["limit_packets"], queues[0]["pace_ns"]) == ours


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
        devices = answer(capsys, "status", *names)["devices"]
        return [(one["netns"], one["name"]) for one in devices]

    recorded(monkeypatch, raw("spaces"))
    assert found("tun0") == [(None, "tun0"), ("blue", "tun0")]
    assert found("red/moved0", "vx0") == [(None, "vx0"), ("red", "moved0")]
    assert cli.main(["status", "nix"]) == 1
    recorded(monkeypatch, replace(raw("stock"), namespaces=[]))
    assert cli.main(["status"]) == 0
