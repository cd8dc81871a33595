# SPDX-License-Identifier: GPL-2.0-only
"""What may come next on a command line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from nodrop import cli, complete
from nodrop.host import netns

LINKS = [
    {"ifname": "lo"},
    {"ifname": "tun0", "linkinfo": {"info_kind": "tun", "info_data": {"type": "tun"}}},
    {"ifname": "tap1", "linkinfo": {"info_kind": "tun", "info_data": {"type": "tap"}}},
    {"ifname": "macv", "linkinfo": {"info_kind": "macvtap", "info_data": {"mode": "vepa"}}},
    {"ifname": "veth0", "linkinfo": {"info_kind": "veth"}},
]


def words(*typed: str) -> list[str]:
    return [word for word, _ in complete.complete(typed)]


def test_commands_with_their_summaries() -> None:
    assert complete.complete([""]) == [(one.name, one.summary) for one in cli.COMMANDS]
    assert complete.complete([]) == complete.complete([""])
    assert words("be") == ["bench"]
    assert words("-j", "--color", "never", "be") == ["bench"]
    assert words("fly", "") == []


def test_scenarios() -> None:
    assert words("bench", "tap") == ["tap", "tap-qdiscs"]
    assert words("bench", "--pairs", "3", "tap") == ["tap", "tap-qdiscs"]
    assert words("bench", "tap", "") == []


def test_options() -> None:
    assert words("bench", "--pai") == ["--pairs"]
    assert words("bench", "--ne") == ["--netns"]
    assert words("--ver") == ["--version"]
    assert dict(complete.complete(["bench", "--pai"])) == {
        "--pairs": "runs of each driver and case"
    }
    assert words("bench", "--", "--pa") == []


def test_values() -> None:
    assert words("--color", "") == ["auto", "always", "never"]
    assert words("bench", "--color", "ne") == ["never"]
    assert words("bench", "--color=ne") == ["--color=never"]
    assert words("bench", "--pairs", "") == []
    assert words("bench", "--out", "") == [":dirs"]
    assert words("report", "out/") == [":dirs"]


def test_lists() -> None:
    assert words("bench", "--variants", "") == ["stock", "upstream", "nodrop"]
    assert words("bench", "--variants", "stock,") == ["stock,upstream", "stock,nodrop"]
    assert words("bench", "--variants=nodrop,st") == ["--variants=nodrop,stock"]


def test_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns, "NAMED", tmp_path)
    (tmp_path / "blue").touch()
    assert words("-n", "") == ["blue"]
    assert words("--netns", "re") == []


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        asked.append(argv)
        return subprocess.CompletedProcess(argv, 0, json.dumps(LINKS).encode())

    monkeypatch.setattr(subprocess, "run", run)
    assert list(complete.devices(None)) == [("tun0", "tun"), ("tap1", "tap"), ("macv", "macvtap")]
    assert words("-n", "blue", "status", "t") == ["tun0", "tap1"]
    assert words("status", "tun0", "--netns=red", "ta") == ["tap1"]
    assert [argv[1:-3] for argv in asked] == [[], ["-n", "blue"], ["-n", "red"]]


@pytest.mark.parametrize(
    "failure", [OSError("no ip"), subprocess.TimeoutExpired("ip", 2), ValueError("no JSON")]
)
def test_devices_that_cannot_be_seen(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(subprocess, "run", run)
    assert list(complete.devices(None)) == []


def test_devices_with_names_that_are_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    said = json.dumps(LINKS).encode().replace(b"tap1", b"t\xff\x1b")

    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(argv, 0, said)

    monkeypatch.setattr(subprocess, "run", run)
    assert [name for name, _ in complete.devices(None)] == ["tun0", "t\udcff\x1b", "macv"]


def test_without_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert complete.main([]) == 0
    assert "status" in capsys.readouterr().out


def test_what_bash_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert complete.main(["bash", "bench", "--color", "=", "ne"]) == 0
    assert complete.main(["bash", "bench", "--color", "="]) == 0
    assert complete.main(["zsh", "bench", "--color=ne"]) == 0
    assert complete.main(["fish", "bench", "--pai"]) == 0
    assert complete.main(["bash", "bench", "--pai"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        *("never", "auto", "always", "never", "--color=never"),
        *("--pairs\truns of each driver and case", "--pairs"),
    ]


def test_all_commands_can_be_walked() -> None:
    for command in cli.COMMANDS:
        assert "--help" in words(command.name, "--")
        words(command.name, "")
