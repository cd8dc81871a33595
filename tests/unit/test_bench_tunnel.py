# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.bench.tunnel``: what it takes, what it makes of its data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodrop.bench import tunnel
from nodrop.guest.tunnels.kinds import checksum
from nodrop.guest.tunnels.pmtu import message

META = {
    "boots": 3,
    "kernel": {"release": "7.3.4"},
    "machine": {"cpu": "a CPU", "cpus": 2},
    "time": "2026-11-23T00:00:00+00:00",
}


def line(boot: int, ratio: float, **case: Any) -> dict[str, Any]:
    which = {"type": "vxlan", "senders": 1, "parts": "noref", "shared": False}
    result = {"pairs": 10, "packets": 6400, "refused": 0, "off": 1000.0, "saved": 20 * ratio}
    return {"boot": boot, **which, **case, "result": {**result, "ratio": ratio}}


def test_a_case_is_the_median_of_its_boots() -> None:
    lines = [line(boot, ratio) for boot, ratio in enumerate((1.01, 1.5, 1.02))]
    lines += [line(0, 2.0, senders=2, shared=True)]
    _, _, first, second, *_ = tunnel.table(lines, META).splitlines()
    assert first == "| vxlan | 1 | noref | 1,000 | 20 | 1.020 | 1.010 to 1.500 |"
    assert "| 2, one route | noref | 1,000 | 40 | 2.000 |" in second


def test_every_combination_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted: list[tunnel.Case] = []

    def measure(cases: list[tunnel.Case], out: Path, _progress: object) -> None:
        wanted.extend(cases)
        (out / "raw.jsonl").write_text(json.dumps(line(0, 1.0)) + "\n")
        (out / "meta.json").write_text(json.dumps(META))

    monkeypatch.setattr(tunnel, "measure", measure)
    words = ["--type", "gre", "ipip", "--senders", "1", "2shared", "--out", str(tmp_path)]
    assert tunnel.main(words) == 0
    assert (tmp_path / "table.md").exists()
    assert len(wanted) == len(set(wanted)) == 8
    assert {case.parts for case in wanted} == {"noref", "noref,noid,straight"}
    assert {(case.senders, case.shared) for case in wanted} == {(1, False), (2, True)}
    assert wanted[-1].argv(4)[-1] == "--shared"


def test_the_message_about_a_smaller_mtu() -> None:
    sent = message("198.18.4.1", "198.18.4.2", 1400)
    assert checksum(sent) == 0
    assert sent[:2] == b"\x03\x04"
    assert int.from_bytes(sent[6:8]) == 1400
    # About an echo reply: the kernel believes it without having a socket for it.
    assert sent[8 + 9] == 1
    assert sent[8 + 20] == 0
