# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop report`` of a machine that has names and addresses everywhere (hosts/named.json)."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hosts import HOSTS
from schema import answer, validate
from stubs import write

from nodrop import cli, start
from nodrop.commands import report
from nodrop.doctor import fixes
from nodrop.doctor.observation import Record

Capture = pytest.CaptureFixture[str]
NAMED: dict[str, Any] = json.loads((HOSTS / "named.json").read_text())
ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+|[0-9a-f]{2}(:[0-9a-f]{2}){5}|2001:|198\.51|203\.0")
USERS = re.compile(r"\b123[45]\b")


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    recorded = Record.from_json(NAMED["record"])
    for name, text in NAMED["files"].items():
        write(tmp_path / name, text)
    release = recorded.system.release
    folder = tmp_path / "lib/modules" / release
    write(folder / "modules.dep", "updates/dkms/tun.ko:\n")
    (folder / "updates/dkms").mkdir(parents=True)
    note = b"".join(n.to_bytes(4, "little") for n in (4, 20, 3)) + b"GNU\0" + b"\xcd" * 20
    (folder / "updates/dkms/tun.ko").write_bytes(b"\0license=GPL\0version=0.9.1\0" + note)
    uname = os.uname()
    fake = (uname.sysname, NAMED["hostname"], release, uname.version, "x86_64")
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(fake))
    monkeypatch.setattr(report, "_ROOT", tmp_path)
    monkeypatch.setattr(report, "record", lambda *_args, **_words: recorded)
    # The command may be a file in a user's directory.
    own = tmp_path / "home/walter/nodrop.pyz"
    write(own)
    monkeypatch.setattr(fixes, "_PROGRAM", own)
    return tmp_path


@pytest.mark.parametrize("words", [[], ["-j"]])
def test_no_names_and_no_addresses(words: list[str], capsys: Capture) -> None:
    assert cli.main(["report", *words]) == 0
    text = capsys.readouterr().out
    assert [name for name in NAMED["names"] if name in text.lower()] == []
    assert ADDRESS.findall(text) == []
    assert USERS.findall(text) == []
    # What the names stand for is still there.
    assert cli.main(["report", "--names", *words]) == 0
    text = capsys.readouterr().out
    for name in ("alice0", "trent-ns", "openvpn-liam", "openvpn@mallory.service", "renamed from"):
        assert name in text


def test_name_of_a_process_adds_no_line(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    data = json.loads(json.dumps(NAMED["record"]))
    data["after"]["machine"]["holders"][0]["name"] = "a\nkernel: b"
    monkeypatch.setattr(report, "record", lambda *_args, **_words: Record.from_json(data))
    assert cli.main(["report", "--names"]) == 0
    text = capsys.readouterr().out
    assert "a kernel: b" in text
    assert "kernel: b" not in text.splitlines()


def test_content(capsys: Capture) -> None:
    found = answer(capsys, "report")
    host = {"distribution": "debian", "distribution_version": "13", "architecture": "x86_64"}
    assert host.items() <= found["machine"].items()
    (tun,) = (one for one in found["modules"] if one["name"] == "tun")
    versions = {"loaded_version": "1.0.0", "disk_version": "0.9.1", "disk_build_id": "cd" * 20}
    assert {"path": "updates/dkms/tun.ko", **versions}.items() <= tun.items()
    assert tun["parameters"] == {"nodrop": "Y"}
    labels = [(one["netns"], one["name"], one["kind"]) for one in found["devices"]]
    assert labels == [
        (None, "dev1", "tun"),
        (None, "dev2", "tap"),
        (None, "dev4", "macvtap"),
        ("ns1", "dev5", "tun"),
    ]
    first = found["devices"][0]
    assert (first["tx_dropped_packets"], first["queue"][0]["counters"]["guard_trips"]) == (654, 1)
    assert [one["kind"] for one in first["qdiscs"]] == ["fq_codel"]
    owner = {"pid": 101, "name": "process1", "user": 1, "unit": "unit1.service"}
    assert owner.items() <= first["owners"][0].items()
    # Of devices that match a pattern, and patterns that match none.
    assert found["settings"]["backpressure"] == {"dev1": False, "pattern1": True, "dev2": True}
    assert found["settings"]["qdisc"] == {"dev1": True, "pattern2": False}
    assert found["doctor"]["gone_devices"] == ["dev3"]
    for device in found["devices"]:
        del device["qdiscs"]
    keys = [
        *("kernel", "tun", "vhost_net", "tap", "default_on", "guard_ms", "default_qdisc"),
        *("hidden_processes", "unread_namespaces", "unreached_namespaces"),
    ]
    shared = {"schema": start.SCHEMA, **{key: found[key] for key in keys}}
    validate("status", {**shared, "command": "status", "devices": found["devices"]})
    validate("doctor", {**shared, "command": "doctor", **found["doctor"]})


def test_checks_find_the_same(capsys: Capture) -> None:
    def verdicts(*words: str) -> list[tuple[str, str]]:
        checks = answer(capsys, "report", *words)["doctor"]["checks"]
        return [(one["id"], one["severity"]) for one in checks]

    assert verdicts() == verdicts("--names")
    assert {("ring-drops", "fail"), ("reader-starved", "fail")} <= {*verdicts()}


def test_kernel_log(machine: Path, capsys: Capture) -> None:
    texts = [line.partition("] ")[2] for line in answer(capsys, "report")["kernel_log"]]
    assert texts == [
        "tun: Universal TUN/TAP device driver, 1.6",
        "nodrop: loading out-of-tree module taints kernel.",
        "nodrop: the kernel's own tun is loaded instead",
        "WARNING: nodrop_stop+0x10/0x80 [nodrop]",
        "tun_net_xmit+0x2e1/0x400 [tun 0123456789abcdef0123456789abcdef01234567]",
        "livepatch: 'nodrop_live': patching complete",
        "tun: version magic '6.12.41 SMP ' should be '6.12.48 SMP '",
    ]
    (machine / "dev/kmsg").unlink()
    found = answer(capsys, "report")
    assert (found["kernel_log"], bool(found["kernel_log_unread"])) == ([], True)


def test_file(tmp_path: Path, capsys: Capture) -> None:
    made = tmp_path / "report.json"
    assert cli.main(["-j", "report", str(made)]) == 0
    assert capsys.readouterr().out == ""
    validate("report", json.loads(made.read_text()))
    assert cli.main(["report", str(tmp_path)]) == 1
    made.unlink()
    made.symlink_to(tmp_path / "other")
    assert cli.main(["report", str(made)]) == 1
