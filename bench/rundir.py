# SPDX-License-Identifier: GPL-2.0-only
"""The directory of a run in progress: create, interrupt, continue.

The guest appends results in the plan's order, so their number determines which are missing.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.guest.plan import PLAN_NAME, RAW_NAME, Job, write_plan
from bench.report.files import META_NAME, META_SCHEMA, NOISE_NAME, parse_noise, parse_raw
from bench.scenario import Scenario
from lab.variant import Variant
from nodrop.errors import NodropError
from nodrop.host import etc


def jobs(scenarios: Sequence[Scenario], variants: Sequence[Variant]) -> list[Job]:
    """Return all runs of all scenarios, pair by pair.

    In each pair the drivers run one after another in the same case, so a change of the machine's
    speed affects all of them. Each case cycles through all orders of the drivers: of as many pairs
    as there are drivers, each driver is first in one.
    """
    rounds = [[variants[0], *rest] for rest in itertools.permutations(variants[1:])]

    def order(pair: int, number: int) -> list[Variant]:
        around = rounds[(pair // len(variants) + number) % len(rounds)]
        first = (pair + number) % len(variants)
        return around[first:] + around[:first]

    return [
        Job(
            scenario=scenario.name,
            kind=scenario.kind,
            case=case.name,
            parameters=case.parameters,
            variant=variant,
            pair=pair,
            seconds=scenario.seconds,
        )
        for pair in range(max(scenario.pairs for scenario in scenarios))
        for scenario in scenarios
        if pair < scenario.pairs
        for number, case in enumerate(scenario.cases())
        for variant in order(pair, number)
    ]


def group(job: Job) -> tuple[str, str, int]:
    """Return what the runs of one pair share."""
    return job.scenario, job.case, job.pair


def in_complete_pairs(jobs: list[Job], made: int) -> int:
    """Return how many of the first ``made`` runs belong to complete pairs."""
    while 0 < made < len(jobs) and group(jobs[made]) == group(jobs[made - 1]):
        made -= 1
    return made


def pairs(jobs: list[Job]) -> int:
    """Return the number of pairs."""
    return len({group(job) for job in jobs})


def unwritable(out: Path, error: OSError) -> NodropError:
    """Return the error for a directory that cannot be written."""
    return NodropError(f"Cannot write the results to {out}: {error.strerror}.")


def refuse_data(out: Path) -> None:
    """Refuse a directory that holds a run's data.

    Raises:
        NodropError: it holds some.
    """
    if (out / RAW_NAME).exists():
        raise NodropError(
            f"{out} already holds the data of a run.", "Choose another directory with --out."
        )


def create(out: Path, meta: Mapping[str, Any], jobs: list[Job]) -> None:
    """Create a run: write plan and metadata.

    Raises:
        NodropError: the directory holds another run's data or cannot be written.
    """
    refuse_data(out)
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
    etc.replace(out / META_NAME, json.dumps(meta, indent=2).encode() + b"\n")


def read(out: Path) -> tuple[dict[str, Any], list[Job]]:
    """Return metadata and plan of a run.

    Raises:
        NodropError: they are missing or invalid.
    """
    try:
        meta = json.loads((out / META_NAME).read_text(encoding="utf-8"))
        if meta["schema"] != META_SCHEMA:
            raise ValueError("it has another version's schema")
        scenarios = [Scenario.from_data(*item) for item in meta["scenarios"].items()]
        return meta, jobs(scenarios, [Variant(name) for name in meta["variants"]])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise NodropError(f"{out} has no valid metadata of a run: {error}.") from error


def made(out: Path, jobs: list[Job]) -> int:
    """Return the number of results in the raw data, including incomplete pairs.

    Raises:
        NodropError: they do not follow the plan.
    """
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
        kept = b"".join(path.read_bytes().splitlines(keepends=True)[:runs])
        with path.open("r+b") as file:
            file.truncate(len(kept))
            os.fsync(file.fileno())
    noise = out / NOISE_NAME
    if noise.exists():
        lines = noise.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        # A repeated run must not keep the host's load of its first attempt.
        stays = [line for line in lines if any(number < runs for number in parse_noise(line))]
        etc.replace(noise, "".join(stays).encode())
