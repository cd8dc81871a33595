# SPDX-License-Identifier: GPL-2.0-only
"""Option --part: 2/3 runs every third mutant from the second one on."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1", metavar="N/OF", help="run only this part")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    number, of = map(int, config.getoption("part").split("/"))
    chosen = items[number - 1 :: of]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
