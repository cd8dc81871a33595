# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop doctor``: its JSON, its line for a monitoring plugin, its options and what it prints."""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from doctor_changes import (
    FULL,
    NODROP_KERNEL,
    RECORDS,
    STALE,
    Change,
    both,
    changed,
    files,
    owner,
    spaces,
)
from hosts import NAME
from schema import answer

from nodrop import cli, screen, start
from nodrop.commands import doctor as command
from nodrop.doctor.observation import Record

Capture = pytest.CaptureFixture[str]


def doctor(monkeypatch: pytest.MonkeyPatch, data: dict[str, Any]) -> None:
    recorded = Record.from_json(data)

    def record(*_args: object, check: Callable[[object], None], **_words: object) -> Record:
        check(recorded.before)
        return recorded

    monkeypatch.setattr("nodrop.commands.doctor.record", record)


@pytest.mark.parametrize("name", RECORDS)
def test_json_matches_the_schema(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    data = changed(name, files(default_qdisc="pfifo_fast"))
    recorded = Record.from_json(data)
    assert Record.from_json(json.loads(json.dumps(asdict(recorded)))) == recorded
    doctor(monkeypatch, data)
    shown = answer(capsys, "doctor", status=3)
    (rates,) = (one["numbers"] for one in shown["checks"] if one["id"] == "ring-drops")
    first, second = (space["links"][0]["stats64"]["tx"]["dropped"] for space in spaces(data))
    lost = pytest.approx(second - first, rel=0.01)
    assert rates["dropped_packets_per_s"] * shown["interval_s"] == lost
    assert shown["counts"]["warn"] == sum(one["severity"] == "warn" for one in shown["checks"]) > 0


@pytest.mark.parametrize(
    ("name", "change", "status"), [("nodrop", [], 0), ("nodrop", [FULL], 1), ("stock", [], 2)]
)
def test_line_for_nagios(
    name: str, change: list[Change], status: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    odd = "a|b'c=d"
    data = changed(name, *change, both("links.0.ifname", odd), both("qdiscs.0.dev", odd))
    doctor(monkeypatch, data)
    assert cli.main(["doctor", "--nagios"]) == status
    (line,) = capsys.readouterr().out.splitlines()
    text, values = line.split(" | ")
    assert text.split()[1] == ("OK", "WARNING", "CRITICAL")[status]
    result = {name: int(value) for name, value in (one.split("=") for one in values.split())}
    assert (result["dropped_packets_per_s"] > 0) is (status == 2)
    assert (result["qdisc_dropped_packets_per_s"] > 0) is (status == 1)
    assert result["devices"] == 1
    assert cli.main(["doctor", "--nagios", "nothing0"]) == 3
    assert capsys.readouterr().out.startswith("NODROP UNKNOWN - ")


@pytest.mark.parametrize(
    "words",
    [
        "-j",
        "-A -n blue",
        "-n nosuch",
        "--ignore nonsense",
        "--ignore",
        "--seconds x",
        "--seconds=-1",
        "--unknown",
        "nothing0",
        "--color pink",
    ],
)
def test_errors_for_nagios(words: str, capsys: Capture) -> None:
    """Whatever is wrong, the plugin's line is on stdout, and its status is UNKNOWN."""
    for before in ([*words.split(), "doctor"], ["doctor", *words.split()]):
        assert cli.main([*before, "--nagios"]) == 3
        out, err = capsys.readouterr()
        assert (out.count("\n"), err) == (1, "")
        assert out.startswith("NODROP UNKNOWN - ")


def test_bug_for_nagios(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("sys.argv", ["nodrop", "doctor", "--nagios"])
    assert start._unexpected(TypeError("x | y")) == 3
    assert capsys.readouterr().out.startswith("NODROP UNKNOWN - ")


def many(devices: int) -> Change:
    """The device exists many times, in a namespace with a long name."""

    def change(data: dict[str, Any]) -> None:
        both("name", 200 * "n")(data)
        for space in spaces(data):
            for number in range(devices):
                names = {"ifname": f"tun{number}", "ifindex": 100 + number}
                space["links"].append({**copy.deepcopy(space["links"][0]), **names})

    return change


def test_length_for_nagios_is_bounded(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    doctor(monkeypatch, changed("stock", many(500)))
    assert cli.main(["doctor", "--nagios"]) == 2
    line = capsys.readouterr().out
    assert "devices=501" in line
    assert len(line) < 1000


def test_ignored_checks(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    doctor(monkeypatch, changed("nodrop", FULL, files(default_qdisc="pfifo_fast")))
    shown = answer(capsys, "doctor", status=3)["checks"]
    words = [f"--ignore={one['id']}" for one in shown if one["severity"] == "warn"]
    left = answer(capsys, "doctor", *words[1:], status=3)
    assert (left["counts"]["warn"], len(left["checks"])) == (1, len(shown) - len(words) + 1)
    assert cli.main(["doctor", "--nagios", *words]) == 0
    assert cli.main(["doctor", "--ignore", "qdisc"]) == 2


def test_device_disappears(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    data = changed("nodrop", both("links", [], first=1))
    doctor(monkeypatch, data)
    assert answer(capsys, "doctor")["gone_devices"] == [NAME]
    assert cli.main(["doctor", NAME]) == cli.main(["doctor", "nothing0"]) == 1


def test_process_names_stay_in_their_line(capsys: Capture) -> None:
    """A process name may contain a second command, or an escape sequence."""
    data = changed("stock", NODROP_KERNEL, STALE, owner(name="x\nreboot #\x1b[2J"))
    observation = Record.from_json(data).observation()
    results = command.examine(observation)
    lines = [
        line for one in command.findings_json(observation, results)["checks"] for line in one["fix"]
    ]
    assert any("reboot" in line for line in lines)
    assert all(line.isprintable() for line in lines)
    console = screen.console(argparse.Namespace(color="never"))
    command.print_text(console, observation, results, fine=True)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert not [line for line in out.splitlines() if line.lstrip().startswith("reboot")]
