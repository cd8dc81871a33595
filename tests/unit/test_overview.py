# SPDX-License-Identifier: GPL-2.0-only
"""The README's picture: what it shows is what the summaries say, of enough pairs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from nodrop.errors import NodropError
from nodrop.report import look, overview, theirs


def numbers(median: float) -> dict[str, float]:
    return {"median": median, "low": median, "high": median, "n": 10}


def summary(metrics: dict[str, tuple[float, float, float]], pairs: int = 10) -> dict[str, Any]:
    """One case, ``a=1``; each metric's values of stock, upstream and nodrop."""
    variants = {
        name: {metric: numbers(values[index]) for metric, values in metrics.items()}
        for index, name in enumerate(theirs.VARIANTS)
    }
    return {
        "pairs": pairs,
        "seconds": 1.0,
        "kernel": {"release": "7.3.4"},
        "machine": {"cpu": "a CPU", "cpus": 2},
        "noise": {"noisy": False, "reasons": [], "others_cpu_share": 0.01},
        "continued": [],
        "variants": variants,
        "cases": {"a=1": {"variants": variants}},
    }


def write(folder: Path, name: str, made: dict[str, Any]) -> None:
    (folder / name).mkdir()
    text = json.dumps({"scenarios": {name: made}})
    (folder / name / "summary.json").write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "flood", summary({"lost": (250, 1, 0), "offered": (1000, 500, 400)}))
    write(tmp_path, "few", summary({"lost": (1, 1, 1), "offered": (9, 9, 9)}, 9))
    latency = {"latency_p50_ms": (8.0, 9.0, 1.5), "latency_p99_ms": (12.0, 13.0, 3.0)}
    write(tmp_path, "slow", summary(latency))
    return tmp_path


LOSS = overview.Loss("a flood", "flood", "a=1", "offered")


def test_what_was_lost_of_a_thousand(folder: Path) -> None:
    found = LOSS.per_1000(theirs.Ours(folder))
    assert found == {"stock": 250, "upstream": 2, "nodrop": 0}


def test_too_few_pairs_are_no_figure(folder: Path) -> None:
    ours = theirs.Ours(folder)
    with pytest.raises(NodropError, match="Run few has 9 pairs"):
        overview.Loss("few", "few", "a=1", "offered").per_1000(ours)
    with pytest.raises(NodropError, match="Run few has 9 pairs"):
        overview.draw([LOSS], "few", ours)


def test_a_metric_that_is_not_there_is_told(folder: Path) -> None:
    with pytest.raises(NodropError, match=r"Run flood lacks 'given' in 'a=1'"):
        overview.Loss("a flood", "flood", "a=1", "given").per_1000(theirs.Ours(folder))


def test_the_picture_has_all_bars_and_words(folder: Path) -> None:
    with mpl.rc_context(look.STYLE):
        figure = overview.draw([LOSS], "slow", theirs.Ours(folder))
    left, right = figure.axes
    bars = [[bar.get_height() for bar in one] for one in left.containers]
    assert bars == [[250], [2], [0]]
    assert [label.get_text() for label in left.get_xticklabels()] == ["a flood"]
    assert "0" in [text.get_text() for text in left.texts]
    assert len(right.patches) == 6
    assert "10 pairs" in figure._supxlabel.get_text()  # type: ignore[attr-defined]


def test_a_broken_description_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("", "[[loss]]\ncolour = 1", "[["):
        path = tmp_path / "overview.toml"
        path.write_text(text)
        assert overview.main(path, tmp_path / "x.svg") == 1
        assert f"{path} cannot be used" in capsys.readouterr().err
    assert not (tmp_path / "x.svg").exists()


README = (theirs.ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"`nodrop bench ([a-z-]+) --pairs (\d+) --seconds ([\d.]+)`", README)


def test_the_readme_says_how_its_figures_were_made() -> None:
    assert len(COMMANDS) == README.count("`nodrop bench") > 4


@pytest.mark.parametrize(("name", "pairs", "seconds"), COMMANDS)
def test_figures_of_the_readme_have_enough_pairs(name: str, pairs: str, seconds: str) -> None:
    found = theirs.Ours().summary(name)
    assert int(pairs) == found["pairs"] >= overview.PAIRS
    assert float(seconds) == found["seconds"]
    assert not found["noise"]["noisy"], found["noise"]["reasons"]
