# SPDX-License-Identifier: GPL-2.0-only
"""Every check of doctor, once where it finds something and once where it does not.

The machines in tests/unit/doctor were recorded in guests by ``python -m nodrop.doctor FILE``;
most cases change one thing in one of them.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from doctor_cases import (
    CASES,
    NAME,
    NODROP_KERNEL,
    RECORDED,
    Change,
    both,
    files,
    later,
    link,
    load,
    machine,
    owner,
    spaces,
    stale,
    system,
    verdict,
)
from schema import validate

from nodrop import cli, screen
from nodrop.doctor import fixes, show
from nodrop.doctor.examine import examine
from nodrop.doctor.finding import CHECKS, Severity
from nodrop.doctor.sample import Record
from nodrop.kernel.artifacts import REPOSITORY


@pytest.mark.parametrize(("device", "check", "name", "changes", "severity", "said"), CASES)
def test_check(
    device: str | None,
    check: str,
    name: str,
    changes: list[Change],
    severity: str | None,
    said: str,
) -> None:
    data = load(name)
    for change in changes:
        change(data)
    found = verdict(data, check, device)
    assert (str(found.severity) if found else None) == severity
    if found:
        assert said in found.seen
        if found.severity in (Severity.WARN, Severity.FAIL):
            assert found.cost


def test_every_check_has_a_case_where_it_finds_something_and_one_where_it_does_not() -> None:
    bad = {case[1] for case in CASES if case[4] in ("warn", "fail")}
    fine = {case[1] for case in CASES if case[4] not in ("warn", "fail")}
    assert bad == CHECKS.ids - {"namespaces"}
    assert fine >= bad


def test_the_page_tells_of_every_check() -> None:
    text = (REPOSITORY / "docs/doctor.md").read_text()
    assert set(re.findall(r"^### ([a-z-]+)$", text, re.MULTILINE)) == CHECKS.ids


def test_what_an_ordinary_user_may_not_see_is_skipped_and_does_not_count() -> None:
    data = load("stock")
    machine(holders=[], hidden=7, root=False)(data)
    for when in ("before", "after"):
        data[when]["unread"] = {"blue": "no right"}
    for check in ("reader-starved", "reader-saturated"):
        found = verdict(data, check, NAME)
        assert found
        assert found.severity is Severity.SKIPPED
        assert "needs root" in found.seen
    found = verdict(data, "namespaces")
    assert found
    assert (found.severity, "blue" in found.seen) == (Severity.SKIPPED, True)


def test_repair_is_written_for_the_namespace() -> None:
    data = load("noqueue")
    for space, where in ((spaces(data), "blue"), (spaces(data), "4711")):
        for one in space:
            one["name"] = where
        found = verdict(data, "noqueue", f"{where}/{NAME}")
        assert found
        prefix = "ip netns exec blue" if where == "blue" else "nsenter -t 4711 -n"
        assert found.fix == (f"{prefix} tc qdisc replace dev {NAME} root fq_codel",)


def test_what_a_longer_ring_costs() -> None:
    data = load("stock")
    link(txqlen=1000)(data)
    both("links.0.stats64.tx.bytes", 0)(data)
    found = verdict(data, "big-ring", NAME)
    assert found
    assert "is 120 ms at 100 Mbit/s, one of 500 60 ms" in found.cost
    packets = spaces(data)[1]["links"][0]["stats64"]["tx"]["packets"]
    packets -= spaces(data)[0]["links"][0]["stats64"]["tx"]["packets"]
    spaces(data)[0]["time_s"] = 10.0
    spaces(data)[1]["time_s"] = 11.0
    later("links.0.stats64.tx.bytes", packets * 1000)(data)
    found = verdict(data, "big-ring", NAME)
    assert found
    assert f"is {1000 / packets * 1000:,.0f} ms at the present" in found.cost


def test_restart_names_services_and_others() -> None:
    data = load("stock")
    pid = data["after"]["machine"]["holders"][0]["pid"]
    for change in (NODROP_KERNEL, stale, system(units={str(pid): "openvpn@office.service"})):
        change(data)
    lines = fixes.restart(Record.from_json(data).look())
    assert lines == (
        "systemctl stop openvpn@office.service",
        "rmmod vhost_net tun nodrop",
        "modprobe tun",
        "systemctl start openvpn@office.service",
    )
    data["system"]["units"] = {}
    assert fixes.restart(Record.from_json(data).look())[0].startswith("# stop python")


def test_record_survives_json() -> None:
    seen = Record.from_json(load("starved"))
    assert Record.from_json(json.loads(json.dumps(seen.to_json()))) == seen


def doctor(
    monkeypatch: pytest.MonkeyPatch, data: dict[str, Any], *words: str, status: int = 3
) -> None:
    seen = Record.from_json(data)

    def record(*_args: object, known: Callable[[object], None], **_words: object) -> Record:
        known(seen.before)
        return seen

    monkeypatch.setattr("nodrop.commands.doctor.record", record)
    assert cli.main([*words]) == status


@pytest.mark.parametrize("name", sorted(path.stem for path in RECORDED.glob("*.json")))
def test_json_is_what_the_schema_says(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = load(name)
    files(default_qdisc="pfifo_fast")(data)
    doctor(monkeypatch, data, "-j", "doctor")
    shown = json.loads(capsys.readouterr().out)
    validate("doctor", shown)
    assert shown["counts"]["warn"] == sum(one["severity"] == "warn" for one in shown["checks"]) > 0


def test_nothing_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = load("nodrop")
    both("qdiscs.0.kind", "fq_codel")(data)
    doctor(monkeypatch, data, "doctor", status=0)
    text = capsys.readouterr().out
    assert "checks fine." in text
    assert "ring-drops" not in text
    doctor(monkeypatch, data, "doctor", "--all", status=0)
    assert "ring-drops: nothing dropped" in capsys.readouterr().out


def test_older_modules(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = load("nodrop")
    both("qdiscs.0.kind", "fq_codel")(data)
    for when in ("before", "after"):
        data[when]["machine"]["files"]["sys/module/nodrop/version"] = "0.0.9"
    doctor(monkeypatch, data, "doctor", status=0)
    assert "The modules in memory are nodrop 0.0.9, this command is " in capsys.readouterr().err


def test_device_that_goes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = load("nodrop")
    spaces(data)[1]["links"].clear()
    doctor(monkeypatch, data, "doctor", status=0)
    assert f"{NAME} went away" in capsys.readouterr().err
    doctor(monkeypatch, data, "doctor", NAME, status=1)
    assert f"{NAME} went away" in capsys.readouterr().err
    doctor(monkeypatch, data, "doctor", "nothing0", status=1)
    assert "There is no TUN" in capsys.readouterr().err


def test_forty_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("nodrop.screen.is_terminal", lambda _stream: True)
    monkeypatch.setenv("COLUMNS", "40")
    data = load("starved")
    doctor(monkeypatch, data, "--color", "never", "doctor")
    lines = capsys.readouterr().out.splitlines()
    commands = {fix for one in examine(Record.from_json(data).look()) for fix in one.verdict.fix}
    words = [line.split()[0] for line in lines if line.startswith(("fail ", "warn ", "ok "))]
    assert words == sorted(words)
    assert "fail" in words
    for line in lines[1:]:
        assert len(line) <= 40 or line.strip() in commands


def test_names_of_others_stay_in_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A process may call itself anything, a second command and an escape sequence too."""
    data = load("stock")
    for change in (NODROP_KERNEL, stale, owner(name="x\nreboot #\x1b[2J")):
        change(data)
    look = Record.from_json(data).look()
    findings = examine(look)
    told = show.as_json(look, findings)
    lines = [line for one in told["checks"] for line in one["fix"]]
    assert any("reboot" in line for line in lines)
    assert all(line.isprintable() for line in lines)
    show.to_people(screen.console(argparse.Namespace(color="never")), look, findings, fine=True)
    out = capsys.readouterr().out
    assert "reboot" in out
    assert "\x1b" not in out
    assert not [line for line in out.splitlines() if line.lstrip().startswith("reboot")]
