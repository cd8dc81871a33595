# SPDX-License-Identifier: GPL-2.0-only
"""Scenarios as data: each folder's ``scenarios.toml``, ``metrics.toml`` and ``sets.toml``."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from bench.plan import NO_QUEUE, Parameters
from lab.kernel.kconfig import FLAVOURS
from lab.sources import REPOSITORY
from lab.variant import KNOWN, Variant
from nodrop.errors import NodropError, UsageError

BOOTS = ("run", "variant")
JOINS = ("geometric mean", "sum", "mean")
"""How a metric of several cases becomes one number: for rates, counts, percentages."""

Matrix = Mapping[str, list[int | float | str | bool]]


@dataclass(frozen=True)
class Metric:
    """How a metric is displayed.

    Attributes:
        join: how its values of all cases become one number, one of JOINS.
        shown: whether tables include it.
        exact: to less than a percent: tables have more decimals of ratios, and the difference to
            stock.
    """

    label: str
    unit: str
    join: str = "geometric mean"
    shown: bool = True
    exact: bool = False

    @property
    def has_ratio(self) -> bool:
        """Whether ratios make sense: not for counts, which are often 0."""
        return self.join == "geometric mean"

    @classmethod
    def from_data(cls, name: str, data: Mapping[str, Any]) -> Self:
        """Create one from a table of ``metrics.toml`` or of a run's metadata.

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
    def words(self) -> set[str]:
        """The parts of the name, and the names of its parameters."""
        parts = self.name.split(",")
        return {*parts, *(part.partition("=")[0] for part in parts)}

    @property
    def has_queue(self) -> bool:
        """Whether there is a qdisc that can queue packets."""
        return self.parameters.get("qdisc") != NO_QUEUE


@dataclass(frozen=True)
class Scenario:
    """One scenario, with what its file takes from others filled in.

    Attributes:
        title: one line to be displayed.
        kind: key of bench.guest.runner.KINDS, or ``module:class``.
        seconds: measured window of a run; 0: a run ends after a number of packets.
        pairs: runs of each case with each driver.
        parameters: of all cases.
        matrix: parameter -> values, each combination is a case; or a list of such tables.
        metrics: those in summaries, by their names in the raw data.
        kernel: flavour of the kernel in user mode, name of a Debian kernel, or a function as
            ``module:function``, which gets a variant and the progress and returns its
            bench.session.Guest.
        boot: what gets a guest of its own, one of BOOTS: the whole run, or each variant
            of a pair.
        variants: the drivers that it can compare.
        programs: the host's that all its cases need and that can change a result; bench.programs
            lists their packages.
        skips_absent_vpns: leave out cases of VPNs that are not installed.
        only: parameters of the cases to measure, as in their names, with or without a value.
        without: values of parameters of cases that are left out.
    """

    name: str
    title: str
    kind: str
    seconds: float
    pairs: int
    parameters: Parameters
    matrix: Matrix | Sequence[Matrix]
    metrics: Mapping[str, Metric]
    kernel: str = "perf"
    boot: str = "run"
    variants: Sequence[Variant] = field(default_factory=lambda: [*KNOWN, Variant.OLD])
    programs: Sequence[str] = field(default_factory=lambda: ["ip", "tc"])
    skips_absent_vpns: bool = False
    only: str = ""
    without: Sequence[str] = field(default_factory=list)

    @classmethod
    def from_data(cls, name: str, data: Mapping[str, Any]) -> Self:
        """Create one from a run's metadata.

        Raises:
            ValueError: a value is missing, unknown or impossible.
        """
        rest = {key: value for key, value in data.items() if key not in ("name", "metrics")}
        metrics = {
            key: Metric.from_data(key, value) for key, value in data.get("metrics", {}).items()
        }
        if "variants" in rest:
            rest["variants"] = [*map(Variant, rest["variants"])]
        try:
            scenario = cls(name=name, metrics=metrics, **rest)
        except TypeError as error:
            raise ValueError(str(error)) from error
        if scenario.pairs < 1 or not metrics:
            raise ValueError("pairs must be positive, and there must be a metric")
        if scenario.seconds < 0 or (scenario.is_counted and scenario.kernel in FLAVOURS):
            raise ValueError("seconds must be positive")
        if scenario.boot not in BOOTS:
            raise ValueError(f"boot must be one of {', '.join(BOOTS)}")
        return scenario

    @property
    def is_counted(self) -> bool:
        """Whether QEMU counts instructions, so nothing is timed."""
        return not self.seconds

    def cases(self) -> list[Case]:
        """Return every combination of the matrix that was not excluded."""
        cases = []
        for matrix in [self.matrix] if isinstance(self.matrix, Mapping) else self.matrix:
            for values in itertools.product(*matrix.values()):
                chosen = dict(zip(matrix, values, strict=True))
                name = ",".join(f"{key}={value}" for key, value in chosen.items())
                cases.append(Case(name or "default", {**self.parameters, **chosen}))
        asked = {*self.only.split(",")} - {""}
        return [
            case
            for case in cases
            if asked <= case.words and not {*self.without} & {*map(str, case.parameters.values())}
        ]

    def with_length(self, pairs: int | None, seconds: float | None) -> Scenario:
        """Return the scenario with another number of pairs or another window."""
        return replace(self, pairs=pairs or self.pairs, seconds=seconds or self.seconds)


def known() -> list[str]:
    return sorted(_scenarios(REPOSITORY))


def _scenarios(repository: Path) -> dict[str, Any]:
    files = sorted(repository.glob("*/scenarios.toml"))
    return {name: table for path in files for name, table in _read(path).items()}


def load(name: str, repository: Path = REPOSITORY) -> Scenario:
    """Read a scenario.

    Raises:
        UsageError: there is none of that name.
        NodropError: it is invalid.
    """
    scenarios, metrics = _scenarios(repository), _read(repository / "bench/metrics.toml")
    if name not in scenarios:
        raise UsageError(
            f"There is no scenario called '{name}'.",
            f"Known scenarios: {', '.join(sorted(scenarios))}.",
        )
    try:
        data = _with_base(name, scenarios)
        hidden = data.pop("hidden", [])
        data["metrics"] = {
            metric: {**metrics[metric], "shown": metric not in hidden}
            for metric in data.get("metrics", [])
        }
        return Scenario.from_data(name, data)
    except KeyError as error:
        raise NodropError(f"The scenario {name} names {error}, which does not exist.") from error
    except (ValueError, TypeError) as error:
        raise NodropError(f"{name} is not a valid scenario: {error}.") from error


def sets() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the sets of scenarios: set -> scenario -> its ``pairs`` and ``seconds``, if given."""
    return _read(REPOSITORY / "bench/sets.toml")


def _with_base(name: str, scenarios: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario's keys and those of its base; its parameters are added to the base's."""
    data = dict(scenarios[name])
    if "base" not in data:
        return data
    base = _with_base(data.pop("base"), scenarios)
    return {**base, **data, "parameters": base["parameters"] | data.get("parameters", {})}


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise NodropError(f"{path} is not valid: {error}.") from error
