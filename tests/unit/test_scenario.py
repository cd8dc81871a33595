# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nodrop.bench import order, scenario
from nodrop.errors import NodropError, UsageError
from nodrop.guest.environment import Environment
from nodrop.guest.failure import GuestError
from nodrop.guest.plan import Variant, read_plan, write_plan
from nodrop.guest.scenarios import KINDS

VARIANTS = tuple(Variant)
NOWHERE = Environment(Path("/out"), Path("/modules"), Path("/bin"))


@pytest.mark.parametrize("name", scenario.known())
def test_files_fit_the_classes(name: str) -> None:
    entry = scenario.load(name)
    for case in entry.cases():
        KINDS[entry.kind](case.parameters, NOWHERE)


def test_unknown_and_missing_parameters() -> None:
    parameters = dict(scenario.load("tap").cases()[0].parameters)
    with pytest.raises(GuestError, match="colour"):
        KINDS["tap"]({**parameters, "colour": 1}, NOWHERE)
    del parameters["senders"]
    with pytest.raises(GuestError, match="senders"):
        KINDS["tap"](parameters, NOWHERE)


def test_cases_are_all_combinations() -> None:
    names = [case.name for case in scenario.load("tap").cases()]
    assert names[0] == "senders=1,txqueuelen=500"
    assert len(names) == len(set(names)) == 6


def test_unknown_scenario_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        scenario.load("teleport")
    assert "teleport" in caught.value.message
    assert "tap" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "title = ",
        'title = "x"',
        'title="x"\nkind="tap"\nseconds=1\npairs=1\n[parameters]\n[matrix]\n',
        'title="x"\nkind="tap"\nseconds=0\npairs=1\n[parameters]\n[matrix]\n'
        '[metrics.a]\nlabel="a"\nunit="b"\nbetter="lower"\njoin="sum"\n',
        'title="x"\nkind="tap"\nseconds=1\npairs=1\n[parameters]\n[matrix]\n'
        '[metrics.a]\nlabel="a"\nunit="b"\nbetter="nicer"\njoin="sum"\n',
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(NodropError, match=r"bad\.toml is not a valid scenario"):
        scenario.load("bad", tmp_path)


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("esp", {"sent_mbit_per_s"}),
        ("esp-far", {"sent_mbit_per_s"}),
        ("shaping", {"first_due_percent"}),
        ("shaping-shares", {"first_due_percent", "first_share_percent"}),
    ],
)
def test_neither_more_nor_less_of_these_is_better(name: str, metrics: set[str]) -> None:
    found = scenario.load(name).metrics
    assert {key for key, one in found.items() if one.better == "none"} == metrics


def test_what_is_compared_runs_side_by_side() -> None:
    runs = order.jobs([scenario.load("tap").with_length(6, 0.1)], VARIANTS)
    for start in range(0, len(runs), len(VARIANTS)):
        group = runs[start : start + len(VARIANTS)]
        assert {run.variant for run in group} == set(VARIANTS)
        assert len({(run.case, run.pair) for run in group}) == 1


def test_every_driver_is_first_equally_often() -> None:
    runs = order.jobs([scenario.load("tap").with_length(6, 0.1)], VARIANTS)
    first = Counter(run.variant for run in runs[:: len(VARIANTS)])
    assert set(first.values()) == {len(runs) // len(VARIANTS) // len(VARIANTS)}


@pytest.mark.parametrize("name", ["nullvpn", "tap", "multiflow"])
def test_each_case_meets_every_order(name: str) -> None:
    """Also where there are as many cases as orders."""
    runs = order.jobs([scenario.load(name).with_length(6, 0.1)], VARIANTS)
    for case in {run.case for run in runs}:
        of_case = [run.variant for run in runs if run.case == case]
        orders = {tuple(of_case[start : start + 3]) for start in range(0, len(of_case), 3)}
        assert len(orders) == 6, case


def test_plan_survives_the_file(tmp_path: Path) -> None:
    runs = order.jobs([scenario.load("udp")], VARIANTS)
    write_plan(tmp_path / "plan.json", runs)
    assert read_plan(tmp_path / "plan.json") == runs
