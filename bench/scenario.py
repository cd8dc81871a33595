# SPDX-License-Identifier: GPL-2.0-only
"""Scenarios as data: the files of ``bench/scenarios``."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from bench.guest.plan import Parameters
from nodrop.errors import NodropError, UsageError

DIRECTORY = Path(__file__).resolve().parent / "scenarios"
NO_QUEUE = "noqueue"
JOINS = ("geometric mean", "sum", "mean")
"""How a metric of several cases becomes one number: for rates, counts, percentages."""


@dataclass(frozen=True)
class Metric:
    """How a metric is displayed.

    Attributes:
        label: to be displayed.
        unit: to be displayed.
        join: how its values of all cases become one number, one of JOINS.
        shown: whether tables include it.
    """

    label: str
    unit: str
    join: str
    shown: bool = True

    @property
    def has_ratio(self) -> bool:
        """Whether ratios make sense: not for counts, which are often 0."""
        return self.join == "geometric mean"

    @classmethod
    def from_data(cls, name: str, data: Mapping[str, Any]) -> Self:
        """Create one from checked data.

        Raises:
            ValueError: a field is missing or has an unknown value.
        """
        try:
            metric = cls(**data)
        except TypeError as error:
            raise ValueError(f"metric {name}: {error}") from error
        if metric.join not in JOINS:
            raise ValueError(f"metric {name}: join must be one of {', '.join(JOINS)}")
        return metric


@dataclass(frozen=True)
class Case:
    """One combination of parameters; the name lists those that vary."""

    name: str
    parameters: Parameters

    @property
    def has_queue(self) -> bool:
        """Whether there is a qdisc that can queue packets."""
        return self.parameters.get("qdisc") != NO_QUEUE


@dataclass(frozen=True)
class Scenario:
    """One file of ``bench/scenarios``.

    Attributes:
        name: the file's name without its suffix.
        title: one line to be displayed.
        kind: key of bench.guest.scenarios.KINDS.
        seconds: measured window of a run.
        pairs: runs of each case with each driver.
        parameters: of all cases.
        matrix: parameter -> values; each combination is a case.
        metrics: those in summaries, by their names in the raw data.
    """

    name: str
    title: str
    kind: str
    seconds: float
    pairs: int
    parameters: Parameters
    matrix: Mapping[str, list[int | float | str | bool]]
    metrics: Mapping[str, Metric]

    @classmethod
    def from_data(cls, name: str, data: Mapping[str, Any]) -> Self:
        """Create one from the checked contents of its file or of a run's metadata.

        Raises:
            ValueError: a value is missing, unknown or impossible.
        """
        rest = {key: value for key, value in data.items() if key not in ("name", "metrics")}
        metrics = {
            key: Metric.from_data(key, value) for key, value in data.get("metrics", {}).items()
        }
        try:
            scenario = cls(name=name, metrics=metrics, **rest)
        except TypeError as error:
            raise ValueError(str(error)) from error
        if scenario.seconds <= 0 or scenario.pairs < 1 or not metrics:
            raise ValueError("seconds and pairs must be positive, and there must be a metric")
        return scenario

    def cases(self) -> list[Case]:
        """Return every combination of the matrix."""
        keys = list(self.matrix)
        made = []
        for values in itertools.product(*(self.matrix[key] for key in keys)):
            chosen = dict(zip(keys, values, strict=True))
            name = ",".join(f"{key}={value}" for key, value in chosen.items())
            made.append(Case(name or "default", {**self.parameters, **chosen}))
        return made

    def with_length(self, pairs: int | None, seconds: float | None) -> Scenario:
        """Return the scenario with another number of pairs or another window."""
        return replace(self, pairs=pairs or self.pairs, seconds=seconds or self.seconds)


def known(directory: Path = DIRECTORY) -> list[str]:
    """Return the names of all scenarios."""
    return sorted(path.stem for path in directory.glob("*.toml"))


def load(name: str, directory: Path = DIRECTORY) -> Scenario:
    """Read a scenario.

    Raises:
        UsageError: there is none of that name.
        NodropError: its file is invalid.
    """
    if name not in known(directory):
        raise UsageError(
            f"There is no scenario called '{name}'.",
            f"Known scenarios: {', '.join(known(directory))}.",
        )
    path = directory / f"{name}.toml"
    try:
        return Scenario.from_data(name, tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValueError, tomllib.TOMLDecodeError) as error:
        raise NodropError(f"{path} is not a valid scenario: {error}.") from error
