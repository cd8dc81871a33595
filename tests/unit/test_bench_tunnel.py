# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop bench tunnel``: what it takes, what it makes of its data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nodrop import cli
from nodrop.bench import tunnel
from nodrop.errors import NodropError
from nodrop.guest.tunnels.kinds import checksum
from nodrop.guest.tunnels.pmtu import message
from nodrop.report import tunnels

SCHEMA = Path(cli.__file__).with_name("schemas") / "bench-tunnel.json"
META = {
    "boots": 3,
    "kernel": {"release": "7.3.4"},
    "machine": {"cpu": "a CPU", "cpus": 2},
    "time": "2026-11-23T00:00:00+00:00",
}


def line(boot: int, ratio: float, **case: Any) -> dict[str, Any]:
    which = {"type": "vxlan", "lower": "veth", "senders": 1, "parts": "noref", "shared": False}
    result = {"pairs": 10, "packets": 6400, "refused": 0, "off": 1000.0, "saved": 20 * ratio}
    return {"boot": boot, **which, **case, "result": {**result, "ratio": ratio}}


def measured(lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> list[tunnel.Case]:
    """Put data in place of guests; return the cases that will have been asked for."""
    wanted: list[tunnel.Case] = []

    def measure(cases: list[tunnel.Case], _boots: int, _s: float, out: Path, *_: object) -> None:
        wanted.extend(cases)
        out.mkdir()
        (out / "raw.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
        (out / "meta.json").write_text(json.dumps(META))

    monkeypatch.setattr(tunnel, "measure", measure)
    return wanted


def test_a_case_is_the_median_of_its_boots() -> None:
    lines = [line(boot, ratio) for boot, ratio in enumerate((1.01, 1.5, 1.02))]
    lines += [line(0, 2.0, senders=2, shared=True)]
    first, second = tunnels.summarise(lines)
    assert (first["ratio"]["median"], first["ratio"]["low"]) == (1.02, 1.01)
    assert (first["boots"], first["pairs"], first["packets"]) == (3, 30, 19200)
    assert second["ratio"]["median"] == 2.0
    assert tunnels.rows([second])[0][2] == "2, one route"


def test_table_and_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured([line(0, 1.25)], monkeypatch)
    out = tmp_path / "out"
    assert cli.main(["bench", "tunnel", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "1.250" in printed
    assert "| vxlan | veth | 1 | noref | 1,000 | 25 | 1.250 |" in (out / "table.md").read_text()
    assert cli.main(["-j", "bench", "tunnel", "--out", str(tmp_path / "other")]) == 0
    told = json.loads(capsys.readouterr().out)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(told)


def test_every_combination_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = measured([line(0, 1.0)], monkeypatch)
    words = ["--type", "gre,ipip", "--senders", "1,2shared", "--parts", "noref,noid+straight,all"]
    assert cli.main(["bench", "tunnel", *words, "--out", str(tmp_path / "out")]) == 0
    assert len(wanted) == len(set(wanted)) == 12
    assert {case.parts for case in wanted} == {"noref", "noid,straight", "noref,noid,straight"}
    assert {(case.senders, case.shared) for case in wanted} == {(1, False), (2, True)}
    assert wanted[-1].argv(4)[-1] == "--shared"


@pytest.mark.parametrize(
    "words",
    [
        ["tunnel", "--type", "tin"],
        ["tunnel", "--parts", "tin"],
        ["tunnel", "--variants", "stock"],
        ["tunnel", "--lower", "dummy", "--senders", "2shared"],
        ["tap", "--type", "vxlan"],
    ],
)
def test_what_makes_no_sense(words: list[str]) -> None:
    assert cli.main(["bench", *words]) == 2


def test_data_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "raw.jsonl").touch()
    with pytest.raises(NodropError):
        tunnel.measure([], 1, 1.0, tmp_path, None)  # type: ignore[arg-type]


def test_the_message_about_a_smaller_mtu() -> None:
    sent = message("198.18.4.1", "198.18.4.2", 1400)
    assert checksum(sent) == 0
    assert sent[:2] == b"\x03\x04"
    assert int.from_bytes(sent[6:8]) == 1400
    # About an echo reply: the kernel believes it without having a socket for it.
    assert sent[8 + 9] == 1
    assert sent[8 + 20] == 0
