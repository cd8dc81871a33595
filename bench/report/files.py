# SPDX-License-Identifier: GPL-2.0-only
"""Reads the files in the directory of a run."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.guest.plan import RAW_NAME
from bench.scenario import Scenario
from lab.variant import Variant
from nodrop.errors import NodropError

META_NAME = "meta.json"
META_SCHEMA = 1
NOISE_NAME = "noise.jsonl"
MARKDOWN_NAME = "table.md"
PAGE_NAME = "report.html"
PLOT_NAME = "plot.svg"
NEEDED = {"machine": ("cpu", "cpus"), "kernel": ("release",)}
"""Required metadata: every result needs its machine and kernel."""


@dataclass(frozen=True)
class Run:
    """One line of the raw data.

    Attributes:
        host: the host's other load during the run; None: not recorded.
    """

    scenario: str
    case: str
    variant: str
    pair: int
    metrics: Mapping[str, float]
    host: Mapping[str, float] | None = None


@dataclass(frozen=True)
class RunDirectory:
    """Metadata, scenarios and results of a run."""

    path: Path
    meta: Mapping[str, Any]
    scenarios: Mapping[str, Scenario]
    runs: list[Run]


def read_text(path: Path) -> str:
    """Return the text of a file of JSON lines, which may be compressed (``.gz``).

    Raises:
        OSError: it is missing or cannot be read.
    """
    packed = path.with_name(f"{path.name}.gz")
    if packed.exists() and not path.exists():
        return gzip.decompress(packed.read_bytes()).decode(errors="replace")
    return path.read_text(encoding="utf-8", errors="replace")


def read_rows(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return raw data and metadata of a run without scenarios, unchecked.

    Raises:
        NodropError: they cannot be read.
    """
    try:
        rows = [json.loads(line) for line in read_text(folder / RAW_NAME).splitlines()]
        return rows, json.loads((folder / META_NAME).read_text(encoding="utf-8"))
    except (OSError, EOFError, ValueError) as error:
        raise NodropError(f"{folder} does not have the data of a run: {error}.") from error


def parse_raw(text: str) -> list[Run]:
    """Parse raw data; skip an incomplete last line, which a killed run leaves.

    Raises:
        ValueError: another line is invalid, or has a metric that is not a finite number.
    """
    finished = text.split("\n")[:-1]
    runs = []
    for number, line in enumerate(finished, start=1):
        try:
            data = json.loads(line)
            names = (data["scenario"], data["case"], data["variant"], data["pair"])
            metrics = dict(data["metrics"])
            if not all(_finite(value) for value in metrics.values()):
                raise ValueError("a metric is not a finite number")
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"line {number} is not a result: {error}") from error
        runs.append(Run(*names, metrics))
    return runs


def _finite(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300  # type: ignore[arg-type]


def check_runs(
    runs: Sequence[Run], scenarios: Mapping[str, Scenario], variants: Sequence[str]
) -> None:
    """Check that each line is a run from the metadata, and that none is there twice.

    Raises:
        ValueError: one is not; the message has the line.
    """
    planned = {
        (scenario.name, case.name, variant, pair)
        for scenario in scenarios.values()
        for case in scenario.cases()
        for variant in variants
        for pair in range(scenario.pairs)
    }
    for number, run in enumerate(runs, start=1):
        key = (run.scenario, run.case, run.variant, run.pair)
        try:
            planned.remove(key)
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"line {number} is not a run from {META_NAME}, or is a duplicate"
            ) from error
        for name, metric in scenarios[run.scenario].metrics.items():
            # Rates and times have ratios and a geometric mean.
            if metric.has_ratio and run.metrics.get(name, 0) < 0:
                raise ValueError(f"line {number}: {name} is below 0")


def parse_noise(text: str) -> dict[int, dict[str, float]]:
    """Parse the host's load, by the number of the run; skip invalid lines.

    They are not results: without its line, a run's load is unknown.
    """
    found = {}
    for line in text.splitlines():
        try:
            data = json.loads(line)
            number = data.pop("run")
            shares = {name: float(value) for name, value in data.items()}
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
            continue
        if type(number) is int and all(map(math.isfinite, shares.values())):
            found[number] = shares
    return found


def load(path: Path) -> RunDirectory:
    """Read a run's directory.

    Raises:
        NodropError: it is not one, has no results, or is invalid.
    """
    try:
        meta = json.loads((path / META_NAME).read_text(encoding="utf-8"))
        raw = read_text(path / RAW_NAME)
        host = {}
        with suppress(FileNotFoundError):
            host = parse_noise(read_text(path / NOISE_NAME))
    except (OSError, EOFError) as error:
        raise NodropError(
            f"{path} is not the directory of a run: {error}.",
            "Name a directory that 'nodrop-lab bench' or 'nodrop-lab demo' has written.",
        ) from error
    except ValueError as error:
        raise NodropError(f"{path / META_NAME} is not valid JSON: {error}.") from error
    if not isinstance(meta, dict) or meta.get("schema") != META_SCHEMA:
        raise NodropError(f"{path / META_NAME} has a schema unknown to this version.")
    try:
        if missing := [
            key for part, keys in NEEDED.items() for key in keys if key not in meta[part]
        ]:
            raise ValueError(f"{META_NAME} lacks {missing[0]}")
        scenarios = {
            name: Scenario.from_data(name, data) for name, data in meta["scenarios"].items()
        }
        if unknown := set(meta["variants"]) - {str(variant) for variant in Variant}:
            raise ValueError(f"unknown driver {sorted(unknown)[0]!r}")
        runs = parse_raw(raw)
        check_runs(runs, scenarios, meta["variants"])
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise NodropError(f"The data in {path} are invalid: {error}.") from error
    if not runs:
        raise NodropError(f"The run in {path} ended before its first result.")
    runs = [replace(run, host=host.get(number)) for number, run in enumerate(runs)]
    return RunDirectory(path, meta, scenarios, runs)
