# SPDX-License-Identifier: GPL-2.0-only
"""Shell completion."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from nodrop import cli, complete, proc
from nodrop.errors import NodropError
from nodrop.host import netns

LINKS = [
    {"ifname": "lo"},
    {"ifname": "tun0", "linkinfo": {"info_kind": "tun", "info_data": {"type": "tun"}}},
    {"ifname": "tap1", "linkinfo": {"info_kind": "tun", "info_data": {"type": "tap"}}},
    {"ifname": "macv", "linkinfo": {"info_kind": "macvtap", "info_data": {"mode": "vepa"}}},
    {"ifname": "t\udcff\x1b", "linkinfo": {"info_kind": "tun", "info_data": {"type": "tap"}}},
    {"ifname": "veth0", "linkinfo": {"info_kind": "veth"}},
]


def words(*typed: str) -> list[str]:
    return [word for word, _ in complete.complete(typed)]


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("", [one.name for one in cli.NODROP.commands]),
        ("to", ["top"]),
        ("-j --color never to", ["top"]),
        ("fly ", []),
        ("top --int", ["--interval"]),
        ("top -- --int", []),
        ("--color ", ["auto", "always", "never"]),
        ("top --color=ne", ["--color=never"]),
        ("top --interval ", []),
        ("install --source ", [":dirs"]),
        ("set tun0 b", ["backpressure"]),
        ("-n blue set tun0 backpressure ", ["on", "off", "default"]),
        ("set --now tun0 backpressure ", ["on", "off"]),
        ("set tun0 backpressure on ", []),
        ("set --default ", ["backpressure", "stall-ms"]),
    ],
)
def test_words(typed: str, wanted: list[str]) -> None:
    assert words(*typed.split(" ")) == wanted


def test_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns, "NAMED", tmp_path)
    (tmp_path / "blue").touch()
    assert words("-n", "") == ["blue"]
    assert words("--netns", "re") == []


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def ask(*argv: str, **_: object) -> subprocess.CompletedProcess[str]:
        asked.append([*argv])
        printed = json.dumps(LINKS, ensure_ascii=False).replace("\\u001b", "\x1b")
        return subprocess.CompletedProcess(argv, 0, printed)

    monkeypatch.setattr(proc, "ask", ask)
    assert list(complete.devices(None)) == [
        *(("tun0", "tun"), ("tap1", "tap"), ("macv", "macvtap"), ("t\udcff\x1b", "tap"))
    ]
    assert words("-n", "blue", "status", "tu") == ["tun0"]
    assert words("status", "tun0", "--netns=red", "ta") == ["tap1"]
    assert [argv[1:-3] for argv in asked] == [[], ["-n", "blue"], ["-n", "red"]]


@pytest.mark.parametrize("failure", [NodropError("no ip"), ValueError("no JSON")])
def test_unreadable_devices(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(proc, "ask", ask)
    assert list(complete.devices(None)) == []


def test_output_for_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert complete.main([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(cli.NODROP.commands)
    for typed, printed in (
        ("bash top --color = ne", ["never"]),
        ("bash top --color =", ["auto", "always", "never"]),
        ("zsh top --color=ne", ["--color=never"]),
        ("bash top --int", ["--interval"]),
    ):
        assert complete.main(typed.split()) == 0
        assert capsys.readouterr().out.splitlines() == printed
    assert complete.main(["fish", "top", "--int"]) == 0
    assert capsys.readouterr().out.startswith("--interval\t")
