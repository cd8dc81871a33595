# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import pytest

from nodrop.errors import NodropError, UsageError
from nodrop.kernel import kconfig


def test_parse_takes_reasons_off() -> None:
    text = '# title\nCONFIG_A=y   # why\nCONFIG_B="x # y"\n# CONFIG_C is not set   # why\n\n'
    assert kconfig.parse(text) == {"A": "y", "B": '"x # y"', "C": "n"}


def test_parse_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="COFNIG_A"):
        kconfig.parse("COFNIG_A=y\n")


def test_render_is_what_parse_reads() -> None:
    values = {"A": "y", "B": "n", "C": "20"}
    assert kconfig.parse(kconfig.render(values)) == values


def test_check_passes() -> None:
    kconfig.check({"A": "y", "GONE": "n"}, "CONFIG_A=y\nCONFIG_MORE=y\n")


def test_check_names_every_line_that_did_not_take() -> None:
    with pytest.raises(NodropError, match="2 of 3") as caught:
        kconfig.check({"A": "y", "B": "m", "C": "y"}, "CONFIG_A=y\nCONFIG_B=y\n")
    assert "CONFIG_B: wanted m, got y" in caught.value.hint
    assert "CONFIG_C: wanted y, got n" in caught.value.hint


@pytest.mark.parametrize("flavour", list(kconfig.FLAVOURS))
def test_every_line_of_a_fragment_has_its_reason(flavour: str) -> None:
    for line in kconfig.fragment(flavour).splitlines():
        if line.startswith("CONFIG_") or line.endswith("is not set"):
            assert "#" in line.removeprefix("#"), line


@pytest.mark.parametrize("flavour", list(kconfig.FLAVOURS))
def test_fragments_do_not_contradict_each_other(flavour: str) -> None:
    seen: dict[str, str] = {}
    for line in kconfig.fragment(flavour).splitlines():
        for name, value in kconfig.parse(line).items():
            if name in kconfig.LAST_SAYS:
                continue
            assert seen.setdefault(name, value) == value, name


def test_unknown_flavour_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="fast") as caught:
        kconfig.fragment("fast")
    assert caught.value.status == 2
    assert "perf" in caught.value.hint
