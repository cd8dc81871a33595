# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import math

import pytest

from nodrop.guest.failure import GuestError
from nodrop.guest.scenarios.shaping import shaper
from nodrop.guest.shares import Arrival, due, parse_log, percentile, window


@pytest.mark.parametrize(
    ("weights", "demands", "wanted"),
    [
        ((80, 20), (math.inf, math.inf), (80, 20)),
        ((1, 4), (5, math.inf), (5, 95)),
        ((1, 4), (20, math.inf), (20, 80)),
        ((1, 4), (30, math.inf), (20, 80)),
        ((80, 20), (math.inf, 5), (95, 5)),
        ((1, 4), (10, 20), (10, 20)),
        ((1, 1, 2), (10, math.inf, math.inf), (10, 30, 60)),
    ],
)
def test_what_is_not_asked_for_goes_to_the_others(
    weights: tuple[float, ...], demands: tuple[float, ...], wanted: tuple[float, ...]
) -> None:
    assert due(100, weights, demands) == pytest.approx(wanted)


def test_the_log_of_the_reader() -> None:
    assert parse_log("0 10 15\n3 11 17\n") == [Arrival(0, 10, 15), Arrival(3, 11, 17)]
    with pytest.raises(GuestError, match="no packet"):
        parse_log("0 10 15\n3 11\n")


def test_the_window_has_all_classes() -> None:
    first = [Arrival(0, at, at + 5) for at in (100, 200, 300)]
    rest = [Arrival(1, at, at + 5) for at in (150, 250, 350)]
    assert window((first, rest), 0.0) == (150, 300)
    assert window((first, rest), 0.2) == (180, 300)
    with pytest.raises(GuestError, match="nothing through"):
        window((first, []), 0.0)
    with pytest.raises(GuestError, match="same time"):
        window((first, [Arrival(1, 900, 901), Arrival(1, 950, 951)]), 0.0)


def test_percentiles() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1)] == [50, 99, 100]
    assert percentile([], 0.5) == 0


def test_shapers() -> None:
    htb = shaper("htb", 1000, (1, 4), is_bottleneck=False)
    assert htb.weights == (80, 20)
    rates = [line.split("rate ")[1].split()[0] for line in htb.below]
    assert rates == ["1000kbit", "800kbit", "200kbit"]
    for priority, line in zip(htb.priorities, htb.below[1:], strict=True):
        assert f"classid {priority >> 16:x}:{priority & 0xFFFF:x} " in line
    own = shaper("htb-own", 1000, (1, 4), is_bottleneck=False)
    assert (own.weights, own.root) == (htb.weights, htb.root)
    assert "quantum 12000" in htb.below[1]
    assert own.below[1] == htb.below[1].removesuffix(" quantum 12000")
    assert shaper("cake", 1000, (1, 4), is_bottleneck=True).weights == (1, 4)
    assert "fq_codel" in shaper("fq_codel", 1000, (1, 4), is_bottleneck=True).below[-1]
    assert shaper("fq_codel", 1000, (1, 4), is_bottleneck=False).root == "fq_codel"
    with pytest.raises(GuestError, match="not 'red'"):
        shaper("red", 1000, (1, 4), is_bottleneck=False)
