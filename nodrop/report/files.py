# SPDX-License-Identifier: GPL-2.0-only
"""The directory of a run: reading what the run left there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodrop.bench.scenario import Scenario
from nodrop.errors import NodropError
from nodrop.guest.plan import RAW_NAME

META_NAME = "meta.json"
META_SCHEMA = 1
SUMMARY_NAME = "summary.json"
TABLE_NAME = "table.txt"
MARKDOWN_NAME = "table.md"
PLOT_NAMES = ("plot.svg", "plot.png")


@dataclass(frozen=True)
class Run:
    """One line of the raw data."""

    scenario: str
    case: str
    variant: str
    pair: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class RunDirectory:
    """What a run left: its metadata, its scenarios and its runs."""

    path: Path
    meta: Mapping[str, Any]
    scenarios: Mapping[str, Scenario]
    runs: list[Run]


def parse_raw(text: str) -> list[Run]:
    """Parse raw data; an unfinished last line, left by a killed run, is skipped.

    Raises:
        ValueError: another line is broken.
    """
    lines = text.split("\n")
    finished, rest = lines[:-1], lines[-1]
    del rest
    runs = []
    for number, line in enumerate(finished, start=1):
        try:
            data = json.loads(line)
            runs.append(
                Run(data["scenario"], data["case"], data["variant"], data["pair"], data["metrics"])
            )
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"line {number} is not a result") from error
    return runs


def load(path: Path) -> RunDirectory:
    """Read a run's directory.

    Raises:
        NodropError: it is none, holds no result, or is broken.
    """
    try:
        meta = json.loads((path / META_NAME).read_text(encoding="utf-8"))
        raw = (path / RAW_NAME).read_text(encoding="utf-8")
    except OSError as error:
        raise NodropError(
            f"{path} is not the directory of a run: {error.strerror}: {error.filename}.",
            "Give a directory that 'nodrop bench' or 'nodrop demo' has made.",
        ) from error
    except ValueError as error:
        raise NodropError(f"{path / META_NAME} is not valid JSON: {error}.") from error
    if not isinstance(meta, dict) or meta.get("schema") != META_SCHEMA:
        raise NodropError(f"{path / META_NAME} has a schema that this version does not know.")
    try:
        runs = parse_raw(raw)
        scenarios = {
            name: Scenario.from_data(name, data) for name, data in meta["scenarios"].items()
        }
    except (ValueError, LookupError, AttributeError) as error:
        raise NodropError(f"The data in {path} are broken: {error}.") from error
    if not runs:
        raise NodropError(f"The run in {path} ended before its first result.")
    return RunDirectory(path, meta, scenarios, runs)
