# SPDX-License-Identifier: GPL-2.0-only
"""Other people's tables beside ours: what is shown is what the summaries say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import NodropError
from nodrop.report import theirs


def numbers(median: float, low: float = 0.0, high: float = 0.0) -> dict[str, float]:
    return {"median": median, "low": low or median, "high": high or median, "n": 10}


SUMMARY: dict[str, Any] = {
    "pairs": 10,
    "seconds": 0.5,
    "started": "2026-11-21T23:00:00Z",
    "kernel": {"release": "7.3.4"},
    "machine": {"cpu": "a CPU", "cpus": 2},
    "noise": {"noisy": False},
    "joins": {"delivered_pps": "geometric mean", "lost": "sum"},
    "variants": {"nodrop": {"lost": numbers(3)}},
    "ratios": {},
    "cases": {
        "qdisc=pfifo": {
            "variants": {
                "stock": {"delivered_pps": numbers(200000), "lost": numbers(500000)},
                "upstream": {"delivered_pps": numbers(190000), "lost": numbers(0)},
                "nodrop": {"delivered_pps": numbers(210000), "lost": numbers(0)},
            },
            "ratios": {
                "nodrop/stock": {
                    "delivered_pps": numbers(1.05, 1.01, 1.12),
                    "lost": numbers(0.01),
                },
                "upstream/stock": {"delivered_pps": numbers(0.95, 0.9, 0.99)},
            },
        }
    },
}

TABLE: dict[str, Any] = {
    "title": "pktgen",
    "source": "somebody",
    "unit": "Kpps",
    "columns": ["stock", "patched"],
    "run": "tap",
    "metric": "delivered_pps",
    "scale": 0.001,
    "command": "nodrop bench tap",
    "why": "Another machine.",
    "rows": [
        {"label": "delivered", "theirs": [195, 183], "case": "qdisc=pfifo"},
        {"label": "lost", "theirs": [1615, 0], "case": "qdisc=pfifo", "metric": "lost"},
        {"label": "elsewhere", "theirs": [float("nan"), 12]},
    ],
}


@pytest.fixture
def ours(tmp_path: Path) -> theirs.Ours:
    (tmp_path / "tap").mkdir()
    text = json.dumps({"schema": 1, "scenarios": {"tap": SUMMARY}})
    (tmp_path / "tap" / "summary.json").write_text(text)
    return theirs.Ours(tmp_path)


def lines(table: dict[str, Any], ours: theirs.Ours) -> list[str]:
    return theirs.section(theirs.Table.from_data(table), ours)


def test_a_row_has_their_figures_and_ours_in_one_unit(ours: theirs.Ours) -> None:
    assert (
        "| delivered | 195 | 183 | 0.94 | 200 | 190 | 210 | 0.95 [0.90, 0.99] | 1.05 [1.01, 1.12] |"
        in lines(TABLE, ours)
    )


def test_a_count_has_no_ratio(ours: theirs.Ours) -> None:
    assert "| lost | 1,615 | 0 | 0.00 | 500 | 0 | 0 | - | - |" in lines(TABLE, ours)


def test_a_row_without_a_case_has_only_theirs(ours: theirs.Ours) -> None:
    assert "| elsewhere | - | 12 | - | - | - | - | - | - |" in lines(TABLE, ours)


def test_figures_among_the_reasons_are_the_summaries(ours: theirs.Ours) -> None:
    why = "{qdisc=pfifo|lost|stock}, {qdisc=pfifo|delivered_pps|nodrop/stock}, {|lost|nodrop}"
    text = "\n".join(lines({**TABLE, "why": why}, ours))
    assert "Why they differ: 500,000, 1.05 [1.01, 1.12], 3" in text
    with pytest.raises(NodropError, match="no figure for"):
        lines({**TABLE, "why": "{qdisc=pfifo|colour|stock}"}, ours)


def test_machine_kernel_pairs_and_command_stand_beside_them(ours: theirs.Ours) -> None:
    text = "\n".join(lines(TABLE, ours))
    assert "10 pairs, 0.5 s each, Linux 7.3.4 in user mode, a CPU, 2 CPUs, 2026-11-21" in text
    assert "`nodrop bench tap --pairs 10 --seconds 0.5`" in text
    assert "Another machine." in text
    assert "noisy" not in text


@pytest.mark.parametrize(
    ("noisy", "words"),
    [(True, "the machine was noisy"), (None, "whether the machine was quiet is not known")],
)
def test_a_noisy_machine_is_told(
    ours: theirs.Ours, monkeypatch: pytest.MonkeyPatch, noisy: bool | None, words: str
) -> None:
    monkeypatch.setitem(SUMMARY["noise"], "noisy", noisy)
    path = ours._results / "tap" / "summary.json"
    path.write_text(json.dumps({"scenarios": {"tap": SUMMARY}}))
    assert words in "\n".join(lines(TABLE, ours))


def test_what_cannot_run_here_is_named_with_its_command(ours: theirs.Ours) -> None:
    rest = {key: TABLE[key] for key in ("title", "source", "unit", "columns", "command")}
    table = {**rest, "why": "No such card.", "rows": [{"label": "a card", "theirs": [1, 2]}]}
    found = lines(table, ours)
    assert "| a card | 1 | 2 |" in found
    assert "**Not measured here.** No such card. `nodrop bench tap`" in found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": "tun"}, "has no scenario tun"),
        ({"rows": [{"label": "x", "theirs": [1, 2], "case": "qdisc=no"}]}, "no case 'qdisc=no'"),
    ],
)
def test_what_is_missing_of_ours_is_told(
    change: dict[str, Any], words: str, ours: theirs.Ours
) -> None:
    with pytest.raises(NodropError, match=words):
        lines({**TABLE, **change}, ours)


@pytest.mark.parametrize(
    "change", [{"rows": [{"label": "x", "theirs": [1]}]}, {"rows": [{"label": "x"}]}, {"colour": 1}]
)
def test_a_broken_table_is_told(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="pktgen"):
        theirs.Table.from_data({**TABLE, **change})


def test_the_page_is_what_the_data_say() -> None:
    assert theirs.PAGE.read_text() == theirs.page(theirs.load(), theirs.Ours())


def test_no_table_waits_for_words() -> None:
    assert "TODO" not in theirs.DATA.read_text()
