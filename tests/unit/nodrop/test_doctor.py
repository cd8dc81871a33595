# SPDX-License-Identifier: GPL-2.0-only
"""Every check of doctor with and without a finding, and the command's options.

The machines in tests/unit/doctor were recorded in guests by ``python -m nodrop.doctor FILE``, and
shortened; most cases change one thing in one of them (doctor_machines.py, doctor_cases.py).
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from doctor_cases import (
    DEVICE,
    EDGE,
    FULL,
    MACHINE,
    NO_PACE,
    NODROP_KERNEL,
    QUEUES,
    SECOND,
    STALE,
    STALLED,
    TAP_DROPS,
    Row,
    verdict,
)
from doctor_machines import (
    NAME,
    RECORDS,
    Change,
    asleep,
    blocked,
    both,
    calm,
    files,
    kernels,
    load,
    machine,
    owner,
    queue,
    spaces,
    system,
    tap,
)
from schema import answer

from nodrop import cli, screen
from nodrop.doctor import finding, show
from nodrop.doctor.examine import examine
from nodrop.doctor.finding import Severity, Verdict
from nodrop.doctor.sample import Record
from nodrop.host.model import Driver

Capture = pytest.CaptureFixture[str]
BAD = ("note", "warn", "fail")


def changed(name: str, *changes: Change) -> dict[str, Any]:
    data = load(name)
    for change in changes:
        change(data)
    return data


def found_by(row: Row) -> Verdict | None:
    check, name, changes, _ = row
    return verdict(changed(name, *changes), check, NAME if row in DEVICE else None)


@pytest.mark.parametrize(
    "check", sorted({*finding.MACHINE, *finding.RING, *finding.TUNNEL} - {"namespaces"})
)
def test_check(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a clone, which has no nodrop in PATH."""
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    rows = [row for row in [*MACHINE, *DEVICE] if row[0] == check]
    for row in rows:
        found = found_by(row)
        assert (str(found.severity) if found else None) == row[3], row
        assert bool(found and found.cost) is (row[3] in BAD), row
    assert {row[3] in BAD for row in rows} == {True, False}
    first = found_by(next(row for row in rows if row[3] in BAD))
    assert first
    assert first.fix
    for line in first.commands:
        program, *words = shlex.split(line)
        assert program != "nodrop"
        if words[:2] == ["-m", "nodrop"]:
            cli.parser().parse_args(words[2:])


@pytest.mark.parametrize("path", ["/usr/bin/nodrop", None])
def test_fix_runs_here_and_the_livepatch_is_last(
    monkeypatch: pytest.MonkeyPatch, path: str | None
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: path)
    start = "nodrop" if path else "python3 -m nodrop"
    for changes, check, line in (
        ([], "driver-stock", f"{start} install"),
        ([STALE], "module-old", "rmmod vhost_net tun nodrop"),
    ):
        release = "6.12.90+deb13.1-amd64"
        installed = kernels({"nodrop": bool(changes), "release": release})
        patched = system(livepatch=True, release=release)
        found = verdict(changed("stock", *changes, installed, patched), check)
        assert found
        assert found.commands[0] == line
        assert found.fix[-1].startswith("#")
        assert found.fix[-1].endswith(f"{start} livepatch load")


def test_checks_that_need_root_are_skipped() -> None:
    data = changed("stock", machine(holders=[], hidden=7, root=False))
    for when in ("before", "after"):
        data[when]["unread"] = {"blue": "no right"}
    for check, device in (("reader-starved", NAME), ("reader-saturated", NAME), ("namespaces", "")):
        found = verdict(data, check, device or None)
        assert found
        assert found.severity is Severity.SKIPPED


@pytest.mark.parametrize(
    ("where", "prefix"),
    [("blue", "ip netns exec blue"), ("4711", "nsenter --net=/proc/4711/ns/net")],
)
def test_fix_is_for_the_namespace(where: str, prefix: str) -> None:
    data = load("noqueue")
    for one in spaces(data):
        one["name"] = where
    found = verdict(data, "noqueue", f"{where}/{NAME}")
    assert found
    assert found.fix == (f"{prefix} tc qdisc replace dev {NAME} root fq_codel",)


def test_each_queue_gets_a_qdisc() -> None:
    found = verdict(changed("noqueue", *QUEUES), "noqueue", NAME)
    assert found
    assert found.fix == (f"tc qdisc replace dev {NAME} root mq",)


@pytest.mark.parametrize("kind", ["macvtap", "ipvtap"])
def test_macvtap_counts_received_packets_as_sent(kind: str) -> None:
    (link,) = Record.from_json(changed("stock", tap(kind))).look(frozenset([NAME])).links
    one = link.now
    assert (one.kind, one.direct, one.driver, one.enabled) == (kind, True, Driver.NODROP, True)
    assert (one.tx_packets, one.tx_bytes, one.tx_dropped) == (1000, 90000, 70)
    assert (one.rx_packets, one.rx_bytes, one.rx_dropped) == (3, 300, 0)
    assert one.drops_by_cause == {"unheld": 70}
    assert (one.queue[0].ring_packets, one.queue[0].limit_packets) == (7, 20)
    assert [owner.name for owner in one.owners] == ["python3"]


def test_fix_of_a_macvtap() -> None:
    for change, check, line in (
        (tap(on="N"), "nodrop-off", "echo Y >/sys/module/tap/parameters/nodrop"),
        (tap(on=None), "ring-drops", "modprobe -r macvtap ipvtap tap"),
    ):
        found = verdict(changed("stock", change, TAP_DROPS), check, NAME)
        assert found
        assert line in found.fix
    late = [tap(), files(tap_guard_ms="2000"), both(f"stats.{NAME}.rx0_guard_trips", 1)]
    found = verdict(changed("nodrop", *late), "guard-tripped", NAME)
    assert found
    assert found.commands == ("echo 10000 >/sys/module/tap/parameters/guard_ms",)
    inside = changed("stock", tap(on=None), TAP_DROPS, system(container="docker"))
    found = verdict(inside, "ring-drops", NAME)
    assert found
    assert found.commands == (), "a container has no command that helps"


def numbers(check: str, *changes: Change) -> dict[str, float]:
    found = verdict(changed("nodrop", *changes), check, NAME)
    assert found
    return found.numbers


def test_unread_queue_has_its_number_and_since_when() -> None:
    seconds = 49.63498112 - 47.79906304
    found = numbers("reader-stuck", *SECOND)
    assert (found["unread_queues"], found["ring_packets"]) == (1, 4)
    assert found["queue1_unread_s"] == pytest.approx(seconds)
    found = numbers("reader-stuck", *SECOND, queue(0, ring=6, stalled_ms=12_300))
    assert (found["unread_queues"], found["ring_packets"]) == (2, 10)
    times = [found["queue0_unread_s"], found["queue1_unread_s"]]
    assert times == pytest.approx([12.3, seconds])
    edge = numbers("reader-edge", *EDGE, asleep())
    assert edge == {"ring_packets": 3, "queue0_unread_s": pytest.approx(seconds)}


def test_stalled_reader_has_its_rate_and_since_when() -> None:
    found = numbers("guard-tripped", *STALLED)
    assert found.pop("queue0_taken_packets_per_s") == pytest.approx(9 / 1.836, rel=0.01)
    assert found == {"guard_trips": 1, "queue0_stalled_s": 12.3}


def test_what_the_reader_took_is_modulo_2_32() -> None:
    wraps = [queue(ring=4), both(f"stats.{NAME}.tx0_taken", (1 << 32) - 3)]
    then = both(f"stats.{NAME}.tx0_taken", 6, first=1)
    stalled = [*STALLED, *wraps, both(f"stats.{NAME}.tx0_stalled_ms", 50), then]
    assert numbers("guard-tripped", *stalled)["queue0_taken_packets_per_s"] == pytest.approx(
        9 / 1.836, rel=0.01
    )


def test_stopped_reader_is_continued() -> None:
    for state, command in (("T", "kill -CONT 64"), ("S", "cat /proc/64/status /proc/64/wchan")):
        found = verdict(changed("stuck", asleep(state)), "reader-stuck", NAME)
        assert found
        assert found.commands == (command,)


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        # A pace of 100 us; 22,632 bytes, of which 20,240 left in 1.84 s.
        ([], {"ring_wait_ms": 0.2, "qdisc_wait_ms": 2053}),
        ([calm, queue(ring=400, taken=100)], {"ring_wait_ms": 40, "qdisc_wait_ms": 0}),
        # Without a sample of its pace: 100 packets in 1.84 s.
        ([calm, queue(ring=4, taken=100), NO_PACE], {"ring_wait_ms": 73.4, "qdisc_wait_ms": 0}),
        ([calm, queue(ring=4)], {"qdisc_wait_ms": 0}),
        ([blocked, queue(ring=4)], {}),
        # The second queue of two.
        ([*SECOND, calm], {"qdisc_wait_ms": 0}),
    ],
)
def test_delay_of_ring_and_qdisc(changes: list[Change], waits: dict[str, float]) -> None:
    found = numbers("delay", *changes)
    assert {key: of for key, of in found.items() if key.endswith("_ms")} == pytest.approx(
        waits, rel=0.01
    )
    assert found["queue"] == (1 if SECOND[-1] in changes else 0)


def test_shaper_is_not_replaced() -> None:
    for kind, commands in (("pfifo", 1), ("htb", 0), ("fq_codel", 0)):
        found = verdict(changed("nodrop", both("qdiscs.0.kind", kind)), "delay", NAME)
        assert found
        assert len(found.commands) == commands


def doctor(monkeypatch: pytest.MonkeyPatch, data: dict[str, Any]) -> None:
    """Replace the machine that the command reads."""
    seen = Record.from_json(data)

    def record(*_args: object, known: Callable[[object], None], **_words: object) -> Record:
        known(seen.before)
        return seen

    monkeypatch.setattr("nodrop.commands.doctor.record", record)


@pytest.mark.parametrize("name", RECORDS)
def test_json_matches_the_schema(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    data = changed(name, files(default_qdisc="pfifo_fast"))
    seen = Record.from_json(data)
    assert Record.from_json(json.loads(json.dumps(asdict(seen)))) == seen
    doctor(monkeypatch, data)
    shown = answer(capsys, "doctor", status=3)
    (rates,) = (one["numbers"] for one in shown["checks"] if one["id"] == "ring-drops")
    first, second = (space["links"][0]["stats64"]["tx"]["dropped"] for space in spaces(data))
    lost = pytest.approx(second - first, rel=0.01)
    assert rates["dropped_packets_per_s"] * shown["interval_s"] == lost
    assert shown["counts"]["warn"] == sum(one["severity"] == "warn" for one in shown["checks"]) > 0


@pytest.mark.parametrize(
    ("name", "change", "status"),
    [("nodrop", [], 0), ("nodrop", [FULL], 1), ("stock", [], 2)],
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
    label = "'a_b''c_d ring-drops dropped_packets_per_s'"
    found = dict(re.findall(r"('(?:[^']|'')*')=([\d.]+)(?: |$)", values))
    assert (float(found[label]) > 0) is (status == 2)
    assert cli.main(["doctor", "--nagios", "nothing0"]) == 3
    assert capsys.readouterr().out.startswith("NODROP UNKNOWN - ")
    assert cli.main(["doctor", "--nagios", "-j"]) == 2
    assert cli.main(["doctor", "--nagios", "-A", "-n", "blue"]) == 2
    monkeypatch.setattr("nodrop.commands.doctor.record", None)
    assert cli.main(["doctor", "--nagios"]) == 3, "a bug"
    assert capsys.readouterr().out.startswith("NODROP UNKNOWN - ")


def test_device_disappears(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    data = load("nodrop")
    spaces(data)[1]["links"].clear()
    doctor(monkeypatch, data)
    assert answer(capsys, "doctor")["gone_devices"] == [NAME]
    assert cli.main(["doctor", NAME]) == cli.main(["doctor", "nothing0"]) == 1


def test_process_names_stay_in_their_line(capsys: Capture) -> None:
    """A process name may contain a second command, or an escape sequence."""
    data = changed("stock", NODROP_KERNEL, STALE, owner(name="x\nreboot #\x1b[2J"))
    look = Record.from_json(data).look()
    findings = examine(look)
    lines = [line for one in show.as_json(look, findings)["checks"] for line in one["fix"]]
    assert any("reboot" in line for line in lines)
    assert all(line.isprintable() for line in lines)
    show.to_people(screen.console(argparse.Namespace(color="never")), look, findings, fine=True)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert not [line for line in out.splitlines() if line.lstrip().startswith("reboot")]
