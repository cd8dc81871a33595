# SPDX-License-Identifier: GPL-2.0-only
"""The sets of scenarios that ``make bench`` and ``make bench-full`` run."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop import cli
from nodrop.bench import order, scenario, series
from nodrop.errors import NodropError, UsageError
from nodrop.guest.plan import Variant
from nodrop.report.files import META_NAME

SHORT_S = 15 * 60
RUN_S = {"tap": 0.6, "vhost": 0.8}
"""Seconds that a run of a kind took beside its window: the means of results/*/raw.jsonl, run_s."""
OTHER_RUN_S = 1.3
"""The same of all other kinds; up to 1.25."""
BOOT_S = 10.0
SET_UP_S = 3.0
"""Seconds that the start of a VPN takes beside."""


def test_the_full_set_has_all_scenarios_and_the_short_one_all_kinds() -> None:
    names = {name: [one.name for one in series.load(name)] for name in ("short", "full")}
    assert sorted(names["full"]) == scenario.known()
    assert set(names["short"]) < set(names["full"])
    kinds = [{scenario.load(name).kind for name in names[of]} for of in ("short", "full")]
    assert kinds[0] == kinds[1]


def test_the_short_set_is_short() -> None:
    chosen = series.load("short")
    runs = order.jobs(chosen, tuple(Variant))
    vpns = [run for run in runs if run.kind in ("vpntcp", "vpnvideo")]
    took_s = sum(run.seconds + RUN_S.get(run.kind, OTHER_RUN_S) for run in runs)
    took_s += sum(SET_UP_S + float(run.parameters.get("warm_up_s", 0)) for run in vpns)
    assert took_s + BOOT_S * len(chosen) < SHORT_S


def test_the_full_set_has_the_pairs_of_a_figure() -> None:
    for one in series.load("full"):
        assert one.pairs >= 10
        assert one.seconds == scenario.load(one.name).seconds


def test_make_has_the_sets() -> None:
    text = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    for name, target in series.TARGETS.items():
        assert f"\n{target}: bootstrap ##" in text
        assert f"-m nodrop.bench.series {name} $(if" in text
        assert (series.SETS / f"{name}.toml").exists()


def test_broken_sets(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no set called 'none'"):
        series.load("none", tmp_path)
    for text in ("tap = 1", "[tap]\ncolour = 1", "[tap"):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(NodropError, match=r"bad\.toml is not a valid set"):
            series.load("bad", tmp_path)


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    chosen = series.load("short")[:4]
    names = [one.name for one in chosen]
    statuses = iter([0, 1, 130])
    asked: list[list[str]] = []

    def command(words: list[str]) -> int:
        asked.append(words)
        out = Path(words[-1])
        out.mkdir(exist_ok=True)
        (out / META_NAME).touch()
        return next(statuses, 0)

    # A failure is told and passed over, an interruption ends it.
    assert series.run(chosen, tmp_path, command) == dict(zip(names, [0, 1, 130], strict=False))
    length = ["--pairs", str(chosen[0].pairs), "--seconds", str(chosen[0].seconds)]
    assert asked[0] == ["bench", "tap", *length, "--out", str(tmp_path / "tap")]
    asked.clear()
    assert set(series.run(chosen, tmp_path, command).values()) == {0}
    begun = [["bench", "--continue", str(tmp_path / name)] for name in names[:3]]
    assert asked[:3] == begun
    assert asked[3][:2] == ["bench", names[3]]


@pytest.mark.parametrize(
    ("status", "ends", "says"),
    [(130, 130, "make bench OUT="), (1, 1, "tap"), (0, 0, "none failed")],
)
def test_ends(
    status: int,
    ends: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(series.run, "__defaults__", (lambda _words: status,))
    monkeypatch.setattr(series, "interrupt_on_signals", lambda: None)
    assert series.main(["short", str(tmp_path)]) == ends
    assert says in "".join(capsys.readouterr())


def test_command_lines_are_understood(tmp_path: Path) -> None:
    for one in series.load("full"):
        line = series.words(one, tmp_path / "x")
        cli.parser(cli.named(line)).parse_args(line)


@pytest.mark.parametrize("words", [[], ["none"], ["short", "a", "b"]])
def test_usage(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "interrupt_on_signals", lambda: None)
    assert series.main(words) == 2
