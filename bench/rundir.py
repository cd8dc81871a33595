# SPDX-License-Identifier: GPL-2.0-only
"""The directory of a run: created, interrupted, continued, read.

The guest appends results in the plan's order, so their number determines which are missing.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.load import NOISE_NAME
from bench.plan import PLAN_NAME, RAW_NAME, Job, write_plan
from bench.scenario import Scenario
from lab.variant import Variant
from nodrop.errors import NodropError
from nodrop.host import settings

META_NAME = "meta.json"
META_SCHEMA = 1
MARKDOWN_NAME = "table.md"
PAGE_NAME = "report.html"
PLOT_NAME = "plot.svg"
NEEDED: tuple[tuple[str, set[str]], ...] = (
    ("", {"started", "continued"}),
    ("machine", {"cpu", "cpus"}),
    ("kernel", {"release"}),
    ("source", set()),
)
"""Required metadata by part; "": not in a part. Every result needs its machine, kernel, source."""
COMPARABLE = (
    ("machine", "cpu"),
    ("machine", "cpus"),
    ("kernel", "build_id"),
    ("source", "digest"),
)
"""Metadata that must be equal in all results of one plot."""
SAME = (*COMPARABLE, ("source", "measured_by"), ("programs", ""))
"""Metadata that must be equal for a session to be continued; "": all of the part."""


@dataclass(frozen=True)
class Run:
    """One line of the raw data.

    Attributes:
        metrics: none if the run was skipped.
        host: the host's other load during the run; None: not recorded.
        skipped: why this kernel cannot make the run; empty if it can.
    """

    scenario: str
    case: str
    variant: str
    pair: int
    metrics: Mapping[str, float]
    host: Mapping[str, float] | None = None
    skipped: str = ""


@dataclass(frozen=True)
class RunDirectory:
    path: Path
    meta: Mapping[str, Any]
    scenarios: Mapping[str, Scenario]
    runs: list[Run]


def differences(
    meta: Mapping[str, Any], other: Mapping[str, Any], names: Sequence[tuple[str, str]]
) -> list[str]:
    """Return which of the names differ; parts that ``other`` lacks do not."""

    def value(of: Mapping[str, Any], part: str, name: str) -> Any:
        found = of.get(part, {})
        return found.get(name) if name else found

    return [
        f"{part} {name}".rstrip()
        for part, name in names
        if part in other and value(meta, part, name) != value(other, part, name)
    ]


def jobs(scenarios: Sequence[Scenario], variants: Sequence[Variant]) -> list[Job]:
    """Return all runs of all scenarios, pair by pair.

    In each pair the drivers run one after another in the same case, so a change of the machine's
    speed affects all of them. Each case cycles through all orders of the drivers: of as many pairs
    as there are drivers, each driver is first in one. If each has a guest of its own, it makes its
    runs of all cases there, and the guests of the pairs cycle through the orders.
    """
    rounds = [[variants[0], *rest] for rest in itertools.permutations(variants[1:])]

    def order(pair: int, number: int) -> list[Variant]:
        around = rounds[(pair // len(variants) + number) % len(rounds)]
        first = (pair + number) % len(variants)
        return around[first:] + around[:first]

    def boot(scenario: Scenario, pair: int, variant: Variant) -> int:
        if scenario.boot == "variant":
            return len(variants) * pair + order(pair, 0).index(variant)
        return 0

    planned = [
        Job(
            scenario=scenario.name,
            kind=scenario.kind,
            case=case.name,
            parameters=case.parameters,
            variant=variant,
            pair=pair,
            seconds=scenario.seconds,
            boot=boot(scenario, pair, variant),
        )
        for pair in range(max(scenario.pairs for scenario in scenarios))
        for scenario in scenarios
        if pair < scenario.pairs
        for number, case in enumerate(scenario.cases())
        for variant in order(pair, number)
    ]
    return sorted(planned, key=lambda job: job.boot)


def group(job: Job) -> tuple[str, str, int]:
    """Return what the runs of one pair share."""
    return job.scenario, job.case, job.pair


def in_complete_pairs(jobs: list[Job], made: int) -> int:
    """Return how many of the first ``made`` runs to keep: all of them belong to complete pairs.

    With a guest for each variant, the runs of a pair are not next to each other.
    """
    incomplete = {group(job) for job in jobs[made:]}
    for index, job in enumerate(jobs[:made]):
        if group(job) in incomplete:
            return in_complete_pairs(jobs, index)
    return made


def pairs(jobs: list[Job]) -> int:
    return len({group(job) for job in jobs})


def unwritable(out: Path, error: OSError) -> NodropError:
    return NodropError(f"Cannot write the results to {out}: {error.strerror}.")


def is_packed(out: Path) -> bool:
    """Return whether the raw data are compressed, as in ``results/``: they are complete."""
    return packed(out / RAW_NAME).exists()


def packed(path: Path) -> Path:
    """Return the path of a file's compressed form."""
    return path.with_name(f"{path.name}.gz")


def create(out: Path, meta: Mapping[str, Any], jobs: list[Job]) -> None:
    """Create a run: write plan and metadata.

    Raises:
        NodropError: the directory holds another run's data or cannot be written.
    """
    if (out / RAW_NAME).exists() or is_packed(out):
        raise NodropError(
            f"{out} already holds the data of a run.", "Choose another directory with --out."
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_plan(out / PLAN_NAME, jobs)
        # Last, because a directory with metadata can be continued.
        write_meta(out, meta)
    except OSError as error:
        raise unwritable(out, error) from error


def write_meta(out: Path, meta: Mapping[str, Any]) -> None:
    """Replace the metadata atomically.

    Raises:
        OSError: they cannot be written.
    """
    settings.replace_file(out / META_NAME, json.dumps(meta, indent=2).encode() + b"\n")


def read_meta(path: Path) -> tuple[dict[str, Any], dict[str, Scenario]]:
    """Return metadata and scenarios of a run.

    Raises:
        NodropError: they are missing or invalid.
    """
    try:
        meta = json.loads((path / META_NAME).read_text(encoding="utf-8"))
        if meta["schema"] != META_SCHEMA:
            raise ValueError("its schema is unknown to this version")
        for part, keys in NEEDED:
            if missing := keys - {*(meta[part] if part else meta)}:
                raise ValueError(f"it lacks {sorted(missing)[0]}")
        for name in meta["variants"]:
            Variant(name)
        scenarios = {
            name: Scenario.from_data(name, data) for name, data in meta["scenarios"].items()
        }
        for scenario in scenarios.values():
            scenario.cases()
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise NodropError(
            f"{path / META_NAME} does not describe a run: {error}.",
            "Name a directory that 'nodrop-lab bench' or 'nodrop-lab demo' has written.",
        ) from error
    return meta, scenarios


def made(out: Path, jobs: list[Job]) -> int:
    """Return the number of results in the raw data, including incomplete pairs.

    Raises:
        NodropError: they do not follow the plan, or are compressed.
    """
    if is_packed(out):
        raise NodropError(
            f"{out} cannot be continued: its data are compressed.",
            "Measure again, into another directory.",
        )
    try:
        runs = parse_raw((out / RAW_NAME).read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        raise NodropError(f"The data in {out} are invalid: {error}.") from error
    planned = [(*group(job), str(job.variant)) for job in jobs[: len(runs)]]
    if planned != [(run.scenario, run.case, run.pair, run.variant) for run in runs]:
        raise NodropError(f"The data in {out} do not follow the plan of the run.")
    return len(runs)


def truncate(out: Path, runs: int) -> None:
    """Keep the first runs in raw data and noise; remove the rest, including unfinished lines.

    Raises:
        OSError: the file cannot be changed.
    """
    path = out / RAW_NAME
    if path.exists():
        content = b"".join(path.read_bytes().splitlines(keepends=True)[:runs])
        with path.open("r+b") as file:
            file.truncate(len(content))
            os.fsync(file.fileno())
    noise = out / NOISE_NAME
    if noise.exists():
        lines = noise.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        # A repeated run must not keep the host's load of its first attempt.
        stays = [line for line in lines if any(number < runs for number in parse_noise(line))]
        settings.replace_file(noise, "".join(stays).encode())


def read_text(path: Path) -> str:
    """Return the text of a file of JSON lines, which may be compressed (``.gz``).

    Raises:
        OSError: it is missing or cannot be read.
    """
    if packed(path).exists() and not path.exists():
        return gzip.decompress(packed(path).read_bytes()).decode(errors="replace")
    return path.read_text(encoding="utf-8", errors="replace")


def parse_raw(text: str) -> list[Run]:
    """Parse raw data; skip an incomplete last line, which a killed run leaves.

    Raises:
        ValueError: another line is invalid, or has a metric that is not a finite number.
    """
    finished = text.split("\n")[:-1]
    runs: list[Run] = []
    for number, line in enumerate(finished, start=1):
        try:
            data = json.loads(line)
            names = (data["scenario"], data["case"], data["variant"], data["pair"])
            metrics = dict(data["metrics"])
            if not all(_finite(value) for value in metrics.values()):
                raise ValueError("a metric is not a finite number")
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"line {number} is not a result: {error}") from error
        runs.append(Run(*names, metrics, skipped=data.get("skipped", "")))
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
    by_run = {}
    for line in text.splitlines():
        try:
            data = json.loads(line)
            number = data.pop("run")
            shares = {name: float(value) for name, value in data.items()}
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
            continue
        if type(number) is int and all(map(math.isfinite, shares.values())):
            by_run[number] = shares
    return by_run


def load(path: Path) -> RunDirectory:
    """Read a run's directory.

    Raises:
        NodropError: it is not one, has no results, or is invalid.
    """
    meta, scenarios = read_meta(path)
    host = {}
    try:
        runs = parse_raw(read_text(path / RAW_NAME))
        check_runs(runs, scenarios, meta["variants"])
        with suppress(FileNotFoundError):
            host = parse_noise(read_text(path / NOISE_NAME))
    except (OSError, EOFError, ValueError) as error:
        raise NodropError(f"The data in {path} are invalid: {error}.") from error
    if not runs:
        raise NodropError(f"The run in {path} ended before its first result.")
    if all(run.skipped for run in runs):
        raise NodropError(f"Nothing was measured: {runs[0].skipped}.")
    runs = [replace(run, host=host.get(number)) for number, run in enumerate(runs)]
    return RunDirectory(path, meta, scenarios, runs)
