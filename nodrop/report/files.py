# SPDX-License-Identifier: GPL-2.0-only
"""The directory of a run: reading what the run left there."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nodrop.bench.scenario import Scenario
from nodrop.errors import NodropError
from nodrop.guest.plan import RAW_NAME, Variant

META_NAME = "meta.json"
META_SCHEMA = 1
NOISE_NAME = "noise.jsonl"
MARKDOWN_NAME = "table.md"
PAGE_NAME = "report.html"
PLOT_NAME = "plot.svg"
NEEDED = {"machine": ("cpu", "cpus"), "kernel": ("release",), "source": ()}
"""What metadata must tell: no result without its machine and kernel."""


@dataclass(frozen=True)
class Run:
    """One line of the raw data.

    Attributes:
        host: what else the host did meanwhile; None: not recorded.
    """

    scenario: str
    case: str
    variant: str
    pair: int
    metrics: Mapping[str, float]
    host: Mapping[str, float] | None = None


@dataclass(frozen=True)
class RunDirectory:
    """What a run left: its metadata, its scenarios and its runs.

    Attributes:
        notes: what a reader must know of the files, in sentences.
    """

    path: Path
    meta: Mapping[str, Any]
    scenarios: Mapping[str, Scenario]
    runs: list[Run]
    notes: tuple[str, ...] = ()


def read_text(path: Path) -> str:
    """Return the text of a file of JSON lines, which may be packed (``.gz``).

    Raises:
        OSError: neither is there, or it cannot be read.
    """
    packed = path.with_name(f"{path.name}.gz")
    if packed.exists() and not path.exists():
        return gzip.decompress(packed.read_bytes()).decode(errors="replace")
    return path.read_text(encoding="utf-8", errors="replace")


def read_rows(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return raw data and metadata of a run that is no scenario's, as they are.

    Raises:
        NodropError: they cannot be read.
    """
    try:
        rows = [json.loads(line) for line in read_text(folder / RAW_NAME).splitlines()]
        return rows, json.loads((folder / META_NAME).read_text(encoding="utf-8"))
    except (OSError, EOFError, ValueError) as error:
        raise NodropError(f"{folder} does not hold the data of a run: {error}.") from error


def parse_raw(text: str) -> list[Run]:
    """Parse raw data; an unfinished last line, left by a killed run, is skipped.

    Raises:
        ValueError: another line is broken, or has a metric that is no finite number.
    """
    finished = text.split("\n")[:-1]
    runs = []
    for number, line in enumerate(finished, start=1):
        try:
            data = json.loads(line)
            runs.append(
                Run(data["scenario"], data["case"], data["variant"], data["pair"], data["metrics"])
            )
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"line {number} is not a result") from error
        _check_run(runs[-1], number)
    return runs


def _check_run(run: Run, number: int) -> None:
    names = (run.scenario, run.case, run.variant)
    if not all(isinstance(name, str) for name in names) or not isinstance(run.metrics, dict):
        raise ValueError(f"line {number} is not a result")
    for name, value in run.metrics.items():
        if type(value) not in (int, float) or not _finite(value):
            raise ValueError(f"line {number}: {name} is {json.dumps(value)}, not a finite number")


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def _check_meta(meta: Mapping[str, Any]) -> None:
    for name, keys in NEEDED.items():
        if not isinstance(part := meta.get(name), dict):
            raise ValueError(f"{META_NAME} does not tell the {name}")
        if missing := [key for key in keys if key not in part]:
            raise ValueError(f"{META_NAME} does not tell the {name}'s {missing[0]}")
    if not isinstance(meta.get("started"), str):
        raise ValueError(f"{META_NAME} does not tell when the run was started")


def check_runs(
    runs: Sequence[Run], scenarios: Mapping[str, Scenario], variants: Sequence[str]
) -> None:
    """Check that each line is one of the runs that the metadata name, and is there once.

    Raises:
        ValueError: one is not; it names the line.
    """
    cases = {name: {case.name for case in entry.cases()} for name, entry in scenarios.items()}
    first: dict[tuple[str, str, str, int], int] = {}
    for number, run in enumerate(runs, start=1):
        for what, value, known in (
            ("scenario", run.scenario, cases),
            ("case", run.case, cases.get(run.scenario, ())),
            ("driver", run.variant, variants),
        ):
            if value not in known:
                raise ValueError(f"line {number}: {META_NAME} has no {what} {value!r}")
        scenario = scenarios[run.scenario]
        if type(run.pair) is not int or not 0 <= run.pair < scenario.pairs:
            raise ValueError(
                f"line {number}: {META_NAME} has no pair {run.pair!r} of {scenario.pairs}"
            )
        for name, metric in scenario.metrics.items():
            # Rates and times: they have ratios and a geometric mean.
            if metric.has_ratio and run.metrics.get(name, 0) < 0:
                raise ValueError(f"line {number}: {name} is below 0")
        key = (run.scenario, run.case, run.variant, run.pair)
        if (before := first.setdefault(key, number)) != number:
            raise ValueError(
                f"line {number} repeats line {before}: {run.scenario} {run.case}, "
                f"{run.variant}, pair {run.pair}"
            )


def parse_noise(text: str) -> dict[int, dict[str, float]]:
    """Parse what the host did, by the number of the run; broken lines are skipped.

    They are no results: a run whose line is missing is one that tells nothing of the host.
    """
    found = {}
    for line in text.splitlines():
        try:
            data = json.loads(line)
            number = data.pop("run")
            told = {name: float(value) for name, value in data.items()}
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
            continue
        if type(number) is int and all(map(math.isfinite, told.values())):
            found[number] = told
    return found


def load(path: Path) -> RunDirectory:
    """Read a run's directory.

    Raises:
        NodropError: it is none, holds no result, or is broken.
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
            "Give a directory that 'nodrop bench' or 'nodrop demo' has made.",
        ) from error
    except ValueError as error:
        raise NodropError(f"{path / META_NAME} is not valid JSON: {error}.") from error
    if not isinstance(meta, dict) or meta.get("schema") != META_SCHEMA:
        raise NodropError(f"{path / META_NAME} has a schema that this version does not know.")
    try:
        _check_meta(meta)
        scenarios = {
            name: Scenario.from_data(name, data) for name, data in meta["scenarios"].items()
        }
        if unknown := set(meta["variants"]) - {str(variant) for variant in Variant}:
            raise ValueError(f"unknown driver {sorted(unknown)[0]!r}")
        # A lone surrogate is valid JSON and no text: no file and no screen takes it.
        json.dumps(meta, ensure_ascii=False).encode()
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise NodropError(f"The data in {path} are broken: {error}.") from error
    try:
        runs = parse_raw(raw)
        check_runs(runs, scenarios, meta["variants"])
    except ValueError as error:
        raise NodropError(f"The data in {path / RAW_NAME} are broken: {error}.") from error
    if not runs:
        raise NodropError(f"The run in {path} ended before its first result.")
    runs = [replace(run, host=host.get(number)) for number, run in enumerate(runs)]
    torn = f"The last line of {path / RAW_NAME} is unfinished and left out."
    notes = () if raw.endswith("\n") else (torn,)
    return RunDirectory(path, meta, scenarios, runs, notes)
